"""One batch of validation: what the metric reads, and what the batch adds to the validation loss."""

from typing import Any

import torch
from mmengine.dist import get_world_size
from torch import Tensor

from seg.engine.precision import autocast
from seg.engine.protocol import Model


def evaluate_batch(model: Model, batch: dict, precision: str, meter: 'LossMeter') -> list[dict[str, Any]]:
    """`model.evaluate` under the run's precision; the losses go to `meter`, the rest is for the metric."""
    data = model.data_preprocessor(batch, training=False)
    with autocast(precision, data['inputs'][0].device):
        samples = model.evaluate(data)
    for sample in samples:
        meter.update(sample.pop('losses', {}))
    return samples


class LossMeter:
    """The validation loss over the data set: sums over sums, so that it does not move with batch size or rank count."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._sums: Tensor | None = None  # row 0: numerators, row 1: denominators; float64, on the device

    def update(self, losses: dict[str, Tensor]) -> None:
        """Add each loss's [sum, denominator], by name. Nothing, where a sample had no label."""
        if not losses:
            return
        self._names = list(losses)
        sums = torch.stack(list(losses.values()), dim=1)
        self._sums = sums if self._sums is None else self._sums + sums

    def compute(self) -> dict[str, float]:
        """`val_loss` and each loss by name, over all ranks. Empty where no image had a mask."""
        sums = self._gathered()
        if sums is None:
            return {}
        losses = (sums[0] / sums[1].clamp(min=1e-12)).tolist()
        return {'val_loss': sum(losses), **{f'val_{name}': loss for name, loss in zip(self._names, losses)}}

    def _gathered(self) -> Tensor | None:
        if get_world_size() == 1:
            return self._sums
        rows: list = [None] * get_world_size()
        # A rank can be without images, so the shape is not known everywhere; a few numbers by object gather.
        own = None if self._sums is None else (self._names, self._sums.cpu())
        torch.distributed.all_gather_object(rows, own)
        present = [row for row in rows if row is not None]
        if not present:
            return None
        self._names = present[0][0]
        return torch.stack([sums for _, sums in present]).sum(dim=0)
