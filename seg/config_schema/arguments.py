"""Which arguments a class or a function takes by name, those included that its `**kwargs` pass on to its bases."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from seg.config_schema.forwarding import PassedOn, keyword_use

EMPTY: Any = inspect.Parameter.empty
# torch.nn.Module's constructor has **kwargs, and refuses whatever is in it.
_TAKES_NOTHING = ('builtins.object', 'torch.nn.modules.module.Module')
# Constructors whose **kwargs become the arguments of a class that another of their arguments names.
_FOR_NAMED_TYPE = {'mmengine.hooks.ema_hook.EMAHook': ('MODELS', 'ema_type', ('model',))}


class Argument(NamedTuple):
    """EMPTY is what is not said."""

    annotation: Any = EMPTY
    default: Any = EMPTY


class NamedType(NamedTuple):
    """Other keywords go to the type that `argument` names in `registry`, which is given `supplied` besides."""

    registry: str
    argument: str
    supplied: tuple[str, ...]


@dataclass(frozen=True)
class Arguments:
    """`open`: other names are taken too, as far as can be told. `order`: those that can be given by position."""

    by_name: dict[str, Argument] = field(default_factory=dict)
    open: bool = False
    order: tuple[str, ...] = ()
    rest: NamedType | None = None

    def without(self, *names: str) -> 'Arguments':
        return replace(self, by_name={key: arg for key, arg in self.by_name.items() if key not in names})


ANYTHING = Arguments(open=True)


def arguments_of(kind: Any) -> Arguments:
    """Of a class, a function, or anything else that can be called."""
    try:
        return _arguments_of(kind)
    except TypeError:  # unhashable
        return ANYTHING


@cache
def _arguments_of(kind: Any) -> Arguments:
    if not inspect.isclass(kind):
        return _of_function(kind, skip=0)
    if type(kind).__call__ is not type.__call__:
        return ANYTHING
    owner = _owner('__init__', kind.__mro__)
    if owner is object and _owner('__new__', kind.__mro__) is not object:
        return _of_function(kind, skip=0)
    return _of_constructor(kind, owner)


def _owner(method: str, classes: tuple[type, ...]) -> type:
    return next((owner for owner in classes if method in vars(owner)), object)


def _of_constructor(kind: type, owner: type) -> Arguments:
    """What `owner`'s constructor takes when a `kind` is made."""
    if _full_name(owner) in _TAKES_NOTHING:
        return Arguments()
    constructor = vars(owner)['__init__']
    own = _of_function(constructor, skip=1)
    keywords = _var_keyword(constructor)
    if keywords is None:
        return own
    use = keyword_use(constructor, keywords)
    rest = _FOR_NAMED_TYPE.get(_full_name(owner))
    names, takes_any = dict.fromkeys(use.names, Argument(default=None)), use.anywhere and rest is None
    found = NamedType(*rest) if rest else None
    for passed in use.passed_on:
        base = _of_base(kind, owner, constructor, passed)
        names = {**base.by_name, **names}
        takes_any, found = takes_any or base.open, found or base.rest
    return Arguments({**names, **own.by_name}, takes_any, own.order, found)


def _of_base(kind: type, owner: type, constructor: Any, passed: PassedOn) -> Arguments:
    classes = kind.__mro__
    start = classes.index(owner) + 1
    named = passed.base or passed.after
    if named is not None:
        known = getattr(constructor, '__globals__', {}).get(named)
        if known not in classes[classes.index(owner) :]:
            return ANYTHING
        start = classes.index(known) + (0 if passed.base else 1)
    if start <= classes.index(owner):
        return ANYTHING
    base = _of_constructor(kind, _owner('__init__', classes[start:]))
    return base.without(*base.order[: passed.positional], *passed.keywords)


def _of_function(function: Callable[..., Any], skip: int) -> Arguments:
    """`skip`: how many of the first parameters are not arguments, as self."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ANYTHING
    parameters = list(signature.parameters.values())[skip:]
    hints = _hints(function)
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    by_name = {
        parameter.name: Argument(hints.get(parameter.name, EMPTY), parameter.default)
        for parameter in parameters
        if parameter.kind in by_keyword
    }
    positional = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    order = tuple(parameter.name for parameter in parameters if parameter.kind in positional)
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    return Arguments(by_name, takes_any, order)


def _hints(function: Any) -> dict[str, Any]:
    """Annotations that are text are looked up in the function's module; what can't be found is not said."""
    if inspect.isclass(function):
        function = function.__new__ if _owner('__init__', function.__mro__) is object else function.__init__
    try:
        return typing.get_type_hints(function)
    except Exception:  # noqa: BLE001, an annotation can be any expression
        raw = getattr(function, '__annotations__', {})
        return {name: hint for name, hint in raw.items() if not isinstance(hint, str)}


def _var_keyword(function: Callable[..., Any]) -> str | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD), None)


def _full_name(kind: type) -> str:
    return f'{kind.__module__}.{kind.__qualname__}'
