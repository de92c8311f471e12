"""A config as Python text that loads again: what `tools/print_config.py` prints and a run's folder keeps. Or value by
value, with where each was written.

MMEngine's own prints infinity as a bare `inf`, fails on a function, and formats by yapf, which takes seconds.
"""

import keyword
import math
from collections.abc import Mapping
from typing import Any

from seg.config_origin import Origin

_WIDTH = 110
_COMMENT_AT = 60
_INDENT = 4


def format_config(values: Mapping[str, Any]) -> str:
    """`values` holds plain types only; a line for each key."""
    return ''.join(f'{key} = {_format(value, 0, len(key) + 3)}\n' for key, value in values.items())


def format_origins(values: Any, origin: Origin, path: tuple[Any, ...] = ()) -> str:
    """A line for each single value: 'model.num_classes = 2  # configs/_base_/models/unet.py:5'."""
    if not values or not (isinstance(values, Mapping) or _has_parts(values, origin, path)):
        left = f'{".".join(map(str, path))} = {_flat(values)}'
        return f'{left:<{_COMMENT_AT}}  # {origin.at(path)}\n'
    items = values.items() if isinstance(values, Mapping) else enumerate(values)
    return ''.join(format_origins(item, origin, (*path, key)) for key, item in items)


def _has_parts(values: Any, origin: Origin, path: tuple[Any, ...]) -> bool:
    """Whether a value is a list whose items are worth a line each: nested ones, or one that an option has changed."""
    if not isinstance(values, list | tuple):
        return False
    if any(isinstance(item, Mapping | list | tuple) for item in values):
        return True
    return len({origin.at((*path, number)).partition(':')[0] for number in range(len(values))}) > 1


def _format(value: Any, indent: int, used: int) -> str:
    """`used`: columns that the line has already given away behind its indent."""
    flat = _flat(value)
    if indent + used + len(flat) <= _WIDTH or not isinstance(value, Mapping | list | tuple) or not value:
        return flat
    opening, items, closing = _parts(value)
    inner = indent + _INDENT
    lines = [f'{" " * inner}{name}{_format(item, inner, len(name) + 1)},' for name, item in items]
    return '\n'.join([opening, *lines, ' ' * indent + closing])


def _flat(value: Any) -> str:
    if isinstance(value, Mapping | list | tuple):
        opening, items, closing = _parts(value)
        inside = ', '.join(f'{name}{_flat(item)}' for name, item in items)
        return f'{opening}{inside}{"," if isinstance(value, tuple) and len(value) == 1 else ""}{closing}'
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def _parts(value: Any) -> tuple[str, list[tuple[str, Any]], str]:
    if isinstance(value, list):
        return '[', [('', item) for item in value], ']'
    if isinstance(value, tuple):
        return '(', [('', item) for item in value], ')'
    if all(isinstance(key, str) and key.isidentifier() and not keyword.iskeyword(key) for key in value):
        return 'dict(', [(f'{key}=', item) for key, item in value.items()], ')'
    return '{', [(f'{_flat(key)}: ', item) for key, item in value.items()], '}'
