"""The log: one line per interval and per validation, once, whatever the number of ranks.

Takes the place of MMEngine's RuntimeInfoHook, IterTimerHook and LoggerHook, which read every loss to the host at every
step (D13) and cost more than the rest of its loop (E5). Here losses stay on the device; once per interval they are
averaged, summed over the ranks and read.
"""

import datetime
import time
from typing import Any

import torch
from mmengine.hooks import Hook

from seg.engine.loss_window import LossWindow, refuse_not_finite
from seg.registry import HOOKS


@HOOKS.register_module()
class LoggerHook(Hook):
    """Logs every `interval` optimizer steps, and at the last step of an epoch.

    The logged loss is the global batch's, averaged over the interval. `time` and `data_time` are seconds a step,
    `memory` is MiB on the device. Raises RuntimeError when the loss is not finite.
    """

    priority = 'BELOW_NORMAL'

    def __init__(self, interval: int = 50) -> None:
        self.interval = interval
        self._window = LossWindow()
        self._data_s = 0.0
        self._started_s = 0.0
        self._last_end_s = 0.0
        self._total_s = 0.0
        self._total_steps = 0

    def before_train(self, runner: Any) -> None:
        self._restart_clock()

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        self._data_s += time.perf_counter() - self._last_end_s

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self._window.add(outputs)
        if self._window and ((runner.iter + 1) % self.interval == 0 or self._ends_epoch(runner, batch_idx)):
            self._log_training(runner, batch_idx)
        self._last_end_s = time.perf_counter()

    def before_val(self, runner: Any) -> None:
        self._paused_s = time.perf_counter()

    def after_val(self, runner: Any) -> None:
        # Validation is not the step's time.
        pause_s = time.perf_counter() - self._paused_s
        self._started_s += pause_s
        self._last_end_s += pause_s

    def after_val_epoch(self, runner: Any, metrics: dict[str, Any] | None = None) -> None:
        self._log_metrics(runner, metrics or {}, 'val')

    def after_test_epoch(self, runner: Any, metrics: dict[str, Any] | None = None) -> None:
        self._log_metrics(runner, metrics or {}, 'test')

    def after_run(self, runner: Any) -> None:
        runner.visualizer.close()

    def _ends_epoch(self, runner: Any, batch_idx: int) -> bool:
        if runner.iter + 1 == runner.max_iters:
            return True
        return runner.by_epoch and batch_idx + 1 == len(runner.train_dataloader)

    def _restart_clock(self) -> None:
        self._window.clear()
        self._data_s = 0.0
        self._started_s = self._last_end_s = time.perf_counter()

    def _log_training(self, runner: Any, batch_idx: int) -> None:
        steps = len(self._window)
        losses = self._window.read()
        elapsed_s = time.perf_counter() - self._started_s
        self._total_s += elapsed_s
        self._total_steps += steps
        scalars: dict[str, Any] = {
            'lr': runner.optim_wrapper.optimizer.param_groups[0]['lr'],
            'time': elapsed_s / steps,
            'data_time': self._data_s / steps,
            'images_per_s': steps * runner.global_batch / elapsed_s,
            **_memory(),
            **{name: sum(column) / steps for name, column in losses.items()},
            **_grad_norm(runner),
        }
        runner.visualizer.add_scalars(
            {**scalars, 'epoch': _epoch(runner), 'iter': runner.iter + 1}, step=runner.iter + 1
        )
        eta_s = self._total_s / self._total_steps * (runner.max_iters - runner.iter - 1)
        runner.logger.info(_training_line(runner, batch_idx, scalars, eta_s))
        refuse_not_finite(losses, runner, runner.iter + 1)
        self._restart_clock()

    def check_finite(self, runner: Any) -> None:
        """Raise RuntimeError if a loss since the last log line is not finite. Every rank must call it, after a step."""
        if self._window:
            refuse_not_finite(self._window.read(), runner, runner.iter)

    def _log_metrics(self, runner: Any, metrics: dict[str, Any], stage: str) -> None:
        scalars = {key: value for key, value in metrics.items() if isinstance(value, (int, float))}
        for table in runner.metric_tables():
            runner.logger.info('\n' + table)
        summary = '  '.join(f'{key}: {value:.4f}' for key, value in scalars.items() if '.' not in key)
        position = f'{_position(runner)} ' if stage == 'val' and runner.training_started else ''
        runner.logger.info(f'{stage.capitalize()} {position} {summary}')
        step = runner.iter if runner.training_started else 0
        names = {key if key.startswith(stage) else f'{stage}/{key}': value for key, value in scalars.items()}
        runner.visualizer.add_scalars({**names, 'step': step}, step=step)


def _grad_norm(runner: Any) -> dict[str, float]:
    norm = runner.optim_wrapper.grad_norm
    return {} if norm is None else {'grad_norm': norm.item()}


def _epoch(runner: Any) -> int:
    return runner.epoch + 1


def _position(runner: Any) -> str:
    if runner.by_epoch:
        return f'epoch {runner.epoch} (step {runner.iter}/{runner.max_iters})'
    return f'step {runner.iter}/{runner.max_iters}'


def _training_line(runner: Any, batch_idx: int, scalars: dict[str, float], eta_s: float) -> str:
    if runner.by_epoch:
        steps = len(runner.train_dataloader)
        position = f'[{_epoch(runner)}/{runner.max_epochs}][{batch_idx + 1:>{len(str(steps))}}/{steps}]'
    else:
        position = f'[{runner.iter + 1:>{len(str(runner.max_iters))}}/{runner.max_iters}]'
    eta = datetime.timedelta(seconds=int(eta_s))
    timing = f'time: {scalars["time"]:.3f}  data_time: {scalars["data_time"]:.3f}'
    rest = '  '.join(
        f'{name}: {value:.4f}' for name, value in scalars.items() if 'loss' in name or name in ('grad_norm',)
    )
    memory = f'  memory: {scalars["memory"]:.0f}' if 'memory' in scalars else ''
    return f'Train {position}  lr: {scalars["lr"]:.3e}  eta: {eta}  {timing}{memory}  {rest}'


def _memory() -> dict[str, float]:
    if not torch.cuda.is_available():
        return {}
    return {'memory': torch.cuda.max_memory_allocated() / 2**20}
