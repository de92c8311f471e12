"""The run's folder: one job at a time in it, and no checkpoint of an earlier run overwritten."""

import fcntl
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.dist import broadcast_object_list, get_rank

from seg.engine.state import checkpoint
from seg.errors import UserError

_ROOM_BYTES = 1 << 16
_held: list[Any] = []  # open lock files: the lock lives as long as the process


def checkpoint_folder(config: Mapping[str, Any]) -> Path:
    """Where a run keeps its checkpoints: its own folder, unless its CheckpointHook has an `out_dir`."""
    work_dir = Path(config['work_dir'])
    hook = (config.get('default_hooks') or {}).get('checkpoint')
    out_dir = hook.get('out_dir') if isinstance(hook, Mapping) else None
    return Path(out_dir) / work_dir.name if out_dir else work_dir


def claim(work_dir: str | Path, resume: bool, checkpoints: Path | None = None) -> None:
    """Make `work_dir` and lock it for this job; `checkpoints` is where they are, if not there.

    Raises UserError, on all ranks, when another job holds it, when it cannot be written, or when it has checkpoints and
    `resume` is not asked for.
    """
    work_dir = Path(work_dir)
    verdict = [_claim(work_dir, resume, checkpoints or work_dir) if get_rank() == 0 else None]
    broadcast_object_list(verdict)
    if verdict[0] is not None:
        raise UserError(verdict[0])


def _claim(work_dir: Path, resume: bool, checkpoints: Path) -> str | None:
    try:
        work_dir.mkdir(parents=True, exist_ok=True)
        _try_to_write(work_dir)
        lock = (work_dir / '.lock').open('w')
    except OSError as error:
        return f'the run folder {work_dir} cannot be written: {error.strerror}. Choose another with --work-dir'
    if not _lock(lock):
        lock.close()
        return f'another job is running in {work_dir}. Choose another folder with --work-dir'
    found = checkpoint.by_age(checkpoints)
    if found and not resume:
        lock.close()
        return (
            f'{checkpoints} holds checkpoints of an earlier run ({found[0].name} is the newest). '
            'Go on with --resume, or choose another folder with --work-dir'
        )
    _held.append(lock)
    for folder in {work_dir, checkpoints}:
        _clear(folder)
    return None


def _try_to_write(folder: Path) -> None:
    """A full disk takes an empty file, and then nothing."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(_ROOM_BYTES))
        file.flush()
        os.fsync(file.fileno())


def _clear(folder: Path) -> None:
    """What a job that was killed has left of files that it was writing; the lock says that it is dead."""
    for path in folder.glob('.*.tmp'):
        if path.is_file():
            path.unlink()


def _lock(file: Any) -> bool:
    """After a restart the job before this one may still be dying, so it is given a moment."""
    for wait_s in (0.0, 0.5, 1.0, 2.0):
        time.sleep(wait_s)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


def release() -> None:
    """Let go of the folders that this process holds: for programs that train several runs."""
    while _held:
        lock = _held.pop()
        _remove_if_unused(Path(lock.name))
        fcntl.flock(lock, fcntl.LOCK_UN)
        lock.close()


def _remove_if_unused(lock: Path) -> None:
    """A run that was refused before it began leaves no folder behind."""
    if [path.name for path in lock.parent.iterdir()] == [lock.name]:
        lock.unlink()
        lock.parent.rmdir()


def leave_to_parent() -> None:
    """In a loader worker: drop the lock files that came with the fork, so that the lock ends with the run's process."""
    while _held:
        _held.pop().close()
