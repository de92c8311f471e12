"""Label maps on the device."""

import torch
from torch import Tensor

IGNORE_INDEX = 255  # in every uint8 label map


def shrink_labels(labels: Tensor, size_px: tuple[int, int]) -> Tensor:
    """(..., H, W) labels at another (height, width) by exact nearest: each pixel takes the label under its centre.

    The centre of output row i lies at (i + 1/2) · H / h, in row floor((2i + 1) · H / 2h), worked out in integers; the
    'nearest' of torch and OpenCV is off by half a source pixel.
    """
    if labels.shape[-2:] == torch.Size(size_px):
        return labels
    rows, columns = (_under_centres(labels.shape[axis], size_px[axis], labels.device) for axis in (-2, -1))
    return labels.index_select(-2, rows).index_select(-1, columns)


def _under_centres(source: int, target: int, device: torch.device) -> Tensor:
    return (2 * torch.arange(target, device=device) + 1) * source // (2 * target)
