"""The share of digits that were told right."""

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.dist import all_reduce
from mmengine.evaluator import BaseMetric

from seg.registry import METRICS


@METRICS.register_module()
class Accuracy(BaseMetric):
    """Counts on the device; one sum over the ranks at the end. Each image is on one rank, so `size` is how many."""

    default_prefix = ''  # the score's name is 'accuracy' alone

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        self.results += [(sample['pred'] == sample['label']).sum() for sample in data_samples]

    def evaluate(self, size: int) -> dict[str, float]:
        right = torch.stack(self.results).sum().cpu() if self.results else torch.zeros((), dtype=torch.int64)
        self.results.clear()
        all_reduce(right)
        return {'accuracy': right.item() / size}

    def compute_metrics(self, results: list) -> dict:
        raise NotImplementedError('MMEngine would gather every result here; evaluate() sums instead')
