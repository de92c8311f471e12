"""Load a config, refuse what it cannot mean, and keep it as plain data."""

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mmengine.config
import numpy as np

from seg import config_file
from seg.config_check import (
    TOP_LEVEL,
    content_faults,
    idle_options,
    lines,
    missing_for_training,
    notices,
    unread_keys,
)
from seg.config_custom import import_custom
from seg.config_merge import nest, override
from seg.config_names import Names
from seg.config_origin import Origin, option_origin, overlay, share_origins
from seg.config_schema.wording import Fault
from seg.config_shared import share_dataset
from seg.config_text import format_config
from seg.config_value import parse_options
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


_LONGEST_SHOWN = 80
_LAUNCHED = 'SEG_LAUNCHER_PID'  # our launcher sets it for its ranks, and has read the config before them
Options = Sequence[str] | Mapping[str, Any] | None


@dataclass
class Examined:
    """A config put together, where each of its values was written, and a line for each thing that is wrong with it."""

    config: Config
    origin: Origin
    faults: list[str]


def load_config(path: str | Path, options: Options = None) -> Config:
    """The config as the Runner gets it: bases merged, `options` applied, `dataset` shared out, helper names gone, custom
    modules imported, every key checked against what will read it.

    `options` are `--cfg-options`: 'train_dataloader.dataset.pipeline.2.prob=0.3', or the same as {path: value}.
    Raises UserError for whatever the user must change, all of it at once.
    """
    return _accepted(examine(path, options))


def load_for_training(config: str | Path | mmengine.config.Config, options: Options = None) -> mmengine.config.Config:
    """The config to train by: that of a file, or one made in Python, which is checked as well and returned itself.

    Raises UserError also for what a training can't do without.
    """
    if not isinstance(config, mmengine.config.Config):
        found = examine(config, options)
        found.faults += lines(missing_for_training(found.config), found.origin)
        return _accepted(found)
    whole, origin = config._cfg_dict, Origin(str(config.filename or ''))
    noted = [*unread_keys(whole, _names_of(config)), *missing_for_training(whole)]
    return _accepted(Examined(config, origin, [*lines(noted, origin), *_contents(config, origin)]))


def read_config(path: str | Path, options: Options = None) -> Config:
    """The config as `load_config` puts it together, without the check of what it will build."""
    found = _resolve(path, options)
    _raise(found.faults)
    return found.config


def examine(path: str | Path, options: Options = None) -> Examined:
    """`load_config` that returns what is wrong with the config. UserError is left for what can't be read at all."""
    found = _resolve(path, options)
    found.faults += _contents(found.config, found.origin)
    return found


def _accepted(found: Examined) -> Any:
    _raise(found.faults)
    for line in lines(notices(found.config._cfg_dict), found.origin):
        _say(f'note: {line}')
    return found.config


def _contents(config: mmengine.config.Config, origin: Origin) -> list[str]:
    """What is wrong below the top level; imports what the config's `type`s need."""
    failed = import_custom(config)
    if failed:
        return [failed]  # what it would have registered can't be told from what is misspelt
    return lines(content_faults(config._cfg_dict), origin)


def _resolve(path: str | Path, options: Options) -> Examined:
    file = Path(path).expanduser()
    if not file.is_file():
        raise config_file.missing(file, f'config {str(path)!r}')
    if file.suffix != '.py':
        raise UserError(f'config {str(path)!r}: a config is a Python file, whose name ends in .py')
    names, faults, noted = Names(), list[str](), list[Fault]()
    source = config_file.read(file, names, faults)
    chosen = parse_options(options, faults)
    nested = nest(chosen, noted)
    given = option_origin(nested, {option: _option_place(option, value) for option, value in chosen.items()})
    whole = override(source.values, nested, noted)
    faults += lines(noted, given)
    origin = overlay(given, source.origin, nested, source.values)
    shared = share_dataset(whole)
    faults += lines([*unread_keys(shared, names), *idle_options(source.values, names, chosen)], origin)
    kept = {key: value for key, value in shared.items() if key in TOP_LEVEL}
    return Examined(Config(kept, filename=str(path)), share_origins(origin), faults)


def _option_place(option: str, value: Any) -> str:
    text = str(value)
    return f'--cfg-options {option}' + (f'={text}' if len(text) < _LONGEST_SHOWN else '=...')


def _raise(faults: list[str]) -> None:
    if faults:
        raise UserError('\n'.join(faults))


def _say(text: str) -> None:
    """Once a run: not on the other ranks, nor where our launcher has said it."""
    if os.environ.get('RANK', '0') == '0' and _LAUNCHED not in os.environ:
        print(text, file=sys.stderr, flush=True)


def _names_of(config: mmengine.config.Config) -> Names:
    """The helpers that MMEngine leaves in a config that it has read from a file."""
    path = Path(str(config.filename or ''))
    try:
        return config_file.names_of(path) if path.suffix == '.py' and path.is_file() else Names()
    except UserError:  # the file has changed since, or is one that only MMEngine reads
        return Names()


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
