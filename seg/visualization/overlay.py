"""A photograph and its labels as a picture: overlays, image/truth/prediction triples, contact sheets.

Pictures are RGB, HWC, uint8. Images shrink by area, labels by exact nearest (E10).
"""

import colorsys
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from seg.datasets.io import IGNORE_INDEX

Picture = NDArray[np.uint8]

_WHITE = 255
_GAP_PX = 4
_FONT_PX = 13


def overlay(image: NDArray, label_HW: NDArray, palette: NDArray, alpha: float = 0.5) -> Picture:
    """The image with its labels painted over it; labels of another size are resized to it.

    A class whose colour is black is left as it is in the image, but for its border. Ignored pixels are hatched.
    """
    picture = to_rgb(image)
    height, width = picture.shape[:2]
    label = resize_label(label_HW, (height, width))
    colours = palette_table(palette)[label]
    painted = colours.any(axis=-1, keepdims=True)
    blended = np.where(painted, cv2.addWeighted(picture, 1 - alpha, colours, alpha, 0), picture)
    rows, columns = np.ogrid[:height, :width]
    blended[(label == IGNORE_INDEX) & ((rows + columns) % 8 < 2)] = _WHITE
    edges = _edges(label)
    blended[edges] = np.where(painted[edges], colours[edges], _WHITE)
    return blended


def _edges(label_HW: NDArray) -> NDArray[np.bool_]:
    """Pixels whose right or lower neighbour has another label."""
    edges = np.zeros(label_HW.shape, dtype=bool)
    edges[:, :-1] |= label_HW[:, :-1] != label_HW[:, 1:]
    edges[:-1] |= label_HW[:-1] != label_HW[1:]
    return edges


def triple(
    image: NDArray, truth_HW: NDArray | None, prediction_HW: NDArray, palette: NDArray, caption: str = ''
) -> Picture:
    """Image, truth and prediction side by side at the image's size. Without a truth: image and prediction."""
    panels = {'image': to_rgb(image)}
    if truth_HW is not None:
        panels['truth'] = overlay(image, truth_HW, palette)
    panels['prediction'] = overlay(image, prediction_HW, palette)
    row = contact_sheet([with_caption(panel, name) for name, panel in panels.items()], columns=len(panels))
    return with_caption(row, caption) if caption else row


def contact_sheet(pictures: Sequence[Picture], columns: int | None = None) -> Picture:
    """Pictures of any sizes in rows on white; about as many columns as rows unless `columns` says otherwise."""
    if not pictures:
        raise ValueError('a contact sheet of no pictures')
    columns = columns or math.ceil(math.sqrt(len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    height, width = (max(picture.shape[axis] for picture in pictures) + _GAP_PX for axis in (0, 1))
    sheet = np.full((rows * height - _GAP_PX, columns * width - _GAP_PX, 3), _WHITE, dtype=np.uint8)
    for i, picture in enumerate(pictures):
        top, left = i // columns * height, i % columns * width
        sheet[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return sheet


def with_caption(picture: Picture, text: str) -> Picture:
    """The picture under a line of text, which is cut to the picture's width."""
    font = _font()
    while text and font.getlength(text) > picture.shape[1] - 4:
        text = text[:-1]
    line = Image.new('RGB', (picture.shape[1], _FONT_PX + 5), 'white')
    ImageDraw.Draw(line).text((2, 1), text, fill='black', font=font)
    return np.concatenate([np.asarray(line), picture])


@lru_cache(maxsize=1)
def _font() -> ImageFont.FreeTypeFont:
    """DejaVu, which matplotlib brings: it has Latin, Greek and Cyrillic letters."""
    import matplotlib

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / 'fonts/ttf/DejaVuSans.ttf'), _FONT_PX)


def to_rgb(image: NDArray) -> Picture:
    """HW or HWC with any number of channels, to 3: gray is repeated, of more the first three are shown.

    Values that are not uint8 are stretched from their own lowest and highest to 0..255.
    """
    if image.ndim == 2:
        image = image[..., None]
    if image.dtype != np.uint8:
        low, high = float(image.min()), float(image.max())
        image = ((image - low) * (255 / (high - low or 1))).round().astype(np.uint8)
    if image.shape[-1] < 3:
        image = image[..., :1].repeat(3, axis=-1)
    return np.ascontiguousarray(image[..., :3])


def fit_size(size_px: tuple[int, ...], max_side: int) -> tuple[int, int]:
    """(height, width) with the same shape and no side over `max_side`; never larger than it was."""
    scale = min(1.0, max_side / max(size_px))
    return max(1, round(size_px[0] * scale)), max(1, round(size_px[1] * scale))


def resize_image(image: NDArray, size_px: tuple[int, ...]) -> NDArray:
    """HWC to (height, width): by area where it shrinks, else linear; pixel-centred."""
    if image.shape[:2] == size_px:
        return image
    shrinks = size_px[0] * size_px[1] < image.shape[0] * image.shape[1]
    return cv2.resize(image, size_px[::-1], interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def resize_label(label_HW: NDArray, size_px: tuple[int, int]) -> NDArray:
    """HW to (height, width) by exact nearest."""
    if label_HW.shape == size_px:
        return label_HW
    return cv2.resize(label_HW, size_px[::-1], interpolation=cv2.INTER_NEAREST_EXACT)


def palette_table(palette: NDArray) -> NDArray[np.uint8]:
    """A colour for each of the 256 values of a label map; black beyond the palette."""
    table = np.zeros((256, 3), dtype=np.uint8)
    table[: len(palette)] = palette
    return table


def palette_of(metainfo: dict | None) -> NDArray[np.uint8]:
    """The colours (C, 3) of a data set's classes: its own palette, or made ones where it has none."""
    metainfo = metainfo or {}
    palette = metainfo.get('palette')
    if palette is None or len(palette) == 0:
        return make_palette(max(2, len(metainfo.get('classes') or ())))
    return np.asarray(palette, dtype=np.uint8)


def make_palette(num_classes: int) -> NDArray[np.uint8]:
    """(C, 3) colours that tell neighbours apart: black for class 0, then hues a golden angle apart."""
    golden = (math.sqrt(5) - 1) / 2
    colours = [colorsys.hsv_to_rgb((i * golden) % 1, 0.9 - 0.3 * (i % 3 == 2), 1.0) for i in range(num_classes - 1)]
    return np.array([(0, 0, 0), *[tuple(round(255 * part) for part in colour) for colour in colours]], dtype=np.uint8)


def save_png(path: Path, picture: Picture) -> None:
    """Write the picture whole or not at all. Makes the folder. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f'.{path.name}.tmp')
    Image.fromarray(picture).save(temporary, format='PNG')
    temporary.replace(path)
