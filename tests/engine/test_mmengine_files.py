"""MMEngine's own checkpoints hold Python objects: refused in one message, loaded behind `--trust-checkpoint` (D1, E11)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer, MessageHub
from mmengine.optim import CosineAnnealingLR, OptimWrapper
from mmengine.runner import save_checkpoint

from seg.engine.cli import parser_for_train
from seg.engine.state import checkpoint
from seg.engine.test import evaluate
from seg.engine.train import run_training, train
from seg.errors import UserError
from seg.inference.predictor import Predictor
from seg.registry import MODELS
from tests.tiny import CLASSES, make_data, tiny_config

RATE = 0.01


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('boxes'), train=8, val=2)


@pytest.fixture
def old_file(data: Path, tmp_path: Path) -> Path:
    """What MMEngine 0.10.7 writes after the first of two epochs of two steps, put together by its own classes."""
    config = tiny_config(data, tmp_path / 'old')
    torch.manual_seed(3)
    model = MODELS.build(config.model)
    wrapper = OptimWrapper(torch.optim.AdamW(model.parameters(), lr=RATE))
    schedule = CosineAnnealingLR(wrapper, T_max=4, eta_min=1e-5, by_epoch=False)
    hub = MessageHub('an old run')
    for step in range(2):
        wrapper.update_params(sum(parameter.square().sum() for parameter in model.parameters()))
        schedule.step()
        hub.update_scalar('train/loss', torch.tensor(1.0 / (step + 1)))
    hub.update_info('best_score_mDice', np.float64(0.25))
    hub.update_info('best_ckpt_mDice', '/elsewhere/best_mDice_epoch_1.pth')
    hub.update_info('last_ckpt', '/elsewhere/epoch_1.pth')
    assert isinstance(hub.state_dict()['log_scalars']['train/loss'], HistoryBuffer)
    whole = dict(
        meta=dict(
            epoch=1, iter=2, seed=np.int64(0), experiment_name='old', time='20240101_000000', mmengine_version='0.10.7',
            cfg=f'open({str(tmp_path / "was_run")!r}, "w")', dataset_meta=dict(classes=CLASSES),
        ),
        state_dict=model.state_dict(),
        message_hub=hub.state_dict(),
        optimizer=wrapper.state_dict(),
        param_schedulers=[schedule.state_dict()],
    )  # fmt: skip
    save_checkpoint(whole, str(tmp_path / 'epoch_1.pth'))
    return tmp_path / 'epoch_1.pth'


def load_from(data: Path, file: Path, trust: bool) -> Any:
    changes = {'load_from': str(file), 'train_cfg.max_epochs': 1, 'param_scheduler': None}
    changes['optim_wrapper.optimizer.lr'] = 0.0  # so that the weights stay as they were loaded
    return train(tiny_config(data, file.parent / 'new', **changes), trust_checkpoint=trust)


def resume(data: Path, file: Path, trust: bool) -> Any:
    return train(tiny_config(data, file.parent / 'new'), resume=str(file), trust_checkpoint=trust)


def score(data: Path, file: Path, trust: bool) -> Any:
    return evaluate(tiny_config(data, file.parent / 'test'), file, trust_checkpoint=trust)


def predict(data: Path, file: Path, trust: bool) -> Any:
    predictor = Predictor(file, tiny_config(data, file.parent / 'unused'), 'cpu', trust_checkpoint=trust)
    return predictor(next((data / 'val').iterdir()))


@pytest.mark.parametrize('reader', [load_from, resume, score, predict])
def test_refused_in_one_message(data: Path, old_file: Path, reader: Callable) -> None:
    with pytest.raises(UserError, match=r'epoch_1\.pth holds more than plain types .*--trust-checkpoint$'):
        reader(data, old_file, trust=False)


def test_loaded_when_trusted(data: Path, old_file: Path) -> None:
    weights = torch.load(old_file, weights_only=False)['state_dict']
    started = checkpoint.load(load_from(data, old_file, trust=True).last_checkpoint)
    for key, value in weights.items():
        if 'running_' not in key and 'num_batches' not in key:
            assert torch.equal(started['state_dict'][key], value), key
    assert 0 <= score(data, old_file, trust=True)['mDice'] <= 1
    assert set(np.unique(predict(data, old_file, trust=True).labels)) <= {0, 1}
    assert not (old_file.parent / 'was_run').exists()


def test_resumed_when_trusted(data: Path, old_file: Path) -> None:
    result = resume(data, old_file, trust=True)
    ended = checkpoint.load(result.last_checkpoint)
    assert (ended['meta']['epoch'], ended['meta']['iter']) == (2, 4)
    # AdamW has counted the two steps before and the two after.
    assert {float(one['step']) for one in ended['optimizer']['state'].values()} == {4.0}
    assert ended['message_hub']['runtime_info']['best_score_mDice'] == 0.25
    assert not (old_file.parent / 'was_run').exists()


def test_by_the_flag(data: Path, old_file: Path) -> None:
    config = old_file.parent / 'config.py'
    config.write_text(tiny_config(data, old_file.parent / 'new').pretty_text)
    args = [str(config), '--resume', str(old_file), '--cfg-options', 'train_cfg.max_epochs=2']
    with pytest.raises(UserError, match='--trust-checkpoint'):
        run_training(parser_for_train().parse_args(args))
    assert run_training(parser_for_train().parse_args([*args, '--trust-checkpoint'])) == 0
