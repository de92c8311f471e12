"""Open an image file: read it, check its header, say by name what is wrong with it. Its pixels are decoded later."""

import logging
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

from mmengine.logging import print_log
from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from seg.errors import BadFileError, UserError

FORMATS = ('BMP', 'GIF', 'JPEG', 'PNG', 'TIFF', 'WEBP')
MAX_PIXELS = 178_956_970  # where Pillow by itself calls a picture a decompression bomb
BYTES_PER_PIXEL = 16  # four bands of 32-bit floats; a file of more for each pixel allowed is refused before it is read

# What Pillow's plugins raise on files that break their format.
DAMAGE = (
    *(OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, OverflowError, struct.error, zlib.error),
    Image.DecompressionBombError,
)

_MAGIC = {
    b'BM': 'BMP',
    b'GIF8': 'GIF',
    b'\xff\xd8\xff': 'JPEG',
    b'\x89PNG': 'PNG',
    b'II*\0': 'TIFF',
    b'MM\0*': 'TIFF',
    b'II+\0': 'TIFF',
    b'MM\0+': 'TIFF',
    b'RIFF': 'WEBP',
}
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _ORIENTATION, _PAGE_KIND = 256, 257, 258, 259, 274, 254
_LOSSY_TIFF_COMPRESSIONS = (6, 7, 34712, 34887, 50001)  # JPEG old and new, JPEG 2000, LERC, WEBP


@dataclass(frozen=True)
class OpenedImage:
    """An image whose header is read.

    `size` is (h, w) as stored; `orientation` is EXIF's 1 to 8; `bits` are those of a sample in the file, which Pillow's
    mode hides (it opens 16-bit RGB as 8-bit and scales 4-bit gray); `tags` are a TIFF's; `image` is None for a TIFF
    that Pillow has no mode for.
    """

    path: str
    data: bytes
    format: str
    image: Image.Image | None
    tags: Any
    size: tuple[int, int]
    orientation: int
    bits: int

    @property
    def is_jpeg(self) -> bool:
        return self.format in ('JPEG', 'MPO')  # MPO: a JPEG with more pictures behind it, as phones write

    @property
    def is_lossy(self) -> bool:
        if self.tags is not None:
            return self.tags.get(_COMPRESSION) in _LOSSY_TIFF_COMPRESSIONS
        return self.is_jpeg or (self.format == 'WEBP' and _webp_is_lossy(self.data))

    @property
    def has_frames(self) -> bool:
        """More than one picture to choose from; the smaller copies behind a TIFF's first page do not count.

        Raises BadFileError where what stands behind the first picture is damaged.
        """
        try:
            if self.tags is not None:
                return _has_pages(self.tags, self.data)
            return not self.is_jpeg and bool(getattr(self.image, 'is_animated', False))
        except DAMAGE as error:
            raise damaged(self, error) from error

    def shown_size(self, apply_exif: bool = True) -> tuple[int, int]:
        """(h, w) after the EXIF orientation is applied."""
        turned = apply_exif and self.orientation >= 5
        return (self.size[1], self.size[0]) if turned else self.size


def open_image(path: str | Path, max_pixels: int = MAX_PIXELS) -> OpenedImage:
    """Read a file and its header. Raises BadFileError for one that is missing, empty, no image or damaged, else UserError.

    The limits hold before anything is read (16 bytes a pixel) and before anything is decoded. A `max_pixels` over
    Pillow's own limit raises that limit for the whole process: Pillow keeps it in its module.
    """
    path = str(path)
    data = _read(path, max_pixels)
    if Image.MAX_IMAGE_PIXELS is not None:
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, max_pixels)
    try:
        opened = _open_tiff(path, data) if _format_of(data) == 'TIFF' else _open_other(path, data)
    except Image.DecompressionBombError as error:
        raise UserError(f'{path}: refused before decoding, larger than max_pixels={max_pixels}: {error}') from error
    except DAMAGE as error:
        raise BadFileError(f'{path}: {_what_is_wrong(data, error)}') from error
    _check_size(opened, max_pixels)
    return opened


def damaged(opened: OpenedImage, error: Exception | str) -> BadFileError:
    """The refusal of a file whose header is good and whose pixels are not."""
    return BadFileError(f'{opened.path}: a truncated or damaged {opened.format}, it cannot be decoded: {error}')


_overheard: ContextVar[list[str] | None] = ContextVar('overheard', default=None)


def say_once(message: str) -> None:
    """Log a warning, the first time it is given in this process. Within `overhear` it is not logged."""
    listener = _overheard.get()
    if listener is None:
        _log_once(message)
    else:
        listener.append(message)


@contextmanager
def overhear() -> Iterator[list[str]]:
    """What `say_once` has to say meanwhile, in this thread, for one who reports it in another way."""
    heard: list[str] = []
    token = _overheard.set(heard)
    try:
        yield heard
    finally:
        _overheard.reset(token)


@lru_cache(maxsize=1024)
def _log_once(message: str) -> None:
    print_log(message, logger='current', level=logging.WARNING)


