"""A run under FSDP: bit-equal when resumed, its folders read by every tool, and over to DDP and back."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from seg.engine.check import check_run
from seg.engine.processes.launch import setup_process
from seg.engine.state import checkpoint, resume
from seg.engine.state.convert import convert
from seg.engine.test import evaluate
from seg.engine.train import train
from seg.errors import UserError
from seg.inference.stored import read_stored_model
from tests.engine.test_exact_resume import assert_equal
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config

FSDP = dict(type='FullyShardedDataParallel')
OPTIONS: dict[str, Any] = {
    'train_cfg.max_epochs': 2,
    'train_dataloader.batch_size': 1,
    'optim_wrapper': dict(type='AmpOptimWrapper', dtype='float16', accumulative_counts=2, clip_grad=dict(max_norm=1.0)),
    'optim_wrapper.optimizer': dict(type='AdamW', lr=0.02),
    'sync_bn': True,
    'model.network.dropout': 0.3,
    'val_dataloader.batch_size': 1,  # 3 images: two batches on one rank, one on the other
    'custom_hooks': [dict(type='EMAHook', momentum=0.5), dict(type='EarlyStoppingHook', monitor='mDice', patience=9)],
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


@pytest.mark.parametrize(('ranks', 'before_last'), [(2, 'iter_9.dcp'), (3, 'iter_6.dcp')])
def test_a_resumed_run_equals_the_unbroken_one(tmp_path: Path, data: Path, ranks: int, before_last: str) -> None:
    whole = on_ranks(ranks, data, tmp_path / 'whole')  # 2 epochs of 6 or 4 steps, of 2 images a rank
    assert Path(whole['last']).name == 'epoch_2.dcp'
    kept = sorted(path.name for path in (tmp_path / 'whole').glob('*.dcp'))
    assert [name for name in kept if not name.startswith('best')] == ['epoch_2.dcp', before_last]
    cut = on_ranks(ranks, data, tmp_path / 'cut', tmp_path / 'whole' / before_last)
    assert cut['metrics'] == whole['metrics']
    assert_equal(checkpoint.load(whole['last']), checkpoint.load(cut['last']))


@pytest.fixture(scope='module')
def runs(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """12 steps of 4 images in float32 without dropout, one of them left out.

    'fsdp' has folders in pieces, 'gathered' plain files, 'ddp' has no FSDP.
    """
    root = tmp_path_factory.mktemp('runs')
    SCORES.update(on_ranks(2, data, root / 'fsdp', **PLAIN, **NAN)['metrics'])
    on_ranks(2, data, root / 'gathered', checkpoint=dict(sharded=False), **PLAIN, **NAN)
    on_ranks(2, data, root / 'ddp', model_wrapper_cfg=None, **PLAIN, **NAN)
    return root


SCORES: dict[str, float] = {}  # of the last validation of 'fsdp'
PLAIN: dict[str, Any] = {
    'optim_wrapper': dict(type='OptimWrapper', clip_grad=dict(max_norm=1.0)),
    'train_dataloader.batch_size': 2,
    'model.network.dropout': 0.0,
}
AVERAGED = dict(type='EMAHook', momentum=0.5)
NAN: dict[str, Any] = {  # step 3 is left out, on both ranks
    'optim_wrapper.skip_nonfinite': 1,
    'custom_hooks': [AVERAGED, dict(type='InjectHook', fault='nan:rank=1,step=3')],
}


def assert_close(one: dict, other: dict) -> None:
    """The same state but for what 12 steps round in float32, and for who wrote it."""
    for part in ('state_dict', 'ema_state_dict'):
        assert one[part].keys() == other[part].keys()
        for key, value in one[part].items():
            torch.testing.assert_close(value, other[part][key], rtol=1e-3, atol=1e-5)
    for index, state in one['optimizer']['state'].items():
        for key, value in state.items():
            torch.testing.assert_close(value, other['optimizer']['state'][index][key], rtol=1e-2, atol=1e-5)
    assert one['param_schedulers'] == other['param_schedulers']
    assert one['meta']['seg']['iter'] == other['meta']['seg']['iter'] == 12


def test_pieces_and_plain_files_hold_the_same_as_ddp(runs: Path) -> None:
    pieces = checkpoint.load(runs / 'fsdp/epoch_2.dcp')
    plain = checkpoint.load(runs / 'gathered/epoch_2.pth')
    for state in (pieces, plain):  # the names of the files differ
        state.pop('message_hub')
    assert_equal(pieces, plain)
    assert_close(pieces, checkpoint.load(runs / 'ddp/epoch_2.pth'))


@pytest.mark.parametrize(
    ('start', 'ranks', 'wrapper'),
    [
        ('fsdp/iter_9.dcp', 2, None),
        ('ddp/iter_9.pth', 2, FSDP),
        ('fsdp/iter_9.dcp', 1, FSDP),
        ('fsdp/iter_9.dcp', 4, FSDP),
    ],
)
def test_a_run_goes_over(runs: Path, tmp_path: Path, data: Path, start: str, ranks: int, wrapper: dict | None) -> None:
    result = on_ranks(ranks, data, tmp_path / 'run', runs / start, model_wrapper_cfg=wrapper, **PLAIN)
    suffix = '.dcp' if wrapper and ranks > 1 else '.pth'
    assert Path(result['last']).name == f'epoch_2{suffix}'
    assert_close(checkpoint.load(runs / 'ddp/epoch_2.pth'), checkpoint.load(result['last']))


def scores(data: str, work_dir: str, file: str, wrapper: dict | None, launcher: str) -> dict[str, float]:
    setup_process(launcher)
    changes = {'model.network.dropout': 0.3, 'val_dataloader.batch_size': 1, 'model_wrapper_cfg': wrapper}
    return evaluate(tiny_config(Path(data), Path(work_dir), **changes), file, launcher=launcher)


def test_the_tools_read_the_folder(runs: Path, tmp_path: Path, data: Path) -> None:
    """tools/test.py in one process, under DDP and under FSDP gives training's number; so does the converted file."""
    folder = str(runs / 'fsdp/epoch_2.dcp')
    tool = Path(__file__).parents[2] / 'tools/convert_checkpoint.py'
    subprocess.run([sys.executable, str(tool), folder, str(tmp_path / 'plain.pth')], check=True)
    arguments = (str(data), str(tmp_path / 'work'))
    alone = scores(*arguments, folder, FSDP, 'none')
    for found in (
        alone,
        scores(*arguments, str(tmp_path / 'plain.pth'), None, 'none'),
        *run_ranks(2, scores, *arguments, folder, None, 'pytorch'),
        *run_ranks(2, scores, *arguments, folder, FSDP, 'pytorch'),
    ):
        for name in ('mDice', 'mIoU', 'imDice'):
            assert found[name] == pytest.approx(SCORES[name], abs=1e-6)
    stored = read_stored_model(folder)
    assert stored.classes == ('background', 'box')
    assert_equal(stored.weights, checkpoint.load(tmp_path / 'plain.pth')['state_dict'])
    with pytest.raises(UserError, match=r'plain\.pth is a file already'):
        convert(tmp_path / 'plain.pth', tmp_path / 'again.pth')
    with pytest.raises(UserError, match=r'plain\.pth exists'):
        convert(Path(folder), tmp_path / 'plain.pth')


