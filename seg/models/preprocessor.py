"""Pixels stay uint8 until they are here, on the device."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seg.errors import UserError
from seg.models.labels import IGNORE_INDEX
from seg.registry import MODELS

Size = tuple[int, int]
Images = Tensor | list[Tensor]


@MODELS.register_module()
class SegPreprocessor(nn.Module):
    """A collated batch -> normalised images and labels, on the device and in the precision of the model.

    `mean`, `std`: one value a channel, or one for all, in the 0..255 of the pixels. Training batches are padded to
    `size` (height, width), or without it to the largest of their images rounded up to `size_divisor`: images by
    `pad_val` after normalisation (0 is the mean colour), labels by 255. `size_divisor`: the network takes only
    multiples of it.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        size: Size | None = None,
        size_divisor: int = 1,
        pad_val: float = 0.0,
        channels_last: bool = False,
    ) -> None:
        super().__init__()
        _check(mean, std, size, size_divisor)
        # the config holds them, so the checkpoint's weights need not
        self.register_buffer('mean', torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1), persistent=False)
        self.register_buffer('std', torch.tensor(std, dtype=torch.float32).view(-1, 1, 1), persistent=False)
        self.size, self.size_divisor, self.pad_val = size and (size[0], size[1]), size_divisor, pad_val
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format

    def forward(self, batch: dict[str, Any], training: bool, pad_to: Size | None = None) -> dict[str, Any]:
        """`pad_to`: the size that the ranks agreed on; each needs at least its `needed_size`.

        Training: inputs NCHW, labels uint8 NHW. Else nothing is padded, because logits beside the edge see the padding:
        inputs NCHW, or a list of CHW where sizes differ; labels, where there are any, a list of HW in their own sizes.
        """
        self._check_channels(batch)
        if training:
            return {**batch, **self._training_batch(batch, pad_to or self.needed_size(batch['inputs']))}
        images = batch['inputs']
        inputs = self._normalised(images) if isinstance(images, Tensor) else [self._normalised(one) for one in images]
        labels = {'labels': [self._moved(one) for one in batch['labels']]} if 'labels' in batch else {}
        return {**batch, 'inputs': inputs, **labels}

    def needed_size(self, images: Images) -> Size:
        """(height, width) that a training batch of these images is padded to, where no rank needs more."""
        if self.size:
            return self.size
        height, width = (max(image.shape[axis] for image in images) for axis in (-2, -1))
        return _rounded_up(height, self.size_divisor), _rounded_up(width, self.size_divisor)

    def _training_batch(self, batch: dict[str, Any], size: Size) -> dict[str, Tensor]:
        if 'labels' not in batch:
            raise UserError('A training batch has no labels: the pipeline needs LoadAnnotations before PackSegInputs.')
        images, labels = batch['inputs'], batch['labels']
        for index, (image, label) in enumerate(zip(images, labels)):
            if image.shape[-2:] != label.shape[-2:] or image.shape[-2] > size[0] or image.shape[-1] > size[1]:
                raise UserError(
                    f'{_path(batch, index)}: image of {_text(image)} and mask of {_text(label)} in a training batch of '
                    f'{size[0]}x{size[1]} (height x width): the two must be equal and fit. Resize or crop the two alike'
                    ' in the pipeline, or set model.data_preprocessor.size.'
                )
        return {'inputs': self._padded_images(images, size), 'labels': self._padded_labels(labels, size)}

    def _padded_images(self, images: Images, size: Size) -> Tensor:
        if isinstance(images, Tensor) and images.shape[-2:] == size:
            return self._normalised(images)
        shape = (len(images), images[0].shape[0], *size)
        padded = self.mean.new_full(shape, self.pad_val).to(memory_format=self.memory_format)
        for canvas, image in zip(padded, images):
            canvas[:, : image.shape[1], : image.shape[2]] = self._normalised(image)
        return padded

    def _padded_labels(self, labels: Images, size: Size) -> Tensor:
        moved = [self._moved(label) for label in ([labels] if isinstance(labels, Tensor) else labels)]
        gaps = [(size[0] - label.shape[-2], size[1] - label.shape[-1]) for label in moved]
        padded = [
            F.pad(label, [0, right, 0, below], value=IGNORE_INDEX) if below or right else label
            for label, (below, right) in zip(moved, gaps)
        ]
        return padded[0] if isinstance(labels, Tensor) else torch.stack(padded)

    def _normalised(self, image: Tensor) -> Tensor:
        """CHW or NCHW. Bytes travel, floats do not: converted on the device."""
        pixels = self._moved(image).to(self.mean.dtype)
        if pixels.dim() == 4:
            pixels = pixels.contiguous(memory_format=self.memory_format)
        return (pixels - self.mean).div_(self.std)

    def _moved(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.mean.device, non_blocking=True)

    def _check_channels(self, batch: dict[str, Any]) -> None:
        wanted = len(self.mean)
        for index, image in enumerate(batch['inputs']):
            if wanted not in (1, image.shape[0]):
                raise UserError(
                    f'{_path(batch, index)}: the image has {image.shape[0]} channels, model.data_preprocessor.mean and '
                    f'std have {wanted} values. Give both as many, and model.network.in_channels too.'
                )


def _rounded_up(side: int, divisor: int) -> int:
    return -(-side // divisor) * divisor


def _text(tensor: Tensor) -> str:
    return f'{tensor.shape[-2]}x{tensor.shape[-1]}'


def _path(batch: dict[str, Any], index: int) -> str:
    metas = batch.get('metas') or []
    return str(metas[index].get('img_path', f'image {index}')) if index < len(metas) else f'image {index}'


def _check(mean: Sequence[float], std: Sequence[float], size: Size | None, size_divisor: int) -> None:
    if len(mean) != len(std) or not mean or not all(value > 0 for value in std):
        raise UserError(
            f'model.data_preprocessor: mean={mean}, std={std}: expected as many values in each, in the 0..255 of the '
            'pixels, each std above 0.'
        )
    if size_divisor < 1 or (size is not None and (len(size) != 2 or any(side % size_divisor for side in size))):
        raise UserError(
            f'model.data_preprocessor: size={size}, size_divisor={size_divisor}: expected (height, width), both '
            'multiples of a size_divisor of at least 1.'
        )
