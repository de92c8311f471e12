"""A failure under FSDP ends everything fast, as elsewhere (promise 6), and leaves a whole checkpoint."""

import signal
from collections.abc import Callable

import pytest

from seg.engine.state import checkpoint
from tests.drills.run import Run
from tests.engine.test_drills import start  # noqa: F401, a fixture

FSDP = {
    'model_wrapper_cfg': dict(type='FullyShardedDataParallel'),
    'default_hooks.checkpoint': dict(type='CheckpointHook', interval=1, by_epoch=False),
}


@pytest.mark.parametrize(('rank', 'phase'), [(1, 'forward'), (1, 'backward'), (0, 'checkpoint'), (1, 'validation')])
def test_a_killed_rank_ends_all(start: Callable[..., Run], rank: int, phase: str) -> None:  # noqa: F811
    run = start('--inject', f'kill:rank={rank},step=3,phase={phase}', **FSDP)
    assert run.ends(run.wait_for('][')) == 128 + signal.SIGKILL
    assert run.log.count('SIGKILL') == 1
    assert 'Traceback' not in run.log
    newest = checkpoint.by_age(run.work_dir)[0]
    assert newest.suffix == '.dcp'
    assert checkpoint.load(newest)['meta']['iter'] in (1, 2, 3, 4)
