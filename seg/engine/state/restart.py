"""A run whose ranks torch's launcher started anew after a failure (`--max-restarts`) goes on by itself."""

import os
from pathlib import Path

from seg.engine.processes.launcher import LAUNCHED_S
from seg.engine.state import checkpoint


def restarted() -> bool:
    """Whether this is not the first start of the launcher at hand."""
    return os.environ.get('TORCHELASTIC_RESTART_COUNT', '0') != '0'


def source(resume: str | bool | None, checkpoints: Path) -> str | bool:
    """What `--resume` means in a restart, `checkpoints` being where the run writes them: the newest one.

    With a path it means that path until the run has written one of its own: the folder may hold newer ones of a run that
    the user has gone back behind.
    """
    if resume in (None, False, True, 'auto'):
        return True
    launched_s = float(os.environ.get(LAUNCHED_S, 'inf'))
    own = any(path.stat().st_mtime >= launched_s for path in checkpoint.by_age(checkpoints))
    return own or str(resume)
