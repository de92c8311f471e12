"""Logits at full size, some rows at a time: all classes of a whole photograph at once do not fit."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from seg.models.reduce import at_least_float32

BAND_VALUES = 2**22  # of a band: 16 MiB in float32


def row_bands(logits_CHW: Tensor, size_px: tuple[int, int], band_values: int = BAND_VALUES) -> Iterator[Tensor]:
    """The logits grown (or shrunk) to (height, width), as (C, rows, width) bands from top to bottom, in at least float32.

    Bilinear with pixel centres aligned, as F.interpolate(mode='bilinear', align_corners=False).
    """
    height, width = size_px
    rows = max(1, band_values // (len(logits_CHW) * width))
    above, below, share = _source_rows(logits_CHW, height)
    for band in (slice(start, start + rows) for start in range(0, height, rows)):
        if logits_CHW.shape[1] == height:
            grown = at_least_float32(logits_CHW[:, band])
        else:
            top = at_least_float32(logits_CHW.index_select(1, above[band]))
            grown = top.lerp(at_least_float32(logits_CHW.index_select(1, below[band])), share[band].unsqueeze(1))
        if grown.shape[2] != width:
            grown = F.interpolate(grown[None], (grown.shape[1], width), mode='bilinear', align_corners=False)[0]
        yield grown


def _source_rows(logits_CHW: Tensor, height: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each row of the result: the source row above its centre, the one below, and the share of the one below."""
    source = logits_CHW.shape[1]
    dtype = at_least_float32(logits_CHW[:0]).dtype
    centre = (torch.arange(height, device=logits_CHW.device, dtype=dtype) + 0.5) * (source / height) - 0.5
    centre = centre.clamp_min(0)
    above = centre.long().clamp_max(source - 1)
    return above, (above + 1).clamp_max(source - 1), centre - above
