"""What is wrong with a config, and the words for it."""

import difflib
from collections.abc import Iterable
from typing import Any, NamedTuple

Path = tuple[Any, ...]
_LONGEST = 60
_MOST_LISTED = 14
_PREDICATES = ('is ', 'needs ', 'waits ')


class Fault(NamedTuple):
    """`path`: the keys and list indices that lead to what is wrong; empty for the whole config."""

    path: Path
    text: str


def in_line(fault: Fault, place: str) -> str:
    """'configs/c.py:7: train_cfg.max_epochs is 0; expected 1 or more'; `place` is where it was written, if known."""
    where = ': '.join(part for part in (place, dotted(fault.path)) if part)
    return f'{where}{" " if fault.text.startswith(_PREDICATES) else ": "}{fault.text}'


def dotted(path: Path) -> str:
    return '.'.join(map(str, path))


def did_you_mean(name: Any, candidates: Iterable[str], cutoff: float = 0.6) -> str:
    """'; did you mean ...?' with the nearest of `candidates`, or nothing."""
    near = nearest(name, candidates, cutoff)
    return f'; did you mean {near}?' if near else ''


def nearest(name: Any, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The candidate that is spelt most like `name`; upper and lower case count for little."""
    by_lower = {candidate.lower(): candidate for candidate in sorted(candidates, reverse=True)}
    found = difflib.get_close_matches(str(name).lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def or_one_of(name: Any, candidates: Iterable[str]) -> str:
    """The nearest candidate, or all of them where none is near and they are few."""
    known = sorted(candidates)
    listed = f'; it takes {", ".join(known)}' if 0 < len(known) <= _MOST_LISTED else ''
    return did_you_mean(name, known) or (listed if known else '; it takes none')


def brief(value: Any) -> str:
    """The value as a message shows it; a long one only by its kind."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001, a user's object can fail in any way
        text = ''
    return text if 0 < len(text) < _LONGEST else f'a {type(value).__name__}'
