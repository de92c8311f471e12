"""TIFFs of any number of bands."""

from pathlib import Path

import numpy as np
import pytest

from seg.datasets.io import image_size, read_image
from seg.datasets.opening import open_image
from seg.datasets.tiff import read_bands
from seg.errors import UserError
from tests.datasets.made import tiff_bytes

LAYOUTS = [
    {},
    {'planar': True},
    {'rows_per_strip': 3},
    {'rows_per_strip': 3, 'planar': True, 'deflate': True},
    {'deflate': True, 'predictor': 2, 'rows_per_strip': 4},
    {'tile': 16, 'deflate': True, 'predictor': 2},
    {'tile': 16, 'planar': True},
    {'order': '>', 'deflate': True},
    {'order': '>', 'planar': True, 'rows_per_strip': 5},
]


def bands(count: int, dtype: str) -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 100 if dtype == 'u1' else 60000, (10, 21, count))
    return values.astype(dtype)


@pytest.mark.parametrize('count', [1, 3, 5])
@pytest.mark.parametrize('dtype', ['u1', 'u2', 'f4', 'f8'])
@pytest.mark.parametrize('layout', LAYOUTS, ids=str)
def test_every_layout_gives_the_bands_back(tmp_path: Path, layout: dict, dtype: str, count: int) -> None:
    if dtype[0] == 'f':
        layout = {**layout, 'predictor': 1}
    pixels = bands(count, dtype)
    (tmp_path / 'a.tif').write_bytes(tiff_bytes(pixels, **layout))
    decoded = read_bands(open_image(tmp_path / 'a.tif'))
    assert decoded.dtype == pixels.dtype
    assert np.array_equal(decoded, pixels)


def test_all_bands_or_a_refusal_that_counts_them(tmp_path: Path) -> None:
    pixels = bands(5, 'u1')
    (tmp_path / 'five.tif').write_bytes(tiff_bytes(pixels))
    assert np.array_equal(read_image(tmp_path / 'five.tif', channels=5), pixels)
    with pytest.raises(UserError, match=r'five\.tif.*has 5 channels, 3 are wanted'):
        read_image(tmp_path / 'five.tif')
    two = bands(2, 'u1')
    (tmp_path / 'two.tif').write_bytes(tiff_bytes(two))
    assert np.array_equal(read_image(tmp_path / 'two.tif', channels=2), two)
    with pytest.raises(UserError, match='has 2 channels'):  # not alpha: not to be dropped
        read_image(tmp_path / 'two.tif')


def test_rgb_and_infrared_is_rgb_or_all_four(tmp_path: Path) -> None:
    pixels = bands(4, 'u1')
    (tmp_path / 'a.tif').write_bytes(tiff_bytes(pixels))
    assert np.array_equal(read_image(tmp_path / 'a.tif'), pixels[..., :3])
    assert np.array_equal(read_image(tmp_path / 'a.tif', channels=4), pixels)


def test_alpha_in_a_tiff_is_dropped(tmp_path: Path) -> None:
    for planar in (False, True):
        pixels = bands(4, 'u1')
        (tmp_path / 'a.tif').write_bytes(tiff_bytes(pixels, planar=planar, t338=2))
        assert np.array_equal(read_image(tmp_path / 'a.tif'), pixels[..., :3])


def test_bands_turn_by_the_orientation_tag(tmp_path: Path) -> None:
    pixels = bands(5, 'u1')
    (tmp_path / 'a.tif').write_bytes(tiff_bytes(pixels, t274=6))
    assert np.array_equal(read_image(tmp_path / 'a.tif', channels=5), np.rot90(pixels, -1))
    assert np.array_equal(read_image(tmp_path / 'a.tif', channels=5, apply_exif=False), pixels)
    assert image_size(tmp_path / 'a.tif') == (21, 10)


@pytest.mark.filterwarnings('ignore:Truncated File')
def test_a_truncated_file_of_bands_is_refused(tmp_path: Path) -> None:
    whole = tiff_bytes(bands(5, 'u2'), rows_per_strip=2)
    (tmp_path / 'a.tif').write_bytes(whole[: len(whole) - 40])
    with pytest.raises(UserError, match=r'a\.tif.*truncated or damaged'):
        read_image(tmp_path / 'a.tif', channels=5)


def test_unknown_compression_of_bands_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'a.tif').write_bytes(tiff_bytes(bands(5, 'u1'), t259=34887))
    with pytest.raises(UserError, match=r'a\.tif.*compression 34887'):
        read_image(tmp_path / 'a.tif', channels=5)
