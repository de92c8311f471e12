"""Schedules that fit the run they are in."""

import logging
import warnings
from typing import Any

from mmengine.optim import ReduceOnPlateauParamScheduler


def shorten_warmup(schedulers: list[dict], max_iters: int, logger: logging.Logger) -> list[dict]:
    """The schedulers with their step counts scaled down where the run ends before all of them have begun.

    A config's warm-up of 100 steps must not stop a run of 50 (a test, a smaller data set): it then takes half of the run.
    """
    by_step = [config for config in schedulers if not config.get('by_epoch', True)]
    last_begin = max((config.get('begin', 0) for config in by_step), default=0)
    if last_begin < max_iters:
        return schedulers
    factor = max_iters / 2 / last_begin
    logger.info(
        f'The run has {max_iters} steps, too few for a schedule that begins at {last_begin}: '
        f'what begins or ends by step is brought forward, to {int(last_begin * factor)} and before'
    )
    return [_scaled(config, factor) if config in by_step else config for config in schedulers]


def _scaled(config: dict, factor: float) -> dict[str, Any]:
    steps = {key: int(config[key] * factor) for key in ('begin', 'end') if key in config}
    if 'begin' in steps and 'end' in steps:
        steps['end'] = max(steps['end'], steps['begin'] + 1)
    return {**config, **steps}


def replay(runner: Any, saved: list[dict]) -> list[float]:
    """Step the freshly built schedules to the run's place; the learning rate of each group there.

    What ReduceOnPlateau has seen is not a matter of length, so its saved state is taken.
    """
    steps_per_epoch = len(runner.train_dataloader)
    counted = [one for one in runner.param_schedulers or [] if not isinstance(one, ReduceOnPlateauParamScheduler)]
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Detected call of `scheduler.step')  # the optimizer's steps have been before
        for step in range(1, runner.iter + 1):
            for scheduler in counted:
                if not scheduler.by_epoch or step % steps_per_epoch == 0:
                    scheduler.step()
    for scheduler, values in zip(runner.param_schedulers or [], saved):
        if isinstance(scheduler, ReduceOnPlateauParamScheduler):
            scheduler.load_state_dict(values)
    return [group['lr'] for group in runner.optim_wrapper.optimizer.param_groups]
