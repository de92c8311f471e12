"""Averaged weights: MMEngine's EMAHook, whose average is what is validated, kept as best, and shipped."""

from typing import Any

from mmengine.hooks import EMAHook as UpstreamEMAHook
from mmengine.registry import MODELS
from torch import nn

from seg.engine.wrappers.fsdp import is_fully_sharded
from seg.engine.wrappers.sharded_state import take_whole_tensors
from seg.registry import HOOKS


@HOOKS.register_module()
class EMAHook(UpstreamEMAHook):
    """MMEngine's, with BatchNorm's statistics averaged too (`update_buffers`), which its default leaves out.

    Under FSDP the average is in pieces as the weights are.
    """

    def __init__(self, ema_type: str = 'ExponentialMovingAverage', update_buffers: bool = True, **kwargs: Any) -> None:
        super().__init__(ema_type=ema_type, update_buffers=update_buffers, **kwargs)

    def before_run(self, runner: Any) -> None:
        if not is_fully_sharded(runner.model):
            super().before_run(runner)
            return
        self.src_model = runner.model.module
        self.ema_model = MODELS.build(self.ema_cfg, default_args=dict(model=_tensors_alone(self.src_model)))
        self.ema_model.module.register_load_state_dict_pre_hook(take_whole_tensors)

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        if is_fully_sharded(runner.model):
            runner.model.let_go()  # what is swapped back are the pieces
        super().after_val_epoch(runner, metrics)


def _tensors_alone(module: nn.Module) -> nn.Module:
    """Modules that hold `module`'s tensors under the same names, in the same order, and do nothing.

    The average is made of a copy, and torch refuses to copy what `fully_shard` has changed.
    """
    copy = nn.Module()
    for name, parameter in module.named_parameters(recurse=False):
        copy.register_parameter(name, parameter)
    for name, buffer in module.named_buffers(recurse=False):
        copy.register_buffer(name, buffer, persistent=name not in module._non_persistent_buffers_set)
    for name, child in module.named_children():
        copy.add_module(name, _tensors_alone(child))
    return copy
