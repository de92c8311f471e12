"""Finding the place of a run decodes nothing of what was seen before it, at step 10**6 as at step 1 (promise 4)."""

from pathlib import Path
from typing import Any

import pytest
from mmengine.config import Config

from seg.datasets.sampler import GlobalBatchSampler
from seg.datasets.segmentation import SegmentationDataset
from seg.engine.train import build_runner, train
from tests.tiny import make_data, tiny_config

FAR = 10**6


def config(data: Path, work_dir: Path) -> Config:
    loop = dict(_delete_=True, by_epoch=False, max_iters=FAR + 1, val_interval=10 * FAR)
    return tiny_config(data, work_dir, train_cfg=loop, **{'train_dataloader.batch_size': 3})


def test_step_a_million_and_one_reads_its_own_images_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data(tmp_path / 'data', train=8, val=1, size=(16, 16))
    runner = build_runner(config(data, tmp_path / 'far'))
    runner.prepare()
    runner.train_loop._iter = FAR  # type: ignore[union-attr]
    runner.save_checkpoint(str(tmp_path), 'iter_1000000.pth')
    runner.close()

    read: list[int] = []
    orders: list[int] = []
    prepare_data, order = SegmentationDataset.prepare_data, GlobalBatchSampler.order

    def note_index(self: Any, index: int) -> Any:
        read.append(index)
        return prepare_data(self, index)

    def note_epoch(self: Any, epoch: int) -> Any:
        orders.append(epoch)
        return order(self, epoch)

    monkeypatch.setattr(SegmentationDataset, 'prepare_data', note_index)
    monkeypatch.setattr(GlobalBatchSampler, 'order', note_epoch)
    train(config(data, tmp_path / 'on'), resume=str(tmp_path / 'iter_1000000.pth'))
    # 3 steps an epoch, and 1,000,000 = 3 x 333,333 + 1: the second step of epoch 333,333.
    assert orders == [333_333]
    expected = order(GlobalBatchSampler(8, 3, seed=0), 333_333)[3:6].tolist()
    assert read == [*expected, 0]  # then the one image of the last validation
