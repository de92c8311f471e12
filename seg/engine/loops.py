"""The loops. An iteration is an optimizer step (E15); after each one, and after the validation that may follow it, comes a
`save_point`: the one place where the run's state is whole and a checkpoint may be written."""

from typing import Any

import torch
from mmengine.evaluator import Evaluator
from mmengine.runner import EpochBasedTrainLoop as UpstreamEpochBasedTrainLoop
from mmengine.runner import IterBasedTrainLoop as UpstreamIterBasedTrainLoop
from mmengine.runner import TestLoop as UpstreamTestLoop
from mmengine.runner import ValLoop as UpstreamValLoop
from mmengine.runner.utils import calc_dynamic_intervals
from torch import Tensor, nn

from seg.engine.dataloader import build_eval_dataloader, build_train_dataloader
from seg.engine.evaluate import LossMeter, evaluate_batch, share_buffers
from seg.engine.step import unwrap
from seg.errors import UserError
from seg.registry import LOOPS


class _StepLoop:
    """What both training loops share: one iteration, one validation, the place to save."""

    runner: Any
    _iter: int
    stop_training: bool

    def run_iter(self, idx: int, data_batch: dict) -> None:
        runner = self.runner
        runner.call_hook('before_train_iter', batch_idx=idx, data_batch=data_batch)
        outputs = runner.train_step(data_batch)
        runner.call_hook('after_train_iter', batch_idx=idx, data_batch=data_batch, outputs=outputs)
        self._iter += 1

    def _validate(self) -> None:
        training = self.runner.model.training
        self.runner.last_metrics = self.runner.val_loop.run()
        self.runner.model.train(training)

    def _save_point(self, *, epoch_ended: bool, last: bool) -> None:
        self.runner.call_hook('save_point', epoch_ended=epoch_ended, last=last)


@LOOPS.register_module()
class EpochBasedTrainLoop(_StepLoop, UpstreamEpochBasedTrainLoop):
    """Train for `max_epochs`; validate every `val_interval` epochs, or `vals_per_epoch` times within each.

    The last epoch always validates. A run resumed inside an epoch goes on at its place in it.
    """

    def __init__(
        self,
        runner: Any,
        dataloader: Any,
        max_epochs: int,
        val_begin: int = 1,
        val_interval: int = 1,
        vals_per_epoch: int = 1,
        dynamic_intervals: list[tuple[int, int]] | None = None,
    ) -> None:
        loader = build_train_dataloader(dataloader, seed=runner.seed, accumulate=runner.micro_batches, endless=False)
        super().__init__(runner, loader, max_epochs, val_begin, val_interval, dynamic_intervals)
        steps = len(self.dataloader)
        if not 1 <= vals_per_epoch <= steps:
            raise UserError(
                f'train_cfg.vals_per_epoch is {vals_per_epoch}; expected 1 to {steps}, the steps of an epoch'
            )
        # The steps after which to validate inside an epoch; the end of the epoch has its own rule.
        self._val_steps = {round(steps * part / vals_per_epoch) for part in range(1, vals_per_epoch)}

    @property
    def inner_validations(self) -> int:
        """Validations within an epoch, before its end."""
        return len(self._val_steps)

    def run(self) -> nn.Module:
        runner = self.runner
        runner.call_hook('before_train')
        while self._epoch < self._max_epochs and not self.stop_training:
            self.run_epoch()
        runner.call_hook('after_train')
        return runner.model

    def run_epoch(self) -> None:
        runner = self.runner
        steps = len(self.dataloader)
        runner.call_hook('before_train_epoch')
        runner.model.train()
        self.dataloader.batch_sampler.set_position(self._iter)
        for idx, data_batch in enumerate(self.dataloader, start=self._iter % steps):
            self.run_iter(idx, data_batch)
            if idx + 1 < steps:
                self._after_step_inside_epoch(idx + 1)
            if self.stop_training and idx + 1 < steps:
                return
        runner.call_hook('after_train_epoch')
        self._epoch += 1
        self._after_epoch()

    def _after_step_inside_epoch(self, step: int) -> None:
        if step in self._val_steps and self.runner.val_loop is not None and self._epoch + 1 >= self.val_begin:
            self._validate()
        self._save_point(epoch_ended=False, last=self.stop_training)

    def _after_epoch(self) -> None:
        self._decide_current_val_interval()
        last = self._epoch == self._max_epochs
        due = self._epoch >= self.val_begin and self._epoch % self.val_interval == 0
        if self.runner.val_loop is not None and (due or last):
            self._validate()
        self._save_point(epoch_ended=True, last=last or self.stop_training)


