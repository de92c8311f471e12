"""The transforms that read files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seg.datasets.loading import LoadAnnotations, LoadImageFromFile
from seg.errors import UserError
from seg.registry import TRANSFORMS
from tests.datasets.made import disc, exif, photo, write_image, write_palette_mask


def load(img: Path, mask: Path | None, num_classes: int = 2, **image_options: Any) -> dict[str, Any]:
    results = {'img_path': str(img), 'seg_map_path': None if mask is None else str(mask), 'num_classes': num_classes}
    return LoadAnnotations()(LoadImageFromFile(**image_options)(results))


def test_the_keys_that_later_transforms_need(tmp_path: Path) -> None:
    results = load(write_image(tmp_path / 'a.jpg', photo(12, 16)), write_palette_mask(tmp_path / 'm.gif', disc(12, 16)))
    assert results['img'].shape == (12, 16, 3)
    assert results['img_shape'] == results['ori_shape'] == (12, 16)
    assert np.array_equal(results['gt_seg_map'], disc(12, 16))
    assert results['seg_fields'] == ['gt_seg_map']


def test_ours_win_over_mmcvs_in_our_scope() -> None:
    assert isinstance(TRANSFORMS.build({'type': 'LoadImageFromFile', 'channels': 1}), LoadImageFromFile)
    assert isinstance(TRANSFORMS.build({'type': 'LoadAnnotations'}), LoadAnnotations)


def test_without_a_mask_nothing_is_set(tmp_path: Path) -> None:
    results = load(write_image(tmp_path / 'a.jpg', photo()), None)
    assert 'gt_seg_map' not in results
    assert 'seg_fields' not in results


def test_scaled_decode_keeps_the_files_size_as_ori_shape(tmp_path: Path) -> None:
    image = write_image(tmp_path / 'a.jpg', photo(64, 96))
    results = load(image, write_image(tmp_path / 'm.png', disc(64, 96)), decode_for=(48, 32))
    assert results['img'].shape == (32, 48, 3)
    assert results['img_shape'] == (32, 48)
    assert results['ori_shape'] == (64, 96)
    assert results['gt_seg_map'].shape == (64, 96)


def test_the_mask_is_held_against_the_file_not_the_resized_image(tmp_path: Path) -> None:
    image, mask = write_image(tmp_path / 'a.png', photo(12, 16)), write_image(tmp_path / 'm.png', disc(12, 16))
    results = LoadImageFromFile()({'img_path': str(image), 'seg_map_path': str(mask), 'num_classes': 2})
    results.update(img=results['img'][:6, :8], img_shape=(6, 8))
    assert LoadAnnotations()(results)['gt_seg_map'].shape == (12, 16)


def test_a_mask_of_another_size_is_refused_with_both_files_and_sizes(tmp_path: Path) -> None:
    image, mask = write_image(tmp_path / 'a.png', photo(48, 64)), write_image(tmp_path / 'm.png', disc(64, 48))
    with pytest.raises(UserError, match=r'm\.png: the mask is 48x64, but its image .*a\.png is 64x48') as info:
        load(image, mask)
    assert 'EXIF' not in str(info.value)


def test_a_mask_of_the_photo_as_stored_is_refused_and_the_way_out_named(tmp_path: Path) -> None:
    image = write_image(tmp_path / 'a.jpg', photo(32, 48), exif=exif(6))  # stored 48 wide, shown 32 wide
    as_stored, as_shown = (write_image(tmp_path / f'{size}.png', disc(*size)) for size in ((32, 48), (48, 32)))
    assert load(image, as_shown)['img'].shape == (48, 32, 3)
    with pytest.raises(UserError, match=r'mask is 48x32, but its image .* is 32x48.*orientation 6.*apply_exif=False'):
        load(image, as_stored)
    results = load(image, as_stored, apply_exif=False)
    assert results['img'].shape == (32, 48, 3)
    assert np.array_equal(results['gt_seg_map'], disc(32, 48))


def test_a_mask_with_its_own_orientation_turns_with_its_photo(tmp_path: Path) -> None:
    image = write_image(tmp_path / 'a.jpg', photo(32, 48), exif=exif(6))
    mask = write_image(tmp_path / 'm.png', disc(32, 48), exif=exif(6))
    assert np.array_equal(load(image, mask)['gt_seg_map'], np.rot90(disc(32, 48), -1))


def test_where_sizes_cannot_tell_a_word_is_said(tmp_path: Path, said: list[str]) -> None:
    mask = write_image(tmp_path / 'm.png', disc(16, 16))
    load(write_image(tmp_path / 'a.jpg', photo(16, 16), exif=exif(6)), mask)
    load(write_image(tmp_path / 'b.jpg', photo(16, 16), exif=exif(3)), mask)
    load(write_image(tmp_path / 'c.jpg', photo(16, 16), exif=exif(1)), mask)
    assert [('a.jpg' in message, 'b.jpg' in message) for message in said] == [(True, False), (False, True)]


@pytest.mark.parametrize(
    ('options', 'what'),
    [
        ({'channels': 0}, 'channels=0'),
        ({'decode_for': 640}, 'w, h'),
        ({'decode_for': (1, 2, 3)}, 'w, h'),
        ({'value_range': (5, 5)}, 'low must be under high'),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict, what: str) -> None:
    with pytest.raises(UserError, match=what):
        LoadImageFromFile(**options)
