"""Where each value of a config was written, read from the files' syntax without running them.

What a statement computes (a loop, a call, an addition) is said to come from that statement as a whole.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seg.config_names import BASE, stored_names
from seg.config_shared import LOADERS, SHARED

DELETE = '_delete_'
_COPIES = ('copy', 'deepcopy', 'dict', 'list', 'tuple', 'ConfigDict')


@dataclass
class Origin:
    """`place`: 'file:line' or '--cfg-options ...'. `parts`: the origins of a dict's or a list's items, where known."""

    place: str = ''
    parts: dict[Any, 'Origin'] = field(default_factory=dict)

    def at(self, path: Iterable[Any]) -> str:
        """The place of what `path` leads to, or of the nearest thing around it that has one."""
        node, place = self, self.place
        for key in path:
            found = node.parts.get(key)
            if found is None:
                break
            node, place = found, found.place or place
        return place


def file_origins(
    tree: ast.Module, file: str, bases: Mapping[str, Origin], base_variables: Mapping[str, str]
) -> dict[str, Origin]:
    """Name -> origin of each name that the file assigns.

    `bases`: the same of the file's bases. `base_variables`: placeholder string -> the dotted name behind `_base_.`.
    """
    reader = _Reader(file, Origin('', dict(bases)), base_variables)
    for statement in tree.body:
        reader.run(statement)
    return reader.names


def overlay(new: Origin, old: Origin | None, value: Any, under: Any) -> Origin:
    """The origin of `value` merged onto `under` by the rules of `seg.config_merge`."""
    if old is None or not isinstance(value, Mapping) or value.get(DELETE, False):
        return new
    if not isinstance(under, Mapping | list | tuple):
        return new
    merged = Origin(old.place, dict(old.parts))
    for key, item in value.items():
        place = key if isinstance(under, Mapping) and key in under else _index(key)
        inner = under.get(place) if isinstance(under, Mapping) else under[place] if _has(under, place) else None
        mine, theirs = new.parts.get(key, Origin(new.place)), old.parts.get(place, Origin(old.place))
        merged.parts[place] = overlay(mine, theirs, item, inner)
    return merged


def share_origins(origin: Origin) -> Origin:
    """What `seg.config_shared` does with values: the shared data set's go where a data set has none of its own."""
    shared = origin.parts.get(SHARED)
    if shared is None:
        return origin
    parts = dict(origin.parts)
    for key in LOADERS:
        loader = parts.get(key)
        if loader is not None and 'dataset' in loader.parts:
            dataset = _with_defaults(loader.parts['dataset'], shared)
            parts[key] = Origin(loader.place, {**loader.parts, 'dataset': dataset})
    return Origin(origin.place, parts)


def _with_defaults(own: Origin, shared: Origin) -> Origin:
    parts = {**shared.parts, **own.parts}
    for key in own.parts.keys() & shared.parts.keys():
        parts[key] = _with_defaults(own.parts[key], shared.parts[key])
    if 'dataset' in own.parts:
        parts['dataset'] = _with_defaults(own.parts['dataset'], shared)
    if 'datasets' in own.parts:
        several = own.parts['datasets']
        inner = {number: _with_defaults(part, shared) for number, part in several.parts.items()}
        parts['datasets'] = Origin(several.place, inner)
    return Origin(own.place, parts)


def option_origin(nested: Mapping[str, Any], places: Mapping[str, str], path: str = '') -> Origin:
    """Of options as nested dicts; `places`: dotted path -> what to call it."""
    origin = Origin(places.get(path, ''))
    if not origin.place:
        for key, item in nested.items():
            origin.parts[key] = option_origin(item, places, f'{path}.{key}' if path else key)
        if path:  # what several options set together is called by the first of them
            origin.place = next(iter(origin.parts.values())).place
    return origin


def _index(key: Any) -> Any:
    return int(key) if isinstance(key, str) and key.isdigit() else key


def _has(items: Sequence[Any], place: Any) -> bool:
    return isinstance(place, int) and place < len(items)


