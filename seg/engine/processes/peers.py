"""Notices within half a minute that another machine has gone: its power, its cable, the switch between.

A process that dies closes its connections, which gloo sees at once. A machine that is cut off closes nothing, and a
collective would wait for the group's timeout (30 minutes). So the first rank of each machine keeps an idle connection to
rank 0, on which the kernels ask each other every few seconds, whatever Python is doing.
"""

import errno
import os
import selectors
import socket
import sys
import threading
from typing import Any

from seg.engine.cli import EXIT_ERROR
from seg.engine.processes.network import resolve

_IDLE_S, _EVERY_S, _TIMES = 5, 5, 4  # given up after 25 s without an answer
SILENCE_S = _IDLE_S + _EVERY_S * _TIMES


def watch(rank: int, local_rank: int, address: str, store: Any, attempt: str = '0') -> None:
    """On every rank of a job on several machines; returns at once. `address` is rank 0's machine.

    `attempt` tells one start of the ranks from the next: the launchers keep the store over a restart.
    """
    key = f'seg/peers/{attempt}'
    if rank == 0:
        door = socket.create_server(('', 0), family=resolve(address)[0], backlog=1024)
        store.set(key, str(door.getsockname()[1]))
        _begin(_watch_all, door)
    elif local_rank == 0:
        first = socket.create_connection((address, int(store.get(key))), timeout=60)
        first.settimeout(None)
        first.sendall(str(rank).encode() + b'\n')
        _begin(_watch_first, first)


def _begin(target: Any, connection: socket.socket) -> None:
    threading.Thread(target=target, args=(connection,), name='peers', daemon=True).start()


def keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {'TCP_KEEPIDLE': _IDLE_S, 'TCP_KEEPINTVL': _EVERY_S, 'TCP_KEEPCNT': _TIMES}
    for name, value in options.items():
        if hasattr(socket, name):  # else the system's own two hours
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _watch_first(first: socket.socket) -> None:
    keep_alive(first)
    where = first.getpeername()[0]
    try:
        while first.recv(64):
            pass
    except OSError as error:
        _end(f'the machine of rank 0 ({where})', error)


def _watch_all(door: socket.socket) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(door, selectors.EVENT_READ)
        names: dict[Any, str] = {}
        while True:
            for key, _ in selector.select():
                if key.fileobj is door:
                    guest, where = door.accept()
                    keep_alive(guest)
                    names[guest] = where[0]
                    selector.register(guest, selectors.EVENT_READ)
                else:
                    _look_at(key.fileobj, names, selector)


def _look_at(guest: Any, names: dict[Any, str], selector: selectors.BaseSelector) -> None:
    """It has said its rank, has ended, or is lost."""
    try:
        word = guest.recv(64)
    except OSError as error:
        _end(f'the machine of {names[guest]}', error)
    if word:
        names[guest] = f'rank {word.decode().strip()} ({names[guest]})'
    else:
        selector.unregister(guest)
        guest.close()


def _end(what: str, error: OSError) -> None:
    said = f'no answer for {SILENCE_S} s' if error.errno == errno.ETIMEDOUT else error.strerror
    print(f'{what} is gone ({said}); ending', file=sys.stderr, flush=True)
    os._exit(EXIT_ERROR)
