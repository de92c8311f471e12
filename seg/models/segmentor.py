"""A network, its losses, and how its logits become label maps."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from torch import Tensor, nn

from seg.errors import UserError
from seg.models.labels import IGNORE_INDEX, shrink_labels
from seg.models.losses.base import SegLoss
from seg.models.preprocessor import Images, Size
from seg.models.row_bands import row_bands
from seg.registry import MODELS

Config = dict[str, Any]
_EXAMPLE_PX = 64


@MODELS.register_module()
class Segmentor(BaseModel):
    """`num_classes` 1: one sigmoid channel, foreground where its probability is above `threshold`. More: softmax.

    `network` is built with `num_classes` and maps NCHW to (N, num_classes, H, W). Each of `losses` has a `weight`; the
    training loss is their weighted sum.
    """

    def __init__(
        self,
        num_classes: int,
        network: Config,
        losses: Config | Sequence[Config],
        data_preprocessor: Config,
        threshold: float = 0.5,
        init_cfg: Config | list[Config] | None = None,
    ) -> None:
        super().__init__(MODELS.build(data_preprocessor), init_cfg)
        _check(num_classes, network, threshold)
        self.num_classes, self.threshold = num_classes, threshold
        self.network: nn.Module = MODELS.build({**network, 'num_classes': num_classes})
        self.losses: Any = _build_losses([losses] if isinstance(losses, dict) else losses, num_classes)
        self._check_channels()

    def forward(
        self, inputs: Tensor, labels: Tensor | None = None, normalisers: Tensor | None = None, mode: str = 'tensor'
    ) -> Tensor | dict[str, Tensor]:
        """'tensor': logits NCHW of the inputs' height and width. 'loss': `loss(logits, labels, normalisers)`."""
        logits_NCHW = self._logits(inputs)
        if mode == 'tensor':
            return logits_NCHW
        if mode != 'loss' or labels is None:
            raise UserError(f"Segmentor.forward: mode={mode!r}: expected 'tensor', or 'loss' with labels.")
        return self.loss(logits_NCHW, labels, normalisers)

    def loss(self, logits_NCHW: Tensor, labels_NHW: Tensor, normalisers: Tensor | None = None) -> dict[str, Tensor]:
        """Each loss's weighted share, 0-d, by its logged name 'loss_ce', 'loss_dice', ...

        `normalisers`: the sum of `self.normalisers` over all that the shares are to add up over; these labels' own by
        default. With ones the shares are totals, to be divided later.
        """
        self._check_labels(labels_NHW)
        if normalisers is None:
            normalisers = self.normalisers(labels_NHW)
        return {
            f'loss_{loss.name}': loss.weight * loss(logits_NCHW, labels_NHW, whole)
            for loss, whole in zip(self.losses, normalisers)
        }

    def normalisers(self, labels_NHW: Tensor) -> Tensor:
        """float64, one a loss: what these labels add to each loss's denominator."""
        return torch.stack([loss.normaliser(labels_NHW) for loss in self.losses])

    @torch.no_grad()
    def evaluate(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        """Of each image in a batch that was preprocessed for evaluation: `pred` and `label`, uint8 HW at the mask's own
        size, and `losses`, each loss's [sum, denominator]. Without masks: `pred` alone, at the photo's size.

        Labels are shrunk to the logits' size for the losses. A loss that pools over a batch sees one image at a time.
        """
        logits = self.each_logits(batch['inputs'])
        if 'labels' not in batch:
            return [dict(pred=self.label_map(one, meta['ori_shape'])) for one, meta in zip(logits, batch['metas'])]
        return [
            dict(pred=self.label_map(one, _size(label)), label=label, losses=self._loss_sums(one, label))
            for one, label in zip(logits, batch['labels'])
        ]

    def example_batch(self) -> tuple[Tensor, Tensor]:
        """Two images of the mean colour and their labels, all of class 0."""
        channels = next(parameter for parameter in self.network.parameters() if parameter.dim() == 4).shape[1]
        inputs = self.data_preprocessor.mean.new_zeros(2, channels, _EXAMPLE_PX, _EXAMPLE_PX)
        return inputs, torch.zeros(2, _EXAMPLE_PX, _EXAMPLE_PX, dtype=torch.uint8, device=inputs.device)

    def predict(self, inputs: Images, sizes: Sequence[Size]) -> list[Tensor]:
        """The `label_map` of each image at its (height, width)."""
        return [self.label_map(logits, size) for logits, size in zip(self.each_logits(inputs), sizes)]

    def predict_probs(self, inputs: Images, sizes: Sequence[Size], label: int = 1) -> list[Tensor]:
        """The `prob_map` of each image at its (height, width)."""
        return [self.prob_map(logits, size, label) for logits, size in zip(self.each_logits(inputs), sizes)]

    @torch.no_grad()
    def each_logits(self, inputs: Images) -> list[Tensor]:
        """CHW of each image, by one forward pass for each size that occurs."""
        if isinstance(inputs, Tensor):
            return list(self._logits(inputs))
        groups: dict[torch.Size, list[int]] = {}
        for index, image in enumerate(inputs):
            groups.setdefault(image.shape, []).append(index)
        found: dict[int, Tensor] = {}
        for members in groups.values():
            found.update(zip(members, self._logits(torch.stack([inputs[index] for index in members]))))
        return [found[index] for index in range(len(inputs))]

    @torch.no_grad()
    def label_map(self, logits_CHW: Tensor, size: Size) -> Tensor:
        """uint8 HW of (height, width), from the bilinear logits there."""
        bands = row_bands(logits_CHW, size)
        if self.num_classes == 1:
            return torch.cat([(band[0].sigmoid() > self.threshold).to(torch.uint8) for band in bands])
        return torch.cat([band.argmax(0).to(torch.uint8) for band in bands])

    @torch.no_grad()
    def prob_map(self, logits_CHW: Tensor, size: Size, label: int = 1) -> Tensor:
        """The probability of class `label` at each pixel: HW of (height, width), at least float32."""
        if not 0 <= label < max(2, self.num_classes):
            raise UserError(f'Class {label} was asked for; the model has classes 0 to {max(2, self.num_classes) - 1}.')
        bands = row_bands(logits_CHW, size)
        if self.num_classes == 1:
            return torch.cat([(band[0] if label else -band[0]).sigmoid() for band in bands])
        return torch.cat([band.softmax(0)[label] for band in bands])

    def _loss_sums(self, logits_CHW: Tensor, label_HW: Tensor) -> dict[str, Tensor]:
        small_NHW = shrink_labels(label_HW, _size(logits_CHW))[None]
        denominators = self.normalisers(small_NHW)
        sums = self.loss(logits_CHW[None], small_NHW, torch.ones_like(denominators))
        return {name: torch.stack([total.double(), whole]) for (name, total), whole in zip(sums.items(), denominators)}

    def _logits(self, inputs_NCHW: Tensor) -> Tensor:
        """Padded for a network that takes only multiples of `size_divisor`, and cut back."""
        height, width = inputs_NCHW.shape[-2:]
        divisor = getattr(self.data_preprocessor, 'size_divisor', 1)
        if height % divisor or width % divisor:
            inputs_NCHW = F.pad(inputs_NCHW, [0, -width % divisor, 0, -height % divisor])
        return self.network(inputs_NCHW)[..., :height, :width]

    def _check_labels(self, labels_NHW: Tensor) -> None:
        """On CPU only: elsewhere looking at the values would wait for the device. The reader has looked already."""
        if labels_NHW.device.type != 'cpu':
            return
        wrong = labels_NHW[(labels_NHW >= max(2, self.num_classes)) & (labels_NHW != IGNORE_INDEX)]
        if len(wrong):
            raise UserError(
                f'Labels hold {wrong.unique().tolist()}; model.num_classes={self.num_classes} allows 0 to '
                f'{max(2, self.num_classes) - 1}, and {IGNORE_INDEX} for ignored pixels. Map the values of the mask '
                "files to classes by the data set's label_map, or raise num_classes."
            )

    def _check_channels(self) -> None:
        wanted = getattr(self.network, 'in_channels', None)
        given = len(getattr(self.data_preprocessor, 'mean', ()))
        if wanted is not None and given not in (0, 1, wanted):
            raise UserError(
                f'model.network.in_channels={wanted}, but model.data_preprocessor.mean has {given} values: expected '
                'one a channel, or one for all.'
            )


def _size(tensor: Tensor) -> Size:
    return tensor.shape[-2], tensor.shape[-1]


def _check(num_classes: int, network: Config, threshold: float) -> None:
    if not isinstance(num_classes, int) or not 1 <= num_classes <= IGNORE_INDEX:
        raise UserError(
            f'model.num_classes={num_classes!r}: expected 1 (one sigmoid channel) or the number of classes, 2 to 255.'
        )
    if network.get('num_classes', num_classes) != num_classes:
        raise UserError(
            f'model.network.num_classes={network["num_classes"]} contradicts model.num_classes={num_classes}: leave '
            'the former out.'
        )
    if not 0 < threshold < 1:
        raise UserError(f'model.threshold={threshold!r}: expected a probability between 0 and 1.')


def _build_losses(configs: Sequence[Config], num_classes: int) -> nn.ModuleList:
    losses = [MODELS.build(config) for config in configs]
    for index, loss in enumerate(losses):
        if not isinstance(loss, SegLoss):
            raise UserError(f'model.losses[{index}]: {type(loss).__name__} is not a seg.models.losses.base.SegLoss.')
        loss.check(num_classes)
    names = [loss.name for loss in losses]
    if not names or len(set(names)) < len(names):
        raise UserError(f'model.losses has the names {names}: expected at least one, all different. Give name=... .')
    return nn.ModuleList(losses)
