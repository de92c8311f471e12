"""Which arguments a class takes, its **kwargs followed to where they go."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from seg.config_schema.arguments import EMPTY, arguments_of


class Root:
    def __init__(self, depth: int, colour: str = 'red') -> None: ...


class Left(Root):
    def __init__(self, left: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)


class Right(Root):
    def __init__(self, right: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)


class Both(Left, Right):
    pass


class Fixed(Root):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(3, colour='blue', **kwargs)


class Named(Both):
    def __init__(self, **kwargs: Any) -> None:
        Root.__init__(self, **kwargs)


class Skipping(Both):
    def __init__(self, **kwargs: Any) -> None:
        super(Left, self).__init__(**kwargs)


class Picks(Root):
    def __init__(self, **options: Any) -> None:
        self.size = options.pop('size', 3)
        self.shape = options.get('shape')
        if 'name' in options:
            self.name = options['name']
        options['depth'] = 4
        options.setdefault('colour', 'green')
        super().__init__(**options)


class Swallows(Root):
    def __init__(self, depth: int, **kwargs: Any) -> None:
        super().__init__(depth)


class Hands(Root):
    def __init__(self, **kwargs: Any) -> None:
        self.options = kwargs


class Layer(nn.Module):
    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)


class Plain:
    pass


@dataclasses.dataclass
class Data:
    size: int
    name: str = ''


class Made(tuple):
    def __new__(cls, items: list) -> 'Made':
        return super().__new__(cls, items)


def function(alpha: int, *rest: Any, beta: float = 1.0) -> None: ...


@pytest.mark.parametrize(
    ('kind', 'names'),
    [
        (Root, 'depth colour'),
        # In the order of the bases: Both, Left, Right, Root.
        (Both, 'depth colour right left'),
        (Fixed, ''),
        (Named, 'depth colour'),
        (Skipping, 'depth colour right'),
        (Picks, 'depth colour size shape name'),
        (Swallows, 'depth'),
        (Layer, 'width'),
        (Plain, ''),
        (Data, 'size name'),
        (Made, 'items'),
        (function, 'alpha beta'),
    ],
)
def test_the_names_that_are_taken(kind: Any, names: str) -> None:
    found = arguments_of(kind)
    assert set(found.by_name) == set(names.split())
    assert not found.open


@pytest.mark.parametrize('kind', [Hands, dict, type('Meta', (type,), {'__call__': lambda *_, **__: 1})('X', (), {})])
def test_what_cannot_be_told_takes_anything(kind: Any) -> None:
    assert arguments_of(kind).open


def test_what_is_needed_and_annotated() -> None:
    found = arguments_of(Both).by_name
    assert found['depth'] == (int, EMPTY)
    assert found['colour'] == (str, 'red')
    assert found['right'] == (bool, False)


def test_classes_of_ours_that_pass_on_to_mmengine_and_torch() -> None:
    from seg.engine.hooks.early_stopping_hook import EarlyStoppingHook
    from seg.engine.loops import IterBasedTrainLoop
    from seg.engine.wrappers.ddp import DistributedDataParallel
    from seg.models.losses.dice import DiceLoss
    from seg.visualization.visualizer import SegVisualizer

    for kind, some in [
        (DistributedDataParallel, {'gradient_compression', 'static_graph', 'gradient_as_bucket_view'}),
        (EarlyStoppingHook, {'monitor', 'min_delta', 'patience', 'check_finite'}),
        (IterBasedTrainLoop, {'max_iters', 'val_interval'}),
        (DiceLoss, {'exponent', 'per', 'smooth', 'weight', 'class_weight'}),
        (SegVisualizer, {'vis_backends', 'fig_save_cfg'}),
        (torch.optim.AdamW, {'lr', 'betas', 'fused'}),
    ]:
        found = arguments_of(kind)
        assert not found.open, kind
        assert some <= set(found.by_name), kind
