"""Colour of RGB images, by look-up tables: each is exact in uint8 and touches a pixel once."""

from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np
from mmcv.transforms import BaseTransform

from seg.datasets.transforms.fields import Results, interval, probability
from seg.errors import UserError
from seg.registry import TRANSFORMS


class Distortion(NamedTuple):
    """brightness: added; contrast, saturation: factors; hue: added, in units of 2 degrees."""

    brightness: float = 0.0
    contrast: float = 1.0
    contrast_last: bool = False
    saturation: float = 1.0
    hue: int = 0


@TRANSFORMS.register_module()
class PhotoMetricDistortion(BaseTransform):
    """Brightness, contrast, saturation, hue, each with a chance of one half; contrast comes second or last.

    An image of one channel has no saturation and hue; other counts than 1 and 3 are refused.

    Args:
        brightness_delta: the largest summand, either way, of 255.
        contrast_range, saturation_range: (smallest, largest) factor.
        hue_delta: the largest summand, either way, in units of 2 degrees.

    Source: Liu et al., "SSD: single shot multibox detector", 2016.
    """

    def __init__(
        self,
        brightness_delta: float = 32,
        contrast_range: Sequence[float] = (0.5, 1.5),
        saturation_range: Sequence[float] = (0.5, 1.5),
        hue_delta: int = 18,
    ) -> None:
        self.brightness = interval('PhotoMetricDistortion.brightness_delta', brightness_delta)
        self.contrast = interval('PhotoMetricDistortion.contrast_range', contrast_range, low=0)
        self.saturation = interval('PhotoMetricDistortion.saturation_range', saturation_range, low=0)
        self.hue_delta = int(hue_delta)

    def transform(self, results: Results) -> Results:
        """Distorts `img`, which must be uint8."""
        results['img'] = distort(results['img'], self._draw())
        return results

    def _draw(self) -> Distortion:
        chosen = np.random.random_sample(5) < 0.5
        brightness, contrast, saturation = (
            np.random.uniform(*ends) for ends in (self.brightness, self.contrast, self.saturation)
        )
        hue = int(np.random.randint(-self.hue_delta, self.hue_delta + 1))
        return Distortion(
            brightness=brightness if chosen[0] else 0.0,
            contrast=contrast if chosen[1] else 1.0,
            contrast_last=bool(chosen[2]),
            saturation=saturation if chosen[3] else 1.0,
            hue=hue if chosen[4] else 0,
        )


@TRANSFORMS.register_module()
class RandomGrayscale(BaseTransform):
    """Takes the colour out with probability `prob`; an RGB image keeps its three channels (mmcv's loses two, E9)."""

    def __init__(self, prob: float = 0.1) -> None:
        self.prob = probability('RandomGrayscale.prob', prob)

    def transform(self, results: Results) -> Results:
        """Turns `img` gray."""
        if np.random.random_sample() < self.prob and _is_colour(results['img']):
            results['img'] = cv2.merge([cv2.cvtColor(results['img'], cv2.COLOR_RGB2GRAY)] * 3)
        return results


def distort(image: np.ndarray, amount: Distortion) -> np.ndarray:
    """H x W x C uint8 -> the same, brightness first; each step rounds and clips to 0..255."""
    colour = _is_colour(image)
    before = _clip(np.arange(256) + amount.brightness)
    if not amount.contrast_last:
        before = _clip(before * amount.contrast)
    image = _look_up(image, before)
    if colour and (amount.saturation != 1 or amount.hue != 0):
        image = _shift_hue_and_saturation(image, amount.hue, amount.saturation)
    if amount.contrast_last:
        image = _look_up(image, _clip(np.arange(256) * amount.contrast))
    return image


def _shift_hue_and_saturation(image: np.ndarray, hue: int, saturation: float) -> np.ndarray:
    hues, saturations, values = cv2.split(cv2.cvtColor(image, cv2.COLOR_RGB2HSV))
    if hue:
        hues = _look_up(hues, ((np.arange(256) + hue) % 180).astype(np.uint8))
    saturations = _look_up(saturations, _clip(np.arange(256) * saturation))
    return cv2.cvtColor(cv2.merge([hues, saturations, values]), cv2.COLOR_HSV2RGB)


def _look_up(image: np.ndarray, table: np.ndarray) -> np.ndarray:
    if (table == np.arange(256)).all():
        return image
    return cv2.LUT(image.reshape(image.shape[0], -1), table).reshape(image.shape)


def _clip(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _is_colour(image: np.ndarray) -> bool:
    channels = 1 if image.ndim == 2 else image.shape[2]
    if image.dtype != np.uint8 or channels not in (1, 3):
        raise UserError(
            f'a colour transform was given {channels} channels of {image.dtype}; expected 3 (RGB) or 1 of uint8. '
            'Take it out of the pipeline of this data set'
        )
    return channels == 3
