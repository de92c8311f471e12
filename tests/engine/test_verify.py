"""The debug hook sees a deal that is wrong and a step that does not repeat."""

from pathlib import Path
from typing import Any

import pytest
import torch

from seg.datasets.sampler import GlobalBatchSampler
from seg.engine.train import train
from seg.models.unet import UNet
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config


def run(data: Path, work_dir: Path, fault: str, launcher: str) -> str:
    """The run's log."""
    hook = dict(type='VerifyHook', verify_step=2)
    config = tiny_config(data, work_dir, custom_hooks=[hook], **{'train_dataloader.batch_size': 2})
    with pytest.MonkeyPatch.context() as patch:
        if fault == 'deal':
            patch.setattr(GlobalBatchSampler, '_share', lambda self, epoch, order, step: [(epoch, 0), (epoch, 1)])
        elif fault == 'bits':
            patch.setattr(UNet, 'forward', _noisy(UNet.forward))
        train(config, launcher=launcher)
    return next(work_dir.glob('*/*.log')).read_text()


def _noisy(forward: Any) -> Any:
    calls = [0]

    def noisy(self: UNet, x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        on_this_rank = torch.distributed.get_rank() == 1
        return forward(self, x) * (1 + 1e-6 * calls[0] * on_this_rank)

    return noisy


def test_two_ranks_are_proved_disjoint_and_complete(tmp_path: Path) -> None:
    data = make_data(tmp_path / 'data', train=7, val=2)
    log, _ = run_ranks(2, run, data, tmp_path / 'run', '', 'pytorch')
    # 7 images, global batch 4: 2 steps deal 8 samples, the eighth is the first of the order again.
    assert 'Epoch 1: 7 samples over 2 ranks, none missed' in log
    digests = [line.split()[-1] for line in log.splitlines() if ': sha256 ' in line]
    # 3 steps x 2 ranks. The steps of one epoch share no batch.
    assert len(digests) == 6
    assert len(set(digests[:4])) == 4


def test_a_wrong_deal_is_seen(tmp_path: Path) -> None:
    data = make_data(tmp_path / 'data', train=8, val=2)
    with pytest.raises(RuntimeError, match=r'epoch 1: samples \[0, 1, 2'):
        run(data, tmp_path / 'run', 'deal', 'none')


def test_bits_that_differ_are_named_by_rank(tmp_path: Path) -> None:
    data = make_data(tmp_path / 'data', train=8, val=2)
    with pytest.raises(RuntimeError, match='step 2, computed twice on rank 1, differs in'):
        run_ranks(2, run, data, tmp_path / 'run', 'bits', 'pytorch')


def test_samples_that_stand_in_for_bad_files_are_no_wrong_deal(tmp_path: Path) -> None:
    data = make_data(tmp_path / 'data', train=8, val=2)
    for number in (0, 1, 7):  # two in a row, and the last, for which the first good one of all stands in
        (data / 'train' / f'train{number}.png').write_bytes(b'no picture')
    options = {'train_dataloader.dataset.max_bad_files': 3, 'custom_hooks': [dict(type='VerifyHook')]}
    train(tiny_config(data, tmp_path / 'run', **options))
    assert 'Epoch 2: 8 samples over 1 ranks, none missed' in next((tmp_path / 'run').glob('*/*.log')).read_text()


def test_a_step_that_is_not_finite_repeats_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data(tmp_path / 'data', train=8, val=2)
    forward = UNet.forward
    monkeypatch.setattr(UNet, 'forward', lambda self, x: forward(self, x) * (float('nan') if self.training else 1.0))
    options = {'optim_wrapper.skip_nonfinite': 4, 'custom_hooks': [dict(type='VerifyHook', verify_step=1)]}
    train(tiny_config(data, tmp_path / 'run', **options))
    log = next((tmp_path / 'run').glob('*/*.log')).read_text()
    assert '4 of 4 allowed' in log
