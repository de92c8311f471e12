"""What holds for all transforms: no new labels, no new types, no write into their input, no other randomness."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.registry import DefaultScope
from torch.utils.data import DataLoader

import seg.datasets.transforms as package
from seg.datasets.collate import collate
from seg.datasets.sampler import GlobalBatchSampler
from seg.datasets.seeding import SeededDataset
from seg.registry import TRANSFORM_FILES, TRANSFORMS

GEOMETRY = [
    {'type': 'Resize', 'scale': (23, 31)},
    {'type': 'Resize', 'scale_factor': 0.5},
    {'type': 'Resize', 'scale_factor': 1.3},
    {'type': 'Resize', 'scale': (64, 20), 'keep_ratio': True},
    {'type': 'Resize', 'scale': 17, 'interpolation': 'bicubic'},
    {'type': 'RandomResize', 'scale': (40, 30), 'ratio_range': (0.5, 2.0), 'keep_ratio': True},
    {'type': 'RandomResize', 'scale': [(20, 20), (60, 70)]},
    {'type': 'RandomChoiceResize', 'scales': [(20, 20), (60, 70)]},
    {'type': 'RandomCrop', 'crop_size': (16, 50)},
    {'type': 'RandomCrop', 'crop_size': 20, 'cat_max_ratio': 0.5},
    {'type': 'Pad', 'size_divisor': 32},
    {'type': 'Pad', 'size': (60, 60), 'pad_to_square': True},
    {'type': 'RandomFlip', 'prob': 1.0},
    {'type': 'RandomFlip', 'prob': 0.9, 'direction': ['horizontal', 'vertical', 'diagonal']},
    {'type': 'RandomRotate', 'prob': 1.0, 'degree': 180},
    {'type': 'RandomRotate', 'prob': 1.0, 'degree': (20, 50), 'auto_bound': True},
    {'type': 'RandomAffine', 'degrees': 20, 'translate': (0.2, 0.2), 'scale': (0.5, 1.5), 'shear': 10},
]
COLOUR = [{'type': 'PhotoMetricDistortion'}, {'type': 'RandomGrayscale', 'prob': 0.5}]


def name(config):
    return '-'.join([config['type'], *(str(value) for key, value in config.items() if key != 'type')])


def sample(values, channels=3, seed=0):
    generator = np.random.default_rng(seed)
    return {
        'img': generator.integers(0, 256, (37, 45, channels), dtype=np.uint8),
        'gt_seg_map': generator.choice(np.uint8(values), (37, 45)),
        'seg_fields': ['gt_seg_map'],
    }


@pytest.mark.parametrize('config', GEOMETRY + COLOUR, ids=name)
@pytest.mark.parametrize('values', [(0, 10), (0, 1, 2), (0, 255)], ids=str)
def test_no_label_comes_out_that_did_not_go_in(config, values):
    transform = TRANSFORMS.build(config)
    np.random.seed(0)
    for seed in range(10):
        labels = transform(sample(values, seed=seed))['gt_seg_map']
        assert labels.dtype == np.uint8
        assert set(np.unique(labels)) <= {*values, 255}


@pytest.mark.parametrize('config', GEOMETRY, ids=name)
@pytest.mark.parametrize('channels', [1, 3, 5])
def test_image_and_mask_keep_their_types_and_one_size(config, channels):
    transform = TRANSFORMS.build(config)
    np.random.seed(0)
    for _ in range(5):
        results = transform({**sample((0, 1), channels), 'img_shape': (37, 45)})
        assert results['img'].dtype == np.uint8
        assert results['img'].shape[2:] == (channels,)
        assert results['img'].shape[:2] == results['gt_seg_map'].shape == results['img_shape']


@pytest.mark.parametrize('config', GEOMETRY + COLOUR, ids=name)
def test_the_arrays_that_were_given_are_not_written_to(config):
    transform = TRANSFORMS.build(config)
    given = sample((0, 1))
    given['img'].setflags(write=False)
    given['gt_seg_map'].setflags(write=False)
    for _ in range(5):
        transform(dict(given))


@pytest.mark.parametrize('config', GEOMETRY + COLOUR, ids=name)
def test_numpys_global_generator_decides_alone(config):
    transform = TRANSFORMS.build(config)
    outcomes = []
    for other in (1, 2):
        np.random.seed(5)
        random.seed(other)
        torch.manual_seed(other)
        outcomes.append(transform(sample((0, 1, 2))))
    assert (outcomes[0]['img'].shape, outcomes[0]['img'].tobytes()) == (
        outcomes[1]['img'].shape,
        outcomes[1]['img'].tobytes(),
    )
    assert outcomes[0]['gt_seg_map'].tobytes() == outcomes[1]['gt_seg_map'].tobytes()


def test_every_label_map_of_seg_fields_follows_the_image():
    results = {**sample((0, 1)), 'edges': sample((0, 1), seed=3)['gt_seg_map'], 'seg_fields': ['gt_seg_map', 'edges']}
    out = TRANSFORMS.build({'type': 'RandomFlip', 'prob': 1.0})(dict(results))
    assert (out['edges'] == results['edges'][:, ::-1]).all()


def test_every_file_of_transforms_is_listed_for_the_registry():
    files = {file.stem for file in Path(package.__path__[0]).glob('*.py')}
    assert files - {'__init__', 'fields', 'resample'} <= set(TRANSFORM_FILES)


def test_ours_win_over_mmcvs_inside_mmcvs_wrappers_too():
    pipelines = [[{'type': 'Resize', 'scale': (4, 4)}], [{'type': 'Pad', 'size': (9, 9)}]]
    with DefaultScope.overwrite_default_scope('seg'):
        wrapper = TRANSFORMS.build({'type': 'RandomChoice', 'transforms': pipelines})
    inner = [type(transform).__module__ for pipeline in wrapper.transforms for transform in pipeline.transforms]
    assert inner == ['seg.datasets.transforms.resize', 'seg.datasets.transforms.pad']


class Pictures:
    """A data set whose whole pipeline is random."""

    metainfo = None

    def __init__(self):
        pipeline = [*(config for config in GEOMETRY if config['type'].startswith('Random')), *COLOUR]
        pipeline += [{'type': 'Resize', 'scale': (24, 16)}, {'type': 'PackSegInputs'}]
        self.pipeline = [TRANSFORMS.build(config) for config in pipeline]

    def __len__(self):
        return 6

    def __getitem__(self, index):
        results = sample((0, 1, 2), seed=index)
        for transform in self.pipeline:
            results = transform(results)
        return results


def batches(workers, batch, world, rank=0):
    loader = DataLoader(
        SeededDataset(Pictures(), 9),
        batch_sampler=GlobalBatchSampler(6, batch, rank=rank, world_size=world, seed=9),
        num_workers=workers,
        collate_fn=collate,
        generator=torch.Generator(),
    )
    return [batch for _ in range(2) for batch in loader]


@pytest.mark.filterwarnings('ignore:This DataLoader will create 3')
def test_augmented_batches_do_not_depend_on_workers():
    alone, worked = batches(0, 2, 1), batches(3, 2, 1)
    assert all(torch.equal(a['inputs'], b['inputs']) for a, b in zip(alone, worked))
    assert all(torch.equal(a['labels'], b['labels']) for a, b in zip(alone, worked))


def test_augmented_batches_do_not_depend_on_ranks():
    alone = batches(0, 2, 1)
    ranks = [batches(0, 1, 2, rank) for rank in (0, 1)]
    for step, batch in enumerate(alone):
        assert torch.equal(batch['inputs'], torch.cat([rank[step]['inputs'] for rank in ranks]))
        assert torch.equal(batch['labels'], torch.cat([rank[step]['labels'] for rank in ranks]))
