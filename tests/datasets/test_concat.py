"""Several data sets as one, with weights."""

from pathlib import Path
from typing import Any

import pytest
import torch

from seg.datasets.concat import ConcatDataset
from seg.datasets.sampler import GlobalBatchSampler
from seg.datasets.seeding import SeededDataset
from seg.errors import UserError
from seg.registry import DATASETS
from tests.datasets.made import disc, make_pairs, write_image


def described(root: Path, **options: Any) -> dict:
    pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations'),
        dict(type='RandomCrop', crop_size=(6, 6)),
        dict(type='PackSegInputs'),
    ]
    return dict(
        type='SegmentationDataset',
        data_root=str(root),
        data_prefix=dict(img_path='images', seg_map_path='masks'),
        metainfo=dict(classes=('background', 'disc')),
        pipeline=pipeline,
        **options,
    )


@pytest.fixture
def roots(tmp_path: Path) -> list[dict]:
    make_pairs(tmp_path / 'one', ['a', 'b'])
    make_pairs(tmp_path / 'two', ['c', 'd', 'e'])
    for name in 'cde':
        write_image(tmp_path / 'two/masks' / f'{name}.png', disc() * 255)
    return [described(tmp_path / 'one'), described(tmp_path / 'two', label_map={0: 0, 255: 1})]


def names(dataset: Any) -> list[str]:
    return [dataset.get_data_info(index)['name'] for index in range(len(dataset))]


def test_roots_follow_each_other_as_often_as_their_weights_say(roots: list[dict]) -> None:
    both = DATASETS.build(dict(type='ConcatDataset', datasets=roots, repeats=[2, 1]))
    assert type(both) is ConcatDataset
    assert names(both) == ['a', 'b', 'a', 'b', 'c', 'd', 'e']
    assert names(ConcatDataset(roots)) == ['a', 'b', 'c', 'd', 'e']
    assert Path(both[-1]['metas']['img_path']).stem == 'e'
    with pytest.raises(IndexError):
        both[7]


def test_each_root_reads_its_own_masks(roots: list[dict]) -> None:
    both = ConcatDataset(roots)
    both.full_init()
    for index in range(5):
        assert set(both[index]['labels'].unique().tolist()) <= {0, 1}
    assert both.metainfo['classes'] == ('background', 'disc')
    record = both.split_record()
    assert (record['images'], record['repeats']) == (5, [1, 1])
    assert [part['names'] for part in record['datasets']] == [['a', 'b'], ['c', 'd', 'e']]


def test_a_repeated_image_is_augmented_anew_and_a_sample_stays_its_keys(roots: list[dict]) -> None:
    data = SeededDataset(ConcatDataset(roots, repeats=[3, 1]), seed=0)
    again = SeededDataset(ConcatDataset(roots, repeats=[3, 1]), seed=0)
    thrice = [data[0, index]['inputs'] for index in (0, 2, 4)]
    assert len({tensor.numpy().tobytes() for tensor in thrice}) > 1
    assert all(torch.equal(data[2, index]['inputs'], again[2, index]['inputs']) for index in range(len(data)))


def test_an_epoch_deals_each_image_as_often_as_its_weight(roots: list[dict]) -> None:
    both = ConcatDataset(roots, repeats=[3, 2])
    dealt = [index for batch in GlobalBatchSampler(both, batch_size=4) for _, index in batch]
    assert sorted(both.get_data_info(index)['name'] for index in dealt) == sorted('aaabbbccddee')


@pytest.mark.parametrize('repeats', [[1], [1, 0], [1, 0.5], [True, 1]])
def test_weights_that_mean_nothing_are_refused(roots: list[dict], repeats: list) -> None:
    with pytest.raises(UserError, match=r'a whole number from 1 for each'):
        ConcatDataset(roots, repeats)


def test_no_roots_and_other_classes_are_refused(roots: list[dict]) -> None:
    with pytest.raises(UserError, match='datasets is empty'):
        ConcatDataset([])
    roots[1]['metainfo'] = dict(classes=('disc', 'background'))
    with pytest.raises(UserError, match=r"data set 0 has the classes \['background', 'disc'\], data set 1 \['disc'"):
        ConcatDataset(roots)
