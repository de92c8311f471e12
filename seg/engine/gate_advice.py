"""What the data suggests for the config: class weights, a crop."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from seg.datasets.gate.summary import SetSummary
from seg.engine.blank_run import Outcome
from seg.engine.class_weight import balanced_weights

_UNEVEN = 20  # times as many pixels in the most frequent class as in the rarest
_LARGE_PX = 2_000_000  # of an input; more is slow, and seldom needed
_CROP = 512
_SMALLEST_CROP = 128
_LISTED = 20


def advise(config: Mapping[str, Any], sets: Sequence[SetSummary], outcomes: Sequence[Outcome]) -> list[str]:
    """Sentences. outcomes: of the training pipeline, on the most frequent size of image first."""
    training = [one for one in sets if one.part == 'train']
    return [*_class_weights(config, training), *_crop(training, outcomes, config)]


def _class_weights(config: Mapping[str, Any], training: Sequence[SetSummary]) -> Iterator[str]:
    """For classes that differ much in their share of the pixels, where a loss takes weights and has none."""
    losses = (config.get('model') or {}).get('losses') or []
    losses = [losses] if isinstance(losses, Mapping) else losses
    takes = [number for number, loss in enumerate(losses) if loss.get('type') == 'CrossEntropyLoss']
    if not takes or not training or any(loss.get('class_weight') is not None for loss in losses):
        return
    pixels = np.sum([one.class_pixels for one in training if len(one.class_pixels) == len(training[0].class_pixels)], 0)
    present = pixels[pixels > 0]
    if len(present) < 2 or len(pixels) > _LISTED or present.max() < _UNEVEN * present.min():
        return
    names = training[0].classes
    rarest = int(np.argmin(np.where(pixels > 0, pixels, pixels.max())))
    weights = [float(f'{weight:.3g}') for weight in balanced_weights(pixels)]
    yield (
        f'{names[rarest]!r} has {100 * pixels[rarest] / pixels.sum():.2g} % of the labelled pixels, '
        f'{names[int(pixels.argmax())]!r} {100 * pixels.max() / pixels.sum():.3g} %. If the rare is what counts: '
        f"model.losses.{takes[0]}.class_weight={weights}, or 'auto'"
    )


def _crop(training: Sequence[SetSummary], outcomes: Sequence[Outcome], config: Mapping[str, Any]) -> Iterator[str]:
    """For inputs that are huge, or of many sizes in one batch, where the pipeline has no crop."""
    if not outcomes or not training or any(outcome.crops for outcome in outcomes):
        return
    sizes = sorted({outcome.output for outcome in outcomes})
    height, width = outcomes[0].output
    crop = tuple(max(32, min(_CROP, min(side) // 32 * 32)) for side in zip(*sizes))
    batch = (config.get('train_dataloader') or {}).get('batch_size')
    if height * width > _LARGE_PX:
        why = f'inputs are {height}x{width} pixels (height x width), which is slow to train on'
    elif len(sizes) > 1 and batch != 1:
        (low_h, low_w), (high_h, high_w) = sizes[0], sizes[-1]
        why = f'inputs differ in size ({low_h}x{low_w} and {high_h}x{high_w}), so that batches are padded'
    else:
        return
    if min(crop) < _SMALLEST_CROP:
        return
    yield f"{why}. dict(type='RandomCrop', crop_size={crop}) before PackSegInputs makes them equal and smaller"
