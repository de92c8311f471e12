"""Soft Dice loss: Milletari et al., "V-Net", arXiv:1606.04797; for several classes:
Sudre et al., "Generalised Dice overlap as a deep learning loss function", arXiv:1707.03237."""

from typing import Any

from torch import Tensor

from seg.errors import UserError
from seg.models.losses.overlap import Overlap, OverlapLoss
from seg.registry import MODELS


@MODELS.register_module()
class DiceLoss(OverlapLoss):
    """1 - 2 · |both| / (|predicted| + |true|). Options: `OverlapLoss`.

    `exponent`: of the probabilities in |predicted|; 2 is V-Net's form.
    """

    default_name = 'dice'

    def __init__(self, exponent: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        if not exponent >= 1:
            raise UserError(f'DiceLoss: exponent={exponent!r}: expected a number from 1 up.')
        self.exponent = exponent

    def class_losses(self, overlap: Overlap) -> Tensor:
        return 1 - self.fraction(2 * overlap.both, overlap.predicted + overlap.true)
