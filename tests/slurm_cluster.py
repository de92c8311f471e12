"""A Slurm of its own for a test: a controller and two node daemons on this machine, everything in one folder."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from seg.engine.processes.launcher import free_port

PROGRAMS = ('munged', 'slurmctld', 'slurmd', 'srun', 'sbatch', 'scontrol', 'scancel')
CONFIG = """
ClusterName=seg
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=low Nodes=n[1-2] Default=YES PriorityTier=1
PartitionName=high Nodes=n[1-2] PriorityTier=10 PreemptMode=OFF
"""


def missing() -> str:
    """Why there can be no cluster here; '' if there can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=f'{os.environ["PATH"]}:/usr/sbin') is None]
    if absent:
        return f'needs Slurm (apt-get install slurm-wlm): no {", ".join(absent)}'
    return '' if os.geteuid() == 0 else 'starting Slurm daemons needs root'


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, 'SLURM_CONF': str(folder / 'slurm.conf')}
        for name in ('munge', 'state'):
            (folder / name).mkdir()
        key = folder / 'munge' / 'key'
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        ports = [free_port() for _ in range(3)]
        text = CONFIG.format(host=socket.gethostname().partition('.')[0], folder=folder, ports=ports)
        (folder / 'slurm.conf').write_text(text)
        self.daemons = [self._start('munged', '--foreground', '--force', *self._munge_files())]
        self.wait_for(lambda: (folder / 'munge' / 'socket').exists(), 'munged')
        self.daemons += [self._start('slurmctld', '-D', '-c')]
        self.daemons += [self._start('slurmd', '-D', '-N', name) for name in ('n1', 'n2')]
        self.wait_for(
            lambda: self.answer('sinfo', '-h', '-t', 'idle', '-p', 'low', '-o', '%D') == '2', 'two idle nodes'
        )

    def _munge_files(self) -> list[str]:
        names = {'socket': 'socket', 'key-file': 'key', 'pid-file': 'pid', 'log-file': 'log', 'seed-file': 'seed'}
        return [f'--{option}={self.folder / "munge" / name}' for option, name in names.items()]

    def _start(self, *command: str) -> subprocess.Popen:
        program = shutil.which(command[0], path=f'{os.environ["PATH"]}:/usr/sbin')
        output = (self.folder / 'daemons.txt').open('a')
        with output:
            return subprocess.Popen([str(program), *command[1:]], env=self.environment, stdout=output, stderr=output)

    def wait_for(self, condition: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, f'no {what}: {(self.folder / "daemons.txt").read_text()}'
            time.sleep(0.1)

    def answer(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def close(self) -> None:
        self.answer('scancel', '--user=root')
        deadline = time.monotonic() + 30
        while self.answer('squeue', '-h') and time.monotonic() < deadline:
            time.sleep(0.2)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait(20)
