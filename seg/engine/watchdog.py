"""Ends a process that was told to stop and is stuck: Python runs no signal handler inside a blocked collective (E13)."""

import os
import signal
import socket
import sys
import threading
import time

GRACE_S = 10.0


class Watchdog:
    """A thread that hears of signals as they arrive, and of progress by `beat`.

    Once a signal has come, `grace_s` seconds (or three times the last interval between beats, if that is longer) may pass
    without a beat; then the process ends with 128 + the signal's number and one line saying where it hung.
    """

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
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

    def _watch(self) -> None:
        with self._ours:
            self._wait_and_end()

    def _wait_and_end(self) -> None:
        data = self._ours.recv(1)
        while data and data[0] not in (signal.SIGINT, signal.SIGTERM):
            data = self._ours.recv(1)
        if not data:
            return
        heard_s = time.monotonic()
        while not self._stopped.wait(0.2):
            patience_s = max(self._grace_s, 3 * self._interval_s)
            if time.monotonic() - max(self._last_beat_s, heard_s) > patience_s:
                self._end(data[0], patience_s)

    def _end(self, number: int, patience_s: float) -> None:
        name = signal.Signals(number).name
        print(f'{name}: nothing moved for {patience_s:.0f} s after {self._place}; ending', file=sys.stderr, flush=True)
        os._exit(128 + number)
