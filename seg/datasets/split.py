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
            _check_pattern(self.group)

    def choose(self, names: Iterable[str]) -> list[str]:
        """The sorted names of this part. Raises UserError when a half would be empty."""
        train, val = self.halves(names)
        return train if self.part == 'train' else val

    def halves(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """(train, val), each sorted; together they are the names, and no group is in both."""
        groups = self._groups(names)
        total = sum(map(len, groups.values()))
        if len(groups) < 2:
            raise UserError(
                f'split: {total} images in {len(groups)} group(s) by group={self.group!r}; two halves need two groups'
            )
        chosen = _fill(_shuffled(groups, self.seed), groups, max(1, int(total * self.val_percent / 100)))
        train = sorted(name for group, members in groups.items() if group not in chosen for name in members)
        return train, sorted(name for group in chosen for name in groups[group])

    def describe(self) -> dict[str, Any]:
        return asdict(self)

    def _groups(self, names: Iterable[str]) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(self._group_of(name), []).append(name)
        return groups

    def _group_of(self, name: str) -> str:
        if self.group is None:
            return name
        match = re.search(self.group, name)
        if match is None or match.group(1) is None:
            raise UserError(f'split: the image {name!r} does not fit group={self.group!r}')
        return match.group(1)


def _check_pattern(pattern: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise UserError(f'split: group={pattern!r} is no regular expression: {error}') from error
    if groups != 1:
        raise UserError(f"split: group={pattern!r} must have one bracketed part, as in r'^(.+)_[^_]+$'")


def _shuffled(groups: Iterable[str], seed: int) -> list[str]:
    return sorted(groups, key=lambda group: (hashlib.sha256(f'{seed}:{group}'.encode()).digest(), group))


def _fill(order: Sequence[str], groups: Mapping[str, Sequence[str]], wanted: int) -> set[str]:
    """Groups, in order, that bring the number of images nearest to what is wanted: one at least, not all."""
    chosen: list[str] = []
    count = 0
    for group in order:
        size = len(groups[group])
        if abs(count + size - wanted) < abs(count - wanted) and len(chosen) < len(order) - 1:
            chosen.append(group)
            count += size
    return set(chosen or [min(order, key=lambda group: len(groups[group]))])
