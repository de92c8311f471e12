"""Ctrl-C, SIGTERM, SIGHUP and Slurm's warning end a run after the step at hand, on all ranks, with a checkpoint."""

import signal
import threading
import time
from types import FrameType
from typing import Any

import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.hooks import Hook

from seg.engine.processes import slurm_warning
from seg.engine.processes.stall import QUIET_S, StallWatch
from seg.engine.processes.watchdog import SAME_PRESS_S, Watchdog
from seg.registry import HOOKS


def _signals() -> list[signal.Signals]:
    """What stops a run."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return [*signals, slurm_warning.WARNING] if slurm_warning.is_listening() else signals


@HOOKS.register_module()
class StopHook(Hook):
    """Turns the first signal into a stop at the next step that all ranks agree on; a second Ctrl-C ends at once.

    SIGTERM may come again: Slurm sends it twice to a job that it preempts. SIGHUP, of a closed terminal, is left to nohup.

    The agreement is one number over gloo, sent while a step computes and read before the next one ends, so it never
    waits for the device's stream. Exit codes are 128 + the signal's number. What hangs after a signal is ended after 10 s.
    Where nothing moves for `quiet_s` seconds the log says which rank is missing (`seg.engine.processes.stall`).
    """

    priority = 'VERY_LOW'

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self.quiet_s = quiet_s
        self.received = 0
        self._pressed_s = 0.0  # when Ctrl-C came first
        self._previous: dict[int, Any] = {}
        self._flag = torch.zeros(1, dtype=torch.int32)
        self._pending: Any = None
        self._watchdog: Watchdog | None = None
        self._stall_watch: StallWatch | None = None

    def before_train(self, runner: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._receive) for number in _signals()}
            self.received = slurm_warning.heard()
            self._watchdog = Watchdog(tuple(self._previous), speaks=get_rank() == 0)
            self._watchdog.start()
            if get_world_size() > 1:
                self._stall_watch = StallWatch(self._watchdog.place, self.quiet_s)

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self._beat(f'step {runner.iter + 1}')
        number = self._agree()
        if number:
            runner.stop_signal = number
            runner.train_loop.stop_training = True
            runner.logger.info(
                f'{signal.Signals(number).name}: stopping after step {runner.iter + 1}, with a checkpoint; --resume goes on'
            )

    def after_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self._beat(f'validation batch {batch_idx + 1}')

    def save_point(self, runner: Any, epoch_ended: bool, last: bool) -> None:
        self._beat(f'the save point of step {runner.iter}')

    def after_train(self, runner: Any) -> None:
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
        self.put_back()

    def put_back(self) -> None:
        """Signals mean again what they did before the run."""
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
        if self._stall_watch is not None:
            self._stall_watch.stop()
            self._stall_watch = None
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _beat(self, place: str) -> None:
        if self._watchdog is not None:
            self._watchdog.beat(place)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            now_s = time.monotonic()
            first_s, self._pressed_s = self._pressed_s, self._pressed_s or now_s
            if self.received and not now_s - first_s < SAME_PRESS_S:
                raise KeyboardInterrupt  # the watchdog sees to it that it does not wait
        self.received = max(self.received, number)

    def _agree(self) -> int:
        """The signal that some rank had received by its last step: the same answer on every rank."""
        if get_world_size() == 1:
            return self.received
        if self._pending is None:
            agreed = 0
        else:
            self._pending.wait()
            agreed = int(self._flag)
        self._flag = torch.tensor([self.received], dtype=torch.int32)
        self._pending = torch.distributed.all_reduce(self._flag, op=torch.distributed.ReduceOp.MAX, async_op=True)
        return agreed
