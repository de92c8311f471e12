"""A random window of the image, with a cap on how much of it one class may take."""

from collections.abc import Sequence

import cv2
import numpy as np
from mmcv.transforms import BaseTransform

from seg.datasets.io import IGNORE_INDEX
from seg.datasets.transforms.fields import Results, map_aligned_labels, set_image, size_pair
from seg.errors import UserError
from seg.registry import TRANSFORMS

_TRIES = 10


@TRANSFORMS.register_module()
class RandomCrop(BaseTransform):
    """A window of crop_size, where the image has so much; a shorter side is kept whole (Pad makes up for it).

    Args:
        crop_size: (h, w), or n for n x n.
        cat_max_ratio: the largest share of the labelled pixels that one class may have. Up to ten windows are drawn;
            if none is good enough, the one that comes closest is taken. 1 takes the first.
    """

    def __init__(self, crop_size: int | Sequence[int], cat_max_ratio: float = 1.0) -> None:
        self.crop_size = size_pair('RandomCrop.crop_size', crop_size, '(h, w)')
        if not 0 < cat_max_ratio <= 1:
            raise UserError(f'RandomCrop.cat_max_ratio is {cat_max_ratio!r}; expected a share in 0..1, above 0')
        self.cat_max_ratio = cat_max_ratio

    def transform(self, results: Results) -> Results:
        """Crops `img` and every label map; what it returns are views."""
        image = results['img']
        window = self._choose(image.shape[:2], results.get('gt_seg_map'))
        map_aligned_labels(results, image.shape[:2], lambda labels: labels[window])
        set_image(results, image[window])
        return results

    def _choose(self, shape: tuple[int, int], labels: np.ndarray | None) -> tuple[slice, slice]:
        best = self._draw(shape)
        if labels is None or self.cat_max_ratio == 1:
            return best
        least = largest_share(labels[best])
        for _ in range(_TRIES - 1):
            if least <= self.cat_max_ratio:
                break
            window = self._draw(shape)
            share = largest_share(labels[window])
            if share < least:
                best, least = window, share
        return best

    def _draw(self, shape: tuple[int, int]) -> tuple[slice, slice]:
        height, width = min(self.crop_size[0], shape[0]), min(self.crop_size[1], shape[1])
        top = int(np.random.randint(shape[0] - height + 1))
        left = int(np.random.randint(shape[1] - width + 1))
        return slice(top, top + height), slice(left, left + width)


def largest_share(labels: np.ndarray) -> float:
    """The largest class's share of the pixels that are not ignored; 1 where all are."""
    counts = cv2.calcHist([labels], [0], None, [256], [0, 256]).ravel()
    counts[IGNORE_INDEX] = 0
    return float(counts.max() / counts.sum()) if counts.any() else 1.0
