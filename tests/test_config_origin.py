"""Where a value was written: files, lines, bases, helpers, options."""

from pathlib import Path

import pytest

from seg.config import examine, to_plain
from seg.config_text import format_origins

BASE = """\
size = (8, 8)
pipe = [
    dict(type='Load'),
    dict(type='Crop', size=size),
    dict(type='Flip',
         prob=0.5),
]
model = dict(
    type='A',
    network=dict(depth=4, width=2),
)
loader = dict(batch_size=4,
    dataset=dict(pipeline=pipe))
train_dataloader = loader
"""
CHILD = """\
import copy
_base_ = 'base.py'
extra = {'prob': 1.0, **dict(axis=2)}
model = dict(network=dict(width=3), head=dict(_delete_=False, a=_base_.model.network.depth))
val_dataloader = copy.deepcopy(_base_.loader)
val_dataloader['batch_size'] = 1
more = [*_base_.pipe, dict(type='Pad', **extra)]
more.append(dict(type='Pack'))
test_dataloader = dict(val_dataloader, dataset=dict(pipeline=more))
first, second = dict(a=1), dict(b=2)
train_cfg, val_cfg = first, second
test_cfg = dict(a=1) if first else dict(a=2)
env_cfg = dict(a=1)
env_cfg.update(b=2)
randomness = dict()
for key in ('x', 'y'):
    randomness[key] = 1
"""


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Path -> place, without the folder."""
    (tmp_path / 'base.py').write_text(BASE)
    (tmp_path / 'child.py').write_text(CHILD)
    options = ['train_dataloader.dataset.pipeline.1.size.0=9', 'model.network.width=5', 'optim_wrapper.a.b=1']
    found = examine(tmp_path / 'child.py', options)
    lines = format_origins(to_plain(found.config), found.origin).splitlines()
    pairs = (line.split('  # ') for line in lines)
    return {left.split(' = ')[0]: place.replace(f'{tmp_path}/', '') for left, place in pairs}


@pytest.mark.parametrize(
    ('path', 'place'),
    [
        ('model.type', 'base.py:9'),
        ('model.network.depth', 'base.py:10'),
        ('model.network.width', '--cfg-options model.network.width=5'),
        ('model.head.a', 'child.py:4 (_base_.model.network.depth: base.py:10)'),
        ('train_dataloader.batch_size', 'base.py:12'),
        # The value is a helper's: both lines are worth knowing.
        ('val_dataloader.dataset.pipeline.1.size', 'base.py:4 (size: base.py:1)'),
        # An option has changed one of its numbers.
        ('train_dataloader.dataset.pipeline.1.size.1', 'base.py:1'),
        ('train_dataloader.dataset.pipeline.1.size.0', '--cfg-options train_dataloader.dataset.pipeline.1.size.0=9'),
        ('train_dataloader.dataset.pipeline.2.prob', 'base.py:6'),
        ('val_dataloader.batch_size', 'child.py:6'),
        ('val_dataloader.dataset.pipeline.0.type', 'base.py:3'),
        ('test_dataloader.batch_size', 'child.py:6'),
        ('test_dataloader.dataset.pipeline.2.prob', 'base.py:6'),
        ('test_dataloader.dataset.pipeline.3.type', 'child.py:7'),
        ('test_dataloader.dataset.pipeline.3.prob', 'child.py:3'),
        ('test_dataloader.dataset.pipeline.3.axis', 'child.py:3'),
        ('test_dataloader.dataset.pipeline.4.type', 'child.py:8'),
        ('train_cfg.a', 'child.py:10'),
        ('val_cfg.b', 'child.py:10'),
        # What is computed comes from the whole statement.
        ('test_cfg.a', 'child.py:12'),
        ('env_cfg.b', 'child.py:14'),
        ('randomness.y', 'child.py:16'),
        ('optim_wrapper.a.b', '--cfg-options optim_wrapper.a.b=1'),
    ],
)
def test_the_place_of_a_value(places: dict[str, str], path: str, place: str) -> None:
    assert places[path] == place


def test_placeholders_and_what_is_shared_by_data_sets(tmp_path: Path) -> None:
    (tmp_path / 'base.py').write_text("width = 3\ndataset = dict(data_root='a',\n  split=dict(seed=0))\n")
    (tmp_path / 'c.py').write_text(
        "_base_ = 'base.py'\n"
        'model = dict(width={{_base_.width}})\n'
        'train_dataloader = dict(dataset=dict(split=dict(part=1)))\n'
        'val_dataloader = dict(dataset=dict(datasets=[dict(), dict(data_root=2)]))\n'
    )
    origin = examine(tmp_path / 'c.py', ['dataset.split.seed=4']).origin

    def place(*path: str | int) -> str:
        return origin.at(path).replace(f'{tmp_path}/', '')

    assert place('model', 'width') == 'c.py:2 (_base_.width: base.py:1)'
    assert place('train_dataloader', 'dataset', 'data_root') == 'base.py:2'
    assert place('train_dataloader', 'dataset', 'split', 'part') == 'c.py:3'
    assert place('train_dataloader', 'dataset', 'split', 'seed') == '--cfg-options dataset.split.seed=4'
    assert place('val_dataloader', 'dataset', 'datasets', 0, 'data_root') == 'base.py:2'
    assert place('val_dataloader', 'dataset', 'datasets', 1, 'data_root') == 'c.py:4'
    assert place('val_dataloader', 'dataset', 'datasets', 1, 'nothing', 'there') == 'c.py:4'


def test_a_replaced_dict_comes_from_where_it_was_replaced(tmp_path: Path) -> None:
    (tmp_path / 'base.py').write_text('model = dict(a=1, b=dict(c=2))\n')
    (tmp_path / 'c.py').write_text("_base_ = 'base.py'\n\nmodel = dict(_delete_=True, b=dict(d=3))\n")
    origin = examine(tmp_path / 'c.py').origin
    assert origin.at(('model', 'b', 'd')) == f'{tmp_path}/c.py:3'
    assert origin.at(('model', 'a')) == f'{tmp_path}/c.py:3'
