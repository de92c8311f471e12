"""What the transforms share: the maps that travel with an image, and checked arguments."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seg.errors import UserError

Results = dict[str, Any]
PadValue = float | Sequence[float]  # of an image: one number, or one for each channel


def map_labels(results: Results, function: Callable[[np.ndarray], np.ndarray]) -> None:
    """Put every label map of the results through `function`: those in `seg_fields`, and `gt_seg_map`."""
    for key in dict.fromkeys((*results.get('seg_fields', ()), 'gt_seg_map')):
        if results.get(key) is not None:
            results[key] = function(results[key])


def map_aligned_labels(results: Results, shape: tuple[int, int], function: Callable[[np.ndarray], np.ndarray]) -> None:
    """The same for a transform that needs labels of the image's own `shape` (h, w)."""

    def checked(labels: np.ndarray) -> np.ndarray:
        if labels.shape[:2] != shape:
            raise UserError(
                f'{results.get("seg_map_path", "the mask")} is {labels.shape[1]}x{labels.shape[0]}, but its image is '
                f'{shape[1]}x{shape[0]} by now. Load the annotations before the first transform that resizes'
            )
        return function(labels)

    map_labels(results, checked)


def set_image(results: Results, image: np.ndarray) -> None:
    results['img'] = image
    results['img_shape'] = image.shape[:2]


def interval(name: str, value: float | Sequence[float], low: float = float('-inf')) -> tuple[float, float]:
    """A number d means (-d, d)."""
    ends = (-value, value) if isinstance(value, int | float) else tuple(value)
    if len(ends) != 2 or not low <= ends[0] <= ends[1]:
        bound = '' if low == float('-inf') else f', both >= {low}'
        raise UserError(f'{name} is {value!r}; expected two numbers, the smaller first{bound}')
    return ends


def probability(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise UserError(f'{name} is {value!r}; expected a number in 0..1')
    return float(value)


def size_pair(name: str, value: int | Sequence[int], order: str) -> tuple[int, int]:
    """An integer n means n x n."""
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or not all(isinstance(side, int) and side >= 1 for side in pair):
        raise UserError(f'{name} is {value!r}; expected an integer >= 1, or two as {order}')
    return pair
