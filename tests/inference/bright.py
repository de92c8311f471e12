"""Checkpoints of a network whose answers can be told by looking: foreground is what is brighter than 127.5."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from seg.engine.state import checkpoint
from seg.registry import MODELS

PALETTE = [[0, 0, 0], [255, 0, 0], [0, 255, 0], [0, 0, 255]]
LOAD, LABELS, PACK = dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')


@MODELS.register_module()
class Brightness(nn.Module):
    """A 1x1 convolution. Its last class gets the mean of the channels as logit, the others 0 and less."""

    def __init__(self, num_classes: int, in_channels: int = 3) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.head = nn.Conv2d(in_channels, num_classes, kernel_size=1)
        with torch.no_grad():
            self.head.weight.zero_()
            self.head.weight[-1] = 1 / in_channels
            self.head.bias.copy_(-torch.arange(num_classes).float())
            self.head.bias[-1] = 0

    def forward(self, inputs_NCHW: Tensor) -> Tensor:
        return self.head(inputs_NCHW)


def model_config(num_classes: int = 2, channels: int = 3, **network: Any) -> dict:
    loss = 'BinaryCrossEntropyLoss' if num_classes == 1 else 'CrossEntropyLoss'
    return dict(
        type='Segmentor',
        num_classes=num_classes,
        data_preprocessor=dict(type='SegPreprocessor', mean=[127.5] * channels, std=[1.0] * channels),
        network=dict(type='Brightness', in_channels=channels, **network),
        losses=[dict(type=loss)],
    )


def config(pipeline: Sequence[dict] = (LOAD, LABELS, PACK), **model: Any) -> dict:
    dataset = dict(type='SegmentationDataset', pipeline=list(pipeline), metainfo=dict(classes=('other', 'bright')))
    return dict(model=model_config(**model), test_dataloader=dict(batch_size=1, dataset=dataset))


def save_checkpoint(path: Path, stored: dict | None = None, **seg: Any) -> Path:
    """A checkpoint as the engine writes it, as far as prediction reads it."""
    stored = config() if stored is None else stored
    classes = max(2, stored['model']['num_classes'])
    metainfo = dict(classes=tuple(f'class{label}' for label in range(classes)), palette=PALETTE[:classes])
    meta = dict(config=stored, precision='fp32', dataset_meta=metainfo)
    weights = MODELS.build(stored['model']).state_dict()
    checkpoint.save(dict(meta=dict(seg={**meta, **seg}), state_dict=weights), path)
    return path


def save_photo(path: Path, bright_HW: np.ndarray, **options: Any) -> Path:
    """A photograph that is 200 where `bright_HW`, else 50."""
    path.parent.mkdir(parents=True, exist_ok=True)
    gray = np.where(bright_HW, 200, 50).astype(np.uint8)
    Image.fromarray(gray[..., None].repeat(3, axis=-1)).save(path, **options)
    return path


def right_half(height: int, width: int) -> np.ndarray:
    mask = np.zeros((height, width), dtype=bool)
    mask[:, width // 2 :] = True
    return mask
