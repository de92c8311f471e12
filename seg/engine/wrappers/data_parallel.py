"""One process on several GPUs: `model_wrapper_cfg=dict(type='DataParallel')`. docs/data_parallel.md compares it with DDP.

Each batch is scattered over the GPUs that the process sees, the model is copied to each, and what the copies return is
gathered on the first.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seg.errors import UserError
from seg.registry import MODEL_WRAPPERS


def wrap_data_parallel(model: nn.Module, wrapper: dict, config: Any, logger: logging.Logger) -> nn.Module:
    """`model` on all GPUs in sight; as it is, and said so, where there are fewer than two.

    Raises UserError for what does not go with it: a distributed launcher, `compile`, other arguments.
    """
    _check(wrapper, config)
    gpus = torch.cuda.device_count()
    if gpus < 2:
        logger.info(f'DataParallel needs 2 GPUs or more, and this process sees {gpus}: it trains as it would without')
        return model
    logger.info(
        f'DataParallel: each batch of train_dataloader.batch_size is scattered over {gpus} GPUs; BatchNorm normalises '
        'each part by itself, sync_bn or not; validation runs on the first GPU'
    )
    return MODEL_WRAPPERS.build(dict(type='DataParallel', module=model))


def _check(wrapper: dict, config: Any) -> None:
    others = sorted(set(wrapper) - {'type'})
    if others:
        raise UserError(
            f'model_wrapper_cfg: DataParallel takes no {", ".join(others)}; choose GPUs by CUDA_VISIBLE_DEVICES=0,1'
        )
    launcher = config.get('launcher') or 'none'
    if launcher != 'none' or torch.distributed.is_initialized():
        raise UserError(
            f"model_wrapper_cfg.type='DataParallel' is for one process, but the launcher is {launcher!r}: start "
            "tools/train.py without --launcher, or set model_wrapper_cfg.type='DistributedDataParallel'"
        )
    if config.get('compile'):
        raise UserError(
            'compile does not go with DataParallel, whose copies of the network would all run the first one: leave out '
            "--compile, or set model_wrapper_cfg.type='DistributedDataParallel' and use tools/dist_train.sh"
        )


@MODEL_WRAPPERS.register_module()
class DataParallel(nn.DataParallel):
    """torch's, for models that return shares of a loss: `normalisers` go to each GPU whole, and shares are summed."""

    module: Any

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)

    def scatter(self, inputs: tuple, kwargs: dict | None, device_ids: Sequence[Any]) -> tuple[Sequence, Sequence]:
        """`inputs` are images and, for mode='loss', labels and normalisers, which run over the losses, not the samples.

        A batch of fewer samples than GPUs keeps the rest of them idle; torch alone would call the model there too.
        """
        tensors, whole = inputs[:2], inputs[2:]
        parts, keywords = super().scatter(tensors, kwargs, device_ids)
        parts = [part for part in parts if part]
        if whole:
            normalisers = self._of_all_parts(tensors[1], whole[0], len(device_ids))
            parts = [(*part, normalisers.to(part[0].device, non_blocking=True)) for part in parts]
        return parts, keywords[: len(parts)]

    def _of_all_parts(self, labels: Tensor, normalisers: Tensor, count: int) -> Tensor:
        """A loss that pools over a batch now pools over each part, and counts 1 for each: it becomes their mean."""
        parts = torch.stack([self.module.normalisers(part) for part in labels.chunk(count)]).sum(dim=0)
        batch = self.module.normalisers(labels)
        return normalisers * torch.where(batch == 0, 1.0, parts / torch.where(batch == 0, 1.0, batch))

    def parallel_apply(self, replicas: Sequence, inputs: Sequence, kwargs: Any) -> list[Any]:
        """torch tells its threads that autocast is on but not in which type, and they would take their own default."""
        kind = self.src_device_obj.type
        if not torch.is_autocast_enabled(kind):
            return super().parallel_apply(replicas, inputs, kwargs)
        dtype = torch.get_autocast_dtype(kind)
        return super().parallel_apply([_under(kind, dtype, replica) for replica in replicas], inputs, kwargs)

    def gather(self, outputs: Sequence[Any], output_device: Any) -> Any:
        """Of shares, 0-d each, the sum, on the first GPU; of logits all, one after the other."""
        if not isinstance(outputs[0], dict):
            return super().gather(outputs, output_device)
        return {
            name: torch.stack([shares[name].to(first.device) for shares in outputs]).sum()
            for name, first in outputs[0].items()
        }


def _under(kind: str, dtype: torch.dtype, replica: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(kind, dtype=dtype):
            return replica(*args, **kwargs)

    return run
