"""FSDP2 is DDP with weights, gradients and optimizer state in pieces: equal over 20 steps in float64."""

import logging
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mmengine.dist import get_rank, get_world_size
from torch import Tensor
from torch.distributed.tensor import DTensor

from seg.config_schema.check import faults_in
from seg.config_schema.sections import sections
from seg.datasets.collate import collate
from seg.datasets.sampler import GlobalBatchSampler
from seg.engine import step
from seg.engine.hooks.checkpoint_hook import CheckpointHook
from seg.engine.hooks.histogram_hook import HistogramHook
from seg.engine.hooks.verify_hook import VerifyHook
from seg.engine.optim import AmpOptimWrapper, OptimWrapper
from seg.engine.wrappers.activation_checkpointing import turn_on_activation_checkpointing
from seg.engine.wrappers.compiling import compile_network
from seg.engine.wrappers.ddp import DistributedDataParallel
from seg.engine.wrappers.fsdp import FullyShardedDataParallel
from seg.engine.wrappers.sharded_state import gathered
from seg.engine.wrappers.wrapping import wrap_model
from seg.errors import UserError
from seg.models.segmentor import Segmentor
from tests.engine.test_step import ACCUMULATED, assert_same_run, sample, train
from tests.ranks import run_ranks

STEPS = 20
LOGGER = logging.getLogger('seg.tests.fsdp')
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


def run_treated(treatment: str, options: dict) -> tuple:
    """Three steps with a model that was treated before or after it was cut; the losses and the state dict."""
    model = make_model(options)
    if treatment == 'activation_checkpointing':
        turn_on_activation_checkpointing(model, ['network.encoder.*', 'network.decoder.0'])
    wrapped = FullyShardedDataParallel(model, **options.get('fsdp', {}))
    if treatment == 'compile':
        compile_network(wrapped, dict(backend='eager'), LOGGER)
    wrapper = OptimWrapper(torch.optim.AdamW(model.parameters(), lr=0.01))
    losses = []
    for number in range(3):
        batch = collate([sample(2 * number + get_rank(), 16)])
        losses.append(step.train_step(wrapped, batch, wrapper)['loss'].item())
        wrapped.eval()  # ranks validate unequal numbers of batches
        for _ in range([0, 1, 2][number] if get_rank() else [2, 1, 0][number]):
            with torch.inference_mode():
                model.evaluate(model.data_preprocessor(batch, training=False))
        wrapped.train()
    return losses, gathered(model.state_dict()), [type(part).__name__ for part in model.modules()]


@pytest.mark.parametrize('treatment', ['compile', 'activation_checkpointing', 'units', 'whole'])
def test_a_treated_model_takes_the_same_steps(treatment: str) -> None:
    patterns = dict(
        units=dict(
            fsdp=dict(units=['network.encoder.*', 'network.decoder.*', 'network.decoder.*.conv', 'network.head'])
        ),
        whole=dict(fsdp=dict(units=[])),
    )
    plain = run_ranks(2, run_treated, '', {})
    treated = run_ranks(2, run_treated, treatment, patterns.get(treatment, {}))
    for one, other in zip(plain, treated):
        assert other[0] == pytest.approx(one[0], rel=1e-12)
    for key, value in plain[0][1].items():
        torch.testing.assert_close(treated[0][1][key], value, rtol=0, atol=1e-12)


def describe(arguments: dict) -> tuple[list[str], int, int]:
    """The units, and how many numbers this rank holds of how many."""
    model = make_model({})
    wrapped = FullyShardedDataParallel(model, **arguments)
    held = sum(parameter.to_local().numel() for parameter in model.parameters())
    return list(wrapped.units), held, sum(parameter.numel() for parameter in model.parameters())


def test_the_units_of_a_unet_are_its_blocks() -> None:
    (units, held, whole), (_, other, _) = run_ranks(2, describe, {})
    assert units == [*(f'network.encoder.{level}' for level in range(3)), 'network.decoder.0', 'network.decoder.1']
    assert held + other == whole
    assert max(held, other) < 0.51 * whole


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (dict(units=['network.encoders.*']), r"model_wrapper_cfg\.units: 'network\.encoders\.\*' matches no module"),
        (dict(units='network.encoder'), r'a ModuleList is never run itself; name its children'),
        (
            dict(reduce_dtype='int8'),
            r"model_wrapper_cfg\.reduce_dtype is 'int8'; expected float32, bfloat16 or float16",
        ),
    ],
)
def test_what_is_refused(arguments: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        run_ranks(2, describe, arguments)


def shard_twice() -> None:
    model = make_model({})
    FullyShardedDataParallel(model)
    OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.1), zero=True)


