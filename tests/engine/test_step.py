"""A step is a function of the global batch (promise 2): 1 process x 4 images is 2 x 2, 4 x 1, and 2 x 1 accumulated twice.

In float64, where rounding leaves 1e-9: the loss at each of 20 steps, and the weights after them. In float32, in which even
a permuted batch drifts by 2e-4 over so many steps, the first step. Ignored pixels are spread unevenly on purpose: image i
has i/8 of its rows ignored, so a mean of the ranks' means is another number.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from mmengine.dist import get_rank, get_world_size
from torch import Tensor

from seg.datasets.collate import collate
from seg.datasets.sampler import GlobalBatchSampler
from seg.engine import step
from seg.engine.optim import OptimWrapper
from seg.engine.wrappers.ddp import DistributedDataParallel
from seg.models.segmentor import Segmentor
from tests.ranks import run_ranks

STEPS = 20
SYNC_BN = dict(type='SyncBN')
BATCH_LOSSES = [
    dict(type='CrossEntropyLoss'),
    dict(type='DiceLoss', weight=2.0),
    dict(type='DiceLoss', per='batch', name='dice_batch'),
]
# What is a function of the micro-batch cannot be accumulated exactly: BatchNorm and batch Dice. The docs say so.
ACCUMULATED = dict(norm=dict(type='GN', num_groups=2), losses=BATCH_LOSSES[:2])


def sample(index: int, size: int) -> dict:
    rng = torch.Generator().manual_seed(index)
    image = torch.randint(0, 256, (3, 16, size), generator=rng, dtype=torch.uint8)
    label = torch.randint(0, 3, (16, size), generator=rng, dtype=torch.uint8)
    label[: 2 * index] = 255
    return dict(inputs=image, labels=label, metas=dict(index=index))


def build(options: dict[str, Any]) -> Segmentor:
    torch.manual_seed(0)
    return Segmentor(
        num_classes=3,
        data_preprocessor=dict(type='SegPreprocessor', mean=[127.0] * 3, std=[60.0] * 3),
        network=dict(type='UNet', base_channels=4, depth=2, norm_cfg=options.get('norm', SYNC_BN)),
        losses=options.get('losses', BATCH_LOSSES),
    )


def deal(batch_size: int, accumulate: int = 1) -> Iterator[dict]:
    """This rank's share of global batch after global batch of the 8 images, without end."""
    sampler = GlobalBatchSampler(
        8, batch_size, accumulate, seed=1, rank=get_rank(), world_size=get_world_size(), endless=True
    )
    for pairs in sampler:
        # Unequal widths: every rank must pad to the largest of the global batch.
        yield collate([sample(index, 16 + 4 * (index % 3)) for _, index in pairs])


def train(batch_size: int, accumulate: int, options: dict[str, Any]) -> tuple[list[float], dict[str, Tensor]]:
    """20 steps: the global loss at each, and the state dict after them."""
    model = build(options).double()
    wrapped = DistributedDataParallel(model) if get_world_size() > 1 else model
    optimizer = getattr(torch.optim, options.get('optimizer', 'AdamW'))(model.parameters(), lr=0.01)
    wrapper = OptimWrapper(optimizer, accumulate, options.get('clip_grad'))
    batches = itertools.islice(deal(batch_size, accumulate), STEPS)
    losses = [_summed(step.train_step(wrapped, batch, wrapper)['loss']) for batch in batches]
    return losses, model.state_dict()


def first_step(batch_size: int) -> tuple[float, list[Tensor]]:
    """In float32: the loss and the gradients of the first global batch."""
    model = build({})
    wrapped = DistributedDataParallel(model) if get_world_size() > 1 else model
    wrapper = OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.0))
    loss = _summed(step.gradients(wrapped, next(deal(batch_size)), wrapper)['loss'])
    return loss, [parameter.grad for parameter in model.parameters()]


def _summed(share: Tensor) -> float:
    share = share.clone()
    if get_world_size() > 1:
        torch.distributed.all_reduce(share)
    return share.item()


def assert_same_run(one: tuple, several: list[tuple]) -> None:
    losses, weights = one
    for other_losses, other_weights in several:
        assert other_losses == pytest.approx(losses, rel=1e-9)
        for key, value in weights.items():
            torch.testing.assert_close(other_weights[key], value, rtol=0, atol=1e-7)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize('optimizer', ['AdamW', 'SGD'])
def test_ranks_equal_one_process(optimizer: str) -> None:
    options = dict(optimizer=optimizer, clip_grad=dict(max_norm=1.0))
    one = train(4, 1, options)
    assert_same_run(one, run_ranks(2, train, 2, 1, options))
    assert_same_run(one, run_ranks(4, train, 1, 1, options))
    assert_same_run(train(6, 1, options), run_ranks(3, train, 2, 1, options))


@pytest.mark.parametrize(('global_batch', 'cuts'), [(4, [2, 4]), (6, [2, 3])])
def test_the_first_step_in_float32(global_batch: int, cuts: list[int]) -> None:
    loss, gradients = first_step(global_batch)
    for ranks in cuts:
        for other_loss, other_gradients in run_ranks(ranks, first_step, global_batch // ranks):
            assert other_loss == pytest.approx(loss, rel=1e-5)
            for gradient, other in zip(gradients, other_gradients, strict=True):
                assert (other - gradient).norm() <= 1e-5 * gradient.norm()


def test_accumulation_equals_a_larger_batch() -> None:
    one = train(4, 1, ACCUMULATED)
    assert_same_run(one, [train(2, 2, ACCUMULATED), train(1, 4, ACCUMULATED)])
    assert_same_run(one, run_ranks(2, train, 1, 2, ACCUMULATED))


def test_micro_batches_are_cut_in_order() -> None:
    batch = dict(inputs=torch.arange(6), metas=list('abcdef'))
    parts = step.split_batch(batch, 3)
    assert [part['inputs'].tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert [''.join(part['metas']) for part in parts] == ['ab', 'cd', 'ef']
