"""What every loss is: a sum over pixels or images, divided by what the whole global batch has of them.

Ignored pixels are spread unevenly over the ranks, so a mean of each rank's mean is not the mean. Instead each
micro-batch's labels say what they add to the denominator (`normaliser`), the engine sums that over micro-batches and
ranks, and `forward` gives the micro-batch's share of the global loss; the shares add up to it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seg.errors import UserError
from seg.models.reduce import at_least_float32


class SegLoss(nn.Module):
    """Base of the losses. A subclass has `default_name`, `normaliser`, `total` and, where it is choosy, `check`.

    `weight`: the factor in the model's sum of losses. `name`: the logged key is `loss_<name>`.
    `class_weight`: one factor a class (background and foreground where the model has one sigmoid channel).
    """

    default_name = 'loss'

    def __init__(
        self,
        weight: float = 1.0,
        name: str | None = None,
        ignore_index: int = 255,
        class_weight: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.weight, self.name, self.ignore_index = weight, name or self.default_name, ignore_index
        self.class_weight: Tensor | None
        # float64, so that weights such as 0.1 are the same in a float64 model; not the checkpoint's business
        self.register_buffer('class_weight', self._class_weights(class_weight), persistent=False)

    def normaliser(self, labels_NHW: Tensor) -> Tensor:
        """What these labels add to the denominator: 0-d float64."""
        raise NotImplementedError

    def total(self, logits_NCHW: Tensor, labels_NHW: Tensor) -> Tensor:
        """The sum before division: 0-d. Logits are at least float32, without autocast."""
        raise NotImplementedError

    def check(self, num_classes: int) -> None:
        """Raise UserError where this loss cannot train a model of `num_classes`."""
        self.check_class_weight(max(2, num_classes))

    def forward(self, logits_NCHW: Tensor, labels_NHW: Tensor, normaliser: Tensor) -> Tensor:
        """The share: `total` / `normaliser`, 0 where that is 0. Labels: uint8, `ignore_index` where nothing counts."""
        with torch.autocast(logits_NCHW.device.type, enabled=False):
            total = self.total(at_least_float32(logits_NCHW), labels_NHW)
            return total / torch.where(normaliser == 0, 1.0, normaliser).to(total.dtype)

    def valid(self, labels_NHW: Tensor) -> Tensor:
        return labels_NHW != self.ignore_index

    def check_class_weight(self, count: int) -> None:
        if self.class_weight is not None and len(self.class_weight) != count:
            raise UserError(
                f'{type(self).__name__}: class_weight has {len(self.class_weight)} values, expected {count}, one a '
                'class (for num_classes=1: background, foreground).'
            )

    def _class_weights(self, given: Any) -> Tensor | None:
        if given is None:
            return None
        try:
            weights = torch.tensor(given, dtype=torch.float64)
        except (TypeError, ValueError):
            weights = torch.empty(0)
        if weights.dim() != 1 or not (weights.isfinite() & (weights >= 0)).all() or not weights.sum() > 0:
            raise UserError(
                f'{type(self).__name__}: class_weight={given!r}: expected a list of finite numbers, none negative, not '
                "all 0 ('auto' is worked out from the training set before a run)."
            )
        return weights


class PixelLoss(SegLoss):
    """The mean over the pixels that count, each weighted by its own class's weight."""

    def normaliser(self, labels_NHW: Tensor) -> Tensor:
        weight = self.pixel_weight(labels_NHW)
        return weight.sum(dtype=torch.float64)

    def pixel_weight(self, labels_NHW: Tensor) -> Tensor:
        """NHW: the class's weight, 0 where ignored; without class weights the valid pixels as booleans."""
        valid = self.valid(labels_NHW)
        if self.class_weight is None:
            return valid
        index = labels_NHW.flatten().int().clamp_max(len(self.class_weight) - 1)
        return self.class_weight.index_select(0, index).view(labels_NHW.shape) * valid

    def weighted_sum(self, values_NHW: Tensor, labels_NHW: Tensor) -> Tensor:
        return (values_NHW * self.pixel_weight(labels_NHW).to(values_NHW.dtype)).sum()