def test_zero_has_nothing_left_to_shard() -> None:
    with pytest.raises(UserError, match='leave out zero'):
        run_ranks(2, shard_twice)


def test_a_loss_scale_and_gradients_in_bfloat16() -> None:
    """In float32 with float16 autocast: FSDP's finite check and norm are over all pieces, so the scale moves alike."""
    options = dict(dtype=torch.float32, amp=dict(dtype='float16'), clip_grad=dict(max_norm=1.0))
    plain, sharded = run_ranks(2, run_steps, 2, 1, options, False), run_ranks(2, run_steps, 2, 1, options)
    assert sharded[0][0] == pytest.approx(plain[0][0], rel=1e-3)
    rounded = run_ranks(2, run_steps, 2, 1, {**options, 'fsdp': dict(reduce_dtype='bfloat16')})
    assert rounded[0][0] != sharded[0][0]
    assert rounded[0][0] == pytest.approx(plain[0][0], rel=0.1)


def test_the_config_check_knows_it() -> None:
    node = sections({})['model_wrapper_cfg']
    right = dict(type='FullyShardedDataParallel', units=['network.encoder.*'], reshard_after_forward=False)
    assert list(faults_in(node, right, ('model_wrapper_cfg',))) == []
    (fault,) = faults_in(node, {**right, 'unit': []}, ('model_wrapper_cfg',))
    assert fault.path[-1] == 'unit'
    assert 'units' in fault.text
    zero = list(
        faults_in(
            sections({})['optim_wrapper'],
            dict(type='AmpOptimWrapper', optimizer=dict(type='SGD', lr=0.1), zerro=True),
            ('optim_wrapper',),
        )
    )
    assert 'zero' in zero[0].text


def set_up_hooks() -> list[str]:
    """What each hook that a run cannot have under FSDP says at its start."""
    wrapped = FullyShardedDataParallel(make_model({}))
    runner = SimpleNamespace(model=wrapped, visualizer=SimpleNamespace(add_histogram=None))
    said = []
    for hook in (HistogramHook(interval=1), VerifyHook(verify_step=2)):
        try:
            hook.before_train(runner)
        except UserError as error:
            said.append(str(error))
    VerifyHook().before_train(runner)
    return said


def test_hooks_that_need_whole_gradients_are_refused() -> None:
    for said, name in zip(run_ranks(2, set_up_hooks)[0], ('HistogramHook', r'VerifyHook\(verify_step'), strict=True):
        assert re.match(rf'{name}.* does not go with model_wrapper_cfg\.type=FullyShardedDataParallel', said)


def test_pieces_need_a_model_in_pieces() -> None:
    with pytest.raises(UserError, match='sharded=True needs model_wrapper_cfg'):
        CheckpointHook(sharded=True)._writing_group(SimpleNamespace(model=torch.nn.Linear(1, 1)))


class Branches(torch.nn.Module):
    """The second rank takes a way of its own, past the first layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(x if get_rank() else self.one(x)).sum()


def gradient_of_an_unused_layer() -> Tensor | None:
    model = Branches()
    config = dict(find_unused_parameters=True)
    wrapped = wrap_model(model, dict(type='FullyShardedDataParallel', units=[]), config, LOGGER)
    wrapped(torch.ones(1, 3)).backward()
    return gathered(model.one.weight.grad)


def test_a_layer_of_a_unit_that_a_rank_does_not_use() -> None:
    """The mean over both ranks: half of what the first one has alone."""
    alone = Branches()
    alone.two(alone.one(torch.ones(1, 3))).sum().backward()
    assert alone.one.weight.grad is not None
    torch.testing.assert_close(run_ranks(2, gradient_of_an_unused_layer)[0], alone.one.weight.grad / 2)
