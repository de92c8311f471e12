import builtins
import json

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import VISUALIZERS as UPSTREAM_VISUALIZERS
from mmengine.registry import DefaultScope
from mmengine.visualization.vis_backend import BaseVisBackend

from seg.errors import UserError
from seg.registry import VISBACKENDS, VISUALIZERS
from seg.visualization.backends import LocalVisBackend
from seg.visualization.visualizer import SegVisualizer
from tests.ranks import run_ranks

IMAGE = np.zeros((4, 6, 3), dtype=np.uint8)


@VISBACKENDS.register_module()
class BrokenVisBackend(BaseVisBackend):
    """Fails in the one method that it is told to."""

    def __init__(self, save_dir=None, fails='', token=None):
        if fails == '__init__':
            raise OSError('no space')
        super().__init__(save_dir)
        self.fails = fails
        self.calls = 0

    def _called(self, method):
        self.calls += 1
        if method == self.fails:
            raise RuntimeError(f'{method} is broken')

    def _init_env(self): ...

    @property
    def experiment(self): ...

    def add_config(self, *args, **kwargs):
        self._called('add_config')

    def add_graph(self, *args, **kwargs):
        self._called('add_graph')

    def add_image(self, *args, **kwargs):
        self._called('add_image')

    def add_scalar(self, *args, **kwargs):
        self._called('add_scalar')

    def add_scalars(self, *args, **kwargs):
        self._called('add_scalars')

    def add_histogram(self, *args, **kwargs):
        self._called('add_histogram')

    def close(self):
        self._called('close')


def _use(visualizer):
    """Call everything that a run calls."""
    visualizer.add_config(Config(dict(a=1)))
    visualizer.add_graph(torch.nn.Identity(), [])
    visualizer.add_image('val/1', IMAGE, step=1)
    visualizer.add_scalar('one', 1.0, step=1)
    visualizer.add_scalars(dict(loss=1.0), step=1)
    visualizer.add_histogram('weights/w', torch.ones(3), step=1)
    visualizer.close()


@pytest.fixture
def said(monkeypatch):
    """The lines that the visualizer logs."""
    lines = []
    monkeypatch.setattr('seg.visualization.visualizer.print_log', lambda line, **kwargs: lines.append(line))
    return lines


METHODS = ['__init__', 'add_config', 'add_graph', 'add_image', 'add_scalar', 'add_scalars', 'add_histogram', 'close']


@pytest.mark.parametrize('method', METHODS)
def test_a_logger_that_fails_is_dropped_once_and_the_others_go_on(method, tmp_path, said):
    backends = [
        dict(type='BrokenVisBackend', fails=method),
        dict(type='LocalVisBackend'),
        dict(type='BrokenVisBackend', name='whole'),
    ]
    visualizer = SegVisualizer(vis_backends=backends, save_dir=str(tmp_path))
    whole = visualizer.get_backend('whole')
    _use(visualizer)
    _use(visualizer)
    assert list(visualizer._vis_backends) == ['LocalVisBackend', 'whole'] and whole.calls == 2 * 7
    assert len((tmp_path / 'vis_data' / 'scalars.json').read_text().splitlines()) == 4
    assert len(said) == 1 and said[0].startswith('BrokenVisBackend is switched off, the run goes on')
    assert f'{method} failed with' in said[0]


def test_a_missing_package_names_the_extra(tmp_path, said, monkeypatch):
    real = builtins.__import__

    def without_tensorboard(name, *args, **kwargs):
        if name.startswith(('tensorboard', 'torch.utils.tensorboard')):
            raise ModuleNotFoundError("No module named 'tensorboard'")
        return real(name, *args, **kwargs)

    visualizer = SegVisualizer(vis_backends=dict(type='TensorboardVisBackend'), save_dir=str(tmp_path))
    monkeypatch.setattr(builtins, '__import__', without_tensorboard)
    visualizer.add_scalar('a', 1.0)
    monkeypatch.undo()
    assert len(said) == 1 and "pip install 'seg[vis]'" in said[0] and not visualizer._vis_backends


def test_ctrl_c_inside_a_logger_is_no_failure_of_it():
    visualizer = SegVisualizer(vis_backends=BrokenVisBackend())
    visualizer.get_backend('BrokenVisBackend')._called = lambda method: (_ for _ in ()).throw(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        visualizer.add_scalar('a', 1.0)


@pytest.mark.parametrize(
    ('backends', 'words'),
    [
        (dict(type='TensorbordVisBackend'), 'did you mean TensorboardVisBackend'),
        (dict(), 'has the type None; expected one of'),
        (dict(type='BrokenVisBackend', tokn=1), "unexpected keyword argument 'tokn'"),
        ([dict(type='BrokenVisBackend')] * 2, 'has BrokenVisBackend twice'),
    ],
)
def test_a_misspelt_logger_is_the_users_error(backends, words):
    with pytest.raises(UserError, match=words):
        SegVisualizer(vis_backends=backends)


def test_the_config_is_left_as_it_was(tmp_path):
    backend = dict(type='LocalVisBackend', name='files')
    SegVisualizer(vis_backends=[backend], save_dir=str(tmp_path))
    assert backend == dict(type='LocalVisBackend', name='files')


@pytest.mark.parametrize('name', ['SegVisualizer', 'Visualizer'])
def test_both_names_mean_ours_in_our_scope(name):
    with DefaultScope.overwrite_default_scope('seg'):
        visualizer = UPSTREAM_VISUALIZERS.build(
            dict(type=name, name=f'scoped {name}', vis_backends=[dict(type='LocalVisBackend')], save_dir='x')
        )
    assert type(visualizer) is SegVisualizer and VISUALIZERS.get(name) is SegVisualizer
    assert type(visualizer.get_backend('LocalVisBackend')) is LocalVisBackend


def test_histograms_are_counted_only_where_they_are_shown(tmp_path, monkeypatch):
    visualizer = SegVisualizer(vis_backends=[dict(type='LocalVisBackend')], save_dir=str(tmp_path))
    monkeypatch.setattr('seg.visualization.visualizer.summarise', lambda values: pytest.fail('counted for nobody'))
    visualizer.add_histogram('weights/w', torch.ones(3))
    assert not visualizer.has_histograms


def _backends_of_a_rank(folder):
    backends = [dict(type='LocalVisBackend'), dict(type='BrokenVisBackend', fails='__init__')]
    visualizer = SegVisualizer(vis_backends=backends, save_dir=folder)
    _use(visualizer)
    return list(visualizer._vis_backends)


def test_only_rank_0_has_loggers(tmp_path):
    assert run_ranks(2, _backends_of_a_rank, str(tmp_path)) == [['LocalVisBackend'], []]
    lines = (tmp_path / 'vis_data' / 'scalars.json').read_text().splitlines()
    assert [json.loads(line) for line in lines] == [dict(one=1.0, step=1), dict(loss=1.0, step=1)]
