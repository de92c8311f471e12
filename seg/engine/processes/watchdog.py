"""Ends a process that was told to stop and is stuck: Python runs no signal handler inside a blocked collective (E13)."""

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence

from seg.engine.cli import ERROR_DIR, over_note
from seg.engine.state import background

GRACE_S = 10.0
_WRITE_S = 120.0  # for a checkpoint that is being written
_AT_ONCE_S = 1.0
SAME_PRESS_S = 1.0  # a Ctrl-C may come from the terminal and from the launcher
_LOOK_S = 0.2


class Watchdog:
    """A thread that hears of signals as they arrive, and of progress by `beat`.

    Once one of `signals` has come, `grace_s` seconds (or three times the last interval between beats, if that is longer)
    may pass without a beat; then the process ends with 128 + the signal's number and one line saying where it hung. A
    second Ctrl-C leaves it a second. `speaks`: whether this process tells the user that the signal was heard.
    """

    def __init__(
        self,
        signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM),
        grace_s: float = GRACE_S,
        speaks: bool = False,
    ) -> None:
        self._signals, self._grace_s, self._speaks = signals, grace_s, speaks
        self._interval_s = 0.0
        self._last_beat_s = time.monotonic()
        self._ours, self._kernels = socket.socketpair()
        self._kernels.setblocking(False)
        self._previous_fd = -1
        self._stopped = threading.Event()
        self._place = 'the start'

    def start(self) -> None:
        """In the main thread, after the signal handlers are set."""
        self._previous_fd = signal.set_wakeup_fd(self._kernels.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name='watchdog', daemon=True).start()

    def stop(self) -> None:
        signal.set_wakeup_fd(self._previous_fd)
        self._stopped.set()
        self._kernels.close()  # ends the thread's wait

    def beat(self, place: str) -> None:
        """The run gets on; `place` is where it is now."""
        now_s = time.monotonic()
        self._interval_s, self._last_beat_s, self._place = now_s - self._last_beat_s, now_s, place

    def place(self) -> tuple[float, str]:
        """Seconds since the last beat, less what was usual between two, and where that was."""
        return time.monotonic() - self._last_beat_s - 2 * self._interval_s, self._place

    def _watch(self) -> None:
        with self._ours:
            first = self._next_signal(None)
            if first is None:
                return
            if self._speaks and not _is_over():
                self._say(f'{_name(first)}: the run stops after the next step; it is now after {self._place}')
            heard_s = time.monotonic()
            pressed_s = heard_s if first == signal.SIGINT else 0.0
            while not self._stopped.is_set():
                if self._next_signal(_LOOK_S) == signal.SIGINT and time.monotonic() - pressed_s > SAME_PRESS_S:
                    self._end_at_once()
                patience_s = self._patience_s()
                if time.monotonic() - max(self._last_beat_s, heard_s) > patience_s:
                    self._end(
                        first, f'{_name(first)}: nothing moved for {patience_s:.0f} s after {self._place}; ending'
                    )

    def _next_signal(self, wait_s: float | None) -> int | None:
        """The next of our signals; None after `wait_s` seconds, or when the watch is over."""
        while select.select([self._ours], [], [], wait_s)[0]:
            data = self._ours.recv(1)
            if not data:
                self._stopped.set()
                return None
            if data[0] in self._signals:
                return data[0]
        return None

    def _patience_s(self) -> float:
        patience_s = max(self._grace_s, 3 * self._interval_s)
        return max(patience_s, _WRITE_S) if background.is_running() else patience_s

    def _end_at_once(self) -> None:
        if not self._stopped.wait(_AT_ONCE_S):
            self._end(signal.SIGINT, f'a second SIGINT after {self._place}; ending')

    def _end(self, number: int, text: str) -> None:
        self._say(text)
        os._exit(128 + number)

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _is_over() -> bool:
    """Whether our launcher ends all ranks because one has failed, and says so."""
    return ERROR_DIR in os.environ and over_note(int(os.environ.get('TORCHELASTIC_RESTART_COUNT', '0'))).exists()


def _name(number: int) -> str:
    return signal.Signals(number).name
