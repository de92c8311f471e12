"""Says who is missing where a run stands still. A collective waits for the slowest rank, for half an hour by default, and
does not tell which one that is: frozen, or stuck in something else."""

import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

QUIET_S = 60.0
_LOOKS = 6  # within the time that is too long
_STORE_S = 20.0


class StallWatch:
    """A thread on each rank that tells the others by the group's store that it lives, and where the run is.

    `place` gives (seconds since the run last moved, where that was). Once that is more than `quiet_s`, and again after
    twice the time, the first rank that lives prints one line.
    """

    def __init__(self, place: Callable[[], tuple[float, str]], quiet_s: float = QUIET_S) -> None:
        self._place, self._quiet_s, self._look_s = place, quiet_s, quiet_s / _LOOKS
        self._rank, self._size = dist.get_rank(), dist.get_world_size()
        self._store = _get_default_store().clone()  # the run's own client may be waiting in another thread
        self._store.set_timeout(timedelta(seconds=_STORE_S))
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name='stall', daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        number, told_s = 0, self._quiet_s
        seen: dict[int, str] = {}
        try:
            while not self._stopped.wait(self._look_s):
                number += 1
                quiet_s, where = self._place()
                self._store.set(f'stall/{self._rank}', f'{number}|{where}')
                if quiet_s < self._quiet_s:
                    seen, told_s = {}, self._quiet_s
                    continue
                before, seen = seen, self._read()
                if before and quiet_s > told_s:
                    self._tell(quiet_s, before, seen)
                    told_s = 2 * quiet_s
        except RuntimeError as error:  # torch's own kinds of it: no answer, no connection
            self._say_unless_over(f'and the store of the run does not answer: {str(error).splitlines()[0]}')

    def _read(self) -> dict[int, str]:
        """What each rank has said last; '' for one that never did."""
        keys = [f'stall/{rank}' for rank in range(self._size)]
        return {
            rank: self._store.get(key).decode() if self._store.check([key]) else '' for rank, key in enumerate(keys)
        }

    def _tell(self, quiet_s: float, before: dict[int, str], seen: dict[int, str]) -> None:
        alive = [rank for rank in seen if seen[rank] != before.get(rank)]
        moving = [rank for rank in alive if _where(seen[rank]) != _where(before[rank])]
        if moving or self._rank != min(alive, default=self._rank):
            return
        silent = [rank for rank in seen if rank not in alive]
        _say(f'nothing has moved for {quiet_s:.0f} s: {_words(seen, alive, silent)}')

    def _say_unless_over(self, text: str) -> None:
        quiet_s, where = self._place()
        if quiet_s > self._quiet_s and not self._stopped.is_set():
            _say(f'rank {self._rank}: nothing has moved for {quiet_s:.0f} s after {where}, {text}')


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _where(said: str) -> str:
    return said.partition('|')[2]


def _words(seen: dict[int, str], alive: list[int], silent: list[int]) -> str:
    """Where the ranks wait, those of one place together."""
    places: dict[str, list[int]] = {}
    for rank in alive:
        places.setdefault(_where(seen[rank]), []).append(rank)
    parts = [f'{_ranks(ranks)} after {place}' for place, ranks in places.items()]
    if silent:
        parts.append(f'not heard of: {_ranks(silent)}, frozen or cut off')
    return '; '.join(parts)


def _ranks(ranks: list[Any]) -> str:
    listed = ', '.join(map(str, ranks[:8])) + (f' and {len(ranks) - 8} more' if len(ranks) > 8 else '')
    return f'rank{"s" if len(ranks) > 1 else ""} {listed}'
