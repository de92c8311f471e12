"""One batch of validation: labels at the masks' own size, and what the batch adds to the validation loss."""

import torch
from mmengine.dist import get_world_size
from torch import Tensor

from seg.engine.precision import autocast
from seg.models.labels import shrink_labels
from seg.models.segmentor import Segmentor


class LossMeter:
    """The validation loss over the data set: sums over sums, so that it does not move with batch size or rank count.

    The labels are shrunk to the network's resolution (exact nearest). A loss that pools over a batch (batch Dice) sees
    one image at a time.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._sums: Tensor | None = None  # row 0: numerators, row 1: denominators; float64, on the device

    def update(self, segmentor: Segmentor, logits_CHW: Tensor, label_HW: Tensor) -> None:
        small = shrink_labels(label_HW, (logits_CHW.shape[-2], logits_CHW.shape[-1]))[None]
        denominators = segmentor.normalisers(small)
        sums = segmentor.loss(logits_CHW[None], small, torch.ones_like(denominators))
        self._names = list(sums)
        row = torch.stack([torch.stack([value.double() for value in sums.values()]), denominators])
        self._sums = row if self._sums is None else self._sums + row

    def compute(self) -> dict[str, float]:
        """`val_loss` and each loss by name, over all ranks. Empty where no image had a mask."""
        sums = self._gathered()
        if sums is None:
            return {}
        losses = (sums[0] / sums[1].clamp(min=1e-12)).tolist()
        return {'val_loss': sum(losses), **{f'val_{name}': loss for name, loss in zip(self._names, losses)}}

    def _gathered(self) -> Tensor | None:
        if get_world_size() == 1:
            return self._sums
        rows: list = [None] * get_world_size()
        # A rank can be without images, so the shape is not known everywhere; a few numbers by object gather.
        own = None if self._sums is None else (self._names, self._sums.cpu())
        torch.distributed.all_gather_object(rows, own)
        present = [row for row in rows if row is not None]
        if not present:
            return None
        self._names = present[0][0]
        return torch.stack([sums for _, sums in present]).sum(dim=0)


def evaluate_batch(segmentor: Segmentor, batch: dict, precision: str, meter: LossMeter) -> list[dict]:
    """Per image `dict(pred, label)`, uint8 HW at the mask's own size; without a mask `pred` alone, at the photo's."""
    data = segmentor.data_preprocessor(batch, training=False)
    labels = data.get('labels')
    with autocast(precision, data['inputs'][0].device):
        logits = segmentor.each_logits(data['inputs'])
    outputs = []
    for index, logits_CHW in enumerate(logits):
        if labels is None:
            outputs.append(dict(pred=segmentor.label_map(logits_CHW, data['metas'][index]['ori_shape'])))
        else:
            meter.update(segmentor, logits_CHW, labels[index])
            height, width = labels[index].shape
            pred = segmentor.label_map(logits_CHW, (height, width))
            outputs.append(dict(pred=pred, label=labels[index]))
    return outputs
