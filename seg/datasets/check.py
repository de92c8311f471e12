"""The data gate: what can be known of a config's files before they are trained on.

Headers and end marks of all files are read; masks, then photographs, are decoded for a limited time, spread evenly over
the data sets. What was found is cached: files that have not changed are not looked at again.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seg.datasets.gate.cache import Cache
from seg.datasets.gate.duplicates import Place, duplicate_findings
from seg.datasets.gate.findings import Finding
from seg.datasets.gate.parallel import Crew
from seg.datasets.gate.sources import Source
from seg.datasets.gate.stages import VERSION, Pass, run_stage
from seg.datasets.gate.stamps import Stamp, fingerprint, pair_stamp
from seg.datasets.gate.summary import DataSummary, set_findings, summarise

_MASKS_SHARE = 0.8  # of the time for decoding; photographs have the rest, and what masks leave


@dataclass(frozen=True)
class Limits:
    """seconds: for decoding, all data sets together. full: decode everything, however long it takes."""

    seconds: float = 60.0
    full: bool = False

    def deadline(self, share: float = 1.0) -> float:
        return float('inf') if self.full else time.monotonic() + share * self.seconds


def check_data(
    sources: Sequence[Source],
    stamps: dict[str, Stamp],
    limits: Limits,
    crew: Crew,
    cache_folder: Path | None = None,
) -> tuple[DataSummary, str]:
    """What was found, and why the cache could not be used (empty where it could).

    sources: at least one, none empty. stamps: of their files. cache_folder: the user's by default.
    """
    caches = [Cache(source.image_folder, cache_folder) for source in sources]
    whole = fingerprint(_everything(sources, stamps))
    known = caches[0].summary(whole)
    if known is not None:
        summary = DataSummary.from_plain(known)
        if summary.is_full or (not limits.full and summary.seconds >= limits.seconds):
            return summary, caches[0].trouble
    summary = _look(Pass(sources, stamps, caches, crew), limits)
    caches[0].add_summary(whole, summary.to_plain())
    return summary, next((cache.trouble for cache in caches if cache.trouble), '')


def _everything(sources: Sequence[Source], stamps: dict[str, Stamp]) -> Iterator[str]:
    """All that a summary depends on."""
    yield VERSION
    for source in sources:
        yield f'{source.key} {source.rule} {source.reading} {source.classes} {source.palette} {source.max_bad_files}'
        for pair in source.pairs:
            yield f'{pair.img_path}\n{pair.seg_map_path}\n{pair_stamp(pair, stamps)}'


def _look(work: Pass, limits: Limits) -> DataSummary:
    places = spread(work.sources)
    run_stage(work, 'head', places, float('inf'))
    end = limits.deadline()
    masks = [place for place in places if work.has_good_mask(place)]
    run_stage(work, 'mask', masks, limits.deadline(_MASKS_SHARE))
    run_stage(work, 'photo', [place for place in places if work.has_good_image(place)], end)
    sets = [summarise(source, tally) for source, tally in zip(work.sources, work.tallies)]
    is_full = all(one.masks_left == one.photos_left == 0 for one in sets)
    return DataSummary(sets, list(_findings(work)), is_full, limits.seconds)


def _findings(work: Pass) -> Iterator[Finding]:
    for source, tally in zip(work.sources, work.tallies):
        yield from set_findings(source, tally)
    yield from duplicate_findings(work.sources, work.seen)


def spread(sources: Sequence[Source]) -> list[Place]:
    """All pairs in the order of a hash of their names: any first part of it is spread evenly over all data sets."""
    hashed = [
        (hashlib.blake2b(pair.name.encode(errors='surrogateescape'), digest_size=8).digest(), number, index)
        for number, source in enumerate(sources)
        for index, pair in enumerate(source.pairs)
    ]
    return [(number, index) for _, number, index in sorted(hashed)]
