"""Decode an opened image to uint8 bands: gray, palette, alpha, CMYK, 16 bit, float.

What is decoded how:
- JPEG by OpenCV, the fastest, at half, quarter or eighth scale where asked; one whose end is missing by Pillow, which
  tells a truncated file from one with a trailer. OpenCV versions differ in what they return for a truncated one.
- A palette is looked up, 1 bit is 0 or 255, CMYK and YCbCr become RGB, ICC profiles are not applied.
- 9 to 16 bits become 8 by dropping the low bits: 65535 -> 255, 4095 of 12 bits -> 255. Signed, 32-bit and float values
  have no natural white: they need a `value_range`, and are refused without it.
"""

import cv2
import numpy as np
from PIL import Image

from seg.datasets.opening import DAMAGE, OpenedImage, damaged, say_once
from seg.datasets.tiff import is_plain, read_bands, sample_kind
from seg.errors import UserError

ValueRange = tuple[float, float]

_REDUCED_GRAY = {1: cv2.IMREAD_GRAYSCALE, 2: 16, 4: 32, 8: 64}  # OpenCV's IMREAD_REDUCED_GRAYSCALE_2, _4, _8
_DEEP_MODES = ('I;16', 'I;16L', 'I;16B', 'I;16N', 'I', 'F')
_TARGET_MODES = dict.fromkeys(('1', 'L'), 'L') | dict.fromkeys(('LA', 'La'), 'LA')
_TARGET_MODES |= dict.fromkeys(('RGB', 'RGBX', 'CMYK', 'YCbCr'), 'RGB') | dict.fromkeys(('RGBA', 'RGBa'), 'RGBA')


def decode_pixels(
    opened: OpenedImage, decode_for: tuple[int, int] | None = None, value_range: ValueRange | None = None
) -> np.ndarray:
    """HW or HWC uint8 as stored, RGB where it is colour, with alpha where the file has it.

    decode_for: (w, h) as stored that is enough; a JPEG is decoded at the coarsest scale that still reaches it.
    """
    if opened.is_jpeg and opened.image is not None and opened.image.mode in ('L', 'RGB') and _ends_whole(opened.data):
        fast = _decode_jpeg(opened, choose_reduction(opened.size, decode_for))
        if fast is not None:
            return fast
    if _is_deep(opened, value_range):
        return _to_8_bit(decode_deep(opened), opened, value_range)
    image = _load(opened)
    return np.asarray(image.convert(_target_mode(opened, image)))


def choose_reduction(size: tuple[int, int], decode_for: tuple[int, int] | None) -> int:
    """8, 4, 2 or 1: how much coarser a JPEG of this (h, w) may be decoded to still have `decode_for` (w, h) pixels.

    Only reductions that divide both sides: others pad the last block, and the picture would be off its centre.
    """
    if decode_for is None:
        return 1
    (height, width), (want_width, want_height) = size, decode_for
    fits = (r for r in (8, 4, 2) if width % r == height % r == 0 and width >= r * want_width)
    return next((r for r in fits if height >= r * want_height), 1)


def decode_deep(opened: OpenedImage) -> np.ndarray:
    """HW or HWC of the file's own values: 16 bit, 32 bit, float or many bands; colour is RGB."""
    if opened.tags is not None and not is_plain(opened):
        return read_bands(opened)
    if opened.format == 'PNG' and opened.image is not None and opened.image.mode in ('RGB', 'RGBA', 'LA'):
        return _decode_16_bit_png(opened)
    return _own_values(np.asarray(_load(opened)), opened)


def load_raw(opened: OpenedImage) -> Image.Image:
    """Pillow's picture as it is, palette indices unlooked. Raises UserError on damage."""
    return _load(opened)


def _load(opened: OpenedImage) -> Image.Image:
    if opened.image is None:
        raise damaged(opened, 'no decoder knows this kind of pixel')
    try:
        opened.image.load()
    except DAMAGE as error:
        raise damaged(opened, error) from error
    return opened.image


