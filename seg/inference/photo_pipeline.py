"""A photograph on its way into the network: the test data's pipeline, without masks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform
from mmengine.registry import DefaultScope
from numpy.typing import NDArray
from torch import Tensor

from seg.datasets.io import read_image
from seg.datasets.loading import LoadAnnotations, LoadImageFromFile
from seg.datasets.transforms.pad import Pad
from seg.datasets.transforms.resize import RandomChoiceResize, RandomResize, Resize
from seg.errors import UserError
from seg.registry import TRANSFORMS

Photo = str | Path | NDArray[np.uint8]

_RESIZES = (Resize, RandomResize, RandomChoiceResize)


@dataclass(frozen=True)
class PhotoSample:
    """`inputs` is uint8 CHW; the photograph fills its first (height, width) = `content_px`, the rest is padding."""

    inputs: Tensor
    size_px: tuple[int, int]
    content_px: tuple[int, int]
    metas: dict[str, Any]


class PhotoPipeline:
    """Raises UserError for a pipeline that does not end in PackSegInputs, or that crops or flips."""

    def __init__(self, steps: list[dict]) -> None:
        with DefaultScope.overwrite_default_scope('seg'):
            built = [TRANSFORMS.build(step) for step in steps]
        self.steps: list[BaseTransform] = [step for step in built if not isinstance(step, LoadAnnotations)]
        self.loader = next((step for step in self.steps if isinstance(step, LoadImageFromFile)), LoadImageFromFile())

    def __call__(self, photo: Photo) -> PhotoSample:
        """Raises UserError for a file that cannot be read and an array that is not RGB of uint8."""
        results: dict[str, Any] = dict(seg_map_path=None, sample_idx=0)
        is_array = isinstance(photo, np.ndarray)
        results.update(self._from_array(photo) if isinstance(photo, np.ndarray) else dict(img_path=str(photo)))
        content, size_px = None, results.get('ori_shape', (0, 0))
        for step in self.steps:
            if is_array and isinstance(step, LoadImageFromFile):
                continue
            before = results.get('img_shape')
            results = step(results)
            content = _content(step, content, before, results)
            size_px = results.get('ori_shape', size_px)
        return _sample(results, size_px, content)

    def read(self, path: str | Path) -> NDArray[np.uint8]:
        """The photograph as the pipeline sees it before any resizing: HWC in the orientation of its prediction."""
        loader = self.loader
        return read_image(
            path,
            loader.channels,
            value_range=loader.value_range,
            apply_exif=loader.apply_exif,
            max_pixels=loader.max_pixels,
        )

    def _from_array(self, photo: NDArray) -> dict[str, Any]:
        channels = self.loader.channels
        if photo.dtype != np.uint8 or photo.ndim != 3 or photo.shape[2] != channels or not photo.size:
            expected = 'height x width x 3 (RGB)' if channels == 3 else f'height x width x {channels}'
            raise UserError(f'a photograph as {photo.dtype} array of shape {photo.shape}; expected uint8, {expected}')
        size_px = photo.shape[:2]
        return dict(img_path=None, img=photo, img_shape=size_px, ori_shape=size_px)


def _sample(results: Any, size_px: tuple[int, int], content: tuple[int, int] | None) -> PhotoSample:
    inputs = results.get('inputs')
    if not isinstance(inputs, Tensor):
        raise UserError('test_dataloader.dataset.pipeline: it does not end in PackSegInputs')
    whole = inputs.shape[-2], inputs.shape[-1]
    return PhotoSample(inputs, (int(size_px[0]), int(size_px[1])), content or whole, results.get('metas', {}))


def _content(
    step: BaseTransform, content: tuple[int, int] | None, before: tuple[int, int] | None, results: dict[str, Any]
) -> tuple[int, int] | None:
    """The part of the image that is not padding, after `step`; None for all of it.

    What became of the photograph must be undone in its prediction, which is resized and freed of padding, no more.
    """
    after = results.get('img_shape')
    unchanged = before is None or after is None or tuple(before) == tuple(after)
    if unchanged and not results.get('flip'):
        return content
    if isinstance(step, Pad) and before is not None:
        return content or (before[0], before[1])
    if isinstance(step, _RESIZES) and content is None:
        return None
    raise UserError(
        f'test_dataloader.dataset.pipeline: {type(step).__name__} moves the picture in a way that prediction does not '
        'undo; it undoes Resize, and Pad after it'
    )
