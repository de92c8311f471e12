"""Resize, to a size given or drawn. Images are averaged where they shrink, labels are picked by exact nearest (E10)."""

from collections.abc import Sequence

import numpy as np
from mmcv.transforms import BaseTransform

from seg.datasets.transforms.fields import Results, interval, map_labels, set_image, size_pair
from seg.datasets.transforms.resample import INTERPOLATIONS, resize_image, resize_labels
from seg.errors import UserError
from seg.registry import TRANSFORMS


def fit_within(size: tuple[int, int], scale: tuple[int, int]) -> tuple[int, int]:
    """(w, h) enlarged or shrunk as far as `scale` allows, its longer side being for the longer side (mmcv's rule)."""
    factor = min(max(scale) / max(size), min(scale) / min(size))
    return rescale(size, (factor, factor))


def rescale(size: tuple[int, int], factors: tuple[float, float]) -> tuple[int, int]:
    """(w, h) times (w factor, h factor), rounded, at least 1 x 1."""
    return max(1, int(size[0] * factors[0] + 0.5)), max(1, int(size[1] * factors[1] + 0.5))


def resize_to(results: Results, size: tuple[int, int], interpolation: str) -> Results:
    """Image and label maps to (w, h) = size, whatever their sizes were; sets img_shape and scale_factor."""
    height, width = results['img'].shape[:2]
    set_image(results, resize_image(results['img'], size, interpolation))
    map_labels(results, lambda labels: resize_labels(labels, size))
    results['scale_factor'] = (size[0] / width, size[1] / height)
    return results


def _known_interpolation(name: str) -> str:
    if name not in INTERPOLATIONS:
        raise UserError(f'interpolation is {name!r}; expected one of {", ".join(INTERPOLATIONS)}')
    return name


@TRANSFORMS.register_module()
class Resize(BaseTransform):
    """To `scale`, or by `scale_factor`.

    Args:
        scale: (w, h), or n for n x n. With keep_ratio the image is made as large as fits, its longer side within the
            longer side of `scale`.
        scale_factor: a number, or (for the width, for the height).
        interpolation: of the image. 'auto' averages over the area where it shrinks and is bilinear where it grows.
    """

    def __init__(
        self,
        scale: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        keep_ratio: bool = False,
        interpolation: str = 'auto',
    ) -> None:
        if (scale is None) == (scale_factor is None):
            raise UserError(
                f'Resize has scale={scale!r} and scale_factor={scale_factor!r}; expected exactly one of them'
            )
        self.scale = None if scale is None else size_pair('Resize.scale', scale, '(w, h)')
        self.scale_factor = None if scale_factor is None else _factors(scale_factor)
        self.keep_ratio = keep_ratio
        self.interpolation = _known_interpolation(interpolation)

    def transform(self, results: Results) -> Results:
        """Resizes `img` and every label map that is loaded."""
        return resize_to(results, self._size(results['img'].shape[1::-1]), self.interpolation)

    def _size(self, size: tuple[int, int]) -> tuple[int, int]:
        if self.scale_factor is not None:
            return rescale(size, self.scale_factor)
        assert self.scale is not None
        return fit_within(size, self.scale) if self.keep_ratio else self.scale


@TRANSFORMS.register_module()
class RandomResize(BaseTransform):
    """To a size drawn anew for each image.

    Args:
        scale: (w, h) together with ratio_range; or two of them, between which each side is drawn by itself.
        ratio_range: (smallest, largest) factor of `scale`, drawn evenly.
        keep_ratio, interpolation: as in Resize.
    """

    def __init__(
        self,
        scale: Sequence[int] | Sequence[Sequence[int]],
        ratio_range: Sequence[float] | None = None,
        keep_ratio: bool = False,
        interpolation: str = 'auto',
    ) -> None:
        self.low, self.high, self.ratio_range = _scale_range(scale, ratio_range)
        self.keep_ratio = keep_ratio
        self.interpolation = _known_interpolation(interpolation)

    def transform(self, results: Results) -> Results:
        """Resizes `img` and every label map that is loaded."""
        scale = self._draw()
        size = fit_within(results['img'].shape[1::-1], scale) if self.keep_ratio else scale
        return resize_to(results, size, self.interpolation)

    def _draw(self) -> tuple[int, int]:
        if self.ratio_range is not None:
            ratio = np.random.uniform(*self.ratio_range)
            return rescale(self.low, (ratio, ratio))
        return (
            int(np.random.randint(self.low[0], self.high[0] + 1)),
            int(np.random.randint(self.low[1], self.high[1] + 1)),
        )


@TRANSFORMS.register_module()
class RandomChoiceResize(BaseTransform):
    """To one of `scales`, each (w, h), drawn anew for each image; keep_ratio and interpolation as in Resize."""

    def __init__(
        self, scales: Sequence[int | Sequence[int]], keep_ratio: bool = False, interpolation: str = 'auto'
    ) -> None:
        if not scales:
            raise UserError('RandomChoiceResize.scales is empty; expected at least one (w, h)')
        self.resizes = [Resize(scale, keep_ratio=keep_ratio, interpolation=interpolation) for scale in scales]

    def transform(self, results: Results) -> Results:
        """Resizes `img` and every label map that is loaded."""
        return self.resizes[np.random.randint(len(self.resizes))].transform(results)


def _factors(value: float | Sequence[float]) -> tuple[float, float]:
    pair = (value, value) if isinstance(value, int | float) else tuple(value)
    if len(pair) != 2 or min(pair) <= 0:
        raise UserError(f'Resize.scale_factor is {value!r}; expected a number > 0, or two for width and height')
    return pair


def _scale_range(
    scale: Sequence, ratio_range: Sequence[float] | None
) -> tuple[tuple[int, int], tuple[int, int], tuple[float, float] | None]:
    """The smallest and the largest (w, h), and the range of factors if there is one."""
    if ratio_range is not None:
        pair = size_pair('RandomResize.scale', scale, '(w, h) beside ratio_range')
        ratios = interval('RandomResize.ratio_range', ratio_range, low=0)
        return pair, pair, ratios
    if len(scale) != 2 or any(isinstance(side, int) for side in scale):
        raise UserError(f'RandomResize.scale is {scale!r}; expected two sizes (w, h), or one and a ratio_range')
    first, second = (size_pair('RandomResize.scale', pair, '(w, h)') for pair in scale)
    low = min(first[0], second[0]), min(first[1], second[1])
    high = max(first[0], second[0]), max(first[1], second[1])
    return low, high, None
