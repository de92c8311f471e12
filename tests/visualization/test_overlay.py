import numpy as np
import pytest
from PIL import Image

from seg.visualization.overlay import (
    contact_sheet,
    fit_size,
    make_palette,
    overlay,
    palette_of,
    resize_label,
    save_png,
    to_rgb,
    triple,
    with_caption,
)

PALETTE = np.array([(0, 0, 0), (200, 100, 0)], dtype=np.uint8)


def _gray(height, width, value=100):
    return np.full((height, width, 3), value, dtype=np.uint8)


def test_a_class_is_painted_and_the_black_one_is_left():
    label = np.zeros((6, 6), dtype=np.uint8)
    label[:, 3:] = 1
    picture = overlay(_gray(6, 6), label, PALETTE)
    assert picture[2, 0].tolist() == [100, 100, 100]
    assert picture[2, 4].tolist() == [150, 100, 50]  # half of (100, 100, 100), half of (200, 100, 0)
    assert picture[2, 2].tolist() == [255, 255, 255]  # the border, on the black class's side


def test_a_label_of_another_size_is_stretched_to_the_image():
    picture = overlay(_gray(8, 8), np.array([[0, 1]], dtype=np.uint8), PALETTE)
    assert picture.shape == (8, 8, 3)
    assert (picture[:, 5:] == [150, 100, 50]).all() and (picture[:, :3] == 100).all()


def test_ignored_pixels_are_hatched_not_hidden():
    picture = overlay(_gray(8, 8), np.full((8, 8), 255, dtype=np.uint8), PALETTE)
    assert (picture[0, :2] == 255).all() and (picture[0, 2:8] == 100).all()


def test_labels_shrink_by_exact_nearest():
    # The middles of 2 pixels lie at 5/4 and 15/4 of 5: pixels 1 and 3. Plain nearest takes 0 and 2.
    assert resize_label(np.array([[0, 1, 2, 3, 4]], dtype=np.uint8), (1, 2)).tolist() == [[1, 3]]


def test_a_triple_holds_image_truth_and_prediction():
    truth, prediction = np.zeros((20, 90), dtype=np.uint8), np.ones((20, 90), dtype=np.uint8)
    picture = triple(_gray(20, 90), truth, prediction, PALETTE)
    height = picture.shape[0]
    assert picture.shape == (20 + 18, 3 * 90 + 2 * 4, 3)  # a line of 18 pixels of text, two gaps of 4
    for panel, colour in enumerate([(100, 100, 100), (100, 100, 100), (150, 100, 50)]):
        assert picture[height - 10, panel * 94 + 45].tolist() == list(colour)
    assert triple(_gray(20, 90), None, prediction, PALETTE).shape == (38, 2 * 90 + 4, 3)
    assert triple(_gray(20, 90), truth, prediction, PALETTE, 'Dice 0.5').shape == (38 + 18, 278, 3)


def test_a_contact_sheet_is_about_square_and_keeps_sizes():
    sheet = contact_sheet([_gray(10, 20, value) for value in (1, 2, 3)] + [_gray(5, 7, 4)])
    assert sheet.shape == (2 * 14 - 4, 2 * 24 - 4, 3)
    assert [sheet[y, x, 0] for y, x in [(0, 0), (0, 24), (14, 0), (14, 24)]] == [1, 2, 3, 4]
    assert (sheet[14 + 5 :, 24:] == 255).all() and (sheet[:, 24 + 7 :][14:] == 255).all()
    assert contact_sheet([_gray(3, 3)] * 3, columns=3).shape == (3, 17, 3)


@pytest.mark.parametrize('text', ['машина.jpg', 'Ωμέγα', 'car'])
def test_captions_in_any_european_script_are_drawn(text):
    lines = [with_caption(_gray(2, 120), shown)[:18] for shown in (text, '\u25a1' * len(text))]
    assert (lines[0] < 128).any() and not np.array_equal(*lines)


def test_a_long_caption_is_cut():
    assert with_caption(_gray(2, 30), 'x' * 500).shape == (20, 30, 3)


@pytest.mark.parametrize(
    ('image', 'expected'),
    [
        (np.array([[7]], dtype=np.uint8), [7, 7, 7]),
        (np.array([[[7, 9]]], dtype=np.uint8), [7, 7, 7]),
        (np.array([[[1, 2, 3, 4, 5]]], dtype=np.uint8), [1, 2, 3]),
    ],
)
def test_any_number_of_channels_is_shown_as_three(image, expected):
    assert to_rgb(image)[0, 0].tolist() == expected


def test_what_is_not_bytes_is_stretched():
    assert to_rgb(np.array([[[0.0], [0.5], [1.0]]]))[0, :, 0].tolist() == [0, 128, 255]
    assert to_rgb(np.full((1, 1), 3.0)).tolist() == [[[0, 0, 0]]]


def test_a_picture_is_only_ever_made_smaller():
    assert fit_size((1280, 1918), 384) == (256, 384)  # 1280 * 384 / 1918 = 256.3
    assert fit_size((10, 20), 384) == (10, 20)
    assert fit_size((1, 4000), 400) == (1, 400)


def test_a_data_set_without_a_palette_gets_distinct_colours():
    assert palette_of(dict(palette=[[1, 2, 3], [4, 5, 6]])).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert len(palette_of(None)) == 2 and len(palette_of(dict(classes=('car',)))) == 2
    colours = make_palette(30)
    assert colours[0].tolist() == [0, 0, 0] and len({tuple(colour) for colour in colours.tolist()}) == 30


def _read(path):
    with Image.open(path) as image:
        return np.asarray(image)


def test_a_picture_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / 'vis' / 'имя.png'
    save_png(path, _gray(3, 4))
    assert np.array_equal(_read(path), _gray(3, 4))

    def fail(self, file, format):
        file.write_bytes(b'half')
        raise OSError('disk full')

    monkeypatch.setattr(Image.Image, 'save', fail)
    with pytest.raises(OSError, match='disk full'):
        save_png(path, _gray(9, 9))
    assert np.array_equal(_read(path), _gray(3, 4))