@LOOPS.register_module()
class IterBasedTrainLoop(_StepLoop, UpstreamIterBasedTrainLoop):
    """Train for `max_iters` optimizer steps; validate every `val_interval` of them. The last step always validates."""

    def __init__(
        self,
        runner: Any,
        dataloader: Any,
        max_iters: int,
        val_begin: int = 1,
        val_interval: int = 1000,
        dynamic_intervals: list[tuple[int, int]] | None = None,
    ) -> None:
        loader = build_train_dataloader(dataloader, seed=runner.seed, accumulate=runner.micro_batches, endless=True)
        # Upstream starts the loader's workers here, before the place to start from is known, so its own iterator is
        # replaced by one that `run` makes.
        super(UpstreamIterBasedTrainLoop, self).__init__(runner, loader)
        self._max_iters = int(max_iters)
        self._max_epochs = 1
        self._epoch = 0
        self._iter = 0
        self.val_begin = val_begin
        self.val_interval = val_interval
        self.stop_training = False
        runner.visualizer.dataset_meta = self.dataloader.dataset.metainfo
        self.dynamic_milestones, self.dynamic_intervals = calc_dynamic_intervals(val_interval, dynamic_intervals)

    @property
    def epoch(self) -> int:
        """How often the data set has been gone through."""
        return self._iter // len(self.dataloader)

    def run(self) -> nn.Module:
        runner = self.runner
        runner.call_hook('before_train')
        runner.call_hook('before_train_epoch')
        runner.model.train()
        self.dataloader.batch_sampler.set_position(self._iter)
        batches = iter(self.dataloader) if self._iter < self._max_iters else None
        while self._iter < self._max_iters and not self.stop_training:
            self.run_iter(self._iter, next(batches))  # type: ignore[arg-type]
            self._after_step()
        runner.call_hook('after_train_epoch')
        runner.call_hook('after_train')
        return runner.model

    def _after_step(self) -> None:
        self._decide_current_val_interval()
        last = self._iter == self._max_iters
        due = self._iter >= self.val_begin and self._iter % self.val_interval == 0
        if self.runner.val_loop is not None and (due or last):
            self._validate()
        self._save_point(epoch_ended=False, last=last or self.stop_training)


class _EvalLoop:
    """What validation and test share: evaluate each batch under the run's precision, without gradients."""

    runner: Any
    evaluator: Evaluator

    def _run_batches(self, dataloader: Any, stage: str) -> dict:
        runner = self.runner
        meter = LossMeter()
        for idx, batch in enumerate(dataloader):
            runner.call_hook(f'before_{stage}_iter', batch_idx=idx, data_batch=batch)
            outputs = self.evaluate_batch(batch, meter)
            self.evaluator.process(data_samples=outputs, data_batch=batch)
            runner.call_hook(f'after_{stage}_iter', batch_idx=idx, data_batch=batch, outputs=outputs)
        return {**self.evaluator.evaluate(len(dataloader.dataset)), **meter.compute()}

    @torch.inference_mode()
    def evaluate_batch(self, batch: dict, meter: LossMeter) -> list[dict[str, Tensor]]:
        """What the metric reads of a batch; its losses go to `meter`."""
        return evaluate_batch(unwrap(self.runner.model), batch, self.runner.precision, meter)


@LOOPS.register_module()
class ValLoop(_EvalLoop, UpstreamValLoop):
    """Validate during training: the metric over the whole data set, and the training losses on it."""

    def __init__(self, runner: Any, dataloader: Any, evaluator: Any) -> None:
        loader = build_eval_dataloader(dataloader, seed=runner.seed)
        super().__init__(runner, loader, evaluator)

    def run(self) -> dict:
        runner = self.runner
        runner.call_hook('before_val')
        runner.call_hook('before_val_epoch')
        runner.model.eval()
        share_buffers(runner.model)
        metrics = self._run_batches(self.dataloader, 'val')
        runner.call_hook('after_val_epoch', metrics=metrics)
        runner.call_hook('after_val')
        return metrics


@LOOPS.register_module()
class TestLoop(_EvalLoop, UpstreamTestLoop):
    """Evaluate a checkpoint; the same walk as validation."""

    def __init__(self, runner: Any, dataloader: Any, evaluator: Any) -> None:
        loader = build_eval_dataloader(dataloader, seed=runner.seed)
        super().__init__(runner, loader, evaluator)

    def run(self) -> dict:
        runner = self.runner
        runner.call_hook('before_test')
        runner.call_hook('before_test_epoch')
        runner.model.eval()
        metrics = self._run_batches(self.dataloader, 'test')
        runner.call_hook('after_test_epoch', metrics=metrics)
        runner.call_hook('after_test')
        return metrics
