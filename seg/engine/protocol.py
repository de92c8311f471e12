"""What a run needs of a model: `seg.models.segmentor.Segmentor` has it, and docs/extending.md builds another.

A model is a mmengine.model.BaseModel, for MMEngine's Runner asks for one, registered in `seg.registry.MODELS`, with what
`Model` lists. A batch is what the collate function makes: 'inputs', 'labels' and 'metas', each over the samples.
"""

from typing import Any, Protocol

from torch import Tensor

Size = tuple[int, int]


class Preprocessor(Protocol):
    """A module that brings a batch to the device: `labels` a tensor over the samples in training."""

    @property
    def size(self) -> Size | None:
        """(height, width) of every training batch; None where it follows from the images, by `needed_size`."""

    def needed_size(self, images: Any) -> Size:
        """(height, width) that these images need; the ranks agree on the largest. Not asked for where `size` is given."""

    def __call__(self, batch: dict, training: bool, pad_to: Size | None = None) -> dict:
        """The batch on the device; `pad_to` is the size that the ranks agreed on."""


class Model(Protocol):
    """A loss is a sum over samples (pixels, images) divided by how many there are in the whole global batch."""

    @property
    def data_preprocessor(self) -> Preprocessor: ...

    def normalisers(self, labels: Tensor) -> Tensor:
        """float64, one a loss: what these labels add to each loss's denominator."""

    def __call__(self, inputs: Tensor, labels: Tensor, normalisers: Tensor, mode: str) -> dict[str, Tensor]:
        """With mode='loss' each loss's share, 0-d, by its logged name: its sum divided by its one of `normalisers`.

        These are summed over all micro-batches of all ranks, so the shares add up to the loss of the global batch.
        """

    def evaluate(self, batch: dict) -> list[dict[str, Any]]:
        """What validation makes of a batch that was preprocessed with training=False: dicts for the metric to read.

        One may hold 'losses': each loss's [sum, denominator], float64, by its logged name; they make up `val_loss`.
        """

    def example_batch(self) -> tuple[Tensor, Tensor]:
        """Two samples' inputs and labels as in training, of whatever content: to run the model once before a resume."""
