"""The walk over a config: at each place, is what is there what can be there?"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from seg.config_schema import lookup
from seg.config_schema.annotations import in_words, misfit
from seg.config_schema.arguments import EMPTY, Argument, Arguments, arguments_of
from seg.config_schema.instead import instead
from seg.config_schema.nested import part_of
from seg.config_schema.nodes import Anything, ByName, Fields, Loose, Many, Name, Node, Pick, Typed, Value
from seg.config_schema.ranges import out_of_range
from seg.config_schema.trial import refused_by_itself
from seg.config_schema.wording import Fault, Path, brief, did_you_mean, or_one_of

_ALWAYS = ('type', '_scope_')
_SURE = 0.8  # how alike two names must be where nobody has said that something is built
_DEEPEST = 60


def faults_in(node: Node, value: Any, path: Path) -> Iterator[Fault]:
    """What is wrong with `value`, which stands at `path`, and with all that is in it."""
    if len(path) > _DEEPEST:
        yield Fault(path[:1], f'is nested more than {_DEEPEST} deep, or holds itself')
    elif not isinstance(node, Anything):
        yield from _CHECKS[type(node)](node, value, path)


def _pick(node: Pick, value: Any, path: Path) -> Iterator[Fault]:
    yield from faults_in(node.choose(value), value, path)


def _value(node: Value, value: Any, path: Path) -> Iterator[Fault]:
    expected = misfit(value, Argument(node.annotation))
    if expected:
        yield Fault(path, f'is {brief(value)}; expected {expected}')


def _name(node: Name, value: Any, path: Path) -> Iterator[Fault]:
    try:
        lookup.find(value, lookup.by_name(node.registry))
    except lookup.NotRegistered as error:
        yield Fault(path, str(error))


def _many(node: Many, value: Any, path: Path) -> Iterator[Fault]:
    if isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from faults_in(node.item, item, (*path, number))
    elif node.alone:
        yield from faults_in(node.item, value, path)
    else:
        yield from _wrong_kind(value, path, 'a list')


def _loose(node: Loose, value: Any, path: Path) -> Iterator[Fault]:
    if isinstance(value, Mapping) and 'type' in value:
        yield from faults_in(node.item, value, path)
    elif isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from faults_in(node, item, (*path, key))


def _by_name(node: ByName, value: Any, path: Path) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield from _wrong_kind(value, path, 'a dict')
        return
    for key, item in value.items():
        if item is not None:
            yield from faults_in(node.item, item, (*path, key))


def _fields(node: Fields, value: Any, path: Path) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield from _wrong_kind(value, path, 'a dict')
        return
    yield from _entries(node.owner, node.arguments, node.parts, value, path)
    yield from out_of_range(node.owner, value, path)
    yield from _missing(node.owner, node.arguments, value, path)


def _typed(node: Typed, value: Any, path: Path) -> Iterator[Fault]:
    registry = lookup.by_name(node.registry)
    if not isinstance(value, Mapping):
        yield from _wrong_kind(value, path, f'dict(type=...), a {lookup.noun(registry)}')
        return
    default = node.default(value) if callable(node.default) else node.default
    kind = value.get('type', default)
    if kind is None and node.guess:
        return
    if kind is None:
        yield Fault(path, f'needs `type`, the name of a {lookup.noun(registry)}')
        return
    scope = value.get('_scope_')
    try:
        built = lookup.find(kind if scope in (None, 'seg') else f'{scope}.{kind}', registry)
    except lookup.NotRegistered as error:
        built = lookup.find_anywhere(str(kind)) if node.guess else None
        if built is None and not (node.guess and not did_you_mean(kind, lookup.names(registry), _SURE)):
            yield Fault((*path, 'type'), str(error))
    if built is not None:
        yield from _arguments(node, built, value, path)


def _arguments(node: Typed, kind: Any, value: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    arguments = _with_rest(arguments_of(kind), value)
    owner = getattr(kind, '__name__', str(kind))
    given = {key: item for key, item in value.items() if key not in _ALWAYS}
    parts = {key: part_of(kind, key, node.registry) for key in given if key in arguments.by_name or arguments.open}
    faults = [*_entries(owner, arguments.without(*node.supplied), {**parts, **node.parts}, given, path)]
    faults += out_of_range(kind, given, path)
    if not node.partial:
        faults += _missing(owner, arguments.without(*node.supplied, *node.filled), value, path)
    yield from faults
    if not any(len(fault.path) <= len(path) + 1 for fault in faults):  # what is further down, it does not see
        yield from refused_by_itself(kind, given, path)


def _with_rest(arguments: Arguments, value: Mapping[str, Any]) -> Arguments:
    """Those of the type that one of the arguments names are taken as well."""
    rest = arguments.rest
    if rest is None:
        return arguments
    named = value.get(rest.argument, arguments.by_name[rest.argument].default)
    try:
        other = arguments_of(lookup.find(named, lookup.by_name(rest.registry)))
    except lookup.NotRegistered:
        return Arguments(arguments.by_name, open=True)  # said where the name stands
    return Arguments({**other.without(*rest.supplied).by_name, **arguments.by_name}, other.open)


def _entries(
    owner: str, arguments: Arguments, parts: Mapping[str, Node], value: Mapping[str, Any], path: Path
) -> Iterator[Fault]:
    for key, item in value.items():
        part, argument = parts.get(key), arguments.by_name.get(key)
        if argument is None and part is None and not arguments.open:
            hint = instead(owner, key) or or_one_of(key, {*arguments.by_name, *parts})
            yield Fault((*path, key), f'{owner} has no argument {key!r}{hint}')
            continue
        if isinstance(part, Value):
            yield from faults_in(part, item, (*path, key))
            continue
        expected = misfit(item, argument) if argument else None
        if expected:
            yield Fault((*path, key), f'is {brief(item)}; expected {expected}')
        elif part is not None and item is not None:
            yield from faults_in(part, item, (*path, key))


def _missing(owner: str, arguments: Arguments, value: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    for name, argument in arguments.by_name.items():
        if argument.default is EMPTY and name not in value:
            hint = '' if argument.annotation in (EMPTY, Any) else f', {in_words(argument.annotation)}'
            yield Fault((*path, name), f'is missing; {owner} needs it{hint}')


def _wrong_kind(value: Any, path: Path, expected: str) -> Iterator[Fault]:
    """What is no plain data has been built by the user, who knows best."""
    if value is None or isinstance(value, str | int | float | list | tuple | set | Mapping):
        yield Fault(path, f'is {brief(value)}; expected {expected}')


_CHECKS: dict[type, Callable[[Any, Any, Path], Iterator[Fault]]] = {
    Pick: _pick,
    Value: _value,
    Name: _name,
    Many: _many,
    Loose: _loose,
    ByName: _by_name,
    Fields: _fields,
    Typed: _typed,
}
