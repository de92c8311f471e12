"""An interrupted run equals the unbroken run, bit for bit (promise 4): 1, 2 and 3 ranks, stopped after step 17 of 30.

Each scenario switches on what holds state; the manifest at the end fails when a class that may hold state is registered and
not enrolled in a scenario.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from mmengine.dist import get_rank
from mmengine.hooks import Hook

from seg import registry
from seg.engine.state import checkpoint
from seg.engine.train import train
from seg.registry import HOOKS
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config

STOP, STEPS = 17, 30
ITERATIONS = dict(_delete_=True, by_epoch=False, max_iters=STEPS, val_interval=5)

# Two or three options would hide each other's faults less, but every run costs seconds.
SCENARIOS: dict[str, dict[str, Any]] = {
    'epochs': {
        'param_scheduler': [
            dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=5),
            dict(type='CosineAnnealingLR', by_epoch=False, begin=5, eta_min=1e-5),
            dict(type='ReduceOnPlateauLR', monitor='mDice', rule='greater', patience=1),
        ],
        'custom_hooks': [
            dict(type='EMAHook', momentum=0.1),
            dict(type='EarlyStoppingHook', monitor='mDice', patience=9),
            dict(type='TraceHook'),
        ],
    },
    'fp16, one cycle, accumulation': {
        'optim_wrapper': dict(type='AmpOptimWrapper', dtype='float16', accumulative_counts=2),
        'param_scheduler': [dict(type='OneCycleLR', eta_max=0.02, by_epoch=False)],
        'custom_hooks': [dict(type='TraceHook'), dict(type='EMAHook', ema_type='MomentumAnnealingEMA')],
        'train_dataloader.batch_size': 1,
    },
    'iterations': {
        'train_cfg': ITERATIONS,
        'param_scheduler': [dict(type='PolyLR', power=0.9, by_epoch=False)],
        'custom_hooks': [dict(type='TraceHook')],
        'optim_wrapper.optimizer': dict(type='SGD', lr=0.05, momentum=0.9, nesterov=True),
    },
}
COMMON: dict[str, Any] = {
    'train_cfg.max_epochs': 3,
    'train_dataloader.batch_size': 2,
    'model.network.dropout': 0.3,
    'sync_bn': True,
    'default_hooks.checkpoint': dict(
        type='CheckpointHook', interval=STOP, by_epoch=False, save_best='mDice', rule='greater', max_keep_ckpts=3
    ),
}


@HOOKS.register_module()
class TraceHook(Hook):
    """Notes each step's samples and learning rate, for a rank to hand back."""

    lines: ClassVar[list[tuple[int, list[int], float]]] = []

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        samples = [meta['sample_idx'] for meta in data_batch['metas']]
        rate = runner.optim_wrapper.optimizer.param_groups[0]['lr']
        self.lines.append((runner.iter + 1, samples, rate))


def run(data: str, work_dir: str, options: dict, launcher: str, resume: str | None) -> dict[str, Any]:
    TraceHook.lines = []
    result = train(tiny_config(Path(data), Path(work_dir), **options), launcher=launcher, resume=resume)
    trace = {step: (samples, rate) for step, samples, rate in TraceHook.lines}
    return dict(trace=trace, metrics=result.metrics, rank=get_rank(), last=str(result.last_checkpoint))


def on_ranks(ranks: int, data: Path, work_dir: Path, options: dict, resume: Path | None = None) -> list[dict]:
    arguments = (str(data), str(work_dir), options, 'none' if ranks == 1 else 'pytorch', resume and str(resume))
    return [run(*arguments)] if ranks == 1 else run_ranks(ranks, run, *arguments)


def losses(work_dir: Path) -> Iterator[tuple[int, float]]:
    for path in sorted(work_dir.glob('*/vis_data/scalars.json')):
        for line in map(json.loads, path.read_text().splitlines()):
            if 'loss' in line:
                yield line['iter'], line['loss']


def options_for(name: str, ranks: int) -> dict[str, Any]:
    options = {**COMMON, **SCENARIOS[name]}
    if isinstance(options['train_cfg.max_epochs'], int) and 'train_cfg' in options:
        del options['train_cfg.max_epochs']
    return options


def images_for(options: dict[str, Any], ranks: int) -> int:
    """So many that an epoch has 10 steps."""
    accumulated = options.get('optim_wrapper', {}).get('accumulative_counts', 1)
    return 10 * options['train_dataloader.batch_size'] * ranks * accumulated


