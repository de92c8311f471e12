"""When checkpoints are written, which is best, and which are pruned: the new file first, then the old ones (D7)."""

import math
import os
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook as UpstreamCheckpointHook

from seg.engine.nested import rebuilt
from seg.engine.state import checkpoint, sharded_checkpoint
from seg.engine.state.background import BackgroundTask
from seg.engine.wrappers.fsdp import is_fully_sharded
from seg.errors import RunError, UserError
from seg.registry import HOOKS


@HOOKS.register_module()
class CheckpointHook(UpstreamCheckpointHook):
    """MMEngine's arguments; files are written at the loop's save points, where the run's state is whole.

    `interval` counts epochs (`by_epoch=True`) or optimizer steps; `interval_minutes` adds a file whenever so much time has
    passed, inside an epoch too. The last point of a run is always written, unless `save_last=False`. `save_best` names a
    score; the best file is a whole checkpoint that a run can be resumed from. A score that is missing or not finite is
    never best. The step waits for the copy to host memory only; the file is written beside it.

    `sharded`, by default so for FSDP, makes a folder `epoch_N.dcp` of it that each rank writes its pieces to; False has
    the first rank gather all in a plain file.
    """

    def __init__(
        self,
        interval: int = -1,
        by_epoch: bool = True,
        interval_minutes: float | None = None,
        max_keep_ckpts: int = -1,
        save_last: bool = True,
        save_begin: int = 0,
        save_best: str | list[str] | None = None,
        rule: str | list[str] | None = None,
        greater_keys: list[str] | None = None,
        less_keys: list[str] | None = None,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        out_dir: str | None = None,
        sharded: bool | None = None,
    ) -> None:
        super().__init__(
            interval=interval, by_epoch=by_epoch, max_keep_ckpts=max_keep_ckpts, save_last=save_last,
            save_begin=save_begin, save_best=save_best, rule=rule, greater_keys=greater_keys, less_keys=less_keys,
            save_optimizer=save_optimizer, save_param_scheduler=save_param_scheduler,
        )  # fmt: skip
        self.out_dir = out_dir
        self.interval_minutes = interval_minutes
        self.sharded = sharded
        self._group: Any = None  # of the threads that write pieces; None where the first rank writes a plain file
        self._writer = BackgroundTask('checkpoint')
        self._new_best: list[str] = []
        self._last_write_s = time.monotonic()

    def before_train(self, runner: Any) -> None:
        work_dir = Path(runner.work_dir)
        self._folder = Path(self.out_dir) / work_dir.name if self.out_dir else work_dir
        self._folder.mkdir(parents=True, exist_ok=True)
        self._group = self._writing_group(runner)
        self._last_write_s = time.monotonic()

    def _writing_group(self, runner: Any) -> Any:
        """Its own, since the training's collectives go on meanwhile."""
        fully_sharded = is_fully_sharded(runner.model)
        if self.sharded and not fully_sharded:
            raise UserError(
                "default_hooks.checkpoint.sharded=True needs model_wrapper_cfg=dict(type='FullyShardedDataParallel') on "
                'several processes: here each has the whole model, and the first writes it'
            )
        if not fully_sharded or self.sharded is False:
            return None
        group = torch.distributed.new_group(backend='gloo')
        sharded_checkpoint.require_one_folder(self._folder, group)
        if is_main_process():
            sharded_checkpoint.remove_leftovers(self._folder)
        return group

    # Upstream's moments of writing, which come before the state is whole.
    def after_train_epoch(self, runner: Any) -> None:
        """Nothing: see `save_point`."""

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """A failed write ends the run at the next step."""
        self._writer.check()

    def after_val_epoch(self, runner: Any, metrics: dict[str, Any]) -> None:
        """Compare with the best scores so far; the file follows at the save point."""
        if not self.save_best or not runner.training_started:
            return
        if 'auto' in self.key_indicators:
            self._init_rule(self.rules, [next(iter(metrics))])
        for key, rule in zip(self.key_indicators, self.rules):
            score = metrics.get(key)
            best = runner.message_hub.runtime_info.get(_best(key, 'score'), self.init_value_map[rule])
            if score is not None and math.isfinite(score) and self.is_better_than[key](score, best):
                runner.message_hub.update_info(_best(key, 'score'), float(score))
                self._new_best.append(key)

    def save_point(self, runner: Any, epoch_ended: bool, last: bool) -> None:
        due = self._due(runner, epoch_ended) or (last and self.save_last)
        names, outdated = self._names(runner, due)
        if names:
            runner.check_finite()
            state = runner.state(self.save_optimizer, self.save_param_scheduler, in_pieces=self._group is not None)
            if is_main_process():
                runner.logger.info(f'Saving checkpoint {", ".join(names)}')
            if is_main_process() or self._group is not None:
                self._writer.submit(partial(self._write, _snapshot(state), names, outdated))
            self._last_write_s = time.monotonic()

    def after_train(self, runner: Any) -> None:
        self._writer.join()
        if self._group is not None:
            torch.distributed.destroy_process_group(self._group)
            self._group = None

    def _due(self, runner: Any, epoch_ended: bool) -> bool:
        if self.by_epoch:
            done, asked = runner.epoch, epoch_ended and runner.by_epoch
        else:
            done, asked = runner.iter, True
        by_count = (
            asked and self.interval > 0 and done > self.save_begin and (done - self.save_begin) % self.interval == 0
        )
        return by_count or self._time_is_up(runner)

    def _time_is_up(self, runner: Any) -> bool:
        if self.interval_minutes is None:
            return False
        return runner.agree(time.monotonic() - self._last_write_s > 60 * self.interval_minutes)

    def _names(self, runner: Any, due: bool) -> tuple[list[str], list[str]]:
        """The names that this point is written under, and the best files that it outdates.

        Both are entered in the run's state before that is written, so that a resumed run knows them.
        """
        step_name = _step_name(runner) + ('.pth' if self._group is None else sharded_checkpoint.SUFFIX)
        names, outdated = [], []
        if due:
            names.append(step_name)
            runner.message_hub.update_info('last_ckpt', step_name)
        for key in self._new_best:
            old = runner.message_hub.runtime_info.get(_best(key, 'ckpt'))
            names.append(f'best_{key.replace("/", "_")}_{step_name}')
            outdated += [old] if old and old != names[-1] else []
            runner.message_hub.update_info(_best(key, 'ckpt'), names[-1])
        self._new_best = []
        return names, outdated

    def _write(self, state: dict, names: list[str], outdated: list[str]) -> None:
        try:
            self._write_files(state, names, outdated)
        except OSError as error:
            path, why = self._folder / names[0], error.strerror or error
            raise RunError(f'{path} could not be written: {why}. The checkpoints before it are whole') from error

    def _write_files(self, state: dict, names: list[str], outdated: list[str]) -> None:
        first, *others = names
        if self._group is None:
            checkpoint.save(state, self._folder / first)
        else:
            sharded_checkpoint.save(state, self._folder / first, self._group)
        if is_main_process():
            self._put_in_order(first, others, outdated)

    def _put_in_order(self, first: str, others: list[str], outdated: list[str]) -> None:
        """The first name is written: give it its other names, and let go of what is not to be kept."""
        for name in others:
            _duplicate(self._folder / first, self._folder / name)
        if not first.startswith('best_'):
            checkpoint.write_text(str(self._folder / first), self._folder / 'last_checkpoint')
        pruned = checkpoint.by_age(self._folder)[self.max_keep_ckpts :] if self.max_keep_ckpts > 0 else []
        for path in [*(self._folder / name for name in outdated), *pruned]:
            path.unlink(missing_ok=True) if not path.is_dir() else sharded_checkpoint.remove(path)


def _best(key: str, what: str) -> str:
    return f'best_{what}_{key}'


def _step_name(runner: Any) -> str:
    if runner.by_epoch and runner.iter % len(runner.train_dataloader) == 0:
        return f'epoch_{runner.epoch}'
    return f'iter_{runner.iter}'


def _snapshot(value: Any) -> Any:
    """A copy in host memory that later steps do not change."""
    if isinstance(value, torch.Tensor):
        return value.detach().to('cpu', copy=True)
    return rebuilt(value, _snapshot)


def _duplicate(source: Path, target: Path) -> None:
    """A second name for what is written."""
    temporary = target.with_name(f'.{target.name}.tmp')
    if source.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.copytree(source, temporary, copy_function=_link)
        sharded_checkpoint.put_in_place(temporary, target)
        return
    temporary.unlink(missing_ok=True)
    _link(source, temporary)
    temporary.replace(target)
    checkpoint.sync_folder(target.parent)


def _link(source: str | Path, target: str | Path) -> None:
    """A copy where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
