"""From mask files to class numbers: never a silent mistake."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seg.datasets.io import read_mask
from seg.datasets.label_rule import LabelRule
from seg.errors import UserError
from tests.datasets.made import disc, png_bytes, tiff_bytes, write_image, write_palette_mask

BINARY = {0: 0, 255: 1}


def five_ways(folder: Path) -> dict[str, Path]:
    """One mask, stored as palette GIF and PNG, gray 0/1, gray 0/255 and one bit."""
    mask = disc()
    Image.fromarray(mask * 255).convert('1').save(folder / 'bit.png')
    return {
        'palette gif': write_palette_mask(folder / 'p.gif', mask),
        'palette png': write_palette_mask(folder / 'p.png', mask),
        'gray 0/1': write_image(folder / 'one.png', mask),
        'gray 0/255': write_image(folder / 'white.png', mask * 255),
        'one bit': folder / 'bit.png',
    }


def test_one_mask_stored_five_ways_is_one_array_or_refused(tmp_path: Path) -> None:
    ways = five_ways(tmp_path)
    for name, path in ways.items():
        if name != 'gray 0/255':
            assert np.array_equal(read_mask(path, num_classes=2), disc()), name
            assert np.array_equal(read_mask(path, num_classes=1), disc()), name
    with pytest.raises(UserError, match=r'white\.png: 2 mask values, 0 \(\d+ px\), 255 \(\d+ px\)') as info:
        read_mask(ways['gray 0/255'], num_classes=2)
    assert 'label_map={0: 0, 255: 1}' in str(info.value)


def test_with_a_map_of_0_and_255_too(tmp_path: Path) -> None:
    ways = five_ways(tmp_path)
    for name, path in ways.items():
        if name != 'gray 0/1':
            assert np.array_equal(read_mask(path, BINARY, num_classes=2), disc()), name
    with pytest.raises(UserError, match=r'one\.png: 2 mask values, 0 .*, 1 .*label_map=\{0: 0, 255: 1\}'):
        read_mask(ways['gray 0/1'], BINARY, num_classes=2)


def test_a_gray_mask_that_was_saved_as_gif_keeps_its_grays(tmp_path: Path) -> None:
    write_image(tmp_path / 'm.gif', disc() * 255)  # Pillow stores it as a palette of black and white
    with Image.open(tmp_path / 'm.gif') as image:
        assert image.mode == 'P'
    assert np.array_equal(read_mask(tmp_path / 'm.gif', BINARY, num_classes=2), disc())
    write_image(tmp_path / 'all.gif', np.full((8, 8), 255, np.uint8))
    assert (read_mask(tmp_path / 'all.gif', BINARY, num_classes=2) == 1).all()
    write_image(tmp_path / 'none.gif', np.zeros((8, 8), np.uint8))
    assert (read_mask(tmp_path / 'none.gif', BINARY, num_classes=2) == 0).all()


def test_an_index_and_a_gray_that_mean_different_classes_are_refused(tmp_path: Path) -> None:
    white_first = [(255,) * 3, *[(9, 0, 0)] * 254, (0,) * 3]
    for indices in ([[0, 0]], [[0, 255]]):  # index 0: class 0; its gray, 255: class 1
        path = write_palette_mask(tmp_path / 'w.png', np.array(indices), white_first)
        with pytest.raises(UserError, match=r'w\.png.*indices 0.* and their grays 255'):
            read_mask(path, BINARY, num_classes=2)
    # index 1: class 1; its gray, 255: ignore
    path = write_palette_mask(tmp_path / 'c.gif', disc())
    with pytest.raises(UserError, match=r'c\.gif.*indices 0, 1 and their grays 0, 255'):
        read_mask(path, {0: 0, 1: 1, 255: 255}, num_classes=2)
    # a gray mask of 0, 1 and 255 (ignore) that was saved as GIF: indices 0, 1, 2
    write_image(tmp_path / 'g.gif', np.array([[0, 1, 255]], np.uint8))
    with pytest.raises(UserError, match=r'g\.gif.*indices 0, 1, 2 and their grays 0, 1, 255'):
        read_mask(tmp_path / 'g.gif', num_classes=3)


def test_a_short_palette_under_a_map_of_grays_is_read_by_gray(tmp_path: Path) -> None:
    for indices, labels in (([[0, 1]], [[1, 0]]), ([[0, 0]], [[1, 1]]), ([[1, 1]], [[0, 0]])):
        path = write_palette_mask(tmp_path / 'w.png', np.array(indices), [(255,) * 3, (0,) * 3])
        assert read_mask(path, BINARY, num_classes=2).tolist() == labels


def test_a_gray_palette_for_the_eye_does_not_hide_the_indices(tmp_path: Path) -> None:
    grays = [(0,) * 3, (128,) * 3, (255,) * 3]
    for indices in ([[0, 1, 2]], [[0, 2, 2]], [[2, 2, 2]]):
        path = write_palette_mask(tmp_path / 'm.png', np.array(indices), grays)
        assert read_mask(path, num_classes=3).tolist() == indices
        assert read_mask(path, {0: 0, 1: 1, 2: 2, 255: 255}, num_classes=3).tolist() == indices


def test_palette_indices_with_255_as_ignore(tmp_path: Path) -> None:
    colours = [(i, 255 - i, (7 * i) % 256) for i in range(256)]
    path = write_palette_mask(tmp_path / 'voc.png', np.array([[0, 5, 15, 255]]), colours)
    assert read_mask(path, num_classes=21).tolist() == [[0, 5, 15, 255]]
    with pytest.raises(UserError, match=r'voc\.png: 4 mask values.*15 \(1 px\).*allowed are 0 to 9'):
        read_mask(path, num_classes=10)


@pytest.mark.parametrize(('bits', 'row', 'values'), [(2, 0b00_01_10_01, [0, 1, 2, 1]), (4, 0x12, [1, 2])])
def test_few_bits_of_gray_are_numbers_not_shades(tmp_path: Path, bits: int, row: int, values: list[int]) -> None:
    (tmp_path / 'm.png').write_bytes(png_bytes(len(values), 1, bits, 0, [bytes([row])]))
    assert read_mask(tmp_path / 'm.png', num_classes=3).tolist() == [values]


def test_16_bit_values_stand_as_they_are(tmp_path: Path) -> None:
    (tmp_path / 'm.png').write_bytes(png_bytes(2, 1, 16, 0, [b'\x00\x00\xff\xff']))
    with pytest.raises(UserError, match=r'm\.png: 2 mask values, 0 \(1 px\), 65535 \(1 px\).*\{0: 0, 65535: 1\}'):
        read_mask(tmp_path / 'm.png', num_classes=2)
    assert read_mask(tmp_path / 'm.png', {0: 0, 65535: 1}, num_classes=2).tolist() == [[0, 1]]
    (tmp_path / 'm.tif').write_bytes(tiff_bytes(np.array([[7, 300, 12]], np.uint16)))
    assert read_mask(tmp_path / 'm.tif', {7: 1, 300: 0, 12: 255}, num_classes=2).tolist() == [[1, 0, 255]]
    assert read_mask(tmp_path / 'm.tif', {7: 1, 300: 0}, ignore_index=12, num_classes=2).tolist() == [[1, 0, 255]]


def test_the_files_own_ignore_value_becomes_255(tmp_path: Path) -> None:
    path = write_image(tmp_path / 'm.png', np.array([[0, 10, 11]], np.uint8))
    assert read_mask(path, ignore_index=11, num_classes=11).tolist() == [[0, 10, 255]]
    assert read_mask(path, {0: 0, 10: 1, 11: 255}, num_classes=2).tolist() == [[0, 1, 255]]
    with pytest.raises(UserError, match=r'm\.png: 3 mask values.*11 \(1 px\).*allowed are 0 to 10'):
        read_mask(path, num_classes=11)
    high = write_image(tmp_path / 'high.png', np.array([[0, 255]], np.uint8))
    with pytest.raises(UserError, match=r'255 \(1 px\)'):  # 255 is not what this data set ignores
        read_mask(high, ignore_index=11, num_classes=11)


def test_two_classes_of_0_and_255_must_say_what_255_is(tmp_path: Path) -> None:
    white = write_image(tmp_path / 'm.png', np.full((3, 3), 255, np.uint8))
    for num_classes in (1, 2):
        with pytest.raises(UserError, match='Is 255 the foreground'):
            read_mask(white, num_classes=num_classes)
    said_so = {0: 0, 1: 1, 255: 255}
    assert (read_mask(white, said_so, num_classes=2) == 255).all()
    with_all_three = write_image(tmp_path / 'three.png', np.array([[0, 1, 255]], np.uint8))
    assert read_mask(with_all_three, num_classes=2).tolist() == [[0, 1, 255]]
    assert (read_mask(white, num_classes=3) == 255).all()


def test_reduce_zero_label(tmp_path: Path) -> None:
    path = write_image(tmp_path / 'm.png', np.array([[0, 1, 3, 255]], np.uint8))
    assert read_mask(path, num_classes=3, reduce_zero_label=True).tolist() == [[255, 0, 2, 255]]
    high = write_image(tmp_path / 'high.png', np.array([[4]], np.uint8))
    with pytest.raises(UserError, match=r'4 \(1 px\); allowed are 0 to 3'):
        read_mask(high, num_classes=3, reduce_zero_label=True)


@pytest.mark.parametrize('mode', ['RGB', 'RGBA'])
def test_colours_are_looked_up(tmp_path: Path, mode: str) -> None:
    colours = np.array([[[0, 0, 0], [255, 0, 0], [0, 0, 255]]], np.uint8)
    Image.fromarray(colours).convert(mode).save(tmp_path / 'm.png')
    table = {(0, 0, 0): 0, (255, 0, 0): 1, (0, 0, 255): 255}
    assert read_mask(tmp_path / 'm.png', table, num_classes=2).tolist() == [[0, 1, 255]]
    with pytest.raises(UserError, match=r'm\.png: mask colours that label_map does not know: \(0, 0, 255\) 1 px\.'):
        read_mask(tmp_path / 'm.png', {(0, 0, 0): 0, (255, 0, 0): 1}, num_classes=2)
    with pytest.raises(UserError, match=r'm\.png: a colour mask, 3 colours: \(0, 0, 0\) 1 px, \(0, 0, 255\) 1 px'):
        read_mask(tmp_path / 'm.png', num_classes=3)


def test_a_table_of_colours_reads_palettes_and_grays_by_colour(tmp_path: Path) -> None:
    table = {(0, 0, 0): 0, (255, 0, 0): 1, (255, 255, 255): 255}
    palette = write_palette_mask(tmp_path / 'p.png', np.array([[0, 1, 2]]), [(255, 0, 0), (0, 0, 0), (255,) * 3])
    assert read_mask(palette, table, num_classes=2).tolist() == [[1, 0, 255]]
    gray = write_image(tmp_path / 'g.png', np.array([[0, 255]], np.uint8))
    assert read_mask(gray, table, num_classes=2).tolist() == [[0, 255]]
    with pytest.raises(UserError, match=r'7 \(1 px\)'):
        read_mask(write_image(tmp_path / 'h.png', np.array([[0, 7]], np.uint8)), table, num_classes=2)


def test_gray_stored_as_rgb_counts_as_gray(tmp_path: Path) -> None:
    path = write_image(tmp_path / 'm.png', np.stack([disc() * 255] * 3, axis=-1))
    assert np.array_equal(read_mask(path, BINARY, num_classes=2), disc())


def test_lossy_masks_are_refused_with_their_number_of_values(tmp_path: Path) -> None:
    jpeg = write_image(tmp_path / 'm.jpg', disc(48, 64) * 255, quality=75)
    count = len(np.unique(np.asarray(Image.open(jpeg))))
    assert count > 10
    for num_classes, label_map in ((2, None), (2, BINARY), (150, None)):
        with pytest.raises(UserError, match=rf'm\.jpg: a lossy mask, {count} values'):
            read_mask(jpeg, label_map, num_classes=num_classes)
    webp = write_image(tmp_path / 'm.webp', np.stack([disc(48, 64) * 255] * 3, axis=-1))
    with pytest.raises(UserError, match=r'm\.webp: a lossy mask'):
        read_mask(webp, BINARY, num_classes=2)
    jpeg_in_tiff = write_image(tmp_path / 'm.tif', disc(48, 64) * 255, compression='jpeg')
    with pytest.raises(UserError, match=r'm\.tif: a lossy mask'):
        read_mask(jpeg_in_tiff, BINARY, num_classes=2)
    smooth = Image.fromarray(disc(48, 64) * 255).resize((32, 24), Image.Resampling.BILINEAR)
    smooth.save(tmp_path / 'small.png')
    count = len(np.unique(np.asarray(smooth)))
    with pytest.raises(UserError, match=rf'small\.png: {count} mask values.*resized smoothly'):
        read_mask(tmp_path / 'small.png', BINARY, num_classes=2)


def test_or_cut_in_two_where_the_config_asks(tmp_path: Path) -> None:
    jpeg = write_image(tmp_path / 'm.jpg', disc(48, 64) * 255, quality=75)
    cut = read_mask(jpeg, num_classes=2, mask_threshold=128)
    assert np.array_equal(cut, np.asarray(Image.open(jpeg)) >= 128)
    assert (cut != disc(48, 64)).mean() < 0.01
    palette = write_palette_mask(tmp_path / 'p.gif', disc())
    assert np.array_equal(read_mask(palette, num_classes=2, mask_threshold=128), disc())
    ones = write_image(tmp_path / 'ones.png', disc())
    with pytest.raises(UserError, match=r'ones\.png.*all of it background'):
        read_mask(ones, num_classes=2, mask_threshold=128)


def test_what_is_no_mask_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'f.tif').write_bytes(tiff_bytes(np.zeros((2, 2), np.float32)))
    (tmp_path / 'five.tif').write_bytes(tiff_bytes(np.zeros((2, 2, 5), np.uint8)))
    (tmp_path / 'deep.png').write_bytes(png_bytes(1, 1, 16, 2, [bytes(6)]))
    for name in ('f.tif', 'five.tif', 'deep.png'):
        with pytest.raises(UserError, match=rf'{name}.*is no mask'):
            read_mask(tmp_path / name, num_classes=2)


@pytest.mark.parametrize(
    ('options', 'what'),
    [
        ({'num_classes': 256}, '256 classes'),
        ({'num_classes': 2, 'label_map': {}}, 'its keys must be'),
        ({'num_classes': 2, 'label_map': {'0': 0}}, 'its keys must be'),
        ({'num_classes': 2, 'label_map': {0: 0, (255, 0, 0): 1}}, 'its keys must be'),
        ({'num_classes': 2, 'label_map': {(0, 0, 256): 0}}, 'its keys must be'),
        ({'num_classes': 2, 'label_map': {0: 0, 255: 2}}, 'given class 2; classes are 0 to 1'),
        ({'num_classes': 2, 'label_map': {0: 'background'}}, "given class 'background'"),
        ({'num_classes': 2, 'reduce_zero_label': True}, 'reduce_zero_label=True ignores every pixel'),
        ({'num_classes': 1, 'reduce_zero_label': True}, 'reduce_zero_label=True ignores every pixel'),
        ({'num_classes': 5, 'reduce_zero_label': True, 'label_map': {0: 0}}, 'both given'),
        ({'num_classes': 3, 'mask_threshold': 128}, 'makes two classes'),
        ({'num_classes': 2, 'mask_threshold': 128, 'label_map': {0: 0}}, 'makes two classes'),
        ({'num_classes': 2, 'mask_threshold': 0}, 'gray of 1 to 255'),
        ({'num_classes': 12, 'ignore_index': 11}, 'is also class 11'),
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(options: dict, what: str) -> None:
    with pytest.raises(UserError, match=what):
        LabelRule(**options)


def test_without_a_class_count_every_value_passes_that_a_label_can_hold(tmp_path: Path) -> None:
    path = write_image(tmp_path / 'm.png', np.array([[0, 77, 254, 255]], np.uint8))
    labels = read_mask(path)
    assert labels.tolist() == [[0, 77, 254, 255]]
    assert labels.flags.writeable
