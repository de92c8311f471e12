"""A step is a function of the global batch: UNet with SyncBN, ignored pixels unevenly spread, over DDP on gloo."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from seg.models.losses.base import SegLoss
from seg.models.segmentor import Segmentor
from seg.registry import MODELS
from tests.ranks import run_ranks

CLASS_WEIGHT = [0.3, 1.0, 2.5]
LOSSES = {  # all of them, by the number of classes, weighted by class wherever they can be
    1: [
        dict(type='BinaryCrossEntropyLoss', pos_weight=2.0, class_weight=[0.4, 1.6]),
        dict(type='FocalLoss', gamma=1.5, class_weight=[0.4, 1.6]),
        dict(type='DiceLoss'),
        dict(type='TverskyLoss', per='batch'),
    ],
    3: [
        dict(type='CrossEntropyLoss', class_weight=CLASS_WEIGHT, label_smoothing=0.1),
        dict(type='FocalLoss', class_weight=CLASS_WEIGHT),
        dict(type='DiceLoss', weight=0.5, class_weight=CLASS_WEIGHT),
        dict(type='DiceLoss', per='batch', name='pooled', class_weight=CLASS_WEIGHT),
        dict(type='TverskyLoss', class_weight=CLASS_WEIGHT),
        dict(type='TverskyLoss', per='batch', name='pooled_tversky', include_background=False),
    ],
}


def build(num_classes: int) -> Segmentor:
    torch.manual_seed(1)
    return Segmentor(
        num_classes=num_classes,
        network=dict(type='UNet', base_channels=4, depth=2, norm_cfg=dict(type='SyncBN')),
        losses=LOSSES[num_classes],
        data_preprocessor=dict(type='SegPreprocessor', mean=[127.5], std=[64]),
    ).double()


def data(num_classes: int) -> dict:
    generator = torch.Generator().manual_seed(2)
    images = torch.randint(0, 256, (6, 3, 18, 13), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, max(2, num_classes), (6, 18, 13), generator=generator, dtype=torch.uint8)
    labels[1, :9], labels[2], labels[4, :, 2:] = 255, 255, 255
    return dict(inputs=images, labels=labels)


def step(num_classes: int, part: slice) -> dict[str, Tensor]:
    """Shares, gradients and running statistics after one step on this part of the batch."""
    model = build(num_classes)
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    batch = model.data_preprocessor({key: value[part] for key, value in data(num_classes).items()}, training=True)
    normalisers = model.normalisers(batch['labels'])
    wrapped = model
    if ranks > 1:
        dist.all_reduce(normalisers)
        wrapped = DistributedDataParallel(model)
    shares = wrapped(batch['inputs'], batch['labels'], normalisers, mode='loss')
    (sum(shares.values()) * ranks).backward()  # DDP takes the mean of the gradients
    gradients = {f'{name}.grad': parameter.grad for name, parameter in model.named_parameters()}
    return {**{name: share.detach() for name, share in shares.items()}, **gradients, **dict(model.named_buffers())}


def on_a_rank(num_classes: int, each: int) -> dict[str, Tensor]:
    return step(num_classes, slice(each * dist.get_rank(), each * dist.get_rank() + each))


def test_every_loss_is_compared() -> None:
    MODELS.import_from_location()
    registered = {name for name, kind in MODELS.module_dict.items() if issubclass(kind, SegLoss)}
    assert registered == {loss['type'] for losses in LOSSES.values() for loss in losses}


@pytest.mark.parametrize('num_classes', [1, 3])
@pytest.mark.parametrize('ranks', [2, 3])
def test_ranks_are_one_process(num_classes: int, ranks: int) -> None:
    whole = step(num_classes, slice(None))
    parts = run_ranks(ranks, on_a_rank, num_classes, 6 // ranks)
    for key, value in whole.items():
        if key.startswith('loss_'):
            assert sum(part[key] for part in parts).item() == pytest.approx(value.item(), abs=1e-12), key
            assert value > 0, key
        else:
            assert all((part[key] - value).abs().max() < 1e-12 for part in parts), key
