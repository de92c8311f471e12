"""One kept pool of gloo processes: `run_ranks(2, fn, *args)` gives `[fn(*args) on rank 0, fn(*args) on rank 1]`.

`fn` is a module-level function of a test module. It finds a fresh default process group and RANK, WORLD_SIZE,
LOCAL_RANK in the environment; the group, the environment and the folder are put back after each call. Ranks are
started at first use and kept for the session; they end when their socket to pytest closes, whatever closed it.
"""

import atexit
import contextlib
import faulthandler
import json
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

START_S = 120.0
LOOPBACK = {'GLOO_SOCKET_IFNAME': 'lo'} if sys.platform == 'linux' else {}
GRACE_S = 5.0  # what the other ranks get to answer once one has failed


class RankError(Exception):
    """A rank hung, died, or (as the cause of its own exception) this is where it raised."""


class _Rank:
    """The parent's end of one process."""

    def __init__(self, folder: Path, number: int) -> None:
        self.stack_file = folder / f'stack{number}'
        ours, theirs = socket.socketpair()
        boot = f'import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {__name__} import _serve; _serve()'
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, '-c', boot, json.dumps(sys.path), str(theirs.fileno()), str(self.stack_file)],
                env={**os.environ, 'OMP_NUM_THREADS': '1', **LOOPBACK},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # so that it can be killed with its loader workers
            )
        self.socket = Connection(ours.detach())

    def stack(self) -> str:
        """Where the process is now, every thread."""
        os.kill(self.process.pid, signal.SIGUSR1)
        time.sleep(0.3)
        return self.stack_file.read_text()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.socket.close()


class _Pool:
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix='ranks-')
        self.ranks: list[_Rank] = []
        self.calls = 0
        atexit.register(self.close)

    def grow(self, size: int) -> list[_Rank]:
        new = [_Rank(Path(self.folder.name), number) for number in range(len(self.ranks), size)]
        self.ranks += new
        for rank, answer in enumerate(_collect(new, START_S)):
            assert answer == ('ready',), f'rank {rank} answered {answer} at its start'
        return self.ranks[:size]

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()
        self.ranks.clear()

    def run(self, size: int, work: bytes, timeout_s: float) -> list[tuple]:
        ranks = self.grow(size)
        self.calls += 1
        store = str(Path(self.folder.name) / f'store{self.calls}')
        for rank, process in enumerate(ranks):
            process.socket.send_bytes(pickle.dumps((rank, size, store, timeout_s, work)))
        return _collect(ranks, timeout_s)


_pool: list[_Pool] = []


def run_ranks(n: int, fn: Callable[..., Any], *args: Any, timeout_s: float = 60) -> list[Any]:
    """The results of `fn(*args)` in rank order. The first exception of any rank is raised, caused by its traceback.

    A rank that does not answer in time or dies is a RankError, and the next call gets a new pool.
    """
    if not _pool:
        _pool.append(_Pool())
    try:
        answers = _pool[0].run(n, pickle.dumps((fn, args)), timeout_s)
    except BaseException:
        _pool.pop().close()
        raise
    failures = [answer for answer in answers if answer[0] == 'error']
    if failures:
        _, _, error, where = min(failures, key=lambda failure: failure[1])
        raise error from RankError(where)
    return [answer[1] for answer in answers]


def _collect(ranks: list[_Rank], timeout_s: float) -> list[tuple]:
    """One answer of each rank. Raises RankError for one that dies, or is late."""
    answers: dict[int, tuple] = {}
    deadline = time.monotonic() + timeout_s
    while len(answers) < len(ranks):
        pending = [rank for rank in range(len(ranks)) if rank not in answers]
        wait([ranks[rank].socket for rank in pending], timeout=0.1)
        for rank in pending:
            answer = _answer(rank, ranks[rank])
            if answer is None:
                continue
            answers[rank] = answer
            if answer[0] == 'error':
                deadline = min(deadline, time.monotonic() + GRACE_S)
        late = [rank for rank in pending if rank not in answers]
        if late and time.monotonic() > deadline:
            _fail_late(late, ranks, answers, timeout_s)
    return [answers[rank] for rank in range(len(ranks))]


def _answer(rank: int, process: _Rank) -> tuple | None:
    try:
        if process.socket.poll():
            return pickle.loads(process.socket.recv_bytes())
    except (EOFError, ConnectionResetError):
        process.process.wait(GRACE_S)
    if process.process.poll() is not None:
        raise RankError(f'rank {rank} died with exit code {process.process.returncode}')
    return None


def _fail_late(late: list[int], ranks: list[_Rank], answers: dict[int, tuple], timeout_s: float) -> None:
    stacks = '\n'.join(f'rank {rank} is here:\n{ranks[rank].stack()}' for rank in late)
    failed = [answer for answer in answers.values() if answer[0] == 'error']
    if failed:
        _, _, error, where = failed[0]
        raise error from RankError(f'{where}\nranks {late} were then stuck.\n{stacks}')
    raise RankError(f'ranks {late} did not end within {timeout_s} s.\n{stacks}')


# ---- the other side: what runs in a rank ----


def _serve() -> None:
    """The life of a rank: work off one call after the other until the socket closes."""
    import torch.distributed  # noqa: F401, imported before 'ready', so that no call's time limit pays for it

    parent = Connection(int(sys.argv[2]))
    stack_file = Path(sys.argv[3]).open('w')  # noqa: SIM115, faulthandler writes to it for life
    faulthandler.register(signal.SIGUSR1, file=stack_file)
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(parent, calls), daemon=True).start()
    parent.send_bytes(pickle.dumps(('ready',)))
    while True:
        rank, size, store, timeout_s, work = pickle.loads(calls.get())
        with _group(rank, size, store, timeout_s):
            parent.send_bytes(_work(rank, work))


def _read(parent: Connection, calls: queue.SimpleQueue[bytes]) -> None:
    """In a thread of its own, so that a rank busy in `fn` ends with its parent too."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            calls.put(parent.recv_bytes())
    os._exit(0)


def _work(rank: int, work: bytes) -> bytes:
    try:
        fn, args = pickle.loads(work)
        return pickle.dumps(('ok', fn(*args)))
    except BaseException as error:  # noqa: BLE001, it is raised in the parent
        where = f'on rank {rank}:\n{traceback.format_exc()}'
        return pickle.dumps(('error', time.time(), _portable(error), where))


def _portable(error: BaseException) -> BaseException:
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001, an exception's own pickling can raise anything
        return RankError(f'{type(error).__name__}: {error}')
    return copy if isinstance(copy, Exception) else RankError(f'{type(error).__name__}: {error}')


@contextlib.contextmanager
def _group(rank: int, size: int, store: str, timeout_s: float) -> Iterator[None]:
    import torch
    import torch.distributed as dist

    environment, folder = dict(os.environ), Path.cwd()
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), LOCAL_WORLD_SIZE=str(size))
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    limit = timedelta(seconds=timeout_s + 2 * GRACE_S)  # the parent's time limit comes first: it shows the stacks
    shared = dist.FileStore(store, size)
    dist.init_process_group('gloo', store=shared, rank=rank, world_size=size, timeout=limit)
    # A rank that fails at once would close its connections on a rank that still makes them.
    shared.set(f'connected {rank}', '')
    shared.wait([f'connected {other}' for other in range(size)], limit)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
