"""One batch of validation: what the metric reads, and what the batch adds to the validation loss."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from mmengine.dist import get_world_size
from torch import Tensor, nn

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


def share_buffers(model: nn.Module) -> None:
    """BatchNorm that is not synchronised has statistics of each rank's own; all ranks take the first one's.

    Those are what a checkpoint holds, so that the scores are the checkpoint's, on any number of ranks, and a resumed run
    has the same. Every rank must call it.
    """
    if get_world_size() > 1:
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, src=0)


class LossMeter:
    """The validation loss over the data set: sums over sums, the same bits for any batch size, rank count and order.

    Floating point sums depend on their order, so each sample's are kept and added up exactly at the end (`math.fsum`).
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._rows: list[Tensor] = []  # of each sample (2, losses): numerators, denominators; float64, on the device

    def update(self, losses: dict[str, Tensor]) -> None:
        """Add each loss's [sum, denominator], by name. Nothing, where a sample had no label."""
        if losses:
            self._names = list(losses)
            self._rows.append(torch.stack(list(losses.values()), dim=1))

    def compute(self) -> dict[str, float]:
        """`val_loss` and each loss by name, over all ranks, which must all call it. Empty where no image had a mask."""
        rows = self._gathered()
        if not rows:
            return {}
        numerators, denominators = ([_sum(column) for column in zip(*part)] for part in zip(*rows))
        losses = [total / max(whole, 1e-12) for total, whole in zip(numerators, denominators)]
        return {'val_loss': sum(losses), **{f'val_{name}': loss for name, loss in zip(self._names, losses)}}

    def _gathered(self) -> list[list[list[float]]]:
        """Of each sample of all ranks: numerators, denominators."""
        own = (self._names, torch.stack(self._rows).tolist() if self._rows else [])
        if get_world_size() == 1:
            return own[1]
        # A rank can be without images, so the shape is not known everywhere; a few numbers by object gather.
        parts: list = [None] * get_world_size()
        torch.distributed.all_gather_object(parts, own)
        self._names = next((names for names, _ in parts if names), [])
        return [row for _, rows in parts for row in rows]


def _sum(values: Sequence[float]) -> float:
    """The correctly rounded sum, whatever the order; infinite or not a number where one of them is."""
    return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
