"""`class_weight='auto'` in a loss: weights from the training masks, written into the config before the model is built,
so that the run's record and its checkpoints hold the numbers."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.dist import broadcast_object_list, get_rank

from seg.datasets.loading import LoadAnnotations
from seg.engine.state import checkpoint
from seg.engine.state.first_rank import read_on_first
from seg.engine.state.stored_run import seg_meta
from seg.errors import UserError
from seg.registry import DATASETS


def fill_class_weights(config: Config) -> None:
    """Replace each `class_weight='auto'` of `config.model.losses`; reads every training mask once, on the first rank."""
    losses = _to_be_counted(config)
    if not losses:
        return
    weights = [balanced_weights(count_pixels(config.train_dataloader.dataset)) if get_rank() == 0 else None]
    broadcast_object_list(weights)
    for loss in losses:
        loss['class_weight'] = weights[0]


def fill_from_checkpoint(config: Config, path: str | Path, trust: bool = False) -> None:
    """The same for a test of the checkpoint at `path`: the numbers that it was trained with, which it tells.

    They are counted from the training masks where it does not. Raises UserError where there are none either.
    """
    losses = _to_be_counted(config)
    if not losses:
        return
    told = read_on_first(partial(_told_weights, path, trust))
    for loss in losses:
        if told.get(loss['type']):
            loss['class_weight'] = told[loss['type']]
    if _to_be_counted(config) and not config.get('train_dataloader'):
        raise UserError(
            f"class_weight='auto': {path} does not tell the weights that it was trained with, and the config has no "
            'train_dataloader to count them from; give a list instead'
        )
    fill_class_weights(config)


def _to_be_counted(config: Config) -> list[dict]:
    return [loss for loss in _losses(config.model) if loss.get('class_weight') == 'auto']


def _losses(model: Any) -> list[dict]:
    losses = model.get('losses') or []
    return [losses] if isinstance(losses, dict) else losses


def _told_weights(path: str | Path, trust: bool) -> dict[str, Any]:
    """The class weights of each type of loss in a checkpoint's own config."""
    stored = seg_meta(checkpoint.load(path, trust=trust, outline=True)).get('config')
    model = stored.get('model') if isinstance(stored, dict) else None
    losses = _losses(model) if isinstance(model, dict) else []
    found = [loss for loss in losses if isinstance(loss, dict) and isinstance(loss.get('type'), str)]
    return {loss['type']: loss['class_weight'] for loss in found if isinstance(loss.get('class_weight'), list)}


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
