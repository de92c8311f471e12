"""A run that goes on with more or fewer processes is the same run: the same images in each step, augmented alike, the
same losses up to the order of sums (promise 4)."""

import hashlib
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import Hook

from seg.engine.state import checkpoint, continuation
from seg.engine.train import train
from seg.errors import UserError
from seg.registry import HOOKS
from tests import double  # noqa: F401, registers DoubleSegmentor
from tests.engine.test_exact_resume import losses
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config

IMAGES, GLOBAL_BATCH, STEPS = 36, 6, 18  # 6 steps an epoch, 3 epochs
OPTIONS: dict[str, Any] = {
    'model.type': 'DoubleSegmentor',
    'train_cfg.max_epochs': 3,
    'sync_bn': True,
    # Inside the second epoch, and inside the third.
    'default_hooks.checkpoint': dict(type='CheckpointHook', interval=7, by_epoch=False),
    'custom_hooks': [dict(type='SampleHook')],
}


@HOOKS.register_module()
class SampleHook(Hook):
    """Notes each step's samples: index, and a digest of the image and mask as augmented."""

    steps: ClassVar[dict[int, list[tuple[int, str]]]] = {}

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        digests = [
            hashlib.sha256(image.numpy().tobytes() + mask.numpy().tobytes()).hexdigest()
            for image, mask in zip(data_batch['inputs'], data_batch['labels'])
        ]
        self.steps[runner.iter + 1] = [
            (meta['sample_idx'], one) for meta, one in zip(data_batch['metas'], digests, strict=True)
        ]


def run(data: str, work_dir: str, batch_size: int, ranks: int, resume: str | None) -> dict[int, list]:
    SampleHook.steps = {}
    config = tiny_config(Path(data), Path(work_dir), **OPTIONS, **{'train_dataloader.batch_size': batch_size})
    train(config, launcher='none' if ranks == 1 else 'pytorch', resume=resume)
    return SampleHook.steps


def on_ranks(ranks: int, data: Path, work_dir: Path, batch_size: int, resume: Path | None = None) -> dict[int, list]:
    """The samples of each step of the run, of all ranks, in the order of the ranks."""
    parts = run_ranks(ranks, run, str(data), str(work_dir), batch_size, ranks, resume and str(resume))
    return {step: [sample for part in parts for sample in part[step]] for step in parts[0]}


def test_two_then_three_then_one_process(tmp_path: Path) -> None:
    data = make_data(tmp_path / 'data', train=IMAGES, val=2, size=(16, 16))
    unbroken = on_ranks(1, data, tmp_path / 'unbroken', 6)
    two = on_ranks(2, data, tmp_path / 'two', 3)
    # The config still says 3 images per process: 3 x 3 and 1 x 3 would be other batches than 6.
    three = on_ranks(3, data, tmp_path / 'three', 3, tmp_path / 'two' / 'iter_7.pth')
    one = on_ranks(1, data, tmp_path / 'one', 3, tmp_path / 'three' / 'iter_14.pth')
    assert (list(two), list(three), list(one)) == ([*range(1, 19)], [*range(8, 19)], [*range(15, 19)])
    for samples in (two, three, one):
        assert samples == {step: unbroken[step] for step in samples}
    expected = dict(losses(tmp_path / 'unbroken'))
    for name, first in (('two', 1), ('three', 8), ('one', 15)):
        found = dict(losses(tmp_path / name))
        assert found == pytest.approx({step: expected[step] for step in range(first, STEPS + 1)}, rel=1e-9)
    weights = [checkpoint.load(tmp_path / name / 'epoch_3.pth')['state_dict'] for name in ('unbroken', 'one')]
    for key, value in weights[0].items():
        torch.testing.assert_close(weights[1][key], value, rtol=1e-7, atol=1e-9, msg=key)


def saved(world_size: int, global_batch: int) -> dict:
    return dict(meta=dict(seg=dict(world_size=world_size, global_batch=global_batch)))


def test_a_global_batch_that_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(dict(train_dataloader=dict(batch_size=3)))
    monkeypatch.setattr(continuation, 'get_world_size', lambda: 4)
    with pytest.raises(UserError, match=r'global batch of 6 images, which 4 process\(es\) cannot share'):
        continuation.keep_global_batch(config, saved(2, 6))
    assert config.train_dataloader.batch_size == 3


def test_accumulation_keeps_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(dict(train_dataloader=dict(batch_size=3), optim_wrapper=dict(accumulative_counts=2)))
    monkeypatch.setattr(continuation, 'get_world_size', lambda: 3)
    continuation.keep_global_batch(config, saved(2, 12))
    assert config.train_dataloader.batch_size == 2  # 12 = 3 processes x 2 micro-batches x 2


def test_on_as_many_processes_the_batch_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(dict(train_dataloader=dict(batch_size=2)))
    monkeypatch.setattr(continuation, 'get_world_size', lambda: 2)
    continuation.keep_global_batch(config, saved(2, 6))
    assert config.train_dataloader.batch_size == 2


def test_other_data_are_refused(tmp_path: Path) -> None:
    data = make_data(tmp_path / 'data', train=8, val=2, size=(16, 16))
    train(tiny_config(data, tmp_path / 'run'))
    for name in ('train', 'train_masks'):
        (data / name / 'train7.png').unlink()
    with pytest.raises(UserError, match='made with 8 training images, this run has 7'):
        train(tiny_config(data, tmp_path / 'run', **{'train_cfg.max_epochs': 4}), resume=True)
