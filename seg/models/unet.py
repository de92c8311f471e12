"""U-Net: Ronneberger, Fischer and Brox, "U-Net: Convolutional Networks for Biomedical Image Segmentation",
arXiv:1505.04597, with padded convolutions and batch normalisation as in the public Pytorch-UNet."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from seg.errors import UserError
from seg.models.layers import build_activation, build_norm
from seg.models.norm import SyncBatchNorm
from seg.models.reduce import world_size
from seg.registry import MODELS

UPSAMPLINGS = ('transposed', 'bilinear')
BN, RELU = {'type': 'BN'}, {'type': 'ReLU'}


@MODELS.register_module()
class UNet(nn.Module):
    """Logits of any image size: NCHW in, (N, num_classes, H, W) out.

    Level i of `depth` + 1 has `base_channels` · 2^i channels at 1 / 2^i of the size. With the defaults and `depth` 4 it
    computes what Pytorch-UNet computes, whose checkpoints load by `seg.models.weights`. `upsample='bilinear'` halves
    the bottom's channels and has no weights of its own. `dropout` is applied at the end of the contracting path.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int = 3,
        base_channels: int = 64,
        depth: int = 4,
        upsample: str = 'transposed',
        norm_cfg: dict[str, Any] | None = BN,
        act_cfg: dict[str, Any] | None = RELU,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        _check(in_channels, base_channels, depth, upsample, dropout)
        self.in_channels, self.depth, self.upsample = in_channels, depth, upsample
        widths = [base_channels * 2**level for level in range(depth + 1)]
        halved = 2 if upsample == 'bilinear' else 1
        outputs = [*widths[:-1], widths[-1] // halved]
        inputs = [in_channels, *widths[:-1]]
        self.encoder = nn.ModuleList(
            DoubleConv(ins, outs, outs, norm_cfg, act_cfg) for ins, outs in zip(inputs, outputs)
        )
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        ups = [widths[level] // (halved if level else 1) for level in range(depth)]
        self.decoder = nn.ModuleList(
            Up(widths[level + 1], ups[level], upsample, norm_cfg, act_cfg) for level in reversed(range(depth))
        )
        self.head = nn.Conv2d(base_channels, num_classes, kernel_size=1)
        has_instance_norm = any(isinstance(layer, _InstanceNorm) for layer in self.modules())
        self.min_size_px = 2**depth * (2 if has_instance_norm else 1)  # one value has no variance over an instance

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        x = _pad(x, [0, max(0, self.min_size_px - width), 0, max(0, self.min_size_px - height)])
        if self.training:
            self._refuse_single_values(x)
        skips = []
        for level, block in enumerate(self.encoder):
            x = block(F.max_pool2d(x, 2) if level else x)
            skips.append(x)
        x = self.dropout(skips.pop())
        for block in self.decoder:
            x = block(x, skips.pop())
        return self.head(x)[..., :height, :width]

    def _refuse_single_values(self, x: Tensor) -> None:
        """BatchNorm cannot learn from one value a channel, which is what the bottom has left of one small image."""
        values = len(x) * (x.shape[-2] >> self.depth) * (x.shape[-1] >> self.depth)
        norm = self.encoder[-1].norm1
        alone = world_size() == 1 or not isinstance(norm, SyncBatchNorm)
        if values == 1 and isinstance(norm, _BatchNorm) and alone:
            raise UserError(
                f'BatchNorm cannot train on a batch of one image of {x.shape[-2]}x{x.shape[-1]}: with depth='
                f'{self.depth} one value a channel is left at the bottom. Use larger images or crops, batch_size > 1, '
                "or model.network.norm_cfg=dict(type='GN', num_groups=8)."
            )


class DoubleConv(nn.Module):
    """(3x3 convolution, norm, activation) twice; NCHW, same size. `middle`: channels between the two."""

    def __init__(self, inputs: int, middle: int, outputs: int, norm_cfg: Any, act_cfg: Any) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, middle, kernel_size=3, padding=1, bias=norm_cfg is None)
        self.norm1 = build_norm(norm_cfg, middle)
        self.act1 = build_activation(act_cfg)
        self.conv2 = nn.Conv2d(middle, outputs, kernel_size=3, padding=1, bias=norm_cfg is None)
        self.norm2 = build_norm(norm_cfg, outputs)
        self.act2 = build_activation(act_cfg)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act1(self.norm1(self.conv1(x)))
        return self.act2(self.norm2(self.conv2(x)))


class Up(nn.Module):
    """Twice the size, padded to the skip's (an odd size lost a row on the way down), joined to it, convolved."""

    def __init__(self, inputs: int, outputs: int, upsample: str, norm_cfg: Any, act_cfg: Any) -> None:
        super().__init__()
        if upsample == 'transposed':
            self.up: nn.Module = nn.ConvTranspose2d(inputs, inputs // 2, kernel_size=2, stride=2)
        else:
            self.up = nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True)
        middle = outputs if upsample == 'transposed' else inputs // 2
        self.conv = DoubleConv(inputs, middle, outputs, norm_cfg, act_cfg)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = self.up(x)
        height, width = skip.shape[-2] - x.shape[-2], skip.shape[-1] - x.shape[-1]
        x = _pad(x, [width // 2, width - width // 2, height // 2, height - height // 2])
        return self.conv(torch.cat([skip, x], dim=1))


def _pad(x: Tensor, sides_px: list[int]) -> Tensor:
    """Zeros at left, right, top, bottom; F.pad copies even where there is nothing to pad."""
    return F.pad(x, sides_px) if any(sides_px) else x


def _check(in_channels: int, base_channels: int, depth: int, upsample: str, dropout: float) -> None:
    if upsample not in UPSAMPLINGS:
        raise UserError(f'model.network.upsample={upsample!r}: expected one of {UPSAMPLINGS}.')
    for key, value, most in (('in_channels', in_channels, 1024), ('base_channels', base_channels, 4096)):
        if not isinstance(value, int) or not 1 <= value <= most:
            raise UserError(f'model.network.{key}={value!r}: expected an integer from 1 to {most}.')
    if not isinstance(depth, int) or not 1 <= depth <= 10:
        raise UserError(
            f'model.network.depth={depth!r}: expected an integer from 1 to 10, the number of halvings (4 in the paper).'
            ' Each doubles the channels: base_channels · 2^depth at the bottom.'
        )
    if not 0 <= dropout < 1:
        raise UserError(f'model.network.dropout={dropout!r}: expected a probability from 0 to below 1.')
