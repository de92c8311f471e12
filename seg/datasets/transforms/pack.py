"""The end of a pipeline: tensors for the batch, still uint8, and what is worth knowing about them."""

from collections.abc import Sequence

import cv2
import numpy as np
import torch
from mmcv.transforms import BaseTransform

from seg.datasets.transforms.fields import Results
from seg.errors import UserError
from seg.registry import TRANSFORMS

_META_KEYS = (
    'img_path',
    'seg_map_path',
    'sample_idx',
    'ori_shape',
    'img_shape',
    'pad_shape',
    'scale_factor',
    'flip',
    'flip_direction',
)


@TRANSFORMS.register_module()
class PackSegInputs(BaseTransform):
    """results -> dict(inputs C x H x W, labels H x W uint8 where a mask was loaded, metas).

    Args:
        meta_keys: what goes into metas, of what is there.
    """

    def __init__(self, meta_keys: Sequence[str] = _META_KEYS) -> None:
        self.meta_keys = tuple(meta_keys)

    def transform(self, results: Results) -> Results:
        """Copies `img` and `gt_seg_map` into tensors of their own memory."""
        packed: Results = {
            'inputs': torch.from_numpy(to_planes(results['img'])),
            'metas': {key: results[key] for key in self.meta_keys if key in results},
        }
        labels = results.get('gt_seg_map')
        if labels is not None:
            if labels.dtype != np.uint8 or labels.ndim != 2:
                raise UserError(
                    f'the mask {results.get("seg_map_path")} reached PackSegInputs as {labels.dtype} of shape '
                    f'{labels.shape}; expected uint8, H x W. A transform before it changes the type'
                )
            packed['labels'] = torch.from_numpy(np.array(labels, order='C'))
        return packed


def to_planes(image: np.ndarray) -> np.ndarray:
    """H x W x C (or H x W) -> C x H x W, contiguous, in new memory."""
    image = image[..., None] if image.ndim == 2 else image
    planes = np.empty((image.shape[2], *image.shape[:2]), image.dtype)
    if image.shape[2] in (3, 4):
        cv2.split(image, list(planes))  # ten times faster than numpy's transpose
    else:
        planes[...] = image.transpose(2, 0, 1)
    return planes
