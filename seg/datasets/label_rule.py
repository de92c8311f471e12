"""Which value of a mask file is which class, as the data set's config says it, checked once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seg.errors import UserError

IGNORE_INDEX = 255
Colour = tuple[int, int, int]
MaskKey = int | Colour


@dataclass(frozen=True)
class LabelRule:
    """Which value of the file is which class.

    label_map: {value: class} or {(r, g, b): class}; 255 as the class means ignore.
    ignore_index: the file's own value for ignore, where `label_map` does not name it.
    reduce_zero_label: 0 becomes ignore and k becomes k - 1, as in ADE20K.
    mask_threshold: for two classes in lossy files: gray (of 8 bit) from here on is class 1.
    num_classes: 1 and 2 both mean the labels 0 and 1; None checks nothing.
    Raises UserError for a rule that contradicts itself.
    """

    num_classes: int | None = None
    label_map: Mapping[MaskKey, int] | None = None
    ignore_index: int = IGNORE_INDEX
    reduce_zero_label: bool = False
    mask_threshold: int | None = None

    def __post_init__(self) -> None:
        if self.num_classes is not None and not 1 <= self.num_classes <= 255:
            raise UserError(f'{self.num_classes} classes: 1 to 255 are possible, labels are 8 bit and 255 means ignore')
        _check_label_map(self)
        _check_zero_label(self)
        _check_threshold(self)
        if self.label_map is None and self.num_classes is not None and 0 <= self.ignore_index < self.limit:
            number = self.ignore_index
            raise UserError(
                f'ignore_index={number} is also class {number}; to ignore a class: label_map={{{number}: 255}}'
            )

    @property
    def limit(self) -> int:
        """One more than the largest class number."""
        return 255 if self.num_classes is None else max(self.num_classes, 2)

    @property
    def is_binary(self) -> bool:
        return self.num_classes in (1, 2)

    @property
    def is_by_colour(self) -> bool:
        return self.label_map is not None and isinstance(next(iter(self.label_map)), tuple)

    def classes_of(self, values: Sequence[int]) -> list[int | None]:
        """The class of each value found in one file, None for a value that has none."""
        if self.is_doubtful(values):
            return [None if value == IGNORE_INDEX else value for value in values]
        return [self._class_of(value) for value in values]

    def is_doubtful(self, values: Sequence[int]) -> bool:
        """Two classes, values 0 and 255, nothing said: 255 is ignore by default, and far more often the foreground."""
        silent = self.label_map is None and self.ignore_index == IGNORE_INDEX
        return self.is_binary and silent and IGNORE_INDEX in values and set(values) <= {0, IGNORE_INDEX}

    def allowed(self) -> str:
        if self.label_map is not None:
            return f'those of label_map={dict(self.label_map)} and ignore_index={self.ignore_index}'
        last = self.limit if self.reduce_zero_label else self.limit - 1
        return f'0 to {last} and ignore_index={self.ignore_index}'

    def _class_of(self, value: int) -> int | None:
        if self.label_map is not None and self.is_by_colour:
            return self.label_map.get((value, value, value))
        if self.label_map is not None and value in self.label_map:
            return self.label_map[value]
        if value == self.ignore_index:
            return IGNORE_INDEX
        if self.label_map is not None:
            return None
        if self.reduce_zero_label:
            return IGNORE_INDEX if value == 0 else value - 1 if 1 <= value <= self.limit else None
        return value if 0 <= value < self.limit else None


def _check_label_map(rule: LabelRule) -> None:
    if rule.label_map is None:
        return
    keys = list(rule.label_map)
    if not keys or not (all(map(_is_int, keys)) or all(map(_is_colour, keys))):
        raise UserError(
            f'label_map={dict(rule.label_map)}: its keys must be all values (numbers) or all colours '
            '((r, g, b) of 0 to 255), as in {0: 0, 255: 1} or {(0, 0, 0): 0, (255, 0, 0): 1}'
        )
    for key, label in rule.label_map.items():
        if not _is_int(label) or not (0 <= label < rule.limit or label == IGNORE_INDEX):
            raise UserError(
                f'label_map: {key!r} is given class {label!r}; classes are 0 to {rule.limit - 1}, and 255 means ignore'
            )


def _check_zero_label(rule: LabelRule) -> None:
    if rule.reduce_zero_label and rule.is_binary:
        raise UserError(
            'reduce_zero_label=True ignores every pixel of class 0, the background, and leaves one class of two; '
            'leave it out (for masks of 1 and 2: label_map={1: 0, 2: 1})'
        )
    if rule.reduce_zero_label and rule.label_map is not None:
        raise UserError('reduce_zero_label and label_map are both given; say it all in label_map: {0: 255, 1: 0, ...}')


def _check_threshold(rule: LabelRule) -> None:
    if rule.mask_threshold is None:
        return
    if not 1 <= rule.mask_threshold <= 255:
        raise UserError(f'mask_threshold={rule.mask_threshold}: a gray of 1 to 255 is meant')
    if rule.label_map is not None or rule.reduce_zero_label or not (rule.num_classes is None or rule.is_binary):
        raise UserError(
            'mask_threshold makes two classes out of gray values: it goes with num_classes 1 or 2, and without '
            'label_map and reduce_zero_label'
        )


def _is_int(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_colour(key: object) -> bool:
    return isinstance(key, tuple) and len(key) == 3 and all(_is_int(part) and 0 <= part <= 255 for part in key)
