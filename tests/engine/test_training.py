"""Whole runs on made-up boxes: what they leave behind, how they go on, and that every option takes."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.hooks import Hook

from seg.config import from_plain
from seg.engine.class_weight import fill_from_checkpoint
from seg.engine.state import checkpoint
from seg.engine.step import unwrap
from seg.engine.test import evaluate
from seg.engine.train import TrainResult, build_runner, train
from seg.errors import UserError
from seg.models.unet import UNet
from seg.registry import HOOKS, MODELS
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('boxes'))


def run(data: Path, work_dir: Path, resume: Any = None, amp: str | None = None, **changes: Any) -> TrainResult:
    return train(tiny_config(data, work_dir, **changes), resume=resume, amp=amp)


def scalars(work_dir: Path) -> list[dict]:
    lines: list[dict] = []
    for path in sorted(work_dir.glob('*/vis_data/scalars.json')):
        lines += [json.loads(line) for line in path.read_text().splitlines()]
    return lines


def losses(work_dir: Path) -> dict[int, float]:
    return {line['iter']: line['loss'] for line in scalars(work_dir) if 'loss' in line}


def test_a_run_leaves_what_it_should(data: Path, tmp_path: Path) -> None:
    result = run(
        data,
        tmp_path / 'run',
        **{'default_hooks.checkpoint': dict(type='CheckpointHook', interval=1, save_best='mDice')},
    )
    names = {path.name for path in (tmp_path / 'run').iterdir()}
    assert {'epoch_1.pth', 'epoch_2.pth', 'split.json', 'last_checkpoint'} <= names
    assert not [name for name in names if name.endswith('.tmp')]
    assert result.last_checkpoint == tmp_path / 'run' / 'epoch_2.pth'
    assert result.best_checkpoint is not None
    assert result.best_checkpoint.is_file()
    # 8 images in batches of 4 are 2 steps an epoch; every step is logged once.
    assert sorted(losses(tmp_path / 'run')) == [1, 2, 3, 4]
    assert 0 <= result.metrics['mDice'] <= 1
    assert result.metrics['val_loss'] == pytest.approx(result.metrics['val_loss_ce'] + result.metrics['val_loss_dice'])


def test_the_checkpoint_carries_the_run_as_plain_data(data: Path, tmp_path: Path) -> None:
    result = run(data, tmp_path / 'run')
    assert result.last_checkpoint is not None
    meta = checkpoint.load(result.last_checkpoint)['meta']
    assert (meta['epoch'], meta['iter'], meta['seed']) == (2, 4, 0)
    assert meta['seg']['global_batch'] == 4
    assert meta['seg']['precision'] == 'fp32'
    assert meta['seg']['dataset_meta']['classes'] == ('background', 'box')
    assert from_plain(meta['seg']['config']).model.network.base_channels == 4


def test_a_folder_with_checkpoints_is_not_overwritten(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / 'run')
    before = (tmp_path / 'run' / 'epoch_2.pth').read_bytes()
    with pytest.raises(UserError, match='--resume'):
        run(data, tmp_path / 'run')
    assert (tmp_path / 'run' / 'epoch_2.pth').read_bytes() == before


@pytest.mark.parametrize('by_epoch', [True, False], ids=['epochs', 'iterations'])
def test_a_resumed_run_equals_the_unbroken_one(data: Path, tmp_path: Path, by_epoch: bool) -> None:
    loop = (
        dict(by_epoch=True, max_epochs=3)
        if by_epoch
        else dict(_delete_=True, by_epoch=False, max_iters=6, val_interval=2)
    )
    hook = dict(type='CheckpointHook', interval=1, by_epoch=False)
    options = {'train_cfg': loop, 'default_hooks.checkpoint': hook}
    whole = run(data, tmp_path / 'whole', **options)
    cut = tmp_path / 'cut'
    run(data, cut, **options)
    # As a power cut inside the second epoch would leave it: the third step's checkpoint is the newest.
    for path in checkpoint.by_age(cut)[:3]:
        path.unlink()
    resumed = run(data, cut, resume='auto', **options)
    first, second = (checkpoint.load(result.last_checkpoint) for result in (whole, resumed))  # type: ignore[arg-type]
    for key, value in first['state_dict'].items():
        assert torch.equal(value, second['state_dict'][key]), key
    assert losses(tmp_path / 'whole') == losses(cut)
    assert whole.metrics == resumed.metrics


def test_a_damaged_newest_checkpoint_falls_back(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run(data, tmp_path / 'run')
    newest = tmp_path / 'run' / 'epoch_2.pth'
    newest.write_bytes(newest.read_bytes()[:1000])
    result = run(data, tmp_path / 'run', resume='auto', **{'train_cfg.max_epochs': 3})
    assert re.search(r'epoch_2\.pth is damaged.*going back', capsys.readouterr().out)
    assert result.last_checkpoint is not None
    assert checkpoint.load(result.last_checkpoint)['meta']['epoch'] == 3


def test_another_global_batch_is_refused_on_resume(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / 'run')
    with pytest.raises(UserError, match='global batch of 4, this run has 2'):
        run(data, tmp_path / 'run', resume='auto', **{'train_dataloader.batch_size': 2})


def test_test_reproduces_what_training_logged(data: Path, tmp_path: Path) -> None:
    result = run(data, tmp_path / 'run')
    report = evaluate(tiny_config(data, tmp_path / 'test'), result.last_checkpoint)  # type: ignore[arg-type]
    for name in ('aAcc', 'mIoU', 'mDice', 'mAcc', 'imDice', 'imIoU'):
        assert report[name] == pytest.approx(result.metrics[name], abs=1e-6)
    assert set(report['per_class']) == {'background', 'box'}
    assert set(report['per_class']['box']) == {'IoU', 'Dice', 'Acc', 'Precision'}


@pytest.mark.parametrize('amp', ['bf16', 'fp16'])
def test_mixed_precision_trains_and_is_tested_in_itself(data: Path, tmp_path: Path, amp: str) -> None:
    result = run(data, tmp_path / 'run', amp=amp)
    saved = checkpoint.load(result.last_checkpoint)  # type: ignore[arg-type]
    assert saved['meta']['seg']['precision'] == amp
    assert ('loss_scaler' in saved['optimizer']) is (amp == 'fp16')
    report = evaluate(tiny_config(data, tmp_path / 'test'), result.last_checkpoint)  # type: ignore[arg-type]
    assert report['mDice'] == pytest.approx(result.metrics['mDice'], abs=1e-6)


OPTIONS: dict[str, dict[str, Any]] = {
    'ema': dict(custom_hooks=[dict(type='EMAHook', momentum=0.1)]),
    'plateau': dict(param_scheduler=[dict(type='ReduceOnPlateauLR', monitor='mDice', rule='greater', patience=0)]),
    'one cycle': dict(param_scheduler=[dict(type='OneCycleLR', eta_max=0.01, by_epoch=False)]),
    'poly by epoch': dict(param_scheduler=[dict(type='PolyLR', power=0.9, convert_to_iter_based=True)]),
    'clip and accumulate': {'optim_wrapper.clip_grad': dict(max_norm=1.0), 'optim_wrapper.accumulative_counts': 2},
    'activation checkpointing': dict(activation_checkpointing=['network.encoder.0', 'network.decoder.0']),
    'channels last': {'model.data_preprocessor.channels_last': True},
    'sync bn alone': dict(sync_bn=True),
    'one sigmoid channel': {'model.num_classes': 1, 'model.losses': [dict(type='BinaryCrossEntropyLoss')]},
    'several validations': {'train_cfg.vals_per_epoch': 2},
    'auto weights': {'model.losses.0.class_weight': 'auto'},
    'deterministic': {'randomness.deterministic': True},
    'early stopping': dict(custom_hooks=[dict(type='EarlyStoppingHook', monitor='mDice', patience=1, min_delta=1.0)]),
    'scaled rate': dict(auto_scale_lr=dict(enable=True, base_batch_size=8)),
    'mmengine timers': {'default_hooks.timer': dict(type='IterTimerHook')},
    'two workers': {'train_dataloader.num_workers': 2, 'val_dataloader.num_workers': 1},
}


@pytest.mark.parametrize('name', OPTIONS)
def test_an_option_trains_and_is_resumed(data: Path, tmp_path: Path, name: str) -> None:
    result = run(data, tmp_path / 'run', **OPTIONS[name])
    assert all(math.isfinite(loss) for loss in losses(tmp_path / 'run').values())
    assert result.metrics['mDice'] >= 0
    resumed = run(data, tmp_path / 'run', resume='auto', **OPTIONS[name], **{'train_cfg.max_epochs': 3})
    assert resumed.last_checkpoint is not None


def test_a_checkpoint_is_tested_with_the_class_weights_that_it_was_trained_with(data: Path, tmp_path: Path) -> None:
    training, testing = tiny_config(data, tmp_path / 'run'), tiny_config(data, tmp_path / 'test')
    for config in (training, testing):
        config.model.losses = dict(type='CrossEntropyLoss', class_weight='auto')
    testing.train_dataloader.dataset.data_root = 'gone'
    result = train(training)
    scores = evaluate(testing, result.last_checkpoint)  # type: ignore[arg-type]
    assert scores['mDice'] == pytest.approx(result.metrics['mDice'], abs=1e-6)
    (logged,) = (line for line in scalars(tmp_path / 'test') if 'test/val_loss' in line)
    assert logged['test/val_loss'] == pytest.approx(result.metrics['val_loss'], abs=1e-12)


def test_class_weights_that_a_file_does_not_tell_are_counted(data: Path, tmp_path: Path) -> None:
    result = run(data, tmp_path / 'run', **{'model.losses.0.class_weight': 'auto'})
    told = checkpoint.load(result.last_checkpoint)['meta']['seg']['config']  # type: ignore[arg-type]
    torch.save(dict(state_dict={}), tmp_path / 'bare.pth')
    config = tiny_config(data, tmp_path / 'test', **{'model.losses.0.class_weight': 'auto'})
    fill_from_checkpoint(config, tmp_path / 'bare.pth')
    assert config.model.losses[0].class_weight == told['model']['losses'][0]['class_weight']
    config.model.losses[0].class_weight, config.train_dataloader = 'auto', None
    with pytest.raises(UserError, match='no train_dataloader to count them from'):
        fill_from_checkpoint(config, tmp_path / 'bare.pth')


def test_what_options_do(data: Path, tmp_path: Path) -> None:
    """The effects that a finished run does not show."""
    scaled = build_runner(tiny_config(data, tmp_path / 'a', **OPTIONS['scaled rate']))
    scaled.train()
    assert scaled.global_batch == 4
    first = next(line for line in scalars(tmp_path / 'a') if 'lr' in line)
    # Half of 0.01, for a global batch of 4 where 8 is the base: the rate that the first step was taken with.
    assert first['lr'] == pytest.approx(0.005, rel=1e-9)

    run(data, tmp_path / 'b', **OPTIONS['several validations'])
    assert sum('mDice' in str(line) for line in scalars(tmp_path / 'b')) == 4  # 2 epochs x 2

    stopped = run(data, tmp_path / 'c', **OPTIONS['early stopping'], **{'train_cfg.max_epochs': 9})
    # The first validation sets the best score; the second is not a whole 1.0 better.
    assert checkpoint.load(stopped.last_checkpoint)['meta']['epoch'] == 2  # type: ignore[arg-type]


def test_weights_of_another_class_count_load_in_part(data: Path, tmp_path: Path) -> None:
    result = run(data, tmp_path / 'two')
    changes = {'model.num_classes': 3, 'load_from': str(result.last_checkpoint)}
    runner = build_runner(tiny_config(data, tmp_path / 'three', **changes))
    runner.train()
    log = next((tmp_path / 'three').glob('*/*.log')).read_text()
    assert 'network.head.weight' in log


def train_on_ranks(data: Path, work_dir: Path, options: dict[str, Any]) -> dict[str, Any]:
    changes = {'train_dataloader.batch_size': 2, 'sync_bn': True, **options}
    config = tiny_config(data, work_dir, **changes)
    return train(config, launcher='pytorch').metrics


def test_two_ranks_make_one_folder_and_the_same_numbers(data: Path, tmp_path: Path) -> None:
    one = run(data, tmp_path / 'one', sync_bn=True)
    both = run_ranks(2, train_on_ranks, data, tmp_path / 'two', {})
    assert both[0] == both[1]
    folders = [path for path in (tmp_path / 'two').iterdir() if path.is_dir()]
    assert len(folders) == 1
    assert losses(tmp_path / 'two') == pytest.approx(losses(tmp_path / 'one'), rel=1e-4)
    assert both[0]['mDice'] == pytest.approx(one.metrics['mDice'], abs=0.02)
    log = next((tmp_path / 'two').glob('*/*.log')).read_text()
    assert log.count('Train [1/2][1/2]') == 1
    assert 'Global batch 4 = 2 per process x 2 process(es) x 1 accumulated' in log


@pytest.mark.parametrize(
    'wrapper',
    [
        dict(static_graph=True),
        dict(gradient_as_bucket_view=True),
        dict(gradient_compression='bf16'),
        dict(find_unused_parameters=True, broadcast_buffers=True),
    ],
    ids=lambda wrapper: next(iter(wrapper)),
)
def test_ddp_options(data: Path, tmp_path: Path, wrapper: dict) -> None:
    both = run_ranks(2, train_on_ranks, data, tmp_path / 'run', dict(model_wrapper_cfg=wrapper))
    assert both[0] == both[1]


@pytest.mark.parametrize(
    'needs',
    [
        {'optim_wrapper.accumulative_counts': 2, 'train_dataloader.batch_size': 1},
        dict(custom_hooks=[dict(type='VerifyHook', verify_step=1)]),
    ],
    ids=['accumulation', 'verify_step'],
)
def test_a_static_graph_is_refused_where_gradients_are_to_stay_local(data: Path, tmp_path: Path, needs: dict) -> None:
    options = dict(model_wrapper_cfg=dict(type='DistributedDataParallel', static_graph=True), **needs)
    with pytest.raises(UserError, match='leave out static_graph'):
        run_ranks(2, train_on_ranks, data, tmp_path / 'run', options)


@HOOKS.register_module()
class FreezeHook(Hook):
    """Sets `requires_grad` of the encoder's first block when the model has been wrapped."""

    def __init__(self, free: bool) -> None:
        self.free = free

    def before_train(self, runner: Any) -> None:
        unwrap(runner.model).network.encoder[0].requires_grad_(self.free)


