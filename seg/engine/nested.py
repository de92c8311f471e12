"""Tensors in dicts, lists and tuples: changed one by one, or sent as bytes apart from what holds them.

Pickled they would be copied twice, and gloo does not know every type.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """A dict, list or tuple with `change` applied to each item; anything else as it is."""
    if isinstance(value, dict):
        return {key: change(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return (tuple if isinstance(value, tuple) else list)(map(change, value))
    return value


@dataclass(frozen=True)
class Place:
    """Stands for the tensor that follows, in what is sent as an object."""

    shape: torch.Size
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> 'Place':
        return cls(tensor.shape, tensor.dtype)

    def empty(self) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype)


def as_bytes(tensor: Tensor) -> Tensor:
    """A view of a contiguous tensor as it lies in memory."""
    return tensor.reshape(-1).view(torch.uint8)
