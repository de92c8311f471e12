"""One config dict on top of another: inheritance from `_base_`, and `--cfg-options` on top of that.

The rules are MMEngine's; they are written out here because its errors don't say which key of which file is meant, and
because it leaves a `_delete_` that deletes nothing in the config.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.config import ConfigDict

from seg.errors import UserError

DELETE = '_delete_'
_MISSING = object()


def inherit(child: Mapping, base: Mapping) -> ConfigDict:
    """Dicts merge key by key, `_delete_=True` drops what the base had, anything else replaces it."""
    return _merge(child, base, '', into_lists=False)


def override(config: Mapping, options: Mapping[str, Any]) -> ConfigDict:
    """`options`: dotted path -> value; a number in a path is the index of a list, or a dict's own key."""
    return _merge(_nest(options), config, '', into_lists=True)


def _nest(options: Mapping[str, Any]) -> ConfigDict:
    nested = ConfigDict()
    for path, value in options.items():
        *parents, last = path.split('.')
        if not all([*parents, last]):
            raise UserError(f'--cfg-options {path}={value}: a part of the key is empty')
        node = nested
        for number, key in enumerate(parents):
            node = node.setdefault(key, ConfigDict())
            if not isinstance(node, Mapping):
                given = '.'.join(parents[: number + 1])
                raise UserError(f'--cfg-options sets both {given}={node!r} and {path}={value!r}: give one of the two')
        node[last] = value
    return nested


def _merge(new: Mapping, old: Mapping, path: str, into_lists: bool) -> ConfigDict:
    merged = ConfigDict(old)
    for key, value in new.items():
        if key == DELETE:
            continue
        if into_lists and key not in old and key.isdigit() and int(key) in old:
            key = int(key)
        merged[key] = _value(value, old.get(key, _MISSING), f'{path}{key}', into_lists)
    return merged


def _merge_list(new: Mapping, old: Sequence, path: str) -> Sequence:
    merged = list(old)
    for key, value in new.items():
        if not (key.isdigit() and int(key) < len(old)):
            raise UserError(
                f'{path}.{key}: {path} is a {type(old).__name__} of {len(old)}, whose elements are '
                f'{path}.0 to {path}.{len(old) - 1}'
                if old
                else f'{path}.{key}: {path} is empty'
            )
        merged[int(key)] = _value(value, old[int(key)], f'{path}.{key}', into_lists=True)
    return type(old)(merged)  # type: ignore[call-arg]


def _value(value: Any, old: Any, path: str, into_lists: bool) -> Any:
    if not isinstance(value, Mapping):
        _refuse_delete(value, path)
        return value
    if value.get(DELETE, False):
        if old is _MISSING:
            raise UserError(f'{path}.{DELETE}: there is nothing to delete, no base sets {path}')
        return _without_delete(value)
    if old is _MISSING:
        _refuse_delete(value, path)
        return value
    if isinstance(old, Mapping):
        return _merge(value, old, f'{path}.', into_lists)
    if into_lists and isinstance(old, list | tuple):
        return _merge_list(value, old, path)
    keys = ', '.join(f'{path}.{key}' for key in value)
    remedy = f'set {path} itself' if into_lists else f'write {path}=dict({DELETE}=True, ...) to replace it'
    raise UserError(f'{keys}: cannot be set, because {path} is {_brief(old)}, which is no dict; {remedy}')


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f'a {type(value).__name__}'


def _refuse_delete(value: Any, path: str) -> None:
    if isinstance(value, Mapping):
        if value.get(DELETE, False):
            raise UserError(f'{path}.{DELETE}: there is nothing to delete, no base sets {path}')
        for key, item in value.items():
            _refuse_delete(item, f'{path}.{key}')
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            _refuse_delete(item, f'{path}.{number}')


def _without_delete(value: Any) -> Any:
    if isinstance(value, Mapping):
        return ConfigDict({key: _without_delete(item) for key, item in value.items() if key != DELETE})
    if isinstance(value, list | tuple):
        return type(value)(_without_delete(item) for item in value)
    return value
