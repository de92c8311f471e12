"""Epochs or optimizer steps: one run counts in one of them, and what counts in the other never comes to its turn."""

from collections.abc import Iterator, Mapping
from typing import Any

from seg.config_schema import lookup
from seg.config_schema.wording import Fault, Path, brief

_EPOCHS, _ITERS = 'max_epochs', 'max_iters'
LENGTH_PATHS = ((_EPOCHS,), (_ITERS,), ('by_epoch',))
_LENGTHS = {'EpochBasedTrainLoop': _EPOCHS, 'IterBasedTrainLoop': _ITERS}


def loop_faults(train_cfg: Any) -> Iterator[Fault]:
    """What contradicts itself in `train_cfg`: `by_epoch`, `type`, and the run's length."""
    if not isinstance(train_cfg, Mapping):
        return
    given = [key for key in (_EPOCHS, _ITERS) if train_cfg.get(key) is not None]
    if len(given) == 2:
        yield Fault(
            ('train_cfg', _ITERS),
            f'is {brief(train_cfg[_ITERS])} beside {_EPOCHS}={brief(train_cfg[_EPOCHS])}; a run has one length. To '
            f'replace what a base says: train_cfg=dict(_delete_=True, by_epoch=False, {_ITERS}=...)',
        )
        return
    if given and isinstance(train_cfg[given[0]], float) and train_cfg[given[0]] % 1:
        yield Fault(('train_cfg', given[0]), f'is {train_cfg[given[0]]}; expected a whole number')
    wanted = _wanted_length(train_cfg)
    if given and wanted is not None and given[0] != wanted:
        yield Fault(
            ('train_cfg', given[0]),
            f'is {brief(train_cfg[given[0]])}, but {_why(train_cfg)} counts {_unit(wanted)}; give {wanted}, or '
            f'by_epoch={given[0] == _EPOCHS}',
        )
    named = _LENGTHS.get(str(train_cfg.get('type')))
    by_epoch = train_cfg.get('by_epoch')
    if named and isinstance(by_epoch, bool) and by_epoch != (named == _EPOCHS):
        text = f'is {by_epoch}, but type={train_cfg["type"]!r} counts {_unit(named)}; leave one of the two out'
        yield Fault(('train_cfg', 'by_epoch'), text)


def counting_faults(config: Mapping[str, Any]) -> Iterator[Fault]:
    """Schedules and checkpoints in a run by steps that count epochs, of which such a run never ends one."""
    train_cfg = config.get('train_cfg')
    if not isinstance(train_cfg, Mapping):
        return
    if _counts_steps(train_cfg):
        for path, schedule in each_schedule(config):
            yield from _schedule_faults(schedule, path)
        for path, hook in each_hook(config):
            if hook.get('by_epoch') is True and is_a(hook, 'HOOKS', 'CheckpointHook'):
                text = 'is True, but train_cfg counts steps: no epoch ends. Set by_epoch=False, and interval in steps'
                yield Fault((*path, 'by_epoch'), text)
    else:
        yield from _late_schedules(config, train_cfg.get(_EPOCHS))


def epoch_counting_checkpoints(config: Mapping[str, Any]) -> Iterator[Path]:
    """Checkpoint hooks of a run by steps that count epochs because nobody has said otherwise."""
    train_cfg = config.get('train_cfg')
    if isinstance(train_cfg, Mapping) and _counts_steps(train_cfg):
        for path, hook in each_hook(config):
            if 'by_epoch' not in hook and 'interval' in hook and is_a(hook, 'HOOKS', 'CheckpointHook'):
                yield path


