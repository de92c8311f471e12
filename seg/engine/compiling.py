"""torch.compile of the network in place: the state dict keeps its keys, and validation is compiled too (D5)."""

import logging
from typing import Any

from torch import nn

from seg.errors import UserError

BACKEND = 'inductor'


def compile_network(segmentor: Any, option: bool | dict | None, logger: logging.Logger) -> None:
    """`option` is the config's `compile`: falsy for none, True, or a dict of torch.compile's arguments."""
    if not option:
        return
    if not isinstance(option, (bool, dict)):
        raise UserError(f'compile is {option!r}; expected True, False or a dict of torch.compile arguments')
    network: nn.Module = getattr(segmentor, 'network', segmentor)
    # Shapes are compiled one by one: on torch 2.14 the backward of a UNet fails with symbolic ones.
    network.compile(**{'dynamic': False, 'backend': BACKEND, **(option if isinstance(option, dict) else {})})
    logger.info('The network is compiled at its first step, which takes a while')
