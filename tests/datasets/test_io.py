"""Reading good images: every format and kind of pixel, EXIF, scaled decode."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seg.datasets.io import image_size, read_image, read_mask
from seg.datasets.pixels import choose_reduction
from seg.errors import UserError
from tests.datasets.made import exif, photo, png_block, png_bytes, tiff_bytes, write_image, write_palette_mask

CORNERS = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)  # 2 rows, 3 columns


@pytest.mark.parametrize('suffix', ['png', 'tif', 'bmp', 'webp'])
def test_lossless_formats_give_the_pixels_that_were_written(tmp_path: Path, suffix: str) -> None:
    path = write_image(tmp_path / f'a.{suffix}', photo(), **({'lossless': True} if suffix == 'webp' else {}))
    image = read_image(path)
    assert image.dtype == np.uint8
    assert np.array_equal(image, photo())
    assert image.flags.writeable
    assert image.flags.c_contiguous


def test_jpeg_is_decoded_as_pillow_does_in_rgb(tmp_path: Path) -> None:
    path = write_image(tmp_path / 'a.jpg', photo(48, 64))
    image = read_image(path)
    assert np.array_equal(image, np.asarray(Image.open(path)))
    assert image.flags.writeable


def test_gray_is_repeated_and_colour_weighed(tmp_path: Path) -> None:
    gray = write_image(tmp_path / 'gray.png', CORNERS)
    assert np.array_equal(read_image(gray), np.stack([CORNERS] * 3, axis=-1))
    assert np.array_equal(read_image(gray, channels=1), CORNERS[..., None])
    gray_jpeg = write_image(tmp_path / 'gray.jpg', np.full((8, 8), 90, np.uint8))
    assert (read_image(gray_jpeg) == 90).all()
    assert read_image(gray_jpeg, channels=1).shape == (8, 8, 1)
    colours = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], np.uint8)
    # 0.299 x 255 = 76.2, 0.587 x 255 = 149.7, 0.114 x 255 = 29.1
    assert read_image(write_image(tmp_path / 'c.png', colours), channels=1)[..., 0].tolist() == [[76, 150, 29]]


def test_alpha_is_dropped_unless_asked_for(tmp_path: Path) -> None:
    rgba = np.dstack([photo(), np.arange(12 * 16, dtype=np.uint8).reshape(12, 16)])
    path = write_image(tmp_path / 'rgba.png', rgba)
    assert np.array_equal(read_image(path), photo())
    assert np.array_equal(read_image(path, channels=4), rgba)
    gray_alpha = np.dstack([CORNERS, CORNERS[::-1]])
    Image.fromarray(gray_alpha, 'LA').save(tmp_path / 'la.png')
    assert np.array_equal(read_image(tmp_path / 'la.png'), np.stack([CORNERS] * 3, axis=-1))
    assert np.array_equal(read_image(tmp_path / 'la.png', channels=2), gray_alpha)


@pytest.mark.parametrize('suffix', ['gif', 'png'])
def test_a_palette_is_looked_up(tmp_path: Path, suffix: str) -> None:
    colours = [(0, 0, 0), (250, 10, 20), (3, 200, 100), (9, 9, 9)]
    path = write_palette_mask(tmp_path / f'p.{suffix}', np.array([[0, 1], [2, 3]]), colours)
    assert read_image(path).reshape(4, 3).tolist() == [list(colour) for colour in colours]


def test_a_palette_with_transparent_entries_keeps_its_colours(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 1]], np.uint8), 'L').convert('P')
    image.putdata([0, 1])
    image.putpalette([7, 8, 9, 250, 10, 20])
    image.save(tmp_path / 'p.png', transparency=bytes([0, 128]))
    assert read_image(tmp_path / 'p.png').tolist() == [[[7, 8, 9], [250, 10, 20]]]


def test_one_bit_is_black_and_white(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 255]], np.uint8)).convert('1').save(tmp_path / 'a.png')
    assert read_image(tmp_path / 'a.png').tolist() == [[[0, 0, 0], [255, 255, 255]]]


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    inks = np.zeros((8, 16, 4), np.uint8)
    inks[:, 8:, 3] = 255  # the right half is all black ink
    Image.fromarray(inks, 'CMYK').save(tmp_path / 'a.jpg', quality=100)
    image = read_image(tmp_path / 'a.jpg')
    assert image.shape == (8, 16, 3)
    assert image[:, :7].min() >= 250
    assert image[:, 9:].max() <= 5


def test_16_bits_lose_their_low_byte(tmp_path: Path) -> None:
    gray = b'\x00\x00\x01\x00\x80\xff\xff\xff'  # 0, 256, 33023, 65535 over 256: 0, 1, 128, 255
    (tmp_path / 'gray.png').write_bytes(png_bytes(4, 1, 16, 0, [gray]))
    assert read_image(tmp_path / 'gray.png', channels=1).ravel().tolist() == [0, 1, 128, 255]
    (tmp_path / 'rgb.png').write_bytes(png_bytes(1, 1, 16, 2, [b'\x12\xff\x80\x00\xff\xff']))
    assert read_image(tmp_path / 'rgb.png').ravel().tolist() == [0x12, 0x80, 0xFF]
    (tmp_path / 'rgb.tif').write_bytes(tiff_bytes(np.array([[[0x12FF, 0x8000, 0xFFFF]]], np.uint16)))
    assert read_image(tmp_path / 'rgb.tif').ravel().tolist() == [0x12, 0x80, 0xFF]


def test_12_bits_lose_their_low_four(tmp_path: Path) -> None:
    packed = np.array([[0xFF, 0xF0, 0x2F]], np.uint8)  # two samples, fff and 02f: 4095 / 16 = 255, 47 / 16 = 2
    (tmp_path / 'a.tif').write_bytes(tiff_bytes(packed, t256=2, t258=12))
    assert read_image(tmp_path / 'a.tif', channels=1).ravel().tolist() == [255, 2]


def test_a_value_range_spreads_deep_values_and_leaves_8_bits_alone(tmp_path: Path) -> None:
    deep = np.array([[0, 1000, 2000, 4000]], np.uint16)
    (tmp_path / 'deep.tif').write_bytes(tiff_bytes(deep))
    # 0 -> 0, 1000/2000 x 255 = 127.5 -> 128 (to even), 2000 -> 255, beyond it clipped
    assert read_image(tmp_path / 'deep.tif', 1, value_range=(0, 2000)).ravel().tolist() == [0, 128, 255, 255]
    (tmp_path / 'rgb.png').write_bytes(png_bytes(1, 1, 16, 2, [b'\x00\x00\x03\xe8\x07\xd0']))  # 0, 1000, 2000
    assert read_image(tmp_path / 'rgb.png', value_range=(0, 2000)).ravel().tolist() == [0, 128, 255]
    shallow = write_image(tmp_path / 'shallow.png', CORNERS)
    assert np.array_equal(read_image(shallow, 1, value_range=(0, 2000))[..., 0], CORNERS)


def test_float_and_signed_values_need_a_value_range(tmp_path: Path) -> None:
    (tmp_path / 'f.tif').write_bytes(tiff_bytes(np.array([[-1.0, 0.0, 1.0, np.nan]], np.float32)))
    with pytest.raises(UserError, match=r'f\.tif.*float32.*value_range'):
        read_image(tmp_path / 'f.tif')
    # (-1..1 -> 0..255): 0, 127.5 -> 128, 255; not a number -> 0
    assert read_image(tmp_path / 'f.tif', 1, value_range=(-1, 1)).ravel().tolist() == [0, 128, 255, 0]
    (tmp_path / 'i.tif').write_bytes(tiff_bytes(np.array([[-1000, 3000]], np.int16)))
    with pytest.raises(UserError, match=r'i\.tif.*-1000 to 3000.*value_range'):
        read_image(tmp_path / 'i.tif')
    assert read_image(tmp_path / 'i.tif', 1, value_range=(-1000, 3000)).ravel().tolist() == [0, 255]


def test_a_nearly_black_deep_image_is_said_once(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / 'dark.png').write_bytes(png_bytes(2, 1, 16, 0, [b'\x00\x00\x00\xff']))
    for _ in range(2):
        read_image(tmp_path / 'dark.png')
    assert len(said) == 1
    assert 'dark.png' in said[0]
    assert 'value_range=(0, 255)' in said[0]


def test_a_channel_count_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = write_image(tmp_path / 'a.png', photo())
    with pytest.raises(UserError, match=r'a\.png.*has 3 channels, 4 are wanted'):
        read_image(path, channels=4)


# What EXIF's eight orientations show of [[1, 2, 3], [4, 5, 6]].
SHOWN = {
    1: [[1, 2, 3], [4, 5, 6]],
    2: [[3, 2, 1], [6, 5, 4]],
    3: [[6, 5, 4], [3, 2, 1]],
    4: [[4, 5, 6], [1, 2, 3]],
    5: [[1, 4], [2, 5], [3, 6]],
    6: [[4, 1], [5, 2], [6, 3]],
    7: [[6, 3], [5, 2], [4, 1]],
    8: [[3, 6], [2, 5], [1, 4]],
}


@pytest.mark.parametrize('orientation', SHOWN)
@pytest.mark.parametrize('suffix', ['png', 'tif', 'webp'])
def test_exif_turns_images_and_masks_alike(tmp_path: Path, orientation: int, suffix: str) -> None:
    options = {'lossless': True} if suffix == 'webp' else {}
    path = write_image(tmp_path / f'a.{suffix}', CORNERS, exif=exif(orientation), **options)
    shown = np.array(SHOWN[orientation])
    assert read_image(path)[..., 0].tolist() == shown.tolist()
    assert read_mask(path, num_classes=7).tolist() == shown.tolist()
    assert image_size(path) == shown.shape
    assert read_image(path, apply_exif=False)[..., 0].tolist() == CORNERS.tolist()
    assert read_mask(path, num_classes=7, apply_exif=False).tolist() == CORNERS.tolist()
    assert image_size(path, apply_exif=False) == (2, 3)


def test_exif_turns_jpegs_whoever_decodes_them(tmp_path: Path) -> None:
    path = write_image(tmp_path / 'a.jpg', photo(16, 32), exif=exif(6), quality=95)
    turned = np.rot90(np.asarray(Image.open(path)), -1)
    assert np.array_equal(read_image(path), turned)
    with path.open('ab') as file:
        file.write(b'a trailer, which makes Pillow the decoder')
    assert np.array_equal(read_image(path), turned)
    assert image_size(path) == (32, 16)


def test_exif_behind_the_pixels_of_a_png_is_found(tmp_path: Path) -> None:
    block = png_block(b'eXIf', exif(6).tobytes().removeprefix(b'Exif\0\0'))
    (tmp_path / 'a.png').write_bytes(png_bytes(3, 2, 8, 0, [bytes([1, 2, 3]), bytes([4, 5, 6])], extra=block))
    assert read_image(tmp_path / 'a.png')[..., 0].tolist() == SHOWN[6]


@pytest.mark.parametrize(
    ('size', 'decode_for', 'reduction'),
    [
        ((1280, 1918), (959, 640), 2),
        ((1280, 1918), (960, 640), 1),  # 959 columns would not reach
        ((1280, 1918), (959, 641), 1),
        ((1280, 1918), (100, 100), 2),  # 1918 = 2 x 959: quarters would be off centre
        ((512, 512), (128, 128), 4),
        ((512, 512), (64, 64), 8),
        ((512, 512), (1, 1), 8),
        ((511, 512), (1, 1), 1),
        ((512, 512), None, 1),
    ],
)
def test_the_coarsest_exact_scale_that_is_enough(
    size: tuple[int, int], decode_for: tuple[int, int] | None, reduction: int
) -> None:
    assert choose_reduction(size, decode_for) == reduction


def test_scaled_decode_is_a_mean_of_blocks_without_a_shift(tmp_path: Path) -> None:
    original = photo(64, 96, seed=3)
    path = write_image(tmp_path / 'a.jpg', original, quality=98, subsampling=0)
    for reduction in (2, 4, 8):
        small = read_image(path, decode_for=(96 // reduction, 64 // reduction))
        blocks = original.reshape(64 // reduction, reduction, 96 // reduction, reduction, 3).mean(axis=(1, 3))
        assert small.shape == blocks.shape
        assert np.abs(small - blocks).mean() < 0.75  # rounding alone gives 0.5, half a source pixel of shift 1.05


def test_scaled_decode_counts_sizes_as_shown(tmp_path: Path) -> None:
    path = write_image(tmp_path / 'a.jpg', photo(32, 64), exif=exif(6))  # shown 32 wide, 64 high
    assert read_image(path, decode_for=(16, 32)).shape == (32, 16, 3)
    assert read_image(path, decode_for=(32, 16)).shape == (64, 32, 3)
    assert read_image(path, decode_for=(32, 16), apply_exif=False).shape == (16, 32, 3)


def test_scaled_decode_leaves_other_formats_whole(tmp_path: Path) -> None:
    assert read_image(write_image(tmp_path / 'a.png', photo(32, 64)), decode_for=(16, 8)).shape == (32, 64, 3)


@pytest.mark.parametrize('name', ['авто фото.v1.2 (копия).jpg', 'a [1] b.jpg', 'плёнка.1.2.jpg', "it's 100%.jpg"])
def test_any_name_can_be_read(tmp_path: Path, name: str) -> None:
    assert read_image(write_image(tmp_path / name, photo())).shape == (12, 16, 3)
