"""When checkpoints are written, which is best, and which are pruned: the new file first, then the old ones (D7)."""

import math
import os
import shutil
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook as UpstreamCheckpointHook

from seg.engine import checkpoint
from seg.registry import HOOKS


@HOOKS.register_module()
class CheckpointHook(UpstreamCheckpointHook):
    """MMEngine's arguments; files are written at the loop's save points, where the run's state is whole.

    `interval` counts epochs (`by_epoch=True`) or optimizer steps. The last point of a run is always written, too, unless
    `save_last=False`. `save_best` names a score; the best file is a whole checkpoint that a run can be resumed from. A
    score that is missing or not finite is never best.
    """

    def before_train(self, runner: Any) -> None:
        super().before_train(runner)
        self._folder = Path(self.out_dir)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._new_best: list[str] = []
        self._saved_iter = -1

    # Upstream's moments of writing, which come before the state is whole.
    def after_train_epoch(self, runner: Any) -> None:
        """Nothing: see `save_point`."""

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Nothing: see `save_point`."""

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
        name = self._step_name(runner)
        replaced = [self._name_best(runner, key) for key in self._new_best]
        if due:
            runner.message_hub.update_info('last_ckpt', name)
            self._write(runner, name)
        for key, old in zip(self._new_best, replaced):
            self._write_best(runner, key, name if due else None, old)
        self._new_best = []
        if due:
            self._prune()

    def _due(self, runner: Any, epoch_ended: bool) -> bool:
        if self.by_epoch:
            done, asked = runner.epoch, epoch_ended and runner.by_epoch
        else:
            done, asked = runner.iter, True
        return asked and self.interval > 0 and done > self.save_begin and (done - self.save_begin) % self.interval == 0

    def _step_name(self, runner: Any) -> str:
        if runner.by_epoch and runner.iter % len(runner.train_dataloader) == 0:
            return f'epoch_{runner.epoch}.pth'
        return f'iter_{runner.iter}.pth'

    def _write(self, runner: Any, name: str) -> None:
        runner.logger.info(f'Saving checkpoint {name}')
        runner.save_checkpoint(
            self.out_dir, name, save_optimizer=self.save_optimizer, save_param_scheduler=self.save_param_scheduler
        )
        if is_main_process():
            checkpoint.write_text(str(self._folder / name), self._folder / 'last_checkpoint')

    def _name_best(self, runner: Any, key: str) -> str | None:
        """Enter the new best file's name in the run's state (the checkpoint written next holds it); return the old."""
        old = runner.message_hub.runtime_info.get(_best(key, 'ckpt'))
        runner.message_hub.update_info(_best(key, 'ckpt'), f'best_{key.replace("/", "_")}_{self._step_name(runner)}')
        return old

    def _write_best(self, runner: Any, key: str, same_as: str | None, old: str | None) -> None:
        name = runner.message_hub.get_info(_best(key, 'ckpt'))
        if same_as is None:
            self._write_only(runner, name)
        elif is_main_process():
            _duplicate(self._folder / same_as, self._folder / name)
        score = runner.message_hub.get_info(_best(key, 'score'))
        runner.logger.info(f'Best {key} so far: {score:.4f}, in {name}')
        if old and old != name and is_main_process():
            (self._folder / old).unlink(missing_ok=True)

    def _write_only(self, runner: Any, name: str) -> None:
        runner.save_checkpoint(self.out_dir, name)

    def _prune(self) -> None:
        if self.max_keep_ckpts > 0 and is_main_process():
            for path in checkpoint.by_age(self._folder)[self.max_keep_ckpts :]:
                path.unlink(missing_ok=True)


def _best(key: str, what: str) -> str:
    return f'best_{what}_{key}'


def _duplicate(source: Path, target: Path) -> None:
    """A second name for a written file; a copy where the file system has no hard links."""
    temporary = target.with_name(f'.{target.name}.tmp')
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copyfile(source, temporary)
    temporary.replace(target)
    checkpoint.sync_folder(target.parent)
