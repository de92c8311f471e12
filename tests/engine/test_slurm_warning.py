"""Slurm's warning: noted from the start, and a stop of the run's; SIGTERM may come twice, a second Ctrl-C ends at once."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from seg.engine.hooks.stop_hook import StopHook
from seg.engine.processes import slurm_warning


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    assert threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.getsignal(number) for number in numbers}
    monkeypatch.setattr(slurm_warning, '_listening', [])
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.signal(slurm_warning.WARNING, signal.SIG_DFL)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_a_warning_before_the_first_step_is_not_lost() -> None:
    slurm_warning.listen()
    send(signal.SIGUSR1)
    hook = StopHook()
    hook.before_train(None)
    hook.put_back()
    assert hook.received == signal.SIGUSR1
    assert slurm_warning.heard() == 0


def test_during_the_run_it_stops_it_and_after_it_does_no_harm() -> None:
    slurm_warning.listen()
    hook = StopHook()
    hook.before_train(None)
    assert hook._agree() == 0
    send(signal.SIGUSR1)
    assert hook._agree() == signal.SIGUSR1
    hook.put_back()
    send(signal.SIGUSR1)
    assert slurm_warning.heard() == signal.SIGUSR1


def test_without_slurm_the_signal_is_left_alone() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    hook = StopHook()
    hook.before_train(None)
    assert signal.getsignal(signal.SIGUSR1) == before
    hook.put_back()


def test_slurm_sends_sigterm_twice_and_a_user_who_means_it_ctrl_c() -> None:
    slurm_warning.listen()
    hook = StopHook()
    hook.before_train(None)
    try:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1):
            send(number)
        assert hook.received == signal.SIGTERM  # the job is ended: it must not go back in the queue
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
    finally:
        hook.put_back()
