"""Softmax cross entropy."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from seg.errors import UserError
from seg.models.losses.base import PixelLoss
from seg.registry import MODELS


@MODELS.register_module()
class CrossEntropyLoss(PixelLoss):
    """torch's cross entropy with reduction 'mean', over the whole global batch; for num_classes >= 2.

    `label_smoothing`: Szegedy et al., "Rethinking the Inception Architecture", arXiv:1512.00567. With class weights it
    smooths as torch does: the spread part of a pixel is weighted by each class it is spread over.
    """

    default_name = 'ce'

    def __init__(self, label_smoothing: float = 0.0, **common: Any) -> None:
        super().__init__(**common)
        if not 0 <= label_smoothing < 1:
            raise UserError(f'CrossEntropyLoss: label_smoothing={label_smoothing!r}: expected 0 to below 1.')
        self.label_smoothing = label_smoothing

    def check(self, num_classes: int) -> None:
        if num_classes == 1:
            raise UserError(
                'CrossEntropyLoss with num_classes=1: softmax over one channel is always 1, so nothing is ever learnt. '
                'Use BinaryCrossEntropyLoss, or num_classes=2.'
            )
        super().check(num_classes)

    def total(self, logits_NCHW: Tensor, labels_NHW: Tensor) -> Tensor:
        weight = None if self.class_weight is None else self.class_weight.to(logits_NCHW.dtype)
        losses_NHW = F.cross_entropy(  # reduction 'sum' is not deterministic on CUDA
            logits_NCHW,
            labels_NHW.long(),
            weight,
            ignore_index=self.ignore_index,
            reduction='none',
            label_smoothing=self.label_smoothing,
        )
        return losses_NHW.sum()
