"""Tiny images, masks and data sets, written to a folder for the tests."""

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

DATA = Path(__file__).parents[2].parent / 'shared' / 'data'  # real files; tests on them skip where it is missing


def photo(height: int = 12, width: int = 16, seed: int = 0) -> np.ndarray:
    """HW3 uint8: a smooth picture, so that JPEG keeps it to a few grays."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 100 * np.sin((seed + k + 1) * 0.7 + x / width * 3 + y / height * (k + 1)) for k in range(3)]
    return np.stack(planes, axis=-1).round().astype(np.uint8)


def disc(height: int = 12, width: int = 16) -> np.ndarray:
    """HW uint8 of 0 and 1: a disc a little off the centre, so that a flip or a turn shows."""
    y, x = np.mgrid[0:height, 0:width]
    return ((y - height * 0.4) ** 2 + (x - width * 0.6) ** 2 < (min(height, width) * 0.3) ** 2).astype(np.uint8)


def write_image(path: Path, array: np.ndarray, **options: Any) -> Path:
    """HW or HWC uint8 in the format of the name; options are Pillow's (quality, exif, ...)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return path


def write_palette_mask(
    path: Path, indices: np.ndarray, colours: Sequence[Sequence[int]] = ((0,) * 3, (255,) * 3)
) -> Path:
    """A GIF or PNG of palette indices, by default black and white as Carvana's masks are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(indices.astype(np.uint8), 'L')
    image = image.convert('P')
    image.putdata(indices.ravel().tolist())
    image.putpalette([part for colour in colours for part in colour])
    image.save(path)
    return path


def exif(orientation: int) -> Image.Exif:
    """An EXIF block that holds an orientation of 1 to 8."""
    block = Image.Exif()
    block[274] = orientation
    return block


def make_pairs(
    root: Path, names: Sequence[str], size: tuple[int, int] = (12, 16), img_suffix: str = '.jpg', masks: bool = True
) -> Path:
    """root/images/NAME.jpg and root/masks/NAME.png, gray of 0 and 1."""
    for number, name in enumerate(names):
        write_image(root / 'images' / f'{name}{img_suffix}', photo(*size, seed=number))
        if masks:
            write_image(root / 'masks' / f'{name}.png', disc(*size))
    return root


def make_carvana(root: Path, cars: int = 3, views: int = 4, size: tuple[int, int] = (12, 16)) -> Path:
    """root/train/CAR_NN.jpg and root/train_masks/CAR_NN_mask.gif, as Kaggle's folders are."""
    for car in range(cars):
        for view in range(1, views + 1):
            name = f'{car:04x}c0ffee{car:02x}_{view:02d}'
            write_image(root / 'train' / f'{name}.jpg', photo(*size, seed=car), quality=95)
            write_palette_mask(root / 'train_masks' / f'{name}_mask.gif', disc(*size))
    return root


def png_bytes(width: int, height: int, bits: int, colour_type: int, rows: Sequence[bytes], extra: bytes = b'') -> bytes:
    """A PNG of any bit depth; colour type 0 gray, 2 RGB, 3 palette, 4 gray + alpha, 6 RGBA; `extra` follows the pixels."""
    header = struct.pack('>IIBBBBB', width, height, bits, colour_type, 0, 0, 0)
    pixels = zlib.compress(b''.join(b'\0' + row for row in rows))
    blocks = png_block(b'IHDR', header) + png_block(b'IDAT', pixels) + extra + png_block(b'IEND', b'')
    return b'\x89PNG\r\n\x1a\n' + blocks


def png_block(name: bytes, content: bytes) -> bytes:
    return struct.pack('>I', len(content)) + name + content + struct.pack('>I', zlib.crc32(name + content))


def tiff_bytes(
    array: np.ndarray,
    planar: bool = False,
    deflate: bool = False,
    predictor: int = 1,
    rows_per_strip: int | None = None,
    tile: int | None = None,
    order: str = '<',
    **tags: int | Sequence[int],
) -> bytes:
    """A TIFF of any number of bands (HWC) of any type, in strips or square tiles; other tags as t338=(0, 0)."""
    array = array[..., None] if array.ndim == 2 else array
    height, width, bands = array.shape
    planes = [array[..., [band]] for band in range(bands)] if planar else [array]
    pieces = [_piece(part, predictor, deflate, order) for plane in planes for part in _cut(plane, rows_per_strip, tile)]
    bits, kind = array.dtype.itemsize * 8, {'u': 1, 'i': 2, 'f': 3}[array.dtype.kind]
    known: dict[int, Sequence[int]] = {256: [width], 257: [height], 258: [bits] * bands, 259: [8 if deflate else 1]}
    known |= {262: [2 if bands >= 3 else 1], 277: [bands], 284: [2 if planar else 1], 317: [predictor]}
    known |= {339: [kind] * bands}
    if bands > 1 and bands != 3:
        known[338] = [0] * (bands - (3 if bands > 3 else 1))
    known |= {322: [tile], 323: [tile]} if tile else {278: [rows_per_strip or height]}
    known |= {int(tag[1:]): [value] if isinstance(value, int) else value for tag, value in tags.items()}
    return _tiff_file(known, pieces, (324, 325) if tile else (273, 279), order)


def _cut(plane: np.ndarray, rows_per_strip: int | None, tile: int | None) -> list[np.ndarray]:
    height, width = plane.shape[:2]
    if tile is None:
        step = rows_per_strip or height
        return [plane[top : top + step] for top in range(0, height, step)]
    padded = np.pad(plane, ((0, -height % tile), (0, -width % tile), (0, 0)))
    corners = [(top, left) for top in range(0, height, tile) for left in range(0, width, tile)]
    return [padded[top : top + tile, left : left + tile] for top, left in corners]


def _piece(part: np.ndarray, predictor: int, deflate: bool, order: str) -> bytes:
    if predictor == 2:
        part = np.concatenate([part[:, :1], part[:, 1:] - part[:, :-1]], axis=1)  # modulo 2^bits, as unsigned types do
    data = part.astype(part.dtype.newbyteorder(order)).tobytes()
    return zlib.compress(data) if deflate else data


def _tiff_file(tags: dict[int, Sequence[int]], pieces: list[bytes], where: tuple[int, int], order: str) -> bytes:
    at, offsets = 8, []
    for piece in pieces:
        offsets.append(at)
        at += len(piece)
    tags = {**tags, where[0]: offsets, where[1]: [len(piece) for piece in pieces]}
    entries, values, values_at = b'', b'', at + at % 2 + 2 + 12 * len(tags) + 4
    for tag in sorted(tags):
        packed = struct.pack(f'{order}{len(tags[tag])}I', *tags[tag])
        if len(tags[tag]) > 1:
            packed, values = struct.pack(f'{order}I', values_at + len(values)), values + packed
        entries += struct.pack(f'{order}HHI', tag, 4, len(tags[tag])) + packed
    header = (b'II*\0' if order == '<' else b'MM\0*') + struct.pack(f'{order}I', at + at % 2)
    body = b''.join(pieces) + bytes(at % 2)
    return header + body + struct.pack(f'{order}H', len(tags)) + entries + bytes(4) + values
