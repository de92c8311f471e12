"""Where a constructor's `**kwargs` go, read from its source: to its base, to single look-ups, or who knows where."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_LOOKUPS = ('get', 'pop', 'setdefault')


class PassedOn(NamedTuple):
    """A base's constructor that the keywords go to.

    `base`: its name, or None for `super()`; `after`: the class named in `super(after, self)`; `keywords`, `positional`:
    what the call gives besides, which the keywords must not give again.
    """

    base: str | None
    after: str | None
    keywords: frozenset[str]
    positional: int


@dataclass
class KeywordUse:
    """`names` are looked up one by one. `anywhere`: they go where it can't be told what is taken."""

    passed_on: list[PassedOn] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    anywhere: bool = False


def keyword_use(constructor: Callable[..., Any], name: str) -> KeywordUse:
    """What `constructor` does with its `**name`. Keywords that it never looks at are swallowed: no use at all."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(constructor)))
    except (OSError, TypeError, SyntaxError):
        return KeywordUse(anywhere=True)
    use = KeywordUse()
    understood = sum(_understand(node, name, use) for node in ast.walk(tree))
    uses = sum(_is(node, name) for node in ast.walk(tree))
    use.anywhere = use.anywhere or understood < uses
    return use


def _understand(node: ast.AST, name: str, use: KeywordUse) -> int:
    """Note what this node does with the keywords; how many mentions of them that explains."""
    if isinstance(node, ast.Call) and any(word.arg is None and _is(word.value, name) for word in node.keywords):
        passed = _passed_on(node)
        if passed is None:
            return 0
        use.passed_on.append(passed)
        return 1
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and _is(node.value, name):
        return 1  # the constructor adds a keyword of its own
    key = _looked_up(node, name)
    if key is not None:
        use.names.add(key)
    return int(key is not None)


def _looked_up(node: ast.AST, name: str) -> str | None:
    """The key of `kwargs['key']`, `kwargs.pop('key')` or `'key' in kwargs`."""
    key: Any = None
    if isinstance(node, ast.Subscript) and _is(node.value, name):
        key = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is(node.func.value, name):
        key = node.args[0] if node.args and node.func.attr in _LOOKUPS else None
    elif isinstance(node, ast.Compare):
        key = node.left if _is(node.comparators[0], name) else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _passed_on(call: ast.Call) -> PassedOn | None:
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == '__init__'):
        return None
    keywords = frozenset(word.arg for word in call.keywords if word.arg)
    positional = next((i for i, arg in enumerate(call.args) if isinstance(arg, ast.Starred)), len(call.args))
    target = call.func.value
    if isinstance(target, ast.Call) and isinstance(target.func, ast.Name) and target.func.id == 'super':
        after = target.args[0].id if target.args and isinstance(target.args[0], ast.Name) else None
        return PassedOn(None, after, keywords, positional)
    if not isinstance(target, ast.Name):
        return None
    return PassedOn(target.id, None, keywords, positional - 1)


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
