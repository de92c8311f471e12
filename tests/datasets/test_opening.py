"""Bad files are refused by name, with what is wrong; good ones with a blemish are read."""

import pickle
import struct
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from seg.datasets.io import image_size, read_image, read_mask
from seg.errors import UserError
from tests.datasets.made import disc, exif, photo, png_bytes, tiff_bytes, write_image, write_palette_mask


def refused(path: Path, what: str) -> None:
    for read in (read_image, lambda path: read_mask(path, num_classes=2)):
        with pytest.raises(UserError) as info:
            read(path)
        assert path.name in str(info.value)
        assert what in str(info.value)
        assert str(pickle.loads(pickle.dumps(info.value))) == str(info.value)  # it comes out of loader workers whole


def test_no_image_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'empty.jpg').write_bytes(b'')
    (tmp_path / 'text.jpg').write_bytes(b'this is not an image')
    (tmp_path / 'zero.gif').write_bytes(b'GIF89a\x00\x00\x10\x00\x00\x00\x00;')
    (tmp_path / 'folder.png').mkdir()
    refused(tmp_path / 'empty.jpg', 'empty (0 bytes)')
    refused(tmp_path / 'text.jpg', 'not an image')
    refused(tmp_path / 'zero.gif', 'width or height is 0')
    refused(tmp_path / 'missing.png', 'no such file')
    refused(tmp_path / 'folder.png', 'cannot be read')
    with pytest.raises(UserError, match='empty'):
        image_size(tmp_path / 'empty.jpg')


@pytest.mark.filterwarnings('ignore:Corrupt EXIF')
@pytest.mark.parametrize('kept', [0.02, 0.2, 0.5, 0.9, 0.98])
@pytest.mark.parametrize(
    'name', ['a.jpg', 'a.png', 'a.tif', 'a.webp', 'a.gif', 'a.bmp', 'deflate.tif', 'progressive.jpg']
)
def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path: Path, name: str, kept: float) -> None:
    rng = np.random.default_rng(0)
    noisy = (photo(64, 96) // 2 + rng.integers(0, 100, (64, 96, 3))).astype(np.uint8)
    options = {'deflate.tif': {'compression': 'tiff_deflate'}, 'progressive.jpg': {'progressive': True}}.get(name, {})
    path = write_image(tmp_path / name, noisy, **options)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    refused(path, 'truncated or damaged')
    if name.endswith('jpg'):
        with pytest.raises(UserError, match='truncated'):
            read_image(path, decode_for=(24, 16))


def test_a_truncated_jpeg_is_refused_even_if_opencv_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_image(tmp_path / 'a.jpg', photo(64, 96))
    path.write_bytes(path.read_bytes()[:-20])
    monkeypatch.setattr(cv2, 'imdecode', lambda *_: photo(64, 96))  # as some versions do: full size, gray at the end
    refused(path, 'truncated or damaged')


def test_a_truncated_palette_mask_is_refused(tmp_path: Path) -> None:
    for suffix in ('gif', 'png'):
        path = write_palette_mask(tmp_path / f'm.{suffix}', disc(64, 64))
        path.write_bytes(path.read_bytes()[:-60])
        refused(path, 'truncated or damaged')


def test_a_flipped_bit_in_a_png_is_refused(tmp_path: Path) -> None:
    path = write_image(tmp_path / 'a.png', photo(32, 32))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data))
    refused(path, 'truncated or damaged')


@pytest.mark.parametrize('tail', [b'\0' * 100, b'a trailer as cameras write it', b''])
def test_a_jpeg_with_something_behind_its_end_is_whole(tmp_path: Path, tail: bytes) -> None:
    path = write_image(tmp_path / 'a.jpg', photo(16, 16))
    whole = read_image(path)
    path.write_bytes(path.read_bytes() + tail)
    assert np.array_equal(read_image(path), whole)


def test_a_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    bomb = tmp_path / 'bomb.png'
    bomb.write_bytes(png_bytes(60_000, 60_000, 8, 0, [b'']))  # 3.6 gigapixels said, none there
    refused(bomb, 'before decoding')
    limit = write_image(tmp_path / 'limit.png', photo(10, 11))
    assert read_image(limit, max_pixels=110).shape == (10, 11, 3)
    with pytest.raises(UserError, match=r'limit\.png: 11x10 is 110 pixels, more than max_pixels=109'):
        read_image(limit, max_pixels=109)
    with pytest.raises(UserError, match='max_pixels=109'):
        read_mask(limit, max_pixels=109)


def test_a_larger_limit_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 40)  # Pillow refuses from 80 pixels on
    path = write_image(tmp_path / 'a.png', photo(10, 20))
    with pytest.raises(UserError, match='max_pixels=50'):
        read_image(path, max_pixels=50)
    assert read_image(path, max_pixels=200).shape == (10, 20, 3)


@pytest.mark.parametrize('suffix', ['gif', 'png', 'webp', 'tif'])
def test_of_several_pictures_the_first_is_the_image_and_none_the_mask(
    tmp_path: Path, suffix: str, said: list[str]
) -> None:
    frames = [Image.fromarray(np.full((8, 8, 3), gray, np.uint8)) for gray in (0, 250)]
    options = {'lossless': True} if suffix == 'webp' else {}
    path = tmp_path / f'a.{suffix}'
    frames[0].save(path, save_all=True, append_images=frames[1:], **options)
    for _ in range(2):
        assert (read_image(path) == 0).all()
    assert [path.name in message for message in said] == [True]
    with pytest.raises(UserError, match='several pictures'):
        read_mask(path, num_classes=2)


def test_the_smaller_copies_in_a_pyramid_are_no_frames(tmp_path: Path, said: list[str]) -> None:
    page = tiff_bytes(disc(8, 8))
    directory_at = struct.unpack('<I', page[4:8])[0]
    next_at = directory_at + 2 + 12 * struct.unpack('<H', page[directory_at : directory_at + 2])[0]
    smaller_copy = struct.pack('<HHHII', 1, 254, 4, 1, 1) + bytes(4)  # one tag: NewSubfileType 1
    (tmp_path / 'a.tif').write_bytes(page[:next_at] + struct.pack('<I', len(page)) + page[next_at + 4 :] + smaller_copy)
    assert np.array_equal(read_mask(tmp_path / 'a.tif', num_classes=2), disc(8, 8))
    read_image(tmp_path / 'a.tif')
    assert said == []


def test_a_damaged_exif_block_is_said_and_the_photo_shown_as_stored(tmp_path: Path, said: list[str]) -> None:
    path = write_image(tmp_path / 'a.jpg', photo(16, 32), exif=exif(6))
    data = path.read_bytes()
    at = data.index(b'Exif\0\0') + 6
    path.write_bytes(data[:at] + b'XX' + data[at + 2 :])
    assert read_image(path).shape == (16, 32, 3)
    assert len(said) == 1


def test_a_tiff_that_nobody_decodes_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / 'odd.tif').write_bytes(tiff_bytes(np.zeros((2, 2, 3), np.uint8), t258=(8, 8, 16)))
    refused(tmp_path / 'odd.tif', 'u16 is not read')
    (tmp_path / 'cmyk16.tif').write_bytes(tiff_bytes(np.zeros((2, 2, 4), np.uint16), t262=5))
    refused(tmp_path / 'cmyk16.tif', 'photometric interpretation 5')
    (tmp_path / 'inverted.tif').write_bytes(tiff_bytes(np.zeros((2, 2), np.uint16), t262=0))
    refused(tmp_path / 'inverted.tif', 'photometric interpretation 0')
