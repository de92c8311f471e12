"""Precision by one name: which autocast a run computes under, in training, validation and inference alike."""

from contextlib import AbstractContextManager, nullcontext

import torch

from seg.errors import UserError

DTYPES = {'fp32': torch.float32, 'bf16': torch.bfloat16, 'fp16': torch.float16}
_ALIASES = {'bfloat16': 'bf16', 'float16': 'fp16', 'float32': 'fp32'}


def precision_name(value: str | torch.dtype) -> str:
    """'fp32', 'bf16' or 'fp16' for any spelling of it.

    Raises UserError for another one.
    """
    text = str(value).removeprefix('torch.')
    name = _ALIASES.get(text, text)
    if name not in DTYPES:
        raise UserError(f'optim_wrapper.dtype is {value!r}; expected one of bfloat16, float16, float32')
    return name


def autocast(precision: str, device: torch.device | str) -> AbstractContextManager:
    """The context that computes under `precision` on `device`: torch.autocast, or nothing for fp32."""
    if precision == 'fp32':
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=DTYPES[precision])


def default_amp() -> str:
    """What a bare `--amp` means here: bf16 where the device computes in it, else fp16."""
    if torch.cuda.is_available() and not torch.cuda.is_bf16_supported():
        return 'fp16'
    return 'bf16'
