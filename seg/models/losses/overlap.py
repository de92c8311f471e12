"""What Dice and Tversky share: per-class overlaps of probabilities with labels, per image or over the global batch."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from seg.errors import UserError
from seg.models.losses.base import SegLoss
from seg.models.reduce import all_reduce_sum


class Overlap(NamedTuple):
    """Sums over valid pixels, each (images or 1, classes): of probability · truth, probability^exponent, truth."""

    both: Tensor
    predicted: Tensor
    true: Tensor


class OverlapLoss(SegLoss):
    """The mean over classes (weighted by `class_weight`) of `class_losses`, then

    per='image': over the images that have a valid pixel; a function of the global batch alone.
    per='batch': overlaps pooled over the micro-batches that all ranks run at the same time; the mean over
    accumulated micro-batches, so it does depend on how a batch is cut into those. While not training, ranks may run
    unequal numbers of batches, so nothing can be pooled: it is then computed per image.

    Softmax over the channels, sigmoid for num_classes=1. `include_background=False` leaves class 0 out.
    `smooth` (in pixels) is added above and below the fraction: an empty image costs nothing where nothing is predicted.
    """

    exponent = 1.0

    def __init__(
        self,
        per: str = 'image',
        smooth: float = 1.0,
        include_background: bool = True,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        kind = type(self).__name__
        if per not in ('image', 'batch'):
            raise UserError(f"{kind}: per={per!r}: expected 'image' or 'batch'.")
        if not smooth >= 0:
            raise UserError(f'{kind}: smooth={smooth!r}: expected a number of pixels from 0 up.')
        self.per, self.smooth, self.include_background = per, smooth, include_background

    def class_losses(self, overlap: Overlap) -> Tensor:
        """(images or 1, classes), each 0 (perfect) to 1."""
        raise NotImplementedError

    def check(self, num_classes: int) -> None:
        if num_classes == 1 and self.class_weight is not None:
            raise UserError(
                f'{type(self).__name__}: class_weight has no meaning for num_classes=1: one class is scored.'
            )
        super().check(num_classes)
        if not self.include_background and self.class_weight is not None and not self.class_weight[1:].any():
            raise UserError(f'{type(self).__name__}: include_background=False leaves no class with a class_weight.')

    def normaliser(self, labels_NHW: Tensor) -> Tensor:
        if self._pools:
            return torch.ones((), dtype=torch.float64, device=labels_NHW.device)
        return self._images_that_count(labels_NHW).sum(dtype=torch.float64)

    def total(self, logits_NCHW: Tensor, labels_NHW: Tensor) -> Tensor:
        overlap = self._overlap(logits_NCHW, labels_NHW)
        if self._pools:
            pooled = all_reduce_sum(torch.stack(overlap).sum(1, keepdim=True))
            return self._mean_over_classes(self.class_losses(Overlap(*pooled))).sum()
        return self._mean_over_classes(self.class_losses(overlap)).sum()  # 0 where nothing is valid

    def fraction(self, above: Tensor, below: Tensor) -> Tensor:
        """Smoothed; 1 where it is 0 / 0, as in a class that is neither there nor predicted."""
        above, below = above + self.smooth, below + self.smooth
        empty = below == 0
        return torch.where(empty, 1.0, above / torch.where(empty, 1.0, below))

    @property
    def _pools(self) -> bool:
        return self.per == 'batch' and self.training

    def _images_that_count(self, labels_NHW: Tensor) -> Tensor:
        return self.valid(labels_NHW).flatten(1).any(1)

    def _overlap(self, logits_NCHW: Tensor, labels_NHW: Tensor) -> Overlap:
        channels = logits_NCHW.shape[1]
        chance = logits_NCHW.sigmoid() if channels == 1 else logits_NCHW.softmax(1)
        classes = torch.arange(channels, device=labels_NHW.device) if channels > 1 else labels_NHW.new_ones(1)
        truth = labels_NHW.unsqueeze(1) == classes.view(1, -1, 1, 1)  # never true where ignored
        valid = self.valid(labels_NHW).unsqueeze(1)
        powered = chance if self.exponent == 1 else chance**self.exponent
        return Overlap(
            torch.where(truth, chance, 0.0).flatten(2).sum(2),
            torch.where(valid, powered, 0.0).flatten(2).sum(2),
            truth.flatten(2).sum(2).to(chance.dtype),
        )

    def _mean_over_classes(self, losses: Tensor) -> Tensor:
        """(images or 1, classes) -> (images or 1)."""
        weights = torch.ones_like(losses[0]) if self.class_weight is None else self.class_weight.to(losses.dtype)
        if not self.include_background and losses.shape[1] > 1:
            losses, weights = losses[:, 1:], weights[1:]
        return (losses * (weights / weights.sum())).sum(1)
