"""What a checkpoint says of its run, before it is believed: it is data from a stranger (promise 10).

Nothing of it is run, imported or taken for a path out of the run's folder; what makes no sense is one message.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any

from seg.engine.precision import DTYPES
from seg.errors import UserError

_COUNTS = ('epoch', 'iter', 'seed')
_SEG_COUNTS = (*_COUNTS, 'world_size', 'global_batch', 'steps_per_epoch', 'max_iters', 'images')
_FILE_KEYS = ('last_ckpt', 'best_ckpt_')
_FILE_NAME = re.compile(r'(best_[^/\\]+_)?(epoch|iter)_\d+\.(pth|dcp)')


def seg_meta(state: Mapping[str, Any]) -> dict[str, Any]:
    """What our own checkpoints say of themselves; empty for another's."""
    meta = state.get('meta')
    seg = meta.get('seg') if isinstance(meta, dict) else None
    return seg if isinstance(seg, dict) else {}


def check_counts(state: Mapping[str, Any], filename: str | Path) -> None:
    """Raise UserError for a step, a seed or a size that is no integer."""
    meta = state.get('meta')
    if not isinstance(meta, dict):
        raise UserError(f'{filename} has no meta: it holds weights, not a run. Use load_from=... to start from it')
    for place, values, keys in (('meta', meta, _COUNTS), ('meta.seg', seg_meta(state), _SEG_COUNTS)):
        for key in keys:
            value = values.get(key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value < 0):
                raise UserError(f'{filename}: {place}.{key} is {value!r}; expected an integer >= 0')


def precision_of(state: Mapping[str, Any], filename: str | Path) -> str:
    """What the checkpoint was validated in; 'fp32' where it does not say. Raises UserError for one that is unknown."""
    value = seg_meta(state).get('precision', 'fp32')
    if not isinstance(value, str) or value not in DTYPES:
        raise UserError(f'{filename}: its precision is {value!r}; expected one of {", ".join(DTYPES)}')
    return value


def hub_info(state: Mapping[str, Any]) -> dict[str, Any]:
    """The hooks' notes, without the names of files that are not of the run's folder.

    An outdated best file is removed by its name. MMEngine's files have whole paths there; they stay where they are.
    """
    notes = state.get('message_hub', {}).get('runtime_info', {})
    return {key: value for key, value in notes.items() if not key.startswith(_FILE_KEYS) or _is_file_name(value)}


def _is_file_name(value: Any) -> bool:
    return isinstance(value, str) and _FILE_NAME.fullmatch(value) is not None


@contextmanager
def explained(filename: str | Path) -> Iterator[None]:
    """Turn what taking over a state raises into a UserError that names the file: what is in a file is no bug."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UserError(
            f'{filename} does not hold the state of a run like this one ({type(error).__name__}: {error}); resume with the '
            'config it was made with, or start from its weights with load_from=...'
        ) from error
