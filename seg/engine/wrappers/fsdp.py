"""FSDP2: weights, gradients and optimizer state in pieces, by `model_wrapper_cfg=dict(type='FullyShardedDataParallel')`.

Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", arXiv:2304.11277, by torch's
`fully_shard`. The model is cut into units; a unit's weights are gathered before it runs and let go after it. Gradients
are averaged over the ranks as DDP's are, so a step is the one of DDP to rounding. docs/sharding.md says when it pays.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

import torch
import torch.distributed as dist
from mmengine.device import get_device
from mmengine.dist import get_world_size
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

from seg.engine.precision import DTYPES, precision_name
from seg.engine.wrappers.activation_checkpointing import matching_modules
from seg.engine.wrappers.sharded_state import take_whole_tensors
from seg.errors import UserError
from seg.registry import MODEL_WRAPPERS

NAME = 'FullyShardedDataParallel'


def is_fully_sharded(model: nn.Module) -> TypeGuard['FullyShardedDataParallel']:
    """Whether `model` is one that `FullyShardedDataParallel` has cut."""
    return isinstance(model, FullyShardedDataParallel)


def is_wanted(config: Any) -> bool:
    """Whether a run of this config on this number of processes is one in pieces."""
    return (config.get('model_wrapper_cfg') or {}).get('type') == NAME and get_world_size() > 1


def refuse(model: nn.Module, what: str, instead: str) -> None:
    """Raise UserError where `what`, which reads whole weights or gradients on a rank, meets a model in pieces."""
    if is_fully_sharded(model):
        raise UserError(
            f'{what} does not go with model_wrapper_cfg.type={NAME}, which keeps no rank a whole: {instead}'
        )


def wrap_fully_sharded(model: Any, arguments: dict, config: Any, logger: logging.Logger) -> nn.Module:
    """`model`, still on the CPU, cut over all ranks; a unit at a time goes to the device."""
    if config.get('optim_wrapper') and hasattr(model, 'init_weights'):
        model.init_weights()  # random numbers for whole weights: pieces would draw others
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, src=0)
    wrapped = MODEL_WRAPPERS.build(dict(arguments, module=model))
    wrapped.module.set_reduce_scatter_unused_params(bool(config.get('find_unused_parameters')))
    sizes = [sum(p.numel() for p in unit.parameters()) for unit in wrapped.units.values()]
    logger.info(
        f'{NAME}: {sum(p.numel() for p in model.parameters())} parameters over {get_world_size()} processes in '
        f'{len(sizes)} units of up to {max(sizes, default=0)} and the rest. Validation gathers the weights whole'
    )
    return wrapped


@MODEL_WRAPPERS.register_module(name=NAME)
class FullyShardedDataParallel(nn.Module):
    """`module` in pieces: its parameters become DTensors, in place, and so do gradients and optimizer state.

    `units` are patterns of dotted names as in `activation_checkpointing`; by default the outermost members of module
    lists, which are a UNet's blocks. What is in none of them is gathered for the whole step. `reshard_after_forward=False`
    keeps a unit's weights from its forward to its backward: more memory, less traffic. Gradients travel in
    `reduce_dtype`, in the weights' own type by default.

    In eval mode the weights are whole on every rank, since ranks validate unequal numbers of batches; `train()` lets
    them go.
    """

    module: Any

    def __init__(
        self,
        module: nn.Module,
        units: str | Sequence[str] | None = None,
        reshard_after_forward: bool = True,
        reduce_dtype: str | None = None,
    ) -> None:
        super().__init__()
        _check_version()
        self._whole = False
        names = default_units(module) if units is None else matching_modules(module, units, 'model_wrapper_cfg.units')
        modules = dict(module.named_modules())
        _refuse_lists([modules[name] for name in names])
        self.units: dict[str, Any] = {name: modules[name] for name in names}
        self.reshard_after_forward = reshard_after_forward
        self.mesh = init_device_mesh(torch.device(get_device()).type, (get_world_size(),))
        shared: dict[str, Any] = dict(
            mesh=self.mesh,
            mp_policy=MixedPrecisionPolicy(reduce_dtype=_dtype(reduce_dtype), cast_forward_inputs=False),
        )
        for name in sorted(names, key=lambda name: -name.count('.')):  # what is inside another comes first
            fully_shard(modules[name], reshard_after_forward=reshard_after_forward, **shared)
        self.module = fully_shard(module, reshard_after_forward=False, **shared)
        self.module.register_load_state_dict_pre_hook(take_whole_tensors)
        if hasattr(module, 'data_preprocessor'):
            self.module.data_preprocessor.to(get_device())
        if hasattr(module, 'evaluate'):
            register_fsdp_forward_method(self.module, 'evaluate')

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of a backward in here stay with their rank, whole, and count in the next one outside."""
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.module.set_requires_gradient_sync(True)

    def train(self, mode: bool = True) -> 'FullyShardedDataParallel':
        """Every rank must call it."""
        super().train(mode)
        if mode:
            self.let_go()
        else:
            self._gather()
        return self

    def let_go(self) -> None:
        """Of the weights that eval mode has gathered."""
        if not self._whole:
            return
        for part in self._parts():
            part.set_reshard_after_forward(self.reshard_after_forward and part is not self.module, recurse=False)
            part.reshard()
        # torch gathers ahead in a backward by the order of all forwards since the last one, and ranks validate unequal
        # numbers of batches: they would gather unlike each other, and wait for ever.
        self.module.reset_iter_state()
        self._whole = False

    def _gather(self) -> None:
        for part in self._parts():
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()
        self._whole = True

    def _parts(self) -> list[FSDPModule]:
        return [part for part in self.module.modules() if isinstance(part, FSDPModule)]


def default_units(module: nn.Module) -> list[str]:
    """The names of the members of module lists and sequences that are made of modules, but for those within others."""
    found: list[str] = []
    for name, child in module.named_modules():
        inside = any(name.startswith(f'{outer}.') for outer in found)
        if isinstance(child, nn.ModuleList | nn.Sequential) and not inside:
            blocks = [key for key, member in child.named_children() if list(member.children()) and has_weights(member)]
            found += [f'{name}.{key}' if name else key for key in blocks]
    return found


def has_weights(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _check_version() -> None:
    if not hasattr(FSDPModule, 'reset_iter_state'):
        raise UserError(f'model_wrapper_cfg.type={NAME} needs torch 2.14 or newer; this is {torch.__version__}')


def _refuse_lists(units: list[nn.Module]) -> None:
    for unit in units:
        if isinstance(unit, nn.ModuleList | nn.ModuleDict):
            raise UserError(
                f'model_wrapper_cfg.units: a {type(unit).__name__} is never run itself; name its children by ".*"'
            )


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    try:
        return DTYPES[precision_name(name)]
    except UserError:
        raise UserError(f'model_wrapper_cfg.reduce_dtype is {name!r}; expected float32, bfloat16 or float16') from None
