"""Pixel-centred resampling of images and labels (E10).

The centre of pixel i lies at i + 0.5, so target pixel i of an axis shrunk from n to m looks at (i + 0.5) * n / m - 0.5,
for images and labels alike. cv2.INTER_NEAREST looks half a source pixel off; cv2.INTER_NEAREST_EXACT is in fixed point
and errs close to the edge between two pixels. So labels are picked by exact integer arithmetic here.
"""

from collections.abc import Callable

import cv2
import numpy as np

from seg.datasets.io import IGNORE_INDEX
from seg.datasets.transforms.fields import PadValue

_CV_CODES = {
    'bilinear': cv2.INTER_LINEAR,
    'bicubic': cv2.INTER_CUBIC,
    'area': cv2.INTER_AREA,
    'lanczos': cv2.INTER_LANCZOS4,
}
INTERPOLATIONS = ('auto', 'nearest', *_CV_CODES)

# Above this many source pixels a target pixel, bilinear warping skips pixels: the image is shrunk by area first.
_ALIASING = 4 / 3


def resize_image(image: np.ndarray, size: tuple[int, int], interpolation: str = 'auto') -> np.ndarray:
    """H x W x C (or H x W) -> the same with (width, height) = size; any number of channels.

    'auto' averages over the area of the source along an axis that shrinks, and is bilinear along one that grows.
    An image that has the size already is returned as it is.
    """
    if interpolation == 'nearest':
        return resize_labels(image, size)
    if interpolation != 'auto':
        return _cv_resize(image, size, _CV_CODES[interpolation])
    shrunk = min(size[0], image.shape[1]), min(size[1], image.shape[0])
    return _cv_resize(_cv_resize(image, shrunk, cv2.INTER_AREA), size, cv2.INTER_LINEAR)


def resize_labels(labels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """H x W -> (width, height) = size by exact nearest: no value that was not there."""
    height, width = labels.shape[:2]
    if size == (width, height):
        return labels
    return labels.take(nearest_indices(height, size[1]), axis=0).take(nearest_indices(width, size[0]), axis=1)


def nearest_indices(source: int, target: int) -> np.ndarray:
    """Which source pixel is nearest to the centre of each of `target` pixels.

    Where two are equally near, as at each pixel of an axis halved, the left and the right one are taken in turn; always
    the same one would shift the labels against the image by half a source pixel.
    """
    place = (2 * np.arange(target) + 1) * source
    index, remainder = np.divmod(place, 2 * target)
    tie = remainder == 0
    tie[1::2] = False
    return index - tie


def warp_image(image: np.ndarray, to_source: np.ndarray, size: tuple[int, int], pad_val: PadValue = 0) -> np.ndarray:
    """Image sampled at `to_source` (2 x 3, target pixel indices -> source pixel indices), bilinear; `pad_val` outside."""
    image, to_source = _shrink_before_warp(image, to_source)
    channels = 1 if image.ndim == 2 else image.shape[2]
    values = np.broadcast_to(np.asarray(pad_val, np.float64), (channels,))
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP

    def warp(part: np.ndarray, first: int) -> np.ndarray:
        value = values[first : first + 4].tolist()
        return cv2.warpAffine(part, to_source, size, flags=flags, borderMode=cv2.BORDER_CONSTANT, borderValue=value)

    return _by_four_channels(image, warp)


def warp_labels(
    labels: np.ndarray, to_source: np.ndarray, size: tuple[int, int], pad_val: int = IGNORE_INDEX
) -> np.ndarray:
    """Labels at the nearest pixel to `to_source` of each target pixel; `pad_val` outside."""
    flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(labels, to_source, size, flags=flags, borderMode=cv2.BORDER_CONSTANT, borderValue=pad_val)


def _shrink_before_warp(image: np.ndarray, to_source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    shrinkage = np.linalg.svd(to_source[:, :2], compute_uv=False).min()
    if shrinkage <= _ALIASING:
        return image, to_source
    height, width = image.shape[:2]
    small = max(1, round(width / shrinkage)), max(1, round(height / shrinkage))
    factor = np.array([small[0] / width, small[1] / height])
    to_small = factor[:, None] * to_source
    to_small[:, 2] += factor / 2 - 0.5
    return resize_image(image, small), to_small


def _cv_resize(image: np.ndarray, size: tuple[int, int], code: int) -> np.ndarray:
    if size == (image.shape[1], image.shape[0]):
        return image
    return _by_four_channels(image, lambda part, _: cv2.resize(part, size, interpolation=code))


def _by_four_channels(image: np.ndarray, function: Callable[[np.ndarray, int], np.ndarray]) -> np.ndarray:
    """OpenCV takes four channels at a time for certain, and drops the axis of a single one."""
    if image.ndim == 2:
        return function(image, 0)
    if image.shape[2] <= 4:
        out = function(image, 0)
        return out if out.ndim == 3 else out[..., None]
    parts = [function(image[..., first : first + 4], first) for first in range(0, image.shape[2], 4)]
    return np.concatenate([part if part.ndim == 3 else part[..., None] for part in parts], axis=2)
