"""What the first rank reads for all ranks: a run's folder is on its machine, and need not be on another."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from mmengine.dist import get_rank, get_world_size
from torch import Tensor

from seg.engine.nested import Place, as_bytes, rebuilt
from seg.errors import UserError

T = TypeVar('T')


def read_on_first(read: Callable[[], T]) -> T:
    """`read()` of rank 0, on every rank, its tensors on the CPU. Every rank must call it.

    The UserError that it may raise is raised on every rank.
    """
    if get_world_size() == 1:
        return read()
    tensors: list[Tensor] = []
    message: list[Any] = [_take_out(_outcome(read), tensors) if get_rank() == 0 else None]
    dist.broadcast_object_list(message, src=0, device=torch.device('cpu'))
    outcome = _put_in(message[0], iter(tensors) if get_rank() == 0 else None)
    if isinstance(outcome, UserError):
        raise outcome
    return outcome


def _outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except UserError as error:
        return error


def _take_out(value: Any, tensors: list[Tensor]) -> Any:
    """`value` with a `Place` for each dense tensor, which is appended to `tensors`."""
    dense = isinstance(value, Tensor) and value.layout == torch.strided and not (value.is_quantized or value.is_meta)
    if dense:
        tensors.append(value.detach().cpu())
        return Place.of(value)
    return rebuilt(value, lambda item: _take_out(item, tensors))


def _put_in(value: Any, sent: Any) -> Any:
    """`value` with a tensor for each `Place`, broadcast in the order of `_take_out`."""
    if not isinstance(value, Place):
        return rebuilt(value, lambda item: _put_in(item, sent))
    tensor = value.empty() if sent is None else next(sent).contiguous()
    if tensor.numel():
        dist.broadcast(as_bytes(tensor), src=0)
    return tensor
