"""Which top-level names a config's files define, and what reads them.

This tells a helper (`crop_size = (512, 512)`, used further down) from a misspelt key, which nothing reads.
"""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

BASE = '_base_'


@dataclass
class Names:
    """`lines`: name -> 'file:line' of its last assignment. `feeds`: name -> the names whose values read it."""

    lines: dict[str, str] = field(default_factory=dict)
    feeds: dict[str, set[str]] = field(default_factory=dict)
    imported: set[str] = field(default_factory=set)

    def add_file(self, tree: ast.Module, file: str, base_variables: dict[str, str]) -> None:
        """`base_variables`: placeholder string -> the dotted name behind `_base_.` that it stands for."""
        for statement in tree.body:
            defined = set(stored_names(statement))
            for name in defined:
                self.lines[name] = f'{file}:{statement.lineno}'
            for name in _read(statement, base_variables):
                self.feeds.setdefault(name, set()).update(defined)
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self.imported.update((alias.asname or alias.name).split('.')[0] for alias in statement.names)

    def add(self, other: 'Names') -> None:
        """What a base's names add."""
        self.lines.update(other.lines)
        self.imported |= other.imported
        for name, fed in other.feeds.items():
            self.feeds.setdefault(name, set()).update(fed)

    def fed_by(self, name: str, wanted: Collection[str]) -> list[str]:
        """Those of `wanted` whose values come from `name`, directly or through other names."""
        reached, todo = set[str](), [name]
        while todo:
            new = self.feeds.get(todo.pop(), set()) - reached
            reached |= new
            todo += new
        return sorted(reached & set(wanted))


def stored_names(statement: ast.stmt) -> Iterator[str]:
    """The top-level names that a statement assigns, or assigns into."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            root: ast.expr = node
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name):
                yield root.id


def _read(statement: ast.stmt, base_variables: dict[str, str]) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and _is_base(node.value):
            yield node.attr
        elif isinstance(node, ast.Subscript) and _is_base(node.value) and isinstance(node.slice, ast.Constant):
            yield str(node.slice.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in base_variables:
            yield base_variables[node.value].split('.')[0]


def _is_base(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == BASE
