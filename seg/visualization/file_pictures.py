"""Small pictures of data files, good ones and bad ones, as text that stands in a page."""

import base64
from collections.abc import Callable
from html import escape
from io import BytesIO

import numpy as np
from PIL import Image

from seg.datasets.gate.sources import Source
from seg.datasets.io import decode_image, decode_mask, raw_mask
from seg.datasets.label_rule import LabelRule
from seg.datasets.opening import open_image, overhear
from seg.datasets.pairs import Pair
from seg.errors import UserError
from seg.visualization.overlay import (
    Picture,
    fit_size,
    make_palette,
    overlay,
    palette_of,
    palette_table,
    resize_image,
    resize_label,
)

_SHADES = 255


def sample_picture(source: Source, pair: Pair, side_px: int) -> str:
    """The image with its labels over it, where both can be read; else as `pair_pictures`."""
    if pair.seg_map_path is None:
        return pair_pictures(source, pair, side_px)
    try:
        with overhear():
            image = _small_image(source, pair, side_px)
            mask = open_image(pair.seg_map_path, source.reading.mask_max_pixels)
            labels = decode_mask(mask, source.rule, source.reading.apply_exif)
    except UserError:
        return pair_pictures(source, pair, side_px)
    palette = palette_of({'classes': source.classes, 'palette': source.palette})
    return figure(overlay(image, resize_label(labels, _hw(image)), palette), pair.name)


def pair_pictures(source: Source, pair: Pair, side_px: int) -> str:
    """The image and the values of its mask side by side, each as far as it can be read."""
    with overhear():
        parts = [_attempt(lambda: _small_image(source, pair, side_px), pair.img_path)]
        if pair.seg_map_path is not None:
            path = pair.seg_map_path
            parts.append(_attempt(lambda: _value_picture(path, side_px, source.reading.mask_max_pixels), path))
    return ''.join(parts)


def figure(picture: Picture, caption: str) -> str:
    """An HTML figure that holds its picture itself."""
    file = BytesIO()
    Image.fromarray(picture).save(file, format='JPEG', quality=85)
    data = base64.b64encode(file.getvalue()).decode()
    text = escape(caption)
    return f'<figure><img src="data:image/jpeg;base64,{data}" alt="{text}"><figcaption>{text}</figcaption></figure>'


def _attempt(draw: Callable[[], Picture], path: str) -> str:
    try:
        return figure(draw(), path)
    except UserError as error:
        return f'<figure class="bad"><div>{escape(str(error))}</div><figcaption>{escape(path)}</figcaption></figure>'


def _small_image(source: Source, pair: Pair, side_px: int) -> Picture:
    reading = source.reading
    opened = open_image(pair.img_path, reading.max_pixels)
    size = fit_size(opened.shown_size(reading.apply_exif), side_px)
    image = decode_image(
        opened, reading.channels, decode_for=size[::-1], value_range=reading.value_range, apply_exif=reading.apply_exif
    )
    small = resize_image(image, size)
    small = small[..., None] if small.ndim == 2 else small
    return np.ascontiguousarray(small if small.shape[2] == 3 else small[..., :1].repeat(3, axis=2))


def _value_picture(path: str, side_px: int, max_pixels: int) -> Picture:
    """The values as they stand in the file: black for the lowest, a colour of its own for each other one."""
    opened = open_image(path, max_pixels)
    values = raw_mask(opened, LabelRule()).values
    if values.ndim == 3:
        return resize_image(values, fit_size(_hw(values), side_px))
    ranks = np.unique(values, return_inverse=True)[1].reshape(values.shape)
    small = resize_label(np.minimum(ranks, _SHADES).astype(np.uint8), fit_size(_hw(values), side_px))
    return palette_table(make_palette(int(small.max()) + 1))[small]


def _hw(array: np.ndarray) -> tuple[int, int]:
    return array.shape[0], array.shape[1]
