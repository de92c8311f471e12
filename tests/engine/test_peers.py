"""A machine that is cut off is noticed by the kernels' own questions; one whose process has ended is left to gloo."""

import errno
import socket
import struct
import sys
import time
from collections.abc import Callable

import pytest

from seg.engine.processes import peers

# The thread that watches ends here where a real one would take its process along.
pytestmark = pytest.mark.filterwarnings('ignore::pytest.PytestUnhandledThreadExceptionWarning')


class Store(dict):
    set = dict.__setitem__


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | None]]:
    """What would have ended this process."""
    found: list[tuple[str, int | None]] = []
    monkeypatch.setattr(peers, '_end', lambda what, error: found.append((what, error.errno)) or sys.exit())
    return found


def wait_for(condition: Callable[[], bool], limit_s: float = 10.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def guest(store: Store) -> socket.socket:
    return socket.create_connection(('127.0.0.1', int(store['seg/peers/0'])))


def reset(connection: socket.socket) -> None:
    """As a machine that has started anew answers."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    connection.close()


def test_rank_0_names_the_machine_that_has_gone_and_not_the_one_that_has_ended(ends: list) -> None:
    store = Store()
    peers.watch(0, 0, '127.0.0.1', store)
    ended, gone = guest(store), guest(store)
    for connection, rank in ((ended, b'4\n'), (gone, b'8\n')):
        connection.sendall(rank)
    time.sleep(0.2)
    ended.close()
    assert not wait_for(lambda: bool(ends), 0.3)
    reset(gone)
    assert wait_for(lambda: bool(ends))
    assert ends == [('the machine of rank 8 (127.0.0.1)', errno.ECONNRESET)]


def test_the_others_watch_rank_0_one_on_each_machine(ends: list) -> None:
    with socket.create_server(('127.0.0.1', 0)) as door:
        store = Store({'seg/peers/0': str(door.getsockname()[1]).encode()})
        peers.watch(5, 1, '127.0.0.1', store)  # the second of its machine: nothing
        peers.watch(4, 0, '127.0.0.1', store)
        first, _ = door.accept()
        assert first.recv(10) == b'4\n'
        door.settimeout(0.2)
        with pytest.raises(TimeoutError):
            door.accept()
        reset(first)
    assert wait_for(lambda: bool(ends))
    assert ends == [('the machine of rank 0 (127.0.0.1)', errno.ECONNRESET)]


@pytest.mark.skipif(not hasattr(socket, 'TCP_KEEPIDLE'), reason='this system has its own times')
def test_the_kernel_asks_often_enough() -> None:
    with socket.socket() as connection:
        peers.keep_alive(connection)
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle_s, every_s, times = (connection.getsockopt(socket.IPPROTO_TCP, name) for name in names)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert idle_s + every_s * times == peers.SILENCE_S == 25
