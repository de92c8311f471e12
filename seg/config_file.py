"""A config file and its bases, executed and merged into one dict.

MMEngine's reader takes `import os` for its other config style (E17) and needs pkg_resources for a `package::` base
(D2); both are static methods that call each other by name, so the walk over the files is our own. Its substitutions
of `{{ fileDirname }}`, `{{ $VARIABLE:default }}` and `{{ _base_.name }}` are used as they are.
"""

import ast
import difflib
import importlib.util
import os
import tempfile
import traceback
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict

from seg.config_merge import inherit
from seg.config_names import BASE, Names
from seg.config_origin import Origin, file_origins, overlay
from seg.config_schema.wording import Fault, in_line
from seg.errors import UserError


@dataclass
class Source:
    """`values`: all top-level ones of a file and its bases, helpers included. `origin`: where each was written."""

    values: ConfigDict
    origin: Origin


def read(path: Path, names: Names, faults: list[str], chain: tuple[Path, ...] = ()) -> Source:
    """`names` learns what the files define and read, `faults` what of them can't be merged.

    Raises UserError for whatever else is wrong with the file or one of its bases.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100, resolve() would follow links to where no base is beside
    if path in chain:
        raise UserError(f'{shown(chain[-1])}: {BASE} goes in a circle, back to {shown(path)}')
    text, base_variables = _substituted(path)
    tree = _parsed(text, path)
    below, files = Source(ConfigDict(), Origin()), dict[str, Path]()
    for base in (_find_base(name, path) for name in _take_bases(tree, path)):
        source = read(base, names, faults, (*chain, path))
        _refuse_duplicates(source.values, files, base, path)
        files.update(dict.fromkeys(source.values, base))
        below.values.update(source.values)
        below.origin.parts.update(source.origin.parts)
    names.add_file(tree, shown(path), base_variables)
    own = _filled(_executed(tree, path, below.values), base_variables, below.values, path)
    origin = Origin('', file_origins(tree, shown(path), below.origin.parts, base_variables))
    noted: list[Fault] = []
    values = inherit(own, below.values, noted)
    faults += [in_line(fault, origin.at(fault.path) or shown(path)) for fault in noted]
    return Source(values, overlay(origin, below.origin, own, below.values))


def names_of(path: Path, chain: tuple[Path, ...] = ()) -> Names:
    """What `read` teaches, without running the files."""
    path, names = Path(os.path.abspath(path)), Names()  # noqa: PTH100
    text, base_variables = _substituted(path)
    tree = _parsed(text, path)
    for base in (_find_base(name, path) for name in _take_bases(tree, path)):
        if base not in chain:
            names.add(names_of(base, (*chain, path)))
    names.add_file(tree, shown(path), base_variables)
    return names


def shown(path: Path) -> str:
    """The path as a message shows it: relative to the working folder where it lies inside it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def missing(path: Path, what: str) -> UserError:
    """The error for a config that is not there, naming the one that is called most like it."""
    if path.is_dir():
        return UserError(f'{what} is a folder; a config is a Python file')
    others = [*Path('configs').rglob('*.py'), *path.parent.glob('*.py')]
    by_stem = {other.stem: shown(Path(os.path.abspath(other))) for other in others}  # noqa: PTH100
    near = difflib.get_close_matches(path.name.removesuffix('.py'), list(by_stem), n=1)
    hint = f'; did you mean {by_stem[near[0]]}?' if near else ''
    folder = '' if path.parent.is_dir() else f' (there is no folder {shown(path.parent)})'
    return UserError(f'{what} does not exist{folder}{hint}')


def _substituted(path: Path) -> tuple[str, dict[str, str]]:
    """The file's text after MMEngine's substitutions, and placeholder string -> dotted name in the bases."""
    try:
        text = path.read_text(encoding='utf-8')
        if '{{' not in text:
            return text, {}
        with tempfile.TemporaryDirectory() as folder:
            copy = str(Path(folder) / 'config.py')
            Config._substitute_predefined_vars(str(path), copy)
            Config._substitute_env_variables(copy, copy)
            base_variables = Config._pre_substitute_base_vars(copy, copy)
            return Path(copy).read_text(encoding='utf-8'), base_variables
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f'{shown(path)} cannot be read: {error}') from None
    except KeyError as error:  # an environment variable without a default
        raise UserError(f'{shown(path)}: {error.args[0]}') from None


