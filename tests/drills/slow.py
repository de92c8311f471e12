"""What makes a run slow or fail where a drill needs it; a config lists this module in `custom_imports`."""

import os
import time
from typing import Any

from mmengine.hooks import Hook

from seg.registry import HOOKS, TRANSFORMS


@TRANSFORMS.register_module()
class SlowOnRank:
    """Says 'slow' and sleeps `seconds` for each sample, on one rank."""

    def __init__(self, rank: int, seconds: float) -> None:
        self.rank, self.seconds = rank, seconds

    def __call__(self, results: dict) -> dict:
        if os.environ.get('RANK') == str(self.rank):
            print('slow', flush=True)
            time.sleep(self.seconds)
        return results


@HOOKS.register_module()
class FailingHook(Hook):
    """Raises on every rank, at the third step."""

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        if runner.iter == 2:
            raise ValueError('it fails everywhere')
