"""TIFFs that Pillow has no mode for: 2, 5 or more bands, several bands of 16 bit or float, signed and 64-bit values.

Pillow drops the bands that it does not know and mixes up the byte order of compressed floats; OpenCV mixes up planar
16-bit bands. What both can do is 8-bit gray, so the file is described anew: as a gray picture over the same bytes, whose
rows hold all bytes of all bands of a pixel side by side. libtiff, through Pillow, then decompresses it whatever its
compression is, and numpy reads the bytes as what they are.
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
    """Whether Pillow reads the file whole: one band of up to 12 bits, or 8-bit colour with or without alpha."""
    samples, kind = opened.tags.get(SAMPLES, 1), sample_kind(opened)
    if opened.image is None or opened.bits > 12 or kind == 'i8':
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
    return _decode(opened, _describe(opened, bands), bands)


def _planar(opened: OpenedImage) -> np.ndarray:
    bands = range(opened.tags[SAMPLES])
    return np.concatenate([_decode(opened, _describe(opened, 1, band), 1) for band in bands], axis=2)


def _refuse_unknown(opened: OpenedImage) -> None:
    tags, kind = opened.tags, sample_kind(opened)
    compression, predictor = tags.get(COMPRESSION, 1), tags.get(PREDICTOR, 1)
    photometric = tags.get(PHOTOMETRIC, 1)
    name = f'{opened.path}: a TIFF of {tags.get(SAMPLES, 1)} band(s) of {kind}'
    if photometric not in (1, 2):
        raise UserError(f'{name} with photometric interpretation {photometric} is not read; save it as gray or RGB')
    if len(set(tags.get(BITS, (1,)))) > 1 or kind[0] not in 'uif' or kind[1:] not in ('8', '16', '32', '64'):
        raise UserError(f'{name} is not read; save it with 8 or 16 bits, or as 32-bit float')
    known_predictors = (1,) if kind[0] == 'f' else (1, 2)
    big_tiff = b'+' in opened.data[2:4]
    if compression not in _COMPRESSIONS or predictor not in known_predictors or big_tiff:
        raise UserError(
            f'{name} with compression {compression}, predictor {predictor}{", BigTIFF" if big_tiff else ""} is not '
            'read; save it as a classic TIFF without compression or with deflate or LZW'
        )


def _describe(opened: OpenedImage, bands: int, plane: int | None = None) -> dict[int, tuple[int, ...]]:
    """Tags of an 8-bit gray picture over the bytes of all bands, or of band `plane` alone."""
    tags, (height, width) = opened.tags, opened.size
    widening = bands * opened.bits // 8
    gray = {WIDTH: (width * widening,), HEIGHT: (height,), BITS: (8,), PHOTOMETRIC: (1,), SAMPLES: (1,)}
    gray |= {COMPRESSION: (tags.get(COMPRESSION, 1),)}
    if TILE_WIDTH in tags:
        offsets, counts = TILE_OFFSETS, TILE_COUNTS
        gray |= {TILE_WIDTH: (tags[TILE_WIDTH] * widening,), TILE_HEIGHT: (tags[TILE_HEIGHT],)}
    else:
        offsets, counts = OFFSETS, COUNTS
        gray |= {ROWS_PER_STRIP: (min(tags.get(ROWS_PER_STRIP, height), height),)}
    pieces = len(tags[offsets]) if plane is None else len(tags[offsets]) // tags[SAMPLES]
    first = 0 if plane is None else plane * pieces
    return gray | {tag: tuple(tags[tag][first : first + pieces]) for tag in (offsets, counts)}


def _decode(opened: OpenedImage, tags: dict[int, tuple[int, ...]], bands: int) -> np.ndarray:
    order = '<' if opened.data[:2] == b'II' else '>'
    directory_at = len(opened.data) + len(opened.data) % 2
    header = opened.data[:4] + struct.pack(f'{order}I', directory_at)
    data = header + opened.data[8:].ljust(directory_at - 8, b'\0') + _directory(tags, order, directory_at)
    pixels = np.ascontiguousarray(Image.open(BytesIO(data), formats=('TIFF',)))
    stored = np.dtype(f'{order}{sample_kind(opened)[0]}{opened.bits // 8}')
    return pixels.view(stored).reshape(*opened.size, bands).astype(stored.newbyteorder('='))


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