def _parsed(text: str, path: Path) -> ast.Module:
    try:
        tree = ast.parse(text, filename=str(path))
    except SyntaxError as error:
        line = f'\n    {error.text.strip()}' if error.text else ''
        raise UserError(f'{shown(path)}:{error.lineno}: {error.msg}{line}') from None
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and 'read_base' in ast.unparse(node.context_expr):
            line_number = node.context_expr.lineno
            raise UserError(
                f"{shown(path)}:{line_number}: `with read_base()` is not supported; write {BASE} = ['base.py'] instead"
            )
    return tree


def _take_bases(tree: ast.Module, path: Path) -> list[str]:
    """Take the assignment of `_base_` out of the file: while it runs, the name holds the bases' values."""
    found: list[str] = []
    for statement in [*tree.body]:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if not any(isinstance(target, ast.Name) and target.id == BASE for target in targets):
            continue
        tree.body.remove(statement)
        try:
            value = ast.literal_eval(statement.value)  # type: ignore[attr-defined]
        except ValueError:
            value = None
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
            raise UserError(f'{shown(path)}:{statement.lineno}: {BASE} must be a file name or a list of file names')
    return list(found)


def _find_base(name: str, path: Path) -> Path:
    if '::' in name:
        return _find_in_package(name, path)
    base = Path(os.path.normpath(path.parent / name))
    if not base.is_file():
        raise missing(base, f'{shown(path)}: {BASE} {name!r}')
    return base


def _find_in_package(name: str, path: Path) -> Path:
    """`package::file`: in the package's own `configs`, or in the checkout that the package lies in."""
    package, _, file = name.partition('::')
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f'{shown(path)}: {BASE} {name!r}: there is no installed package {package!r}')
    root = Path(next(iter(spec.submodule_search_locations)))
    folders = [root / 'configs', root.parent / 'configs', root / '.mim' / 'configs']
    for folder in folders:
        if (folder / file).is_file():
            return folder / file
    here = next((folder for folder in folders if folder.is_dir()), folders[0])
    raise missing(here / file, f'{shown(path)}: {BASE} {name!r} (looked for in {here})')


def _refuse_duplicates(values: Mapping, origins: dict[str, Path], base: Path, path: Path) -> None:
    for key in values:
        if key in origins:
            raise UserError(
                f'{shown(path)}: two of its bases set {key!r}, {shown(origins[key])} and {shown(base)}; '
                'one must go, or one must be the base of the other'
            )


def _executed(tree: ast.Module, path: Path, bases: ConfigDict) -> dict[str, Any]:
    """The names that the file leaves behind, without what it imported or defined to compute them."""
    space: dict[str, Any] = {BASE: bases, '__file__': str(path), '__name__': path.stem}
    try:
        exec(compile(tree, str(path), 'exec'), space)
    except Exception as error:  # a config is the user's program and can raise anything
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = f':{frames[-1].lineno}' if frames else ''
        raise UserError(f'{shown(path)}{line}: {type(error).__name__}: {error}') from error
    tools = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
    own = {
        key: value
        for key, value in space.items()
        if key != BASE and not key.startswith('__') and not isinstance(value, tools)
    }
    for key, value in own.items():
        _refuse_modules(value, key, path)
    return own


def _refuse_modules(value: Any, key: str, path: Path) -> None:
    if isinstance(value, types.ModuleType):
        raise UserError(f'{shown(path)}: {key} is the module {value.__name__!r}, which can be no value of a config')
    items: Iterable = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for name, item in items:
        _refuse_modules(item, f'{key}.{name}', path)


def _filled(own: dict, base_variables: dict[str, str], bases: ConfigDict, path: Path) -> dict:
    if not base_variables:
        return own
    try:
        return Config._substitute_base_vars(own, base_variables, bases)
    except KeyError as error:
        raise UserError(f'{shown(path)}: {{{{ {BASE}.{error.args[0]} }}}}: no base sets it') from None
