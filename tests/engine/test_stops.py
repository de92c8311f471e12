"""Ctrl-C, SIGTERM and SIGHUP, whoever gets them: both ranks stop after the same step, with a checkpoint, and exit with a
code that tells why. A run that does not stop is ended."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from seg.engine.hooks import stop_hook
from seg.engine.processes import launcher
from seg.engine.processes.watchdog import SAME_PRESS_S
from tests.drills.run import Run
from tests.engine.test_drills import newest, slow_images, start  # noqa: F401, a fixture

WORKER = {'train_dataloader.num_workers': 1}


def stopped(run: Run, number: signal.Signals) -> None:
    """After the signal: the code, the step named once, and a checkpoint of that step."""
    assert run.ends(time.monotonic()) == 128 + number
    assert run.log.count(f'{number.name}: stopping after step') == 1
    assert f'stopping after step {newest(run.work_dir)["meta"]["iter"]},' in run.log
    assert 'Traceback' not in run.log
    assert 'restart' not in run.log


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher(start: Callable[..., Run], number: signal.Signals) -> None:  # noqa: F811
    run = start('--max-restarts', '3', **WORKER)
    run.wait_for('Train [2/')
    os.kill(run.process.pid, number)
    stopped(run, number)


def test_under_nohup_a_closed_terminal_is_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr(os, 'environ', dict(os.environ))
    try:
        assert signal.SIGHUP not in stop_hook._signals()
        launcher._set_environment(launcher.Job(1), tmp_path)
        assert os.environ['TORCHELASTIC_SIGNALS_TO_HANDLE'] == 'SIGTERM,SIGINT,SIGQUIT'
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert signal.SIGHUP in stop_hook._signals()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_to_one_rank(start: Callable[..., Run]) -> None:  # noqa: F811
    run = start('--max-restarts', '3', **WORKER)
    run.wait_for('Train [2/')
    os.kill(run.ranks()[1], signal.SIGTERM)
    stopped(run, signal.SIGTERM)


def test_ctrl_c_to_everything_at_once(start: Callable[..., Run]) -> None:  # noqa: F811
    run = start('--max-restarts', '3', **WORKER)
    run.wait_for('Train [2/')
    for pid in run.members():  # launcher, ranks, loader workers
        os.kill(pid, signal.SIGINT)
    stopped(run, signal.SIGINT)


def test_a_frozen_rank_wakes_to_stop(start: Callable[..., Run]) -> None:  # noqa: F811
    run = start('--inject', 'freeze:rank=1,step=3', **{'default_hooks.stop': dict(type='StopHook', quiet_s=1.5)})
    run.wait_for('nothing has moved for')  # what the other says meanwhile
    assert 'rank 0 after the save point of step 2; not heard of: rank 1, frozen or cut off' in run.log
    os.kill(run.process.pid, signal.SIGTERM)
    stopped(run, signal.SIGTERM)


def test_a_stop_waits_for_the_end_of_a_validation(start: Callable[..., Run]) -> None:  # noqa: F811
    run = start(**slow_images('val', 1, 1.0), check_data=False)
    run.wait_for('slow')
    os.kill(run.process.pid, signal.SIGTERM)
    stopped(run, signal.SIGTERM)
    assert 'SIGTERM: the run stops after the next step' in run.log
    assert 'Val epoch 1' in run.log


def test_a_rank_that_hangs_is_ended_after_a_signal(start: Callable[..., Run]) -> None:  # noqa: F811
    hook = dict(type='StopHook', quiet_s=1.5)
    run = start('--inject', 'hang:rank=1,step=3,phase=forward', **{'default_hooks.stop': hook})
    run.wait_for('nothing has moved for')
    assert 'ranks 0, 1 after the save point of step 2\n' in run.log
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.ends(time.monotonic()) == 128 + signal.SIGTERM
    assert 'nothing moved for 10 s' in run.log


@pytest.mark.parametrize('whom', ['launcher', 'a rank'])
def test_a_second_ctrl_c_ends_what_hangs_at_once(start: Callable[..., Run], whom: str) -> None:  # noqa: F811
    run = start('--inject', 'freeze:rank=1,step=3' if whom == 'a rank' else 'hang:rank=1,step=3')
    run.wait_for('Train [2/10000][1/1]')
    time.sleep(0.5)
    pids = [run.process.pid] if whom == 'launcher' else run.ranks()[:1]  # it waits in a collective
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    run.wait_for('SIGINT: the run stops')
    time.sleep(SAME_PRESS_S)
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    assert run.ends(time.monotonic(), limit_s=6) == 128 + signal.SIGINT


def test_a_signal_before_the_first_step_ends_all(start: Callable[..., Run]) -> None:  # noqa: F811
    run = start('--max-restarts', '3', **slow_images('train', 0, 60))  # the first rank looks at the data
    run.wait_for('slow')
    os.kill(run.process.pid, signal.SIGINT)
    assert run.ends(time.monotonic()) == 128 + signal.SIGINT
    assert 'restart' not in run.log
