"""The check of a whole config: what it says of each kind of mistake, word for word, and that it says nothing else."""
# ruff: noqa: E501, a message is one line

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from seg.config import load_config
from seg.config_check import TOP_LEVEL, content_faults
from seg.config_schema.sections import sections
from seg.registry import MODELS
from tests.config_schema.said import faults, notes
from tests.engine.test_training import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
TRAIN = 'train_dataloader.dataset'
STEP = f'{TRAIN}.pipeline.2'  # RandomFlip
_CUSTOM = " (one of your own needs custom_imports = dict(imports=['my_module'], allow_failed_imports=False))"


# ---- nothing is wrong ----


@pytest.mark.parametrize('path', sorted((ROOT / 'configs').glob('*.py')), ids=lambda path: path.stem)
def test_every_shipped_config_passes_without_a_word(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_config(path)
    assert capsys.readouterr().err == ''


@pytest.mark.parametrize('name', OPTIONS)
def test_every_option_that_trains_passes(name: str) -> None:
    assert faults(**OPTIONS[name]) == []
    assert notes(**OPTIONS[name]) == []


HABITS: dict[str, dict[str, Any]] = {
    'hooks': {
        'default_hooks': dict(
            timer=dict(type='IterTimerHook'),
            logger=dict(type='LoggerHook', interval=50),
            param_scheduler=dict(type='ParamSchedulerHook'),
            sampler_seed=dict(type='DistSamplerSeedHook'),
            checkpoint=dict(type='CheckpointHook', interval=2, save_best=['mIoU', 'IoU.box'], rule='greater'),
            visualization=None,
        )
    },
    'a hook with a priority': {'custom_hooks': [dict(type='EMAHook', momentum=1e-4, interval=2, priority='ABOVE_NORMAL')]},
    'profiler': {'custom_hooks': [dict(type='ProfilerHook', on_trace_ready=dict(type='tb_trace'), schedule=dict(wait=1))]},
    'environment': {
        'env_cfg': dict(
            cudnn_benchmark=True,
            mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
            dist_cfg=dict(backend='nccl'),
        ),
        'load_from': None, 'resume': False, 'log_level': 'INFO', 'default_scope': 'seg', 'launcher': 'none',
    },
    'samplers': {
        'train_dataloader.sampler': dict(type='InfiniteSampler', shuffle=True),
        'val_dataloader.sampler': dict(type='DefaultSampler', shuffle=False, round_up=False),
        'train_dataloader.persistent_workers': True, 'train_dataloader.pin_memory': True,
        'train_dataloader.drop_last': True, 'train_dataloader.prefetch_factor': 4,
        'val_dataloader.collate_fn': dict(type='pseudo_collate'),
    },
    'loggers': {
        'visualizer': dict(
            type='SegVisualizer',
            name='visualizer',
            vis_backends=[
                dict(type='LocalVisBackend'),
                dict(type='TensorboardVisBackend', save_dir='runs'),
                dict(type='WandbVisBackend', name='w', init_kwargs=dict(project='seg')),
            ],
        )
    },
    'optimizer': {
        'optim_wrapper': dict(
            type='AmpOptimWrapper',
            loss_scale=dict(init_scale=512.0),
            optimizer=dict(type='SGD', lr=0.01, momentum=0.9, weight_decay=0.0005),
            clip_grad=dict(type='value', clip_value=0.5),
            paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys={'network.head': dict(lr_mult=10)}),
        ),
        'param_scheduler': [
            dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500),
            dict(type='PolyLR', eta_min=1e-4, power=0.9, begin=1, end=2, by_epoch=True),
        ],
    },
    'a class for a type': {'optim_wrapper.optimizer': dict(type=torch.optim.AdamW, lr=1e-3, betas=[0.9, 0.95])},
    'a dotted type': {'optim_wrapper.optimizer': dict(type='torch.optim.Adam', lr=1e-3)},
    'a scoped type': {'custom_hooks': [dict(type='mmengine.EmptyCacheHook', after_epoch=True)]},
    'layers': {
        'model.network.norm_cfg': dict(type='GN', num_groups=2, requires_grad=True),
        'model.network.act_cfg': dict(type='LeakyReLU', negative_slope=0.1),
        'model.init_cfg': dict(type='Kaiming', layer='Conv2d'),
    },
    'steps': {
        'train_cfg': dict(type='IterBasedTrainLoop', max_iters=4e4, val_interval=4000, _delete_=True),
        'param_scheduler': [dict(type='PolyLR', power=0.9, begin=0, end=40000, by_epoch=False)],
        'default_hooks.checkpoint': dict(type='CheckpointHook', by_epoch=False, interval=4000, save_best='mIoU'),
    },
    'nested transforms': {
        f'{TRAIN}.pipeline': [
            dict(type='LoadImageFromFile'),
            dict(type='LoadAnnotations'),
            dict(type='RandomChoice', transforms=[[dict(type='RandomFlip', prob=1.0)], [dict(type='RandomFlip', prob=0.0)]]),
            dict(type='RandomApply', transforms=dict(type='PhotoMetricDistortion'), prob=0.5),
            dict(type='PackSegInputs'),
        ]
    },
    'wrapped data': {TRAIN: dict(type='RepeatDataset', times=2, _delete_=True, dataset=dict(type='CarvanaDataset', pipeline=[]))},
    'several metrics': {'val_evaluator': [dict(type='SegMetric'), dict(type='SegMetric', prefix='b')]},
    'an evaluator': {'val_evaluator': dict(type='Evaluator', metrics=[dict(type='SegMetric')])},
    'no validation': {'val_dataloader': None, 'val_cfg': None, 'val_evaluator': None},
    'compile': {'compile': dict(mode='max-autotune', dynamic=False), 'activation_checkpointing': 'network.encoder.0'},
    'losses of the loss': {'custom_hooks': [dict(type='EarlyStoppingHook', monitor='val_loss_dice', rule='less')]},
}  # fmt: skip


