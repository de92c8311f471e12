"""A sample is a function of (seed, epoch, index) (promise 1), through the data loader that training builds.

What is compared are the bytes of image and mask after the pipeline, by (epoch, sample id): for 0, 1 and 3 workers, 1, 2
and 3 ranks, workers that live on or not, from the start, from the middle of an epoch and from an epoch's start.
"""

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mmcv.transforms
import numpy as np
import pytest
import torch
from mmcv.transforms import BaseTransform
from mmengine.dist import get_world_size
from mmengine.registry import DefaultScope
from torch.utils.data import DataLoader

from seg.datasets.transforms.colour import PhotoMetricDistortion
from seg.datasets.transforms.crop import RandomCrop
from seg.engine import dataloader
from seg.engine.dataloader import build_train_dataloader, shut_down_workers
from seg.registry import TRANSFORMS
from tests.ranks import run_ranks
from tests.tiny import make_data

IMAGES, GLOBAL_BATCH, EPOCHS, SEED = 12, 6, 2, 7
STEPS = IMAGES // GLOBAL_BATCH
STARTS = (0, 1, STEPS)  # fresh, resumed in mid-epoch, resumed at an epoch's start
WORKERS = [(0, False), (1, False), (1, True), (3, False), (3, True)]  # their number, and whether they live on
Samples = dict[tuple[int, int], bytes]  # by (epoch, index)


@TRANSFORMS.register_module()
class Noise(BaseTransform):
    """A user's own transform: it draws from Python's, numpy's and torch's generators, here a number from each."""

    def transform(self, results: dict) -> dict:
        results['img'] = results['img'].copy()
        results['img'][0, 0] = random.randrange(256), np.random.randint(256), int(torch.randint(256, (1,)))
        results['img'][0, 1] = (
            int(random.gauss(99, 20)),
            int(99 + 20 * np.random.randn()),
            int(99 + 20 * torch.randn(1)),
        )
        return results


@TRANSFORMS.register_module()
class BreaksAfterDrawing(BaseTransform):
    def transform(self, results: dict) -> dict:
        random.random(), np.random.randn(), torch.rand(1)
        raise RuntimeError('broken')


def pipeline() -> list[Any]:
    """Ours, a user's, and mmcv-lite's random transforms, made by their own classes because ours have the same names.

    mmcv's RandomGrayscale is left out: it drops the channels (E9).
    """
    with DefaultScope.overwrite_default_scope('mmengine'):  # in which RandomResize finds mmcv's Resize, not ours
        flip = mmcv.transforms.RandomFlip(0.6, ['horizontal', 'vertical', 'diagonal'])
        resizes = [
            mmcv.transforms.RandomResize((40, 30), (0.8, 1.5)),
            mmcv.transforms.RandomChoiceResize([(32, 24), (48, 36)]),
        ]
    return [
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations'),
        dict(type='RandomResize', scale=(40, 30), ratio_range=(0.8, 1.5)),
        dict(type='RandomRotate', prob=0.5, degree=20),
        dict(type='RandomAffine', degrees=5, translate=(0.1, 0.1), scale=(0.9, 1.1), shear=3, prob=0.5),
        *resizes,
        dict(type='RandomChoiceResize', scales=[(32, 24), (48, 36)]),
        dict(type='RandomCrop', crop_size=(20, 24), cat_max_ratio=0.9),
        mmcv.transforms.RandomChoice([[flip], [RandomCrop((16, 20))], []]),
        dict(type='RandomFlip', prob=0.5, direction=['horizontal', 'vertical']),
        dict(type='RandomGrayscale', prob=0.3),
        mmcv.transforms.RandomApply([PhotoMetricDistortion()], prob=0.5),
        dict(type='Noise'),
        dict(type='PackSegInputs'),
    ]


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('boxes'), train=IMAGES, val=0)


def build(data: Path, world: int, steps: list[Any] | None = None, **options: Any) -> DataLoader:
    dataset = dict(
        type='SegmentationDataset',
        data_root=str(data),
        data_prefix=dict(img_path='train', seg_map_path='train_masks'),
        img_suffix='.png',
        seg_map_suffix='.png',
        metainfo=dict(classes=('background', 'box')),
        pipeline=steps or pipeline(),
        serialize_data=False,  # which collects garbage, and takes longer than all the rest
    )
    config = dict(batch_size=GLOBAL_BATCH // world, dataset=dataset, **options)
    return build_train_dataloader(config, seed=SEED, accumulate=1, endless=False)


@contextmanager
def closing_workers(loader: DataLoader) -> Iterator[DataLoader]:
    try:
        yield loader
    finally:
        shut_down_workers(loader)


def samples(loader: DataLoader, start: int = 0) -> Samples:
    """What the loops draw from step `start` to the end of the last epoch."""
    found: Samples = {}
    loader.batch_sampler.set_position(start)  # type: ignore[union-attr]
    for epoch in range(start // STEPS, EPOCHS):
        for batch in loader:
            for image, label, meta in zip(batch['inputs'], batch['labels'], batch['metas'], strict=True):
                shapes = str((image.shape, label.shape)).encode()
                found[epoch, meta['sample_idx']] = shapes + image.numpy().tobytes() + label.numpy().tobytes()
    return found


@pytest.mark.filterwarnings('ignore:This DataLoader will create 3')
def test_any_cut_gives_the_same_bytes(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = samples(build(data, world=1))
    assert sorted(whole) == list(itertools.product(range(EPOCHS), range(IMAGES)))
    assert len(set(whole.values())) == EPOCHS * IMAGES  # no epoch repeats another's augmentation
    for (workers, persistent), world in itertools.product(WORKERS, (1, 2, 3)):
        options = dict(num_workers=workers, persistent_workers=persistent) if workers else {}
        dealt: dict[int, Samples] = {start: {} for start in STARTS}
        for rank in range(world):
            monkeypatch.setattr(dataloader, 'get_world_size', lambda world=world: world)
            monkeypatch.setattr(dataloader, 'get_rank', lambda rank=rank: rank)
            with closing_workers(build(data, world, **options)) as loader:
                for start in STARTS:
                    dealt[start] |= samples(loader, start)
        for start, found in dealt.items():
            assert len(found) == EPOCHS * IMAGES - start * GLOBAL_BATCH
            assert found.items() <= whole.items(), (workers, persistent, world, start)


def of_this_rank(data: Path) -> Samples:
    with closing_workers(build(data, get_world_size(), num_workers=2)) as loader:
        return samples(loader, start=1)


def test_real_ranks_with_workers_give_the_same_bytes(data: Path) -> None:
    whole = samples(build(data, world=1), start=1)
    first, second = run_ranks(2, of_this_rank, data)
    assert not first.keys() & second.keys()
    assert first | second == whole


def test_a_transform_that_raises_leaves_the_generators(data: Path) -> None:
    loader = build(data, 1, [dict(type='LoadImageFromFile'), dict(type='Noise'), dict(type='BreaksAfterDrawing')])
    before = generators()
    with pytest.raises(RuntimeError, match='broken'):
        next(iter(loader))
    assert generators() == before


def generators() -> tuple:
    name, words, *rest = np.random.get_state()
    return random.getstate(), name, words.tolist(), rest, torch.get_rng_state().tolist()
