"""What is refused before it is read or decoded, and files of any bytes: a refusal by name or a picture, nothing else."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seg.datasets.gate.looks import Job, look_at_head, look_at_mask, look_at_photo
from seg.datasets.gate.sources import Reading
from seg.datasets.io import read_image, read_mask
from seg.datasets.label_rule import LabelRule
from seg.datasets.opening import overhear
from seg.errors import UserError
from tests.datasets.made import disc, exif, photo, png_bytes, tiff_bytes, write_image, write_palette_mask

# Inputs tried for each seed file; a long run: SEG_FUZZ=100000 pytest tests/datasets/test_limits.py
TRIES = int(os.environ.get('SEG_FUZZ', '60'))
MAX_PIXELS = 10_000

SEEDS: dict[str, Callable[[Path], object]] = {
    'baseline.jpg': lambda path: write_image(path, photo()),
    'progressive.jpg': lambda path: write_image(path, photo(), progressive=True, exif=exif(6)),
    'gray.jpg': lambda path: write_image(path, disc() * 200),
    'colour.png': lambda path: write_image(path, photo()),
    'gray.png': lambda path: write_image(path, disc()),
    'bit.png': lambda path: path.write_bytes(png_bytes(8, 2, 1, 0, [b'\xf0', b'\x0f'])),
    'deep.png': lambda path: write_image(path, disc().astype(np.uint16) * 65535),
    'palette.png': lambda path: write_palette_mask(path, disc()),
    'palette.gif': lambda path: write_palette_mask(path, disc()),
    'moving.gif': lambda path: Image.fromarray(disc()).save(
        path, save_all=True, append_images=[Image.fromarray(1 - disc())]
    ),
    'colour.bmp': lambda path: write_image(path, photo()),
    'lossy.webp': lambda path: write_image(path, photo()),
    'lossless.webp': lambda path: write_image(path, photo(), lossless=True, exif=exif(3)),
    'strips.tif': lambda path: path.write_bytes(tiff_bytes(photo(), rows_per_strip=5, deflate=True, predictor=2)),
    'bands.tif': lambda path: path.write_bytes(tiff_bytes(np.zeros((12, 16, 5), np.uint16), tile=16)),
    'float.tif': lambda path: path.write_bytes(tiff_bytes(np.zeros((12, 16), np.float32))),
}


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / 'a.png')
    with pytest.raises(UserError, match=r'a\.png: cannot be read: a device or pipe'):
        read_image(tmp_path / 'a.png')


def test_a_file_larger_than_memory_is_not_read(tmp_path: Path) -> None:
    write_image(tmp_path / 'a.png', photo())
    os.truncate(tmp_path / 'a.png', 16 * 1000)  # holes take no room
    assert read_image(tmp_path / 'a.png', max_pixels=1000).shape == (12, 16, 3)
    os.truncate(tmp_path / 'a.png', 16 * 1000 + 1)
    with pytest.raises(
        UserError, match=r'a\.png: 16001 bytes, more than 16 for each of max_pixels=1000; refused before'
    ):
        read_image(tmp_path / 'a.png', max_pixels=1000)


def spoilt(seed: bytes, rng: random.Random) -> Iterator[bytes]:
    """Without end: bytes changed, cut off, doubled, put in from elsewhere."""
    while True:
        data = bytearray(seed)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(data))
            match rng.randrange(5):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    data[at] ^= 1 << rng.randrange(8)
                case 2:
                    data[at : at + 4] = rng.choice((b'\0\0\0\0', b'\xff\xff\xff\xff', b'\x7f\xff\xff\xff', b'\0\0\1\0'))
                case 3:
                    del data[at : at + rng.choice((1, 4, 64))]
                case _:
                    data[at:at] = data[: rng.randrange(64)]
            data = data or bytearray(b'\0')
        yield bytes(data)


@pytest.mark.filterwarnings('ignore:::PIL')
@pytest.mark.parametrize('name', SEEDS)
def test_files_of_any_bytes(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    SEEDS[name](path)
    rng = random.Random(name)
    for number, data in zip(range(TRIES), spoilt(path.read_bytes(), rng)):
        path.write_bytes(data)
        job = Job(str(path), str(path), Reading(max_pixels=MAX_PIXELS, mask_max_pixels=MAX_PIXELS), LabelRule(2))
        for look in (look_at_head, look_at_mask, look_at_photo):
            json.dumps(look(job))
        with overhear():
            image = _result(lambda: read_image(path, max_pixels=MAX_PIXELS), path, number)
            mask = _result(lambda: read_mask(path, num_classes=2, max_pixels=MAX_PIXELS), path, number)
        assert image is None or (image.dtype == np.uint8 and image.shape[2] == 3 and image.size <= 3 * MAX_PIXELS)
        assert mask is None or (mask.dtype == np.uint8 and mask.ndim == 2 and set(np.unique(mask)) <= {0, 1, 255})


def _result(read: Callable[[], np.ndarray], path: Path, number: int) -> np.ndarray | None:
    try:
        return read()
    except UserError as error:
        assert str(path) in str(error), number
        return None
