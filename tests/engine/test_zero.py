"""ZeRO-1 is DDP with the optimizer's state in pieces: the same steps, the same checkpoint, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.optim import CosineAnnealingLR
from torch import nn

from seg.datasets.collate import collate
from seg.datasets.sampler import GlobalBatchSampler
from seg.engine import step
from seg.engine.optim import AmpOptimWrapper, OptimWrapper
from seg.engine.state import checkpoint
from seg.engine.train import train
from seg.engine.wrappers.ddp import DistributedDataParallel
from seg.engine.wrappers.zero import ShardedOptimizer
from seg.errors import UserError
from seg.models.segmentor import Segmentor
from tests.engine.test_exact_resume import assert_equal
from tests.engine.test_step import sample
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config

STEPS = 20


def make_model() -> Segmentor:
    torch.manual_seed(0)
    return Segmentor(
        num_classes=3,
        data_preprocessor=dict(type='SegPreprocessor', mean=[127.0] * 3, std=[60.0] * 3),
        network=dict(type='UNet', base_channels=4, depth=2, norm_cfg=dict(type='SyncBN')),
        losses=[dict(type='CrossEntropyLoss'), dict(type='DiceLoss', weight=2.0)],
    ).double()


def optimizer_of(model: nn.Module, kind: str) -> torch.optim.Optimizer:
    """Two groups, so that a group's own rate has to reach the rank that steps its parameters."""
    weights = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    momentum = dict(momentum=0.9) if kind == 'SGD' else {}
    groups = [dict(params=weights), dict(params=others, lr=0.02, weight_decay=0.0)]
    return getattr(torch.optim, kind)(groups, lr=0.01, **momentum)


def run_steps(kind: str, zero: bool, amp: bool = False) -> dict[str, Any]:
    """20 steps of 2 images a rank under a falling rate."""
    model = make_model().float() if amp else make_model()
    clip = dict(max_norm=1.0)
    wrapper = (
        AmpOptimWrapper(optimizer_of(model, kind), dtype='float16', clip_grad=clip, zero=zero)
        if amp
        else OptimWrapper(optimizer_of(model, kind), clip_grad=clip, zero=zero)
    )
    wrapped = DistributedDataParallel(model)
    schedule = CosineAnnealingLR(wrapper, T_max=STEPS, by_epoch=False)
    sampler = GlobalBatchSampler(8, 2, 1, seed=1, rank=get_rank(), world_size=get_world_size())
    losses: list[float] = []
    while len(losses) < STEPS:
        for pairs in sampler:
            share = step.train_step(wrapped, collate([sample(index, 16) for _, index in pairs]), wrapper)['loss']
            schedule.step()
            total = share.clone()
            torch.distributed.all_reduce(total)
            losses.append(total.item())
    held: Any = getattr(wrapper.optimizer, 'optim', wrapper.optimizer)
    values = sum(value.numel() for state in held.state.values() for value in state.values() if value.dim())
    return dict(losses=losses, weights=model.state_dict(), optimizer=wrapper.state_dict(), held=values)


@pytest.mark.parametrize('kind', ['AdamW', 'SGD'])
def test_the_steps_are_those_of_ddp(kind: str) -> None:
    plain, sharded = run_ranks(2, run_steps, kind, False), run_ranks(2, run_steps, kind, True)
    for one, other in zip(plain, sharded):
        assert other['losses'] == one['losses']
        assert_equal(one['weights'], other['weights'])
    assert plain[0]['losses'][-1] < plain[0]['losses'][0]
    # The first rank's state dict is the unsharded one: each index, each number, each group's rate.
    assert_equal(plain[0]['optimizer'], sharded[0]['optimizer'])
    assert sharded[1]['optimizer']['state'] == {}
    # and what the two hold together is held once, in about equal parts
    assert sharded[0]['held'] + sharded[1]['held'] == plain[0]['held']
    assert max(one['held'] for one in sharded) < 0.6 * plain[0]['held']


def test_three_ranks_and_a_loss_scale() -> None:
    plain, sharded = run_ranks(3, run_steps, 'AdamW', False, True), run_ranks(3, run_steps, 'AdamW', True, True)
    for one, other in zip(plain, sharded):
        assert other['losses'] == one['losses']
    assert_equal(plain[0]['optimizer'], sharded[0]['optimizer'])


OPTIONS: dict[str, Any] = {
    'train_cfg.max_epochs': 2,
    'optim_wrapper.optimizer.weight_decay': 0.1,
    'optim_wrapper.paramwise_cfg': dict(norm_decay_mult=0.0, custom_keys={'head': dict(lr_mult=2.0)}),
    'optim_wrapper.accumulative_counts': 2,
    'sync_bn': True,
    'model.network.dropout': 0.3,
}


def run(data: str, work_dir: str, batch: int, zero: bool, resume: str | None, launcher: str = 'pytorch') -> str:
    interval = {'default_hooks.checkpoint': dict(type='CheckpointHook', interval=3, by_epoch=False)}
    changes = {**OPTIONS, **interval, 'train_dataloader.batch_size': batch, 'optim_wrapper.zero': zero}
    result = train(tiny_config(Path(data), Path(work_dir), **changes), launcher=launcher, resume=resume)
    return str(result.last_checkpoint)


def test_a_checkpoint_goes_over_to_ddp_and_back(tmp_path: Path) -> None:
    data = make_data(tmp_path / 'data', train=24, val=2, size=(16, 16))  # 6 steps an epoch, of 4 images

    def on_ranks(name: str, zero: bool, resume: Path | None = None) -> dict:
        last = run_ranks(2, run, str(data), str(tmp_path / name), 1, zero, resume and str(resume))
        return checkpoint.load(last[0])

    whole = on_ranks('plain', False)
    assert_equal(whole, on_ranks('zero', True))
    assert_equal(whole, on_ranks('zero_from_plain', True, tmp_path / 'plain/iter_9.pth'))
    assert_equal(whole, on_ranks('plain_from_zero', False, tmp_path / 'zero/iter_9.pth'))


def state_on_another_count(state: dict) -> dict[str, Any]:
    model = make_model()
    wrapper = OptimWrapper(optimizer_of(model, 'AdamW'), zero=True)
    wrapper.load_state_dict(dict(state))
    return wrapper.state_dict()


def test_the_state_is_dealt_anew_on_another_rank_count() -> None:
    state = run_ranks(2, run_steps, 'AdamW', True)[0]['optimizer']
    assert_equal(state, run_ranks(3, state_on_another_count, state)[0])
    assert_equal(state, state_on_another_count(state))  # one process: the plain optimizer


def optimizer_on_a_rank(types: list[torch.dtype]) -> str:
    parameters = [nn.Parameter(torch.ones(2, dtype=kind)) for kind in types]
    return type(OptimWrapper(torch.optim.SGD(parameters, lr=0.1), zero=True).optimizer).__name__


def test_what_is_sharded_and_what_is_refused() -> None:
    assert run_ranks(2, optimizer_on_a_rank, [torch.float32]) == [ShardedOptimizer.__name__] * 2
    assert optimizer_on_a_rank([torch.float32]) == 'SGD'  # one process
    with pytest.raises(UserError, match=r'of one type, and the model has torch\.float32, torch\.float64'):
        run_ranks(2, optimizer_on_a_rank, [torch.float32, torch.float64])
