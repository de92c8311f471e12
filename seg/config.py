"""Load a config, refuse what it cannot mean, and keep it as plain data."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mmengine.config
import numpy as np
from mmengine.config import DictAction
from mmengine.utils import import_modules_from_strings

from seg import config_file
from seg.config_check import TOP_LEVEL, check
from seg.config_merge import override
from seg.config_names import Names
from seg.config_shared import share_dataset
from seg.config_text import format_config
from seg.errors import UserError


class Config(mmengine.config.Config):
    """MMEngine's Config, printed as text that loads again and never taken for a lazy one (E17)."""

    @staticmethod
    def _is_lazy_import(filename: str) -> bool:
        return False

    @property
    def pretty_text(self) -> str:
        """Python text; what has no literal is a string there, as in `to_plain`."""
        return format_config(to_plain(self))


def load_config(path: str | Path, options: Sequence[str] | Mapping[str, Any] | None = None) -> Config:
    """The config as the Runner gets it: bases merged, `options` applied, `dataset` shared out, helper names gone, custom
    modules imported.

    `options` are `--cfg-options`: 'train_dataloader.dataset.pipeline.2.prob=0.3', or the same as {path: value}.
    Raises UserError for whatever the user must change, a top-level key that nothing reads included.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise config_file.missing(file, f'config {str(path)!r}')
    if file.suffix != '.py':
        raise UserError(f'config {str(path)!r}: a config is a Python file, whose name ends in .py')
    names = Names()
    values = config_file.read(file, names)
    chosen = parse_options(options)
    whole = share_dataset(override(values, chosen))
    check(whole, values, names, chosen)
    config = Config({key: value for key, value in whole.items() if key in TOP_LEVEL}, filename=str(path))
    _import_custom(config)
    return config


def parse_options(options: Sequence[str] | Mapping[str, Any] | None) -> dict[str, Any]:
    """Path -> value of each 'path=value'. A mapping has its values already.

    Values are read by MMEngine's rules (numbers, true, None, [1,2], (3,4), else a string), but a string keeps its
    spaces.
    """
    if isinstance(options, Mapping):
        return dict(options)
    parsed = {}
    for option in options or ():
        path, equals, text = option.partition('=')
        if not equals:
            raise UserError(f'--cfg-options {option}: expected key=value')
        parsed[path.strip()] = _parse_value(text, option)
    return parsed


def _parse_value(text: str, option: str) -> Any:
    if text.strip().startswith(('dict(', '{')):
        raise UserError(f'--cfg-options {option}: a dict is set key by key, as in model.network.depth=3')
    try:
        value = DictAction._parse_iterable(text)
    except AssertionError as error:
        raise UserError(f'--cfg-options {option}: {error}') from None
    return text.strip('\'"') if isinstance(value, str) else value


def _import_custom(config: Config) -> None:
    wanted = config.get('custom_imports')
    if not wanted:
        return
    if not isinstance(wanted, Mapping) or not {'imports'} <= set(wanted) <= {'imports', 'allow_failed_imports'}:
        raise UserError(f"custom_imports must be dict(imports=['package.module', ...]), got {wanted!r}")
    try:
        import_modules_from_strings(**wanted)
    except Exception as error:  # the modules are the user's and can raise anything
        cause = error.__context__ if isinstance(error, ImportError) and error.__context__ else error
        raise UserError(
            f'custom_imports: {error} ({type(cause).__name__}: {cause}); '
            'a module must be on PYTHONPATH, and importing it by hand must work'
        ) from error


def to_plain(value: Any) -> Any:
    """The same of dict, list, tuple, int, float, str, bool and None alone, to be kept in a checkpoint.

    A class under the key `type` becomes its bare name, any other class or function its dotted one; a set becomes a
    sorted list, an array lists; anything else becomes `str(value)`.
    """
    if isinstance(value, mmengine.config.Config):
        value = value._cfg_dict
    if isinstance(value, Mapping):
        return {
            to_plain(key): item.__name__ if key == 'type' and isinstance(item, type) else to_plain(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return (tuple if isinstance(value, tuple) else list)(to_plain(item) for item in value)
    if isinstance(value, set | frozenset):
        return sorted((to_plain(item) for item in value), key=repr)
    return _plain_leaf(value)


def _plain_leaf(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):  # also of an enumeration's members
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind(value)
    if hasattr(value, '__qualname__'):
        return f'{value.__module__}.{value.__qualname__}'
    return str(value)


def from_plain(plain: Mapping[str, Any], *keys: str) -> Config:
    """A config from what a checkpoint holds, or of its top-level `keys` alone: those that will be built.

    It is data from a stranger (E11): nothing of it is executed, `custom_imports` is dropped, and a `type` that is not a
    bare registered name is refused by UserError, because a registry would import and call whatever it names.
    """
    if not isinstance(plain, Mapping):
        raise UserError(f'the config in the checkpoint is a {type(plain).__name__}, not a dict; give --config')
    chosen = {key: plain[key] for key in (keys or plain) if key in plain and key != 'custom_imports'}
    _refuse_foreign_types(chosen, '')
    return Config(chosen)


def _refuse_foreign_types(node: Any, path: str) -> None:
    if isinstance(node, Mapping):
        for key, item in node.items():
            if key == '_scope_' or (key == 'type' and not _is_bare_name(item)):
                raise UserError(
                    f"the checkpoint's config says {path}{key}={item!r}, which is no registered name; it is not "
                    'trusted to import code, so give the config file itself by --config'
                )
            _refuse_foreign_types(item, f'{path}{key}.')
    elif isinstance(node, list | tuple):
        for number, item in enumerate(node):
            _refuse_foreign_types(item, f'{path}{number}.')


def _is_bare_name(name: Any) -> bool:
    """A registry falls back to importing a module of that name, so a name that some module has is no bare name."""
    return isinstance(name, str) and name.isidentifier() and importlib.util.find_spec(name) is None
