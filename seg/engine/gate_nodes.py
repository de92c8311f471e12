"""One look per machine, obeyed by all processes.

The first process of each machine looks; the others wait in a collective that the lookers join every few seconds, so
that no timeout of the process group is ever reached, however long the look takes, and a peer that dies is noticed.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from mmengine.dist import all_gather_object, get_rank, get_world_size

from seg.errors import UserError

_BEAT_S = 5.0


@dataclass
class Verdict:
    """What one machine found: why training must not start (empty if it may), what else to say, and which data it has."""

    error: str = ''
    notes: list[str] = field(default_factory=list)
    fingerprints: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    host: str = field(default_factory=socket.gethostname)


def once_a_node(look: Callable[[Callable[[], None]], Verdict]) -> list[str]:
    """The notes of the first machine. `look` is called on one process of each, with what it must call every so often.

    Raises UserError, the same on all processes, for an error of any machine, and where machines have other data.
    """
    beat = _Beat()
    looks = int(os.environ.get('LOCAL_RANK', get_rank())) == 0 or get_world_size() == 1
    verdict = _verdict(look, beat) if looks else None
    beat.wait_for_all()
    verdicts = [one for one in all_gather_object(verdict) if one is not None]
    error = _join_errors(verdicts) or _compare(verdicts)
    if error:
        raise UserError(error)
    return verdicts[0].notes


def _verdict(look: Callable[[Callable[[], None]], Verdict], beat: '_Beat') -> Verdict:
    try:
        return look(beat.tell)
    except UserError as error:
        return Verdict(str(error))


class _Beat:
    """An all-reduce that every process joins until none is busy any more."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def tell(self) -> None:
        """This process is still busy."""
        if time.monotonic() - self._last >= _BEAT_S:
            self._busy_ones(1)
            self._last = time.monotonic()

    def wait_for_all(self) -> None:
        while self._busy_ones(0):
            pass

    def _busy_ones(self, mine: int) -> int:
        if get_world_size() == 1:
            return 0
        busy = torch.tensor(mine)
        dist.all_reduce(busy)
        return int(busy)


def _join_errors(verdicts: list[Verdict]) -> str:
    """Each different message once, with its machine where there are several."""
    found: dict[str, str] = {}
    for verdict in verdicts:
        if verdict.error:
            found.setdefault(verdict.error, verdict.host)
    if len(verdicts) == 1 or len(found) == 0:
        return ''.join(found)
    return '\n'.join(f'on {host}: {error}' for error, host in found.items())


def _compare(verdicts: list[Verdict]) -> str:
    """Empty where all machines have files of the same names and sizes in their data sets."""
    first = verdicts[0]
    for other in verdicts[1:]:
        for key in sorted({*first.fingerprints, *other.fingerprints}):
            one, two = first.fingerprints.get(key), other.fingerprints.get(key)
            if one == two:
                continue
            pairs = f'{one[0] if one else 0} pairs on {first.host}, {two[0] if two else 0} on {other.host}'
            return (
                f'{key}: the machines have different data: {pairs}, compared by names and sizes in bytes. '
                'Copy the data anew, or put it where all machines see it'
            )
    return ''
