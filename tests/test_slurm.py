"""`tools/slurm_train.sh` under a real Slurm: a controller and two nodes, started here. Skipped where there is none."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seg.engine.state import checkpoint
from tests.slurm_cluster import Cluster, missing
from tests.tiny import make_data, tiny_config

TOOL = Path(__file__).resolve().parents[1] / 'tools' / 'slurm_train.sh'
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or 'there is one')
ENDLESS = {'train_cfg.max_epochs': 10**6, 'train_cfg.val_interval': 10**6}


@pytest.fixture(scope='module')
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp('slurm'))
    yield made
    made.close()


@pytest.fixture
def submit(cluster: Cluster, tmp_path: Path) -> Callable[..., subprocess.Popen]:
    """`tools/slurm_train.sh low job CONFIG` with one process on each node; what it says goes to `output.txt`."""

    def run(*flags: str, env: dict[str, str] | None = None, **changes: object) -> subprocess.Popen:
        config = tiny_config(make_data(tmp_path / 'data', train=8, val=2), tmp_path / 'run', **changes)
        (tmp_path / 'config.py').write_text(config.pretty_text)
        settings = dict(GRES='', GPUS='2', GPUS_PER_NODE='1', CPUS_PER_TASK='1', PYTHON=sys.executable)
        with (tmp_path / 'output.txt').open('w') as output:
            return subprocess.Popen(
                [str(TOOL), 'low', 'job', str(tmp_path / 'config.py'), *flags],
                env={**cluster.environment, **settings, **(env or {})},
                cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    return run


def wait_for(log: Path, text: str, times: int = 1, limit_s: float = 90.0) -> str:
    deadline = time.monotonic() + limit_s
    while not log.exists() or log.read_text().count(text) < times:
        assert time.monotonic() < deadline, log.read_text() if log.exists() else 'no log'
        time.sleep(0.1)
    return log.read_text()


def steps(work_dir: Path) -> int:
    return checkpoint.load(checkpoint.by_age(work_dir)[0])['meta']['iter']


def test_srun_trains_on_two_nodes(submit: Callable[..., subprocess.Popen], tmp_path: Path) -> None:
    assert submit().wait(120) == 0, (tmp_path / 'output.txt').read_text()
    log = (tmp_path / 'output.txt').read_text()
    assert '2 process(es), 1 thread(s) each' in log
    assert steps(tmp_path / 'run') == 2  # 8 images, 2 x 4 a step, 2 epochs


def test_a_fault_of_the_users_is_said_once_and_exits_with_2(
    submit: Callable[..., subprocess.Popen], tmp_path: Path
) -> None:
    assert submit('--cfg-options', 'model.nix=3').wait(120) == 2
    assert (tmp_path / 'output.txt').read_text().count('error: --cfg-options model.nix=3') == 1


def test_ctrl_c_at_srun_writes_a_checkpoint(submit: Callable[..., subprocess.Popen], tmp_path: Path) -> None:
    step = submit(**ENDLESS)
    wait_for(tmp_path / 'output.txt', 'Train [2/')
    os.kill(step.pid, signal.SIGINT)
    assert step.wait(60) == 128 + signal.SIGINT
    assert f'SIGINT: stopping after step {steps(tmp_path / "run")},' in (tmp_path / 'output.txt').read_text()


def test_a_batch_job_comes_back_after_a_warning_and_a_preemption(
    submit: Callable[..., subprocess.Popen], cluster: Cluster, tmp_path: Path
) -> None:
    assert submit(env=dict(SBATCH='1', REQUEUE='1'), **ENDLESS).wait(30) == 0
    job = (tmp_path / 'output.txt').read_text().split()[-1]
    log = tmp_path / f'job-{job}.log'
    wait_for(log, '][1/1]', 2)

    cluster.answer('scancel', '--signal=USR1', job)  # what Slurm sends some time before the limit
    said = wait_for(log, 'goes back in the queue')
    first = steps(tmp_path / 'run')
    assert f'SIGUSR1: stopping after step {first}, with a checkpoint' in said
    begin_now(cluster, job)
    wait_for(log, f'epoch_{first}.pth: epoch {first}, step {first} of')
    wait_for(log, f'Train [{first + 2}/')

    cluster.answer('srun', '-p', 'high', '-N2', '-n2', '-c2', 'true')  # needs all of both nodes
    second = steps(tmp_path / 'run')
    assert second > first
    assert f'SIGTERM: stopping after step {second}, with a checkpoint' in log.read_text()
    begin_now(cluster, job)
    wait_for(log, f'epoch_{second}.pth: epoch {second}, step {second} of')
    wait_for(log, f'Train [{second + 2}/')

    cluster.answer('scancel', job)
    wait_for(log, 'SIGTERM: stopping', 2)
    cluster.wait_for(lambda: not cluster.answer('squeue', '-h', '-j', job), 'end of the job')


def begin_now(cluster: Cluster, job: str) -> None:
    """Slurm waits two minutes before it starts a job again; nodes refuse one that comes back within the second."""

    def runs() -> bool:
        cluster.answer('scontrol', 'update', f'jobid={job}', 'StartTime=now')
        return cluster.answer('squeue', '-h', '-j', job, '-o', '%T') == 'RUNNING'

    cluster.wait_for(lambda: cluster.answer('squeue', '-h', '-j', job, '-o', '%T') == 'PENDING', 'job in the queue')
    time.sleep(3)
    cluster.wait_for(runs, 'job that runs again')
