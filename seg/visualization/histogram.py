"""A tensor's values as 64 bins, counted on its device, so that a histogram costs two small copies to the host."""

from dataclasses import dataclass

import torch
from torch import Tensor

_BINS = 64


@dataclass(frozen=True)
class Histogram:
    """`counts` of the values between consecutive `edges` (one more of these)."""

    counts: list[int]
    edges: list[float]
    total: float
    total_of_squares: float


def summarise(values: Tensor) -> Histogram | None:
    """The histogram of the finite values; None where there are none. A sharded tensor counts as its local part."""
    local = values.to_local() if hasattr(values, 'to_local') else values
    flat = local.detach().flatten().float()
    finite = flat[torch.isfinite(flat)]
    if finite.numel() == 0:
        return None
    bounds = torch.stack([finite.min(), finite.max(), finite.double().sum(), finite.double().square().sum()])
    low, high, total, squares = bounds.double().tolist()
    if low == high:
        low, high = low - 0.5, high + 0.5
    index = ((finite.double() - low) * (_BINS / (high - low))).long().clamp(0, _BINS - 1)
    counts = torch.zeros(_BINS, dtype=torch.int64, device=finite.device).scatter_add_(0, index, torch.ones_like(index))
    edges = [low + (high - low) * i / _BINS for i in range(_BINS + 1)]
    return Histogram(counts.tolist(), edges, total, squares)
