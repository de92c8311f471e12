"""Early stopping whose patience survives a resume (D10)."""

from typing import Any

from mmengine.hooks import EarlyStoppingHook as UpstreamEarlyStoppingHook

from seg.registry import HOOKS

_STATE = 'early_stopping'


@HOOKS.register_module()
class EarlyStoppingHook(UpstreamEarlyStoppingHook):
    """MMEngine's, with its count and best score kept in the run's state, and `min_delta` 0.001: scores are fractions.

    All ranks see the same reduced score, so they stop at the same point. A score that is undefined (None) is passed over.
    """

    def __init__(self, monitor: str, min_delta: float = 0.001, **kwargs: Any) -> None:
        super().__init__(monitor, min_delta=min_delta, **kwargs)

    def before_train(self, runner: Any) -> None:
        state = runner.message_hub.runtime_info.get(_STATE)
        if state is not None:
            self.wait_count, self.best_score = state['wait_count'], state['best_score']

    def after_val_epoch(self, runner: Any, metrics: dict[str, Any]) -> None:
        if not runner.training_started or metrics.get(self.monitor, 0.0) is None:
            return
        super().after_val_epoch(runner, metrics)
        runner.message_hub.update_info(_STATE, dict(wait_count=self.wait_count, best_score=float(self.best_score)))