def _read(path: str, max_pixels: int) -> bytes:
    try:
        found = Path(path).stat()
        _refuse_unreadable(path, found.st_mode, found.st_size, max_pixels)
        data = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise BadFileError(f'{path}: no such file') from error
    except (OSError, ValueError) as error:
        raise BadFileError(f'{path}: cannot be read: {error}') from error
    if not data:
        raise BadFileError(f'{path}: the file is empty (0 bytes)')
    return data


def _refuse_unreadable(path: str, mode: int, size: int, max_pixels: int) -> None:
    """A pipe would be waited for without end, and a file larger than memory would end the process."""
    if not stat.S_ISREG(mode):
        raise UserError(f'{path}: cannot be read: {"a folder" if stat.S_ISDIR(mode) else "a device or pipe"}, no file')
    if size > BYTES_PER_PIXEL * max_pixels:
        raise UserError(
            f'{path}: {size} bytes, more than {BYTES_PER_PIXEL} for each of max_pixels={max_pixels}; refused before '
            'reading. Give LoadImageFromFile and LoadAnnotations a larger max_pixels if the file is meant.'
        )


def _open_other(path: str, data: bytes) -> OpenedImage:
    image = Image.open(BytesIO(data), formats=FORMATS)
    size = (image.height, image.width)
    bits = data[24] if image.format == 'PNG' else 8  # its header block stands at a fixed place
    return OpenedImage(path, data, str(image.format), image, None, size, _orientation(image, data, path), bits)


def _open_tiff(path: str, data: bytes) -> OpenedImage:
    tags = _read_tags(data, None)
    try:
        image = Image.open(BytesIO(data), formats=('TIFF',))
    except (UnidentifiedImageError, ValueError):
        image = None  # a kind of pixel that Pillow has no mode for
    size = (int(tags[_HEIGHT]), int(tags[_WIDTH]))
    if min(size) <= 0:
        raise ValueError(f'its size is {size[1]}x{size[0]}')
    orientation = _legal_orientation(tags.get(_ORIENTATION, 1))
    return OpenedImage(path, data, 'TIFF', image, tags, size, orientation, max(tags.get(_BITS, (1,))))


def _read_tags(data: bytes, at: int | None) -> Any:
    """The TIFF directory at this byte, by default the first."""
    is_big_tiff = b'+' in data[2:4]
    tags = ImageFileDirectory_v2(data[: 16 if is_big_tiff else 8])
    stream = BytesIO(data)
    stream.seek(tags.next if at is None else at)
    tags.load(stream)
    return tags


def _has_pages(tags: Any, data: bytes) -> bool:
    if not tags.next:
        return False
    smaller_copy, transparency = 1, 4  # bits of NewSubfileType
    return not _read_tags(data, tags.next).get(_PAGE_KIND, 0) & (smaller_copy | transparency)


def _format_of(data: bytes) -> str | None:
    return next((name for magic, name in _MAGIC.items() if data.startswith(magic)), None)


def _what_is_wrong(data: bytes, error: Exception) -> str:
    known = _format_of(data)
    if known is None:
        return f'not an image that is read here ({", ".join(FORMATS)}): it begins with {data[:12]!r}'
    if known == 'GIF' and b'\0\0' in (data[6:8], data[8:10]):
        return 'a GIF whose width or height is 0'
    why = 'its header cannot be read' if isinstance(error, UnidentifiedImageError) else str(error)
    return f'a truncated or damaged {known}: {why}'


def _check_size(opened: OpenedImage, max_pixels: int) -> None:
    height, width = opened.size
    if height * width > max_pixels:
        raise UserError(
            f'{opened.path}: {width}x{height} is {height * width} pixels, more than max_pixels={max_pixels}; refused '
            'before decoding. Give LoadImageFromFile and LoadAnnotations a larger max_pixels if the file is meant.'
        )


def _orientation(image: Image.Image, data: bytes, path: str) -> int:
    try:
        return _legal_orientation(_exif(image, data).get(_ORIENTATION, 1))
    except DAMAGE as error:
        say_once(f'{path}: its EXIF block is damaged ({error}); shown as stored')
        return 1


def _exif(image: Image.Image, data: bytes) -> Image.Exif:
    """Read anew: Pillow remembers a damaged block as an empty one, and decodes a PNG to find one behind its pixels."""
    if 'Raw profile type exif' in image.info:  # ImageMagick's way, in a PNG's text
        return image.getexif()
    behind = _png_block(data, b'eXIf') if image.format == 'PNG' else b''
    found = Image.Exif()
    found.load(image.info.get('exif', behind))
    return found


def _png_block(data: bytes, name: bytes) -> bytes:
    at = 8  # behind the signature come blocks: size, name, content, checksum
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], 'big')
        if data[at + 4 : at + 8] == name:
            return data[at + 8 : at + 8 + size]
        at += size + 12
    return b''


def _legal_orientation(value: Any) -> int:
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _webp_is_lossy(data: bytes) -> bool:
    at = 12  # behind RIFF, the file's size and WEBP come chunks: name, size, content padded to even
    while at + 8 <= len(data):
        if data[at : at + 4] in (b'VP8 ', b'VP8L'):
            return data[at : at + 4] == b'VP8 '
        size = int.from_bytes(data[at + 4 : at + 8], 'little')
        at += 8 + size + size % 2
    return True
