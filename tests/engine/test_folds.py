"""`--fold I/K`: what it makes of a config, a fold that is trained, and the summary over the folds."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from mmengine.config import Config

from seg.config import load_config
from seg.engine.cli import main, parser_for_train
from seg.engine.fold_summary import as_plain, as_text, spread, summarise
from seg.engine.folds import apply_fold
from seg.engine.train import run_training, train
from seg.errors import UserError
from seg.registry import DATASETS
from tests.datasets.made import make_carvana
from tests.tiny import make_data, tiny_config

CONFIGS = Path(__file__).parents[2] / 'configs'


def named(config: Config, part: str) -> list[str]:
    record = DATASETS.build(config[f'{part}_dataloader'].dataset).split_record()
    parts = record.get('datasets', [record])
    return sorted(name for one in parts for name in one['names'])


def carvana(root: Path, fold: str) -> Config:
    config = load_config(CONFIGS / 'unet_carvana.py', [f'dataset.data_root={root}'])
    config.work_dir = 'runs/car'
    apply_fold(config, fold)
    return config


def test_cars_are_divided_and_the_validation_keeps_its_pipeline(tmp_path: Path) -> None:
    make_carvana(tmp_path, cars=6, views=2)
    folds = [carvana(tmp_path, f'{number}/3') for number in range(3)]
    held_out = [named(config, 'val') for config in folds]
    assert sorted(name for names in held_out for name in names) == sorted(named(folds[0], 'train') + held_out[0])
    assert [len({name[:12] for name in names}) for names in held_out] == [2, 2, 2]  # cars
    config = folds[1]
    assert config.work_dir == 'runs/car/fold_1'
    assert config.test_dataloader == config.val_dataloader
    assert config.val_dataloader.dataset.split == dict(part='val', fold='1/3', seed=0)
    assert config.val_dataloader.dataset.test_mode is True
    assert [step.type for step in config.val_dataloader.dataset.pipeline][1:3] == ['Resize', 'LoadAnnotations']
    assert 'test_mode' not in config.train_dataloader.dataset


def test_folds_are_of_the_training_images_where_validation_has_its_own(tmp_path: Path) -> None:
    make_data(tmp_path, train=6, val=4)
    config = tiny_config(
        tmp_path,
        tmp_path / 'run',
        **{'train_dataloader.dataset.percent': 50, 'train_dataloader.dataset.max_bad_files': 1},
        test_dataloader=dict(batch_size=1),
    )
    test = config.test_dataloader.to_dict()
    apply_fold(config, '2/3')
    assert len(named(config, 'val')) == 2
    assert all(name.startswith('train') for name in named(config, 'val'))
    assert len(named(config, 'train')) == 2  # half of the other four
    assert not set(named(config, 'val')) & set(named(config, 'train'))
    assert config.test_dataloader.to_dict() == test  # the test images stay apart


def test_each_of_several_roots_is_divided(tmp_path: Path) -> None:
    make_data(tmp_path / 'one', train=4)
    make_data(tmp_path / 'two', train=6)
    config = tiny_config(tmp_path / 'one', tmp_path / 'run')
    first = config.train_dataloader.dataset.to_dict()
    roots = [first, {**first, 'data_root': str(tmp_path / 'two')}]
    config.train_dataloader.dataset = dict(type='ConcatDataset', datasets=roots, repeats=[2, 1])
    apply_fold(config, '0/2')
    train, val = (DATASETS.build(config[f'{part}_dataloader'].dataset) for part in ('train', 'val'))
    assert (len(train), len(val)) == (2 * 2 + 3, 2 + 3)
    assert 'flip' in train[0]['metas']
    assert 'flip' not in val[0]['metas']
    assert {part['split']['fold'] for part in val.split_record()['datasets']} == {'0/2'}


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    config = tiny_config(make_data(tmp_path), tmp_path / 'run')
    with pytest.raises(UserError, match=r"fold='5/5': expected NUMBER/COUNT"):
        apply_fold(config, '5/5')
    config.train_dataloader.dataset = dict(type='ConcatDataset', datasets=[dict(type='BaseDataset')])
    with pytest.raises(UserError, match='the data set BaseDataset has no argument `split`'):
        apply_fold(config, '0/5')
    config.pop('val_dataloader')
    with pytest.raises(UserError, match=r'no val_dataloader\.dataset'):
        apply_fold(config, '0/5')


# ---- runs ----


def test_folds_are_trained_by_one_flag_and_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny_config(make_data(tmp_path / 'data', train=6), tmp_path / 'run', **{'train_cfg.max_epochs': 1})
    file = tmp_path / 'c.py'
    file.write_text(config.pretty_text)
    metrics = []
    for number in range(2):
        metrics.append(train(load_config(file), fold=f'{number}/2').metrics)
        record = json.loads((tmp_path / f'run/fold_{number}/split.json').read_text())
        assert (record['train']['images'], record['val']['images']) == (3, 3)
        assert record['val']['split']['fold'] == f'{number}/2'
    summary = as_plain(summarise(tmp_path / 'run'))
    assert (summary['count'], summary['folds']) == (2, [0, 1])
    values = [fold['mDice'] for fold in metrics]
    assert summary['scores']['mDice']['folds'] == pytest.approx(values)
    assert summary['scores']['mDice']['mean'] == pytest.approx(sum(values) / 2)
    assert summary['scores']['mDice']['std'] == pytest.approx(abs(values[0] - values[1]) / math.sqrt(2))
    # The same flag on the command line: this fold is there, so it is refused, and so is a fold that is none.
    assert main(parser_for_train(), run_training, [str(file), '--fold', '0/2']) == 2
    assert 'fold_0 holds checkpoints of an earlier run' in capsys.readouterr().err
    assert main(parser_for_train(), run_training, [str(file), '--fold', '2/2']) == 2
    assert "fold='2/2'" in capsys.readouterr().err


def logged(work_dir: Path, fold: int, lines: list[dict], count: int = 3, seed: int = 0) -> None:
    folder = work_dir / f'fold_{fold}'
    (folder / '20260101/vis_data').mkdir(parents=True)
    (folder / '20260101/vis_data/scalars.json').write_text('\n'.join(json.dumps(line) for line in lines))
    split = dict(part='val', fold=f'{fold}/{count}', seed=seed)
    (folder / 'split.json').write_text(json.dumps(dict(train={}, val=dict(datasets=[dict(split=split)]))))


def line(step: int, dice: float | None, loss: float = 1.0) -> dict[str, Any]:
    return {'val/mDice': dice, 'val_loss': loss, 'step': step}


def test_the_last_validation_of_each_fold_counts_or_the_best(tmp_path: Path) -> None:
    logged(tmp_path, 0, [dict(loss=9.0, iter=2), line(2, 0.9, 0.3), line(4, 0.7, 0.2)])
    logged(tmp_path, 1, [line(2, 0.6, 0.5), line(4, 0.8, 0.6)])
    logged(tmp_path, 2, [line(2, 0.9, 0.7), line(4, None, 0.1)])
    last = as_plain(summarise(tmp_path))
    assert list(last['scores']) == ['mDice', 'val_loss']
    # mDice: 0.7, 0.8 and none: mean 0.75, std sqrt(2 x 0.05^2 / 1) = 0.0707107
    assert last['scores']['mDice'] == dict(
        mean=pytest.approx(0.75), std=pytest.approx(0.0707107, abs=1e-7), folds=[0.7, 0.8, None]
    )
    # val_loss: 0.2, 0.6, 0.1: mean 0.3, std sqrt((0.01 + 0.09 + 0.04) / 2) = 0.2645751
    assert last['scores']['val_loss']['std'] == pytest.approx(0.2645751, abs=1e-7)
    best = as_plain(summarise(tmp_path, 'mDice'))
    assert best['scores']['mDice']['folds'] == [0.9, 0.8, 0.9]
    assert best['scores']['val_loss']['folds'] == [0.3, 0.6, 0.7]  # of the same validation
    assert as_plain(summarise(tmp_path, 'val_loss'))['scores']['val_loss']['folds'] == [0.2, 0.5, 0.1]
    assert json.loads(json.dumps(last, allow_nan=False)) == json.loads(json.dumps(last))


def test_the_table(tmp_path: Path) -> None:
    logged(tmp_path, 0, [line(2, 0.5)], count=3)
    logged(tmp_path, 2, [line(2, 0.75)], count=3)
    logged(tmp_path, 1, [dict(loss=1.0, iter=1)], count=3)
    assert as_text(summarise(tmp_path)).splitlines() == [
        '2 of 3 folds, the last validation of each; without fold 1, which has logged none',
        '              mean       std    fold 0    fold 2',
        'mDice       0.6250    0.1768    0.5000    0.7500',
        'val_loss    1.0000    0.0000    1.0000    1.0000',
    ]


def test_one_fold_has_no_spread() -> None:
    assert spread({0: 0.5}) == (0.5, None)
    assert spread({0: None, 1: math.nan}) == (None, None)


def test_what_cannot_be_summed_up_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match='no folder fold_0'):
        summarise(tmp_path)
    (tmp_path / 'fold_0').mkdir()
    with pytest.raises(UserError, match='none of its folds has logged'):
        summarise(tmp_path)
    logged(tmp_path / 'a', 0, [line(1, 0.5)])
    with pytest.raises(UserError, match=r'--best mIoU: .*fold_0 has logged no such score; it has mDice, val_loss'):
        summarise(tmp_path / 'a', 'mIoU')
    logged(tmp_path / 'a', 1, [line(1, 0.5)], count=5)
    with pytest.raises(UserError, match='not of one division'):
        summarise(tmp_path / 'a')
