"""Batch normalisation over the batches of all ranks, on CPU and gloo too.

torch.nn.SyncBatchNorm refuses CPU tensors, and DistributedDataParallel refuses a CPU model that holds one (E3). This
one is a batch normalisation like any other to both, with the same keys in a checkpoint; what it computes on CUDA is
torch's own kernels.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules._functions import SyncBatchNorm as TorchKernels
from torch.nn.modules.batchnorm import _BatchNorm

from seg.models.reduce import at_least_float32, world_size
from seg.registry import MODELS

PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@MODELS.register_module('SyncBN')
class SyncBatchNorm(_BatchNorm):
    """Plain batch normalisation in eval mode, without a process group, and in a group of one.

    N ranks compute what one process would on their joined batches: output, gradients, running statistics. Their
    batches may differ in size, but none may be empty. Statistics are in at least float32, autocast or not.
    `track_running_stats=False` in training mode leaves the running statistics as they are.
    """

    plain: type[_BatchNorm] = nn.BatchNorm2d
    process_group: Any = None

    def _check_input_dim(self, x: Tensor) -> None:
        if x.dim() < 2:
            raise ValueError(f'expected (N, C, ...), got shape {tuple(x.shape)}')

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or world_size(self.process_group) == 1:
            return super().forward(x)
        self._check_input_dim(x)
        group = self.process_group or dist.group.WORLD
        return self._on_cuda(x, group) if x.is_cuda else self._anywhere(x, group)

    def _momentum(self) -> float:
        """Of this batch; counts it. `momentum=None` means the mean over all batches."""
        if not self.track_running_stats or self.num_batches_tracked is None:
            return 0.0
        self.num_batches_tracked.add_(1)
        return 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum

    def _on_cuda(self, x: Tensor, group: Any) -> Tensor:
        running = (self.running_mean, self.running_var) if self.track_running_stats else (None, None)
        arguments = (self.weight, self.bias, *running, self.eps, self._momentum(), group, world_size(group))
        return TorchKernels.apply(x, *arguments)

    def _anywhere(self, x: Tensor, group: Any) -> Tensor:
        mean, var, count = _joint_statistics(x.detach(), group)
        momentum = self._momentum()
        if self.track_running_stats and self.running_mean is not None and self.running_var is not None:
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
            self.running_var.lerp_((var * count / (count - 1)).to(self.running_var.dtype), momentum)
        return _Normalise.apply(x, self.weight, self.bias, mean, var, count, self.eps, group)


def _joint_statistics(x: Tensor, group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Mean (C), biased variance (C) and count (1) over all ranks.

    Joined from each rank's own mean and variance, which is stable where a sum of squares is not: Chan, Golub and
    LeVeque, "Algorithms for computing the sample variance", 1983.
    """
    mean, var = torch.batch_norm_update_stats(at_least_float32(x), None, None, 0.0)
    mine = torch.cat([mean, var, mean.new_tensor([x.numel() // x.shape[1]])])
    rows = [torch.empty_like(mine) for _ in range(world_size(group))]
    dist.all_gather(rows, mine, group=group)
    means, variances, counts = torch.stack(rows).split([len(mean), len(mean), 1], dim=1)
    share = counts / counts.sum()
    joint = (share * means).sum(0)
    return joint, (share * (variances + (means - joint).square())).sum(0), counts.sum(0)


class _Normalise(torch.autograd.Function):
    """Normalise by statistics that depend on every rank's `x`. With n values on all ranks and x̂ = (x - mean) / std:

    dx = weight / std · (dy - Σdy / n - x̂ · Σ(dy · x̂) / n), the sums over all ranks: the first term is the gradient at
    fixed statistics, the rest is again a normalisation of `x`, by another weight and bias.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, count: Tensor, eps: float, group: Any
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, var, count)
        ctx.eps, ctx.group = eps, group
        return F.batch_norm(x, mean, var, weight, bias, training=False, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, var, count = ctx.saved_tensors
        dx, dweight, dbias = torch.ops.aten.native_batch_norm_backward(
            dy, x, weight, mean, var, None, None, False, ctx.eps, [True, True, True]
        )
        sums = torch.stack([dweight, dbias])
        dist.all_reduce(sums, group=ctx.group)
        scale = -(var + ctx.eps).rsqrt() / count * (1 if weight is None else weight)
        weight_for_x, bias_for_x = scale * sums
        dx += F.batch_norm(x, mean, var, weight_for_x, bias_for_x, training=False, eps=ctx.eps)
        _, wants_dweight, wants_dbias = ctx.needs_input_grad[:3]
        return dx, dweight if wants_dweight else None, dbias if wants_dbias else None, None, None, None, None, None


def convert_sync_batchnorm(module: nn.Module) -> nn.Module:
    """Every BatchNorm1d, 2d, 3d and torch SyncBatchNorm in `module` becomes a SyncBatchNorm, in place.

    Parameters, buffers and hooks stay the same objects. Subclasses of those are left as they are: what else they
    compute is not known here.
    """
    for layer in module.modules():
        kind: Any = type(layer)
        if kind in PLAIN:
            layer.plain = kind
        if kind in (*PLAIN, nn.SyncBatchNorm):
            _become(layer, SyncBatchNorm)
    return module


def revert_sync_batchnorm(module: nn.Module) -> nn.Module:
    """Every SyncBatchNorm in `module`, torch's too, becomes plain batch normalisation again, in place."""
    for layer in module.modules():
        if isinstance(layer, SyncBatchNorm | nn.SyncBatchNorm):
            _become(layer, getattr(layer, 'plain', nn.BatchNorm2d))
    return module


def _become(layer: nn.Module, kind: Any) -> None:
    layer.__class__ = kind
