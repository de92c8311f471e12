"""From the name under `type` to the class that it names, without importing what the config has not imported.

A registry's own `get` imports a module by the name of whatever is not registered.
"""

import importlib.util
import sys
from collections.abc import Iterator
from typing import Any

from mmengine.registry import Registry

from seg import registry as registries
from seg.config_schema.instead import CALLED_HERE
from seg.config_schema.wording import brief, nearest

UPSTREAM = 'mmengine'
_WORDS = {
    'dataset': 'data set',
    'model': 'model, network, loss or layer',
    'model_wrapper': 'model wrapper',
    'vis backend': 'logger (vis_backend)',
}
_CUSTOM = " (one of your own needs custom_imports = dict(imports=['my_module'], allow_failed_imports=False))"


class NotRegistered(Exception):  # noqa: N818, it is an answer
    """No such name. The message is for the user."""


def by_name(registry: str) -> Registry:
    """'HOOKS' -> seg.registry.HOOKS."""
    return getattr(registries, registry)


def noun(registry: Registry) -> str:
    """What the registry holds, as a message calls it: 'hook'."""
    return _WORDS.get(registry.name, registry.name)


def find(kind: Any, registry: Registry) -> Any:
    """The class or function that `type=kind` builds; None where that can't be known without importing it.

    Raises NotRegistered.
    """
    if not isinstance(kind, str):
        if callable(kind):
            return kind
        raise NotRegistered(f'is {brief(kind)}; expected the name of a {noun(registry)}')
    for level in _levels(registry):
        if kind in level.module_dict:
            return level.module_dict[kind]
    if '.' in kind:
        return _of_scope(kind, registry)
    raise NotRegistered(f'no {noun(registry)} is called {kind!r}{_elsewhere(kind, registry)}{_CUSTOM}')


def find_anywhere(name: str) -> Any:
    """The class of that name in any registry, or None."""
    found = (level.module_dict.get(name) for registry in _all() for level in _levels(registry))
    return next((kind for kind in found if kind is not None), None)


def names(registry: Registry) -> list[str]:
    return [name for level in _levels(registry) for name in level.module_dict]


def scopes() -> list[str]:
    """Where names can be looked up first and ours still be found: ours, and those below it."""
    return sorted({'seg', *(scope for registry in _all() for scope in registry.children)})


def _levels(registry: Registry | None) -> Iterator[Registry]:
    """The registry and those above it, with what they hold imported."""
    while registry is not None:
        registry.import_from_location()
        yield registry
        registry = registry.parent


def _all() -> list[Registry]:
    return [value for value in vars(registries).values() if isinstance(value, Registry)]


def _elsewhere(kind: str, registry: Registry) -> str:
    """Where else the name is, or what is spelt or meant like it."""
    near = CALLED_HERE.get(kind) or nearest(kind, names(registry))
    if near in names(registry):
        return f'; did you mean {near}?'
    others = [other for other in _all() if kind in names(other)]
    return f'; it is the name of a {noun(others[0])}' if others else ''


def _of_scope(kind: str, registry: Registry) -> Any:
    """'mmengine.LoggerHook', 'torch.optim.AdamW', or another's: looked up in what is imported already."""
    scope, _, name = kind.partition('.')
    root = list(_levels(registry))[-1]
    for scoped in (registry, root, *root.children.values()):
        if scoped.scope == scope and name in scoped.module_dict:
            return scoped.module_dict[name]
    if not scope.isidentifier() or importlib.util.find_spec(scope) is None:
        raise NotRegistered(f'{kind!r}: there is no package {scope!r}{_CUSTOM}')
    return _of_module(kind)


def _of_module(kind: str) -> Any:
    parts = kind.split('.')
    for count in range(len(parts) - 1, 0, -1):
        module = sys.modules.get('.'.join(parts[:count]))
        if module is None:
            continue
        found: Any = module
        for part in parts[count:]:
            found = getattr(found, part, None)
        if found is None and count == len(parts) - 1:
            near = nearest(parts[-1], vars(module))
            raise NotRegistered(
                f'{module.__name__} has no {parts[-1]!r}'
                + (f'; did you mean {module.__name__}.{near}?' if near else '')
            )
        return found if callable(found) else None
    return None
