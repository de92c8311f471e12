"""Batch samplers: which samples a rank needs, worked out from the step's number alone.

The engine keeps one number, the global step. A checkpoint needs no sampler state, and resuming decodes nothing (D11,
D17). An item is a list of (epoch, index) pairs, which `seg.datasets.seeding.SeededDataset` understands.
"""

from collections.abc import Iterator, Sized

import numpy as np
from mmengine.dist import get_dist_info
from torch.utils.data import Sampler

from seg.datasets import splitmix
from seg.errors import UserError
from seg.registry import DATA_SAMPLERS

Batch = list[tuple[int, int]]


def epoch_order(size: int, seed: int, epoch: int) -> np.ndarray:
    """The permutation of 0..size-1 that (seed, epoch) alone decides: indices sorted by their distinct 64-bit hashes."""
    return np.argsort(splitmix.outputs(splitmix.start(seed, epoch), size), kind='stable')


@DATA_SAMPLERS.register_module()
class GlobalBatchSampler(Sampler[Batch]):
    """Deals each rank its share of the global batch of an optimizer step, so that a step does not depend on the ranks.

    A global batch is batch_size x world_size x accumulate samples in the epoch's order, dealt in contiguous slices:
    micro-batch j of rank r is global[(j * world_size + r) * batch_size:][:batch_size]. An item is this rank's
    micro-batches, one after the other. The last, short global batch of an epoch is filled up from the start of the
    epoch's own order, repeated if need be, so every step is whole on every rank; `drop_last` leaves it out.

    `iter()` yields from the position to the end of that epoch; with the epoch's last item the position moves to the
    next epoch. An iterator given up before that leaves the position where it was. An `endless` one crosses from epoch
    to epoch, so that workers go on prefetching, and never moves the position.

    Args:
        dataset: the data set, or its size.
        batch_size: images in one micro-batch of one rank.
        accumulate: micro-batches in an optimizer step.
        rank, world_size: default to the process group's.
    """

    def __init__(
        self,
        dataset: Sized | int,
        batch_size: int,
        accumulate: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        endless: bool = False,
    ) -> None:
        self.size = _size(dataset)
        self.batch_size = _at_least_one('batch_size', batch_size)
        self.accumulate = _at_least_one('accumulate', accumulate)
        self.rank, self.world_size = _place(rank, world_size)
        self.shuffle, self.seed, self.endless = shuffle, seed, endless
        self.global_batch = self.batch_size * self.world_size * self.accumulate
        self.steps_per_epoch = _steps(self.size, self.global_batch, drop_last)
        self._position = 0

    def __len__(self) -> int:
        """Optimizer steps in an epoch, wherever the position is."""
        return self.steps_per_epoch

    @property
    def position(self) -> int:
        """The global step at which the next `iter()` starts."""
        return self._position

    def set_position(self, step: int) -> None:
        """Start the next `iter()` at this global step, counted from 0 over all epochs."""
        if step < 0:
            raise ValueError(f'step is {step}, expected >= 0')
        self._position = step

    def __iter__(self) -> Iterator[Batch]:
        return self._from(self._position)

    def _from(self, start: int) -> Iterator[Batch]:
        epoch, first = divmod(start, len(self))
        while True:
            order = self.order(epoch)
            for step in range(first, len(self)):
                if step == len(self) - 1 and not self.endless and self._position == start:
                    self._position = (epoch + 1) * len(self)
                yield self._share(epoch, order, step)
            if not self.endless:
                return
            epoch, first = epoch + 1, 0

    def order(self, epoch: int) -> np.ndarray:
        """The indices of the data set in the order of this epoch, before they are cut into steps."""
        return epoch_order(self.size, self.seed, epoch) if self.shuffle else np.arange(self.size)

    def batch_at(self, step: int) -> Batch:
        """This rank's item of a global step, counted from 0."""
        epoch, place = divmod(step, len(self))
        return self._share(epoch, self.order(epoch), place)

    def _share(self, epoch: int, order: np.ndarray, step: int) -> Batch:
        micro = np.arange(self.accumulate)[:, None] * self.world_size + self.rank
        places = step * self.global_batch + micro * self.batch_size + np.arange(self.batch_size)
        return [(epoch, index) for index in order[places.ravel() % self.size].tolist()]

    @property
    def sampler(self) -> 'GlobalBatchSampler':
        """Where MMEngine's DistSamplerSeedHook looks for `set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Nothing: the epoch follows from the position, and a hook that counts otherwise must not move it."""


@DATA_SAMPLERS.register_module()
class EvalBatchSampler(Sampler[Batch]):
    """Deals every index to exactly one rank: rank r gets r, r + world_size, ... in batches, as (0, index).

    Nothing is repeated to make the ranks even: their counts differ by up to one, and a rank may have none. So nothing
    that all ranks must join may happen per batch.
    """

    def __init__(
        self, dataset: Sized | int, batch_size: int, rank: int | None = None, world_size: int | None = None
    ) -> None:
        self.batch_size = _at_least_one('batch_size', batch_size)
        rank, world_size = _place(rank, world_size)
        self.indices = range(rank, _size(dataset), world_size)

    def __len__(self) -> int:
        return -(-len(self.indices) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self.indices), self.batch_size):
            yield [(0, index) for index in self.indices[start : start + self.batch_size]]


def _size(dataset: Sized | int) -> int:
    return dataset if isinstance(dataset, int) else len(dataset)


def _at_least_one(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f'{name} is {value!r}; expected an integer >= 1')
    return value


def _place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if rank is None or world_size is None:
        group_rank, group_size = get_dist_info()
        rank = group_rank if rank is None else rank
        world_size = group_size if world_size is None else world_size
    if not 0 <= rank < world_size:
        raise ValueError(f'rank is {rank} of world_size {world_size}, expected 0 <= rank < world_size')
    return rank, world_size


def _steps(size: int, global_batch: int, drop_last: bool) -> int:
    if size == 0:
        raise UserError('the training data set has no images; check its data_root, suffixes and split')
    if not drop_last:
        return -(-size // global_batch)
    if size < global_batch:
        raise UserError(
            f'drop_last=True leaves no step: {size} images do not fill one global batch of {global_batch} '
            '(batch_size x processes x accumulation). Set drop_last=False or make the batch smaller'
        )
    return size // global_batch
