import warnings

import numpy as np
import pytest
import torch

from seg.datasets.transforms.pack import PackSegInputs, to_planes
from seg.errors import UserError


def image(channels, dtype=np.uint8):
    return np.arange(2 * 3 * channels, dtype=dtype).reshape(2, 3, channels)


@pytest.mark.parametrize('channels', [1, 2, 3, 4, 5, 130])
@pytest.mark.parametrize('dtype', [np.uint8, np.uint16, np.float32])
def test_planes_are_the_channels(channels, dtype):
    planes = to_planes(image(channels, dtype))
    assert (planes == image(channels, dtype).transpose(2, 0, 1)).all()
    assert planes.flags.c_contiguous
    assert planes.dtype == dtype


@pytest.mark.parametrize('window', [np.s_[1:3, 2:5], np.s_[::-1, ::-1], np.s_[::2, ::3]])
def test_planes_of_views(window):
    whole = np.arange(5 * 6 * 3, dtype=np.uint8).reshape(5, 6, 3)
    assert (to_planes(whole[window]) == whole[window].transpose(2, 0, 1)).all()


def test_an_image_without_a_channel_axis_gets_one():
    assert to_planes(np.zeros((2, 3), np.uint8)).shape == (1, 2, 3)


def test_packed_sample():
    results = {
        'img': image(3),
        'gt_seg_map': np.uint8([[0, 1, 255], [1, 0, 0]]),
        'img_path': 'a.jpg',
        'ori_shape': (4, 6),
        'img_shape': (2, 3),
        'sample_idx': 5,
        'label_map': {255: 1},
    }
    packed = PackSegInputs()(results)
    assert packed['inputs'].dtype == packed['labels'].dtype == torch.uint8
    assert packed['inputs'].shape == (3, 2, 3)
    assert packed['inputs'].is_contiguous()
    assert packed['inputs'][1, 0].tolist() == [1, 4, 7]  # green of the first row
    assert packed['labels'].tolist() == [[0, 1, 255], [1, 0, 0]]
    assert packed['metas'] == {'img_path': 'a.jpg', 'ori_shape': (4, 6), 'img_shape': (2, 3), 'sample_idx': 5}


def test_labels_are_absent_without_a_mask_and_may_have_their_own_size():
    assert 'labels' not in PackSegInputs()({'img': image(3)})
    assert 'labels' not in PackSegInputs()({'img': image(3), 'gt_seg_map': None})
    assert PackSegInputs()({'img': image(3), 'gt_seg_map': np.zeros((8, 9), np.uint8)})['labels'].shape == (8, 9)


def test_meta_keys_are_the_users():
    assert PackSegInputs(meta_keys=['x', 'y'])({'img': image(3), 'x': 1, 'z': 2})['metas'] == {'x': 1}


@pytest.mark.parametrize('channels', [1, 3])
def test_tensors_have_memory_of_their_own_even_from_arrays_that_are_read_only(channels):
    arrays = {'img': image(channels), 'gt_seg_map': np.zeros((2, 3), np.uint8)}
    for array in arrays.values():
        array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        packed = PackSegInputs()(dict(arrays))
    packed['inputs'] += 1
    packed['labels'] += 1
    assert (arrays['img'] == image(channels)).all()
    assert not arrays['gt_seg_map'].any()


@pytest.mark.parametrize('labels', [np.zeros((2, 3), np.int64), np.zeros((2, 3, 1), np.uint8)])
def test_labels_of_another_type_are_refused_by_name(labels):
    with pytest.raises(UserError, match=r'a_mask\.png reached PackSegInputs'):
        PackSegInputs()({'img': image(3), 'gt_seg_map': labels, 'seg_map_path': 'a_mask.png'})
