"""Carvana's submission format: run-length encoded masks in a CSV `img,rle_mask`.

Pixels are numbered from 1, row by row (most other Kaggle competitions number them column by column). A mask is
`start length start length ...`; a run goes on across the end of a row. Source: Kaggle, Carvana Image Masking Challenge,
"Evaluation".
"""

import csv
import os
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seg.errors import UserError


def encode(mask_HW: NDArray) -> str:
    """The runs of non-zero pixels; an empty string for a mask without any."""
    flat = np.asarray(mask_HW).ravel().astype(bool, copy=False)
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1  # where a run begins or has just ended
    if flat.size and flat[0]:
        changes = np.concatenate([[0], changes])
    if flat.size and flat[-1]:
        changes = np.concatenate([changes, [flat.size]])
    starts, ends = changes[::2], changes[1::2]
    return ' '.join(f'{start + 1} {end - start}' for start, end in zip(starts.tolist(), ends.tolist()))


def decode(rle: str, size_px: tuple[int, int]) -> NDArray[np.uint8]:
    """A mask of 0 and 1 of (height, width).

    Raises UserError for text that is not runs in ascending order within the picture.
    """
    flat = np.zeros(size_px[0] * size_px[1], dtype=np.uint8)
    end = 1
    for start, length in _runs(rle):
        if start < end or length < 1 or start + length - 1 > flat.size:
            raise UserError(
                f'run "{start} {length}": expected a start of at least {end} and a length of at least 1 that ends '
                f'within the {flat.size} pixels of {size_px[1]}x{size_px[0]}, counted from 1'
            )
        end = start + length
        flat[start - 1 : end - 1] = 1
    return flat.reshape(size_px)


def _runs(rle: str) -> list[tuple[int, int]]:
    try:
        numbers = [int(word) for word in rle.split()]
    except ValueError as error:
        raise UserError(f'run lengths {_short(rle)}: expected whole numbers with spaces between them') from error
    if len(numbers) % 2:
        raise UserError(f'run lengths {_short(rle)}: {len(numbers)} numbers; expected pairs of a start and a length')
    return list(zip(numbers[::2], numbers[1::2]))


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f'{text[:40]}...')


class RleWriter:
    """A submission file, written row by row beside `path` and renamed to it at the end.

    As a context manager: an exception inside leaves what was at `path` before.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._temporary = self.path.with_name(f'.{self.path.name}.tmp')

    def __enter__(self) -> 'RleWriter':
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._temporary.open('w', encoding='utf8', errors='surrogateescape', newline='')
        self._rows: Any = csv.writer(self._file, lineterminator='\n')
        self._rows.writerow(['img', 'rle_mask'])
        return self

    def add(self, name: str, mask_HW: NDArray) -> None:
        """One row: `name` is the photograph's file name."""
        self._rows.writerow([name, encode(mask_HW)])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._file as file:
                file.flush()
                os.fsync(file.fileno())
            if kind is None:
                self._temporary.replace(self.path)
        finally:
            self._temporary.unlink(missing_ok=True)
