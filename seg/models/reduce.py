"""Sums that lose nothing: in at least float32, and over all ranks with their gradient."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


def at_least_float32(tensor: Tensor) -> Tensor:
    """Half precision overflows at 65504, fewer pixels than one image has. float64 stays float64."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def world_size(group: Any = None) -> int:
    """1 without a process group."""
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def all_reduce_sum(tensor: Tensor, group: Any = None) -> Tensor:
    """The sum over the ranks, in a new tensor. Every rank must call it, and call backward through it or not, alike.

    Each rank's loss depends on every rank's term, so the backward pass sums the gradients over the ranks:
    the gradient that arrives is that of the sum of all ranks' losses.
    """
    return tensor if world_size(group) == 1 else _AllReduceSum.apply(tensor, group)


class _AllReduceSum(torch.autograd.Function):
    """torch.distributed.nn.functional.all_reduce does the same but is deprecated."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _summed(tensor, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _summed(grad, ctx.group), None


def _summed(tensor: Tensor, group: Any) -> Tensor:
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total
