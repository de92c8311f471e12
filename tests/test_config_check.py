"""What a user is told of a config with many mistakes: all of them, once, each with the place where it was written."""

from pathlib import Path

import pytest
from mmengine.config import Config as UpstreamConfig

from seg.config import load_config, load_for_training
from seg.errors import UserError
from tests.tiny import tiny_config

BASE = """\
prob = 0.5
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomFlip',
         prob=prob),
    dict(type='PackSegInputs'),
]
dataset = dict(type='CarvanaDataset', data_root='cars')
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(batch_size=1, dataset=dict(pipeline=[], test_mode=True))
test_dataloader = val_dataloader
model = dict(
    type='Segmentor',
    num_classes=2,
    data_preprocessor=dict(type='SegPreprocessor', mean=[0], std=[1]),
    network=dict(type='UNet', in_channels=1, depth=4),
    losses=[dict(type='DiceLoss')],
)
train_cfg = dict(by_epoch=True, max_epochs=2)
val_cfg = test_cfg = dict()
val_evaluator = test_evaluator = dict(type='SegMetric')
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=1e-3))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path('base.py').write_text(BASE)
    return tmp_path


def said(child: str, options: list[str] | None = None) -> list[str]:
    Path('c.py').write_text(f"_base_ = 'base.py'\n{child}")
    with pytest.raises(UserError) as caught:
        load_config('c.py', options)
    return str(caught.value).splitlines()


def test_the_base_is_right() -> None:
    Path('c.py').write_text("_base_ = 'base.py'\n")
    assert load_for_training('c.py').model.network.depth == 4


def test_all_faults_come_at_once_with_their_places() -> None:
    child = (
        'custom_hoks = []\n'
        'model = dict(\n'
        '    num_classes=3,\n'
        '    network=dict(dpth=3, extra=dict(_delete_=True)),\n'
        ')\n'
        'dataset = dict(data_rot=1)\n'
    )
    options = [
        'train_dataloader.dataset.pipeline.2.prob=1.5',
        'train_dataloader.dataset.pipeline.7.x=1',
        'prob=0.1',
        'model.num_classes',
        'visualizer.vis_backends=[dict(type=NoBackend)]',
    ]
    assert said(child, options) == [
        # how the parts were put together
        'c.py:5: model.network.extra._delete_: there is nothing to delete, no base sets model.network.extra',
        '--cfg-options model.num_classes: expected key=value',
        '--cfg-options train_dataloader.dataset.pipeline.7.x=1: train_dataloader.dataset.pipeline.7: '
        'train_dataloader.dataset.pipeline is a list of 4, whose elements are train_dataloader.dataset.pipeline.0 to '
        'train_dataloader.dataset.pipeline.3',
        'c.py:2: custom_hoks: nothing reads this key; did you mean custom_hooks?',
        "--cfg-options prob=0.1: prob: changes nothing, because base.py:1 has already used 'prob' to make other values; "
        'set train_dataloader.dataset.pipeline.2.prob',
        # what they mean, in the order of the keys
        "c.py:7: train_dataloader.dataset.data_rot: CarvanaDataset has no argument 'data_rot'; did you mean data_root? "
        '(also val_dataloader.dataset.data_rot, test_dataloader.dataset.data_rot)',
        '--cfg-options train_dataloader.dataset.pipeline.2.prob=1.5: train_dataloader.dataset.pipeline.2.prob: '
        'RandomFlip.prob is 1.5; expected a number in 0..1',
        "c.py:5: model.network.dpth: UNet has no argument 'dpth'; did you mean depth?",
        "c.py:5: model.network.extra: UNet has no argument 'extra'; it takes act_cfg, base_channels, depth, dropout, "
        'in_channels, norm_cfg, num_classes, upsample',
        "--cfg-options visualizer.vis_backends=[{'type': 'NoBackend'}]: visualizer needs `type`, the name of a "
        'visualizer',
        'c.py:4: model.num_classes is 3, but train_dataloader.dataset has 2 classes (background, car); expected 2 (or 1, '
        'a sigmoid channel)',
    ]


def test_a_helpers_line_is_named_where_its_value_is_wrong() -> None:
    Path('base.py').write_text(BASE.replace('prob = 0.5', 'prob = 2'))
    assert said('') == [
        'base.py:6 (prob: base.py:1): train_dataloader.dataset.pipeline.2.prob: RandomFlip.prob is 2; expected a number in '
        '0..1'
    ]


def test_what_training_needs_is_asked_for_by_training_alone() -> None:
    Path('c.py').write_text("model = dict(type='UNet', num_classes=2)\nval_evaluator = dict(type='SegMetric')\n")
    load_config('c.py')
    with pytest.raises(UserError) as caught:
        load_for_training('c.py')
    validation = 'validation needs val_dataloader, val_cfg, val_evaluator. Without validation: val_evaluator=None'
    assert str(caught.value).splitlines() == [
        'train_dataloader is missing; training needs it',
        'train_cfg is missing; training needs it',
        'optim_wrapper is missing; training needs it',
        f'val_dataloader is missing, but there is val_evaluator; {validation}',
        f'val_cfg is missing, but there is val_evaluator; {validation}',
    ]


def test_a_config_made_in_python_passes_the_same_check(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, tmp_path)
    assert load_for_training(config) is config
    config.custom_hoks = []
    config.model.network.dpth = 3
    with pytest.raises(UserError) as caught:
        load_for_training(config)
    assert str(caught.value).splitlines() == [
        'custom_hoks: nothing reads this key; did you mean custom_hooks?',
        "model.network.dpth: UNet has no argument 'dpth'; did you mean depth?",
    ]


def test_mmengines_own_config_keeps_its_helpers_and_passes() -> None:
    text = BASE.replace('dataset=dict(', "dataset=dict(type='CarvanaDataset', ").replace(
        'dataset = dict', 'shared = dict'
    )
    Path('base.py').write_text(text + 'used = shared\nother = used\nwork_dir = str(other)\n')
    Path('c.py').write_text("_base_ = ['base.py']\nmodel = dict(network=dict(depth=3))\n")
    config = UpstreamConfig.fromfile('c.py')
    assert {'prob', 'train_pipeline', 'used'} <= set(config)
    assert load_for_training(config) is config
    config.model.network.depth = 'deep'
    with pytest.raises(UserError, match=r"^c\.py: model\.network\.depth is 'deep'; expected a whole number$"):
        load_for_training(config)


def test_a_note_is_said_once_a_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path('c.py').write_text("_base_ = 'base.py'\nlog_processor = dict(by_epoch=False)\n")
    note = 'note: c.py:2: log_processor is accepted and not used: LoggerHook writes the log\n'
    load_config('c.py')
    assert capsys.readouterr().err == note
    for name, value in (
        ('RANK', '1'),
        ('SEG_LAUNCHER_PID', '1'),
    ):  # another rank; a rank of our launcher, which said it
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            load_config('c.py')
            assert capsys.readouterr().err == ''
