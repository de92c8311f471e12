"""`--max-restarts`: ranks that are killed are started anew, and the run ends as the one that nobody touched."""

import os
from pathlib import Path

import pytest

from seg.engine.processes.launcher import LAUNCHED_S
from seg.engine.state import checkpoint, restart
from tests.drills import elastic, marks, zygote

STEPS = 24


def test_every_phase_is_planned_as_often_and_a_seed_decides() -> None:
    kills = elastic.plan(30, seed=3)
    assert [kill.number for kill in kills] == list(range(1, 31))
    assert sorted(kill.phase for kill in kills) == sorted(elastic.PHASES * 6)
    assert kills == elastic.plan(30, seed=3) != elastic.plan(30, seed=4)


def test_a_run_killed_three_times_ends_as_the_one_that_nobody_killed(tmp_path: Path) -> None:
    """The short one of `make drills`."""
    kills = [elastic.Kill(1, 1, 'start-up', 0, 0.3), elastic.Kill(2, 0, 'checkpoint', 8, 0)]
    kills.append(elastic.Kill(3, 1, 'validation', 14, 0))
    quiet = tmp_path / 'quiet'
    quiet.mkdir()
    config = elastic.write_config(tmp_path, 'whole', STEPS)
    whole = zygote.start([str(config), '2'], {marks.FOLDER: str(quiet)}, tmp_path / 'whole.txt')
    assert whole.wait(120) == 0, (tmp_path / 'whole.txt').read_text()
    killed = elastic.Drill(tmp_path, kills, STEPS, zygote.start)
    assert killed.run() == 0
    assert elastic.faults(tmp_path / 'whole', tmp_path / 'killed') == []
    assert killed.restarts == 3


def test_what_a_restart_goes_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (None, False, True, 'auto'):
        assert restart.source(given, tmp_path) is True
    checkpoint.save({'x': 1}, tmp_path / 'epoch_9.pth')  # of the run that the user goes back behind
    written_s = (tmp_path / 'epoch_9.pth').stat().st_mtime
    monkeypatch.setenv(LAUNCHED_S, str(written_s + 10))
    assert restart.source('run/epoch_3.pth', tmp_path) == 'run/epoch_3.pth'
    checkpoint.save({'x': 1}, tmp_path / 'epoch_4.pth')  # our own
    os.utime(tmp_path / 'epoch_4.pth', (written_s + 20, written_s + 20))
    assert restart.source('run/epoch_3.pth', tmp_path) is True
    monkeypatch.delenv(LAUNCHED_S)  # another launcher, which does not tell when it began
    assert restart.source('run/epoch_3.pth', tmp_path) == 'run/epoch_3.pth'
