"""The transforms that read files: image and mask into the results of a sample."""

from collections.abc import Sequence
from typing import Any

from mmcv.transforms import BaseTransform

from seg.datasets.io import MAX_PIXELS, decode_image, decode_mask
from seg.datasets.label_rule import IGNORE_INDEX, LabelRule
from seg.datasets.opening import OpenedImage, open_image, say_once
from seg.errors import UserError
from seg.registry import TRANSFORMS


@TRANSFORMS.register_module()
class LoadImageFromFile(BaseTransform):
    """Reads `img_path`; sets `img` (HWC uint8, RGB), `img_shape` and `ori_shape` (h, w), and what the mask must match.

    channels: 3 for RGB, 1 for gray, the file's own number for more.
    decode_for: (w, h) that the Resize behind it asks for, written the same way. A JPEG is then decoded 2, 4 or 8 times
        smaller where that still reaches it: several times faster, each pixel the mean of a block to a good
        approximation, no shift. `ori_shape` stays the size of the file. Resize must bring image and mask to one size.
    value_range: (low, high) that become 0 and 255 in files of more than 8 bits.
    apply_exif: False for photos whose masks were drawn on the picture as stored; it holds for the masks, too.
    max_pixels: larger pictures are refused before they are decoded.
    """

    def __init__(
        self,
        channels: int = 3,
        decode_for: tuple[int, int] | None = None,
        value_range: tuple[float, float] | None = None,
        apply_exif: bool = True,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        if channels < 1:
            raise UserError(f'LoadImageFromFile: channels={channels}; an image has 1 or more')
        self.channels = channels
        self.decode_for = _pair('decode_for', decode_for, 'w, h')
        self.value_range = _pair('value_range', value_range, 'low, high')
        self.apply_exif = apply_exif
        self.max_pixels = max_pixels
        if self.value_range is not None and not self.value_range[0] < self.value_range[1]:
            raise UserError(f'LoadImageFromFile: value_range={value_range}; low must be under high')

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        opened = open_image(results['img_path'], self.max_pixels)
        image = decode_image(
            opened,
            self.channels,
            decode_for=self.decode_for,
            value_range=self.value_range,
            apply_exif=self.apply_exif,
        )
        results.update(img=image, img_shape=image.shape[:2], ori_shape=opened.shown_size(self.apply_exif))
        results.update(exif_orientation=opened.orientation, apply_exif=self.apply_exif)
        return results


@TRANSFORMS.register_module()
class LoadAnnotations(BaseTransform):
    """Reads `seg_map_path` into `gt_seg_map`, HW uint8 of classes and 255, at the mask's own size.

    That size must be the image's `ori_shape`, whatever the image was resized to since. Without a mask (None) nothing
    is set. The values' meaning comes with the sample, from the data set: label_map, ignore_index, num_classes,
    reduce_zero_label, mask_threshold.
    """

    def __init__(self, max_pixels: int = MAX_PIXELS) -> None:
        self.max_pixels = max_pixels

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        path = results.get('seg_map_path')
        if path is None:
            return results
        opened = open_image(path, self.max_pixels)
        apply_exif = results.get('apply_exif', True)
        if 'ori_shape' in results:
            orientation = results.get('exif_orientation', 1)
            check_pair(opened, results['img_path'], results['ori_shape'], orientation, apply_exif)
        results['gt_seg_map'] = decode_mask(opened, _rule(results), apply_exif)
        results.setdefault('seg_fields', []).append('gt_seg_map')
        return results


def _rule(results: dict[str, Any]) -> LabelRule:
    return LabelRule(
        num_classes=results.get('num_classes'),
        label_map=results.get('label_map'),
        ignore_index=results.get('ignore_index', IGNORE_INDEX),
        reduce_zero_label=results.get('reduce_zero_label', False),
        mask_threshold=results.get('mask_threshold'),
    )


def check_pair(
    mask: OpenedImage, img_path: str, img_size: tuple[int, int], orientation: int = 1, apply_exif: bool = True
) -> None:
    """Refuses a mask of another size than its image is shown at, (h, w); one that fits it turned is never transposed.

    orientation: the image's EXIF orientation. Where sizes cannot tell (a square, half a turn), a word of warning.
    """
    mask_size = mask.shown_size(apply_exif)
    if tuple(img_size) != mask_size:
        raise UserError(
            f'{mask.path}: the mask is {mask_size[1]}x{mask_size[0]}, but its image {img_path} is '
            f'{img_size[1]}x{img_size[0]} (width x height).{_turned_hint(mask_size, img_size, orientation)}'
        )
    if apply_exif and orientation not in (1, mask.orientation):
        say_once(
            f'{img_path}: shown turned by its EXIF orientation {orientation}, its mask by {mask.orientation}; sizes '
            'cannot tell whether they fit, so look at them. If they do not, set apply_exif=False in LoadImageFromFile'
        )


def _turned_hint(mask_size: tuple[int, int], img_size: tuple[int, int], orientation: int) -> str:
    if orientation < 5 or mask_size != tuple(img_size)[::-1]:
        return ''
    return (
        f' The photo carries EXIF orientation {orientation}, and the mask fits it turned: if the masks were drawn on '
        'the pictures as stored, set apply_exif=False in LoadImageFromFile; else turn the masks.'
    )


def _pair(name: str, value: Sequence[Any] | None, meaning: str) -> tuple[Any, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Sequence) or len(value) != 2:
        raise UserError(f'LoadImageFromFile: {name}={value!r}; ({meaning}) is meant')
    return value[0], value[1]
