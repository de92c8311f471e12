"""Norm and activation layers from their configs: `dict(type='BN')`, `dict(type='GN', num_groups=8)`, None."""

import inspect
from functools import lru_cache
from typing import Any

import mmcv.cnn
from mmengine.logging import print_log
from torch import nn

from seg.errors import UserError
from seg.models.norm import SyncBatchNorm
from seg.models.reduce import world_size
from seg.registry import MODELS


def build_norm(cfg: dict[str, Any] | None, channels: int) -> nn.Module:
    """For NCHW. `requires_grad=False` in `cfg` freezes it. None: the identity."""
    if cfg is None:
        return nn.Identity()
    kind = _layer_class('norm_cfg', cfg, "'BN', 'SyncBN', 'GN' (with num_groups), 'IN', or norm_cfg=None")
    if issubclass(kind, nn.LayerNorm):
        raise UserError(f"norm_cfg={cfg}: LayerNorm normalises W of NCHW, not C. Use dict(type='GN', num_groups=1).")
    if issubclass(kind, nn.GroupNorm) and (not cfg.get('num_groups') or channels % cfg['num_groups']):
        raise UserError(
            f'norm_cfg={cfg}: GroupNorm needs num_groups, a divisor of {channels}, the channels of one of the layers.'
        )
    if issubclass(kind, SyncBatchNorm) and world_size() == 1:
        _say_that_nothing_is_synchronised()
    return mmcv.cnn.build_norm_layer({**cfg, 'type': kind}, channels)[1]


def build_activation(cfg: dict[str, Any] | None) -> nn.Module:
    """In place where the layer can be and `cfg` does not say otherwise. None: the identity."""
    if cfg is None:
        return nn.Identity()
    kind = _layer_class('act_cfg', cfg, "'ReLU', 'LeakyReLU', 'PReLU', 'ELU', 'GELU', 'SiLU', 'HSwish', or None")
    options = {key: value for key, value in cfg.items() if key != 'type'}
    if 'inplace' in inspect.signature(kind).parameters:
        options.setdefault('inplace', True)
    return kind(**options)


def _layer_class(key: str, cfg: dict[str, Any], known: str) -> type[nn.Module]:
    """mmcv and MMEngine register the layers' short names in MMEngine's registry, the parent of ours."""
    given = cfg.get('type')
    kind = MODELS.get(given) if isinstance(given, str) else given
    if not (inspect.isclass(kind) and issubclass(kind, nn.Module)):
        raise UserError(f'{key}={cfg}: type {given!r} is not a known layer. Known, among others: {known}.')
    return kind


@lru_cache(maxsize=1)
def _say_that_nothing_is_synchronised() -> None:
    print_log('SyncBN in a run of one process is plain BatchNorm; checkpoints are the same either way.', 'current')
