"""The one place that opens an image or a mask.

Images come out as HWC uint8 in RGB, masks as HW uint8 class numbers with 255 for ignore. Both are turned by their EXIF
orientation, so that they stand as a viewer shows them, whichever decoder read them; `apply_exif=False` leaves both as
stored. How pixels become 8 bit is told in `pixels.py`, how mask values become classes in `labels.py`.
"""

from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np

from seg.datasets.label_rule import IGNORE_INDEX, LabelRule, MaskKey
from seg.datasets.labels import RawMask, to_labels
from seg.datasets.opening import MAX_PIXELS, OpenedImage, open_image, say_once
from seg.datasets.orientation import turn, turn_back
from seg.datasets.pixels import ValueRange, decode_deep, decode_pixels, load_raw
from seg.datasets.tiff import has_alpha, is_plain
from seg.errors import UserError

__all__ = ['IGNORE_INDEX', 'MAX_PIXELS', 'decode_image', 'decode_mask', 'image_size', 'read_image', 'read_mask']


def image_size(path: str | Path, apply_exif: bool = True, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """(h, w) as shown, from the header alone. Raises UserError as `read_image` does for what a header can tell."""
    return open_image(path, max_pixels).shown_size(apply_exif)


def read_image(
    path: str | Path,
    channels: int = 3,
    *,
    decode_for: tuple[int, int] | None = None,
    value_range: ValueRange | None = None,
    apply_exif: bool = True,
    max_pixels: int = MAX_PIXELS,
) -> np.ndarray:
    """HWC uint8 with C = channels, RGB for 3. Raises UserError that names the file and what is wrong with it.

    channels: gray is repeated to 3; colour becomes gray by 0.299 R + 0.587 G + 0.114 B; alpha is dropped unless its
        channel is asked for (2 for gray, 4 for colour); any other number must be the file's own.
    decode_for: (w, h) that is enough, as shown: a JPEG may come out 2, 4 or 8 times smaller, never below it.
    value_range: (low, high) of 16-bit, 32-bit or float values that become 0 and 255; 8-bit files are left as they are.
    """
    opened = open_image(path, max_pixels)
    return decode_image(opened, channels, decode_for=decode_for, value_range=value_range, apply_exif=apply_exif)


def read_mask(
    path: str | Path,
    label_map: Mapping[MaskKey, int] | None = None,
    ignore_index: int = IGNORE_INDEX,
    num_classes: int | None = None,
    *,
    reduce_zero_label: bool = False,
    mask_threshold: int | None = None,
    apply_exif: bool = True,
    max_pixels: int = MAX_PIXELS,
) -> np.ndarray:
    """HW uint8 of class numbers, 255 where ignored. The rules are `LabelRule`'s. Raises UserError that names the file."""
    rule = LabelRule(num_classes, label_map, ignore_index, reduce_zero_label, mask_threshold)
    return decode_mask(open_image(path, max_pixels), rule, apply_exif)


def decode_image(
    opened: OpenedImage,
    channels: int = 3,
    *,
    decode_for: tuple[int, int] | None = None,
    value_range: ValueRange | None = None,
    apply_exif: bool = True,
) -> np.ndarray:
    """`read_image` for a file that is open already."""
    if opened.has_frames:
        say_once(f'{opened.path}: holds several pictures; the first one is used')
    if decode_for is not None and apply_exif and opened.orientation >= 5:
        decode_for = (decode_for[1], decode_for[0])
    pixels = _as_stored(decode_pixels(opened, decode_for, value_range), opened)
    pixels = _fit_channels(pixels, channels, opened)
    return _own(turn(pixels, opened.orientation) if apply_exif else pixels)


def decode_mask(opened: OpenedImage, rule: LabelRule, apply_exif: bool = True) -> np.ndarray:
    """`read_mask` for a file that is open already."""
    if opened.has_frames:
        raise UserError(f'{opened.path}: a mask of several pictures (animation or pages); a mask is one picture')
    labels = _as_stored(to_labels(raw_mask(opened, rule), rule, opened.path), opened)
    return _own(turn(labels, opened.orientation) if apply_exif else labels)


def _own(array: np.ndarray) -> np.ndarray:
    """Contiguous and writeable: Pillow hands out arrays that are neither to be written nor to be kept by torch."""
    return np.require(array, requirements=['C', 'W'])


def _as_stored(pixels: np.ndarray, opened: OpenedImage) -> np.ndarray:
    """Undo what Pillow does by itself when it loads a TIFF: turning it."""
    was_turned = opened.tags is not None and is_plain(opened)
    return turn_back(pixels, opened.orientation) if was_turned else pixels


def _fit_channels(pixels: np.ndarray, channels: int, opened: OpenedImage) -> np.ndarray:
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if channels in (1, 3) and has_alpha(pixels.shape[2], opened):
        pixels = pixels[..., :-1]
    have = pixels.shape[2]
    if have == channels:
        return pixels
    if (have, channels) == (1, 3):
        return np.repeat(pixels, 3, axis=2)
    if (have, channels) == (3, 1):
        return cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)[..., None]
    raise UserError(
        f'{opened.path}: has {have} channels, {channels} are wanted; set LoadImageFromFile(channels={have})'
    )


def raw_mask(opened: OpenedImage, rule: LabelRule) -> RawMask:
    """The values of a mask file before the rule gives them classes, as stored. Raises UserError as `decode_mask` does."""
    if rule.mask_threshold is not None:
        gray = _fit_channels(decode_pixels(opened), 1, opened)[..., 0]
        return RawMask(gray, is_lossy=opened.is_lossy)
    if opened.is_lossy:
        return RawMask(_fit_channels(decode_pixels(opened), 1, opened)[..., 0], is_lossy=True)
    if opened.tags is not None and not is_plain(opened):
        return _plain_values(decode_deep(opened), 'bands', opened)
    image = load_raw(opened)
    values = np.asarray(image)
    if image.mode in ('P', 'PA'):
        palette = np.array(image.getpalette('RGB'), np.uint8).reshape(-1, 3)
        return RawMask(values if image.mode == 'P' else np.ascontiguousarray(values[..., 0]), palette)
    if image.mode == '1':
        return RawMask((values.view(np.uint8) > 0).view(np.uint8), _gray_steps(1))  # Pillow's True is 255
    if image.mode == 'L' and opened.bits in (2, 4):
        return RawMask(values // (255 // (2**opened.bits - 1)), _gray_steps(opened.bits))
    return _plain_values(values, image.mode, opened)


def _gray_steps(bits: int) -> np.ndarray:
    """The grays that 1, 2 or 4 bits stand for, as a palette."""
    steps = np.linspace(0, 255, 2**bits).astype(np.uint8)
    return np.repeat(steps[:, None], 3, axis=1)


def _plain_values(values: np.ndarray, mode: str, opened: OpenedImage) -> RawMask:
    if (values.ndim == 3 and values.shape[2] == 1) or mode == 'LA':
        values = np.ascontiguousarray(values[..., 0])
    is_colour = values.ndim == 3
    if values.dtype.kind == 'f' or (is_colour and (mode not in ('RGB', 'RGBA', 'RGBX') or opened.bits > 8)):
        raise UserError(
            f'{opened.path}: a {opened.format} of mode {mode}, {opened.bits} bits, type {values.dtype} is no mask; '
            'masks are whole numbers of one channel, a palette, or 8-bit RGB colours'
        )
    return RawMask(values[..., :3] if is_colour else values)
