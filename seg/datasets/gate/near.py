"""Photographs that are one photograph: compressed anew, resized, or taken in one moment.

Two pictures are near when their thumbs of 8 x 9 grays differ by less than compressing anew makes of it, which is much
less than other views of the same thing do. A flat picture needs to be nearer than one of strong contrast.
"""

from collections.abc import Iterator

import numpy as np

from seg.datasets.gate.looks import read_small, shrink_to_gray
from seg.datasets.gate.sources import Reading
from seg.datasets.opening import open_image, overhear
from seg.errors import UserError

_NEAR = 0.04  # mean difference of two thumbs, in parts of their contrast (the standard deviation of their grays)
_NEAR_GRAYS = 1.5  # and never more than this
_SURE = (64, 64)  # h, w in pixels of the pictures that decide
_WORK = 10**9  # comparisons at most


def near_pairs(thumbs: np.ndarray) -> Iterator[tuple[int, int]]:
    """Pairs of rows of N x K uint8 that are near, as numbers of rows.

    Thumbs are sorted along the direction in which they differ most; near ones are near there, and along the next three
    directions, so that few need to be compared as a whole.
    """
    wide = thumbs.astype(np.float32)
    along = _projected(wide)
    order = np.argsort(along[:, 0], kind='stable')
    along, wide = along[order], wide[order]
    reach = _NEAR_GRAYS * np.sqrt(wide.shape[1]) * 2  # of the distance, for a mean difference of _NEAR_GRAYS
    contrast = wide.std(axis=1)
    for step in range(1, min(len(wide), _WORK // len(wide))):
        low = np.flatnonzero(along[step:, 0] - along[:-step, 0] <= reach)
        if len(low) == 0:
            return
        low = low[(np.abs(along[low + step, 1:] - along[low, 1:]) <= reach).all(axis=1)]
        difference = _mean_difference(wide, low, step)
        limit = np.minimum(_NEAR_GRAYS, _NEAR * np.minimum(contrast[low], contrast[low + step]))
        for place in low[difference <= limit]:
            yield int(order[place]), int(order[place + step])


def same_picture(one: tuple[str, Reading], two: tuple[str, Reading]) -> bool:
    """Whether two files, read anew, show the same in 64 x 64 grays."""
    with overhear():
        try:
            first, second = (_picture(*image) for image in (one, two))
        except UserError:  # gone bad since: the next look at the file says so
            return False
    return bool(np.abs(first - second).mean() <= 2 * min(_NEAR_GRAYS, _NEAR * min(first.std(), second.std())))


def _projected(wide: np.ndarray) -> np.ndarray:
    """N x 4: where N x K lie along their first principal axes."""
    centred = wide - wide.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    return centred @ axes[:, :-5:-1]


def _mean_difference(wide: np.ndarray, low: np.ndarray, step: int) -> np.ndarray:
    """Of the rows `low` and those `step` after them, in pieces that stay small in memory."""
    pieces = [low[start : start + 4096] for start in range(0, len(low), 4096)]
    return np.array([d for piece in pieces for d in np.abs(wide[piece + step] - wide[piece]).mean(axis=1)])


def _picture(path: str, reading: Reading) -> np.ndarray:
    return shrink_to_gray(read_small(open_image(path, reading.max_pixels), reading), _SURE).astype(np.float32)
