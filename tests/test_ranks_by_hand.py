"""N terminals, no launcher: `RANK= WORLD_SIZE= MASTER_ADDR= python tools/train.py CONFIG --launcher pytorch`."""

import os
import subprocess
import sys
from pathlib import Path

from seg.engine.processes.launcher import free_port
from seg.engine.state import checkpoint
from tests.tiny import make_data, tiny_config

TOOL = Path(__file__).resolve().parents[1] / 'tools' / 'train.py'


def terminal(config: Path, *flags: str, **env: str) -> subprocess.Popen:
    inherited = {name: value for name, value in os.environ.items() if name != 'GLOO_SOCKET_IFNAME'}
    return subprocess.Popen(
        [sys.executable, str(TOOL), str(config), *flags, '--launcher', 'pytorch'],
        env={**inherited, 'OMP_NUM_THREADS': '1', **env}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_two_jobs_started_by_hand_at_once_both_run(tmp_path: Path) -> None:
    terminals = []
    for job in ('a', 'b'):
        changes = {'train_dataloader.batch_size': 1}
        made = tiny_config(make_data(tmp_path / job, train=4, val=2), tmp_path / f'run-{job}', **changes)
        (tmp_path / f'{job}.py').write_text(made.pretty_text)
        names = dict(WORLD_SIZE='2', MASTER_ADDR='localhost', MASTER_PORT=str(free_port()))
        terminals += [terminal(tmp_path / f'{job}.py', RANK=rank, **names) for rank in ('1', '0')]
    said = [run.communicate(timeout=120)[0] for run in terminals]
    assert [run.returncode for run in terminals] == [0] * 4, said
    for job in ('a', 'b'):
        state = checkpoint.load(checkpoint.by_age(tmp_path / f'run-{job}')[0])
        assert state['meta']['iter'] == 4  # 4 images, 2 a step, 2 epochs
        assert state['meta']['seg']['world_size'] == 2


def test_a_terminal_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / 'c.py').write_text(tiny_config(make_data(tmp_path, 4, 2), tmp_path / 'run').pretty_text)
    names = dict(RANK='0', WORLD_SIZE='3', MASTER_ADDR='127.0.0.1', MEETING_TIMEOUT='1')
    port = str(free_port())
    run = terminal(tmp_path / 'c.py', MASTER_PORT=port, **names)
    said = run.communicate(timeout=60)[0]
    assert run.returncode == 2
    assert f'error: rank 0 of 3 waited 1 s for rank 1, 2 at 127.0.0.1:{port}; ' in said
