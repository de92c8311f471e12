"""DistributedDataParallel by config: `model_wrapper_cfg=dict(static_graph=..., gradient_as_bucket_view=..., ...)`.

MMEngine passes `device_ids=[LOCAL_RANK]` on a CPU too, which DDP refuses there (D3).
"""

import inspect
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as TorchDistributedDataParallel

from seg.errors import UserError
from seg.registry import MODEL_WRAPPERS

_COMPRESSION = {'bf16': default_hooks.bf16_compress_hook, 'fp16': default_hooks.fp16_compress_hook}

# torch 2.14 renamed the argument and warns of the old name.
_PARAMETERS = inspect.signature(TorchDistributedDataParallel.__init__).parameters
_BUFFERS = 'forward_sync_buffers' if 'forward_sync_buffers' in _PARAMETERS else 'broadcast_buffers'


@MODEL_WRAPPERS.register_module(name=['DistributedDataParallel', 'MMDistributedDataParallel'])
class DistributedDataParallel(TorchDistributedDataParallel):
    """torch's DDP, on the module's own device, with gradients compressed on request.

    `gradient_compression` is None, 'bf16' or 'fp16': the type that gradients travel in; it halves the traffic and rounds
    them. Everything else is torch's, but that buffers are not broadcast at each step: BatchNorm's are equal on all ranks
    where it is synchronised, and each rank's own where it is not.
    """

    def __init__(
        self, module: nn.Module, gradient_compression: str | None = None, broadcast_buffers: bool = False, **kwargs: Any
    ) -> None:
        device = next(module.parameters()).device
        kwargs.setdefault('device_ids', [device.index] if device.type == 'cuda' else None)
        kwargs[_BUFFERS] = broadcast_buffers
        super().__init__(module, **kwargs)
        self._trainable = {name for name, weight in module.named_parameters() if weight.requires_grad}
        if gradient_compression is not None:
            self._compress(gradient_compression)

    def train(self, mode: bool = True) -> 'DistributedDataParallel':
        """Raises UserError where hooks have frozen or freed weights since this was made, which it would not know of."""
        if mode and hasattr(self, '_trainable'):
            self._refuse_what_has_changed({name for name, p in self.module.named_parameters() if p.requires_grad})
        return super().train(mode)

    def _refuse_what_has_changed(self, trainable: set[str]) -> None:
        freed, frozen = sorted(trainable - self._trainable), sorted(self._trainable - trainable)
        if freed:
            raise UserError(
                f'{len(freed)} weights, {freed[0]} the first, were freed after DistributedDataParallel was made: their '
                'gradients would not be summed over the processes, which would drift apart. Leave them free in the model '
                'and freeze them by a hook, with find_unused_parameters=True'
            )
        if frozen and not (self.find_unused_parameters or self.static_graph):
            raise UserError(
                f'{len(frozen)} weights, {frozen[0]} the first, were frozen after DistributedDataParallel was made, which '
                "would wait for their gradients: freeze them in the model's __init__, or set find_unused_parameters=True"
            )

    def no_sync(self) -> Any:
        if self.static_graph:
            raise UserError(
                'model_wrapper_cfg.static_graph=True: torch cannot keep the gradients of such a graph with their rank, as '
                'optim_wrapper.accumulative_counts and VerifyHook(verify_step=...) need; leave out static_graph'
            )
        return super().no_sync()

    def _compress(self, kind: str) -> None:
        if kind not in _COMPRESSION:
            expected = ' or '.join(map(repr, _COMPRESSION))
            raise UserError(f'model_wrapper_cfg.gradient_compression is {kind!r}; expected {expected}')
        self.register_comm_hook(torch.distributed.group.WORLD, _COMPRESSION[kind])