@pytest.mark.parametrize('ranks', [1, 2, 3])
@pytest.mark.parametrize('name', SCENARIOS)
def test_stopped_after_step_17_and_resumed(tmp_path: Path, name: str, ranks: int) -> None:
    options = options_for(name, ranks)
    if ranks == 1 and name == 'epochs':
        options['train_dataloader.num_workers'] = 2
    data = make_data(tmp_path / 'data', train=images_for(options, ranks), val=3, size=(16, 16))
    whole = on_ranks(ranks, data, tmp_path / 'whole', options)
    resumed = on_ranks(ranks, data, tmp_path / 'cut', options, tmp_path / 'whole' / f'iter_{STOP}.pth')
    for one, other in zip(whole, resumed):
        assert list(other['trace']) == list(range(STOP + 1, STEPS + 1))
        assert {step: one['trace'][step] for step in other['trace']} == other['trace']
        assert one['metrics'] == other['metrics']
    assert dict(losses(tmp_path / 'cut')) == {s: v for s, v in losses(tmp_path / 'whole') if s > STOP}
    first, second = (checkpoint.load(results[0]['last']) for results in (whole, resumed))
    assert_equal(first, second)


def assert_equal(one: Any, other: Any, key: str = 'checkpoint') -> None:
    """Every bit of two checkpoints, but for what tells when and where."""
    if key.endswith(('.time', '.experiment_name', '.config', '.work_dir')):
        return
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), key
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), key
        for name in one:
            assert_equal(one[name], other[name], f'{key}.{name}')
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), key
        for number, (a, b) in enumerate(zip(one, other)):
            assert_equal(a, b, f'{key}[{number}]')
    else:
        assert one == other, key


def test_the_best_checkpoint_can_be_resumed(tmp_path: Path) -> None:
    data = make_data(tmp_path / 'data', train=20, val=3, size=(16, 16))
    options = options_for('epochs', 1)
    on_ranks(1, data, tmp_path / 'run', options)
    best = next((tmp_path / 'run').glob('best_*.pth'))
    at = checkpoint.load(best)['meta']['iter']
    again = on_ranks(1, data, tmp_path / 'again', options, best)
    assert list(again[0]['trace']) == list(range(at + 1, STEPS + 1))


# What may hold state, by its registration: the scenario that proves it, or why there is nothing to prove.
MANIFEST: dict[str, dict[str, str]] = {
    'HOOKS': {
        'BadFilesHook': 'counts for the log',
        'CheckpointHook': 'epochs: best score and files in the run state',
        'EMAHook': 'epochs',
        'EarlyStoppingHook': 'epochs',
        'HistogramHook': 'none: follows from the step',
        'InjectHook': 'none: a drill happens once',
        'LoggerHook': 'none: logs, and times the process',
        'ProgressBarHook': 'none: a display',
        'RecordHook': 'none: writes at the start',
        'SavePredictionsHook': 'none: test only',
        'SegVisualizationHook': 'none: pictures',
        'StopHook': 'none: signals of the process',
        'VerifyHook': 'none: judges whole epochs only',
    },
    'LOOPS': {
        'EpochBasedTrainLoop': 'epochs',
        'IterBasedTrainLoop': 'iterations',
        'ValLoop': 'none between validations',
        'TestLoop': 'none',
    },
    # with zero=True: test_zero.py, in the same way
    'OPTIM_WRAPPERS': {'OptimWrapper': 'epochs', 'AmpOptimWrapper': 'fp16, one cycle, accumulation'},
    'DATA_SAMPLERS': {'GlobalBatchSampler': 'all: the place is the step', 'EvalBatchSampler': 'none'},
    'MODEL_WRAPPERS': {
        'DistributedDataParallel': 'all on 2 and 3 ranks: the order of its buckets',
        'MMDistributedDataParallel': 'the same class',
        'DataParallel': 'none',
        'FullyShardedDataParallel': 'the weights in pieces: test_fsdp_run.py, in the same way',
    },
}


@pytest.mark.parametrize('kind', MANIFEST)
def test_every_registered_class_is_enrolled(kind: str) -> None:
    children = getattr(registry, kind)
    children.import_from_location()
    shipped = {name for name, one in children.module_dict.items() if not one.__module__.startswith('tests.')}
    new = shipped - set(MANIFEST[kind])
    assert not new, f'{sorted(new)}: enrol it above, with a scenario if it holds state'
