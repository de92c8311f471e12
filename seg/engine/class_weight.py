"""`class_weight='auto'` in a loss: weights from the training masks, written into the config before the model is built,
so that the run's record and its checkpoints hold the numbers."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.dist import broadcast_object_list, get_rank

from seg.datasets.loading import LoadAnnotations
from seg.errors import UserError
from seg.registry import DATASETS


def fill_class_weights(config: Config) -> None:
    """Replace each `class_weight='auto'` of `config.model.losses`; reads every training mask once, on the first rank."""
    losses = [loss for loss in config.model.get('losses', []) if loss.get('class_weight') == 'auto']
    if not losses:
        return
    weights = [balanced_weights(count_pixels(config.train_dataloader.dataset)) if get_rank() == 0 else None]
    broadcast_object_list(weights)
    for loss in losses:
        loss['class_weight'] = weights[0]


def balanced_weights(pixels: np.ndarray) -> list[float]:
    """`total / (classes * pixels)` for each class, 1 for a class that does not occur (scikit-learn's 'balanced')."""
    present = pixels > 0
    weights = np.ones(len(pixels))
    weights[present] = pixels.sum() / (present.sum() * pixels[present])
    return weights.tolist()


def count_pixels(dataset_config: Any) -> np.ndarray:
    """Pixels of each class over the masks of a data set, at the masks' own size, ignored ones left out."""
    dataset = DATASETS.build(dataset_config)
    dataset.full_init()
    classes = len(dataset.metainfo['classes'])
    with ThreadPoolExecutor() as pool:
        counts = list(pool.map(lambda i: _count(dataset.get_data_info(i), classes), range(len(dataset))))
    pixels = np.sum(counts, axis=0)
    if pixels.sum() == 0:
        raise UserError("class_weight='auto' found no labelled pixel in the training masks; give a list instead")
    return pixels


def _count(info: dict, classes: int) -> np.ndarray:
    labels = LoadAnnotations().transform(dict(info))['gt_seg_map']
    return np.bincount(labels[labels < classes], minlength=classes)
