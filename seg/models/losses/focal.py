"""Focal loss: Lin et al., "Focal Loss for Dense Object Detection", arXiv:1708.02002."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seg.errors import UserError
from seg.models.losses.base import PixelLoss
from seg.registry import MODELS


@MODELS.register_module()
class FocalLoss(PixelLoss):
    """(1 - p)^gamma · cross entropy, p the probability given to the pixel's own class; sigmoid for num_classes=1,
    else softmax. The mean over the pixels that count.

    `alpha`: the paper's balance, this factor on class 1 and 1 - alpha on class 0, not in the denominator; for one or
    two classes. More classes: `class_weight`.
    """

    default_name = 'focal'

    def __init__(self, gamma: float = 2.0, alpha: float | None = None, **common: Any) -> None:
        super().__init__(**common)
        if not gamma >= 0:
            raise UserError(f'FocalLoss: gamma={gamma!r}: expected a number from 0 (cross entropy) up.')
        if alpha is not None and not 0 < alpha < 1:
            raise UserError(f'FocalLoss: alpha={alpha!r}: expected a number between 0 and 1, or None.')
        self.gamma, self.alpha = gamma, alpha

    def check(self, num_classes: int) -> None:
        if self.alpha is not None and num_classes > 2:
            raise UserError(
                f'FocalLoss: alpha={self.alpha} balances two classes, the model has {num_classes}. '
                'Use class_weight=[...] with one value a class.'
            )
        super().check(num_classes)

    def total(self, logits_NCHW: Tensor, labels_NHW: Tensor) -> Tensor:
        entropy_NHW = self._cross_entropy(logits_NCHW, labels_NHW)
        # 1 - p, kept off 0, where a power below 1 has no finite slope
        miss = (-torch.expm1(-entropy_NHW)).clamp_min(torch.finfo(entropy_NHW.dtype).tiny)
        losses_NHW = miss**self.gamma * entropy_NHW
        if self.alpha is not None:
            losses_NHW = losses_NHW * torch.where(labels_NHW == 1, self.alpha, 1 - self.alpha)
        return self.weighted_sum(losses_NHW, labels_NHW)

    def _cross_entropy(self, logits_NCHW: Tensor, labels_NHW: Tensor) -> Tensor:
        if logits_NCHW.shape[1] == 1:
            foreground = (labels_NHW == 1).to(logits_NCHW.dtype)
            return F.binary_cross_entropy_with_logits(logits_NCHW[:, 0], foreground, reduction='none')
        return F.cross_entropy(logits_NCHW, labels_NHW.long(), ignore_index=self.ignore_index, reduction='none')
