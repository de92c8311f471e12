"""Epochs and steps mixed, with what is no mistake beside it."""

from typing import Any

import pytest

from tests.config_schema.said import faults, notes

STEPS = dict(_delete_=True, by_epoch=False, max_iters=9)


@pytest.mark.parametrize(
    ('train_cfg', 'message'),
    [
        # What a child leaves that doesn't say _delete_: the base's epochs are still there.
        (
            dict(by_epoch=False, max_iters=1000),
            'train_cfg.max_iters is 1000 beside max_epochs=2; a run has one length. To replace what a base says: '
            'train_cfg=dict(_delete_=True, by_epoch=False, max_iters=...)',
        ),
        (
            dict(by_epoch=False),
            'train_cfg.max_epochs is 2, but by_epoch=False counts steps; give max_iters, or by_epoch=True',
        ),
        (
            dict(_delete_=True, by_epoch=True, max_iters=1000),
            'train_cfg.max_iters is 1000, but by_epoch=True counts epochs; give max_epochs, or by_epoch=False',
        ),
        (
            dict(_delete_=True, type='IterBasedTrainLoop', max_epochs=3),
            "train_cfg.max_epochs is 3, but type='IterBasedTrainLoop' counts steps; give max_iters, or by_epoch=True",
        ),
        (
            dict(_delete_=True, type='EpochBasedTrainLoop', by_epoch=False, max_epochs=3),
            "train_cfg.by_epoch is False, but type='EpochBasedTrainLoop' counts epochs; leave one of the two out",
        ),
        (dict(_delete_=True, max_iters=2.5), 'train_cfg.max_iters is 2.5; expected a whole number'),
    ],
)
def test_the_loop(train_cfg: dict[str, Any], message: str) -> None:
    assert faults(train_cfg=train_cfg, param_scheduler=None) == [message]


@pytest.mark.parametrize('train_cfg', [dict(_delete_=True, max_epochs=3), dict(_delete_=True, max_iters=3), STEPS])
def test_one_length_says_it_all(train_cfg: dict[str, Any]) -> None:
    assert faults(train_cfg=train_cfg) == []


def test_schedules_by_epoch_in_a_run_by_steps() -> None:
    schedules = [
        dict(type='LinearLR', begin=0, end=3),
        dict(type='PolyLR', by_epoch=True),
        dict(type='StepLR', step_size=2, convert_to_iter_based=True),
        dict(type='CosineAnnealingLR', by_epoch=False),
        dict(type='ReduceOnPlateauLR', monitor='mDice', rule='greater'),  # counts validations
    ]
    found = faults(train_cfg=STEPS, param_scheduler=schedules)
    moved = 'would never move. Set by_epoch=False, and begin and end in steps'
    assert found == [
        f'param_scheduler.0.by_epoch is left at True, but train_cfg counts steps: no epoch ends, so LinearLR {moved}',
        f'param_scheduler.1.by_epoch is True, but train_cfg counts steps: no epoch ends, so PolyLR {moved}',
        'param_scheduler.2.convert_to_iter_based is True, but train_cfg counts steps already; say by_epoch=False instead',
    ]
    assert faults(param_scheduler=schedules) == []


def test_checkpoints_by_epoch_in_a_run_by_steps() -> None:
    hook = dict(type='CheckpointHook', interval=1, by_epoch=True)
    found = faults(train_cfg=STEPS, **{'default_hooks.checkpoint': hook})
    assert found == [
        'default_hooks.checkpoint.by_epoch is True, but train_cfg counts steps: no epoch ends. Set by_epoch=False, and '
        'interval in steps'
    ]
    assert faults(**{'default_hooks.checkpoint': hook}) == []


def test_a_schedule_that_begins_after_the_end() -> None:
    """The run has 2 epochs, which are the end of a schedule that names none."""
    schedules = [dict(type='PolyLR', begin=2), dict(type='PolyLR', begin=1), dict(type='PolyLR', begin=2, end=3)]
    found = faults(param_scheduler=schedules)
    assert found == ['param_scheduler.0.begin is 2 epochs, but the run ends after train_cfg.max_epochs=2']


def test_notes_on_what_reaches_beyond_the_run() -> None:
    """A run can have been made shorter on purpose, so this is not refused."""
    schedules = [dict(type='LinearLR', start_factor=0.1, end=1500), dict(type='PolyLR', end=2)]
    changes: dict[str, Any] = {'train_cfg.val_interval': 4000, 'param_scheduler': schedules}
    assert faults(**changes) == []
    assert notes(**changes) == [
        'train_cfg.val_interval is 4000 epochs, and the run has 2: it is validated at its end alone',
        'param_scheduler.0.end is 1500 epochs, and the run has 2; if steps are meant, set by_epoch=False',
    ]
