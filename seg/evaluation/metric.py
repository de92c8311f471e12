"""The scores of a data set, the same bits for every order, batch size and number of ranks.

MMEngine gathers per-image results by pickle through a folder (D8). Here a rank keeps a confusion matrix and fixed-point
sums on its device, nothing is waited for while images come in, and one int64 tensor is all-reduced at the end.
"""

import heapq
from collections.abc import Sequence
from typing import Any

import torch
from mmengine.dist import all_gather_object, all_reduce
from mmengine.evaluator import BaseMetric
from torch import Tensor

from seg.errors import UserError
from seg.evaluation.confusion import (
    CLASS_SCORES,
    SCORES,
    count_pairs,
    image_scores,
    mean_from_sum,
    score_from_fixed,
    scores_from_matrix,
    sum_fixed,
)
from seg.evaluation.table import score_table
from seg.registry import METRICS

ImageScore = tuple[float, str]


@METRICS.register_module()
class SegMetric(BaseMetric):
    """aAcc, mIoU, mDice, mAcc over the data set, imDice, imIoU over its images, and each class's scores.

    The classes are the data set's (`dataset_meta['classes']`), else `num_classes` of them without names. One class is
    scored as two: what it is not, and it. `worst` and `best` say how many images to name at either end by their own
    Dice, `class_scalars` which scores of each class go to the loggers, as `IoU.car`.

    After `evaluate`: `report` (the content of metrics.json), `matrix` (rows truth, columns prediction), `images` and
    `unlabelled` (counts), `worst_images` and `best_images` ((score, img_path) in order), the same on every rank.
    """

    default_prefix = ''

    def __init__(
        self,
        num_classes: int | None = None,
        worst: int = 4,
        best: int = 4,
        class_scalars: Sequence[str] = ('IoU', 'Dice'),
        prefix: str | None = None,
    ) -> None:
        unknown = [key for key in class_scalars if key not in CLASS_SCORES]
        if unknown:
            raise UserError(f'SegMetric: class_scalars has {unknown}; expected names out of {CLASS_SCORES}')
        super().__init__(prefix=prefix)
        self.num_classes = num_classes
        self.worst, self.best = worst, best
        self.class_scalars = tuple(class_scalars)
        self.report: dict[str, Any] = {}
        self.matrix: list[list[int]] = []
        self.images = self.unlabelled = 0
        self.worst_images: list[ImageScore] = []
        self.best_images: list[ImageScore] = []
        self.last_scores: Tensor | None = None
        self._sums: Tensor | None = None  # pairs, then (sum, count) of the images' Dice and of their IoU
        self._image_scores: list[Tensor] = []
        self._paths: list[str] = []
        self._images = self._unlabelled = self._cached_size = 0

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Count a batch: dicts of `pred` and `label`, uint8 HW of equal size. One without a label is not scored.

        `last_scores` is then each labelled image's own Dice in fixed point, on the device.
        """
        known = [i for i, sample in enumerate(data_samples) if sample.get('label') is not None]
        self._unlabelled += len(data_samples) - len(known)
        self.last_scores = None
        if not known:
            return
        counts = torch.stack([self._count(data_samples[i]) for i in known])
        scores = image_scores(counts[:, :-2].unflatten(1, (self._size, self._size)))
        sums = torch.cat([counts.sum(dim=0), *(sum_fixed(row) for row in scores)])
        self._sums = sums if self._sums is None else self._sums + sums
        self._images += len(known)
        self.last_scores = scores[0]
        self._image_scores.append(scores[0])
        self._paths += _paths(data_batch, known)

    def evaluate(self, size: int) -> dict[str, float | None]:
        """The scores over all ranks, under their names of metrics.json, and `IoU.car` for each class that has one.

        Raises UserError where no image has a mask, or a mask holds a class that does not exist; on every rank.
        """
        total = self._total()
        cells, wrong = total[: self._size**2], total[self._size**2 + 1]
        dice_sum, dice_count, iou_sum, iou_count, self.images, self.unlabelled = total[self._size**2 + 2 :]
        self._check(wrong)
        self.matrix = [cells[i : i + self._size] for i in range(0, self._size**2, self._size)]
        scores = scores_from_matrix(self.matrix, self.class_names)
        per_class = scores.pop('per_class')
        images = dict(imDice=mean_from_sum(dice_sum, dice_count), imIoU=mean_from_sum(iou_sum, iou_count))
        self.report = {**scores, **images, 'per_class': per_class}
        self._gather_extremes()
        self._reset()
        return self._scalars()

    def compute_metrics(self, results: list) -> dict:
        """Part of MMEngine's protocol; `evaluate` does not come here."""
        raise NotImplementedError('SegMetric keeps no per-image results; call evaluate()')

    def table(self) -> str:
        """The last report as text."""
        return score_table(self.report)

    @property
    def class_names(self) -> list[str]:
        """The name of each row of the matrix. Raises UserError where the classes are not known or not distinct."""
        names = [str(name) for name in (self.dataset_meta or {}).get('classes') or ()]
        if not names and self.num_classes:
            names = [f'class {i}' for i in range(self.num_classes)] if self.num_classes > 1 else ['class 1']
        if len(names) == 1:
            names = ['background', *names]
        if not names or len(set(names)) < len(names):
            raise UserError(f'SegMetric: classes are {names}; expected distinct names in the metainfo of the data set')
        if self.num_classes and len(names) != max(self.num_classes, 2):
            raise UserError(f'SegMetric: num_classes={self.num_classes}, but the data set has the classes {names}')
        return names

    @property
    def _size(self) -> int:
        """Rows of the matrix."""
        if self._cached_size == 0:
            self._cached_size = len(self.class_names)
        return self._cached_size

    def _count(self, sample: dict) -> Tensor:
        pred, label = sample['pred'], sample['label']
        if pred.shape != label.shape:
            raise ValueError(f'a prediction of {tuple(pred.shape)} pixels for a mask of {tuple(label.shape)}')
        return count_pairs(pred, label, self._size)

    def _total(self) -> list[int]:
        """The one all-reduce: pairs, (sum, count) of Dice and of IoU, images, images without a mask."""
        sums = torch.zeros(self._size**2 + 6, dtype=torch.int64) if self._sums is None else self._sums
        total = torch.cat([sums, sums.new_tensor([self._images, self._unlabelled])])
        all_reduce(total)
        return total.tolist()

    def _check(self, wrong: int) -> None:
        if self.images == 0:
            raise UserError(
                f'nothing to evaluate: none of {self.unlabelled} images has a mask; '
                'check data_prefix.seg_map_path, the split and LoadAnnotations in the pipeline'
            )
        if wrong:
            raise UserError(
                f'{wrong} pixels of the evaluated masks or predictions hold a class that does not exist; the data set '
                f'has the {self._size} classes 0 to {self._size - 1}; map the values in label_map, or list what is missing'
            )

    def _gather_extremes(self) -> None:
        """Name the worst and the best images of all ranks: each sends its own few, ties go by path."""
        fixed = torch.cat(self._image_scores).tolist() if self._image_scores else []
        own = [(score, path) for score, path in zip(map(score_from_fixed, fixed), self._paths) if score is not None]
        gathered = all_gather_object((lowest(own, self.worst), highest(own, self.best)))
        self.worst_images = lowest([image for worst, _ in gathered for image in worst], self.worst)
        self.best_images = highest([image for _, best in gathered for image in best], self.best)

    def _scalars(self) -> dict[str, float | None]:
        scalars = {key: self.report[key] for key in SCORES}
        for key in self.class_scalars:
            for name, scores in self.report['per_class'].items():
                if scores[key] is not None:
                    scalars[f'{key}.{name}'] = scores[key]
        return {f'{self.prefix}/{key}': value for key, value in scalars.items()} if self.prefix else scalars

    def _reset(self) -> None:
        self._sums = None
        self._image_scores, self._paths = [], []
        self._images = self._unlabelled = self._cached_size = 0


def lowest(images: list[ImageScore], count: int) -> list[ImageScore]:
    """The `count` lowest scores, in order; equal ones by path."""
    return heapq.nsmallest(count, images)


def highest(images: list[ImageScore], count: int) -> list[ImageScore]:
    """The `count` highest scores, in order; equal ones by path."""
    return heapq.nsmallest(count, images, key=lambda image: (-image[0], image[1]))


def _paths(data_batch: Any, indices: list[int]) -> list[str]:
    metas = data_batch.get('metas') if isinstance(data_batch, dict) else None
    return [str(metas[i].get('img_path', '')) if metas else '' for i in indices]
