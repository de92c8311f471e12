"""What the looks at a data set's pairs add up to, in memory that does not grow with the pairs."""

from collections import Counter
from typing import Any

import numpy as np

from seg.datasets.gate.findings import Group
from seg.datasets.gate.looks import Result
from seg.datasets.label_rule import IGNORE_INDEX
from seg.datasets.pairs import Pair

_LABELS = 256
_VALUES = 64  # distinct values without a class that are counted; a mask has at most 8 of them
_SIZES = 4096  # distinct sizes that are counted one by one


class Tally:
    """Sums over the pairs of one data set. `groups` are keyed by a fault's kind."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.sizes: Counter[tuple[int, int]] = Counter()
        self.other_sizes = 0
        self.low: np.ndarray = np.full(2, np.iinfo(np.int64).max)
        self.high: np.ndarray = np.zeros(2, np.int64)
        self.heads = self.masks = self.photos = 0
        self.masks_left = self.photos_left = 0
        self.pixels = np.zeros(_LABELS, np.int64)
        self.in_masks = np.zeros(_LABELS, np.int64)
        self.value_pixels: Counter[int] = Counter()
        self.value_masks: Counter[int] = Counter()
        self.value_total = 0

    def add_head(self, pair: Pair, result: Result) -> None:
        self.heads += 1
        self._add_messages(pair, result)
        if 'size' in result:
            size = (int(result['size'][0]), int(result['size'][1]))
            self.low, self.high = np.minimum(self.low, size), np.maximum(self.high, size)
            if size in self.sizes or len(self.sizes) < _SIZES:
                self.sizes[size] += 1
            else:
                self.other_sizes += 1

    def add_mask(self, pair: Pair, result: Result) -> None:
        self.masks += 1
        self._add_messages(pair, result)
        for label, count in result.get('labels', ()):
            self.pixels[label] += count
            self.in_masks[label] += 1
        if result.get('labels') and all(label == IGNORE_INDEX for label, _ in result['labels']):
            self.group('blank').add(str(pair.seg_map_path), str(pair.seg_map_path))
        for value, count in result.get('values', ()):
            self.value_total += count
            if value in self.value_pixels or len(self.value_pixels) < _VALUES:
                self.value_pixels[value] += count
                self.value_masks[value] += 1

    def add_photo(self, pair: Pair, result: Result) -> None:
        self.photos += 1
        self._add_messages(pair, result)

    def group(self, kind: str) -> Group:
        return self.groups.setdefault(kind, Group())

    def count(self, kind: str) -> int:
        return self.groups[kind].count if kind in self.groups else 0

    def size_list(self, most: int) -> list[list[int]]:
        """[[height, width, images], ...], most frequent first, of the `most` most frequent; the smallest is among them."""
        listed = self.sizes.most_common(most)
        smallest = min(self.sizes.items(), key=lambda item: item[0][0] * item[0][1], default=None)
        if smallest is not None and smallest not in listed:
            listed[-1] = smallest
        return [[height, width, count] for (height, width), count in listed]

    def _add_messages(self, pair: Pair, result: dict[str, Any]) -> None:
        for kind, message in (*result.get('errors', ()), *result.get('said', ())):
            of_mask = kind in ('mask', 'colours', 'values', 'lossy', 'size')
            self.group(kind).add(str(pair.seg_map_path) if of_mask else pair.img_path, message)