@MODELS.register_module()
class HalfFrozenUNet(UNet):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.encoder[0].requires_grad_(False)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(custom_hooks=[dict(type='FreezeHook', free=False)]), r'6 weights, \S+ the first, were frozen after'),
        (
            {'custom_hooks': [dict(type='FreezeHook', free=True)], 'model.network.type': 'HalfFrozenUNet'},
            r'6 weights, \S+ the first, were freed after',
        ),
    ],
    ids=['frozen', 'freed'],
)
def test_weights_that_a_hook_freezes_or_frees_behind_ddp(
    data: Path, tmp_path: Path, changes: dict, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        run_ranks(2, train_on_ranks, data, tmp_path / 'run', changes)


def test_weights_may_be_frozen_by_a_hook_where_ddp_looks_for_unused_ones(data: Path, tmp_path: Path) -> None:
    options = dict(custom_hooks=[dict(type='FreezeHook', free=False)], find_unused_parameters=True)
    both = run_ranks(2, train_on_ranks, data, tmp_path / 'run', options)
    assert both[0] == both[1]
    frozen = checkpoint.load(tmp_path / 'run' / 'epoch_1.pth'), checkpoint.load(tmp_path / 'run' / 'epoch_2.pth')
    first, last = (state['state_dict']['network.encoder.0.conv1.weight'] for state in frozen)
    assert torch.equal(first, last)


@pytest.mark.parametrize('options', [{}, dict(activation_checkpointing=['network.encoder.0'])])
def test_the_network_is_compiled_in_place(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict
) -> None:
    graphs: list[Any] = []

    def backend(graph: Any, example_inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr('seg.engine.wrappers.compiling.BACKEND', backend)
    result = run(data, tmp_path / 'compiled', compile=True, **options)
    assert graphs
    plain = run(data, tmp_path / 'plain')
    keys = [checkpoint.load(each.last_checkpoint)['state_dict'].keys() for each in (result, plain)]  # type: ignore[arg-type]
    assert keys[0] == keys[1]


def test_switches_of_torch(data: Path, tmp_path: Path) -> None:
    fast = {'env_cfg': dict(cudnn_benchmark=True)}
    build_runner(tiny_config(data, tmp_path / 'fast', **fast))
    assert torch.backends.cudnn.benchmark
    try:
        build_runner(tiny_config(data, tmp_path / 'same', **{'randomness.deterministic': 'warn'}))
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.backends.cudnn.benchmark
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize('terminal', [True, False])
def test_a_bar_on_a_terminal_only(data: Path, tmp_path: Path, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    stderr = type('Screen', (), {'write': lambda self, text: written.append(text), 'flush': lambda self: None})()
    stderr.isatty = lambda: terminal
    stderr.encoding = 'utf-8'
    monkeypatch.setattr('sys.stderr', stderr)
    run(data, tmp_path / 'run')
    assert any('step' in text and '4' in text for text in written) is terminal


def test_an_extended_run_is_planned_anew(data: Path, tmp_path: Path) -> None:
    """The rule: the rate is what it would be had the run been planned so from the start."""
    run(data, tmp_path / 'run')
    run(data, tmp_path / 'run', resume='auto', **{'train_cfg.max_epochs': 4})
    rates = {line['iter']: line['lr'] for line in scalars(tmp_path / 'run') if 'lr' in line}
    # Of 8 cosine steps from 0.01 to 1e-5, the fifth is taken at (1 + cos(4 pi / 8)) / 2 = half the way down,
    # the eighth at (1 + cos(7 pi / 8)) / 2.
    assert rates[5] == pytest.approx(1e-5 + (0.01 - 1e-5) / 2, rel=1e-6)
    assert rates[8] == pytest.approx(1e-5 + (0.01 - 1e-5) * (1 + math.cos(7 * math.pi / 8)) / 2, rel=1e-6)


def test_a_checkpoint_of_another_width_is_refused_in_one_message(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / 'run')
    with pytest.raises(UserError, match=r'epoch_2\.pth is of another model: \d+ weights differ'):
        run(data, tmp_path / 'run', resume='auto', **{'model.network.base_channels': 8})


def test_a_refused_run_leaves_no_folder(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match='nowhere'):
        run(data, tmp_path / 'run', **{'train_dataloader.dataset.data_root': '/nowhere'})
    assert not (tmp_path / 'run').exists()