@pytest.mark.parametrize('name', HABITS)
def test_what_users_of_openmmlab_write_passes(name: str) -> None:
    assert faults(**HABITS[name]) == []


def test_each_top_level_key_has_a_section() -> None:
    assert set(sections({})) == TOP_LEVEL


# ---- something is wrong ----


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        # keys that don't exist, at every level
        ({f'{STEP}.probb': 1}, f"{STEP}.probb: RandomFlip has no argument 'probb'; did you mean prob?"),
        (
            {f'{STEP}.zzz': 1},
            f"{STEP}.zzz: RandomFlip has no argument 'zzz'; it takes direction, prob, swap_seg_labels",
        ),
        ({'model.networ': {}}, "model.networ: Segmentor has no argument 'networ'; did you mean network?"),
        ({'model.network.dpth': 3}, "model.network.dpth: UNet has no argument 'dpth'; did you mean depth?"),
        (
            {'model.losses.0.label_smothing': 0.1},
            "model.losses.0.label_smothing: CrossEntropyLoss has no argument 'label_smothing'; did you mean label_smoothing?",
        ),
        # swallowed by **kwargs further up
        ({'model.losses.1.weights': 2.0}, "model.losses.1.weights: DiceLoss has no argument 'weights'; did you mean weight?"),
        (
            {'custom_hooks': [dict(type='EMAHook', momentm=0.1)]},
            "custom_hooks.0.momentm: EMAHook has no argument 'momentm'; did you mean momentum?",
        ),
        (
            {'model_wrapper_cfg': dict(static_grph=True)},
            "model_wrapper_cfg.static_grph: DistributedDataParallel has no argument 'static_grph'; did you mean static_graph?",
        ),
        (
            {'train_dataloader.num_worker': 1},
            "train_dataloader.num_worker: a dataloader has no argument 'num_worker'; did you mean num_workers?",
        ),
        (
            {'train_dataloader.shuffle': True},
            "train_dataloader.shuffle: a dataloader has no argument 'shuffle'; "
            "say sampler=dict(type='DefaultSampler', shuffle=True)",
        ),
        (
            {'train_dataloader.sampler': dict(shufl=True)},
            "train_dataloader.sampler.shufl: DefaultSampler has no argument 'shufl'; did you mean shuffle?",
        ),
        (
            {'optim_wrapper.optimizer.beta': (0.9, 0.99)},
            "optim_wrapper.optimizer.beta: AdamW has no argument 'beta'; did you mean betas?",
        ),
        (
            {'optim_wrapper.clip_grad': dict(max_nrm=1.0, max_norm=1.0)},
            "optim_wrapper.clip_grad.max_nrm: clip_grad has no argument 'max_nrm'; did you mean max_norm?",
        ),
        (
            {'optim_wrapper.paramwise_cfg': dict(custom_keys={'head': dict(lr_mul=1)})},
            "optim_wrapper.paramwise_cfg.custom_keys.head.lr_mul: custom_keys has no argument 'lr_mul'; did you mean lr_mult?",
        ),
        ({'randomness.sede': 1}, "randomness.sede: randomness has no argument 'sede'; did you mean seed?"),
        (
            {'env_cfg': dict(dist_cfg=dict(timeouts=3))},
            "env_cfg.dist_cfg.timeouts: dist_cfg has no argument 'timeouts'; did you mean timeout?",
        ),
        ({'val_cfg.fp16': True}, "val_cfg.fp16: ValLoop has no argument 'fp16'; leave it out, validation computes in the precision of training"),
        ({'compile': dict(mod='x')}, "compile.mod: torch.compile has no argument 'mod'; did you mean mode?"),
        (
            {'log_processor': dict(window=10)},
            "log_processor.window: LogProcessor has no argument 'window'; did you mean window_size?",
        ),
        # what is missing
        ({f'{TRAIN}.pipeline': [dict(type='RandomFlip')]}, f'{TRAIN}.pipeline.0.prob is missing; RandomFlip needs it, a number or a list of numbers'),
        ({'train_dataloader': dict(_delete_=True, dataset=dict(type='CarvanaDataset'))}, 'train_dataloader.batch_size is missing; a dataloader needs it, a whole number'),
        ({'train_cfg': dict(_delete_=True, by_epoch=True)}, 'train_cfg.max_epochs is missing; EpochBasedTrainLoop needs it, a whole number'),
        ({'custom_hooks': [dict(type='EarlyStoppingHook')]}, 'custom_hooks.0.monitor is missing; EarlyStoppingHook needs it, text'),
        ({'auto_scale_lr': dict(enable=True)}, 'auto_scale_lr.base_batch_size is missing; auto_scale_lr needs it, a whole number'),
        ({f'{TRAIN}.pipeline': [dict(prob=0.5)]}, f'{TRAIN}.pipeline.0 needs `type`, the name of a transform'),
        # names that nothing is registered under
        ({f'{STEP}.type': 'RandomFlp'}, f"{STEP}.type: no transform is called 'RandomFlp'; did you mean RandomFlip?{_CUSTOM}"),
        ({f'{STEP}.type': 'CheckpointHook'}, f"{STEP}.type: no transform is called 'CheckpointHook'; it is the name of a hook{_CUSTOM}"),
        ({f'{STEP}.type': 'Xyzzy'}, f"{STEP}.type: no transform is called 'Xyzzy'{_CUSTOM}"),
        ({'val_evaluator': dict(type='IoUMetric')}, f"val_evaluator.type: no metric is called 'IoUMetric'; did you mean SegMetric?{_CUSTOM}"),
        ({'model.network.norm_cfg': dict(type='SynBN')}, f"model.network.norm_cfg.type: no model, network, loss or layer is called 'SynBN'; did you mean SyncBN?{_CUSTOM}"),
        ({'optim_wrapper.optimizer.type': 'torch.optim.AdmW'}, "optim_wrapper.optimizer.type: torch.optim has no 'AdmW'; did you mean torch.optim.AdamW?"),
        ({f'{STEP}.type': 'no_such_pkg.Flip'}, f"{STEP}.type: 'no_such_pkg.Flip': there is no package 'no_such_pkg'{_CUSTOM}"),
        ({'custom_hooks': [dict(type='EMAHook', ema_type='ExponentialAverage')]}, f"custom_hooks.0.ema_type: no model, network, loss or layer is called 'ExponentialAverage'; did you mean ExponentialMovingAverage?{_CUSTOM}"),
        # another kind of value
        ({f'{STEP}.prob': 'often'}, f"{STEP}.prob is 'often'; expected a number or a list of numbers"),
        ({'model.network.depth': 2.5}, 'model.network.depth is 2.5; expected a whole number'),
        ({'model.network': 'UNet'}, "model.network is 'UNet'; expected a dict"),
        ({f'{TRAIN}.pipeline': ['RandomFlip']}, f"{TRAIN}.pipeline.0 is 'RandomFlip'; expected dict(type=...), a transform"),
        ({'custom_hooks': dict(type='EMAHook')}, "custom_hooks is {'type': 'EMAHook'}; expected a list"),
        ({'env_cfg': dict(cudnn_benchmark='yes')}, "env_cfg.cudnn_benchmark is 'yes'; expected True or False"),
        ({'randomness.deterministic': 'maybe'}, "randomness.deterministic is 'maybe'; expected True or False or 'warn'"),
        ({'default_scope': 'mmseg'}, "default_scope is 'mmseg'; expected 'seg'"),
        ({'launcher': 'torch'}, "launcher is 'torch'; expected 'none' or 'pytorch' or 'slurm' or 'mpi'"),
        # out of range
        ({'train_cfg.max_epochs': 0}, 'train_cfg.max_epochs is 0; expected 1 or more'),
        ({'train_dataloader.batch_size': 0}, 'train_dataloader.batch_size is 0; expected 1 or more'),
        ({'train_dataloader.num_workers': -1}, 'train_dataloader.num_workers is -1; expected 0 or more'),
        ({'optim_wrapper.accumulative_counts': 0}, 'optim_wrapper.accumulative_counts is 0; expected 1 or more'),
        ({'optim_wrapper.clip_grad': dict(max_norm=-1)}, 'optim_wrapper.clip_grad.max_norm is -1; expected above 0'),
        ({'optim_wrapper.optimizer.lr': -0.1}, 'optim_wrapper.optimizer.lr: AdamW: Invalid learning rate: -0.1'),
        ({f'{STEP}.prob': 1.5}, f'{STEP}.prob: RandomFlip.prob is 1.5; expected a number in 0..1'),
        ({f'{TRAIN}.split': dict(part='train', val_percent=150)}, f'{TRAIN}.split.val_percent: SegmentationDataset: split: val_percent=150; it lies between 0 and 100, in percent'),
        ({'model.losses.1.per': 'pixel'}, "model.losses.1.per: DiceLoss: per='pixel': expected 'image' or 'batch'."),
        ({'model.threshold': 1.0}, 'model.threshold is 1.0; expected between 0 and 1'),
        ({'custom_hooks': [dict(type='EMAHook', momentum=2.0)]}, 'custom_hooks.0.momentum is 2.0; expected between 0 and 1'),
        ({'default_hooks.logger.interval': 0}, 'default_hooks.logger.interval is 0; expected 1 or more'),
        ({'param_scheduler': [dict(type='LinearLR', start_factor=2.0)]}, 'param_scheduler.0.start_factor: LinearLR: Starting multiplicative factor should between 0 and 1.'),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else '',
)  # fmt: skip
def test_one_mistake_is_one_line(changes: dict[str, Any], message: str) -> None:
    assert faults(**changes) == [message]


