"""Several data sets as one: roots of one task, some gone through more often than others."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from torch.utils.data import Dataset

from seg.errors import UserError
from seg.registry import DATASETS


@DATASETS.register_module()
class ConcatDataset(Dataset):
    """`datasets` one after the other, each `repeats` times in an epoch: weights in whole numbers, [1, 3] say.

    A repeated image is another sample each time, with augmentation of its own. Nothing is drawn: an epoch holds each
    image exactly as often as `repeats` says, so that a resumed run needs no state.

    Raises UserError where the data sets differ in their classes. Each reads its own masks by its own label_map.
    """

    def __init__(self, datasets: Sequence[Any], repeats: Sequence[int] | None = None) -> None:
        self.repeats = _check_repeats(repeats, len(datasets))
        self.datasets = [DATASETS.build(dataset) if isinstance(dataset, Mapping) else dataset for dataset in datasets]
        _check_classes(self.datasets)

    @property
    def metainfo(self) -> dict[str, Any]:
        """That of the first data set."""
        return self.datasets[0].metainfo

    def full_init(self) -> None:
        for dataset in self.datasets:
            dataset.full_init()

    def __len__(self) -> int:
        return self._ends()[-1]

    def __getitem__(self, index: int) -> Any:
        dataset, place = self.locate(index)
        return dataset[place]

    def get_data_info(self, index: int) -> dict[str, Any]:
        """As in MMEngine: the paths of a sample, without reading them."""
        dataset, place = self.locate(index)
        return dataset.get_data_info(place)

    def locate(self, index: int) -> tuple[Any, int]:
        """The data set that holds a sample, and its place in it."""
        ends = self._ends()
        if not -ends[-1] <= index < ends[-1]:
            raise IndexError(f'{index} of {ends[-1]} samples')
        index %= ends[-1]
        number = bisect_right(ends, index)
        dataset = self.datasets[number]
        return dataset, (index - (ends[number - 1] if number else 0)) % len(dataset)

    def split_record(self) -> dict[str, Any]:
        """Plain data for the run's folder: the record of each data set."""
        return {
            'images': len(self),
            'repeats': self.repeats,
            'datasets': [dataset.split_record() for dataset in self.datasets],
        }

    def _ends(self) -> list[int]:
        return list(accumulate(len(dataset) * times for dataset, times in zip(self.datasets, self.repeats)))


def _check_repeats(repeats: Sequence[int] | None, count: int) -> list[int]:
    if count == 0:
        raise UserError('ConcatDataset: datasets is empty; give one or more')
    times = [1] * count if repeats is None else list(repeats)
    if len(times) != count or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in times):
        raise UserError(
            f'ConcatDataset: repeats={repeats} for {count} data sets; expected a whole number from 1 for each: how often '
            'it is gone through in an epoch (for weights of 0.5 and 1: [1, 2])'
        )
    return times


def _check_classes(datasets: Sequence[Any]) -> None:
    known = [tuple(dataset.metainfo['classes']) for dataset in datasets]
    for number, classes in enumerate(known[1:], start=1):
        if classes != known[0]:
            raise UserError(
                f'ConcatDataset: data set 0 has the classes {list(known[0])}, data set {number} {list(classes)}; they '
                'must be the same in the same order, and label_map of each says which values of its masks they are'
            )
