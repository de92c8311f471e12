"""Where to compute, and in which precision."""

import torch
from mmengine.device import get_device

from seg.engine.precision import autocast
from seg.errors import UserError


def choose_device(name: str | None) -> torch.device:
    """'cpu', 'cuda', 'cuda:1', ... or, for None and 'auto', the best that is here.

    Raises UserError for one that is not here.
    """
    if name in (None, 'auto'):
        return torch.device(get_device())
    try:
        device = torch.device(str(name))
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        count = torch.cuda.device_count()
        raise UserError(
            f'--device {name}: expected cpu, cuda, cuda:N or auto; there are {count} GPUs here '
            f'({str(error).splitlines()[0]})'
        ) from error
    return device


def usable_precision(precision: str, device: torch.device) -> str:
    """`precision`, or 'fp32' where the device cannot compute in it."""
    if device.type == 'cuda' and precision == 'bf16' and not torch.cuda.is_bf16_supported():
        return 'fp32'
    try:
        with torch.no_grad(), autocast(precision, device):
            torch.nn.functional.conv2d(torch.ones(1, 1, 1, 1, device=device), torch.ones(1, 1, 1, 1, device=device))
    except RuntimeError:
        return 'fp32'
    return precision
