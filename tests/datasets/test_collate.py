import pytest
import torch
from torch.utils.data import DataLoader

from seg.datasets.collate import collate
from seg.errors import UserError
from seg.registry import FUNCTIONS


def sample(height, width, labels=True, name='a.jpg'):
    packed = {'inputs': torch.full((3, height, width), 7, dtype=torch.uint8), 'metas': {'img_path': name}}
    if labels:
        packed['labels'] = torch.ones((height, width), dtype=torch.uint8)
    return packed


def test_equal_shapes_are_stacked():
    batch = collate([sample(2, 4, name='a'), sample(2, 4, name='b')])
    assert batch['inputs'].shape == (2, 3, 2, 4)
    assert batch['labels'].shape == (2, 2, 4)
    assert batch['inputs'].dtype == batch['labels'].dtype == torch.uint8
    assert [meta['img_path'] for meta in batch['metas']] == ['a', 'b']


def test_unequal_shapes_stay_a_list():
    batch = collate([sample(2, 4), sample(3, 4)])
    assert [tuple(image.shape) for image in batch['inputs']] == [(3, 2, 4), (3, 3, 4)]
    assert [tuple(label.shape) for label in batch['labels']] == [(2, 4), (3, 4)]


def test_masks_of_their_own_sizes_stay_a_list_beside_stacked_images():
    first, second = sample(2, 4), sample(2, 4)
    second['labels'] = torch.ones((6, 8), dtype=torch.uint8)
    batch = collate([first, second])
    assert batch['inputs'].shape == (2, 3, 2, 4)
    assert [tuple(label.shape) for label in batch['labels']] == [(2, 4), (6, 8)]


def test_labels_are_absent_where_no_sample_has_them():
    assert set(collate([sample(2, 2, labels=False)])) == {'inputs', 'metas'}


def test_a_mask_missing_in_part_of_a_batch_is_refused_by_name():
    with pytest.raises(UserError, match=r'bare\.jpg has no mask'):
        collate([sample(2, 2), sample(2, 2, labels=False, name='bare.jpg')])


def test_a_batch_from_a_worker_is_whole():
    loader = DataLoader([sample(2, 4), sample(2, 4)], batch_size=2, num_workers=1, collate_fn=collate)
    (batch,) = loader
    assert batch['inputs'].tolist() == torch.full((2, 3, 2, 4), 7).tolist()


def test_it_is_registered():
    assert FUNCTIONS.get('collate') is collate
