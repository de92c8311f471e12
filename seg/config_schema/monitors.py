"""The scores that hooks and schedules wait for, and those that there are."""

from collections.abc import Iterator, Mapping
from typing import Any

from seg.config_schema import lookup
from seg.config_schema.arguments import EMPTY, arguments_of
from seg.config_schema.classes import classes_of
from seg.config_schema.units import each_hook, each_schedule, is_a
from seg.config_schema.wording import Fault, Path, did_you_mean

_LISTED = 12
_MONITORS = ('EarlyStoppingHook',)
_PLATEAU = 'ReduceOnPlateauParamScheduler'


def monitor_faults(config: Mapping[str, Any]) -> Iterator[Fault]:
    """Monitors that no metric of `val_evaluator` gives. A metric that is not ours may give anything."""
    if config.get('val_evaluator') is None:
        yield from _without_validation(config)
        return
    known = scores(config)
    if known is None:
        return
    for path, name in _monitored(config):
        if name not in known and name != 'auto' and not _may_be(name, config):
            listed = ', '.join([*(key for key in known if '.' not in key)][:_LISTED])
            hint = did_you_mean(name, known) or f'; there are {listed}'
            yield Fault(path, f'is {name!r}, which no metric gives{hint}')


def scores(config: Mapping[str, Any]) -> list[str] | None:
    """The names under which a validation's scores come, as far as known; None where a metric is not ours."""
    metrics = _metrics(config.get('val_evaluator'))
    found: list[str] = []
    for metric in metrics:
        if not isinstance(metric, Mapping) or not _is_seg_metric(metric):
            return None
        found += _of_seg_metric(metric, _class_names(config))
    losses = _loss_names(config.get('model')) or ()
    return [*found, 'val_loss', *(f'val_loss_{name}' for name in losses)]


def _may_be(name: str, config: Mapping[str, Any]) -> bool:
    """Whether a score could have that name, of a loss or a class that the config doesn't tell."""
    if name.startswith('val_loss_'):
        return _loss_names(config.get('model')) is None
    return '.' in name and not _class_names(config)


def _monitored(config: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    for path, hook in each_hook(config):
        if is_a(hook, 'HOOKS', 'CheckpointHook'):
            best = hook.get('save_best')
            several = list(enumerate(best)) if isinstance(best, list | tuple) else [(None, best)]
            for number, name in several:
                if isinstance(name, str):
                    yield (*path, 'save_best', *(() if number is None else (number,))), name
        elif is_a(hook, 'HOOKS', *_MONITORS) and isinstance(hook.get('monitor'), str):
            yield (*path, 'monitor'), hook['monitor']
    for path, schedule in each_schedule(config):
        if is_a(schedule, 'PARAM_SCHEDULERS', _PLATEAU):
            yield (*path, 'monitor'), _given_or_default(schedule, 'PARAM_SCHEDULERS', 'monitor')


def _without_validation(config: Mapping[str, Any]) -> Iterator[Fault]:
    """What waits for a score would wait for ever."""
    if config.get('train_cfg') is None:
        return
    waiting = [path for path, hook in each_hook(config) if is_a(hook, 'HOOKS', *_MONITORS)]
    waiting += [path for path, schedule in each_schedule(config) if is_a(schedule, 'PARAM_SCHEDULERS', _PLATEAU)]
    for path in waiting:
        text = 'waits for a score, but there is no validation: give val_dataloader, val_cfg and val_evaluator'
        yield Fault((*path, 'monitor'), text)


def idle_best(config: Mapping[str, Any]) -> Iterator[Path]:
    """`save_best` of checkpoint hooks of a training without validation."""
    if config.get('val_evaluator') is None and config.get('train_cfg') is not None:
        for path, hook in each_hook(config):
            if hook.get('save_best') is not None and is_a(hook, 'HOOKS', 'CheckpointHook'):
                yield (*path, 'save_best')


def _metrics(evaluator: Any) -> list[Any]:
    if isinstance(evaluator, Mapping) and 'metrics' in evaluator:
        evaluator = evaluator['metrics']
    return list(evaluator) if isinstance(evaluator, list | tuple) else [evaluator]


def _is_seg_metric(metric: Mapping[str, Any]) -> bool:
    try:
        kind = lookup.find(metric.get('type'), lookup.by_name('METRICS'))
    except lookup.NotRegistered:
        return False
    return getattr(kind, '__module__', '') == 'seg.evaluation.metric'


def _of_seg_metric(metric: Mapping[str, Any], class_names: tuple[str, ...]) -> list[str]:
    from seg.evaluation.confusion import SCORES

    wanted = _given_or_default(metric, 'METRICS', 'class_scalars')
    of_classes = wanted if isinstance(wanted, list | tuple) else ()
    names = [*SCORES, *(f'{key}.{name}' for key in of_classes for name in class_names)]
    prefix = metric.get('prefix')
    return [f'{prefix}/{name}' for name in names] if prefix else names


def _class_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    loader = config.get('val_dataloader')
    names = classes_of(loader.get('dataset')) if isinstance(loader, Mapping) else None
    names = tuple(map(str, names or ()))
    return ('background', *names) if len(names) == 1 else names


def _loss_names(model: Any) -> list[str] | None:
    losses = model.get('losses') if isinstance(model, Mapping) else None
    several = [losses] if isinstance(losses, Mapping) else losses
    if not isinstance(several, list | tuple):
        return None
    names: list[str] = []
    for loss in several:
        if not isinstance(loss, Mapping):
            return None
        try:
            kind = lookup.find(loss.get('type'), lookup.by_name('MODELS'))
        except lookup.NotRegistered:
            return None
        name = loss.get('name') or getattr(kind, 'default_name', None)
        if name is None:
            return None
        names.append(str(name))
    return names


def _given_or_default(config: Mapping[str, Any], registry: str, argument: str) -> Any:
    if argument in config:
        return config[argument]
    kind = lookup.find(config.get('type'), lookup.by_name(registry))
    found = arguments_of(kind).by_name.get(argument)
    return () if found is None or found.default is EMPTY else found.default
