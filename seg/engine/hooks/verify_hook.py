"""Proof on the running job: what each rank is fed, and that the same step computed twice gives the same bits."""

import hashlib
from collections import Counter
from contextlib import nullcontext
from typing import Any

import torch
from mmengine.dist import get_world_size
from mmengine.hooks import Hook
from torch import Tensor

from seg.datasets.bad_files import REPLACED
from seg.engine import step
from seg.engine.state import rng
from seg.engine.wrappers.fsdp import refuse
from seg.registry import HOOKS


@HOOKS.register_module()
class VerifyHook(Hook):
    """Logs the SHA-256 of each rank's first `batches` batches, and checks each epoch's deal.

    The ranks' samples must be disjoint and complete, but for what fills the last global batch or drop_last leaves out.

    `verify_step=N` computes every N-th step's forward and backward twice on each rank and raises RuntimeError naming the
    ranks and parameters whose bits differ: silent corruption, or an operation that is not deterministic.
    """

    priority = 'VERY_HIGH'

    def __init__(self, batches: int = 3, verify_step: int = 0) -> None:
        self.batches, self.verify_step = batches, verify_step
        self._seen: list[int] = []
        self._whole_epoch = False

    def before_train(self, runner: Any) -> None:
        if self.verify_step:
            refuse(runner.model, 'VerifyHook(verify_step=...)', 'its `batches` alone do')

    def before_train_epoch(self, runner: Any) -> None:
        self._seen = []
        self._whole_epoch = runner.iter % len(runner.train_dataloader) == 0

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        size = len(runner.train_dataloader.dataset)
        self._seen += [_dealt_index(meta, size) for meta in data_batch['metas']]
        if runner.iter < self.batches:
            for rank, digest in enumerate(_gathered(digest_of(data_batch))):
                runner.logger.info(f'Step {runner.iter + 1}, rank {rank}: sha256 {digest}')
        if self.verify_step and (runner.iter + 1) % self.verify_step == 0:
            self._compute_twice(runner, data_batch)

    def after_train_epoch(self, runner: Any) -> None:
        if not (self._whole_epoch and runner.by_epoch):
            return
        sampler = runner.train_dataloader.batch_sampler
        dealt = Counter(index for seen in _gathered(self._seen) for index in seen)
        expected = Counter(_expected(sampler, runner.epoch))
        if dealt != expected:
            wrong = sorted((dealt - expected) + (expected - dealt))[:10]
            raise RuntimeError(f'epoch {runner.epoch + 1}: samples {wrong} were not dealt as often as they should be')
        runner.logger.info(f'Epoch {runner.epoch + 1}: {len(dealt)} samples over {get_world_size()} ranks, none missed')

    def _compute_twice(self, runner: Any, batch: dict) -> None:
        first, second = _gradient_bits(runner, batch), _gradient_bits(runner, batch)
        names = [name for name in first if not _same_bits(first[name], second[name])]
        for rank, different in enumerate(_gathered(names)):
            if different:
                raise RuntimeError(
                    f'step {runner.iter + 1}, computed twice on rank {rank}, differs in {len(different)} gradients, the '
                    f'first of {different[0]}: that device corrupts data, or an operation in it is not deterministic'
                )


def digest_of(batch: dict) -> str:
    """SHA-256 of a collated batch's images and labels."""
    digest = hashlib.sha256()
    for key in ('inputs', 'labels'):
        for tensor in batch.get(key, []):
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _dealt_index(meta: dict, size: int) -> int:
    """Of the sample that was asked for; one that stands in for files that cannot be read comes after them."""
    return (meta['sample_idx'] - len(meta.get(REPLACED, ()))) % size


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """NaN is unequal to itself, and a step that gives it twice repeats."""
    first, second = (tensor.contiguous().flatten().view(torch.uint8) for tensor in (one, other))
    return torch.equal(first, second)


def _gathered(value: Any) -> list[Any]:
    values: list[Any] = [value] * get_world_size()
    if len(values) > 1:
        torch.distributed.all_gather_object(values, value)
    return values


def _expected(sampler: Any, epoch: int) -> list[int]:
    order = sampler.order(epoch)
    return [int(order[place % len(order)]) for place in range(len(sampler) * sampler.global_batch)]


def _gradient_bits(runner: Any, batch: dict) -> dict[str, Tensor]:
    """This rank's own gradients of a step, which is then taken back: buffers, generators and gradients as before."""
    model, wrapper = runner.model, runner.optim_wrapper
    before, state = [buffer.clone() for buffer in model.buffers()], rng.own_state()
    with getattr(model, 'no_sync', nullcontext)():
        step.gradients(model, batch, wrapper)
    bits = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    wrapper.zero_grad()
    for buffer, copy in zip(model.buffers(), before):
        buffer.copy_(copy)
    rng.set_own_state(state)
    return bits
