"""Work beside the step: one task at a time in a thread, whose failure is the run's failure."""

import threading
from collections.abc import Callable

_running: set[threading.Thread] = set()


def is_running() -> bool:
    """Whether a task of this process is at work."""
    return any(thread.is_alive() for thread in list(_running))


def wait(limit_s: float | None = None) -> None:
    """For the tasks of this process that are at work, each up to `limit_s` seconds."""
    for thread in list(_running):
        thread.join(limit_s)


class BackgroundTask:
    """Runs what is submitted, each after the one before it. An exception of the task is raised by the next call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def submit(self, task: Callable[[], None]) -> None:
        """Start `task`, once the last one is done."""
        self.join()
        # Not a daemon: Python waits for it at exit, so that a run that fails still finishes its last checkpoint.
        self._thread = threading.Thread(target=self._run, args=(task,), name=self.name)
        _running.add(self._thread)
        self._thread.start()

    def check(self) -> None:
        """Raise what a task that has ended raised."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def join(self) -> None:
        """Wait for the last task, then `check`."""
        if self._thread is not None:
            self._thread.join()
            _running.discard(self._thread)
            self._thread = None
        self.check()

    def _run(self, task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that asked
            self._error = error
