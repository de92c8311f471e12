"""Tversky loss: Salehi et al., "Tversky loss function for image segmentation using 3D fully convolutional deep
networks", arXiv:1706.05721."""

from typing import Any

from torch import Tensor

from seg.errors import UserError
from seg.models.losses.overlap import Overlap, OverlapLoss
from seg.registry import MODELS


@MODELS.register_module()
class TverskyLoss(OverlapLoss):
    """1 - |both| / (|both| + alpha · |false positives| + beta · |false negatives|).

    beta > alpha favours recall. 0.5 and 0.5 is Dice with twice its `smooth`. Options: `OverlapLoss`.
    """

    default_name = 'tversky'

    def __init__(self, alpha: float = 0.3, beta: float = 0.7, **options: Any) -> None:
        super().__init__(**options)
        if not (alpha >= 0 and beta >= 0 and alpha + beta > 0):
            raise UserError(f'TverskyLoss: alpha={alpha!r}, beta={beta!r}: expected numbers from 0 up, not both 0.')
        self.alpha, self.beta = alpha, beta

    def class_losses(self, overlap: Overlap) -> Tensor:
        false_positive = overlap.predicted - overlap.both
        false_negative = overlap.true - overlap.both
        mistakes = self.alpha * false_positive + self.beta * false_negative
        return 1 - self.fraction(overlap.both, overlap.both + mistakes)
