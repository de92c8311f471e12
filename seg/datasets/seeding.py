"""A sample is a function of (seed, epoch, index): the global generators are seeded for it and put back after it.

So augmentation does not depend on the worker, the number of workers, the rank, or on what was decoded before (D6), and
what the process draws elsewhere, dropout say, does not depend on where samples are made (E19).
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.random.mtrand import get_bit_generator, set_bit_generator
from torch.utils.data import Dataset

from seg.datasets import splitmix
from seg.datasets.bad_files import BadFiles, allowed_bad_files

_MASK32 = 2**32 - 1


class SeededDataset(Dataset):
    """The outermost wrapper of a data set: it takes (epoch, index) and seeds python's, numpy's and torch's generators.

    A plain index means epoch 0. Covered is whatever draws from `random`, `numpy.random`'s functions and torch's CPU
    generator; a generator that a transform makes for itself, or a CUDA one, is not.

    A sample whose files cannot be read is that of the next index, (epoch, index + 1), where the data set allows
    `max_bad_files`; its metas then say so.
    """

    def __init__(self, dataset: Dataset, seed: int) -> None:
        self.dataset = dataset
        self.seed = seed
        self.before_sample: Callable[[int, int], None] | None = None  # told (epoch, index) of what is read next
        # A second engine for numpy's functions: swapping engines costs a microsecond, copying MT19937's state back 28.
        self._engine = np.random.MT19937(0)
        self._bad_files = BadFiles(allowed_bad_files(dataset))

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]  # a map-style one

    @property
    def metainfo(self) -> dict:
        """The data set's own: classes, palette, ..."""
        return self.dataset.metainfo  # type: ignore[attr-defined]

    def __getitem__(self, key: tuple[int, int] | int) -> Any:
        epoch, index = key if isinstance(key, tuple) else (0, key)
        if index < 0:
            index += len(self)
        return self._bad_files.first_good(lambda place: self._sample(epoch, place), index, len(self))

    def _sample(self, epoch: int, index: int) -> Any:
        with _python_and_torch_put_back(), _numpy_put_back(self._engine):
            _seed_generators(self.seed, epoch, index)
            if self.before_sample is not None:
                self.before_sample(epoch, index)
            return self.dataset[index]


def _seed_generators(seed: int, epoch: int, index: int) -> None:
    """Three streams that no other sample of the epoch shares.

    Python and numpy grow MT19937 from a seed in the same way, so equal seeds would make their streams equal. Torch
    keeps 32 bits of a seed, so it gets 32 that are distinct by construction.
    """
    state = splitmix.start(seed, epoch)
    numpy_key = splitmix.output(state, 2 * index)
    random.seed(splitmix.output(state, 2 * index + 1))
    np.random.seed([numpy_key & _MASK32, numpy_key >> 32])
    torch.default_generator.manual_seed((_scatter32(index) + state) & _MASK32)


def _scatter32(value: int) -> int:
    """MurmurHash3's 32-bit finaliser, a bijection (Appleby, public domain)."""
    value &= _MASK32
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & _MASK32
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & _MASK32
    return value ^ (value >> 16)


@contextmanager
def _python_and_torch_put_back() -> Iterator[None]:
    python, pytorch = random.getstate(), torch.default_generator.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        torch.default_generator.set_state(pytorch)


@contextmanager
def _numpy_put_back(engine: np.random.MT19937) -> Iterator[None]:
    """Lend numpy's functions another engine, and give them their own back in the state it had."""
    own = get_bit_generator()
    state = np.random.get_state(legacy=False)
    set_bit_generator(engine)
    try:
        yield
    finally:
        set_bit_generator(own)
        if state['has_gauss']:
            # A swap forgets the second value of a pair of normal draws.
            np.random.set_state(state)
