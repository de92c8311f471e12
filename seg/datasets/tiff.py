"""TIFFs for which Pillow has no mode: 2, 5 or more bands, and several bands of 16 bit or float.

Pillow drops the bands that it does not know, and OpenCV mixes up planar 16-bit ones. What both can do is one band, so
the file is described anew: a picture of one band whose rows hold all bands of a pixel side by side. libtiff, through
Pillow, then decompresses it whatever its compression is, and numpy puts the bands where they belong.
"""

import struct
from io import BytesIO

import numpy as np
from PIL import Image

from seg.datasets.opening import DAMAGE, OpenedImage, damaged
from seg.errors import UserError

WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC = 256, 257, 258, 259, 262
OFFSETS, SAMPLES, ROWS_PER_STRIP, COUNTS, PLANAR, PREDICTOR = 273, 277, 278, 279, 284, 317
TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_COUNTS, EXTRA, FORMAT = 322, 323, 324, 325, 338, 339

_KINDS = {1: 'u', 2: 'i', 3: 'f', 4: 'u'}  # 4: not said
_PREDICTED = (5, 8, 32946, 50000)  # LZW, deflate, deflate as of old, Zstandard: those that a predictor works with
_COMPRESSIONS = (1, 32773, *_PREDICTED)  # none, PackBits
_PLAIN_COLOURS = ((1, 1), (2, 3), (5, 4), (6, 3))  # photometric, bands: gray, RGB, CMYK, YCbCr


def sample_kind(opened: OpenedImage) -> str:
    """Type and bits of one sample, as u8, i16 or f32."""
    return f'{_KINDS.get(max(opened.tags.get(FORMAT, (1,))), "?")}{opened.bits}'


def is_plain(opened: OpenedImage) -> bool:
    """Whether Pillow reads the file whole: one band of up to 32 bits, or 8-bit colour with or without alpha."""
    samples, kind = opened.tags.get(SAMPLES, 1), sample_kind(opened)
    if opened.image is None or kind in ('u32', 'i8'):
        return False
    if samples == 1:
        return True
    alphas = sum(kind in (1, 2) for kind in opened.tags.get(EXTRA, ()))
    colours = (opened.tags.get(PHOTOMETRIC, 1), samples - alphas)
    planar_alpha = alphas and opened.tags.get(PLANAR, 1) == 2
    return kind == 'u8' and alphas <= 1 and not planar_alpha and colours in _PLAIN_COLOURS


def has_alpha(bands: int, opened: OpenedImage) -> bool:
    """Whether the last of these decoded bands is no colour: alpha, or what stands behind RGB in a TIFF of four."""
    if opened.tags is None:
        return bands in (2, 4)
    is_rgb = opened.tags.get(PHOTOMETRIC, 1) == 2
    return (bands == 4 and is_rgb) or (bands == 2 and any(kind in (1, 2) for kind in opened.tags.get(EXTRA, ())))


def read_bands(opened: OpenedImage) -> np.ndarray:
    """Any number of bands of one type -> HWC as stored, in that type. Raises UserError for what is not decoded."""
    _refuse_unknown(opened)
    try:
        pixels = _chunky(opened) if opened.tags.get(PLANAR, 1) == 1 else _planar(opened)
    except DAMAGE as error:
        raise damaged(opened, error) from error
    predicted = opened.tags.get(PREDICTOR, 1) == 2 and opened.tags.get(COMPRESSION, 1) in _PREDICTED
    return _undo_predictor(pixels, opened) if predicted else pixels


def _chunky(opened: OpenedImage) -> np.ndarray:
    bands = opened.tags.get(SAMPLES, 1)
    return _decode_one_band(opened, _describe(opened, wide=bands)).reshape(*opened.size, bands)


def _planar(opened: OpenedImage) -> np.ndarray:
    bands = range(opened.tags[SAMPLES])
    return np.stack([_decode_one_band(opened, _describe(opened, plane=band)) for band in bands], axis=-1)


