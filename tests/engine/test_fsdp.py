"""FSDP2 is DDP with weights, gradients and optimizer state in pieces: equal over 20 steps in float64."""

from typing import Any

import pytest
import torch
from mmengine.dist import get_rank, get_world_size
from torch import Tensor
from torch.distributed.tensor import DTensor

from seg.datasets.collate import collate
from seg.datasets.sampler import GlobalBatchSampler
from seg.engine import step
from seg.engine.ddp import DistributedDataParallel
from seg.engine.fsdp import FullyShardedDataParallel
from seg.engine.optim import AmpOptimWrapper, OptimWrapper
from seg.engine.sharded_state import gathered
from seg.models.segmentor import Segmentor
from tests.engine.test_step import ACCUMULATED, assert_same_run, sample, train
from tests.ranks import run_ranks

STEPS = 20
LOSSES = [
    dict(type='CrossEntropyLoss'),
    dict(type='DiceLoss', weight=2.0),
    dict(type='DiceLoss', per='batch', name='dice_batch'),
]


def make_model(options: dict[str, Any]) -> Segmentor:
    torch.manual_seed(0)
    return Segmentor(
        num_classes=3,
        data_preprocessor=dict(type='SegPreprocessor', mean=[127.0] * 3, std=[60.0] * 3),
        network=dict(type='UNet', base_channels=4, depth=2, norm_cfg=options.get('norm', dict(type='SyncBN'))),
        losses=options.get('losses', [dict(type='CrossEntropyLoss'), dict(type='DiceLoss', weight=2.0)]),
    ).to(options.get('dtype', torch.float64))


def run_steps(batch_size: int, accumulate: int, options: dict[str, Any], sharded: bool = True) -> tuple:
    """20 steps: the global losses, the whole state dict (on rank 0), and the norms before clipping."""
    model = make_model(options)
    wrapped = FullyShardedDataParallel(model, **options.get('fsdp', {})) if sharded else DistributedDataParallel(model)
    optimizer = getattr(torch.optim, options.get('optimizer', 'AdamW'))(model.parameters(), lr=0.01)
    kind = AmpOptimWrapper if 'amp' in options else OptimWrapper
    wrapper = kind(
        optimizer, accumulative_counts=accumulate, clip_grad=options.get('clip_grad'), **options.get('amp', {})
    )
    sampler = GlobalBatchSampler(8, batch_size, accumulate, seed=1, rank=get_rank(), world_size=get_world_size())
    losses: list[float] = []
    norms: list[Tensor] = []
    while len(losses) < STEPS:
        for pairs in sampler:
            batch = collate([sample(index, 16 + 4 * (index % 3)) for _, index in pairs])
            total = step.train_step(wrapped, batch, wrapper)['loss'].clone()
            torch.distributed.all_reduce(total)
            losses.append(total.item())
            norms += [] if wrapper.grad_norm is None else [wrapper.grad_norm]
    if sharded:
        assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    return losses[:STEPS], gathered(model.state_dict()), norms


@pytest.mark.parametrize(
    'options',
    [
        dict(clip_grad=dict(max_norm=1.0)),
        dict(optimizer='SGD', clip_grad=dict(type='value', clip_value=0.01), fsdp=dict(reshard_after_forward=False)),
    ],
    ids=['AdamW', 'SGD'],
)
def test_the_steps_are_those_of_ddp(options: dict) -> None:
    plain, sharded = run_ranks(2, run_steps, 2, 1, options, False), run_ranks(2, run_steps, 2, 1, options)
    for one, other in zip(plain, sharded):
        assert other[0] == pytest.approx(one[0], rel=1e-9)
        assert [norm.item() for norm in other[2]] == pytest.approx([norm.item() for norm in one[2]], rel=1e-9)
    for key, value in plain[0][1].items():
        torch.testing.assert_close(sharded[0][1][key], value, rtol=0, atol=1e-9)
    assert sharded[0][0][-1] < sharded[0][0][0]


def test_three_ranks_equal_one_process() -> None:
    one = train(6, 1, {})
    assert_same_run(one, [result[:2] for result in run_ranks(3, run_steps, 2, 1, {'losses': LOSSES})[:1]])


def test_accumulation_equals_a_larger_batch() -> None:
    assert_same_run(train(4, 1, ACCUMULATED), [run_ranks(2, run_steps, 1, 2, ACCUMULATED)[0][:2]])
