"""Which names are trained on and which validated, by a percentage, whole groups together.

The percentage is drawn by hashing, not by shuffling a list: which half a group falls in depends on the seed and the
names alone, on no listing order and no library's random stream, and a few files more move few others.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from seg.errors import UserError

PARTS = ('train', 'val')


@dataclass(frozen=True)
class PercentSplit:
    """`val_percent` of the images, to the nearest whole group, are 'val', the rest 'train'.

    group: a regular expression with one (bracketed) part; names in which that part is equal stay together. Without
        it every image is its own group.
    """

    part: str
    val_percent: float = 10.0
    seed: int = 0
    group: str | None = None

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise UserError(f"split: part={self.part!r}; 'train' or 'val' is meant")
        if not 0 < self.val_percent < 100:
            raise UserError(f'split: val_percent={self.val_percent}; it lies between 0 and 100, in percent')
        if self.group is not None:
            check_pattern(self.group)

    def choose(self, names: Iterable[str]) -> list[str]:
        """The sorted names of this part. Raises UserError when a half would be empty."""
        train, val = self.halves(names)
        return train if self.part == 'train' else val

    def halves(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """(train, val), each sorted; together they are the names, and no group is in both."""
        groups = in_groups(names, self.group)
        total = sum(map(len, groups.values()))
        if len(groups) < 2:
            raise UserError(
                f'split: {total} images in {len(groups)} group(s) by group={self.group!r}; two halves need two groups'
            )
        chosen = _fill(shuffled(groups, self.seed), groups, max(1, int(total * self.val_percent / 100)))
        train = sorted(name for group, members in groups.items() if group not in chosen for name in members)
        return train, sorted(name for group in chosen for name in groups[group])

    def describe(self) -> dict[str, Any]:
        return asdict(self)


def thin(names: Iterable[str], percent: float, seed: int = 0, group: str | None = None) -> list[str]:
    """`percent` of the images, to the nearest whole group, sorted; one group at least.

    Of single images (no `group`), those of a smaller percentage are among those of a larger one.
    """
    if not 0 < percent <= 100:
        raise UserError(f'percent={percent}; above 0 and up to 100 is meant, in percent of the images')
    groups = in_groups(names, group)
    wanted = max(1, int(sum(map(len, groups.values())) * percent / 100))
    return sorted(name for chosen in _fill(shuffled(groups, seed), groups, wanted, leave=0) for name in groups[chosen])


def in_groups(names: Iterable[str], pattern: str | None) -> dict[str, list[str]]:
    """The names by what the pattern's bracketed part finds in them; without a pattern each by itself."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_group_of(name, pattern), []).append(name)
    return groups


def _group_of(name: str, pattern: str | None) -> str:
    if pattern is None:
        return name
    match = re.search(pattern, name)
    if match is None or match.group(1) is None:
        raise UserError(f'split: the image {name!r} does not fit group={pattern!r}')
    return match.group(1)


def check_pattern(pattern: str) -> None:
    """Raises UserError for what is no regular expression with one bracketed part."""
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise UserError(f'split: group={pattern!r} is no regular expression: {error}') from error
    if groups != 1:
        raise UserError(f"split: group={pattern!r} must have one bracketed part, as in r'^(.+)_[^_]+$'")


def shuffled(groups: Iterable[str], seed: int) -> list[str]:
    """In an order that the seed and the names alone decide."""
    return sorted(groups, key=lambda group: (hashlib.sha256(f'{seed}:{group}'.encode()).digest(), group))


def _fill(order: Sequence[str], groups: Mapping[str, Sequence[str]], wanted: int, leave: int = 1) -> set[str]:
    """Groups, in order, that bring the number of images nearest to what is wanted: one at least, all but `leave`."""
    chosen: list[str] = []
    count = 0
    for group in order:
        size = len(groups[group])
        if abs(count + size - wanted) < abs(count - wanted) and len(chosen) < len(order) - leave:
            chosen.append(group)
            count += size
    return set(chosen or [min(order, key=lambda group: len(groups[group]))])
