"""A pipeline and a network tried on blank images: shapes without reading a file, and a network without computing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import Dataset

from seg.datasets.gate.sources import Source
from seg.datasets.loading import LoadAnnotations, LoadImageFromFile
from seg.datasets.seeding import SeededDataset
from seg.errors import UserError
from seg.models.norm import SyncBatchNorm, revert_sync_batchnorm
from seg.registry import MODELS

Size = tuple[int, int]  # height, width in pixels


@dataclass(frozen=True)
class Outcome:
    """What a pipeline makes of an image of `size`. crops: the image's size before each crop, and the crop's."""

    size: Size
    channels: int
    output: Size
    crops: list[tuple[Size, Size]] = field(default_factory=list)


class _Blank(Dataset):
    """Black images of one size, labelled 0, through a data set's transforms; those that read files make them instead."""

    metainfo: Mapping[str, Any] = {}

    def __init__(self, source: Source, size: Size) -> None:
        self.source, self.size = source, size

    def __len__(self) -> int:
        return 2**31

    def __getitem__(self, index: int) -> Outcome:
        results: dict[str, Any] = {**self.source.info, 'sample_idx': 0}
        crops: list[tuple[Size, Size]] = []
        for step in self.source.transforms:
            crop = getattr(step, 'crop_size', None)
            if crop is not None and 'img_shape' in results:
                crops.append((tuple(results['img_shape']), tuple(crop)))
            results = self._step(step, results)
            if results is None:
                raise UserError(f'{self.source.key}.pipeline: {type(step).__name__} returned None for a blank image')
        return self._outcome(results, crops)

    def _step(self, step: Any, results: dict[str, Any]) -> Any:
        if isinstance(step, LoadImageFromFile):
            image = np.zeros((*self.size, step.channels), np.uint8)
            return {**results, 'img': image, 'img_shape': self.size, 'ori_shape': self.size}
        if isinstance(step, LoadAnnotations) and self.source.has_masks:
            fields = [*results.get('seg_fields', ()), 'gt_seg_map']
            return {**results, 'gt_seg_map': np.zeros(self.size, np.uint8), 'seg_fields': fields}
        return results if isinstance(step, LoadAnnotations) else step(results)

    def _outcome(self, results: Mapping[str, Any], crops: list[tuple[Size, Size]]) -> Outcome:
        if 'inputs' in results:
            channels, height, width = results['inputs'].shape
        else:
            height, width, channels = results['img'].shape
        return Outcome(self.size, int(channels), (int(height), int(width)), crops)


def try_pipeline(source: Source, size: Size, draws: int) -> list[Outcome]:
    """What comes out of a data set's pipeline for an image of `size`, drawn so many times; no generator is moved.

    Raises what the transforms raise.
    """
    blank = SeededDataset(_Blank(source, size), seed=0)
    return [blank[0, index] for index in range(draws)]


def build_weightless(model: Mapping[str, Any]) -> nn.Module | None:
    """The network of a Segmentor's config without memory for its weights; None where it cannot be built alone."""
    if model.get('type') != 'Segmentor' or not isinstance(model.get('network'), Mapping):
        return None
    try:
        with torch.device('meta'):
            return MODELS.build({**model['network'], 'num_classes': model.get('num_classes', 2)})
    except Exception:  # noqa: BLE001, the runner builds it next, and says what is wrong with it
        return None


def has_batchnorm(network: nn.Module) -> bool:
    return any(isinstance(layer, _BatchNorm) for layer in network.modules())


def has_sync_batchnorm(network: nn.Module) -> bool:
    return any(isinstance(layer, SyncBatchNorm | nn.SyncBatchNorm) for layer in network.modules())


def try_network(network: nn.Module, shape: Sequence[int]) -> str:
    """Why the network cannot train on an NCHW of this shape; empty where it can. `network` is a weightless one.

    Raises NotImplementedError where its shapes cannot be found out without computing.
    """
    revert_sync_batchnorm(network)  # this process tries it alone
    try:
        with torch.no_grad():
            network.train()(torch.zeros(*shape, device='meta'))
    except (UserError, ValueError) as error:
        return str(error)
    except NotImplementedError:
        raise
    except RuntimeError as error:
        if 'meta' in str(error):
            raise NotImplementedError(str(error)) from error
        return str(error)
    return ''
