"""Torch's elastic agent with the rules that its own lacks: which failures are not started anew, how long the end of a run
may take, and one line for each restart."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from seg.engine.cli import EXIT_LOST, EXIT_USER, over_note

GRACE_S = 12  # what the other ranks get once one has ended, before SIGKILL; their own watchdogs take 10
_PATIENCE_S = 600.0  # what all ranks get to end a run that is to stop: a step or a validation, and a checkpoint
_AT_ONCE_S = 2.0
_SAME_MOMENT_S = 2  # failures this close to the first can be its cause
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)  # the last is Slurm's warning


class Agent(LocalElasticAgent):
    """Starts the ranks of this machine and watches them.

    A run that was stopped by a signal, or that told its user to change something, is not started anew. Each restart is
    told to `say`, with its cause. `cause` is the last failure: the rank, and what became of it.
    """

    def __init__(self, *args: Any, say: Callable[[str], None] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._say = say or _to_stderr
        self.cause: tuple[int, ProcessFailure] | None = None
        self._stopping = False

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        failed = {process.pid for process in self._processes() if process.poll()}
        if self._pcontext is not None and failed:
            over_note(self._restarts()).touch()
            _signal(self._running(), signal.SIGCONT)  # what is frozen must run to end
            self._pcontext.close(timeout=GRACE_S)  # torch's own call of it, which comes next, would wait 30 s
        result = super()._monitor_workers(worker_group)
        if result.state == WorkerState.FAILED:
            self.cause = first_failure(_less_what_we_ended(result.failures, failed))
            if self._remaining_restarts:
                self._judge(*self.cause)
        return result

    def _judge(self, rank: int, failure: ProcessFailure) -> None:
        if is_final(failure.exitcode):
            self._remaining_restarts = 0
            return
        count = f'restart {self._restarts() + 1} of {self._worker_group.spec.max_restarts}'
        self._say(f'{describe(rank, failure)}; starting all ranks anew, {count}')

    def _restarts(self) -> int:
        """Those that have been."""
        return self._worker_group.spec.max_restarts - self._remaining_restarts

    def _stop_workers(self, worker_group: WorkerGroup) -> None:
        """Before a restart: what is left of the ranks."""
        super()._shutdown(timeout=GRACE_S)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = GRACE_S) -> None:
        """Ranks that were told to stop end by themselves, after the step at hand; a second Ctrl-C ends them at once.

        A second SIGTERM says nothing new: Slurm sends two.
        """
        again, self._stopping = self._stopping, True
        running = self._running()
        if running and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
        _signal(running, signal.SIGINT if again else death_sig)
        _signal(running, signal.SIGCONT)
        _wait_for_all(running, _AT_ONCE_S if again else _PATIENCE_S)
        super()._shutdown(signal.SIGKILL, timeout)

    def _running(self) -> list[Any]:
        return [process for process in self._processes() if process.poll() is None]

    def _processes(self) -> list[Any]:
        handlers = getattr(self._pcontext, 'subprocess_handlers', {})  # none before they are started
        return [handler.proc for handler in handlers.values()]


def _signal(processes: list[Any], number: int) -> None:
    """To each with its loader workers."""
    for process in processes:
        os.killpg(process.pid, number)


def _wait_for_all(processes: list[Any], patience_s: float) -> None:
    """Until all have ended, or `patience_s` seconds have passed, or `GRACE_S` since the first ended."""
    deadline = time.monotonic() + patience_s
    while (running := sum(process.poll() is None for process in processes)) and time.monotonic() < deadline:
        if running < len(processes):
            deadline = min(deadline, time.monotonic() + GRACE_S)
            processes = [process for process in processes if process.poll() is None]
        time.sleep(0.05)


def _less_what_we_ended(failures: Mapping[int, ProcessFailure], failed: set[int]) -> dict[int, ProcessFailure]:
    """Of the ranks that failed, those that had (`failed`: process ids) before the others were ended, or say more."""
    ended = {-signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM}
    kept = {rank: one for rank, one in failures.items() if one.pid in failed or one.exitcode not in ended}
    return kept or dict(failures)


def is_final(code: int) -> bool:
    """Whether a rank that ended so must not be started again: it was stopped, or has told the user what to change."""
    return code == EXIT_USER or code in [128 + number for number in _STOPS] or code in [-number for number in _STOPS]


def first_failure(failures: Mapping[int, ProcessFailure]) -> tuple[int, ProcessFailure]:
    """The rank that is the cause: the others' collectives break, and torch ends them by SIGTERM.

    Torch's times are whole seconds, so of those at the same moment an error that was explained comes first, then a
    death by signal, then the order in which they were seen.
    """
    first = min(failure.timestamp for failure in failures.values())
    near = [item for item in failures.items() if item[1].timestamp - first <= _SAME_MOMENT_S]
    return min(near, key=lambda item: _as_cause(item[1].exitcode))


def _as_cause(code: int) -> int:
    if code == EXIT_USER:
        return 0
    if code in (-signal.SIGTERM, EXIT_LOST):
        return 3
    return 1 if code < 0 or code - 128 in _STOPS else 2


def describe(rank: int, failure: ProcessFailure) -> str:
    """What became of a rank, in words."""
    code = failure.exitcode
    if code > 128 and code - 128 in _STOPS:
        return f'rank {rank} was stopped by {signal.Signals(code - 128).name}'
    if code == EXIT_LOST:
        return f'rank {rank} lost a rank of another machine'
    if code > 0:
        return f'rank {rank} failed with exit code {code}'
    cause = f'rank {rank} (process {failure.pid}) was killed by {failure.signal_name()}'
    if code == -signal.SIGKILL:
        cause += ', as the system does when memory runs out'
    return cause


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