def test_a_none_that_the_run_would_fall_over_is_refused() -> None:
    assert faults(env_cfg=None) == ['env_cfg is None; leave it out to have the default']


def test_a_config_that_holds_itself_ends() -> None:
    config: dict[str, Any] = dict(type='RepeatDataset', times=2)
    config['dataset'] = config
    found = list(content_faults({'train_dataloader': dict(batch_size=1, dataset=config)}))
    assert any('nested more than 60 deep, or holds itself' in fault.text for fault in found)


def test_a_fault_that_was_written_once_is_said_once(tmp_path: Path) -> None:
    (tmp_path / 'c.py').write_text(
        "loader = dict(batch_size=0, dataset=dict(type='CarvanaDataset'))\n"
        'val_dataloader = loader\ntest_dataloader = loader\n'
    )
    with pytest.raises(Exception, match='batch_size') as caught:
        load_config(tmp_path / 'c.py')
    place = f'{tmp_path}/c.py:1'
    assert str(caught.value) == (
        f'{place}: val_dataloader.batch_size is 0; expected 1 or more (also test_dataloader.batch_size)'
    )


# ---- what is only odd ----


def test_notes() -> None:
    assert notes(log_processor=dict(by_epoch=False)) == [
        'log_processor is accepted and not used: LoggerHook writes the log'
    ]
    steps = dict(_delete_=True, by_epoch=False, max_iters=9)
    assert notes(train_cfg=steps, **{'default_hooks.checkpoint': dict(type='CheckpointHook', interval=1)}) == [
        'default_hooks.checkpoint.interval: counts epochs, and a run by steps ends none: only the last and the best are '
        'kept. Set by_epoch=False'
    ]
    best = {'default_hooks.checkpoint': dict(type='CheckpointHook', save_best='mDice')}
    assert notes(val_dataloader=None, val_cfg=None, val_evaluator=None, **best) == [
        'default_hooks.checkpoint.save_best: has no validation to go by: no best checkpoint is kept'
    ]


