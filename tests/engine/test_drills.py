"""A failure anywhere ends everything fast (promise 6): 2 ranks, each fault made by `--inject` or a signal, the exit code
not 0 within 15 s of it, the cause named once, no process left behind."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seg.engine.state import checkpoint
from tests.drills.run import Run, small_disk, start_real

EACH_STEP = {'default_hooks.checkpoint': dict(type='CheckpointHook', interval=1)}
SLOW = dict(imports=['tests.drills.slow'], allow_failed_imports=False)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def _start(*flags: str, **options: object) -> Run:
        runs.append(Run(tmp_path / f'{len(runs)}', *flags, **options))  # type: ignore[arg-type]
        return runs[-1]

    yield _start
    for run in runs:
        run.kill()


def newest(folder: Path) -> dict:
    return checkpoint.load(checkpoint.by_age(folder)[0])


def slow_images(part: str, rank: int, seconds: float) -> dict:
    """Options: one rank sleeps at each image of the training or validation data."""
    load, labels, pack = dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'), dict(type='PackSegInputs')
    slow = dict(type='SlowOnRank', rank=rank, seconds=seconds)
    return {'custom_imports': SLOW, f'{part}_dataloader.dataset.pipeline': [load, slow, labels, pack]}


# ---- kill -9 ----


@pytest.mark.parametrize('phase', ['forward', 'backward', 'validation', 'checkpoint'])
def test_a_killed_rank_ends_all(start: Callable[..., Run], phase: str) -> None:
    # The writer of checkpoints is rank 0.
    rank = 0 if phase == 'checkpoint' else 1
    run = start('--inject', f'kill:rank={rank},step=3,phase={phase}', **EACH_STEP)
    assert run.ends(run.wait_for('][')) == 128 + signal.SIGKILL
    assert run.log.count('SIGKILL') == 1
    assert f'rank {rank} (process' in run.log
    assert 'Traceback' not in run.log
    if phase == 'checkpoint':
        # Written beside the steps: step 3 may begin before the file of step 2 has its name, or after.
        assert newest(run.work_dir)['meta']['iter'] in (1, 2)


def test_a_rank_killed_before_it_joins_ends_all(start: Callable[..., Run]) -> None:
    run = start()
    run.wait_until(lambda: bool(run.ranks()))
    os.kill(run.ranks()[0], signal.SIGKILL)
    assert run.ends(time.monotonic()) == 128 + signal.SIGKILL
    assert run.log.count('SIGKILL') == 1


def test_a_rank_killed_at_the_very_end_is_started_again_to_finish(start: Callable[..., Run]) -> None:
    """While the last checkpoint may still be written."""
    run = start('--max-restarts', '1', '--inject', 'kill:rank=0,phase=end', **{'train_cfg.max_epochs': 2})
    assert run.process.wait(timeout=90) == 0, run.log
    assert 'restart 1 of 1' in run.log
    assert newest(run.work_dir)['meta']['iter'] == 2
    assert not run.members()


@pytest.mark.parametrize('rank', [0, 1])
def test_a_rank_killed_while_the_data_is_looked_at_ends_all(start: Callable[..., Run], rank: int) -> None:
    run = start(**slow_images('train', 0, 60))  # the first rank looks, the other waits for it
    run.wait_for('slow')
    os.kill(run.ranks()[rank], signal.SIGKILL)
    assert run.ends(time.monotonic()) == 128 + signal.SIGKILL


def test_a_killed_launcher_leaves_no_rank(start: Callable[..., Run]) -> None:
    run = start(start=start_real)
    run.wait_for('Train [2/')
    run.process.kill()
    assert run.ends(time.monotonic()) == -signal.SIGKILL


def test_a_killed_loader_worker_ends_all(start: Callable[..., Run]) -> None:
    run = start('--inject', 'kill:rank=1,step=3,phase=worker', **{'train_dataloader.num_workers': 1})
    assert run.ends(run.wait_for('DataLoader worker')) == 1
    assert run.log.count('killed by signal') == 1


def test_a_rank_that_sees_no_failure_is_ended_all_the_same(start: Callable[..., Run]) -> None:
    """It validates for minutes, with no word to the rank that died."""
    options = {**slow_images('val', 0, 8), 'check_data': False, 'val_dataloader.batch_size': 1}
    run = start('--inject', 'kill:rank=1,step=1,phase=validation', **options)
    assert run.ends(run.wait_for('slow')) == 128 + signal.SIGKILL
    assert 'rank 1 (process' in run.log


# ---- an exception on one rank ----


@pytest.mark.parametrize(
    ('fault', 'phase'),
    [('raise', 'data'), ('raise', 'hook'), ('raise', 'forward'), ('raise', 'backward'), ('memory', 'backward')],
)
def test_an_exception_on_one_rank_ends_all_and_is_named_once(start: Callable[..., Run], fault: str, phase: str) -> None:
    run = start('--inject', f'{fault}:rank=1,step=3,phase={phase}')
    assert run.ends(run.wait_for('injected: ')) == 1
    name = {'raise': 'RuntimeError', 'memory': 'MemoryError'}[fault]
    assert run.log.count(f'{name}: injected') == 1
    assert run.log.count('Traceback') == 1


def test_an_exception_on_all_ranks_is_shown_once(start: Callable[..., Run]) -> None:
    run = start(custom_imports=SLOW, custom_hooks=[dict(type='FailingHook')])
    assert run.ends(run.wait_for('it fails everywhere')) == 1
    assert run.log.count('ValueError: it fails everywhere') == 1
    assert run.log.count('failed in the same way') == 1


def test_an_exception_in_a_loader_worker_names_the_sample(start: Callable[..., Run]) -> None:
    run = start('--inject', 'raise:rank=1,step=3,phase=data', **{'train_dataloader.num_workers': 1})
    assert run.ends(run.wait_for('injected: ')) == 1
    assert run.log.count('RuntimeError: injected') == 1


# ---- the disk ----


def test_a_full_disk_ends_all_and_keeps_the_last_checkpoint(start: Callable[..., Run], tmp_path: Path) -> None:
    with small_disk(tmp_path / 'disk', 700) as disk:
        if disk is None:
            pytest.skip('mounting a small disk needs root')
        run = start('--work-dir', str(disk / 'run'), **EACH_STEP)
        assert run.ends(run.wait_for('No space left on device')) == 1
        assert run.log.count('could not be written: No space left on device') == 1
        assert run.log.count('No space left on device') == 1
        assert newest(disk / 'run')['meta']['epoch'] >= 1
        assert not list((disk / 'run').glob('.*.tmp'))
        run.kill()


def test_a_folder_that_becomes_read_only_ends_all(start: Callable[..., Run], tmp_path: Path) -> None:
    run = start(**EACH_STEP)
    run.wait_for('Train [2/')
    folder = str(run.work_dir)
    if subprocess.run(['mount', '-o', 'bind,ro', folder, folder], capture_output=True).returncode:
        pytest.skip('a read-only mount needs root')
    try:
        assert run.ends(time.monotonic()) == 1
        assert run.log.count('Read-only file system') == 1
        assert newest(run.work_dir)['meta']['epoch'] >= 1
    finally:
        run.kill()
        subprocess.run(['umount', '-l', folder], check=True)


def test_a_read_only_folder_is_refused(start: Callable[..., Run], tmp_path: Path) -> None:
    with small_disk(tmp_path / 'disk', 700) as disk:
        if disk is None or subprocess.run(['mount', '-o', 'remount,ro', str(disk)]).returncode:
            pytest.skip('a read-only mount needs root')
        run = start('--work-dir', str(disk), '--max-restarts', '3')
        assert run.ends(run.wait_for('error: ')) == 2
        assert 'restart' not in run.log
        assert run.log.count(f'the run folder {disk} cannot be written: Read-only file system') == 1
        assert 'Traceback' not in run.log


# ---- a loss that is not finite ----


def test_a_loss_that_is_not_finite_stops_and_is_explained(start: Callable[..., Run]) -> None:
    hook = dict(type='CheckpointHook', interval=1, by_epoch=False, save_best='mDice', rule='greater')
    run = start('--inject', 'nan:rank=1,step=5', **{'default_hooks.checkpoint': hook})
    assert run.ends(run.wait_for('not finite')) == 1
    assert run.log.count('the loss is not finite at step 5') == 1
    assert 'learning rate' in run.log
    assert 'samples [' in run.log
    assert newest(run.work_dir)['meta']['iter'] == 4
    assert all(int(path.stem.rpartition('_')[2]) < 5 for path in run.work_dir.glob('best_*.pth'))


def test_between_log_lines_it_is_read_before_a_checkpoint(start: Callable[..., Run]) -> None:
    """Logged every 100 steps: what is written at step 8 comes after the look."""
    options = {
        'default_hooks.checkpoint': dict(type='CheckpointHook', interval=4, by_epoch=False),
        'default_hooks.logger.interval': 100,
        'train_cfg': dict(_delete_=True, by_epoch=False, max_iters=10**4, val_interval=10**4),
    }
    run = start('--inject', 'nan:rank=1,step=6', **options)
    assert run.ends(run.wait_for('not finite')) == 1
    assert run.log.count('the loss is not finite at step 6') == 1
    assert newest(run.work_dir)['meta']['iter'] == 4


def test_steps_that_are_not_finite_are_left_out_on_request(start: Callable[..., Run]) -> None:
    changes = {'optim_wrapper.skip_nonfinite': 1, 'train_cfg.max_epochs': 6}
    run = start('--inject', 'nan:rank=1,step=5', **changes)
    assert run.process.wait(timeout=120) == 0, run.log
    assert 'not finite at step 5 (learning rate' in run.log
    assert 'left out, 1 of 1 allowed' in run.log
    state = newest(run.work_dir)['state_dict']
    assert all(value.isfinite().all() for value in state.values())
