"""Samples -> a batch. What has one shape is stacked; what has not stays a list, to be padded on the device or not."""

from typing import Any

import torch
from torch.utils.data import default_collate

from seg.errors import UserError
from seg.registry import FUNCTIONS


@FUNCTIONS.register_module()
def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Packed samples -> dict(inputs, labels, metas); `labels` is absent where no sample has it.

    inputs: N x C x H x W uint8, or a list of C x H x W of different shapes.
    labels: N x H x W uint8, or a list of H x W.
    metas: a list of N dicts.
    """
    labelled = ['labels' in sample for sample in samples]
    batch = {'inputs': _stack([sample['inputs'] for sample in samples]), 'metas': [s['metas'] for s in samples]}
    if all(labelled):
        batch['labels'] = _stack([sample['labels'] for sample in samples])
    elif any(labelled):
        bare = samples[labelled.index(False)]['metas'].get('img_path')
        raise UserError(f'{bare} has no mask, but others in its batch have; give every image a mask or none')
    return batch


def _stack(tensors: list[torch.Tensor]) -> torch.Tensor | list[torch.Tensor]:
    if any(tensor.shape != tensors[0].shape for tensor in tensors):
        return tensors
    return default_collate(tensors)  # torch.stack; in a worker, straight into shared memory
