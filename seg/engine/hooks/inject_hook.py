"""A fault on purpose: `--inject kill:rank=1,step=17,phase=backward` drills a cluster before it fails by itself."""

import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mmengine.dist import get_rank
from mmengine.hooks import Hook
from torch import Tensor

from seg.engine.step import unwrap
from seg.errors import UserError
from seg.registry import HOOKS

KINDS = ('kill', 'raise', 'hang', 'nan')
PHASES = ('data', 'forward', 'backward', 'validation', 'checkpoint', 'worker')


@dataclass(frozen=True)
class Fault:
    """What goes wrong, on which rank, at which step (counted from 1), where in it."""

    kind: str
    rank: int = 0
    step: int = 1
    phase: str = 'forward'


def parse_fault(text: str) -> Fault:
    """'kill:rank=1,step=17,phase=backward'. Raises UserError for what is not such a text."""
    match = re.fullmatch(r'(\w+)(?::(.*))?', text)
    pairs = dict(part.split('=', 1) for part in (match.group(2) or '').split(',') if '=' in part) if match else {}
    kind, phase = (match.group(1) if match else ''), pairs.pop('phase', 'forward')
    numbers = {key: value for key, value in pairs.items() if key in ('rank', 'step') and value.isdigit()}
    if kind not in KINDS or phase not in PHASES or numbers.keys() != pairs.keys():
        raise UserError(
            f'--inject {text}: expected KIND:rank=R,step=S,phase=PHASE with KIND one of {", ".join(KINDS)} and PHASE '
            f'one of {", ".join(PHASES)}'
        )
    return Fault(kind, phase=phase, **{key: int(value) for key, value in numbers.items()})


@HOOKS.register_module()
class InjectHook(Hook):
    """Makes `fault` happen. Kinds: kill (SIGKILL), raise, hang (sleeps for ever), nan (in the network's output).

    Phase 'worker' hits a loader worker of the rank, 'checkpoint' the moment between a file's writing and its renaming,
    'validation' the first batch of the first validation from that step on.
    """

    priority = 'VERY_HIGH'

    def __init__(self, fault: str) -> None:
        self.fault = parse_fault(fault)
        self._armed = False

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        if runner.iter + 1 != self.fault.step or get_rank() != self.fault.rank:
            return
        self._armed = True
        network = unwrap(runner.model).network
        if self.fault.phase == 'data':
            self._strike()
        elif self.fault.phase == 'worker':
            _kill_a_worker()
        elif self.fault.kind == 'nan':
            network.register_forward_hook(self._spoil)
        elif self.fault.phase == 'forward':
            network.register_forward_pre_hook(lambda *_: self._strike())
        elif self.fault.phase == 'backward':
            next(network.parameters()).register_hook(lambda _: self._strike())
        elif self.fault.phase == 'checkpoint':
            _before_rename_of_checkpoint(self._strike)

    def before_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        if self.fault.phase == 'validation':
            self._strike()

    def _strike(self) -> None:
        if not self._armed:
            return
        self._armed = False
        if self.fault.kind == 'kill':
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault.kind == 'hang':
            time.sleep(10**6)
        raise RuntimeError(f'injected: {self.fault}')

    def _spoil(self, network: Any, inputs: Any, logits: Tensor) -> Tensor:
        if not self._armed:
            return logits
        self._armed = False
        return logits * float('nan')


def _kill_a_worker() -> None:
    workers = multiprocessing.active_children()
    if not workers:
        raise UserError('--inject phase=worker: this rank has no loader worker; set train_dataloader.num_workers')
    os.kill(workers[0].pid or 0, signal.SIGKILL)


def _before_rename_of_checkpoint(strike: Callable[[], None]) -> None:
    """Python announces a rename before it is done; nothing in the writer has to know of drills."""

    def listen(event: str, arguments: tuple) -> None:
        if event == 'os.rename' and str(arguments[1]).endswith('.pth'):
            strike()

    sys.addaudithook(listen)
