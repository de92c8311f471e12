"""Predictions as files: label maps, overlays, probabilities. All PNG, written whole or not at all."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from seg.datasets.io import IGNORE_INDEX, read_image
from seg.visualization.overlay import make_palette, overlay, palette_table, to_rgb

Palette = NDArray | Sequence[Sequence[int]] | None

_PROBABILITY_ONE = 65535
_BAND_ROWS = 512  # a multiple of 8, the period of the overlay's hatching


def write_label_map(labels_HW: NDArray, path: str | Path, palette: Palette = None) -> None:
    """A palette PNG whose index is the class: viewers show colours, readers of indices get labels.

    `palette`: RGB of 0..255 for each class; without it made colours. The ignored (255) are white.
    """
    image = Image.fromarray(np.ascontiguousarray(labels_HW, dtype=np.uint8))
    colours = _colours(palette)
    if len(colours) <= IGNORE_INDEX:
        colours = palette_table(colours)
        colours[IGNORE_INDEX] = 255
    image.putpalette(colours.tobytes())
    _save_png(image, path)


def write_overlay(image: str | Path | NDArray, labels_HW: NDArray, path: str | Path, palette: Palette = None) -> None:
    """The photograph (a file, or RGB of the labels' size) with its labels painted over it, as an RGB PNG.

    Raises UserError for a file that cannot be read.
    """
    picture = to_rgb(image if isinstance(image, np.ndarray) else read_image(image))
    colours = _colours(palette)
    painted = np.empty_like(picture)
    # In bands, because an overlay needs 50 bytes a pixel; each sees the row below it, to which it may have an edge.
    for top in range(0, len(picture), _BAND_ROWS):
        band = slice(top, top + _BAND_ROWS + 1)
        painted[top : top + _BAND_ROWS] = overlay(picture[band], labels_HW[band], colours)[:_BAND_ROWS]
    _save_png(Image.fromarray(painted), path)


def write_probs(probs_HW: NDArray, path: str | Path) -> None:
    """A gray PNG of 16 bits: 0 is probability 0, 65535 is 1."""
    scaled = np.empty(probs_HW.shape, dtype=np.uint16)
    for top in range(0, len(scaled), _BAND_ROWS):
        band = slice(top, top + _BAND_ROWS)
        scaled[band] = np.rint(probs_HW[band] * np.float32(_PROBABILITY_ONE))
    _save_png(Image.fromarray(scaled), path)


def _colours(palette: Palette) -> NDArray[np.uint8]:
    # `is None`, because an array has no truth value; an empty palette is none, too.
    return make_palette(IGNORE_INDEX) if palette is None or len(palette) == 0 else np.asarray(palette, dtype=np.uint8)


def _save_png(image: Image.Image, path: str | Path) -> None:
    """Temporary file, fsync, rename; makes the folder. Raises OSError."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f'.{path.name}.tmp')
    try:
        with temporary.open('wb') as file:
            image.save(file, format='PNG')
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
