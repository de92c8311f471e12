"""From the values in a mask file to class numbers: 0 to num_classes - 1, and 255 where a pixel is ignored.

What a file's values are:
- gray of 8 or 16 bits: the numbers as they stand in the file;
- a palette (GIF, PNG), 1 bit, and 2 or 4 bits of gray: the index, which is what tools that draw class masks write.
  Where `label_map` does not know the indices but knows the palette's grays, the grays are taken: the same 0/255 mask is
  stored by some programs as gray and by others as a palette of two entries. So they are where the palette is too short
  for any index in the map but 0. A file in which both readings are possible and differ is refused otherwise;
- colours: looked up in a `label_map` of colours; a colour file in which every pixel is gray counts as gray.

A value without a class is an error that names the file: nothing is dropped, clipped or guessed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import cv2
import numpy as np

from seg.datasets.label_rule import LabelRule, MaskKey
from seg.errors import UserError

_MANY = 8  # more unknown values than this are no forgotten classes


@dataclass(frozen=True)
class RawMask:
    """A decoded mask: HW integers (indices where it has an N x 3 `palette`) or HW3 uint8 colours."""

    values: np.ndarray
    palette: np.ndarray | None = None
    is_lossy: bool = False


def to_labels(raw: RawMask, rule: LabelRule, path: str) -> np.ndarray:
    """HW uint8 of classes, 255 for ignore. Raises UserError that names the file for a value without a class."""
    if rule.mask_threshold is not None:
        return _threshold(raw.values, rule.mask_threshold, raw.is_lossy, path)
    if raw.is_lossy:
        count = len(_present(raw.values))
        raise UserError(
            f'{path}: a lossy mask, {count} values: this compression changes pixel values; make the mask again as PNG, '
            'or set mask_threshold=128 (on the data set) where there are two classes'
        )
    if raw.values.ndim == 3:
        return _from_colours(raw.values, rule, path)
    return _from_values(raw, rule, path)


def _from_values(raw: RawMask, rule: LabelRule, path: str) -> np.ndarray:
    present = _present(raw.values)
    classes = _read_palette(raw.palette, present, rule, path) if raw.palette is not None else rule.classes_of(present)
    if None in classes:
        counts = [int(np.count_nonzero(raw.values == value)) for value in present[:_MANY]]
        _refuse_values(present, counts, classes, rule, path)
    return _look_up(raw.values, present, classes)


def _present(values: np.ndarray) -> list[int]:
    """The distinct values, ascending."""
    if values.dtype == np.uint8 and values.ndim == 2:
        counts = cv2.calcHist([values], [0], None, [256], [0, 256])  # ten times as fast as np.unique
        return [int(value) for value in np.flatnonzero(counts)]
    return [int(value) for value in np.unique(values)]


def _look_up(values: np.ndarray, present: list[int], classes: Sequence[int | None]) -> np.ndarray:
    numbers = np.array(classes, dtype=np.uint8)
    if values.dtype != np.uint8:
        return numbers[np.searchsorted(np.array(present), values)]
    table = np.zeros(256, np.uint8)
    table[present] = numbers
    return cv2.LUT(values, table)


def _read_palette(palette: np.ndarray, present: list[int], rule: LabelRule, path: str) -> Sequence[int | None]:
    """Classes of the indices found: by index, by the palette's gray, or by its colour for a map of colours."""
    by_index = rule.classes_of(present)
    if present[-1] >= len(palette):
        return by_index
    if rule.is_by_colour and rule.label_map is not None:
        return [rule.label_map.get((int(r), int(g), int(b))) for r, g, b in palette[present]]
    by_gray = _gray_classes(palette, present, rule)
    if None in by_gray or by_gray == by_index:
        return by_index
    if rule.label_map is not None and (None in by_index or _map_is_of_grays(rule.label_map, palette)):
        return by_gray
    if None in by_index:
        return by_index
    if not _only_index_explains(palette, present, rule):
        raise UserError(
            f'{path}: the palette indices {_some(present)} and their grays {_some(palette[present][:, 0].tolist())} '
            f'are both known values ({rule.allowed()}) and mean different classes; store the mask as plain gray PNG, '
            'or leave the values that it does not use out of label_map'
        )
    return by_index


def _gray_classes(palette: np.ndarray, entries: list[int], rule: LabelRule) -> list[int | None]:
    colours = palette[entries]
    is_gray = (colours == colours[:, :1]).all(axis=1)
    classes = rule.classes_of(colours[:, 0].tolist())
    return [label if gray else None for label, gray in zip(classes, is_gray)]


