"""What a pass over a data set found, as plain data: for messages, for the report, for the cache."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from seg.datasets.gate.findings import ERROR, WARNING, Finding
from seg.datasets.gate.labels import class_names, label_findings
from seg.datasets.gate.sources import Source
from seg.datasets.gate.tally import Tally
from seg.datasets.label_rule import IGNORE_INDEX

_LISTED_SIZES = 500
_FILE_FAULTS = (  # kind, level, what is counted, what to do
    ('image', ERROR, 'images that cannot be used', 'Mend them or take them out.'),
    ('mask', ERROR, 'masks that cannot be used', ''),
    ('colours', ERROR, 'masks of colours without a class', ''),
    ('size', ERROR, 'masks of another size than their image', ''),
    ('turned', WARNING, 'images with an EXIF block to look at', ''),
    ('frames', WARNING, 'image files of several pictures', ''),
    ('pixels', WARNING, 'images whose values may not be what is meant', ''),
)


@dataclass
class SetSummary:
    """One data set. Sizes are (h, w) as shown; `smallest` and `largest` are taken over each side by itself.

    masks, photos: how many were decoded; masks_left, photos_left: for how many time did not suffice. class_pixels,
    class_masks: of the masks decoded, pixels of each class and masks that have it.
    """

    key: str
    part: str
    pairs: int
    has_masks: bool
    masks: int = 0
    photos: int = 0
    masks_left: int = 0
    photos_left: int = 0
    classes: list[str] = field(default_factory=list)
    palette: list[list[int]] = field(default_factory=list)
    class_pixels: list[int] = field(default_factory=list)
    class_masks: list[int] = field(default_factory=list)
    ignored_pixels: int = 0
    sizes: list[list[int]] = field(default_factory=list)
    smallest: list[int] = field(default_factory=list)
    largest: list[int] = field(default_factory=list)

    def unchecked(self) -> str:
        """What there was no time to decode, in words; empty where there was."""
        left = {'masks': self.masks_left, 'images': self.photos_left}
        parts = [f'{count} of {self.pairs} {what}' for what, count in left.items() if count]
        return f'{self.key}: {" and ".join(parts)} are not decoded yet' if parts else ''


@dataclass
class DataSummary:
    """All data sets of a config. `is_full`: nothing is left to decode. seconds: what was allowed for decoding."""

    sets: list[SetSummary]
    findings: list[Finding]
    is_full: bool
    seconds: float

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> 'DataSummary':
        sets = [SetSummary(**one) for one in plain['sets']]
        findings = [Finding(**one) for one in plain['findings']]
        return cls(sets, findings, plain['is_full'], plain['seconds'])


def summarise(source: Source, tally: Tally) -> SetSummary:
    names = class_names(source)
    return SetSummary(
        key=source.key,
        part=source.part,
        pairs=len(source.pairs),
        has_masks=source.has_masks,
        masks=tally.masks,
        photos=tally.photos,
        masks_left=tally.masks_left,
        photos_left=tally.photos_left,
        classes=names,
        palette=source.palette,
        class_pixels=tally.pixels[: len(names)].tolist(),
        class_masks=tally.in_masks[: len(names)].tolist(),
        ignored_pixels=int(tally.pixels[IGNORE_INDEX]),
        sizes=tally.size_list(_LISTED_SIZES),
        smallest=tally.low.tolist() if tally.sizes else [],
        largest=tally.high.tolist() if tally.sizes else [],
    )


def set_findings(source: Source, tally: Tally) -> Iterator[Finding]:
    """Of one data set by itself."""
    allowed = tally.count('image') + tally.count('mask') <= source.max_bad_files
    for kind, level, text, advice in _FILE_FAULTS:
        if tally.count(kind):
            counted = f'{text}: {tally.count(kind)} of {len(source.pairs)}'
            if kind in ('image', 'mask') and allowed:
                level, advice = WARNING, f'max_bad_files={source.max_bad_files} allows them: others take their place.'
            yield tally.groups[kind].finding(level, source.key, counted, advice)
    yield from label_findings(source, tally)
