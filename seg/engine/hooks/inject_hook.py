"""A fault on purpose: `--inject kill:rank=1,step=17,phase=backward` drills a cluster before it fails by itself."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mmengine.dist import get_rank
from mmengine.hooks import Hook
from torch import Tensor

from seg.engine.faults import Fault, parse_fault, refuse_what_never_strikes
from seg.engine.step import unwrap
from seg.registry import HOOKS

_SIGNALS = {'kill': signal.SIGKILL, 'freeze': signal.SIGSTOP, 'stop': signal.SIGTERM}


@HOOKS.register_module()
class InjectHook(Hook):
    """Makes `fault` happen (`seg.engine.faults`).

    Kinds: kill (SIGKILL), raise, memory (MemoryError), hang (sleeps for ever), freeze (SIGSTOP), stop (SIGTERM), nan (in
    the network's output). Phase 'start' is before the first step, 'data' where a sample of the step is read, in a loader
    worker if there is one; 'worker' hits a worker from outside; 'checkpoint' is the moment between a file's writing and its
    renaming, 'validation' the first batch of the first validation from that step on, 'end' after the last step.
    """

    priority = 'VERY_HIGH'

    def __init__(self, fault: str) -> None:
        self.fault = parse_fault(fault)
        self._armed = False

    def before_train(self, runner: Any) -> None:
        refuse_what_never_strikes(self.fault, runner)
        if self.fault.rank != get_rank():
            return
        if self.fault.phase == 'start':
            strike(self.fault)
        elif self.fault.phase == 'data':
            # The workers are started after this, so they know of it.
            seeded = runner.train_dataloader.dataset
            seeded.before_sample = _InData(self.fault, _first_sample(runner, self.fault.step))

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        if runner.iter + 1 != self.fault.step or get_rank() != self.fault.rank:
            return
        self._armed = True
        network = unwrap(runner.model).network
        if self.fault.phase == 'hook':
            self._strike()
        elif self.fault.phase == 'worker':
            os.kill(multiprocessing.active_children()[0].pid or 0, _SIGNALS[self.fault.kind])
        elif self.fault.kind == 'nan':
            network.register_forward_hook(self._spoil)
        elif self.fault.phase == 'forward':
            network.register_forward_pre_hook(lambda *_: self._strike())
        elif self.fault.phase == 'backward':
            network.register_full_backward_pre_hook(lambda *_: self._strike())
        elif self.fault.phase == 'checkpoint':
            _before_rename_of_checkpoint(self._strike)

    def before_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        if self.fault.phase == 'validation':
            self._strike()

    def after_train(self, runner: Any) -> None:
        if self.fault.phase == 'end' and self.fault.rank == get_rank():
            strike(self.fault)

    def _strike(self) -> None:
        if self._armed:
            self._armed = False
            strike(self.fault)

    def _spoil(self, network: Any, inputs: Any, logits: Tensor) -> Tensor:
        if not self._armed:
            return logits
        self._armed = False
        return logits * float('nan')


def strike(fault: Fault) -> None:
    """The fault, here and now, to this process."""
    if fault.kind in _SIGNALS:
        os.kill(os.getpid(), _SIGNALS[fault.kind])
    elif fault.kind == 'hang':
        time.sleep(10**6)
    else:
        kind = MemoryError if fault.kind == 'memory' else RuntimeError
        raise kind(f'injected: {fault}')


@dataclass
class _InData:
    """Told of each sample, it strikes at one. A class, for workers that are spawned."""

    fault: Fault
    sample: tuple[int, int]

    def __call__(self, epoch: int, index: int) -> None:
        if (epoch, index) == self.sample:
            strike(self.fault)


def _first_sample(runner: Any, step: int) -> tuple[int, int]:
    """(epoch, index) of the first sample that this rank reads for a step, counted from 1."""
    return runner.train_dataloader.batch_sampler.batch_at(step - 1)[0]


def _before_rename_of_checkpoint(strike: Callable[[], None]) -> None:
    """Python announces a rename before it is done; nothing in the writer has to know of drills."""

    def listen(event: str, arguments: tuple) -> None:
        if event == 'os.rename' and str(arguments[1]).endswith('.pth'):
            strike()

    sys.addaudithook(listen)
