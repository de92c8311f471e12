"""Prediction files, read back as others read them."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from seg.datasets.io import read_mask
from seg.inference.masks import write_label_map, write_overlay, write_probs
from seg.visualization.overlay import overlay

PALETTE = [[0, 0, 0], [220, 20, 60], [0, 0, 142]]


def test_label_map_is_indices_with_colours(tmp_path: Path) -> None:
    labels = np.array([[0, 1, 2], [2, 255, 0]], dtype=np.uint8)
    path = tmp_path / 'new' / 'авто.v1.png'
    write_label_map(labels, path, PALETTE)
    with Image.open(path) as image:
        assert image.mode == 'P'
        assert np.asarray(image).tolist() == labels.tolist()
        shown = np.asarray(image.convert('RGB'))
    assert shown.tolist() == [[[0, 0, 0], [220, 20, 60], [0, 0, 142]], [[0, 0, 142], [255] * 3, [0, 0, 0]]]
    assert read_mask(path, num_classes=3).tolist() == labels.tolist()  # our own reader agrees
    assert [file.name for file in path.parent.iterdir()] == ['авто.v1.png']


@pytest.mark.parametrize('palette', [None, [], np.zeros((0, 3), np.uint8)])
def test_label_map_without_a_palette_has_made_colours(tmp_path: Path, palette: object) -> None:
    labels = np.array([[0, 1, 2, 254]], dtype=np.uint8)
    write_label_map(labels, tmp_path / 'a.png', palette)
    with Image.open(tmp_path / 'a.png') as image:
        assert np.asarray(image).tolist() == labels.tolist()
        colours = {tuple(pixel) for pixel in np.asarray(image.convert('RGB'))[0]}
    assert len(colours) == 4


def test_views_and_other_integers_are_written_alike(tmp_path: Path) -> None:
    labels = np.arange(12, dtype=np.int64).reshape(3, 4).T
    write_label_map(labels, tmp_path / 'a.png', PALETTE)
    with Image.open(tmp_path / 'a.png') as image:
        assert np.asarray(image).tolist() == labels.tolist()


def test_overlay_in_bands_is_the_overlay(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    picture = generator.integers(0, 256, (1100, 7, 3), dtype=np.uint8)  # more than two bands of 512 rows
    labels = generator.choice([0, 1, 2, 255], (1100, 7)).astype(np.uint8)
    labels[511:513] = [[1], [2]]  # an edge where two bands meet
    write_overlay(picture, labels, tmp_path / 'a.png', PALETTE)
    with Image.open(tmp_path / 'a.png') as image:
        assert np.array_equal(np.asarray(image), overlay(picture, labels, np.array(PALETTE)))


def test_overlay_of_a_file(tmp_path: Path) -> None:
    Image.new('L', (3, 2), 100).save(tmp_path / 'gray.png')
    write_overlay(tmp_path / 'gray.png', np.ones((2, 3), np.uint8), tmp_path / 'a.png', PALETTE)
    with Image.open(tmp_path / 'a.png') as image:
        assert (image.mode, image.size) == ('RGB', (3, 2))
        # half of the photograph's gray 100, half of (220, 20, 60)
        assert image.getpixel((1, 1)) == (160, 60, 80)


def test_probabilities_are_16_bit(tmp_path: Path) -> None:
    write_probs(np.array([[0, 0.5, 1], [0.25, 1e-6, 1 - 1e-6]], dtype=np.float32), tmp_path / 'p.png')
    # 0.5 * 65535 = 32767.5, to even; 0.25 * 65535 = 16383.75; 1e-6 * 65535 = 0.066
    expected = [[0, 32768, 65535], [16384, 0, 65535]]
    with Image.open(tmp_path / 'p.png') as image:
        assert np.asarray(image).tolist() == expected
    read = cv2.imread(str(tmp_path / 'p.png'), cv2.IMREAD_UNCHANGED)
    assert read.dtype == np.uint16
    assert read.tolist() == expected


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / 'a.png'
    path.write_bytes(b'old')

    def full_disk(image: Image.Image, file: object, format: str) -> None:
        file.write(b'half')
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(Image.Image, 'save', full_disk)
    with pytest.raises(OSError, match='No space'):
        write_label_map(np.zeros((2, 2), np.uint8), path, PALETTE)
    assert [file.name for file in tmp_path.iterdir()] == ['a.png']
    assert path.read_bytes() == b'old'
