"""Launchers and ranks in a fraction of a second: forked from a process that has imported everything, in the place of new
ones whose imports would cost more than the drill.

`start(arguments, environment, log)` is `python -m seg.engine.processes.launcher train *arguments`. Launcher and ranks are
the usual family: the launcher leads a session, its ranks lead theirs, and they die and are reaped as ever. One zygote is
kept for the session of tests; it ends when its socket to pytest closes.
"""

import atexit
import contextlib
import json
import os
import pickle
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_LOOK_S = 0.01
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)


class Process:
    """What `subprocess.Popen` would give, for a grandchild."""

    def __init__(self, pid: int, connection: Connection) -> None:
        self.pid, self._connection = pid, connection
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and self._connection.poll():
            self.returncode = self._connection.recv()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._connection.poll(timeout):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = self._connection.recv()
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class _Zygote:
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix='zygote-')
        self.address = str(Path(self.folder.name) / 'socket')
        ours, theirs = socket.socketpair()
        self.lifeline = ours
        boot = f'import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {__name__} import _serve; _serve()'
        with theirs:
            command = [sys.executable, '-c', boot, json.dumps(sys.path), str(theirs.fileno()), self.address]
            environment = {**os.environ, 'OMP_NUM_THREADS': '1'}
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environment, start_new_session=True
            )
        assert ours.recv(1) == b'r', 'the zygote did not start'
        atexit.register(ours.close)

    def start(self, arguments: list[str], environment: dict[str, str], log: Path) -> Process:
        with socket.socket(socket.AF_UNIX) as plug:
            plug.connect(self.address)
            connection = Connection(plug.detach())
        connection.send((arguments, {**os.environ, 'OMP_NUM_THREADS': '1', **environment}, str(log)))
        return Process(connection.recv(), connection)


_kept: list[_Zygote] = []


def start(arguments: list[str], environment: dict[str, str], log: Path) -> Process:
    """Start a launcher on `arguments`, what it and its ranks say in `log`."""
    if not _kept:
        _kept.append(_Zygote())
    return _kept[0].start(arguments, environment, log)


# ---- the other side ----


def _serve() -> None:
    """Fork a launcher for each one who connects, and tell him its exit code."""
    _import_all()
    lifeline = socket.socket(fileno=int(sys.argv[2]))
    door = socket.socket(socket.AF_UNIX)
    door.bind(sys.argv[3])
    door.listen()
    lifeline.sendall(b'r')
    running: dict[int, Connection] = {}
    while True:
        ready = select.select([lifeline, door], [], [], _LOOK_S)[0]
        if lifeline in ready:
            os._exit(0)
        if door in ready:
            connection = Connection(door.accept()[0].detach())
            arguments, environment, log = pickle.loads(connection.recv_bytes())
            pid = os.fork()
            if pid == 0:
                _become_launcher(arguments, environment, log)
            connection.send(pid)
            running[pid] = connection
        _report_ended(running)


def _report_ended(running: dict[int, Connection]) -> None:
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with contextlib.suppress(OSError):  # nobody waits for it any more
                running.pop(pid).send(os.waitstatus_to_exitcode(status))


def _import_all() -> None:
    import torch._dynamo
    import torch.distributed.elastic.agent.server.local_elastic_agent  # noqa: F401
    from mmengine.registry import Registry
    from PIL import Image

    import seg.engine.processes.agent
    import seg.engine.processes.launcher
    import seg.engine.train  # noqa: F401
    from seg import registry

    Image.preinit()
    for value in vars(registry).values():
        if isinstance(value, Registry):
            value.import_from_location()
    assert threading.active_count() == 1, 'a thread would not be there in the processes that are forked'


def _become_launcher(arguments: list[str], environment: dict[str, str], log: str) -> None:
    from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

    _start_anew(environment)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 256)
    SubprocessHandler._popen = lambda self, args, env: _Rank(list(args), env)  # type: ignore[assignment]
    _run_as_main('seg.engine.processes.launcher', ['train', *arguments])


class _Rank:
    """A rank that torch's launcher would start by `subprocess.Popen(args)`; `args`: python, -u, script, ..."""

    def __init__(self, args: list[str], environment: dict[str, str]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _start_anew(environment)
            os.closerange(3, 256)
            _run_as_main(args[2], args[3:])

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_LOOK_S)
        return self.returncode  # type: ignore[return-value]


def _start_anew(environment: dict[str, str]) -> None:
    """As after exec: a session of its own, no handlers, the given environment."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False  # the launcher's temporary folder is not its ranks' to remove
    os.environ.clear()
    os.environ.update(environment)


def _run_as_main(name: str, arguments: list[str]) -> Any:
    """`python -m NAME *arguments`, or the file NAME; ends the process."""
    code: Any = 1
    sys.modules.pop(name, None)
    try:
        sys.argv[:] = [name, *arguments]
        run = runpy.run_path if name.endswith('.py') else runpy.run_module
        run(name, run_name='__main__')
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001, as the interpreter would
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
