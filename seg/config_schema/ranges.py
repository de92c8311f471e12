"""Numbers that nothing refuses before a run is under way, by the class or the section that takes them."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from seg.config_schema.wording import Fault, Path, brief


class Range(NamedTuple):
    low: float
    high: float = math.inf
    without_ends: bool = False

    def holds(self, value: float) -> bool:
        if self.without_ends:
            return self.low < value < self.high
        return self.low <= value <= self.high

    def in_words(self) -> str:
        if self.high == math.inf:
            return f'above {self.low:g}' if self.without_ends else f'{self.low:g} or more'
        between = f'{self.low:g} to {self.high:g}'
        return f'between {self.low:g} and {self.high:g}' if self.without_ends else between


ONE_UP, ZERO_UP, ABOVE_ZERO = Range(1), Range(0), Range(0, without_ends=True)
SHARE = Range(0, 1)

_OF = {
    'EpochBasedTrainLoop': dict(max_epochs=ONE_UP, val_begin=ZERO_UP, val_interval=ONE_UP, vals_per_epoch=ONE_UP),
    'IterBasedTrainLoop': dict(max_iters=ONE_UP, val_begin=ZERO_UP, val_interval=ONE_UP),
    'a dataloader': dict(batch_size=ONE_UP, num_workers=ZERO_UP, prefetch_factor=ONE_UP, timeout=ZERO_UP),
    'OptimWrapper': dict(accumulative_counts=ONE_UP),
    'AmpOptimWrapper': dict(loss_scale=ABOVE_ZERO),
    'clip_grad': dict(max_norm=ABOVE_ZERO, clip_value=ABOVE_ZERO),
    'paramwise_cfg': dict.fromkeys(
        ('bias_lr_mult', 'bias_decay_mult', 'norm_decay_mult', 'flat_decay_mult', 'dwconv_decay_mult'), ZERO_UP
    ),
    'auto_scale_lr': dict(base_batch_size=ONE_UP),
    'dist_cfg': dict(timeout=ABOVE_ZERO),
    'check_data': dict(max_seconds=ZERO_UP),
    'Segmentor': dict(num_classes=Range(1, 255), threshold=Range(0, 1, without_ends=True)),
    'BaseDataset': dict(max_refetch=ZERO_UP),
    'LoggerHook': dict(interval=ONE_UP),
    'SegVisualizationHook': dict(interval=ONE_UP, samples=ZERO_UP, worst=ZERO_UP, best=ZERO_UP),
    'CheckpointHook': dict(interval_minutes=ABOVE_ZERO),
    'EarlyStoppingHook': dict(patience=ZERO_UP, min_delta=ZERO_UP),
    'BaseAveragedModel': dict(interval=ONE_UP),
    'EMAHook': dict(momentum=Range(0, 1, without_ends=True), interval=ONE_UP),
    'SegMetric': dict(worst=ZERO_UP, best=ZERO_UP),
    '_BatchNorm': dict(eps=ABOVE_ZERO, momentum=SHARE),
    'GroupNorm': dict(num_groups=ONE_UP, eps=ABOVE_ZERO),
}


def out_of_range(owner: Any, given: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    """`owner`: a class, whose bases count as well, or the name of a section."""
    names = [owner] if isinstance(owner, str) else [base.__name__ for base in getattr(owner, '__mro__', ())]
    ranges: dict[str, Range] = {}
    for name in reversed(names):
        ranges.update(_OF.get(name, {}))
    for key, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and key in ranges and not ranges[key].holds(value):
            yield Fault((*path, key), f'is {brief(value)}; expected {ranges[key].in_words()}')
