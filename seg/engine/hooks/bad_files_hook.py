"""Bad files that were replaced: each one in the log, once, and an end to it when there are too many."""

from typing import Any

from mmengine.dist import get_world_size, is_main_process
from mmengine.hooks import Hook
from torch.distributed import all_gather_object

from seg.datasets.bad_files import REPLACED, BadFiles, allowed_bad_files
from seg.registry import HOOKS


@HOOKS.register_module()
class BadFilesHook(Hook):
    """Counts the distinct files that samples were replaced for, since the start (or the resumption) of the run.

    A rank that has met more than the data set's `max_bad_files` stops at once; every `interval` steps the ranks put
    together what each has met. Where the data set allows none, this does nothing.
    """

    def __init__(self, interval: int = 50) -> None:
        self.interval = interval
        self._files = BadFiles(0)

    def before_train(self, runner: Any) -> None:
        self._files = BadFiles(allowed_bad_files(runner.train_dataloader.dataset))

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if not self._files.allowed:
            return
        for meta in data_batch['metas']:
            self._note(runner, meta.get(REPLACED, ()))
        if (runner.iter + 1) % self.interval == 0:
            self._share(runner)

    def after_train_epoch(self, runner: Any) -> None:
        if self._files.allowed:
            self._share(runner)

    def after_train(self, runner: Any) -> None:
        if self._files.seen:
            runner.logger.warning(f'{self._summary()} were replaced by other samples in this run')

    def _note(self, runner: Any, messages: Any) -> None:
        for message in messages:
            if self._files.add(message) and is_main_process():
                runner.logger.warning(f'{self._summary()}: {message}. The next sample takes its place')

    def _summary(self) -> str:
        return f'{len(self._files.seen)} bad file(s) of max_bad_files={self._files.allowed}'

    def _share(self, runner: Any) -> None:
        if get_world_size() == 1:
            return
        parts: list = [None] * get_world_size()
        all_gather_object(parts, list(self._files.seen))
        for messages in parts:
            self._note(runner, messages)