# ---- what it takes ----


def test_no_user_code_runs_and_custom_types_are_checked_by_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / 'seg_test_parts.py').write_text(
        'from typing import Literal\n'
        'from torch import nn\n'
        'from seg.registry import MODELS, TRANSFORMS\n\n'
        '@TRANSFORMS.register_module()\n'
        'class SegTestCut:\n'
        "    def __init__(self, size: int, mode: Literal['hard', 'soft'] = 'hard'):\n"
        "        raise SystemExit('user code ran')\n\n"
        '@MODELS.register_module()\n'
        'class SegTestNet(nn.Module):\n'
        '    def __init__(self, num_classes: int, head: dict, **kwargs):\n'
        "        raise SystemExit('user code ran')\n\n"
        '@MODELS.register_module()\n'
        'class SegTestHead(nn.Module):\n'
        '    def __init__(self, channels: int, in_channels: int):\n'
        "        raise SystemExit('user code ran')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    text = (
        "custom_imports = dict(imports=['seg_test_parts'])\n"
        "model = dict(type='Segmentor', num_classes=2, losses=dict(type='DiceLoss'),\n"
        "    data_preprocessor=dict(type='SegPreprocessor', mean=[0], std=[1]),\n"
        "    network=dict(type='SegTestNet', head=dict(type='SegTestHead', channls=3), depth=3))\n"
        "train_dataloader = dict(batch_size=1, dataset=dict(type='CarvanaDataset', pipeline=[\n"
        "    dict(type='SegTestCut', size=1.5, mode='medium'), dict(type='SegTestCot')]))\n"
    )
    (tmp_path / 'c.py').write_text(text)
    with pytest.raises(Exception, match='SegTest') as caught:
        load_config(tmp_path / 'c.py')
    file, pipeline = f'{tmp_path}/c.py', 'train_dataloader.dataset.pipeline'
    assert str(caught.value).splitlines() == [
        # `in_channels` may be given by SegTestNet, so that it is not missed.
        f"{file}:4: model.network.head.channls: SegTestHead has no argument 'channls'; did you mean channels?",
        f"{file}:4: model.network.depth: SegTestNet has no argument 'depth'; it takes head, num_classes",
        f'{file}:6: {pipeline}.0.size is 1.5; expected a whole number',
        f"{file}:6: {pipeline}.0.mode is 'medium'; expected 'hard' or 'soft'",
        f"{file}:6: {pipeline}.1.type: no transform is called 'SegTestCot'; did you mean SegTestCut?{_CUSTOM}",
    ]


