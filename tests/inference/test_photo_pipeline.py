"""A photograph through the test pipeline: sizes, orientation, what prediction cannot undo."""

from pathlib import Path

import numpy as np
import pytest

from seg.errors import UserError
from seg.inference.photo_pipeline import PhotoPipeline
from tests.inference.bright import LABELS, LOAD, PACK, right_half, save_photo


def photo(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_masks_are_not_looked_for(tmp_path: Path) -> None:
    path = save_photo(tmp_path / 'a.png', right_half(3, 4))
    sample = PhotoPipeline([LOAD, LABELS, PACK])(path)
    assert (tuple(sample.inputs.shape), sample.size_px, sample.content_px) == ((3, 3, 4), (3, 4), (3, 4))
    assert sample.metas['img_path'] == str(path)


def test_an_array_is_what_a_file_decodes_to(tmp_path: Path) -> None:
    path = save_photo(tmp_path / 'a.png', right_half(20, 30))
    pipeline = PhotoPipeline([LOAD, dict(type='Resize', scale=(17, 9)), PACK])
    from_file, from_array = pipeline(path), pipeline(pipeline.read(path))
    assert from_file.inputs.equal(from_array.inputs)
    assert from_file.size_px == from_array.size_px == (20, 30)


def test_padding_is_told_apart() -> None:
    resize, pad = dict(type='Resize', scale=(10, 6)), dict(type='Pad', size_divisor=8)
    sample = PhotoPipeline([LOAD, resize, pad, PACK])(photo(12, 20))
    assert (tuple(sample.inputs.shape), sample.size_px, sample.content_px) == ((3, 8, 16), (12, 20), (6, 10))
    twice = PhotoPipeline([LOAD, pad, dict(type='Pad', size=(40, 40)), PACK])(photo(12, 20))
    assert (tuple(twice.inputs.shape), twice.content_px) == ((3, 40, 40), (12, 20))


@pytest.mark.parametrize(
    'steps',
    [
        [dict(type='RandomCrop', crop_size=(4, 4))],
        [dict(type='RandomFlip', prob=1.0)],
        [dict(type='Pad', size=(40, 40)), dict(type='Resize', scale=(20, 20))],
    ],
)
def test_what_cannot_be_undone_is_refused(steps: list[dict]) -> None:
    with pytest.raises(UserError, match=f'{steps[-1]["type"]} moves the picture'):
        PhotoPipeline([LOAD, *steps, PACK])(photo(12, 20))


def test_a_pipeline_without_an_end_is_refused() -> None:
    with pytest.raises(UserError, match='does not end in PackSegInputs'):
        PhotoPipeline([LOAD])(photo(2, 2))


@pytest.mark.parametrize(
    'array',
    [
        np.zeros((4, 5), np.uint8),
        np.zeros((4, 5, 4), np.uint8),
        np.zeros((4, 5, 3), float),
        np.zeros((0, 5, 3), np.uint8),
    ],
)
def test_arrays_that_are_no_photograph(array: np.ndarray) -> None:
    with pytest.raises(UserError, match=r'expected uint8, height x width x 3 \(RGB\)'):
        PhotoPipeline([LOAD, PACK])(array)


def test_channels_are_the_loaders() -> None:
    gray = PhotoPipeline([dict(type='LoadImageFromFile', channels=1), PACK])
    assert gray(np.zeros((4, 5, 1), np.uint8)).inputs.shape == (1, 4, 5)
    with pytest.raises(UserError, match='height x width x 1'):
        gray(np.zeros((4, 5, 3), np.uint8))


def test_a_reduced_jpeg_has_its_full_size_in_the_overlay(tmp_path: Path) -> None:
    path = save_photo(tmp_path / 'a.jpg', right_half(64, 96))
    reduced = dict(type='LoadImageFromFile', decode_for=(24, 16))
    pipeline = PhotoPipeline([reduced, dict(type='Resize', scale=(24, 16)), PACK])
    assert pipeline(path).size_px == (64, 96)
    assert pipeline.read(path).shape == (64, 96, 3)
