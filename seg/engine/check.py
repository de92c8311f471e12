"""`tools/train.py CONFIG --check`: everything is built, one validation batch and a few steps are tried, nothing is trained.

The run's parts are the real ones, in a temporary folder that is gone afterwards.
"""

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dist import broadcast_object_list, get_rank, get_world_size
from torch import Tensor

from seg.engine.evaluate import LossMeter
from seg.engine.runner import SegRunner
from seg.engine.state import checkpoint
from seg.engine.step import unwrap
from seg.evaluation.confusion import count_pairs, scores_from_matrix
from seg.models.labels import IGNORE_INDEX, shrink_labels

TIMED_STEPS = 5
LABEL_PATH_IMAGES = 32
_QUIET_HOOKS = dict(checkpoint=None, record=None, visualization=None, stop=None, progress=None)


def check_run(config: Config) -> list[str]:
    """Try the run that `config` describes; the lines of the report. Every rank must call it.

    Raises UserError for what the user must change.
    """
    with _temporary_folder() as folder:
        trial = Config(config._cfg_dict.to_dict() | dict(work_dir=str(folder)), filename=config.filename)
        trial.default_hooks = {**(config.get('default_hooks') or {}), **_QUIET_HOOKS}
        runner = SegRunner.from_cfg(trial)
        with closing(runner):
            runner.prepare()
            steps_s = _time_steps(runner)
            batch_s, batches = _time_validation(runner)
            save_s = _round_trip(runner, folder)
            return _report(runner, steps_s, batch_s * batches, save_s)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """One name for all ranks, removed by the first of each machine."""
    names = [tempfile.mkdtemp(prefix='seg_check_') if get_rank() == 0 else '']
    broadcast_object_list(names)
    try:
        yield Path(names[0])
    finally:
        if os.environ.get('LOCAL_RANK', '0') == '0':
            shutil.rmtree(names[0], ignore_errors=True)


def _time_steps(runner: SegRunner) -> list[float]:
    """Seconds of each of five steps, loading included, after one to warm up."""
    batches = _endless(runner.train_dataloader)
    runner.model.train()
    times_s = []
    for _ in range(1 + TIMED_STEPS):
        began_s = time.perf_counter()
        losses = runner.train_step(next(batches))
        if losses:
            losses['loss'].item()  # waits for the device
        times_s.append(time.perf_counter() - began_s)
    return times_s[1:]


def _endless(loader: Any) -> Iterator[dict]:
    while True:
        yield from loader


def _time_validation(runner: SegRunner) -> tuple[float, int]:
    """Seconds of a validation batch, and how many this rank has of them; (0, 0) without validation."""
    loop = runner.val_loop
    if loop is None:
        return 0.0, 0
    runner.model.eval()
    batches = iter(loop.dataloader)
    times_s = []
    for batch in [batch for _, batch in zip(range(2), batches)]:
        began_s = time.perf_counter()
        loop.evaluator.process(data_samples=loop.evaluate_batch(batch, LossMeter()), data_batch=batch)
        times_s.append(time.perf_counter() - began_s)
    return (times_s[-1] if times_s else 0.0), len(loop.dataloader)


def _round_trip(runner: SegRunner, folder: Path) -> float:
    """Write a checkpoint and read it back; seconds of the writing."""
    began_s = time.perf_counter()
    runner.save_checkpoint(str(folder), 'iter_1.pth')
    save_s = time.perf_counter() - began_s
    if get_rank() == 0:
        unwrap(runner.model).load_state_dict(checkpoint.load(folder / 'iter_1.pth')['state_dict'])
    return save_s


def _report(runner: SegRunner, steps_s: list[float], validation_s: float, save_s: float) -> list[str]:
    step_s = sorted(steps_s)[len(steps_s) // 2]
    loop = runner.train_loop
    validations = _validations(runner)
    total_s = step_s * loop.max_iters + (validation_s + save_s) * validations
    millions = sum(parameter.numel() for parameter in unwrap(runner.model).parameters()) / 1e6
    lines = [
        f'model: {millions:.2f} million parameters, precision {runner.precision}',
        f'global batch: {runner.global_batch} images over {get_world_size()} process(es)',
        f'peak memory: {_peak_memory_mib():.0f} MiB a process',
        f'step: {step_s:.3f} s (median of {len(steps_s)}), {loop.max_iters} steps',
        f'validation: {validation_s:.1f} s, {validations} times; checkpoint: {save_s:.2f} s',
        f'whole run: about {_duration(total_s)}',
    ]
    bound = label_path_dice(runner)
    if bound is not None:
        lines.append(f'mDice that the labels alone allow at this size: {bound:.4f}')
    return lines


def _validations(runner: SegRunner) -> int:
    loop = runner.train_loop
    if runner.val_loop is None:
        return 0
    if runner.by_epoch:
        whole = sum(
            1
            for epoch in range(max(1, loop.val_begin), loop.max_epochs + 1)
            if epoch % loop.val_interval == 0 or epoch == loop.max_epochs
        )
        return whole + loop.inner_validations * loop.max_epochs
    return -(-loop.max_iters // loop.val_interval)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours} h {minutes:02d} min' if hours else f'{minutes} min {rest:02d} s'


def _peak_memory_mib() -> float:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def label_path_dice(runner: SegRunner) -> float | None:
    """The mDice of a network without error (E10): truth shrunk to the network's size and grown back as logits are.

    None where validation has no masks, or the model is not a segmentor. Every image that is looked at is this rank's.
    """
    model: Any = unwrap(runner.model)
    if runner.val_loop is None or not hasattr(model, 'label_map'):
        return None
    classes = max(2, model.num_classes)
    matrix = torch.zeros(classes**2, dtype=torch.int64)
    dataset = runner.val_dataloader.dataset
    for index in range(min(len(dataset), LABEL_PATH_IMAGES)):
        sample = dataset[0, index]
        if 'labels' in sample:
            pred = _perfect(model, sample['labels'], tuple(sample['inputs'].shape[-2:]), classes)
            matrix += count_pairs(pred, sample['labels'], classes)[: classes**2]
    if not matrix.any():
        return None
    return scores_from_matrix(matrix.view(classes, classes).tolist(), dataset.metainfo['classes'])['mDice']


def _perfect(model: Any, label_HW: Tensor, size_px: tuple[int, int], classes: int) -> Tensor:
    small = shrink_labels(label_HW, size_px)
    known = torch.where(small == IGNORE_INDEX, 0, small).long()
    logits_CHW = torch.nn.functional.one_hot(known, classes).permute(2, 0, 1).float() * 2 - 1
    logits_CHW = logits_CHW[1:] if model.num_classes == 1 else logits_CHW
    return model.label_map(logits_CHW, tuple(label_HW.shape))
