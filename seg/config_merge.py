"""One config dict on top of another: inheritance from `_base_`, and `--cfg-options` on top of that.

The rules are MMEngine's; they are written out here because its errors don't say which key of which file is meant, and
because it leaves a `_delete_` that deletes nothing in the config. What can't be merged is noted and left as it was, so
that one reading of a config finds all its faults.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.config import ConfigDict

from seg.config_schema.wording import Fault, Path, brief, dotted
from seg.errors import UserError

DELETE = '_delete_'
_MISSING = object()


def inherit(child: Mapping, base: Mapping, faults: list[Fault] | None = None) -> ConfigDict:
    """Dicts merge key by key, `_delete_=True` drops what the base had, anything else replaces it.

    Without a list to note `faults` in, the first one is raised as UserError.
    """
    noted: list[Fault] = []
    merged = _Merge(noted, into_lists=False).dicts(child, base, ())
    if faults is None and noted:
        raise UserError(f'{dotted(noted[0].path)}: {noted[0].text}')
    if faults is not None:
        faults += noted
    return merged


def override(config: Mapping, options: Mapping[str, Any], faults: list[Fault]) -> ConfigDict:
    """`options`: as `nest` makes them; a number among the keys is the index of a list, or a dict's own key."""
    return _Merge(faults, into_lists=True).dicts(options, config, ())


def nest(options: Mapping[str, Any], faults: list[Fault]) -> ConfigDict:
    """Dotted path -> value, as dicts in dicts."""
    nested = ConfigDict()
    for path, value in options.items():
        *parents, last = path.split('.')
        if not all([*parents, last]):
            faults.append(Fault((path,), 'a part of the key is empty'))
            continue
        node = nested
        for number, key in enumerate(parents):
            node = node.setdefault(key, ConfigDict())
            if not isinstance(node, Mapping):
                given = '.'.join(parents[: number + 1])
                text = f'--cfg-options sets both {given}={node!r} and {path}={value!r}: give one of the two'
                faults.append(Fault((path,), text))
                break
        else:
            node[last] = value
    return nested


class _Merge:
    def __init__(self, faults: list[Fault], into_lists: bool) -> None:
        self.faults, self.into_lists = faults, into_lists

    def dicts(self, new: Mapping, old: Mapping, path: Path) -> ConfigDict:
        merged = ConfigDict(old)
        for key, value in new.items():
            if key == DELETE:
                continue
            if self.into_lists and key not in old and isinstance(key, str) and key.isdigit() and int(key) in old:
                key = int(key)
            merged[key] = self._value(value, old.get(key, _MISSING), (*path, key))
        return merged

    def _value(self, value: Any, old: Any, path: Path) -> Any:
        if not isinstance(value, Mapping) or old is _MISSING:
            return self._without_delete(value, path)
        if value.get(DELETE, False):
            return _dropped(value)
        if isinstance(old, Mapping):
            return self.dicts(value, old, path)
        if self.into_lists and isinstance(old, list | tuple):
            return self._list(value, old, path)
        where = dotted(path)
        remedy = f'set {where} itself' if self.into_lists else f'write {where}=dict({DELETE}=True, ...) to replace it'
        for key in value:
            text = f'cannot be set, because {where} is {brief(old)}, which is no dict; {remedy}'
            self.faults.append(Fault((*path, key), text))
        return old

    def _list(self, new: Mapping, old: Sequence, path: Path) -> Sequence:
        merged, where = list(old), dotted(path)
        for key, value in new.items():
            if str(key).isdigit() and int(key) < len(old):
                merged[int(key)] = self._value(value, old[int(key)], (*path, key))
                continue
            kind, last = type(old).__name__, len(old) - 1
            text = f'{where} is a {kind} of {len(old)}, whose elements are {where}.0 to {where}.{last}'
            self.faults.append(Fault((*path, key), text if old else f'{where} is empty'))
        return type(old)(merged)  # type: ignore[call-arg]

    def _without_delete(self, value: Any, path: Path) -> Any:
        """Nothing is below `value` that a `_delete_` in it could drop."""
        if isinstance(value, Mapping):
            if value.get(DELETE, False):
                text = f'there is nothing to delete, no base sets {dotted(path)}'
                self.faults.append(Fault((*path, DELETE), text))
            kept = {key: item for key, item in value.items() if key != DELETE}
            return ConfigDict({key: self._without_delete(item, (*path, key)) for key, item in kept.items()})
        if isinstance(value, list | tuple):
            return type(value)(self._without_delete(item, (*path, number)) for number, item in enumerate(value))
        return value


def _dropped(value: Any) -> Any:
    """Without `_delete_`, also further down, where the one above has done it."""
    if isinstance(value, Mapping):
        return ConfigDict({key: _dropped(item) for key, item in value.items() if key != DELETE})
    if isinstance(value, list | tuple):
        return type(value)(_dropped(item) for item in value)
    return value
