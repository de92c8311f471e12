"""A run of two ranks that something will happen to, and who belongs to it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.drills import zygote
from tests.tiny import make_data, tiny_config

LIMIT_S = 15.0


def start_real(arguments: list[str], environment: dict[str, str], log: Path) -> subprocess.Popen:
    """`tools/dist_train.sh *arguments`, in a session of its own."""
    tool = Path(__file__).parents[2] / 'tools' / 'dist_train.sh'
    environment = {**os.environ, 'PYTHON': sys.executable, 'OMP_NUM_THREADS': '1', **environment}
    with log.open('w') as file:
        return subprocess.Popen(
            [str(tool), *arguments], stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env=environment
        )


def ranks_among(children: Iterable[int]) -> list[int]:
    """Of a launcher's children the ranks, which lead a session, in the order in which they were started."""
    found = []
    for pid in sorted(children):
        with suppress(ProcessLookupError):
            if os.getsid(pid) == pid:
                found.append(pid)
    return found


class Run:
    """`tools/dist_train.sh CONFIG 2 *flags` on an endless tiny config; `changes` are merged into it."""

    def __init__(self, folder: Path, *flags: str, start: Callable[..., Any] = zygote.start, **changes: object) -> None:
        folder.mkdir(exist_ok=True)
        options = {'train_cfg.max_epochs': 10**4, 'val_dataloader.num_workers': 0, **changes}
        config = tiny_config(make_data(folder / 'data', train=8, val=4), folder / 'run', **options)
        (folder / 'config.py').write_text(config.pretty_text)
        self.work_dir = folder / 'run'
        self.log_path = folder / 'output.txt'
        self.process = start([str(folder / 'config.py'), '2', *flags], {}, self.log_path)

    @property
    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ''

    def wait_for(self, text: str, timeout_s: float = 120.0) -> float:
        """The moment when the run has said `text`."""
        self.wait_until(lambda: text in self.log, timeout_s)
        return time.monotonic()

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self.log
            assert self.process.poll() is None or condition(), self.log
            time.sleep(0.02)

    def members(self) -> list[int]:
        """Every living process of this run: those that write to its log."""
        found = []
        for folder in Path('/proc').glob('[0-9]*'):
            try:
                if (folder / 'fd' / '1').readlink() == self.log_path:
                    found.append(int(folder.name))
            except OSError:
                continue  # it has ended meanwhile, or is another user's
        return found

    def ranks(self) -> list[int]:
        """The ranks' process ids, in order; empty until both are there."""
        tasks = Path(f'/proc/{self.process.pid}/task').glob('*/children')
        pids = ranks_among(int(pid) for task in tasks for pid in task.read_text().split())
        return pids if len(pids) == 2 else []

    def ends(self, since_s: float, limit_s: float = LIMIT_S) -> int:
        """The exit code; fails when it, or any process of the run, takes longer than the limit."""
        code = self.process.wait(timeout=90)
        while self.members() and time.monotonic() - since_s < limit_s:
            time.sleep(0.05)
        assert not self.members(), self.log
        assert time.monotonic() - since_s < limit_s, self.log
        return code

    def kill(self) -> None:
        for pid in self.members():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def small_disk(folder: Path, size_kib: int) -> Iterator[Path | None]:
    """A file system of that size at `folder`; None where mounting is not allowed."""
    folder.mkdir()
    made = subprocess.run(
        ['mount', '-t', 'tmpfs', '-o', f'size={size_kib}k', 'tmpfs', str(folder)], capture_output=True
    )
    if made.returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(['umount', '-l', str(folder)], check=True)
