"""The same photograph twice: identical files, found by their hashes, and near-identical pictures, found by their thumbs.

Within a data set a photograph counts twice; in training and in validation or test it makes the scores too good. What is
in validation and in test alike is nobody's harm.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from seg.datasets.gate.findings import WARNING, Finding, Group
from seg.datasets.gate.near import near_pairs, same_picture
from seg.datasets.gate.sources import Source
from seg.datasets.pairs import Pair

_TRIED = 200  # near pairs that are decoded again, to be sure
Place = tuple[int, int]  # number of the source, number of the pair in it


@dataclass
class Seen:
    """Of all data sets: each image's hash and its mask's, and thumbs of the images that were decoded."""

    hashes: dict[str, list[tuple[Place, str | None]]] = field(default_factory=lambda: defaultdict(list))
    places: list[Place] = field(default_factory=list)
    thumbs: list[bytes] = field(default_factory=list)

    def add_hashes(self, place: Place, image: str, mask: str | None) -> None:
        self.hashes[image].append((place, mask))

    def add_thumb(self, place: Place, thumb: bytes) -> None:
        self.places.append(place)
        self.thumbs.append(thumb)


def duplicate_findings(sources: Sequence[Source], seen: Seen) -> Iterator[Finding]:
    same, labelled_differently = _identical(sources, seen)
    near = _near(sources, seen)
    for (first, second), group in sorted(same.items()):
        yield _finding(sources[first], sources[second], group, 'the same file')
    for (first, second), group in sorted(near.items()):
        yield _finding(sources[first], sources[second], group, 'nearly the same picture')
    if labelled_differently.count:
        text = f'images with two different masks, of which one must be wrong: {labelled_differently.count}'
        yield labelled_differently.finding(WARNING, sources[0].key, text)


def _finding(first: Source, second: Source, group: Group, what: str) -> Finding:
    if first is second:
        text = f'images that are {what} as another one of this data set, and so count twice: {group.count}'
        return group.finding(WARNING, first.key, text, 'Remove one of each two, or list the names to use in ann_file.')
    text = f'images that are {what} as one of {first.key}: {group.count} of {len(second.pairs)}'
    advice = (
        'The scores will be better than the model is. Take them out of one of the two; split=dict(group=...) keeps what '
        'belongs together on one side.'
    )
    return group.finding(WARNING, second.key, text, advice)


def _identical(sources: Sequence[Source], seen: Seen) -> tuple[dict[tuple[int, int], Group], Group]:
    """Groups of images equal to an earlier one, by (earlier source, source); and those whose masks differ."""
    groups: dict[tuple[int, int], Group] = defaultdict(Group)
    differing = Group()
    for entries in seen.hashes.values():
        if len(entries) == 1:
            continue
        entries = sorted(entries)
        for number, (place, mask) in enumerate(entries[1:], start=1):
            earlier = _partner(sources, [other for other, _ in entries[:number]], place)
            if earlier is None:
                continue
            image, other = _pair(sources, place), _pair(sources, earlier)
            groups[earlier[0], place[0]].add(image.img_path, f'{image.img_path} = {other.img_path}')
            other_mask = dict(entries)[earlier]
            if mask != other_mask and image.seg_map_path and other.seg_map_path:
                differing.add(image.img_path, f'{image.seg_map_path} and {other.seg_map_path}')
    return groups, differing


def _near(sources: Sequence[Source], seen: Seen) -> dict[tuple[int, int], Group]:
    groups: dict[tuple[int, int], Group] = defaultdict(Group)
    if not seen.thumbs:
        return groups
    identical = {place: image for image, entries in seen.hashes.items() for place, _ in entries}
    tried = 0
    for one, two in near_pairs(np.frombuffer(b''.join(seen.thumbs), np.uint8).reshape(len(seen.thumbs), -1)):
        first, second = sorted((seen.places[one], seen.places[two]))
        if identical.get(first) == identical.get(second) or _partner(sources, [first], second) is None:
            continue
        tried += 1
        if tried > _TRIED:
            break
        images = [(_pair(sources, place).img_path, sources[place[0]].reading) for place in (first, second)]
        if same_picture(*images):
            groups[first[0], second[0]].add(images[1][0], f'{images[1][0]} ~ {images[0][0]}')
    return groups


def _partner(sources: Sequence[Source], earlier: Sequence[Place], place: Place) -> Place | None:
    """The one of the earlier places that a second copy at `place` does harm with: training's first."""
    by_use = sorted(earlier, key=lambda other: (sources[other[0]].part != 'train', other))
    part = sources[place[0]].part
    return next((p for p in by_use if sources[p[0]].part in ('train', part) or part == 'train'), None)


def _pair(sources: Sequence[Source], place: Place) -> Pair:
    return sources[place[0]].pairs[place[1]]