def _map_is_of_grays(label_map: Mapping[MaskKey, int], palette: np.ndarray) -> bool:
    """{0: 0, 255: 1} for a palette of two entries: no index but 0 could ever have a class."""
    return all(key == 0 or (isinstance(key, int) and key >= len(palette)) for key in label_map)


def _only_index_explains(palette: np.ndarray, present: list[int], rule: LabelRule) -> bool:
    """Whether the entries that the palette declares beyond those used decide for the indices."""
    declared = max([present[-1], *np.flatnonzero(palette.any(axis=1))]) + 1  # writers pad a palette with black
    entries = list(range(declared))
    return None not in rule.classes_of(entries) and None in _gray_classes(palette, entries, rule)


def _from_colours(colours: np.ndarray, rule: LabelRule, path: str) -> np.ndarray:
    if rule.is_by_colour and rule.label_map is not None:
        return _look_up_colours(colours, rule, path)
    if (colours == colours[..., :1]).all():
        return _from_values(RawMask(np.ascontiguousarray(colours[..., 0])), rule, path)
    found, counts = np.unique(_codes(colours), return_counts=True)
    listed = _list_colours(found, counts)
    raise UserError(
        f'{path}: a colour mask, {len(found)} colours: {listed}. Give the data set label_map={{(r, g, b): class, ...}}'
    )


def _look_up_colours(colours: np.ndarray, rule: LabelRule, path: str) -> np.ndarray:
    codes = _codes(colours)
    labels, known = np.zeros(codes.shape, np.uint8), np.zeros(codes.shape, bool)
    for colour, label in (rule.label_map or {}).items():
        hit = codes == int(_codes(np.array(colour, np.uint8)))
        labels[hit] = label
        known |= hit
    if not known.all():
        found, counts = np.unique(codes[~known], return_counts=True)
        hint = _LOSSY_HINT.format(len(found)) if len(found) > _MANY else 'Add them, with class 255 to ignore them.'
        raise UserError(f'{path}: mask colours that label_map does not know: {_list_colours(found, counts)}. {hint}')
    return labels


def _codes(colours: np.ndarray) -> np.ndarray:
    wide = colours.astype(np.uint32)
    return wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]


def _list_colours(codes: np.ndarray, counts: np.ndarray) -> str:
    shown = [f'({c >> 16}, {c >> 8 & 255}, {c & 255}) {n} px' for c, n in zip(codes[:_MANY].tolist(), counts)]
    return ', '.join(shown) + (f' and {len(codes) - _MANY} more' if len(codes) > _MANY else '')


def _threshold(values: np.ndarray, threshold: int, is_lossy: bool, path: str) -> np.ndarray:
    present = _present(values)
    if not is_lossy and present[-1] == 1:
        raise UserError(
            f'{path}: values {_some(present)}: mask_threshold={threshold} would make all of it background; '
            'leave mask_threshold out for masks of 0 and 1'
        )
    return (values >= threshold).astype(np.uint8)


_LOSSY_HINT = (
    '{} unknown values are no classes: the mask was resized smoothly or saved lossily. Make it again with nearest '
    'resampling as PNG, or set mask_threshold=128 (on the data set) where there are two classes.'
)


def _refuse_values(
    present: list[int], counts: list[int], classes: Sequence[int | None], rule: LabelRule, path: str
) -> NoReturn:
    unknown = classes.count(None)
    found = ', '.join(f'{value} ({count} px)' for value, count in zip(present, counts))
    more = f' and {len(present) - len(counts)} more values' if len(present) > len(counts) else ''
    advice = _advice(present, unknown, rule)
    raise UserError(f'{path}: {len(present)} mask values, {found}{more}; allowed are {rule.allowed()}. {advice}')


def _advice(present: list[int], unknown: int, rule: LabelRule) -> str:
    if unknown > _MANY:
        return _LOSSY_HINT.format(unknown)
    if rule.is_doubtful(present):
        return (
            'Is 255 the foreground? Then set label_map={0: 0, 255: 1} on the data set. '
            'Is it to be ignored? Then say so: label_map={0: 0, 1: 1, 255: 255}.'
        )
    if rule.is_binary and len(present) == 2 and rule.label_map is None:
        return f'Set label_map={{{present[0]}: 0, {present[1]}: 1}} on the data set if these are the two classes.'
    return 'Give the data set a label_map={value: class, ...} that names them, or ignore_index=value for one.'


def _some(values: Sequence[int]) -> str:
    return str(list(values[:_MANY]))[1:-1] + (', ...' if len(values) > _MANY else '')
