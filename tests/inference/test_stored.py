"""A checkpoint's own config is data; what is missing or does not fit is said."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.config import Config

from seg.engine.state import checkpoint
from seg.errors import UserError
from seg.inference.device import choose_device, usable_precision
from seg.inference.predictor import Predictor
from seg.inference.stored import read_stored_model
from seg.models.weights import translate_key
from tests.inference.bright import PALETTE, config, save_checkpoint


def test_what_a_checkpoint_tells(tmp_path: Path) -> None:
    stored = read_stored_model(save_checkpoint(tmp_path / 'a.pth', precision='bf16'))
    assert (stored.precision, stored.classes) == ('bf16', ('class0', 'class1'))
    assert stored.palette.tolist() == PALETTE[:2]
    assert stored.config.model.network.type == 'Brightness'


def bare_weights(path: Path) -> Path:
    """As another program writes them: DataParallel's prefix, no config."""
    weights = checkpoint.load(save_checkpoint(path))['state_dict']
    torch.save({**{f'module.{key}': value for key, value in weights.items()}, 'mask_values': [0, 1]}, path)
    return path


def test_a_foreign_file_needs_a_config(tmp_path: Path) -> None:
    path = bare_weights(tmp_path / 'a.pth')
    with pytest.raises(UserError, match=r'does not tell of which model it is.*--config'):
        Predictor(path)
    predictor = Predictor(path, Config(config()), device='cpu')
    assert (predictor.precision, predictor.classes) == ('fp32', ('other', 'bright'))


def test_a_file_of_pytorch_unet_with_a_config(tmp_path: Path) -> None:
    stored = config()
    stored['model'].update(
        data_preprocessor=dict(type='SegPreprocessor', mean=[0.0] * 3, std=[255.0] * 3),
        network=dict(type='UNet', base_channels=4, depth=2),
    )
    own = Predictor(save_checkpoint(tmp_path / 'own.pth', stored), device='cpu')
    weights = own.segmentor.network.state_dict()
    blocks = ['inc', 'down1.maxpool_conv.1', 'down2.maxpool_conv.1', 'up1.conv', 'up2.conv']
    layers = [f'{block}.double_conv.{number}' for block in blocks for number in (0, 1, 3, 4)]
    tensors = ('weight', 'bias', 'running_mean', 'running_var')
    theirs = [f'{layer}.{name}' for layer in [*layers, 'up1.up', 'up2.up', 'outc.conv'] for name in tensors]
    foreign = {key: weights[translate_key(key)] for key in theirs if translate_key(key) in weights}
    torch.save({**foreign, 'mask_values': [0, 1]}, tmp_path / 'foreign.pth')
    photo = np.random.default_rng(0).integers(0, 256, (21, 30, 3), dtype=np.uint8)
    predicted = Predictor(tmp_path / 'foreign.pth', Config(stored), device='cpu')(photo)
    assert np.array_equal(predicted.probs, own(photo).probs)


def test_a_users_config_goes_before_the_stored_one(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / 'a.pth')
    file = tmp_path / 'config.py'
    loader = dict(config()['test_dataloader'])
    loader['dataset'] = dict(loader['dataset'], pipeline=[dict(type='LoadImageFromFile', channels=1)])
    file.write_text(f'model = {config()["model"]!r}\ntest_dataloader = {loader!r}\n')
    assert Predictor(path, file, device='cpu').pipeline.loader.channels == 1
    assert Predictor(path, device='cpu').pipeline.loader.channels == 3


def test_the_colours_of_a_known_data_set(tmp_path: Path) -> None:
    chosen = Config(config())
    chosen.test_dataloader.dataset = dict(type='CarvanaDataset', pipeline=chosen.test_dataloader.dataset.pipeline)
    stored = read_stored_model(bare_weights(tmp_path / 'a.pth'), chosen)
    assert (stored.classes, stored.palette.tolist()) == (('background', 'car'), [[0, 0, 0], [220, 20, 60]])


def test_the_validation_data_do_where_there_are_no_test_data_and_wrappers_are_opened(tmp_path: Path) -> None:
    stored = config()
    loader = stored.pop('test_dataloader')
    stored['val_dataloader'] = dict(dataset=dict(type='RepeatDataset', times=2, dataset=loader['dataset']))
    assert len(Predictor(save_checkpoint(tmp_path / 'a.pth', stored), device='cpu').pipeline.steps) == 2
    stored['val_dataloader'] = dict(dataset=dict(type='ConcatDataset', datasets=[loader['dataset']] * 2))
    assert len(Predictor(save_checkpoint(tmp_path / 'a.pth', stored), device='cpu').pipeline.steps) == 2


