"""A power cut between any two operations on the disk leaves a run that can be resumed (promise 5).

The folder is cloned before each write, fsync, link, rename and removal of five saves, as it stands then; what was
written but not yet synced may be lost, so each such file is also cut in half and emptied. Every clone must offer a
whole checkpoint.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from seg.engine.hooks.checkpoint_hook import CheckpointHook
from seg.engine.state import checkpoint
from seg.engine.state.resume import newest_good
from tests.crash_disk import Disk

SAVES = 5


def state(step: int) -> dict:
    return dict(meta=dict(iter=step), state_dict={'w': torch.full((50,), float(step))})


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    (tmp_path / 'run').mkdir()
    disk = Disk(tmp_path / 'run', tmp_path / 'clones')
    for owner, name in ((os, 'fsync'), (os, 'link'), (Path, 'replace'), (Path, 'unlink'), (torch, 'save')):
        disk.watch(owner, name, monkeypatch.setattr)
    yield disk
    monkeypatch.undo()


def test_every_cut_leaves_a_whole_checkpoint(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = CheckpointHook(interval=1, max_keep_ckpts=2, save_best='mDice', rule='greater')
    hook._folder = disk.folder
    for step in range(1, SAVES + 1):
        names = [f'iter_{step}.pth', f'best_mDice_iter_{step}.pth']
        hook._write(state(step), names, [f'best_mDice_iter_{step - 1}.pth'] if step > 1 else [])
        disk.least_step = step
    disk.clone()
    monkeypatch.undo()
    # A save syncs two files and their folder, links and renames: over ten operations each, in three kinds of clone.
    assert len(disk.expected) > 3 * 10 * SAVES
    for clone, least_step in disk.expected.items():
        found = newest_good(clone, warn=lambda text: None) if least_step else None
        if least_step:
            assert found is not None, clone
            step = found[1]['meta']['iter']
            assert step >= least_step, clone
            assert torch.equal(found[1]['state_dict']['w'], torch.full((50,), float(step)))
    assert sorted(path.name for path in disk.folder.iterdir()) == [
        'best_mDice_iter_5.pth',
        'iter_4.pth',
        'iter_5.pth',
        'last_checkpoint',
    ]


def test_pruning_before_writing_would_be_seen(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clones do find what MMEngine's order of work loses (D7)."""
    checkpoint.save(state(1), disk.folder / 'iter_1.pth')
    disk.least_step = 1
    (disk.folder / 'iter_1.pth').unlink()
    checkpoint.save(state(2), disk.folder / 'iter_2.pth')
    monkeypatch.undo()
    lost = [
        clone for clone, step in disk.expected.items() if step and newest_good(clone, warn=lambda text: None) is None
    ]
    assert lost
