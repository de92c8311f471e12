"""What a config cannot mean, said before anything is built: all its faults at once.

A check is a function that yields faults; `check` runs them all.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from seg.config_file import did_you_mean
from seg.config_names import Names
from seg.errors import UserError

# What the Runner takes, what it and its helpers read from the config besides, and what the loader reads.
TOP_LEVEL = frozenset(
    """
    model work_dir train_dataloader val_dataloader test_dataloader train_cfg val_cfg test_cfg auto_scale_lr
    optim_wrapper param_scheduler val_evaluator test_evaluator default_hooks custom_hooks data_preprocessor load_from
    resume launcher env_cfg log_processor log_level visualizer default_scope randomness experiment_name

    model_wrapper_cfg sync_bn find_unused_parameters activation_checkpointing efficient_conv_bn_eval compile
    runner_type custom_imports check_data
    """.split()  # noqa: SIM905, thirty quoted words are no easier to read
)
_SHOWN_PATHS = 4


def check(config: Mapping, before_options: Mapping, names: Names, options: Mapping[str, Any]) -> None:
    """`config` is the whole, helpers and `--cfg-options` included. Raises UserError with every fault."""
    faults = [*_unread_keys(config, names), *_idle_options(before_options, names, options)]
    if faults:
        raise UserError('\n'.join(faults))


def _unread_keys(config: Mapping, names: Names) -> Iterator[str]:
    """A top-level name that neither the Runner nor any expression of the config reads is a mistake (D9)."""
    for key in config:
        if key in TOP_LEVEL or key in names.feeds or key in names.imported or key.startswith('_'):
            continue
        where = names.lines.get(key, '--cfg-options')
        yield f'{where}: nothing reads the key {key!r}{did_you_mean(key, sorted(TOP_LEVEL))}'


def _idle_options(config: Mapping, names: Names, options: Mapping[str, Any]) -> Iterator[str]:
    """The files have been run when options are applied: an option on a helper comes too late to change anything."""
    for option, value in options.items():
        helper = option.split('.')[0]
        if helper in TOP_LEVEL or helper not in config or helper not in names.feeds:
            continue
        fed = names.fed_by(helper, TOP_LEVEL)
        paths = [path for key in fed if key in config for path in _places(config[helper], config[key], key)]
        instead = ', '.join(paths[:_SHOWN_PATHS] or fed) + (', ...' if len(paths) > _SHOWN_PATHS else '')
        yield (
            f'--cfg-options {option}={value}: changes nothing, because {names.lines[helper]} has already used '
            f'{helper!r} to make other values; set {instead or "what it was used for"}'
        )


def _places(wanted: Any, node: Any, path: str) -> Iterator[str]:
    if type(node) is type(wanted) and node == wanted:
        yield path
    elif isinstance(node, Mapping):
        for key, item in node.items():
            yield from _places(wanted, item, f'{path}.{key}')
    elif isinstance(node, list | tuple):
        for number, item in enumerate(node):
            yield from _places(wanted, item, f'{path}.{number}')
