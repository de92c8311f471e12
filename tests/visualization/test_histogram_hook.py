from types import SimpleNamespace

import pytest
import torch

from seg.engine.hooks.histogram_hook import HistogramHook
from seg.errors import UserError
from seg.registry import HOOKS


class _Histograms:
    """A visualizer that keeps the values it is to show."""

    def __init__(self, has_histograms=True):
        self.has_histograms = has_histograms
        self.seen = []

    def add_histogram(self, name, values, step):
        self.seen.append((name, values.detach().clone().tolist(), step))


def _run(steps, visualizer, **options):
    """SGD with rate 1 on w = 0, whose gradient is w - 1 before the clip to 0.25: w is 0.25 after the first step."""
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    runner = SimpleNamespace(
        model=model, visualizer=visualizer, iter=0, optim_wrapper=SimpleNamespace(optimizer=optimizer)
    )
    hook = HistogramHook(**options)
    hook.before_train(runner)
    for runner.iter in range(steps):
        hook.before_train_iter(runner, runner.iter)
        model.weight.grad = (model.weight.detach() - 1).clamp(-0.25, 0.25)
        optimizer.step()
        optimizer.zero_grad()
    hook.after_train(runner)
    return optimizer


def test_weights_and_gradients_are_shown_as_they_enter_the_step():
    visualizer = _Histograms()
    _run(5, visualizer, interval=2)
    assert visualizer.seen == [
        ('weights/weight', [[0.25]], 2),
        ('gradients/weight', [[-0.25]], 2),
        ('weights/weight', [[0.75]], 4),
        ('gradients/weight', [[-0.25]], 4),
    ]


@pytest.mark.parametrize('kind', ['weights', 'gradients'])
def test_either_can_be_left_out(kind):
    visualizer = _Histograms()
    _run(1, visualizer, interval=1, **{kind: False})
    assert [name.split('/')[0] for name, *_ in visualizer.seen] == [
        {'weights': 'gradients', 'gradients': 'weights'}[kind]
    ]


def test_nothing_is_collected_where_no_logger_has_histograms():
    visualizer = _Histograms(has_histograms=False)
    _run(3, visualizer, interval=1)
    assert visualizer.seen == []


def test_the_optimizer_is_left_as_it_was():
    assert not _run(1, _Histograms(), interval=1)._optimizer_step_pre_hooks


def test_frozen_parameters_have_no_gradient_to_show():
    visualizer = _Histograms()
    hook = HistogramHook(interval=1)
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    hook._record(SimpleNamespace(model=model, visualizer=visualizer), optimizer, 1)
    assert [name for name, *_ in visualizer.seen] == ['weights/weight']


def test_what_it_needs_is_said():
    with pytest.raises(UserError, match='interval is 0'):
        HistogramHook(interval=0)
    with pytest.raises(UserError, match='SegVisualizer'):
        HistogramHook(interval=1).before_train(SimpleNamespace(visualizer=object()))


def test_the_hook_is_found_by_its_name():
    assert HOOKS.get('HistogramHook') is HistogramHook
