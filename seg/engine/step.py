"""One optimizer step, on one page: split, agree, preprocess, forward, backward, step.

A step is a function of the global batch: every loss is divided by a denominator that is summed over all micro-batches of
all ranks before the first forward, so that the sum of the shares is what one process would compute (promise 2).
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from mmengine.dist import get_world_size
from mmengine.model import is_model_wrapper
from torch import Tensor, nn

from seg.engine.optim import OptimWrapper
from seg.engine.protocol import Model, Preprocessor


def train_step(model: nn.Module, batch: dict, optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
    """Train on this rank's part of one global batch; returns its `gradients`' shares of the losses."""
    shares = gradients(model, batch, optim_wrapper)
    optim_wrapper.step()
    return shares


def gradients(model: nn.Module, batch: dict, optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
    """Forward and backward of this rank's part of one global batch; the parameters hold the global batch's gradients.

    `model` is a `seg.engine.protocol.Model`, wrapped or not. Returns each loss by name and their sum as 'loss', 0-d, on the
    device, as this rank's shares: their sum over the ranks is the loss of the global batch.
    """
    bare: Model = unwrap(model)
    size_px = agree_size(batch, bare.data_preprocessor)
    micro_batches = [
        bare.data_preprocessor(part, training=True, pad_to=size_px)
        for part in split_batch(batch, optim_wrapper.micro_batches)
    ]
    normalisers = _sum_over_ranks(torch.stack([bare.normalisers(part['labels']) for part in micro_batches]).sum(dim=0))
    shares: dict[str, Tensor] = {}
    for number, part in enumerate(micro_batches, start=1):
        with _gradients_stay_local(model, number < len(micro_batches)):
            with optim_wrapper.autocast(part['inputs'].device):
                losses = model(part['inputs'], part['labels'], normalisers, mode='loss')
            # DDP averages gradients over the ranks; shares are to be summed.
            optim_wrapper.backward(sum(losses.values()) * get_world_size())
        for name, share in losses.items():
            shares[name] = shares.get(name, 0) + share.detach()
    return {**shares, 'loss': torch.stack(list(shares.values())).sum()}


def unwrap(model: nn.Module) -> Any:
    """The model under DDP or DataParallel, or `model` itself."""
    return model.module if is_model_wrapper(model) else model


def split_batch(batch: dict, count: int) -> list[dict]:
    """`count` micro-batches of equal length, in order. Values are tensors or lists that run over the samples."""
    if count == 1:
        return [batch]
    length = len(batch['inputs']) // count
    return [{key: value[i * length : (i + 1) * length] for key, value in batch.items()} for i in range(count)]


def agree_size(batch: dict, preprocessor: Preprocessor) -> tuple[int, int]:
    """(height, width) in pixels that every image of the global batch fits in, the same on all ranks (E16).

    Where the preprocessor has a fixed `size` there is nothing to agree on. The collective runs on the CPU (gloo), so the
    device is not waited for.
    """
    if preprocessor.size is not None:
        return preprocessor.size
    needed_px = preprocessor.needed_size(batch['inputs'])
    if get_world_size() == 1:
        return needed_px
    largest = torch.tensor(needed_px)
    torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX)
    height, width = largest.tolist()
    return height, width


def _sum_over_ranks(normalisers: Tensor) -> Tensor:
    if get_world_size() > 1:
        torch.distributed.all_reduce(normalisers)
    return normalisers


def _gradients_stay_local(model: nn.Module, more_to_come: bool) -> AbstractContextManager:
    """No all-reduce of gradients before the last micro-batch of a step."""
    no_sync: Any = getattr(model, 'no_sync', nullcontext)
    return no_sync() if more_to_come else nullcontext()
