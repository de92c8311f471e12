"""A segmentor in float64, in which only rounding in the 16th digit is left between the cuts of a global batch."""

from typing import Any

from seg.models.segmentor import Segmentor
from seg.registry import MODELS


@MODELS.register_module()
class DoubleSegmentor(Segmentor):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.double()