class _Reader:
    def __init__(self, file: str, bases: Origin, base_variables: Mapping[str, str]) -> None:
        self.file, self.bases, self.base_variables = file, bases, base_variables
        self.names: dict[str, Origin] = {}

    def run(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._assign(target, statement.value, statement)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._assign(statement.target, statement.value, statement)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._call_on(statement.value)
        else:
            for name in stored_names(statement):
                self.names[name] = Origin(self._place(statement))

    def _assign(self, target: ast.expr, value: ast.expr, statement: ast.stmt) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = self.origin(value)
        elif isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            pairs = zip(target.elts, values if len(values) == len(target.elts) else [value] * len(target.elts))
            for part, item in pairs:
                self._assign(part, item, statement)
        elif isinstance(target, ast.Attribute | ast.Subscript):
            around, key = self._resolve(target.value), _key_of(target)
            if around is not None and key is not None:
                around.parts[key] = self.origin(value, statement)

    def _call_on(self, call: ast.Call) -> None:
        """`name.append(item)` to a list that was written out; what other methods change can't be told."""
        around = self._resolve(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if around is None:
            return
        if call.func.attr == 'append' and len(call.args) == 1:  # type: ignore[attr-defined]
            around.parts[len(around.parts)] = self.origin(call.args[0])
        else:
            around.place, around.parts = self._place(call), {}

    def origin(self, node: ast.expr, place: ast.AST | None = None) -> Origin:
        """Of the value of an expression."""
        where = self._place(place or node)
        if isinstance(node, ast.Call):
            return self._of_call(node, where)
        if isinstance(node, ast.Dict):
            parts: dict[Any, Origin] = {}
            for key, item in zip(node.keys, node.values):
                if key is None:
                    parts.update(self.origin(item).parts)
                elif isinstance(key, ast.Constant):
                    parts[key.value] = self.origin(item, key)
            return Origin(where, parts)
        if isinstance(node, ast.List | ast.Tuple):
            return Origin(where, self._of_items(node.elts))
        named = self._resolve(node)
        if named is None:
            return Origin(where)
        # Used here, written there: both lines matter for a single value.
        return Origin(f'{where} ({self._spelt(node)}: {named.place})' if named.place else where, named.parts)

    def _spelt(self, node: ast.expr) -> str:
        placeholder = node.value if isinstance(node, ast.Constant) else None
        return f'{BASE}.{self.base_variables[placeholder]}' if placeholder else ast.unparse(node)  # type: ignore[index]

    def _of_call(self, node: ast.Call, where: str) -> Origin:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, 'id', '')
        if name not in _COPIES:
            return Origin(where)
        source = node.args[0] if node.args else None
        if name == 'copy' and source is None and isinstance(node.func, ast.Attribute):
            source = node.func.value
        parts = dict(self.origin(source).parts) if source is not None else {}
        for word in node.keywords:
            if word.arg is None:
                parts.update(self.origin(word.value).parts)
            else:
                parts[word.arg] = self.origin(word.value, word)
        return Origin(where, parts)

    def _of_items(self, items: Sequence[ast.expr]) -> dict[Any, Origin]:
        parts: dict[Any, Origin] = {}
        for item in items:
            if isinstance(item, ast.Starred):
                found = self.origin(item.value).parts
                if not found:
                    break  # how many there are is not known, so nor are the numbers of the rest
                parts.update({len(parts) + number: part for number, part in enumerate(found.values())})
            else:
                parts[len(parts)] = self.origin(item)
        return parts

    def _resolve(self, node: ast.expr) -> Origin | None:
        """What a name, or an item of it, was said to be; None for other expressions."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in self.base_variables:
            found: Origin | None = self.bases
            for key in self.base_variables[node.value].split('.'):
                found = found and found.parts.get(key)
            return found
        if isinstance(node, ast.Name):
            return self.bases if node.id == BASE else self.names.get(node.id)
        if isinstance(node, ast.Attribute | ast.Subscript):
            around, key = self._resolve(node.value), _key_of(node)
            return around.parts.get(key) if around is not None and key is not None else None
        return None

    def _place(self, node: ast.AST) -> str:
        return f'{self.file}:{getattr(node, "lineno", 0)}'


def _key_of(node: ast.Attribute | ast.Subscript) -> Any:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.slice.value if isinstance(node.slice, ast.Constant) else None
