"""The processes of a job wait for each other at the first one's port, before torch's store opens there.

Torch's own wait happens in C++: Ctrl-C does nothing, nobody says who is missing, and a process that comes to the wrong
door waits for minutes. Here each says its number; when all are there the first one tells them so, and all go on.
"""

import contextlib
import json
import os
import selectors
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from seg.engine.processes.network import is_loopback, resolve
from seg.errors import UserError

TIMEOUT = 'MEETING_TIMEOUT'  # in the environment: seconds
_LIMIT_S = 300.0
_FIRST_WORD_S, _NEXT_WORD_S = 10.0, 60.0
_TRY_S, _PAUSE_S = 5.0, 0.5
_STRANGERS = 10  # so many hang-ups in a row: whoever listens there is not of this job


@dataclass
class Meeting:
    """`number` 0 is the host; `what` is counted: ranks, or nodes with a launcher on each."""

    address: str
    port: int
    number: int
    count: int
    what: str = 'rank'
    limit_s: float = 0.0
    began_s: float = field(default_factory=time.monotonic)
    next_word_s: float = _FIRST_WORD_S

    def names(self, numbers: Iterable[int]) -> str:
        """'node 1, 3'; of many the first eight."""
        words = [str(number) for number in numbers]
        return f'{self.what} {", ".join(words[:8])}{" ..." if len(words) > 8 else ""}'

    def check_time(self, missing: str) -> None:
        """Say now and then what is waited for. Raises UserError when the time is up."""
        waited_s = time.monotonic() - self.began_s
        who, where = f'{self.what} {self.number} of {self.count}', f'{self.address}:{self.port}'
        if waited_s > (self.limit_s or _limit_s()):
            raise UserError(
                f'{who} waited {waited_s:.0f} s for {missing} at {where}; '
                f'start all of them with the same address, port and counts. {TIMEOUT}=SECONDS waits longer'
            )
        if waited_s > self.next_word_s:
            print(
                f'{self.what} {self.number} of {self.count} waits for {missing} at {self.address}:{self.port}',
                flush=True,
            )
            self.next_word_s += _NEXT_WORD_S


def meet(meeting: Meeting) -> str:
    """Wait until all have come. Returns this machine's own address on the way to the others.

    Raises UserError when some do not come in time, or came with other counts.
    """
    family, address = resolve(meeting.address)
    if meeting.number:
        return _visit(meeting)
    with _door(family, meeting.port) as door, selectors.DefaultSelector() as selector:
        return _receive_all(meeting, door, selector) or address


def _limit_s() -> float:
    try:
        return float(os.environ.get(TIMEOUT) or _LIMIT_S)
    except ValueError:
        raise UserError(f'{TIMEOUT}={os.environ[TIMEOUT]!r}: expected seconds') from None


def meet_in_store(meeting: Meeting, store: Any, attempt: str) -> None:
    """The same among ranks whose launchers have a store already: after a restart a machine may be gone.

    `attempt` tells one start of the ranks from the next. Raises UserError when some do not come in time.
    """
    keys = [f'seg/here/{attempt}/{number}' for number in range(meeting.count)]
    store.set(keys[meeting.number], '')
    while not store.check(keys):
        time.sleep(_PAUSE_S / 5)
        if time.monotonic() - meeting.began_s > 1:
            meeting.check_time(meeting.names(number for number, key in enumerate(keys) if not store.check([key])))


# ---- the host ----


def _door(family: int, port: int) -> socket.socket:
    try:
        return socket.create_server(('', port), family=family, backlog=1024)
    except OSError as error:
        raise UserError(
            f'port {port} cannot be used ({os.strerror(error.errno or 0)}); another job may have it: choose another port'
        ) from None


def _receive_all(meeting: Meeting, door: socket.socket, selector: selectors.BaseSelector) -> str:
    """Our own address that guests from other machines came to; '' if there were none."""
    guests: dict[int, socket.socket] = {}
    selector.register(door, selectors.EVENT_READ)
    try:
        while len(guests) < meeting.count - 1:
            meeting.check_time(meeting.names(number for number in range(1, meeting.count) if number not in guests))
            for key, _ in selector.select(timeout=0.5):
                if key.fileobj is door:
                    _let_in(meeting, door.accept()[0], guests, selector)
                else:  # it has nothing more to say: it has left
                    selector.unregister(key.fileobj)
                    guests.pop(key.data).close()
        ours = {guest.getsockname()[0] for guest in guests.values()}
        outside = next((address for address in sorted(ours) if not is_loopback(address)), '')
        for guest in guests.values():
            _say(guest, address=outside)
        return outside
    finally:
        for guest in guests.values():
            guest.close()


def _let_in(
    meeting: Meeting, guest: socket.socket, guests: dict[int, socket.socket], selector: selectors.BaseSelector
) -> None:
    word = _hear(guest, _TRY_S)
    number, count = word.get('number'), word.get('count')
    fault = ''
    if not isinstance(number, int) or word.get('what') != meeting.what:
        fault = f'expected a {meeting.what} of a seg job'
    elif count != meeting.count:
        fault = f'{meeting.what} {number} was started as one of {count}, and {meeting.what} 0 as one of {meeting.count}'
    elif number in guests or not 0 < number < meeting.count:
        fault = f'there are two with number {number}'
    if fault:
        _say(guest, fault=fault)
        guest.close()
        if isinstance(number, int):
            raise UserError(f'{fault}; give all of them the same counts, and each its own number')
        return
    guests[number] = guest  # type: ignore[index]
    selector.register(guest, selectors.EVENT_READ, data=number)


# ---- a guest ----


def _visit(meeting: Meeting) -> str:
    hang_ups = 0
    while True:
        meeting.check_time(f'{meeting.what} 0')
        try:
            host = socket.create_connection((meeting.address, meeting.port), timeout=_TRY_S)
        except OSError:  # not there yet, or a network that is still coming up
            time.sleep(_PAUSE_S)
            continue
        with host:
            _say(host, number=meeting.number, count=meeting.count, what=meeting.what)
            answer = _await(meeting, host)
            if 'address' in answer:
                ours = host.getsockname()[0]
                return answer['address'] or ours if is_loopback(ours) else ours
        if 'fault' in answer:
            raise UserError(f'{answer["fault"]}; give all of them the same counts, and each its own number')
        hang_ups += 1
        if hang_ups >= _STRANGERS:
            raise UserError(
                f'what answers at {meeting.address}:{meeting.port} is not {meeting.what} 0 of this job; '
                'another job may have that port: choose another for all of them'
            )
        time.sleep(_PAUSE_S)


def _await(meeting: Meeting, host: socket.socket) -> dict:
    host.settimeout(1.0)
    heard = b''
    while not heard.endswith(b'\n'):
        try:
            more = host.recv(4096)
        except TimeoutError:
            meeting.check_time(f'{meeting.what} 0, which waits for others,')
            continue
        except OSError:
            return {}
        if not more:
            return {}
        heard += more
    return _parsed(heard)


# ---- words: a line of JSON ----


def _say(to: socket.socket, **word: object) -> None:
    with contextlib.suppress(OSError):  # it has left, which the next look at it shows
        to.sendall(json.dumps(word).encode() + b'\n')


def _hear(guest: socket.socket, limit_s: float) -> dict:
    guest.settimeout(limit_s)
    try:
        return _parsed(guest.recv(4096))
    except OSError:
        return {}


def _parsed(line: bytes) -> dict:
    try:
        word = json.loads(line)
    except ValueError:
        return {}
    return word if isinstance(word, dict) else {}
