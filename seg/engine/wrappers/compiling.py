"""torch.compile of the network in place: the state dict keeps its keys, and validation is compiled too (D5)."""

import logging

from torch import nn

from seg.engine.step import unwrap
from seg.engine.wrappers.fsdp import is_fully_sharded
from seg.errors import UserError

BACKEND = 'inductor'


def compile_network(model: nn.Module, option: bool | dict | None, logger: logging.Logger) -> None:
    """`option` is the config's `compile`: falsy for none, True, or a dict of torch.compile's arguments.

    `model` may be wrapped. What FSDP has cut is compiled unit by unit: torch cannot look through the hooks between them.
    """
    if not option:
        return
    if not isinstance(option, (bool, dict)):
        raise UserError(f'compile is {option!r}; expected True, False or a dict of torch.compile arguments')
    # Shapes are compiled one by one: on torch 2.14 the backward of a UNet fails with symbolic ones.
    options = {'dynamic': False, 'backend': BACKEND, **(option if isinstance(option, dict) else {})}
    for part in _parts(model):
        part.compile(**options)
    logger.info('The network is compiled at its first step, which takes a while')


def _parts(model: nn.Module) -> list[nn.Module]:
    if is_fully_sharded(model):
        return list(model.units.values())
    bare: nn.Module = unwrap(model)
    return [getattr(bare, 'network', bare)]
