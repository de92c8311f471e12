"""Tensors in pieces (DTensors) within a run's state: gathered, cut, or taken out."""

from typing import Any

import torch
from mmengine.dist import get_rank
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from seg.engine.nested import rebuilt


def gathered(state: Any) -> Any:
    """`state` with whole tensors on the CPU of the first rank; None in their place on the others.

    Every rank must call it. One tensor at a time is whole on the others.
    """
    if isinstance(state, DTensor):
        whole = state.full_tensor().detach()
        return whole.cpu() if get_rank() == 0 else None
    return rebuilt(state, gathered)


def cut_like(whole: Tensor, own: Tensor) -> Tensor:
    """This rank's piece of `whole`, which every rank has, as `own` is cut; `whole` itself where `own` is whole."""
    if not isinstance(own, DTensor) or isinstance(whole, DTensor):
        return whole
    on_device = whole.to(own.device)
    return distribute_tensor(on_device, own.device_mesh, own.placements, src_data_rank=None)


def take_whole_tensors(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """A pre-hook of `load_state_dict`, on the outermost module: whole tensors are cut as the module's own are."""
    own = module.state_dict()
    for key, value in state_dict.items():
        if key.removeprefix(prefix) in own and isinstance(value, Tensor):
            place = own[key.removeprefix(prefix)]
            if value.shape == place.shape:  # else load_state_dict has something to say
                state_dict[key] = cut_like(value, place)


def cut_optimizer_state(state_dict: dict[str, Any], optimizer: Optimizer) -> dict[str, Any]:
    """An optimizer's state with its tensors cut as the parameters are that they belong to; itself where none is."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group['params']]
    if not any(isinstance(parameter, DTensor) for parameter in parameters):
        return state_dict
    state = {
        index: {key: _cut_value(value, parameters[index]) for key, value in values.items()}
        for index, values in state_dict['state'].items()
    }
    return {**state_dict, 'state': state}


def _cut_value(value: Any, parameter: Tensor) -> Any:
    """Numbers, such as the count of steps, are whole everywhere."""
    return cut_like(value, parameter) if isinstance(value, Tensor) and value.dim() else value


Path = tuple[str, ...]


def outline_of(state: Any) -> Any:
    """`state` with a tensor on the device 'meta', which has a shape and no numbers, in the place of each in pieces."""
    if isinstance(state, DTensor):
        return torch.empty(state.shape, dtype=state.dtype, device='meta')
    return rebuilt(state, outline_of)


def places(state: Any, kind: Any, path: Path = ()) -> dict[str, Tensor]:
    """The tensors in `state` that `kind(tensor)` is true for, by their place in it: 'optimizer/state/3/exp_avg'."""
    if isinstance(state, Tensor):
        return {'/'.join(path): state} if kind(state) else {}
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, (list, tuple)) else ()
    found: dict[str, Tensor] = {}
    for key, item in items:
        found.update(places(item, kind, (*path, str(key))))
    return found


def filled(outline: Any, tensors: dict[str, Tensor], path: Path = ()) -> Any:
    """The inverse of `outline_of`: `tensors` by their place in the place of those without numbers."""
    if isinstance(outline, Tensor):
        return tensors.get('/'.join(path), outline)
    if isinstance(outline, dict):
        return {key: filled(item, tensors, (*path, str(key))) for key, item in outline.items()}
    if isinstance(outline, (list, tuple)):
        return type(outline)(filled(item, tensors, (*path, str(place))) for place, item in enumerate(outline))
    return outline
