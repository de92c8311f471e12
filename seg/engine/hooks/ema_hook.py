"""Averaged weights: MMEngine's EMAHook, whose average is what is validated, kept as best, and shipped."""

from typing import Any

from mmengine.hooks import EMAHook as UpstreamEMAHook

from seg.engine.fsdp import refuse
from seg.registry import HOOKS


@HOOKS.register_module()
class EMAHook(UpstreamEMAHook):
    """MMEngine's, with BatchNorm's statistics averaged too (`update_buffers`), which its default leaves out."""

    def __init__(self, ema_type: str = 'ExponentialMovingAverage', update_buffers: bool = True, **kwargs: Any) -> None:
        super().__init__(ema_type=ema_type, update_buffers=update_buffers, **kwargs)

    def before_run(self, runner: Any) -> None:
        refuse(runner.model, 'EMAHook', 'leave it out, or train by DDP with optim_wrapper.zero=True')
        super().before_run(runner)
