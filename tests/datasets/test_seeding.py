"""A sample is a function of (seed, epoch, index), wherever and in whatever order it is made."""

import random
from typing import ClassVar

import numpy as np
import pytest
import torch
from mmcv.transforms import RandomFlip, RandomResize
from torch.utils.data import DataLoader

from seg.datasets.sampler import EvalBatchSampler, GlobalBatchSampler
from seg.datasets.seeding import SeededDataset, _scatter32


class Draws:
    """Its sample is what the three generators gave, so that equal samples mean equal augmentation."""

    metainfo: ClassVar = {'classes': ('car',)}

    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index == 5:
            raise OSError('no such file')
        return index, random.random(), np.random.random_sample(), np.random.randn(), torch.rand(1).item()


class MmcvDraws(Draws):
    """The parameters that mmcv's random transforms drew."""

    def __init__(self):
        self.pipeline = [RandomResize((20, 10), (0.5, 2.0)), RandomFlip(0.5, ['horizontal', 'vertical'])]

    def __getitem__(self, index):
        results = {'img': np.zeros((10, 20, 3), np.uint8)}
        for transform in self.pipeline:
            results = transform(results)
        return index, results['scale'], str(results['flip_direction'])


def states():
    name, key, *rest = np.random.get_state()
    return random.getstate(), (name, key.tolist(), *rest), torch.get_rng_state().tolist()


def identity(items):
    return items


def dump(data, sampler, epochs=2, **options):
    loader = DataLoader(
        SeededDataset(data, 0),
        batch_sampler=sampler,
        collate_fn=identity,
        generator=torch.Generator().manual_seed(0),
        **options,
    )
    return [item for _ in range(epochs) for batch in loader for item in batch]


def training(world=1, rank=0):
    return GlobalBatchSampler(5, 1, rank=rank, world_size=world, shuffle=False)


def test_same_key_same_sample_in_any_order():
    data = SeededDataset(Draws(), 3)
    first = [data[epoch, index] for epoch in range(2) for index in range(5)]
    again = [data[epoch, index] for epoch in (1, 0) for index in range(4, -1, -1)]
    assert sorted(first) == sorted(again)


def test_each_sample_of_each_epoch_and_seed_has_its_own_streams():
    samples = [
        SeededDataset(Draws(), seed)[epoch, index] for seed in range(3) for epoch in range(4) for index in range(5)
    ]
    _, *draws = zip(*samples)
    assert [len(set(column)) for column in draws] == [60] * 4  # 3 x 4 x 5, in each of the generators


def test_the_three_generators_have_different_streams():
    # Python and numpy would be equal to the last bit, if they were given one and the same seed.
    _, python, numpy, _, pytorch = SeededDataset(Draws(), 0)[0, 0]
    assert len({round(value, 6) for value in (python, numpy, pytorch)}) == 3


def test_torch_seeds_are_distinct_within_an_epoch():
    # Torch keeps 32 bits. Of 300000 random ones, 300000**2 / 2**33 = 10 pairs would be expected to be equal.
    assert len({_scatter32(index) for index in range(300000)}) == 300000


def test_torch_gets_no_more_bits_than_it_keeps():
    class Seed(Draws):
        def __getitem__(self, index):
            return torch.initial_seed()

    seeds = [SeededDataset(Seed(), 2**40)[7, index] for index in range(5)]
    assert len(set(seeds)) == 5
    assert max(seeds) < 2**32


def test_a_plain_index_means_epoch_0_and_a_negative_one_counts_from_the_end():
    data = SeededDataset(Draws(), 3)
    assert data[1] == data[0, 1] == data[-5]


@pytest.mark.parametrize('pending_normal', [False, True])
def test_generators_are_put_back(pending_normal):
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    if pending_normal:
        np.random.randn()  # makes two, gives one
    before = states()
    SeededDataset(Draws(), 0)[1, 2]
    assert states() == before


def test_generators_are_put_back_when_the_sample_raises():
    np.random.seed(1)
    before = states()
    with pytest.raises(OSError, match='no such file'):
        SeededDataset(Draws(), 0)[0, 5]
    assert states() == before


def test_a_pending_normal_of_the_caller_does_not_reach_the_sample():
    data = SeededDataset(Draws(), 0)
    np.random.seed(1)
    expected = data[0, 1]
    np.random.randn()
    assert data[0, 1] == expected


def test_length_and_metainfo_are_the_data_sets():
    data = SeededDataset(Draws(), 0)
    assert len(data) == 6
    assert data.metainfo == {'classes': ('car',)}


@pytest.mark.filterwarnings('ignore:This DataLoader will create 3')
@pytest.mark.parametrize('data', [Draws(), MmcvDraws()])
@pytest.mark.parametrize(('workers', 'persistent'), [(1, True), (3, False), (3, True)])
def test_workers_do_not_change_a_sample(data, workers, persistent):
    plain = dump(data, training())
    assert dump(data, training(), num_workers=workers, persistent_workers=persistent) == plain
    assert plain[:5] != plain[5:]  # the second epoch differs


def test_ranks_do_not_change_a_sample():
    alone = dump(Draws(), GlobalBatchSampler(4, 4, rank=0, world_size=1))
    ranks = [dump(Draws(), GlobalBatchSampler(4, 2, rank=rank, world_size=2)) for rank in (0, 1)]
    assert sorted(ranks[0] + ranks[1]) == sorted(alone)


def test_evaluation_samples_are_those_of_epoch_0():
    data = SeededDataset(Draws(), 0)
    assert dump(Draws(), EvalBatchSampler(5, 2, 0, 1), epochs=1) == [data[0, index] for index in range(5)]


@pytest.mark.parametrize('workers', [0, 2])
def test_a_pass_over_the_loader_leaves_the_processs_generators_alone(workers):
    # Dropout draws from torch's global generator: it must not depend on the number of workers (E19).
    torch.manual_seed(1)
    before = states()
    dump(Draws(), training(), epochs=1, num_workers=workers)
    assert states() == before
