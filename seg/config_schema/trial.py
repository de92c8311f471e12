"""What is light is made once, from the config's arguments, to hear its own refusal: transforms, losses, optimizers.

Only code of this package, of torch's optimizers and of MMEngine's hooks and schedules runs, and no file is opened.
"""

import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from seg.config_schema.wording import Fault, Path
from seg.errors import UserError

Arguments = dict[str, Any]
_LIGHT = (
    'seg.datasets.transforms.',
    'seg.datasets.loading',
    'seg.models.losses.',
    'seg.models.preprocessor',
    'seg.evaluation.',
    'seg.engine.hooks.',
    'mmengine.hooks.',
)
_REFUSALS = (TypeError, ValueError, KeyError, IndexError, AssertionError, ArithmeticError)


def refused_by_itself(kind: Any, given: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    """What `kind` itself says against its arguments; nothing where making it would be more than a moment's work."""
    make = _maker(kind)
    if make is None:
        return
    arguments = {key: item for key, item in given.items() if not (key == 'class_weight' and item == 'auto')}
    refusal = _refusal(make, arguments)
    if refusal is not None:
        yield Fault((*path, *_culprit(make, arguments, refusal)), _signed(kind, refusal))


def _maker(kind: Any) -> Callable[[Arguments], Any] | None:
    make: Callable[..., Any] = kind
    module = str(getattr(kind, '__module__', ''))
    if not inspect.isclass(kind):
        return None
    if module.startswith(_LIGHT):
        return lambda given: None if any(map(_holds_configs, given.values())) else make(**given)
    if module.startswith('torch.optim'):
        return lambda given: make([_parameter()], **given)
    if module.startswith('mmengine.optim.scheduler'):
        return lambda given: _schedule(kind, given)
    if module == 'seg.models.unet':
        return lambda given: _network(kind, given)
    if module.startswith('seg.datasets.') and {'pipeline', 'lazy_init'} <= set(inspect.signature(kind).parameters):
        return lambda given: make(**{**given, 'pipeline': (), 'lazy_init': True})
    return None


def _parameter() -> Any:
    import torch

    return torch.nn.Parameter(torch.zeros(1, 1))


def _schedule(kind: Any, given: Arguments) -> Any:
    import torch

    optimizer = torch.optim.SGD([_parameter()], lr=1.0, momentum=0.9)
    return kind(optimizer, **{key: item for key, item in given.items() if key != 'convert_to_iter_based'})


def _network(kind: Any, given: Arguments) -> Any:
    """Without memory for its weights, and with its own layers: others could be anyone's."""
    import torch

    with torch.device('meta'):
        return kind(**{'num_classes': 2, **{key: item for key, item in given.items() if not _holds_configs(item)}})


def _refusal(make: Callable[[Arguments], Any], given: Arguments) -> Exception | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            make(given)
    except (UserError, *_REFUSALS) as error:
        return error
    except Exception:  # noqa: BLE001, what else stops it here need not stop the run: it is said then
        return None
    return None


def _culprit(make: Callable[[Arguments], Any], given: Arguments, refusal: Exception) -> Path:
    """The one argument that the refusal names, or without which there would be none; within it as far as it is named."""
    named = _named(given, refusal) or [
        key for key in given if _refusal(make, {k: v for k, v in given.items() if k != key}) is None
    ]
    found: list[Any] = []
    while len(named) == 1:
        found.append(named[0])
        given = given[named[0]]
        named = _named(given, refusal) if isinstance(given, Mapping) else []
    return tuple(found)


def _named(given: Mapping[Any, Any], refusal: Exception) -> list[Any]:
    return [key for key in given if re.search(rf'\b{re.escape(str(key))}\b', str(refusal))]


def _signed(kind: Any, refusal: Exception) -> str:
    text = str(refusal) or type(refusal).__name__
    return text if kind.__name__ in text else f'{kind.__name__}: {text}'


def _holds_configs(value: Any) -> bool:
    if isinstance(value, Mapping):
        return 'type' in value or any(map(_holds_configs, value.values()))
    return isinstance(value, list | tuple) and any(map(_holds_configs, value))
