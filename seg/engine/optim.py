"""Optimizer wrappers: one `step()` is one optimizer step, whatever it was accumulated from (E15).

MMEngine's wrappers count micro-batches and read the gradient norm to the host each time (D13), and its mixed precision
needs a GPU (D4). Here the loop hands over the micro-batches of one step (`seg.engine.step`), and a wrapper only knows how
to scale, clip and step.
"""

from contextlib import AbstractContextManager
from typing import Any

import torch
from mmengine.optim import OptimWrapper as UpstreamOptimWrapper
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from seg.engine.precision import autocast, precision_name
from seg.engine.wrappers.sharded_state import cut_optimizer_state
from seg.engine.wrappers.zero import shard_optimizer
from seg.errors import UserError
from seg.registry import OPTIM_WRAPPERS


@OPTIM_WRAPPERS.register_module()
class OptimWrapper(UpstreamOptimWrapper):
    """Steps an optimizer in full precision.

    `accumulative_counts` micro-batches make one step. `clip_grad` is MMEngine's: `dict(max_norm=1.0)` or
    `dict(type='value', clip_value=0.5)`. `skip_nonfinite` leaves out up to so many steps whose loss is not finite, where
    0 stops the run; to know, the device is waited for at each step. `zero` spreads the optimizer's state over the ranks
    (`seg.engine.wrappers.zero`).
    """

    precision = 'fp32'

    def __init__(
        self,
        optimizer: Optimizer,
        accumulative_counts: int = 1,
        clip_grad: dict | None = None,
        skip_nonfinite: int = 0,
        zero: bool = False,
    ) -> None:
        if not isinstance(accumulative_counts, int) or accumulative_counts < 1:
            raise UserError(f'optim_wrapper.accumulative_counts is {accumulative_counts!r}; expected an integer >= 1')
        _refuse_pieces(optimizer)
        optimizer = shard_optimizer(optimizer) if zero else optimizer
        super().__init__(optimizer, accumulative_counts=1, clip_grad=None if clip_grad is None else dict(clip_grad))
        self.micro_batches = accumulative_counts
        self.grad_norm: torch.Tensor | None = None
        self.skip_nonfinite = skip_nonfinite

    def autocast(self, device: torch.device) -> AbstractContextManager:
        return autocast(self.precision, device)

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        loss.backward(**kwargs)

    def step(self, **kwargs: Any) -> None:
        """Clip, step, and clear the gradients. The norm before clipping stays in `grad_norm`, on the device."""
        self._clip_grad()
        self._optimizer_step(**kwargs)
        self.zero_grad()

    def _optimizer_step(self, **kwargs: Any) -> None:
        self.optimizer.step(**kwargs)

    def _clip_grad(self) -> None:
        if not self.clip_grad_kwargs:
            return
        params = [p for group in self.optimizer.param_groups for p in group['params'] if p.grad is not None]
        norm = self.clip_func(params, **self.clip_grad_kwargs)
        self.grad_norm = None if norm is None else _whole(norm.detach())

    def load_state_dict(self, state_dict: dict) -> None:
        super().load_state_dict(cut_optimizer_state(state_dict, self.optimizer))


@OPTIM_WRAPPERS.register_module()
class AmpOptimWrapper(OptimWrapper):
    """Mixed precision on CPU and GPU, in bfloat16 or float16; the loss is scaled for float16 only (D4).

    `loss_scale` is 'dynamic', a fixed number, or a dict of torch.amp.GradScaler's arguments. The scaler's state is part of
    `state_dict()` under MMEngine's key, `loss_scaler`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        dtype: str | torch.dtype = 'bfloat16',
        loss_scale: str | float | dict = 'dynamic',
        accumulative_counts: int = 1,
        clip_grad: dict | None = None,
        skip_nonfinite: int = 0,
        zero: bool = False,
    ) -> None:
        super().__init__(optimizer, accumulative_counts, clip_grad, skip_nonfinite, zero)
        self.precision = precision_name(dtype)
        device = optimizer.param_groups[0]['params'][0].device.type
        self._fixed_scale = float(loss_scale) if isinstance(loss_scale, (int, float)) else None
        self.loss_scaler = torch.amp.GradScaler(device, enabled=self.precision == 'fp16', **_scaler_args(loss_scale))

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        self.loss_scaler.scale(loss).backward(**kwargs)

    def step(self, **kwargs: Any) -> None:
        if self.clip_grad_kwargs:
            self.loss_scaler.unscale_(self.optimizer)
        super().step(**kwargs)

    def _optimizer_step(self, **kwargs: Any) -> None:
        self.loss_scaler.step(self.optimizer, **kwargs)
        self.loss_scaler.update(self._fixed_scale)

    def state_dict(self) -> dict:
        state = super().state_dict()
        if self.loss_scaler.is_enabled():
            state['loss_scaler'] = self.loss_scaler.state_dict()
        return state

    def load_state_dict(self, state_dict: dict) -> None:
        state = dict(state_dict)
        scaler = state.pop('loss_scaler', None)
        if scaler and self.loss_scaler.is_enabled():
            self.loss_scaler.load_state_dict(scaler)
        super().load_state_dict(state)


def _refuse_pieces(optimizer: Optimizer) -> None:
    """Raise UserError for an optimizer that reads more of a weight than one number at a time, where FSDP has cut them.

    Seen on torch 2.14: each rank's Adafactor scales its step by the norm of its own piece, and Rprop fails.
    """
    in_pieces = any(isinstance(weight, DTensor) for group in optimizer.param_groups for weight in group['params'])
    if in_pieces and isinstance(optimizer, (torch.optim.Adafactor, torch.optim.Rprop)):
        raise UserError(
            f'optim_wrapper.optimizer: torch computes {type(optimizer).__name__} on whole weights only, and '
            'model_wrapper_cfg.type=FullyShardedDataParallel cuts them; take AdamW or SGD, or optim_wrapper.zero=True '
            'instead of FSDP'
        )


def _whole(norm: torch.Tensor) -> torch.Tensor:
    """Of gradients in pieces each rank has a part of the norm; all ranks are here."""
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _scaler_args(loss_scale: str | float | dict) -> dict:
    if loss_scale == 'dynamic':
        return {}
    if isinstance(loss_scale, dict):
        return dict(loss_scale)
    if isinstance(loss_scale, (int, float)):
        return dict(init_scale=float(loss_scale))
    raise UserError(f"optim_wrapper.loss_scale is {loss_scale!r}; expected 'dynamic', a number, or a dict")
