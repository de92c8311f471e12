"""Steps whose loss is not finite, left out: `optim_wrapper.skip_nonfinite=N`."""

from typing import Any

import torch
from mmengine.dist import get_world_size
from torch import Tensor

from seg.engine import step
from seg.engine.loss_window import samples_of
from seg.errors import RunError

_SKIPPED = 'skipped_steps'


def train_step(runner: Any, batch: dict) -> dict[str, Tensor]:
    """A training step, or nothing, on all ranks, where the loss of the global batch is not finite.

    Gradients are dropped before the optimizer sees them, and BatchNorm's statistics are put back. The run's state counts
    the steps left out; RunError at one more than the config allows. Waits for the device. Returns {} for such a step.
    """
    buffers = list(step.unwrap(runner.model).buffers())
    before = [buffer.clone() for buffer in buffers]
    shares = step.gradients(runner.model, batch, runner.optim_wrapper)
    if _finite_everywhere(shares['loss']):
        runner.optim_wrapper.step()
        return shares
    for buffer, copy in zip(buffers, before):
        buffer.copy_(copy)
    runner.optim_wrapper.zero_grad()
    _count(runner, runner.optim_wrapper.skip_nonfinite)
    return {}


def _finite_everywhere(loss: Tensor) -> bool:
    verdict = torch.isfinite(loss).to(torch.int32).cpu()
    if get_world_size() > 1:
        torch.distributed.all_reduce(verdict, op=torch.distributed.ReduceOp.MIN)
    return bool(verdict)


def _count(runner: Any, allowed: int) -> None:
    skipped = runner.message_hub.runtime_info.get(_SKIPPED, 0) + 1
    runner.message_hub.update_info(_SKIPPED, skipped)
    number = runner.iter + 1
    rate = runner.optim_wrapper.optimizer.param_groups[0]['lr']
    where = f'step {number} (learning rate {rate:.3e}, samples {samples_of(runner, number)})'
    if skipped > allowed:
        raise RunError(f'the loss is not finite at {where}, and the {allowed} such steps that are allowed were used up')
    runner.logger.warning(f'The loss is not finite at {where}: left out, {skipped} of {allowed} allowed')
