"""Weights that `init_cfg` names: read as any checkpoint is, never fetched, never run."""

import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.runner import CheckpointLoader

from seg.engine.state import checkpoint
from seg.engine.train import build_runner
from seg.errors import UserError
from tests.tiny import make_data, tiny_config


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('boxes'), train=4, val=1, size=(16, 16))


def prepared(data: Path, work_dir: Path, file: str, **changes: Any) -> Any:
    init = dict(type='Pretrained', checkpoint=file)
    runner = build_runner(tiny_config(data, work_dir, **{'model.init_cfg': init, **changes}))
    try:
        runner.prepare()
    finally:
        runner.close()
    return runner.model


class Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_the_weights_are_taken(data: Path, tmp_path: Path) -> None:
    weights = {'network.head.bias': torch.tensor([3.0, 4.0])}
    checkpoint.save(dict(state_dict=weights), tmp_path / 'a.pth')
    before = dict(CheckpointLoader._schemes)
    assert prepared(data, tmp_path / 'run', str(tmp_path / 'a.pth')).network.head.bias.tolist() == [3.0, 4.0]
    assert before == CheckpointLoader._schemes


def test_a_program_is_refused_whatever_torch_is_told(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable turns torch's default around; MMEngine relies on that default."""
    monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', '1')
    torch.save(dict(state_dict=Touch(tmp_path / 'was_run')), tmp_path / 'evil.pth')
    with pytest.raises(UserError, match='holds more than plain types'):
        prepared(data, tmp_path / 'run', str(tmp_path / 'evil.pth'))
    assert not (tmp_path / 'was_run').exists()


@pytest.mark.parametrize('name', ['http://127.0.0.1:9/a.pth', 'torchvision://resnet18', 's3://bucket/a.pth'])
def test_nothing_is_fetched(data: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError('a connection')

    monkeypatch.setattr(socket, 'create_connection', never)
    with pytest.raises(UserError, match=f'{name}: nothing is fetched'):
        prepared(data, tmp_path / 'run', name)


def test_a_missing_file_is_a_user_error(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match='no checkpoint file at'):
        prepared(data, tmp_path / 'run', str(tmp_path / 'nowhere.pth'))
