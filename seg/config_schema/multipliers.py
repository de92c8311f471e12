"""What `paramwise_cfg` multiplies must be there: MMEngine reads it from the optimizer's config, not from its defaults."""

from collections.abc import Iterator, Mapping
from typing import Any

from seg.config_schema.wording import Fault

_KINDS = {'lr_mult': 'lr', 'decay_mult': 'weight_decay'}


def multiplier_faults(config: Mapping[str, Any]) -> Iterator[Fault]:
    """Multipliers of a learning rate or a weight decay that `optim_wrapper.optimizer` does not name."""
    wrapper = config.get('optim_wrapper')
    optimizer = wrapper.get('optimizer') if isinstance(wrapper, Mapping) else None
    if not isinstance(wrapper, Mapping) or not isinstance(optimizer, Mapping) or wrapper.get('constructor'):
        return
    for path in _multipliers(wrapper.get('paramwise_cfg')):
        base = next(base for ending, base in _KINDS.items() if path[-1].endswith(ending))
        if optimizer.get(base) is None:
            text = (
                f'multiplies optim_wrapper.optimizer.{base}, which the config does not give; set it, or leave this out'
            )
            yield Fault(('optim_wrapper', 'paramwise_cfg', *path), text)


def _multipliers(options: Any) -> Iterator[tuple[str, ...]]:
    if not isinstance(options, Mapping):
        return
    for key, value in options.items():
        if key == 'custom_keys':
            for name, inner in value.items() if isinstance(value, Mapping) else ():
                yield from ((key, str(name), *rest) for rest in _multipliers(inner))
        elif str(key).endswith(tuple(_KINDS)):
            yield (str(key),)