def _ends_whole(jpeg: bytes) -> bool:
    """Whether the end marker is the last thing in the file, padding apart."""
    return jpeg.endswith(b'\xff\xd9') or jpeg[-4096:].rstrip(b'\0').endswith(b'\xff\xd9')


def _decode_jpeg(opened: OpenedImage, reduction: int) -> np.ndarray | None:
    """None where OpenCV cannot; Pillow then finds out why."""
    is_gray = opened.image is not None and opened.image.mode == 'L'
    colour = _REDUCED_GRAY[reduction] | (0 if is_gray else cv2.IMREAD_COLOR_RGB)
    try:
        return cv2.imdecode(np.frombuffer(opened.data, np.uint8), colour | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None


def _is_deep(opened: OpenedImage, value_range: ValueRange | None) -> bool:
    if opened.tags is not None and not is_plain(opened):
        return True
    mode = opened.image.mode if opened.image is not None else ''
    return mode in _DEEP_MODES or (opened.bits == 16 and value_range is not None)


def _target_mode(opened: OpenedImage, image: Image.Image) -> str:
    if image.mode in ('P', 'PA'):
        return 'RGBA' if 'transparency' in image.info or image.mode == 'PA' else 'RGB'
    if image.mode not in _TARGET_MODES:
        raise UserError(f'{opened.path}: a {opened.format} of colour mode {image.mode} is not read; save it as RGB')
    return _TARGET_MODES[image.mode]


def _decode_16_bit_png(opened: OpenedImage) -> np.ndarray:
    _load(opened)  # Pillow is the stricter of the two; OpenCV keeps all 16 bits
    pixels = cv2.imdecode(np.frombuffer(opened.data, np.uint8), cv2.IMREAD_UNCHANGED)
    if pixels is None or pixels.dtype != np.uint16:
        raise damaged(opened, 'OpenCV does not decode it as 16 bit')
    return cv2.cvtColor(pixels, cv2.COLOR_BGRA2RGBA if pixels.shape[2] == 4 else cv2.COLOR_BGR2RGB)


def _own_values(pixels: np.ndarray, opened: OpenedImage) -> np.ndarray:
    """Pillow widens 16-bit values to 32 in some files and versions; give them their own type back."""
    kind = sample_kind(opened) if opened.tags is not None else f'u{opened.bits}'
    if kind.startswith('u') and 8 < opened.bits <= 16:
        return pixels.astype(np.uint16)
    return pixels


def _to_8_bit(pixels: np.ndarray, opened: OpenedImage, value_range: ValueRange | None) -> np.ndarray:
    if value_range is not None:
        return stretch(pixels, value_range)
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype != np.uint16:
        raise UserError(
            f'{opened.path}: a {opened.format} of {pixels.dtype} values {pixels.min()} to {pixels.max()}, which have no '
            'natural white; say which are black and white: LoadImageFromFile(value_range=(low, high))'
        )
    shift = max(opened.bits, 9) - 8
    _say_if_dark(pixels, shift, opened)
    return (pixels >> shift).astype(np.uint8)


def stretch(pixels: np.ndarray, value_range: ValueRange) -> np.ndarray:
    """low..high -> 0..255, rounded to the nearest, what lies outside clipped; NaN -> 0."""
    low, high = value_range
    scaled = (pixels.astype(np.float64) - low) * (255.0 / (high - low))
    return np.rint(np.clip(np.nan_to_num(scaled, nan=0.0), 0, 255)).astype(np.uint8)


def _say_if_dark(pixels: np.ndarray, shift: int, opened: OpenedImage) -> None:
    low, high = int(pixels.min()), int(pixels.max())
    if (high >> shift) - (low >> shift) < 16:
        say_once(
            f'{opened.path}: its {opened.bits}-bit values {low} to {high} are nearly one gray after division by '
            f'{1 << shift}; LoadImageFromFile(value_range=({low}, {high})) would spread them over 0 to 255'
        )
