"""A failure anywhere ends everything fast (promise 6): 2 ranks, each fault made by `--inject` or a signal, the exit code
not 0 within 15 s of it, the cause named, no process left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seg.engine import checkpoint
from tests.tiny import make_data, tiny_config

LIMIT_S = 15.0


class Run:
    """`tools/dist_train.sh CONFIG 2` on an endless tiny config, in a session of its own."""

    def __init__(self, folder: Path, *flags: str, ranks: int = 2, **changes: object) -> None:
        options = {'train_cfg.max_epochs': 10**4, 'val_dataloader.num_workers': 0, **changes}
        config = tiny_config(make_data(folder / 'data', train=8, val=4), folder / 'run', **options)
        (folder / 'config.py').write_text(config.pretty_text)
        self.work_dir = folder / 'run'
        self.log_path = folder / 'output.txt'
        command = [sys.executable, '-m', 'seg.engine.launcher', 'train', str(folder / 'config.py'), str(ranks), *flags]
        self.marker = f'drill-{folder}'
        environment = {**os.environ, 'SEG_DRILL': self.marker, 'OMP_NUM_THREADS': '1'}
        with self.log_path.open('w') as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def wait_for(self, text: str, timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.log:
            assert time.monotonic() < deadline, self.log
            assert self.process.poll() is None or text in self.log, self.log
            time.sleep(0.1)

    def members(self) -> dict[int, str]:
        """Every living process of this run, by its inherited environment: id -> command line."""
        found = {}
        for folder in Path('/proc').glob('[0-9]*'):
            try:
                environment = (folder / 'environ').read_bytes()
                if f'SEG_DRILL={self.marker}'.encode() in environment.split(b'\0'):
                    found[int(folder.name)] = (folder / 'cmdline').read_text().replace('\0', ' ')
            except (OSError, UnicodeDecodeError):
                continue  # it has ended meanwhile
        return found

    def ends(self, since_s: float) -> int:
        """The exit code; fails when it, or any process of the run, takes longer than the limit."""
        code = self.process.wait(timeout=90)
        while self.members() and time.monotonic() - since_s < LIMIT_S:
            time.sleep(0.1)
        assert not self.members(), self.log
        assert time.monotonic() - since_s < LIMIT_S, self.log
        return code

    def kill(self) -> None:
        for pid in self.members():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def _start(*flags: str, **options: object) -> Run:
        runs.append(Run(tmp_path, *flags, **options))  # type: ignore[arg-type]
        return runs[-1]

    yield _start
    for run in runs:
        run.kill()


def struck(run: Run, text: str) -> float:
    run.wait_for(text)
    return time.monotonic()


@pytest.mark.parametrize('phase', ['forward', 'backward', 'validation', 'checkpoint'])
def test_a_killed_rank_ends_all(start: Callable[..., Run], phase: str) -> None:
    hook = dict(type='CheckpointHook', interval=1)
    # The writer of checkpoints is rank 0.
    rank = 0 if phase == 'checkpoint' else 1
    run = start('--inject', f'kill:rank={rank},step=3,phase={phase}', **{'default_hooks.checkpoint': hook})
    began_s = struck(run, '][')
    code = run.ends(began_s)
    assert code == 128 + signal.SIGKILL
    assert run.log.count('SIGKILL') == 1
    if phase == 'checkpoint':
        # Written beside the steps: step 3 may begin before the file of step 2 has its name, or after.
        assert checkpoint.load(checkpoint.by_age(run.work_dir)[0])['meta']['iter'] in (1, 2)


@pytest.mark.parametrize('phase', ['data', 'forward', 'backward'])
def test_an_exception_on_one_rank_ends_all_and_is_named_once(start: Callable[..., Run], phase: str) -> None:
    run = start('--inject', f'raise:rank=1,step=3,phase={phase}')
    code = run.ends(struck(run, 'injected: '))
    assert code == 1
    assert run.log.count('RuntimeError: injected') == 1


def test_a_killed_launcher_leaves_no_rank(start: Callable[..., Run]) -> None:
    run = start()
    run.wait_for('Train [2/')
    run.process.kill()
    assert run.ends(time.monotonic()) == -signal.SIGKILL


def test_a_killed_loader_worker_ends_all(start: Callable[..., Run]) -> None:
    run = start('--inject', 'kill:rank=1,step=3,phase=worker', **{'train_dataloader.num_workers': 1})
    assert run.ends(struck(run, 'DataLoader worker')) == 1


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_with_a_checkpoint(start: Callable[..., Run], number: signal.Signals) -> None:
    run = start(**{'train_dataloader.num_workers': 1})
    run.wait_for('Train [2/')
    os.kill(run.process.pid, number)
    assert run.ends(time.monotonic()) == 128 + number
    assert f'{number.name}: stopping after step' in run.log
    newest = checkpoint.load(checkpoint.by_age(run.work_dir)[0])
    assert f'stopping after step {newest["meta"]["iter"]},' in run.log


def test_a_rank_that_hangs_is_ended_after_a_signal(start: Callable[..., Run]) -> None:
    run = start('--inject', 'hang:rank=1,step=3,phase=forward')
    run.wait_for('Train [2/10000][1/1]')
    time.sleep(1)
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.ends(time.monotonic()) == 128 + signal.SIGTERM
    assert 'nothing moved for 10 s' in run.log


def test_a_full_disk_ends_all_and_keeps_the_last_checkpoint(start: Callable[..., Run], tmp_path: Path) -> None:
    disk = tmp_path / 'run'
    disk.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=700k', 'tmpfs', str(disk)], capture_output=True).returncode:
        pytest.skip('mounting a small disk needs root')
    try:
        hook = dict(type='CheckpointHook', interval=1)
        run = start(**{'default_hooks.checkpoint': hook})
        code = run.ends(struck(run, 'No space left on device'))
        assert code == 1
        assert checkpoint.load(checkpoint.by_age(disk)[0])['meta']['epoch'] >= 1
        assert not list(disk.glob('.*.tmp'))
    finally:
        run.kill()
        subprocess.run(['umount', str(disk)], check=True)


def test_a_loss_that_is_not_finite_stops_and_is_explained(start: Callable[..., Run]) -> None:
    hook = dict(type='CheckpointHook', interval=1, by_epoch=False)
    run = start('--inject', 'nan:rank=1,step=5', **{'default_hooks.checkpoint': hook})
    code = run.ends(struck(run, 'not finite'))
    assert code == 1
    assert 'the loss is not finite at step 5' in run.log
    assert 'learning rate' in run.log
    assert checkpoint.load(checkpoint.by_age(run.work_dir)[0])['meta']['iter'] == 4


def test_steps_that_are_not_finite_are_left_out_on_request(start: Callable[..., Run]) -> None:
    changes = {'optim_wrapper.skip_nonfinite': 1, 'train_cfg.max_epochs': 6}
    run = start('--inject', 'nan:rank=1,step=5', **changes)
    assert run.process.wait(timeout=120) == 0, run.log
    assert 'not finite at step 5' in run.log
    assert 'left out, 1 of 1 allowed' in run.log
    state = checkpoint.load(checkpoint.by_age(run.work_dir)[0])['state_dict']
    assert all(value.isfinite().all() for value in state.values())
