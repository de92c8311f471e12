"""A checkpoint is written beside the steps: they wait for its copy to host memory, the next and the end for its file."""

import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from mmengine.hooks import Hook

from seg.engine.state import checkpoint
from seg.engine.state.background import BackgroundTask
from seg.engine.train import train
from seg.registry import HOOKS
from tests.tiny import make_data, tiny_config

LONG_S, SHORT_S = 20.0, 0.2


@HOOKS.register_module()
class StepsDone(Hook):
    """Notes each step's end, and lets who waits for a step go on."""

    story: ClassVar[list[str]] = []
    events: ClassVar[dict[int, threading.Event]] = {}

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self.story.append(f'step {runner.iter + 1}')
        self.events[runner.iter + 1].set()

    def after_run(self, runner: Any) -> None:
        self.story.append('end')


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('boxes'), train=4, val=1)


def run(data: Path, work_dir: Path) -> dict:
    """Four steps with a checkpoint after the second and the fourth; the content of the first."""
    StepsDone.story, StepsDone.events = [], {step: threading.Event() for step in range(1, 5)}
    changes = {
        'train_dataloader.batch_size': 2,
        'train_cfg': dict(_delete_=True, by_epoch=False, max_iters=4, val_interval=4),
        'default_hooks.checkpoint': dict(type='CheckpointHook', by_epoch=False, interval=2),
        'custom_hooks': [dict(type='StepsDone')],
    }
    train(tiny_config(data, work_dir, **changes))
    return checkpoint.load(work_dir / 'iter_2.pth')


def test_steps_go_on_while_a_file_is_written(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file is not written before step 4 is done, and takes its time then; so does the second."""
    expected = run(data, tmp_path / 'plain')
    save, waited = checkpoint.save, []

    def slow_save(state: dict, path: Path) -> None:
        StepsDone.story.append(f'{path.name} begins')
        if path.name == 'iter_2.pth':
            waited.append(StepsDone.events[4].wait(LONG_S))
        time.sleep(SHORT_S)
        save(state, path)
        StepsDone.story.append(f'{path.name} is there')

    monkeypatch.setattr(checkpoint, 'save', slow_save)
    written = run(data, tmp_path / 'slow')
    assert waited == [True]
    story = [line for line in StepsDone.story if line != 'iter_2.pth begins']  # before or after the start of step 3
    assert story == [
        *('step 1', 'step 2', 'step 3', 'step 4', 'iter_2.pth is there'),
        *('iter_4.pth begins', 'iter_4.pth is there', 'end'),
    ]
    # It holds what the run was after step 2, though the weights have moved on since.
    for part in ('state_dict', 'optimizer'):
        for one, other in zip(tensors(expected[part]), tensors(written[part]), strict=True):
            assert torch.equal(one, other)


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def test_a_write_that_fails_ends_the_run_at_the_next_step(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()
    monkeypatch.setattr(
        StepsDone, 'before_train_iter', lambda self, runner, **_: runner.iter < 2 or failed.wait(LONG_S)
    )

    def full_disk(state: dict, path: Path) -> None:
        threading.Timer(SHORT_S, failed.set).start()
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(checkpoint, 'save', full_disk)
    with pytest.raises(Exception, match='No space left'):
        run(data, tmp_path / 'run')
    assert StepsDone.story[:2] == ['step 1', 'step 2']
    assert 'step 4' not in StepsDone.story


def test_tasks_follow_each_other_and_an_error_is_raised_once() -> None:
    task, order = BackgroundTask('test'), []
    task.submit(lambda: (time.sleep(SHORT_S), order.append('first')))
    task.submit(lambda: order.append('second'))
    task.join()
    assert order == ['first', 'second']
    task.submit(lambda: [][0])
    with pytest.raises(IndexError):
        task.join()
    task.join()
    task.check()