def resumed_from_what_is_left(data: str, work_dir: str) -> str:
    result = train(
        tiny_config(Path(data), Path(work_dir), **{**OPTIONS, **PLAIN, 'model_wrapper_cfg': FSDP}),
        launcher='pytorch',
        resume='auto',
    )
    return str(result.last_checkpoint)


def test_the_newest_whole_folder_is_taken(runs: Path, tmp_path: Path, data: Path) -> None:
    for name in ('iter_9.dcp', 'epoch_2.dcp'):
        shutil.copytree(runs / 'fsdp' / name, tmp_path / 'run' / name)
    piece = next((tmp_path / 'run/epoch_2.dcp').glob('__1_*'))
    content = bytearray(piece.read_bytes())
    content[len(content) // 2] ^= 1
    piece.write_bytes(content)
    warnings: list[str] = []
    found = resume.newest_good(tmp_path / 'run', warn=warnings.append)
    assert found is not None
    assert found[0].name == 'iter_9.dcp'
    assert f'the checksum of {piece.name} is wrong' in warnings[0]
    last = run_ranks(2, resumed_from_what_is_left, str(data), str(tmp_path / 'run'))[0]
    assert_close(checkpoint.load(runs / 'fsdp/epoch_2.dcp'), checkpoint.load(last))


def checked(data: str) -> list[str]:
    setup_process('pytorch')
    return check_run(tiny_config(Path(data), Path('unused'), **{**OPTIONS, 'model_wrapper_cfg': FSDP}))


def test_the_check_tries_it(data: Path) -> None:
    lines = run_ranks(2, checked, str(data))[0]
    assert any(line.startswith('whole run: about') for line in lines)


@pytest.mark.parametrize('kind', ['TorchAdafactor', 'Rprop'])
def test_an_optimizer_that_needs_whole_weights_is_refused(tmp_path: Path, data: Path, kind: str) -> None:
    with pytest.raises(UserError, match='on whole weights only'):
        on_ranks(2, data, tmp_path / 'run', **{'optim_wrapper.optimizer': dict(type=kind, lr=0.01)})
