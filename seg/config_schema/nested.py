"""Which arguments are configs of something that is built in turn, and from which registry."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from seg.config_schema.nodes import Anything, Loose, Many, Name, Node, Pick, Typed, Value

# Who builds what stands under their arguments as it stands there; others may add to it first.
_KNOWN_PACKAGES = ('seg', 'mmengine', 'mmcv', 'torch')

TRANSFORM, DATASET, MODEL = Typed('TRANSFORMS'), Typed('DATASETS'), Typed('MODELS')
VIS_BACKEND = Typed('VISBACKENDS', filled=frozenset({'save_dir'}), parts={'name': Value(str)})
_LAYER_SIZES = frozenset({'num_features', 'num_channels', 'normalized_shape'})


def _transforms(value: Any) -> Node:
    """A list of transforms, or of such lists."""
    return Many(Pick(_transforms)) if isinstance(value, list | tuple) else TRANSFORM


_BY_ARGUMENT: Mapping[str, Node] = {
    'pipeline': Many(TRANSFORM),
    'transforms': Pick(_transforms),
    'dataset': DATASET,
    'datasets': Many(DATASET),
    'data_preprocessor': MODEL,
    'norm_cfg': replace(MODEL, supplied=_LAYER_SIZES, parts={'requires_grad': Value(bool)}),
    'act_cfg': MODEL,
    'init_cfg': Many(Typed('WEIGHT_INITIALIZERS', parts={'override': Anything()}), alone=True),
    'vis_backends': Many(VIS_BACKEND, alone=True),
}
_BY_CLASS: Mapping[tuple[str, str], Node] = {
    ('Segmentor', 'network'): replace(MODEL, filled=frozenset({'num_classes'})),
    ('Segmentor', 'losses'): Many(MODEL, alone=True),
    ('SegLoss', 'class_weight'): Value(Sequence[float] | Literal['auto'] | None),
    ('EpochBasedTrainLoop', 'max_epochs'): Value(int | float),  # 1e3 is taken, too
    ('IterBasedTrainLoop', 'max_iters'): Value(int | float),
    ('EMAHook', 'ema_type'): Name('MODELS'),
    ('OptimWrapper', 'clip_grad'): Anything(),  # `sections` says what it is
    ('ProfilerHook', 'on_trace_ready'): Anything(),
    ('ProfilerHook', 'schedule'): Anything(),
}


def part_of(kind: Any, argument: Any, registry: str) -> Node:
    """What stands under an argument of `kind`, which is registered in `registry`."""
    bases = [base.__name__ for base in getattr(kind, '__mro__', ())]
    of_class = next((_BY_CLASS[base, argument] for base in bases if (base, argument) in _BY_CLASS), None)
    if of_class is not None:
        return of_class
    node = _BY_ARGUMENT.get(argument) if isinstance(argument, str) else None
    if node is None:
        return Loose(Typed(registry, guess=True, partial=True))
    known = str(getattr(kind, '__module__', '')).partition('.')[0] in _KNOWN_PACKAGES
    return node if known else Loose(Typed(_registry(node), guess=True, partial=True))


def _registry(node: Node) -> str:
    while isinstance(node, Many):
        node = node.item
    return node.registry if isinstance(node, Typed) else 'TRANSFORMS'
