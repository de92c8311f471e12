"""The logged loss is the global batch's (promise 2), read from what a real run writes.

Float64, images of unequal sizes, ignored pixels unevenly spread: a mean of the ranks' means is another number.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mmengine.dist import get_world_size
from PIL import Image

from seg.engine.train import train
from tests import double  # noqa: F401, registers DoubleSegmentor
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config

LOSSES = [
    dict(type='CrossEntropyLoss', class_weight=[0.4, 1.6]),
    dict(type='DiceLoss'),
    dict(type='DiceLoss', per='batch', name='pooled'),
]


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Image i is 4i pixels narrower than the first, and 2i of its rows are ignored."""
    root = make_data(tmp_path_factory.mktemp('boxes'), train=8, val=2, size=(24, 48))
    for number in range(8):
        for folder in ('train', 'train_masks'):
            file = root / folder / f'train{number}.png'
            pixels = np.array(Image.open(file))[:, : 48 - 4 * number]
            if folder == 'train_masks':
                pixels[: 2 * number] = 255
            Image.fromarray(pixels).save(file)
    return root


def logged(data: Path, work_dir: Path, interval: int) -> list[dict[str, Any]]:
    """The training lines of a run of 5 steps over two epochs, by whichever rank writes them."""
    changes = {
        'model': dict(type='DoubleSegmentor', losses=LOSSES),
        'train_dataloader.batch_size': 4 // get_world_size(),
        'train_cfg': dict(_delete_=True, by_epoch=False, max_iters=5, val_interval=5),
        'default_hooks.logger.interval': interval,
        'optim_wrapper.clip_grad': dict(max_norm=1.0),
        'sync_bn': True,
    }
    config = tiny_config(data, work_dir, **changes)
    train(config, launcher='none' if get_world_size() == 1 else 'pytorch')
    lines = map(json.loads, next(work_dir.glob('*/vis_data/scalars.json')).read_text().splitlines())
    names = ('iter', 'loss', 'loss_ce', 'loss_dice', 'loss_pooled', 'grad_norm')
    return [{name: line[name] for name in names} for line in lines if 'loss' in line]


def test_two_ranks_log_the_loss_of_the_global_batch(data: Path, tmp_path: Path) -> None:
    alone = logged(data, tmp_path / 'one', interval=1)
    assert [line['iter'] for line in alone] == [1, 2, 3, 4, 5]
    assert len({line['loss'] for line in alone}) == 5
    both, _ = run_ranks(2, logged, data, tmp_path / 'two', 1)
    assert both == [pytest.approx(line, rel=1e-9) for line in alone]
    # At a longer interval it is the mean of the steps since the last line.
    both, _ = run_ranks(2, logged, data, tmp_path / 'intervals', 3)
    expected = [sum(line['loss'] for line in alone[:3]) / 3, sum(line['loss'] for line in alone[3:]) / 2]
    assert [line['iter'] for line in both] == [3, 5]
    assert [line['loss'] for line in both] == pytest.approx(expected, rel=1e-9)
