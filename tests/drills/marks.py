"""Where each rank is, for who wants to kill it there: a few bytes in a file that its hooks keep up to date.

A config lists this module in `custom_imports` and `MarkHook` in `custom_hooks`. SEG_DRILL_MARKS names the folder.
"""

import mmap
import os
import sys
from pathlib import Path
from typing import Any

from mmengine.dist import get_rank
from mmengine.hooks import Hook

from seg.registry import HOOKS

FOLDER = 'SEG_DRILL_MARKS'
_SIZE = 64


@HOOKS.register_module()
class MarkHook(Hook):
    """Notes the phase ('data', 'step', 'validation', 'end'), the step, and what is done to a checkpoint file."""

    priority = 'HIGHEST'

    def __init__(self) -> None:
        path = Path(os.environ[FOLDER]) / f'rank{get_rank()}'
        path.write_bytes(bytes(_SIZE))
        with path.open('r+b') as file:
            self._memory = mmap.mmap(file.fileno(), _SIZE)
        self._phase, self._step, self._writing = 'start', 0, '-'
        self._note()
        sys.addaudithook(self._listen)

    def _note(self, phase: str | None = None, step: int | None = None) -> None:
        self._phase = phase or self._phase
        self._step = self._step if step is None else step
        words = f'{os.getpid()} {self._phase} {self._step} {self._writing}'
        self._memory[:] = words.encode().ljust(_SIZE)

    def _listen(self, event: str, arguments: tuple) -> None:
        """Python announces what it does to files; nothing in the writer has to know of drills."""
        if event == 'open' and str(arguments[0]).endswith('.pth.tmp'):
            self._writing = 'writing'
        elif event == 'os.rename' and str(arguments[1]).endswith('.pth'):
            self._writing = 'renaming'
        elif event == 'os.rename' and str(arguments[1]).endswith('last_checkpoint'):
            self._writing = '-'
        else:
            return
        self._note()

    def before_train(self, runner: Any) -> None:
        self._note('data', runner.iter + 1)

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        self._note('step', runner.iter + 1)

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self._note('data', runner.iter + 2)

    def before_val(self, runner: Any) -> None:
        self._note('validation')

    def after_val(self, runner: Any) -> None:
        self._note('data')

    def after_train(self, runner: Any) -> None:
        self._note('end')


def read(folder: Path, rank: int) -> tuple[int, str, int, str] | None:
    """(process id, phase, step, what is done to a checkpoint file) of a rank; None before it has noted any."""
    try:
        words = (folder / f'rank{rank}').read_bytes().strip(b'\0 ').decode().split()
    except OSError:
        return None
    return (int(words[0]), words[1], int(words[2]), words[3]) if len(words) == 4 else None
