"""What a config cannot mean, said before anything is built: all its faults at once.

The top-level names are looked at here; `seg.config_schema` knows what may stand under each.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from seg.config_names import Names
from seg.config_origin import Origin
from seg.config_schema.wording import Fault, did_you_mean, dotted, in_line

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
# What a run can't do without, and what goes together.
_FOR_TRAINING = ('model', 'train_dataloader', 'train_cfg', 'optim_wrapper')
_FOR_VALIDATION = ('val_dataloader', 'val_cfg', 'val_evaluator')
_NEVER_NONE = ('env_cfg', 'randomness', 'log_level', 'default_scope', 'resume')
_SHOWN_PATHS = 4


def content_faults(config: Mapping[str, Any]) -> Iterator[Fault]:
    """What is wrong below the top level: each key against what will read it, and keys that contradict each other."""
    from seg.config_schema import classes, monitors, multipliers, units
    from seg.config_schema.check import faults_in
    from seg.config_schema.sections import sections

    loop = [*units.loop_faults(config.get('train_cfg'))]
    nodes = sections(config)
    for key in _NEVER_NONE:
        if key in config and config[key] is None:
            yield Fault((key,), 'is None; leave it out to have the default')
    for key, value in config.items():
        if value is not None and key in nodes:
            for fault in faults_in(nodes[key], value, (key,)):
                if not (loop and fault.path[:1] == ('train_cfg',) and fault.path[1:] in units.LENGTH_PATHS):
                    yield fault
    yield from loop
    yield from units.counting_faults(config)
    yield from classes.class_count_faults(config)
    yield from classes.contradiction(config.get('model'))
    yield from monitors.monitor_faults(config)
    yield from multipliers.multiplier_faults(config)


def missing_for_training(config: Mapping[str, Any]) -> Iterator[Fault]:
    for key in _FOR_TRAINING:
        if config.get(key) is None:
            yield Fault((key,), 'is missing; training needs it')
    given = [key for key in _FOR_VALIDATION if config.get(key) is not None]
    if given:
        for key in _FOR_VALIDATION:
            if key not in given:
                text = f'is missing, but there is {given[0]}; validation needs {", ".join(_FOR_VALIDATION)}'
                yield Fault((key,), f'{text}. Without validation: {given[0]}=None')


def unread_keys(config: Mapping[str, Any], names: Names) -> Iterator[Fault]:
    """A top-level name that neither the Runner nor any expression of the config reads is a mistake (D9)."""
    for key in config:
        if key in TOP_LEVEL or key in names.feeds or key in names.imported or str(key).startswith('_'):
            continue
        yield Fault((key,), f'nothing reads this key{did_you_mean(key, TOP_LEVEL)}')


def idle_options(config: Mapping[str, Any], names: Names, options: Mapping[str, Any]) -> Iterator[Fault]:
    """The files have been run when options are applied: an option on a helper comes too late to change anything."""
    for option in options:
        helper = option.split('.')[0]
        if helper in TOP_LEVEL or helper not in config or helper not in names.feeds:
            continue
        fed = names.fed_by(helper, TOP_LEVEL)
        paths = [path for key in fed if key in config for path in _places(config[helper], config[key], key)]
        instead = ', '.join(paths[:_SHOWN_PATHS] or fed) + (', ...' if len(paths) > _SHOWN_PATHS else '')
        yield Fault(
            tuple(option.split('.')),
            f'changes nothing, because {names.lines[helper]} has already used {helper!r} to make other values; set '
            f'{instead or "what it was used for"}',
        )


def notices(config: Mapping[str, Any]) -> Iterator[Fault]:
    """What works, but not as it may be meant."""
    from seg.config_schema import monitors, units

    if config.get('log_processor') is not None:
        yield Fault(('log_processor',), 'is accepted and not used: LoggerHook writes the log')
    yield from units.beyond_the_run(config)
    for path in units.epoch_counting_checkpoints(config):
        text = 'counts epochs, and a run by steps ends none: only the last and the best are kept. Set by_epoch=False'
        yield Fault((*path, 'interval'), text)
    for path in monitors.idle_best(config):
        yield Fault(path, 'has no validation to go by: no best checkpoint is kept')


def lines(faults: Iterator[Fault] | list[Fault], origin: Origin) -> list[str]:
    """One line a fault; the same fault under several keys, which were written once, is said once."""
    grouped: dict[tuple[str, str, str], list[Fault]] = {}
    for fault in faults:
        place = origin.at(fault.path)
        last = str(fault.path[-1]) if fault.path else ''
        key = (place, last, fault.text) if place else ('', dotted(fault.path), fault.text)
        grouped.setdefault(key, []).append(fault)
    return [in_line(first, place) + _also(others) for (place, *_), (first, *others) in grouped.items()]


def _also(others: list[Fault]) -> str:
    return f' (also {", ".join(dotted(fault.path) for fault in others)})' if others else ''


def _places(wanted: Any, node: Any, path: str) -> Iterator[str]:
    if type(node) is type(wanted) and node == wanted:
        yield path
    elif isinstance(node, Mapping):
        for key, item in node.items():
            yield from _places(wanted, item, f'{path}.{key}')
    elif isinstance(node, list | tuple):
        for number, item in enumerate(node):
            yield from _places(wanted, item, f'{path}.{number}')
