"""The ConvNet of PyTorch's MNIST example, with what seg's engine needs of a model (`seg.engine.protocol`)."""

from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from torch import Tensor, nn

from seg.registry import MODELS


@MODELS.register_module()
class DigitPreprocessor(nn.Module):
    """uint8 digits (N, 1, 28, 28) -> floats on the device. `mean` and `std` are in the 0..255 of the pixels."""

    size = (28, 28)

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.register_buffer('mean', torch.tensor(mean), persistent=False)
        self.std = std

    def forward(self, batch: dict, training: bool, pad_to: tuple[int, int] | None = None) -> dict:
        inputs, labels = (batch[key].to(self.mean.device, non_blocking=True) for key in ('inputs', 'labels'))
        return {**batch, 'inputs': (inputs - self.mean) / self.std, 'labels': labels.long()}


@MODELS.register_module()
class MnistConvNet(BaseModel):
    """Logs of the probabilities of ten digits, (N, 10); trained by their negative at the truth (NLL)."""

    def __init__(self, data_preprocessor: dict) -> None:
        super().__init__(MODELS.build(data_preprocessor))
        self.network = nn.Sequential(
            *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
            *(nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.LogSoftmax(1)),
        )

    def normalisers(self, labels: Tensor) -> Tensor:
        return torch.tensor([len(labels)], dtype=torch.float64, device=labels.device)

    def forward(self, inputs: Tensor, labels: Tensor, normalisers: Tensor, mode: str = 'loss') -> dict[str, Tensor]:
        total = F.nll_loss(self.network(inputs), labels, reduction='sum')
        return {'loss_nll': total / normalisers[0].to(total.dtype)}

    def evaluate(self, batch: dict) -> list[dict[str, Any]]:
        log_probs, labels = self.network(batch['inputs']), batch['labels']
        total = F.nll_loss(log_probs, labels, reduction='sum').double().reshape(1)
        losses = {'loss_nll': torch.cat([total, self.normalisers(labels)])}
        return [dict(pred=log_probs.argmax(1), label=labels, losses=losses)]

    def example_batch(self) -> tuple[Tensor, Tensor]:
        mean = self.data_preprocessor.mean
        return mean.new_zeros(2, 1, 28, 28), mean.new_zeros(2, dtype=torch.long)