def _refuse_unknown(opened: OpenedImage) -> None:
    tags, kind = opened.tags, sample_kind(opened)
    compression, predictor = tags.get(COMPRESSION, 1), tags.get(PREDICTOR, 1)
    photometric = tags.get(PHOTOMETRIC, 1)
    name = f'{opened.path}: a TIFF of {tags.get(SAMPLES, 1)} band(s) of {kind}'
    if photometric not in (1, 2):
        raise UserError(f'{name} with photometric interpretation {photometric} is not read; save it as gray or RGB')
    if len(set(tags.get(BITS, (1,)))) > 1 or kind not in ('u8', 'i8', 'u16', 'i16', 'u32', 'i32', 'f32'):
        raise UserError(f'{name} is not read; save it with 8 or 16 bits, or as 32-bit float')
    known_predictors = (1,) if kind == 'f32' else (1, 2)
    big_tiff = b'+' in opened.data[2:4]
    if compression not in _COMPRESSIONS or predictor not in known_predictors or big_tiff:
        raise UserError(
            f'{name} with compression {compression}, predictor {predictor}{", BigTIFF" if big_tiff else ""} is not '
            'read; save it as a classic TIFF without compression or with deflate or LZW'
        )


def _describe(opened: OpenedImage, wide: int = 1, plane: int | None = None) -> dict[int, tuple[int, ...]]:
    """Tags of a one-band picture over the same bytes: `wide` times as wide, or band `plane` alone."""
    tags, (height, width) = opened.tags, opened.size
    one = {WIDTH: (width * wide,), HEIGHT: (height,), BITS: (opened.bits,), PHOTOMETRIC: (1,), SAMPLES: (1,)}
    one |= {COMPRESSION: (tags.get(COMPRESSION, 1),), FORMAT: (max(tags.get(FORMAT, (1,))),)}
    if TILE_WIDTH in tags:
        offsets, counts = TILE_OFFSETS, TILE_COUNTS
        one |= {TILE_WIDTH: (tags[TILE_WIDTH] * wide,), TILE_HEIGHT: (tags[TILE_HEIGHT],)}
    else:
        offsets, counts = OFFSETS, COUNTS
        one |= {ROWS_PER_STRIP: (min(tags.get(ROWS_PER_STRIP, height), height),)}
    pieces = len(tags[offsets]) if plane is None else len(tags[offsets]) // tags[SAMPLES]
    first = 0 if plane is None else plane * pieces
    return one | {tag: tuple(tags[tag][first : first + pieces]) for tag in (offsets, counts)}


def _decode_one_band(opened: OpenedImage, tags: dict[int, tuple[int, ...]]) -> np.ndarray:
    order = '<' if opened.data[:2] == b'II' else '>'
    directory_at = len(opened.data) + len(opened.data) % 2
    header = opened.data[:4] + struct.pack(f'{order}I', directory_at)
    data = header + opened.data[8:].ljust(directory_at - 8, b'\0') + _directory(tags, order, directory_at)
    pixels = np.asarray(Image.open(BytesIO(data), formats=('TIFF',)))
    return pixels.astype(f'{sample_kind(opened)[0]}{opened.bits // 8}', copy=False)


def _directory(tags: dict[int, tuple[int, ...]], order: str, at: int) -> bytes:
    """A TIFF directory at byte `at`, all of its values of type LONG (4): 32 bits, unsigned."""
    entries, values = b'', b''
    values_at = at + 2 + 12 * len(tags) + 4
    for tag, numbers in sorted(tags.items()):
        packed = struct.pack(f'{order}{len(numbers)}I', *numbers)
        if len(numbers) > 1:
            packed, values = struct.pack(f'{order}I', values_at + len(values)), values + packed
        entries += struct.pack(f'{order}HHI', tag, 4, len(numbers)) + packed
    return struct.pack(f'{order}H', len(tags)) + entries + bytes(4) + values


def _undo_predictor(pixels: np.ndarray, opened: OpenedImage) -> np.ndarray:
    """Each sample was stored less the one to its left in its tile or strip, modulo 2^bits (TIFF 6.0, section 14)."""
    step = opened.tags.get(TILE_WIDTH, opened.size[1])
    tiles = [pixels[:, left : left + step] for left in range(0, opened.size[1], step)]
    return np.concatenate([np.cumsum(tile, axis=1, dtype=pixels.dtype) for tile in tiles], axis=1)
