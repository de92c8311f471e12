"""K-fold cross-validation: fold i of k is validated, the others are trained on, whole groups together."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from seg.datasets.split import PARTS, check_pattern, in_groups, shuffled
from seg.errors import UserError


@dataclass(frozen=True)
class FoldSplit:
    """`fold='0/5'`: the first of five folds is 'val', the other four are 'train'.

    Which fold a group falls in depends on the seed and the names alone, on no listing order. The largest groups are
    dealt first, each to the fold with the fewest images, so that the folds come out even. `group` as in PercentSplit.
    """

    part: str
    fold: str
    seed: int = 0
    group: str | None = None

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise UserError(f"split: part={self.part!r}; 'train' or 'val' is meant")
        parse_fold(self.fold)
        if self.group is not None:
            check_pattern(self.group)

    def choose(self, names: Iterable[str]) -> list[str]:
        """The sorted names of this part. Raises UserError where there are fewer groups than folds."""
        number, count = parse_fold(self.fold)
        folds = deal(in_groups(names, self.group), count, self.seed)
        if self.part == 'val':
            return folds[number]
        return sorted(name for place, fold in enumerate(folds) if place != number for name in fold)

    def describe(self) -> dict[str, Any]:
        return asdict(self)


def parse_fold(text: str) -> tuple[int, int]:
    """'0/5' -> (0, 5). Raises UserError for what is no fold."""
    match = re.fullmatch(r'(\d{1,6})/(\d{1,6})', str(text))
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if count < 2 or number >= count:
        raise UserError(f"fold={text!r}: expected NUMBER/COUNT, counted from 0: '0/5', '1/5', ... '4/5' are five folds")
    return number, count


def deal(groups: dict[str, list[str]], count: int, seed: int) -> list[list[str]]:
    """The sorted names of each of `count` folds; no group is in two."""
    if len(groups) < count:
        images = sum(map(len, groups.values()))
        raise UserError(f'fold: {images} images in {len(groups)} group(s) cannot make {count} folds; ask for fewer')
    folds: list[list[str]] = [[] for _ in range(count)]
    for group in sorted(shuffled(groups, seed), key=lambda group: -len(groups[group])):
        min(folds, key=len).extend(groups[group])
    return [sorted(fold) for fold in folds]
