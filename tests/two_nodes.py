"""Two machines for a test: two network namespaces on a switch, each with host name, hosts file and processes of its own.

As on Debian, each machine's own name is 127.0.1.1 for itself. Needs root and `ip`.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
ADDRESSES = ('10.77.0.1', '10.77.0.2')


def missing() -> str:
    """Why there can be no namespaces here; '' if there can."""
    absent = [name for name in ('ip', 'nsenter', 'unshare', 'mount', 'hostname') if shutil.which(name) is None]
    if absent:
        return f'needs {", ".join(absent)} (apt-get install iproute2 util-linux hostname)'
    if os.geteuid() != 0:
        return 'network namespaces need root'
    done = subprocess.run(['unshare', '--net', '--uts', '--mount', 'true'], capture_output=True, check=False)
    return '' if done.returncode == 0 else f'no namespaces here: {done.stderr.decode().strip()}'


def ip(*words: str) -> None:
    subprocess.run(['ip', *words], check=True, capture_output=True)


class TwoNodes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.switch = f'seg{os.getpid()}'
        self.names = [f'{self.switch}n{node}' for node in (0, 1)]
        self.runs: list[subprocess.Popen] = []
        self.patience_s = '60'
        ip('netns', 'add', self.switch)
        ip('-n', self.switch, 'link', 'add', 'name', 'br0', 'type', 'bridge')
        ip('-n', self.switch, 'link', 'set', 'br0', 'up')
        for node, name in enumerate(self.names):
            self._plug_in(node, name)

    def _plug_in(self, node: int, name: str) -> None:
        ip('netns', 'add', name)
        ip('-n', self.switch, 'link', 'add', f'port{node}', 'type', 'veth', 'peer', 'name', 'net0', 'netns', name)
        ip('-n', self.switch, 'link', 'set', f'port{node}', 'master', 'br0', 'up')
        for interface in ('lo', 'net0'):
            ip('-n', name, 'link', 'set', interface, 'up')
        ip('-n', name, 'addr', 'add', f'{ADDRESSES[node]}/24', 'dev', 'net0')
        other = f'{ADDRESSES[1 - node]} node{1 - node}'
        (self.folder / f'hosts{node}').write_text(f'127.0.0.1 localhost\n127.0.1.1 node{node}\n{other}\n')

    def start(self, node: int, *command: str, **env: str) -> subprocess.Popen:
        """Its output goes to `folder/node0.txt` or `node1.txt`."""
        enter = 'hostname "$0"; mount --bind "$1" /etc/hosts; shift; exec "$@"'
        prefix = ['nsenter', f'--net=/run/netns/{self.names[node]}', 'unshare', '--uts', '--mount', 'sh', '-c', enter]
        settings = dict(
            PYTHON=sys.executable, OMP_NUM_THREADS='1', MEETING_TIMEOUT=self.patience_s, SEG_NODE=self.names[node]
        )
        inherited = {name: value for name, value in os.environ.items() if name != 'GLOO_SOCKET_IFNAME'}
        with self.output(node).open('w') as output:
            run = subprocess.Popen(
                [*prefix, f'node{node}', str(self.folder / f'hosts{node}'), *command],
                env={**inherited, **settings, **env}, stdout=output, stderr=subprocess.STDOUT, cwd=self.folder,
            )  # fmt: skip
        self.runs.append(run)
        return run

    def train(self, node: int, config: Path, gpus: int, *flags: str) -> subprocess.Popen:
        """Into `folder/run0` or `run1`."""
        command = [str(REPO / 'tools' / 'dist_train.sh'), str(config), str(gpus)]
        where = ['--work-dir', str(self.folder / f'run{node}')]
        settings = dict(NNODES='2', NODE_RANK=str(node), MASTER_ADDR='node0', PORT='29511')
        return self.start(node, *command, *where, *flags, **settings)

    def output(self, node: int) -> Path:
        return self.folder / f'node{node}.txt'

    def wait_for(self, node: int, text: str, limit_s: float = 120.0) -> str:
        deadline = time.monotonic() + limit_s
        while text not in (said := self.output(node).read_text()):
            assert time.monotonic() < deadline, self.said()
            assert any(run.poll() is None for run in self.runs), self.said()
            time.sleep(0.1)
        return said

    def said(self) -> str:
        return '\n'.join(f'node {node}: {self.output(node).read_text()}' for node in (0, 1))

    def pids(self, node: int) -> list[int]:
        done = subprocess.run(['ip', 'netns', 'pids', self.names[node]], capture_output=True, text=True, check=True)
        return [int(pid) for pid in done.stdout.split()]

    def kill(self, node: int) -> None:
        """All its processes at once."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in self.pids(node):
                os.kill(pid, number)

    def pull_cable(self, node: int) -> None:
        ip('-n', self.switch, 'link', 'set', f'port{node}', 'down')

    def close(self) -> None:
        for node in (0, 1):
            self.kill(node)
        for run in self.runs:
            run.wait()
        for name in (*self.names, self.switch):
            ip('netns', 'del', name)