def test_what_another_package_does_with_a_dict_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is registered, or spelt nearly like one, is taken for it; another one is none of our business."""

    class SegTestNet(torch.nn.Module):
        def __init__(self, num_classes: int, some: dict) -> None: ...

    monkeypatch.setitem(MODELS.module_dict, 'SegTestNet', SegTestNet)

    def said(**some: Any) -> list[str]:
        return faults(**{'model.network': dict(type='SegTestNet', some=some, _delete_=True)})

    assert said(type='value') == said(type=None) == said(type=5) == said(deep=[dict(type='anything', x=1)]) == []
    assert said(type='BN', eps=1e-3) == said(type='GN') == []  # SegTestNet may give what is missing
    where = 'model.network.some'
    assert said(type='DiceLos') == [
        f"{where}.type: no model, network, loss or layer is called 'DiceLos'; did you mean DiceLoss?{_CUSTOM}"
    ]
    assert said(deep=[dict(type='GN', groups=3)]) == [
        f"{where}.deep.0.groups: GroupNorm has no argument 'groups'; did you mean num_groups?"
    ]
    assert said(type='RandomFlip', prb=1) == [f"{where}.prb: RandomFlip has no argument 'prb'; did you mean prob?"]


def test_a_type_never_imports_what_it_names(tmp_path: Path) -> None:
    (tmp_path / 'seg_test_trap.py').write_text("raise SystemExit('imported')\n")
    script = (
        f'import sys; sys.path[:0] = [{str(ROOT)!r}, {str(tmp_path)!r}]\n'
        'from seg.config_check import content_faults\n'
        "hooks = [dict(type='seg_test_trap'), dict(type='seg_test_trap.Hook')]\n"
        "print(*[fault.text for fault in content_faults(dict(custom_hooks=hooks))], sep='\\n')\n"
        "assert 'seg_test_trap' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True, check=True)
    # The second is a module that is there: what it holds is seen when the run imports it.
    assert done.stdout == f"no hook is called 'seg_test_trap'{_CUSTOM}\n"


def test_a_config_made_in_python_holds_objects(tmp_path: Path) -> None:
    model = torch.nn.Conv2d(1, 1, 1)
    hooks, loader = [object()], torch.utils.data.DataLoader([1])
    assert faults(model=model, custom_hooks=hooks, train_dataloader=loader, load_from=tmp_path) == []
