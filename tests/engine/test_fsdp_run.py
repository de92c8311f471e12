"""A run under FSDP: bit-equal when resumed, its folders read by every tool, and over to DDP and back."""

from pathlib import Path
from typing import Any

import pytest

from seg.engine import checkpoint
from seg.engine.train import train
from tests.engine.test_exact_resume import assert_equal
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config

FSDP = dict(type='FullyShardedDataParallel')
OPTIONS: dict[str, Any] = {
    'train_cfg.max_epochs': 2,
    'train_dataloader.batch_size': 1,
    'optim_wrapper': dict(type='AmpOptimWrapper', dtype='float16', accumulative_counts=2, clip_grad=dict(max_norm=1.0)),
    'optim_wrapper.optimizer': dict(type='AdamW', lr=0.01),
    'sync_bn': True,
    'model.network.dropout': 0.3,
}


def run(data: str, work_dir: str, options: dict, resume: str | None) -> dict[str, Any]:
    hook = dict(type='CheckpointHook', interval=3, by_epoch=False, save_best='mDice', rule='greater', max_keep_ckpts=2)
    hook.update(options.pop('checkpoint', {}))
    changes = {**OPTIONS, 'default_hooks.checkpoint': hook, **options}
    result = train(tiny_config(Path(data), Path(work_dir), **changes), launcher='pytorch', resume=resume)
    return dict(last=str(result.last_checkpoint), best=str(result.best_checkpoint), metrics=result.metrics)


def on_ranks(ranks: int, data: Path, work_dir: Path, resume: Path | None = None, **options: Any) -> dict[str, Any]:
    options.setdefault('model_wrapper_cfg', FSDP)
    results = run_ranks(ranks, run, str(data), str(work_dir), options, resume and str(resume))
    assert all(result['metrics'] == results[0]['metrics'] for result in results)
    return results[0]


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('fsdp') / 'data', train=24, val=3, size=(16, 16))


def test_a_resumed_run_equals_the_unbroken_one(tmp_path: Path, data: Path) -> None:
    whole = on_ranks(2, data, tmp_path / 'whole')  # 12 steps: 6 an epoch, of 2 x 2 images
    assert Path(whole['last']).name == 'epoch_2.dcp'
    kept = sorted(path.name for path in (tmp_path / 'whole').glob('*.dcp'))
    assert [name for name in kept if not name.startswith('best')] == ['epoch_2.dcp', 'iter_9.dcp']
    cut = on_ranks(2, data, tmp_path / 'cut', tmp_path / 'whole/iter_9.dcp')
    assert cut['metrics'] == whole['metrics']
    assert_equal(checkpoint.load(whole['last']), checkpoint.load(cut['last']))
