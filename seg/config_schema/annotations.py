"""Whether a value can be what an annotation says. An annotation that is not plainly about plain data fits everything."""

import types
import typing
from collections import abc
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from seg.config_schema.arguments import EMPTY, Argument

_PLAIN = (bool, int, float, str, list, tuple, dict, set, frozenset)
_MANY = (list, tuple, set, frozenset)
_SEQUENCES = (*_MANY, abc.Sequence, abc.Iterable, abc.Collection, abc.MutableSequence, abc.Set)
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
_WORDS: dict[Any, tuple[str, str]] = {
    bool: ('True or False', 'True or False'),
    int: ('a whole number', 'whole numbers'),
    float: ('a number', 'numbers'),
    str: ('text', 'texts'),
    type(None): ('None', 'None'),
    dict: ('a dict', 'dicts'),
}


def misfit(value: Any, argument: Argument) -> str | None:
    """What was expected, in words, where `value` can't be it; None where it fits."""
    default = argument.default
    if value is default or fits(value, argument.annotation):
        return None
    if default is not EMPTY and type(value) is type(default) and not fits(default, argument.annotation):
        return None  # defaults that their own annotation excludes are common, and so is what is like them
    return in_words(argument.annotation)


def fits(value: Any, annotation: Any) -> bool:
    if annotation in (EMPTY, Any, object) or not (value is None or isinstance(value, (*_PLAIN, Mapping))):
        return True
    if annotation is None or annotation is type(None):
        return value is None
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is typing.Annotated:
        return fits(value, parts[0])
    kind = origin or annotation
    if kind in (bool, int, float, str):
        return _fits_scalar(value, kind)
    if kind in _SEQUENCES:
        return isinstance(value, _MANY) and _fit_items(value, kind, parts)
    if isinstance(kind, type) and (kind in _MAPPINGS or issubclass(kind, dict)):
        return isinstance(value, Mapping) and _fit_entries(value, parts)
    return True


def _fits_scalar(value: Any, kind: type) -> bool:
    if kind is bool:
        return isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def _fit_items(values: Iterable[Any], kind: Any, parts: tuple[Any, ...]) -> bool:
    items = list(values)
    if not parts or parts == ((),):
        return True
    if kind is tuple and parts[-1] is not Ellipsis:
        return len(items) == len(parts) and all(fits(item, part) for item, part in zip(items, parts))
    return all(fits(item, parts[0]) for item in items)


def _fit_entries(values: Mapping[Any, Any], parts: tuple[Any, ...]) -> bool:
    if len(parts) != 2:
        return True
    return all(fits(key, parts[0]) and fits(item, parts[1]) for key, item in values.items())


def in_words(annotation: Any) -> str:
    """'a whole number or a list of whole numbers' for `int | Sequence[int]`."""
    parts = dict.fromkeys(_words(annotation, plural=False))
    return ' or '.join(parts)


def _words(annotation: Any, plural: bool) -> list[str]:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        ordered = sorted(parts, key=lambda part: part is type(None))  # None comes last
        return [word for part in ordered for word in _words(part, plural)]
    if origin is Literal:
        return [repr(part) for part in parts]
    kind = origin or annotation
    if kind in _SEQUENCES:
        return [_list_in_words(kind, parts, plural)]
    if isinstance(kind, type) and (kind in _MAPPINGS or issubclass(kind, dict)):
        kind = dict
    if kind in _WORDS:
        return [_WORDS[kind][plural]]
    name = getattr(kind, '__name__', str(kind))
    return [name if plural else f'a {name}']


def _list_in_words(kind: Any, parts: tuple[Any, ...], plural: bool) -> str:
    noun = 'lists' if plural else 'a list'
    if not parts or parts == ((),):
        return noun
    if kind is tuple and parts[-1] is not Ellipsis:
        if len(set(parts)) > 1:
            return f'{noun} of {len(parts)}'
        return f'{noun} of {len(parts)} {" or ".join(_words(parts[0], len(parts) > 1))}'
    return f'{noun} of {" or ".join(dict.fromkeys(_words(parts[0], plural=True)))}'
