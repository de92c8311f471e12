"""Rotation, shift, scale and shear about the centre of the pixel grid, ((w - 1) / 2, (h - 1) / 2)."""

from collections.abc import Sequence

import numpy as np
from mmcv.transforms import BaseTransform

from seg.datasets.io import IGNORE_INDEX
from seg.datasets.transforms.fields import PadValue, Results, interval, map_aligned_labels, probability, set_image
from seg.datasets.transforms.resample import warp_image, warp_labels
from seg.errors import UserError
from seg.registry import TRANSFORMS

Size = tuple[int, int]


def linear_part(degrees: float = 0.0, scale: float = 1.0, shear: float = 0.0) -> np.ndarray:
    """2 x 2, source -> target: shear along x by an angle, then scale, then turn clockwise as seen; angles in degrees."""
    turn, slant = np.deg2rad(degrees), np.deg2rad(shear)
    cosine, sine = np.cos(turn), np.sin(turn)
    return scale * np.array([[cosine, -sine], [sine, cosine]]) @ np.array([[1.0, np.tan(slant)], [0.0, 1.0]])


def to_source_matrix(linear: np.ndarray, source: Size, target: Size, shift: tuple[float, float] = (0, 0)) -> np.ndarray:
    """2 x 3, target -> source pixel indices, that maps the centres of (w, h) grids onto each other, then shifts.

    shift: (right, down) in pixels of the target.
    """
    inverse = np.linalg.inv(linear)
    source_centre, target_centre = (np.subtract(size, 1) / 2 for size in (source, target))
    offset = source_centre - inverse @ (target_centre + np.asarray(shift))
    return np.column_stack([inverse, offset])


def turned_size(size: Size, degrees: float) -> Size:
    """The (w, h) that holds all of a turned image."""
    cosine, sine = abs(np.cos(np.deg2rad(degrees))), abs(np.sin(np.deg2rad(degrees)))
    return round(size[0] * cosine + size[1] * sine), round(size[0] * sine + size[1] * cosine)


class _Warp(BaseTransform):
    """Draws a warp with probability `prob`; image bilinear, masks nearest, what comes from outside is padding."""

    def __init__(self, prob: float, pad_val: PadValue, seg_pad_val: int) -> None:
        self.prob = probability(f'{type(self).__name__}.prob', prob)
        self.pad_val = pad_val
        self.seg_pad_val = seg_pad_val

    def draw(self, size: Size) -> tuple[np.ndarray, Size]:
        """(to_source 2 x 3, target (w, h)) for an image of (w, h) = size."""
        raise NotImplementedError

    def transform(self, results: Results) -> Results:
        if np.random.random_sample() >= self.prob:
            return results
        image = results['img']
        to_source, target = self.draw(image.shape[1::-1])
        map_aligned_labels(
            results, image.shape[:2], lambda labels: warp_labels(labels, to_source, target, self.seg_pad_val)
        )
        set_image(results, warp_image(image, to_source, target, self.pad_val))
        return results


@TRANSFORMS.register_module()
class RandomRotate(_Warp):
    """Turns by an angle drawn evenly.

    Args:
        prob: of turning at all.
        degree: (smallest, largest) in degrees, clockwise; d means (-d, d).
        pad_val: of the image, one number or one for each channel.
        seg_pad_val: of the masks.
        auto_bound: enlarge the image to hold its corners, instead of cutting them off.
    """

    def __init__(
        self,
        prob: float,
        degree: float | Sequence[float],
        pad_val: PadValue = 0,
        seg_pad_val: int = IGNORE_INDEX,
        auto_bound: bool = False,
    ) -> None:
        super().__init__(prob, pad_val, seg_pad_val)
        self.degree = interval('RandomRotate.degree', degree)
        self.auto_bound = auto_bound

    def draw(self, size: Size) -> tuple[np.ndarray, Size]:
        degrees = np.random.uniform(*self.degree)
        target = turned_size(size, degrees) if self.auto_bound else size
        return to_source_matrix(linear_part(degrees), size, target), target


@TRANSFORMS.register_module()
class RandomAffine(_Warp):
    """Shears, scales, turns and shifts, each by an amount drawn evenly; the size stays.

    Args:
        degrees: (smallest, largest) angle, clockwise; d means (-d, d).
        translate: the largest shift as a share of (width, height), either way; in whole pixels.
        scale: (smallest, largest) factor.
        shear: (smallest, largest) angle in degrees, along x; d means (-d, d).
        prob, pad_val, seg_pad_val: as in RandomRotate.
    """

    def __init__(
        self,
        degrees: float | Sequence[float] = 0.0,
        translate: Sequence[float] = (0.0, 0.0),
        scale: Sequence[float] = (1.0, 1.0),
        shear: float | Sequence[float] = 0.0,
        prob: float = 1.0,
        pad_val: PadValue = 0,
        seg_pad_val: int = IGNORE_INDEX,
    ) -> None:
        super().__init__(prob, pad_val, seg_pad_val)
        self.degrees = interval('RandomAffine.degrees', degrees)
        self.translate = tuple(probability('RandomAffine.translate', share) for share in translate)
        self.scale = interval('RandomAffine.scale', scale, low=0)
        self.shear = interval('RandomAffine.shear', shear)
        if len(self.translate) != 2 or self.scale[0] == 0 or max(map(abs, self.shear)) >= 90:
            raise UserError(
                f'RandomAffine has translate={translate!r}, scale={scale!r}, shear={shear!r}; expected two shares, '
                'factors above 0, and angles below 90 degrees'
            )

    def draw(self, size: Size) -> tuple[np.ndarray, Size]:
        degrees, scale, shear = (np.random.uniform(*ends) for ends in (self.degrees, self.scale, self.shear))
        # Whole pixels: without a turn, labels cannot follow an image by a part of one.
        right, down = (round(np.random.uniform(-share, share) * side) for share, side in zip(self.translate, size))
        return to_source_matrix(linear_part(degrees, scale, shear), size, size, (right, down)), size
