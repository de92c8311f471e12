"""Histograms of weights and gradients in every logger that has them."""

from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from torch import Tensor
from torch.optim import Optimizer

from seg.engine.wrappers.fsdp import refuse
from seg.errors import UserError
from seg.registry import HOOKS


@HOOKS.register_module()
class HistogramHook(Hook):
    """Every `interval` optimizer steps, on rank 0: `weights/NAME` and `gradients/NAME`, as they enter the step.

    The gradients are the optimizer's own: summed over the ranks, unscaled, clipped. A step that a loss scaler skips has
    none. Other steps wait for nothing.
    """

    priority = 'LOW'

    def __init__(self, interval: int, weights: bool = True, gradients: bool = True) -> None:
        if interval < 1:
            raise UserError(f'HistogramHook: interval is {interval}; expected a number of steps >= 1')
        self.interval = interval
        self.weights = weights
        self.gradients = gradients
        self._due_at: int | None = None
        self._handles: list[Any] = []

    def before_train(self, runner: Any) -> None:
        if not hasattr(runner.visualizer, 'add_histogram'):
            raise UserError("HistogramHook needs visualizer=dict(type='SegVisualizer', vis_backends=[...])")
        refuse(runner.model, 'HistogramHook', 'leave it out')
        if not is_main_process():
            return
        wrapper = runner.optim_wrapper
        wrappers = wrapper.values() if hasattr(wrapper, 'values') else [wrapper]

        def record(optimizer: Optimizer, args: tuple, kwargs: dict) -> None:
            if self._due_at is not None:
                self._record(runner, optimizer, self._due_at)

        self._handles = [wrapper.optimizer.register_step_pre_hook(record) for wrapper in wrappers]

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        due = runner.visualizer.has_histograms and (runner.iter + 1) % self.interval == 0
        self._due_at = runner.iter + 1 if due else None

    def after_train(self, runner: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _record(self, runner: Any, optimizer: Optimizer, step: int) -> None:
        names = {id(parameter): name for name, parameter in runner.model.named_parameters()}
        for group in optimizer.param_groups:
            for parameter in group['params']:
                name = names.get(id(parameter), '').removeprefix('module.')
                self._add(runner, f'weights/{name}', parameter if self.weights else None, step)
                self._add(runner, f'gradients/{name}', parameter.grad if self.gradients else None, step)

    @staticmethod
    def _add(runner: Any, name: str, values: Tensor | None, step: int) -> None:
        if values is not None:
            runner.visualizer.add_histogram(name, values, step)
