"""The losses since the last log line: kept on the device, summed over the ranks and read at once (E4)."""

import math
from typing import Any

import torch
from mmengine.dist import get_world_size
from torch import Tensor

from seg.errors import RunError


class LossWindow:
    """One row a step, one column a loss."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Tensor]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, losses: dict[str, Tensor]) -> None:
        """`losses`: this rank's shares of one step, 0-d; empty for a step that was left out."""
        if losses:
            self._rows.append(losses)

    def clear(self) -> None:
        self._rows = []

    def read(self) -> dict[str, list[float]]:
        """Each loss of the global batch, step by step. Every rank must call it; the one wait for the device."""
        names = list(self._rows[0])
        table = torch.stack([torch.stack([row[name].double() for name in names]) for row in self._rows])
        if get_world_size() > 1:
            torch.distributed.all_reduce(table)
        return dict(zip(names, table.T.tolist()))


def refuse_not_finite(losses: dict[str, list[float]], runner: Any, last_step: int) -> None:
    """Nothing good comes of going on with a loss that is not finite.

    Raises RunError naming the first such step up to `last_step` (counted from 1), its learning rate and its samples.
    """
    bad = [row for row, loss in enumerate(losses['loss']) if not math.isfinite(loss)]
    if not bad:
        return
    step = last_step - len(losses['loss']) + 1 + bad[0]
    values = '  '.join(f'{name}: {column[bad[0]]}' for name, column in losses.items())
    rate = runner.optim_wrapper.optimizer.param_groups[0]['lr']
    raise RunError(
        f'the loss is not finite at step {step} ({values}; learning rate {rate:.3e}; '
        f'samples {samples_of(runner, step)}). The last checkpoint is from before it. Try a lower learning rate, '
        'clip_grad, bf16 instead of fp16, or optim_wrapper.skip_nonfinite=10 to leave such steps out'
    )


def samples_of(runner: Any, step: int) -> list[int]:
    """The indices in the data set of the global batch of a step, counted from 1."""
    sampler = runner.train_dataloader.batch_sampler
    if not hasattr(sampler, 'global_batch'):
        return []
    epoch, place = divmod(step - 1, len(sampler))
    order = sampler.order(epoch)
    return [int(order[(place * sampler.global_batch + i) % len(order)]) for i in range(sampler.global_batch)]
