"""The confusion matrix and every score that is read off it.

A score is None where its own denominator is 0, and means skip None. The matrix and the per-image sums are integers, so
that no order, batch size or number of ranks moves a bit of them.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seg.datasets.io import IGNORE_INDEX

SCORES = ('aAcc', 'mIoU', 'mDice', 'mAcc', 'imDice', 'imIoU')
CLASS_SCORES = ('IoU', 'Dice', 'Acc', 'Precision')

FIXED_ONE = 2**40
"""A score of 1 in fixed point: int64 holds the sum over 8 million images."""

UNDEFINED = -1
"""The fixed-point score of an image that has none."""


def count_pairs(pred_HW: Tensor, label_HW: Tensor, num_classes: int) -> Tensor:
    """How often each pair (truth, prediction) occurs in one image, without waiting for the device.

    Shape (C*C + 2,), int64: the CxC matrix row by row (rows truth, columns prediction), then the ignored pixels, then
    the pixels whose truth or prediction is no class.
    """
    # Counting all 256 x 256 pairs of bytes first takes a third of the time of telling the pixels apart first.
    pairs = label_HW.to(torch.int32, copy=True).mul_(256).add_(pred_HW).flatten()
    table = _count(pairs, 256 * 256).view(256, 256)
    matrix, ignored = table[:num_classes, :num_classes], table[IGNORE_INDEX].sum()
    no_class = label_HW.numel() - matrix.sum() - ignored
    return torch.cat([matrix.flatten(), ignored[None], no_class[None]])


def _count(values: Tensor, size: int) -> Tensor:
    if values.device.type == 'cpu':
        return torch.bincount(values, minlength=size)
    # On a GPU bincount reads its largest value back to the host, to size its output.
    return count_by_scatter(values, size)


def count_by_scatter(values: Tensor, size: int) -> Tensor:
    """How often each of 0..size-1 occurs in `values`: bincount, without a look at the values."""
    counts = torch.zeros(size, dtype=torch.int64, device=values.device)
    return counts.scatter_add_(0, values.long(), torch.ones_like(values, dtype=torch.int64))


def image_scores(matrices_NCC: Tensor) -> Tensor:
    """Each image's own Dice (row 0) and IoU (row 1) in fixed point: shape (2, N), int64, on the matrices' device.

    For two classes the foreground's (class 1); for more the mean over the classes that the image's truth or prediction
    has. UNDEFINED where there are none.
    """
    hits = matrices_NCC.diagonal(dim1=1, dim2=2)
    total = matrices_NCC.sum(dim=1) + matrices_NCC.sum(dim=2)
    if matrices_NCC.shape[1] == 2:
        hits, total = hits[:, 1:], total[:, 1:]
    return torch.stack([_mean_fixed(2 * hits, total), _mean_fixed(hits, total - hits)])


def _mean_fixed(numerators_NC: Tensor, denominators_NC: Tensor) -> Tensor:
    """The mean over C of the quotients whose denominator is not 0, in fixed point; UNDEFINED where there are none."""
    quotients = numerators_NC.double() / denominators_NC.clamp(min=1).double()
    fixed = torch.round(quotients * FIXED_ONE).long()
    count = (denominators_NC > 0).sum(dim=1)
    twice = 2 * count.clamp(min=1)
    means = torch.div(2 * fixed.sum(dim=1) + count, twice, rounding_mode='floor')
    return torch.where(count > 0, means, UNDEFINED)


def sum_fixed(fixed_N: Tensor) -> Tensor:
    """(sum, count) of the fixed-point scores that are defined, int64."""
    defined = fixed_N >= 0
    return torch.stack([fixed_N.clamp(min=0).sum(), defined.sum()])


def mean_from_sum(total: int, count: int) -> float | None:
    """The mean score behind a fixed-point sum over `count` images."""
    return total / (count * FIXED_ONE) if count else None


def score_from_fixed(fixed: int) -> float | None:
    """The score behind one fixed-point value."""
    return None if fixed == UNDEFINED else fixed / FIXED_ONE


def class_scores(matrix: Sequence[Sequence[int]]) -> list[dict[str, float | None]]:
    """IoU, Dice, Acc (recall) and Precision of each class, fractions in 0..1."""
    scores = []
    for i, row in enumerate(matrix):
        hits, truth, predicted = row[i], sum(row), sum(other[i] for other in matrix)
        scores.append(
            dict(
                IoU=_ratio(hits, truth + predicted - hits),
                Dice=_ratio(2 * hits, truth + predicted),
                Acc=_ratio(hits, truth),
                Precision=_ratio(hits, predicted),
            )
        )
    return scores


def scores_from_matrix(matrix: Sequence[Sequence[int]], names: Sequence[str]) -> dict[str, Any]:
    """aAcc, mIoU, mDice, mAcc, and `per_class: {name: {IoU, Dice, Acc, Precision}}`, fractions in 0..1."""
    per_class = class_scores(matrix)
    return dict(
        aAcc=_ratio(sum(row[i] for i, row in enumerate(matrix)), sum(map(sum, matrix))),
        mIoU=_mean([scores['IoU'] for scores in per_class]),
        mDice=_mean([scores['Dice'] for scores in per_class]),
        mAcc=_mean([scores['Acc'] for scores in per_class]),
        per_class=dict(zip(names, per_class)),
    )


def _ratio(numerator: int, denominator: int) -> float | None:
    return numerator / denominator if denominator else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