def test_class_weights_to_be_counted_are_not_counted(tmp_path: Path) -> None:
    stored = config()
    stored['model']['losses'][0]['class_weight'] = 'auto'
    save_checkpoint(tmp_path / 'a.pth')
    assert Predictor(tmp_path / 'a.pth', Config(stored), device='cpu').num_classes == 2


# ---- a stranger's file ----


def poisoned(path: Path, **changes: Any) -> Path:
    state = checkpoint.load(save_checkpoint(path))
    for key, value in changes.items():
        node, *rest = [state['meta']['seg'], *key.split('__')]
        for part in rest[:-1]:
            node = node[part]
        node[rest[-1]] = value
    checkpoint.save(state, path)
    return path


@pytest.mark.parametrize('place', ['config__model', 'config__model__network', 'config__test_dataloader__dataset'])
def test_a_stored_config_runs_nothing(tmp_path: Path, place: str) -> None:
    marker = tmp_path / 'was_run'
    harmful = dict(type='os.system', command=f'touch {marker}')
    if place.endswith('dataset'):
        harmful = dict(pipeline=[harmful])
    with pytest.raises(UserError, match=r'os\.system.*--config'):
        Predictor(poisoned(tmp_path / 'a.pth', **{place: harmful}), device='cpu')
    assert not marker.exists()


def test_custom_imports_are_not_imported_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'my_own_models.py').write_text('raise SystemExit("imported")')
    monkeypatch.syspath_prepend(tmp_path)
    path = poisoned(
        tmp_path / 'a.pth',
        config__custom_imports=dict(imports=['my_own_models']),
        config__model__network=dict(type='MyOwnNetwork'),
    )
    with pytest.raises(UserError, match=r'the model of .*MyOwnNetwork.*imported my_own_models.*--config'):
        Predictor(path, device='cpu')
    assert 'my_own_models' not in sys.modules


@pytest.mark.parametrize(
    ('changes', 'words'),
    [
        (dict(config='print(1)'), 'is a str, not a dict'),
        (dict(config__model=7), 'cannot be built'),
        (dict(config__model__losses=3), 'cannot be built'),
        (dict(config__model__network__colour=3), 'cannot be built'),
        (dict(config__test_dataloader=[1]), 'no test_dataloader.dataset.pipeline'),
        (dict(config__test_dataloader__dataset__pipeline=[3]), 'cannot be built'),
        (dict(config__test_dataloader__dataset__pipeline=[]), 'no test_dataloader.dataset.pipeline'),
        (dict(dataset_meta=dict(palette=[[0, 0, 300]])), 'palette'),
        (dict(dataset_meta=dict(palette=[1, 2])), 'palette'),
    ],
)
def test_nonsense_is_a_user_error(tmp_path: Path, changes: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Predictor(poisoned(tmp_path / 'a.pth', **changes), device='cpu')


def test_a_raw_state_dict_with_a_tensor_under_meta(tmp_path: Path) -> None:
    torch.save({'meta': torch.ones(1), 'state_dict': torch.ones(1)}, tmp_path / 'a.pth')
    with pytest.raises(UserError, match='--config'):
        Predictor(tmp_path / 'a.pth')


def test_weights_that_do_not_fill_the_model_are_refused(tmp_path: Path) -> None:
    state = checkpoint.load(save_checkpoint(tmp_path / 'a.pth'))
    del state['state_dict']['network.head.bias']
    checkpoint.save(state, tmp_path / 'a.pth')
    with pytest.raises(UserError, match=r'random weights[^$]*network\.head\.bias'):
        Predictor(tmp_path / 'a.pth', device='cpu')


# ---- where and how ----


@pytest.mark.parametrize('name', ['cuda:99', 'banana', 'cpu:x', 'meta2'])
def test_a_device_that_is_not_here(name: str) -> None:
    with pytest.raises(UserError, match=f'--device {name}: expected cpu, cuda'):
        choose_device(name)


def test_a_device_that_is_here() -> None:
    assert choose_device('cpu') == torch.device('cpu')
    assert choose_device(None) == choose_device('auto')


def test_precision_falls_back_where_the_device_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device('cpu')
    assert [usable_precision(name, cpu) for name in ('fp32', 'bf16')] == ['fp32', 'bf16']

    def unsupported(*args: object) -> None:
        raise RuntimeError('not implemented for Half')

    monkeypatch.setattr(torch.nn.functional, 'conv2d', unsupported)
    assert usable_precision('fp16', cpu) == 'fp32'
