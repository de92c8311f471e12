"""Schedules that fit the run they are in."""

import logging
from typing import Any


def shorten_warmup(schedulers: list[dict], max_iters: int, logger: logging.Logger) -> list[dict]:
    """The schedulers with their step counts scaled down where the run ends before all of them have begun.

    A config's warm-up of 100 steps must not stop a run of 50 (a test, a smaller data set): it then takes half of the run.
    """
    by_step = [config for config in schedulers if not config.get('by_epoch', True)]
    last_begin = max((config.get('begin', 0) for config in by_step), default=0)
    if last_begin < max_iters:
        return schedulers
    factor = max_iters / 2 / last_begin
    logger.info(f'The run has {max_iters} steps, but a schedule begins at {last_begin}: begins and ends x {factor:.3g}')
    return [_scaled(config, factor) if config in by_step else config for config in schedulers]


def _scaled(config: dict, factor: float) -> dict[str, Any]:
    steps = {key: int(config[key] * factor) for key in ('begin', 'end') if key in config}
    if 'begin' in steps and 'end' in steps:
        steps['end'] = max(steps['end'], steps['begin'] + 1)
    return {**config, **steps}
