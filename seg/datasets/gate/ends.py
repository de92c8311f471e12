"""Whether a file goes on to its end, told from its bytes without decoding them."""

from collections.abc import Callable, Sequence

from seg.datasets.opening import OpenedImage
from seg.datasets.tiff import COUNTS, OFFSETS, TILE_COUNTS, TILE_OFFSETS

_PADDING = 4096  # bytes behind an end marker that are looked through for it


def is_whole(opened: OpenedImage) -> bool:
    """False where the end mark is missing, or is not where it belongs: only decoding can then tell what is wrong.

    JPEG: the end-of-image marker; PNG: a chain of blocks up to IEND; GIF: the trailer; TIFF, BMP, WEBP: the places that
    the header points to.
    """
    known: dict[str, Callable[[OpenedImage], bool]] = {
        'JPEG': _ends_jpeg,
        'MPO': _ends_jpeg,
        'PNG': _ends_png,
        'GIF': _ends_gif,
        'TIFF': _ends_tiff,
        'BMP': _ends_bmp,
        'WEBP': _ends_webp,
    }
    return known[opened.format](opened)


def _ends_jpeg(opened: OpenedImage) -> bool:
    return _tail(opened.data).endswith(b'\xff\xd9')


def _ends_gif(opened: OpenedImage) -> bool:
    return _tail(opened.data).endswith(b';')


def _tail(data: bytes) -> bytes:
    """The last bytes without zeros behind them, which some cameras and file systems add."""
    return data[-_PADDING:].rstrip(b'\0')


def _ends_png(opened: OpenedImage) -> bool:
    data, at = opened.data, 8  # behind the signature come blocks: size, name, content, checksum
    while at + 12 <= len(data):
        if data[at + 4 : at + 8] == b'IEND':
            return True
        at += int.from_bytes(data[at : at + 4], 'big') + 12
    return False


def _ends_tiff(opened: OpenedImage) -> bool:
    tags = opened.tags
    offsets, counts = (TILE_OFFSETS, TILE_COUNTS) if TILE_OFFSETS in tags else (OFFSETS, COUNTS)
    return _lies_inside(tags.get(offsets, ()), tags.get(counts, ()), len(opened.data))


def _lies_inside(offsets: Sequence[int], counts: Sequence[int], size: int) -> bool:
    return len(offsets) == len(counts) > 0 and all(at + count <= size for at, count in zip(offsets, counts))


def _ends_bmp(opened: OpenedImage) -> bool:
    """Rows are padded to four bytes; a compressed bitmap says its size itself."""
    data = opened.data
    pixels_at, bits, compression = (
        int.from_bytes(data[at : at + n], 'little') for at, n in ((10, 4), (28, 2), (30, 4))
    )
    if compression in (1, 2):
        return int.from_bytes(data[34:38], 'little') + pixels_at <= len(data)
    height, width = opened.size
    return pixels_at + (width * bits + 31) // 32 * 4 * height <= len(data)


def _ends_webp(opened: OpenedImage) -> bool:
    return int.from_bytes(opened.data[4:8], 'little') + 8 <= len(opened.data)
