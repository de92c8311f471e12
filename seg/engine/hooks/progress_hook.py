"""A progress bar on a terminal; nothing in a file, where the log's plain lines are enough."""

import sys
from contextlib import ExitStack
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from seg.registry import HOOKS


@HOOKS.register_module()
class ProgressBarHook(Hook):
    """One bar over the run's steps, on rank 0, while stderr is a terminal."""

    priority = 'VERY_LOW'

    def __init__(self) -> None:
        self._bar: tqdm | None = None
        self._stack = ExitStack()

    def before_train(self, runner: Any) -> None:
        if is_main_process() and sys.stderr.isatty():
            self._stack.enter_context(logging_redirect_tqdm(loggers=[runner.logger]))
            self._bar = self._stack.enter_context(
                tqdm(total=runner.max_iters, initial=runner.iter, unit='step', dynamic_ncols=True, leave=False)
            )

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if self._bar is not None:
            self._bar.update()

    def after_train(self, runner: Any) -> None:
        self._stack.close()
        self._bar = None