def beyond_the_run(config: Mapping[str, Any]) -> Iterator[Fault]:
    """What counts epochs further than a run by epochs goes, as if it counted steps. It can be meant."""
    train_cfg = config.get('train_cfg')
    if not isinstance(train_cfg, Mapping) or _counts_steps(train_cfg):
        return
    max_epochs, interval = train_cfg.get(_EPOCHS), train_cfg.get('val_interval')
    if _beyond(interval, max_epochs):
        text = f'is {interval} epochs, and the run has {max_epochs}: it is validated at its end alone'
        yield Fault(('train_cfg', 'val_interval'), text)
    for path, schedule in each_schedule(config):
        end = schedule.get('end')
        if schedule.get('by_epoch', True) and _beyond(end, max_epochs):
            text = f'is {end} epochs, and the run has {max_epochs}; if steps are meant, set by_epoch=False'
            yield Fault((*path, 'end'), text)


def each_hook(config: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    default, custom = config.get('default_hooks'), config.get('custom_hooks')
    places: list[tuple[Path, Any]] = []
    if isinstance(default, Mapping):
        places += [(('default_hooks', name), hook) for name, hook in default.items()]
    if isinstance(custom, list | tuple):
        places += [(('custom_hooks', number), hook) for number, hook in enumerate(custom)]
    yield from ((path, hook) for path, hook in places if isinstance(hook, Mapping))


def each_schedule(config: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    found = config.get('param_scheduler')
    if isinstance(found, Mapping):
        yield ('param_scheduler',), found
    elif isinstance(found, list | tuple):
        for number, schedule in enumerate(found):
            if isinstance(schedule, Mapping):
                yield ('param_scheduler', number), schedule


def is_a(config: Mapping[str, Any], registry: str, *names: str) -> bool:
    """Whether the type is one of `names` or derived from one."""
    try:
        kind = lookup.find(config.get('type'), lookup.by_name(registry))
    except lookup.NotRegistered:
        return False
    return any(base.__name__ in names for base in getattr(kind, '__mro__', ()))


def _schedule_faults(schedule: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    if schedule.get('convert_to_iter_based'):
        yield Fault(
            (*path, 'convert_to_iter_based'), 'is True, but train_cfg counts steps already; say by_epoch=False instead'
        )
    elif schedule.get('by_epoch', True) and not is_a(schedule, 'PARAM_SCHEDULERS', 'ReduceOnPlateauParamScheduler'):
        said = 'is True' if 'by_epoch' in schedule else 'is left at True'
        yield Fault(
            (*path, 'by_epoch'),
            f'{said}, but train_cfg counts steps: no epoch ends, so {schedule.get("type")} would never move. Set '
            'by_epoch=False, and begin and end in steps',
        )


def _late_schedules(config: Mapping[str, Any], max_epochs: Any) -> Iterator[Fault]:
    """Schedules by epoch that begin when the run has ended, which is their end where they don't name another."""
    for path, schedule in each_schedule(config):
        begin = schedule.get('begin', 0)
        if 'end' not in schedule and schedule.get('by_epoch', True) and _beyond(begin, max_epochs, at_once=True):
            text = f'is {begin} epochs, but the run ends after train_cfg.max_epochs={max_epochs}'
            yield Fault((*path, 'begin'), text)


def _beyond(value: Any, max_epochs: Any, at_once: bool = False) -> bool:
    if not (isinstance(value, int) and isinstance(max_epochs, int)) or max_epochs < 1:
        return False
    return value > max_epochs or (at_once and value == max_epochs)


def _counts_steps(train_cfg: Mapping[str, Any]) -> bool:
    return _wanted_length(train_cfg) == _ITERS or (_ITERS in train_cfg and 'by_epoch' not in train_cfg)


def _wanted_length(train_cfg: Mapping[str, Any]) -> str | None:
    """The length that `type`, or else `by_epoch`, asks for; None for a loop of the user's own, or where neither says."""
    if train_cfg.get('type') is not None:
        return _LENGTHS.get(str(train_cfg['type']))
    by_epoch = train_cfg.get('by_epoch')
    return None if by_epoch is None else _EPOCHS if by_epoch else _ITERS


def _why(train_cfg: Mapping[str, Any]) -> str:
    key = 'type' if train_cfg.get('type') is not None else 'by_epoch'
    return f'{key}={train_cfg[key]!r}'


def _unit(length: str) -> str:
    return 'epochs' if length == _EPOCHS else 'steps'
