"""From a built model to one that can train here: device, memory format, BatchNorm, checkpointing, the wrapper."""

import logging
from typing import Any

import torch
from mmengine.device import get_device
from mmengine.dist import get_world_size
from torch import nn

from seg.engine.wrappers import fsdp
from seg.engine.wrappers.activation_checkpointing import turn_on_activation_checkpointing
from seg.engine.wrappers.data_parallel import wrap_data_parallel
from seg.errors import UserError
from seg.models.norm import convert_sync_batchnorm
from seg.registry import MODEL_WRAPPERS


def wrap_model(model: nn.Module, wrapper: dict | None, config: Any, logger: logging.Logger) -> nn.Module:
    """`config` is the run's: its keys `sync_bn`, `activation_checkpointing` and `find_unused_parameters` apply."""
    kind = (wrapper or {}).get('type')
    sharded = fsdp.is_wanted(dict(model_wrapper_cfg=wrapper))
    if not sharded:
        model = _on_device(model)
    if config.get('sync_bn') and kind != 'DataParallel':
        model = _synchronise_batchnorm(model, logger)
    modules = config.get('activation_checkpointing')
    if modules:
        turn_on_activation_checkpointing(model, modules)
    if kind == 'DataParallel':
        return wrap_data_parallel(model, wrapper or {}, config, logger)
    if get_world_size() == 1:
        if kind == fsdp.NAME:
            logger.info(f'{kind}: one process, so nothing is sharded and checkpoints are plain files')
        return model
    if sharded:
        return fsdp.wrap_fully_sharded(model, wrapper or {}, config, logger)
    return _wrap(model, {'find_unused_parameters': bool(config.get('find_unused_parameters')), **(wrapper or {})})


def _on_device(model: nn.Module) -> nn.Module:
    memory_format = getattr(getattr(model, 'data_preprocessor', None), 'memory_format', torch.contiguous_format)
    return model.to(get_device()).to(memory_format=memory_format)


def _synchronise_batchnorm(model: nn.Module, logger: logging.Logger) -> nn.Module:
    if get_world_size() == 1:
        logger.info(
            'sync_bn: one process, so BatchNorm is synchronised as it is; the checkpoint is the same either way'
        )
        return model
    return convert_sync_batchnorm(model)


def _wrap(model: nn.Module, arguments: dict) -> nn.Module:
    arguments.setdefault('type', 'DistributedDataParallel')
    try:
        return MODEL_WRAPPERS.build(arguments, default_args=dict(module=model))
    except TypeError as error:
        raise UserError(f'model_wrapper_cfg={arguments} does not fit {arguments["type"]}: {error}') from error
