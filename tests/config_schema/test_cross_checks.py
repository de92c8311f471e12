"""Keys that contradict each other: monitors and scores, classes of the model and of the data."""

from typing import Any

import pytest

from seg.registry import METRICS
from tests.config_schema.said import faults


def checkpoint(best: Any) -> dict[str, Any]:
    return {'default_hooks.checkpoint': dict(type='CheckpointHook', save_best=best, rule='greater')}


def stopping(monitor: str) -> dict[str, Any]:
    return {'custom_hooks': [dict(type='EarlyStoppingHook', monitor=monitor, rule='greater')]}


@pytest.mark.parametrize(
    'name',
    ['aAcc', 'mIoU', 'mDice', 'mAcc', 'imDice', 'imIoU', 'val_loss', 'val_loss_ce', 'IoU.box', 'Dice.background'],
)
def test_scores_that_there_are(name: str) -> None:
    plateau = dict(type='ReduceOnPlateauLR', monitor=name)
    assert faults(**checkpoint(name), **stopping(name), param_scheduler=[plateau]) == []
    assert faults(**checkpoint([name])) == []


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (checkpoint('mIou'), 'default_hooks.checkpoint.save_best is {}; did you mean mIoU?'),
        (checkpoint(['mIoU', 'mIou']), 'default_hooks.checkpoint.save_best.1 is {}; did you mean mIoU?'),
        (stopping('mIou'), 'custom_hooks.0.monitor is {}; did you mean mIoU?'),
        (
            {'param_scheduler': [dict(type='ReduceOnPlateauLR', monitor='mIou')]},
            'param_scheduler.0.monitor is {}; did you mean mIoU?',
        ),
    ],
)
def test_scores_that_no_metric_gives(changes: dict[str, Any], message: str) -> None:
    assert faults(**changes) == [message.format("'mIou', which no metric gives")]


@pytest.mark.parametrize(
    ('name', 'hint'),
    [
        ('IoU.bx', 'did you mean IoU.box?'),  # Acc.box is there only with class_scalars=['Acc']
        ('val_loss_focal', 'did you mean val_loss_ce?'),
        ('PSNR', 'there are aAcc, mIoU, mDice, mAcc, imDice, imIoU, val_loss, val_loss_ce, val_loss_dice'),
    ],
)
def test_what_there_is_instead(name: str, hint: str) -> None:
    assert faults(**stopping(name)) == [f'custom_hooks.0.monitor is {name!r}, which no metric gives; {hint}']


def test_a_monitor_that_is_only_a_default() -> None:
    found = faults(param_scheduler=[dict(type='ReduceOnPlateauLR')])
    assert found == ["param_scheduler.0.monitor is 'loss', which no metric gives; did you mean val_loss?"]


def test_prefixes_and_names_of_losses_count() -> None:
    metrics = [dict(type='SegMetric', prefix='a', class_scalars=['Acc']), dict(type='SegMetric')]
    changes = {'val_evaluator': metrics, 'model.losses.0.name': 'entropy'}
    for name in ('a/mIoU', 'mIoU', 'a/Acc.box', 'val_loss_entropy'):
        assert faults(**stopping(name), **changes) == []


def test_another_metric_may_give_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS.module_dict, 'SegTestMetric', type('SegTestMetric', (), {}))
    assert faults(**stopping('PSNR'), val_evaluator=[dict(type='SegTestMetric'), dict(type='SegMetric')]) == []


def test_what_waits_for_a_score_needs_validation() -> None:
    none = dict(val_dataloader=None, val_cfg=None, val_evaluator=None)
    text = 'waits for a score, but there is no validation: give val_dataloader, val_cfg and val_evaluator'
    plateau = dict(param_scheduler=[dict(type='ReduceOnPlateauLR', monitor='mDice')])
    assert faults(**stopping('mDice'), **plateau, **none) == [
        f'custom_hooks.0.monitor {text}',
        f'param_scheduler.0.monitor {text}',
    ]


# ---- classes ----

THREE = dict(metainfo=dict(_delete_=True, classes=['sky', 'road', 'car']))


def data(changes: dict[str, Any]) -> dict[str, Any]:
    return {f'{part}_dataloader.dataset': changes for part in ('train', 'val', 'test')}


@pytest.mark.parametrize(
    ('classes', 'count'), [(['a'], 1), (['a'], 2), (['a', 'b'], 1), (['a', 'b'], 2), (list('abc'), 3)]
)
def test_counts_that_fit(classes: list[str], count: int) -> None:
    metainfo = dict(classes=classes, palette=None)
    losses = [dict(type='DiceLoss')]
    assert faults(**{'model.num_classes': count, 'model.losses': losses}, **data(dict(metainfo=metainfo))) == []


def test_counts_that_do_not_fit() -> None:
    assert faults(**{'model.num_classes': 3}) == [
        'model.num_classes is 3, but train_dataloader.dataset has 2 classes (background, box); expected 2 (or 1, a '
        'sigmoid channel)'
    ]
    wrapped = dict(
        type='ConcatDataset',
        datasets=[dict(type='SegmentationDataset', metainfo=dict(classes=['sky', 'road', 'car']))],
        _delete_=True,
    )
    assert faults(train_dataloader=dict(_delete_=True, batch_size=1, dataset=wrapped))[-1] == (
        'model.num_classes is 2, but train_dataloader.dataset has 3 classes (sky, road, car); expected 3'
    )


def test_the_classes_of_a_type_count() -> None:
    carvana = dict(batch_size=1, dataset=dict(type='CarvanaDataset', pipeline=[]), _delete_=True)
    found = faults(test_dataloader=carvana, **{'model.num_classes': 5})
    assert 'train_dataloader.dataset has 2 classes' in found[0]
    assert len(found) == 1  # the three data sets have as many


def test_the_networks_own_count() -> None:
    assert faults(**{'model.network.num_classes': 2}) == []
    assert faults(**{'model.network.num_classes': 4}) == [
        'model.network.num_classes is 4, but model.num_classes=2; leave it out'
    ]


def test_what_is_multiplied_must_be_given() -> None:
    multipliers = dict(norm_decay_mult=0.0, bias_lr_mult=2.0, custom_keys={'network.head': dict(decay_mult=0.5)})
    changes: dict[str, Any] = {'optim_wrapper.paramwise_cfg': multipliers}
    lacks = 'multiplies optim_wrapper.optimizer.weight_decay, which the config does not give; set it, or leave this out'
    assert faults(**changes) == [
        f'optim_wrapper.paramwise_cfg.norm_decay_mult: {lacks}',
        f'optim_wrapper.paramwise_cfg.custom_keys.network.head.decay_mult: {lacks}',
    ]
    assert faults(**changes, **{'optim_wrapper.optimizer.weight_decay': 0.0}) == []
    no_rate = dict(type='AdamW', weight_decay=0.1, _delete_=True)
    (found,) = faults(**changes, **{'optim_wrapper.optimizer': no_rate})
    assert found.startswith('optim_wrapper.paramwise_cfg.bias_lr_mult: multiplies optim_wrapper.optimizer.lr')
