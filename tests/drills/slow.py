"""A transform that takes its time where a drill needs it; a config lists this module in `custom_imports`."""

import os
import time

from seg.registry import TRANSFORMS


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
