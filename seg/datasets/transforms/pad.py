"""Padding on the right and below; the new pixels of a mask are ignored."""

from collections.abc import Sequence

import numpy as np
from mmcv.transforms import BaseTransform

from seg.datasets.io import IGNORE_INDEX
from seg.datasets.transforms.fields import PadValue, Results, map_aligned_labels, set_image, size_pair
from seg.errors import UserError
from seg.registry import TRANSFORMS


def pad_values(name: str, pad_val: PadValue | dict) -> tuple[PadValue, int]:
    """(of the image, of the masks) from one value for the image, or dict(img=, seg=)."""
    if not isinstance(pad_val, dict):
        return pad_val, IGNORE_INDEX
    if unknown := set(pad_val) - {'img', 'seg'}:
        raise UserError(f'{name} has the keys {sorted(unknown)}; expected img and seg')
    return pad_val.get('img', 0), pad_val.get('seg', IGNORE_INDEX)


@TRANSFORMS.register_module()
class Pad(BaseTransform):
    """To at least `size`, then to a square, then to a multiple of `size_divisor`; what is larger already stays so.

    Args:
        size: (w, h).
        pad_val: of the image, one number or one for each channel; or dict(img=, seg=), of which seg is 255.
    """

    def __init__(
        self,
        size: Sequence[int] | None = None,
        size_divisor: int | None = None,
        pad_to_square: bool = False,
        pad_val: PadValue | dict = 0,
    ) -> None:
        if size is None and size_divisor is None and not pad_to_square:
            raise UserError('Pad has nothing to do; expected size=(w, h), size_divisor=n or pad_to_square=True')
        self.size = (1, 1) if size is None else size_pair('Pad.size', size, '(w, h)')
        self.size_divisor = 1 if size_divisor is None else size_pair('Pad.size_divisor', size_divisor, 'one')[0]
        self.pad_to_square = pad_to_square
        self.image_value, self.label_value = pad_values('Pad.pad_val', pad_val)

    def transform(self, results: Results) -> Results:
        """Pads `img` and every label map."""
        image = results['img']
        shape = self._shape(*image.shape[:2])
        map_aligned_labels(results, image.shape[:2], lambda labels: _pad(labels, shape, self.label_value))
        set_image(results, _pad(image, shape, self.image_value))
        results['pad_shape'] = shape
        return results

    def _shape(self, height: int, width: int) -> tuple[int, int]:
        height, width = max(height, self.size[1]), max(width, self.size[0])
        if self.pad_to_square:
            height = width = max(height, width)
        return -(-height // self.size_divisor) * self.size_divisor, -(-width // self.size_divisor) * self.size_divisor


def _pad(array: np.ndarray, shape: tuple[int, int], value: PadValue) -> np.ndarray:
    height, width = array.shape[:2]
    if shape == (height, width):
        return array
    padded = np.empty((*shape, *array.shape[2:]), array.dtype)
    padded[:height, :width] = array
    padded[height:] = value
    padded[:height, width:] = value
    return padded
