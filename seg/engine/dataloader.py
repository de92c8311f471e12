"""Config -> DataLoader. Training deals global batches; evaluation deals every image exactly once over all ranks."""

import signal
from functools import partial
from typing import Any

import cv2
import torch
from mmengine.dist import get_rank, get_world_size
from torch.utils.data import DataLoader, Dataset

from seg.datasets.collate import collate
from seg.datasets.sampler import EvalBatchSampler, GlobalBatchSampler
from seg.datasets.seeding import SeededDataset
from seg.engine.state import run_folder
from seg.errors import UserError
from seg.registry import DATASETS, FUNCTIONS

# What OpenMMLab configs call a shuffling sampler. Both mean the same here: the deal follows from the step's number.
_KNOWN_SAMPLERS = ('DefaultSampler', 'InfiniteSampler')


def build_train_dataloader(config: Any, *, seed: int, accumulate: int, endless: bool) -> DataLoader:
    """A loader whose item is what this rank needs for one optimizer step; its length is the steps of an epoch."""
    if isinstance(config, DataLoader):
        return config
    options = dict(config)
    dataset = _build_dataset(options.pop('dataset'), seed)
    sampler = GlobalBatchSampler(
        dataset,
        batch_size=_batch_size(options, 'train_dataloader'),
        accumulate=accumulate,
        shuffle=_shuffle(options),
        seed=seed,
        drop_last=options.pop('drop_last', False),
        rank=get_rank(),
        world_size=get_world_size(),
        endless=endless,
    )
    return _loader(dataset, sampler, options, seed)


def build_eval_dataloader(config: Any, *, seed: int) -> DataLoader:
    """A loader that deals each image to exactly one rank, in order, without padding (promise 3)."""
    if isinstance(config, DataLoader):
        return config
    options = dict(config)
    dataset = _build_dataset(options.pop('dataset'), seed)
    if len(dataset) == 0:
        raise UserError('the validation or test data set has no images; check its data_root, suffixes and split')
    _shuffle(options)
    options.pop('drop_last', None)
    sampler = EvalBatchSampler(len(dataset), _batch_size(options, 'val_dataloader'), get_rank(), get_world_size())
    return _loader(dataset, sampler, options, seed)


def _build_dataset(config: Any, seed: int) -> SeededDataset:
    dataset: Dataset = DATASETS.build(config) if isinstance(config, dict) else config
    if hasattr(dataset, 'full_init'):
        dataset.full_init()
    return SeededDataset(dataset, seed)


def _batch_size(options: dict, key: str) -> int:
    size = options.pop('batch_size', None)
    if not isinstance(size, int) or size < 1:
        raise UserError(f'{key}.batch_size is {size!r}; expected an integer >= 1 (images per process)')
    return size


def _shuffle(options: dict) -> bool:
    sampler = dict(options.pop('sampler', None) or {'type': 'DefaultSampler'})
    kind = sampler.pop('type', 'DefaultSampler')
    if kind not in _KNOWN_SAMPLERS:
        raise UserError(f'sampler.type is {kind!r}; expected one of {", ".join(_KNOWN_SAMPLERS)}')
    return bool(sampler.get('shuffle', True))


def _loader(dataset: SeededDataset, sampler: Any, options: dict, seed: int) -> DataLoader:
    workers = options.pop('num_workers', 0)
    collate_fn = options.pop('collate_fn', None)
    if isinstance(collate_fn, dict):
        arguments = dict(collate_fn)
        collate_fn = partial(FUNCTIONS.get(arguments.pop('type')), **arguments)
    # Workers that live on are cheap (D6 does not apply: a sample's seed does not depend on its worker).
    options.setdefault('persistent_workers', workers > 0)
    options.setdefault('pin_memory', torch.cuda.is_available())
    if workers == 0:
        for key in ('persistent_workers', 'prefetch_factor', 'multiprocessing_context', 'timeout'):
            options.pop(key, None)
    return DataLoader(
        dataset,
        batch_sampler=sampler,
        num_workers=workers,
        collate_fn=collate_fn or collate,
        worker_init_fn=init_worker if workers else None,
        # iter(loader) draws a seed; from here, not from the generator that dropout draws from (E19).
        generator=torch.Generator().manual_seed(seed),
        **options,
    )


def init_worker(worker: int) -> None:
    """One thread per worker, and signals are the parent's business: a worker must outlive the last checkpoint (E13)."""
    run_folder.leave_to_parent()
    cv2.setNumThreads(0)
    torch.set_num_threads(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def shut_down_workers(loader: Any) -> None:
    """End the persistent workers of a loader. They ignore SIGTERM, so Python would wait for them at exit for ever."""
    iterator = getattr(loader, '_iterator', None)
    if iterator is not None:
        iterator._shutdown_workers()
        loader._iterator = None
