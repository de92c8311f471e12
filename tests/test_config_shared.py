"""The top-level key `dataset`, which all data sets of a config share."""

from pathlib import Path

import pytest

from seg.config import Config, read_config
from seg.errors import UserError

BASE = """
dataset = dict(type='SegmentationDataset', data_root='base', split=dict(val_percent=10, seed=0))
train_dataloader = dict(batch_size=2, dataset=dict(split=dict(part='train'), pipeline=[]))
val_dataloader = dict(dataset=dict(split=dict(part='val'), test_mode=True, pipeline=[]))
test_dataloader = val_dataloader
"""


def load(folder: Path, child: str, options: list[str] | None = None, base: str = BASE) -> Config:
    (folder / 'base.py').write_text(base)
    (folder / 'child.py').write_text(f"_base_ = 'base.py'\n{child}\n")
    return read_config(folder / 'child.py', options)


def test_it_goes_into_every_data_set_and_is_gone(tmp_path: Path) -> None:
    config = load(tmp_path, "dataset = dict(data_root='mine', label_map={0: 0, 255: 1}, split=dict(val_percent=20))")
    assert 'dataset' not in config
    train, val, test = (config[f'{part}_dataloader'].dataset for part in ('train', 'val', 'test'))
    assert train == dict(
        type='SegmentationDataset',
        data_root='mine',
        label_map={0: 0, 255: 1},
        split=dict(part='train', val_percent=20, seed=0),
        pipeline=[],
    )
    assert val == test
    assert (val.split.part, val.split.val_percent, val.data_root) == ('val', 20, 'mine')
    assert config.train_dataloader.batch_size == 2
    val.split.seed = 5
    assert test.split.seed == train.split.seed == 0  # nothing is shared in memory


def test_what_a_data_set_says_itself_wins(tmp_path: Path) -> None:
    child = "val_dataloader = dict(dataset=dict(data_root='other', split=None, data_prefix=dict(img_path='val')))"
    config = load(tmp_path, child, ["dataset.data_root='/far away'", 'dataset.data_prefix.seg_map_path=masks'])
    assert (config.train_dataloader.dataset.data_root, config.val_dataloader.dataset.data_root) == (
        '/far away',
        'other',
    )
    assert config.val_dataloader.dataset.split is None
    assert config.val_dataloader.dataset.data_prefix == dict(img_path='val', seg_map_path='masks')


def test_wrapped_data_sets_are_reached_and_other_types_left_alone(tmp_path: Path) -> None:
    parts = "[dict(data_root='one'), dict(), dict(type='MyDataset', folder='x')]"
    config = load(
        tmp_path,
        "train_dataloader = dict(dataset=dict(_delete_=True, type='RepeatDataset', times=2, dataset=dict("
        f"type='ConcatDataset', datasets={parts})))",
    )
    concat = config.train_dataloader.dataset.dataset
    assert config.train_dataloader.dataset.times == 2
    assert [part.get('data_root') for part in concat.datasets] == ['one', 'base', None]
    assert concat.datasets[2] == dict(type='MyDataset', folder='x')
    assert 'data_root' not in concat


def test_a_helper_of_that_name_keeps_working_and_cannot_be_overridden(tmp_path: Path) -> None:
    """OpenMMLab's way: `dict(**dataset, ...)`. Its keys are in the data sets before an option comes."""
    base = "dataset = dict(type='A', data_root='x')\ntrain_dataloader = dict(dataset=dict(**dataset, pipeline=[]))\n"
    config = load(tmp_path, '', base=base)
    assert config.train_dataloader.dataset == dict(type='A', data_root='x', pipeline=[])
    with pytest.raises(UserError, match=r'dataset\.data_root: changes nothing'):
        load(tmp_path, '', ['dataset.data_root=y'], base=base)


def test_where_there_is_nothing_to_share_it_with_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r'child\.py:2: dataset: nothing reads this key'):
        load(tmp_path, "dataset = dict(data_root='x')", base='model = dict()')
