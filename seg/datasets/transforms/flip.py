"""Flips."""

from collections.abc import Sequence

import cv2
import numpy as np
from mmcv.transforms import BaseTransform

from seg.datasets.transforms.fields import Results, map_aligned_labels, probability
from seg.errors import UserError
from seg.registry import TRANSFORMS

_CV_CODES = {'horizontal': 1, 'vertical': 0, 'diagonal': -1}


@TRANSFORMS.register_module()
class RandomFlip(BaseTransform):
    """One flip, or none.

    Not mmcv's, which swaps labels in the mask it was given, and after a diagonal flip too.

    Args:
        prob: of a flip, shared evenly by the directions; or one for each direction, their sum at most 1.
        direction: 'horizontal', 'vertical' or 'diagonal' (both at once, a turn by 180 degrees), or a list of them.
        swap_seg_labels: pairs of classes that a mirror exchanges, such as left and right arm.
    """

    def __init__(
        self,
        prob: float | Sequence[float],
        direction: str | Sequence[str] = 'horizontal',
        swap_seg_labels: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.directions = [direction] if isinstance(direction, str) else list(direction)
        if not self.directions or not set(self.directions) <= set(_CV_CODES):
            raise UserError(f'RandomFlip.direction is {direction!r}; expected among {", ".join(_CV_CODES)}')
        self.bounds = np.cumsum(_probabilities(prob, len(self.directions)))
        self.swap = None if swap_seg_labels is None else _swap_table(swap_seg_labels)

    def transform(self, results: Results) -> Results:
        """Flips `img` and every label map; sets flip and flip_direction."""
        choice = int(np.searchsorted(self.bounds, np.random.random_sample(), side='right'))
        direction = self.directions[choice] if choice < len(self.directions) else None
        results['flip'], results['flip_direction'] = direction is not None, direction
        if direction is not None:
            shape = results['img'].shape[:2]
            map_aligned_labels(results, shape, lambda labels: self._flip_labels(labels, direction))
            results['img'] = flip(results['img'], direction)
        return results

    def _flip_labels(self, labels: np.ndarray, direction: str) -> np.ndarray:
        flipped = flip(labels, direction)
        return flipped if self.swap is None or direction == 'diagonal' else cv2.LUT(flipped, self.swap)


def flip(array: np.ndarray, direction: str) -> np.ndarray:
    """H x W or H x W x C, flipped into new memory: ten times faster to take apart than a view with negative strides."""
    return cv2.flip(array, _CV_CODES[direction]).reshape(array.shape)


def _probabilities(prob: float | Sequence[float], directions: int) -> list[float]:
    if isinstance(prob, int | float):
        return [probability('RandomFlip.prob', prob) / directions] * directions
    shares = [probability('RandomFlip.prob', share) for share in prob]
    if len(shares) != directions or sum(shares) > 1 + 1e-9:
        raise UserError(f'RandomFlip.prob is {prob!r}; expected one for each of {directions} directions, sum at most 1')
    return shares


def _swap_table(pairs: Sequence[Sequence[int]]) -> np.ndarray:
    table = np.arange(256, dtype=np.uint8)
    for pair in pairs:
        if len(pair) != 2:
            raise UserError(f'RandomFlip.swap_seg_labels has {pair!r}; expected pairs of classes')
        table[list(pair)] = pair[::-1]
    return table
