"""Checkpoints, whichever kind they are: a file, or a folder that each rank has written its part of."""

import re
from pathlib import Path
from typing import Any

from seg.engine.state import checkpoint_file, sharded_checkpoint
from seg.engine.state.checkpoint_file import plain, save, sync_folder, write_text

__all__ = ['by_age', 'load', 'plain', 'save', 'sync_folder', 'write_text']

_STEP_FILE = re.compile(r'(?:epoch|iter)_(\d+)\.(?:pth|dcp)')


def load(path: str | Path, map_location: Any = 'cpu', trust: bool = False, outline: bool = False) -> dict:
    """The checkpoint in `path`, a file, or a folder as FSDP writes it; tensors on `map_location`.

    With `outline`, a folder's tensors in pieces have shapes and no numbers (`seg.engine.state.sharded_checkpoint`).
    `trust` allows a file to hold any Python object, whose loading runs code: for MMEngine's own old files.
    Raises UserError when it is missing, damaged, not a checkpoint, or holds more than plain types.
    """
    path = Path(path)
    if not path.is_dir():
        return checkpoint_file.load(path, map_location, trust)
    state = sharded_checkpoint.load_outline(path)
    return state if outline else sharded_checkpoint.fill(state, path)


def by_age(work_dir: str | Path) -> list[Path]:
    """The step checkpoints (`epoch_N.pth`, `iter_N.pth`, and FSDP's folders `.dcp`) of a run, newest first."""
    files = [path for path in Path(work_dir).glob('*_*.*') if _STEP_FILE.fullmatch(path.name)]
    return sorted(files, key=lambda path: (path.stat().st_mtime_ns, _step(path)), reverse=True)


def _step(path: Path) -> int:
    match = _STEP_FILE.fullmatch(path.name)
    return int(match.group(1)) if match else -1
