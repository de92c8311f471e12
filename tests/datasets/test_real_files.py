"""Real files: every set reads, and every file that breaks readers does what it should. Skipped where they are not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from seg.datasets.carvana import CarvanaDataset
from seg.datasets.io import image_size, read_image, read_mask
from seg.datasets.loading import LoadAnnotations, LoadImageFromFile
from seg.datasets.pairs import find_pairs
from seg.datasets.segmentation import SegmentationDataset
from seg.errors import UserError
from tests.datasets.made import DATA

NASTY = DATA / 'nasty'
BINARY = {0: 0, 255: 1}
pytestmark = pytest.mark.skipif(not NASTY.is_dir(), reason='the real files are not on this machine')

GOOD_IMAGES = {  # as shown: height, width
    'derived_авто фото.v1.2 (копия).jpg': (1280, 1918),
    'exif_landscape_6.jpg': (450, 600),
    'mmcv_color_exif.jpg': (400, 300),
    'mmcv_gray_alpha.png': (400, 500),
    'mmcv_grayscale.jpg': (300, 400),
    'mmcv_palette.gif': (300, 400),
    'pillow_12bit.cropped.tif': (100, 100),
    'pillow_16bit.cropped.tif': (64, 64),
    'pillow_1_trns.png': (64, 64),
    'pillow_chi.gif': (240, 320),
    'pillow_hopper.webp': (128, 128),
    'pillow_hopper_orientation_6.jpg': (128, 128),
    'pillow_i_trns.png': (64, 64),
    'pillow_pil123p.png': (150, 162),
    'pillow_pil_sample_cmyk.jpg': (100, 100),
    'pillow_tiff_16bit_RGB.tiff': (40, 100),
    'sizemismatch_5fb012d30fd9_02.jpg': (1280, 1918),
    'tgs_IMG_003c477d7c.png': (101, 101),
    'voc_2011_000003.jpg': (338, 500),
}
BAD_IMAGES = {
    'derived_text_not_image.jpg': 'not an image',
    'derived_truncated_0cdf5b5d0ce1_01.jpg': 'truncated',
    'derived_zero_bytes.jpg': r'empty \(0 bytes\)',
    'pillow_broken.png': 'damaged PNG',
    'pillow_decompression_bomb.gif': 'before decoding',
    'pillow_truncated_image.png': 'truncated',
    'pillow_zero_width.gif': 'width or height is 0',
}


@pytest.mark.parametrize('name', GOOD_IMAGES)
def test_an_odd_image_is_read_in_rgb(name: str, said: list[str]) -> None:
    image = read_image(NASTY / name)
    assert image.shape == (*GOOD_IMAGES[name], 3)
    assert image.dtype == np.uint8
    assert image_size(NASTY / name) == GOOD_IMAGES[name]
    assert read_image(NASTY / name, channels=1).shape == (*GOOD_IMAGES[name], 1)


@pytest.mark.parametrize('name', BAD_IMAGES)
def test_a_bad_file_is_refused_by_name(name: str) -> None:
    for read in (read_image, lambda path: read_mask(path, num_classes=2)):
        with pytest.raises(UserError, match=BAD_IMAGES[name]) as info:
            read(NASTY / name)
        assert name in str(info.value)


@pytest.mark.parametrize(
    ('name', 'words'),
    [
        ('pillow_12bit.cropped.tif', 'value_range=(0, 30)'),
        ('pillow_16bit.cropped.tif', 'value_range=(291, 694)'),
        ('pillow_i_trns.png', 'value_range=(0, 255)'),
        ('pillow_chi.gif', 'several pictures'),
    ],
)
def test_what_a_user_should_know_is_said(name: str, words: str, said: list[str]) -> None:
    read_image(NASTY / name)
    read_image(NASTY / name)
    assert len(said) == 1
    assert words in said[0]
    assert name in said[0]


def test_16_bits_are_not_clipped_to_white() -> None:
    read = read_image(NASTY / 'pillow_tiff_16bit_RGB.tiff')
    assert np.array_equal(read, np.asarray(Image.open(NASTY / 'pillow_tiff_16bit_RGB.tiff')))  # Pillow: high bytes
    spread = read_image(NASTY / 'pillow_16bit.cropped.tif', channels=1, value_range=(291, 694))
    assert (spread.min(), spread.max()) == (0, 255)
    assert len(np.unique(spread)) > 100


@pytest.mark.parametrize(
    ('name', 'options', 'values'),
    [
        ('derived_авто фото.v1.2 (копия)_mask.gif', {'num_classes': 2}, [0, 1]),
        ('voc_MASK_P_255_2011_000003.png', {'num_classes': 21}, [0, 5, 15, 255]),
        ('tgs_MASK_I-16_003c477d7c.png', {'num_classes': 2, 'label_map': {0: 0, 65535: 1}}, [0, 1]),
        ('derived_mask_as_jpeg_q75_0cdf5b5d0ce1_01.jpg', {'num_classes': 2, 'mask_threshold': 128}, [0, 1]),
        ('derived_mask_bilinear_halfsize_0cdf5b5d0ce1_01.png', {'num_classes': 2, 'mask_threshold': 128}, [0, 1]),
        ('pillow_1_trns.png', {'num_classes': 2}, [0, 1]),
    ],
)
def test_a_mask_is_read(name: str, options: dict[str, Any], values: list[int]) -> None:
    assert np.unique(read_mask(NASTY / name, **options)).tolist() == values


@pytest.mark.parametrize(
    ('name', 'what'),
    [
        ('tgs_MASK_I-16_003c477d7c.png', r'0 \(9865 px\), 65535 \(336 px\).*label_map=\{0: 0, 65535: 1\}'),
        ('derived_mask_as_jpeg_q75_0cdf5b5d0ce1_01.jpg', 'lossy mask, 74 values'),
        ('derived_mask_bilinear_halfsize_0cdf5b5d0ce1_01.png', '92 mask values.*resized smoothly'),
        ('voc_MASK_P_255_2011_000003.png', r'15 \(32900 px\)'),
        ('pillow_chi.gif', 'several pictures'),
    ],
)
def test_a_mask_is_refused_with_its_values(name: str, what: str) -> None:
    with pytest.raises(UserError, match=what) as info:
        read_mask(NASTY / name, num_classes=2)
    assert name in str(info.value)


def test_thresholded_lossy_masks_are_the_original_to_a_fringe() -> None:
    original = read_mask(DATA / 'carvana_full/train_masks/0cdf5b5d0ce1_01_mask.gif', num_classes=2)
    jpeg = read_mask(NASTY / 'derived_mask_as_jpeg_q75_0cdf5b5d0ce1_01.jpg', mask_threshold=128)
    assert (original != jpeg).mean() < 1e-3


def test_a_mask_of_another_size_is_refused_with_its_image() -> None:
    image, mask = NASTY / 'sizemismatch_5fb012d30fd9_02.jpg', NASTY / 'sizemismatch_5fb012d30fd9_02.jpg.png'
    results = LoadImageFromFile()({'img_path': str(image), 'seg_map_path': str(mask), 'num_classes': 2})
    with pytest.raises(UserError, match=r'jpg\.png: the mask is 540x360, but its image .*jpg is 1918x1280'):
        LoadAnnotations()(results)


def test_exif_photos_stand_as_shown() -> None:
    for name in ('exif_landscape_6.jpg', 'mmcv_color_exif.jpg'):
        stored = np.asarray(Image.open(NASTY / name))
        assert np.array_equal(read_image(NASTY / name), np.rot90(stored, -1))
        assert np.array_equal(read_image(NASTY / name, apply_exif=False), stored)


def test_the_pair_with_the_difficult_name_is_found(tmp_path: Path) -> None:
    for name in ('derived_авто фото.v1.2 (копия).jpg', 'derived_авто фото.v1.2 (копия)_mask.gif'):
        (tmp_path / name).symlink_to(NASTY / name)
    pairs = find_pairs(tmp_path, tmp_path, '.jpg', '_mask.gif')
    assert [pair.name for pair in pairs] == ['derived_авто фото.v1.2 (копия)']


SETS = {  # data_prefix, number of pairs, options
    'carvana_full': (('train', 'train_masks'), 16, {'img_suffix': '.jpg', 'seg_map_suffix': '_mask.gif'}),
    'camvid': (('val', 'valannot'), 26, {'ignore_index': 11}),
    'drive': (
        ('images', '1st_manual'),
        6,
        {'img_suffix': '_training.tif', 'seg_map_suffix': '_manual1.gif', 'label_map': BINARY},
    ),
    'em': (('image', 'label'), 8, {'label_map': BINARY}),
}


@pytest.mark.parametrize('name', SETS)
def test_a_real_set_is_four_lines_of_config(name: str) -> None:
    (images, masks), count, options = SETS[name]
    classes = [f'class {number}' for number in range(11 if name == 'camvid' else 2)]
    data = SegmentationDataset(
        data_root=str(DATA / name),
        data_prefix={'img_path': images, 'seg_map_path': masks},
        metainfo={'classes': classes},
        pipeline=[{'type': 'LoadImageFromFile'}, {'type': 'LoadAnnotations'}],
        **options,
    )
    assert len(data) == count
    found: set[int] = set()
    for sample in (data[index] for index in range(0, count, 3)):
        assert sample['img'].shape[:2] == sample['gt_seg_map'].shape == sample['ori_shape']
        found |= set(np.unique(sample['gt_seg_map']).tolist())
    assert found == (set(range(11)) | {255} if name == 'camvid' else {0, 1})


def test_carvanas_small_copy_splits_by_car() -> None:
    whole = CarvanaDataset(data_root=str(DATA / 'carvana'))
    train, val = (
        CarvanaDataset(data_root=str(DATA / 'carvana'), split={'part': part, 'val_percent': 20}).split_record()['names']
        for part in ('train', 'val')
    )
    assert (len(whole), len(train), len(val)) == (320, 256, 64)  # 20 cars of 16 views: 16 and 4 cars
    assert not {name[:12] for name in train} & {name[:12] for name in val}


def test_a_large_photo_is_decoded_at_half_scale_without_a_shift() -> None:
    path = DATA / 'carvana_full/train/0cdf5b5d0ce1_01.jpg'
    half, whole = read_image(path, decode_for=(959, 640)), read_image(path)
    assert half.shape == (640, 959, 3)
    means = whole.reshape(640, 2, 959, 2, 3).mean(axis=(1, 3))
    one_pixel_on = whole[:, 1:-1].reshape(640, 2, 958, 2, 3).mean(axis=(1, 3))  # half a pixel of the small picture
    left, right = (np.abs(small - one_pixel_on).mean() for small in (half[:, :-1], half[:, 1:]))
    assert np.abs(half - means).mean() < 0.3  # gray levels; 0.12 to 0.14 on three photos
    assert min(left, right) > 0.6
    assert abs(left - right) < 0.02 * left  # as far from one side as from the other
