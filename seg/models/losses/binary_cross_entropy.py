"""Sigmoid cross entropy of one foreground channel."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from seg.errors import UserError
from seg.models.losses.base import PixelLoss
from seg.registry import MODELS


@MODELS.register_module()
class BinaryCrossEntropyLoss(PixelLoss):
    """For num_classes=1. `pos_weight` multiplies the foreground's term and, as in torch, not the denominator;
    `class_weight=[background, foreground]` enters both."""

    default_name = 'bce'

    def __init__(self, pos_weight: float = 1.0, **common: Any) -> None:
        super().__init__(**common)
        if not pos_weight > 0:
            raise UserError(f'BinaryCrossEntropyLoss: pos_weight={pos_weight!r}: expected a number above 0.')
        self.pos_weight = pos_weight

    def check(self, num_classes: int) -> None:
        if num_classes != 1:
            raise UserError(
                f'BinaryCrossEntropyLoss with num_classes={num_classes}: it trains one sigmoid channel. '
                'Use CrossEntropyLoss, or num_classes=1.'
            )
        super().check(num_classes)

    def total(self, logits_NCHW: Tensor, labels_NHW: Tensor) -> Tensor:
        foreground = (labels_NHW == 1).to(logits_NCHW.dtype)
        losses_NHW = F.binary_cross_entropy_with_logits(logits_NCHW[:, 0], foreground, reduction='none')
        if self.pos_weight != 1:
            losses_NHW = losses_NHW * (1 + (self.pos_weight - 1) * foreground)
        return self.weighted_sum(losses_NHW, labels_NHW)
