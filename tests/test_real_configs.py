"""The shipped configs on real data, two steps each at a tiny size; skipped where the data are not there."""

import math
from pathlib import Path

import pytest

from seg.config import load_config
from seg.engine.train import train
from tests.datasets.made import DATA

CONFIGS = Path(__file__).parents[1] / 'configs'
SMALL = [
    'model.network.base_channels=4', 'model.network.depth=2', 'train_cfg.max_epochs=1', 'train_cfg.val_interval=1',
    'train_dataloader.num_workers=0', 'val_dataloader.num_workers=0', 'train_dataloader.batch_size=2',
    'train_dataloader.dataset.indices=4', 'val_dataloader.dataset.indices=1',
]  # fmt: skip
CROPS = {
    'camvid': [f'train_dataloader.dataset.pipeline.{key}=(64,64)' for key in ('3.crop_size', '6.size')],
    'drive': ['train_dataloader.dataset.pipeline.2.crop_size=(64,64)'],
    'em': ['train_dataloader.dataset.pipeline.2.crop_size=(64,64)'],
}


@pytest.mark.skipif(not DATA.is_dir(), reason='the real files are not here')
@pytest.mark.parametrize('name', CROPS)
def test_a_config_of_few_lines_trains(name: str, tmp_path: Path) -> None:
    file = CONFIGS / f'unet_{name}.py'
    assert len(file.read_text().splitlines()) < 25
    config = load_config(file, [*SMALL, *CROPS[name], f'dataset.data_root={DATA / name}'])
    result = train(config, work_dir=tmp_path / 'run')
    assert 0 < result.metrics['mDice'] < 1
    assert math.isfinite(result.metrics['val_loss'])
