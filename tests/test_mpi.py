"""`--launcher mpi` under a real Open MPI: ranks train, their faults and Ctrl-C end all. Skipped where there is none."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seg.engine.state import checkpoint
from tests.tiny import make_data, tiny_config

REPO = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(shutil.which('mpirun') is None, reason='needs mpirun (apt-get install openmpi-bin)')


def start(folder: Path, ranks: int, *flags: str, **changes: object) -> subprocess.Popen:
    """Its output goes to `folder/output.txt`."""
    config = tiny_config(make_data(folder / 'data', train=6, val=2), folder / 'run', **changes)
    (folder / 'config.py').write_text(config.pretty_text)
    command = ['mpirun', '--allow-run-as-root', '--oversubscribe', '-n', str(ranks), sys.executable, '-u']
    with (folder / 'output.txt').open('w') as output:
        return subprocess.Popen(
            [*command, str(REPO / 'tools' / 'train.py'), str(folder / 'config.py'), *flags, '--launcher', 'mpi'],
            env={**os.environ, 'OMP_NUM_THREADS': '1'}, stdout=output, stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip


def test_three_ranks_train(tmp_path: Path) -> None:
    assert start(tmp_path, 3, **{'train_dataloader.batch_size': 1}).wait(120) == 0
    assert 'Global batch 3 = 1 per process x 3 process(es)' in (tmp_path / 'output.txt').read_text()
    assert checkpoint.load(checkpoint.by_age(tmp_path / 'run')[0])['meta']['iter'] == 4  # 6 images, 3 a step, 2 epochs


def test_a_fault_of_the_users_is_said_once_and_exits_with_2(tmp_path: Path) -> None:
    assert start(tmp_path, 2, '--cfg-options', 'model.nix=3').wait(120) == 2
    assert (tmp_path / 'output.txt').read_text().count('error: --cfg-options model.nix=3') == 1


def test_a_killed_rank_ends_both(tmp_path: Path) -> None:
    run = start(tmp_path, 2, '--inject', 'kill:rank=1,step=2,phase=forward', **{'train_cfg.max_epochs': 10**6})
    assert run.wait(120) == 128 + signal.SIGKILL
    assert 'rank 0 lost its connection to another rank' in (tmp_path / 'output.txt').read_text()


def test_ctrl_c_leaves_a_checkpoint(tmp_path: Path) -> None:
    run = start(tmp_path, 2, **{'train_cfg.max_epochs': 10**6, 'train_cfg.val_interval': 10**6})
    deadline = time.monotonic() + 90
    while 'Train [3/' not in (tmp_path / 'output.txt').read_text():
        assert time.monotonic() < deadline, (tmp_path / 'output.txt').read_text()
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)  # mpirun sends its ranks SIGTERM, and exits with 1
    assert run.wait(60) == 1
    step = checkpoint.load(checkpoint.by_age(tmp_path / 'run')[0])['meta']['iter']
    assert f'SIGTERM: stopping after step {step}, with a checkpoint' in (tmp_path / 'output.txt').read_text()
