"""Slurm's word that a job's time is nearly up (`--signal=USR1@120`): a run stops with a checkpoint, as on SIGTERM.

It may come while the data is still being looked at; unheard it would kill the process. So it is noted from the start.
"""

import signal
from types import FrameType

WARNING = signal.SIGUSR1
_listening: list[bool] = []
_heard: list[int] = []


def listen() -> None:
    """In the main thread of a process that Slurm started."""
    signal.signal(WARNING, _note)
    _listening[:] = [True]


def _note(number: int, frame: FrameType | None) -> None:
    _heard[:] = [number]


def is_listening() -> bool:
    return bool(_listening)


def heard() -> int:
    """The signal's number if it came before the training did, else 0. It is forgotten then."""
    return _heard.pop() if _heard else 0
