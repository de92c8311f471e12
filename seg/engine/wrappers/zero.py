"""ZeRO-1: each rank keeps the optimizer's state of its share of the parameters only (`optim_wrapper.zero=True`).

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", arXiv:1910.02054, stage 1.
Each parameter has one rank that steps it and then sends it to the others, so that a step is the one of an unsharded
optimizer, bit for bit. docs/sharding.md says when that pays.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from mmengine.dist import get_world_size
from mmengine.logging import print_log
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from seg.engine.nested import Place, as_bytes
from seg.errors import UserError

State = dict[int, dict[str, Any]]  # of an optimizer: what it keeps of each parameter, by its number


def shard_optimizer(optimizer: Optimizer) -> Optimizer:
    """`optimizer`, which has not stepped yet, with its state spread over the ranks; itself where there is one process.

    Raises UserError where FSDP shards the parameters already, and for parameters of several types.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group['params']]
    if any(isinstance(parameter, DTensor) for parameter in parameters):
        raise UserError(
            'optim_wrapper.zero=True with model_wrapper_cfg.type=FullyShardedDataParallel: FSDP shards the '
            "optimizer's state with the parameters already; leave out zero"
        )
    types = sorted({str(parameter.dtype) for parameter in parameters})
    if len(types) > 1:
        raise UserError(f'optim_wrapper.zero=True needs parameters of one type, and the model has {", ".join(types)}')
    if get_world_size() == 1:
        print_log(
            "optim_wrapper.zero: one process, so the optimizer's state is whole; the checkpoint is the same", 'current'
        )
        return optimizer
    return ShardedOptimizer(optimizer)


class ShardedOptimizer(ZeroRedundancyOptimizer):
    """torch's, whose state dict is the one of the unsharded optimizer, on any number of ranks."""

    optim: Optimizer

    def __init__(self, optimizer: Optimizer) -> None:
        taken = inspect.signature(type(optimizer)).parameters
        arguments = {name: value for name, value in optimizer.defaults.items() if name in taken}
        groups = [dict(group) for group in optimizer.param_groups]
        super().__init__(groups, optimizer_class=type(optimizer), **arguments)
        self.defaults = dict(optimizer.defaults)

    def state_dict(self) -> dict[str, Any]:
        """On the first rank the whole state, on the CPU; on the others the parameter groups alone.

        Every rank must call it: the state travels to the first rank and is held there, in host memory, while it is written.
        """
        whole = Optimizer.state_dict(self)
        whole['state'] = dict(sorted(_on_first(self._own_state()).items()))
        return whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's share of an unsharded state; `state_dict` stays as it is."""
        order = self._global_index()
        own = [parameter for group in self.optim.param_groups for parameter in group['params']]
        saved = {place: state_dict['state'].get(order[parameter]) for place, parameter in enumerate(own)}
        local = {place: state for place, state in saved.items() if state is not None}
        self.optim.load_state_dict({**self.optim.state_dict(), 'state': local})
        for group, local_group, given in zip(
            self.param_groups, self.optim.param_groups, state_dict['param_groups'], strict=True
        ):
            options = {key: value for key, value in given.items() if key != 'params'}
            group.update(options)
            local_group.update(options)

    def _own_state(self) -> State:
        order = self._global_index()
        return {order[parameter]: dict(state) for parameter, state in self.optim.state.items()}

    def _global_index(self) -> dict[torch.Tensor, int]:
        """Each parameter's place in the unsharded optimizer."""
        parameters = (parameter for group in self.param_groups for parameter in group['params'])
        return {parameter: index for index, parameter in enumerate(parameters)}


def _on_first(own: State) -> State:
    """On the first rank the states of all ranks, on the CPU; {} on the others.

    Tensors travel one by one, as bytes: pickled they would take seconds where this takes a fraction of one.
    """
    first = dist.get_rank() == 0
    rows: list[Any] = [None] * dist.get_world_size()
    dist.gather_object(_changed(own, _place_of), rows if first else None)
    if not first:
        _changed(own, lambda value: _send(value) if isinstance(value, torch.Tensor) else value)
        return {}
    found = _changed(own, lambda value: value.cpu() if isinstance(value, torch.Tensor) else value)
    for rank, row in enumerate(rows[1:], start=1):
        found.update(_changed(row, partial(_receive, rank)))
    return found


def _changed(states: State, change: Callable[[Any], Any]) -> State:
    return {index: {name: change(value) for name, value in state.items()} for index, state in states.items()}


def _place_of(value: Any) -> Any:
    return Place.of(value) if isinstance(value, torch.Tensor) else value


def _send(tensor: torch.Tensor) -> None:
    if tensor.numel():
        dist.send(as_bytes(tensor.cpu().contiguous()), dst=0)


def _receive(rank: int, value: Any) -> Any:
    if not isinstance(value, Place):
        return value
    tensor = value.empty()
    if tensor.numel():
        dist.recv(as_bytes(tensor), src=rank)
    return tensor
