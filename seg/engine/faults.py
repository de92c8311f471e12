"""What `--inject` understands: faults on purpose, to drill a cluster before it fails by itself. See docs/failures.md."""

import re
from dataclasses import dataclass
from typing import Any

from seg.errors import UserError

KINDS = ('kill', 'raise', 'memory', 'hang', 'freeze', 'stop', 'nan')
PHASES = ('start', 'data', 'hook', 'forward', 'backward', 'validation', 'checkpoint', 'end', 'worker')
_WITHOUT_STEP = ('start', 'end')
_KEYS = ('rank', 'step', 'phase')


@dataclass(frozen=True)
class Fault:
    """What goes wrong, on which rank, at which step (counted from 1), where in it."""

    kind: str
    rank: int = 0
    step: int = 1
    phase: str = 'forward'


def parse_fault(text: str) -> Fault:
    """'kill:rank=1,step=17,phase=backward'. Raises UserError for what is not such a text, or makes no sense."""
    kind, _, rest = text.partition(':')
    pairs = dict(part.partition('=')[::2] for part in rest.split(',') if part)
    phase = pairs.pop('phase', 'forward')
    numbers = {key: int(value) for key, value in pairs.items() if key in _KEYS and re.fullmatch('[0-9]+', value)}
    if kind not in KINDS or phase not in PHASES or numbers.keys() != pairs.keys():
        raise UserError(
            f'--inject {text}: expected KIND:rank=R,step=S,phase=PHASE with KIND one of {", ".join(KINDS)} and PHASE '
            f'one of {", ".join(PHASES)}'
        )
    fault = Fault(kind, phase=phase, **numbers)
    _refuse(text, _nonsense(fault, 'step' in numbers))
    return fault


def _nonsense(fault: Fault, has_step: bool) -> str:
    """Why such a fault is none; empty if it is one."""
    if fault.kind == 'nan' and fault.phase != 'forward':
        return 'nan spoils what the network gives: its phase is forward'
    if fault.phase == 'worker' and fault.kind not in ('kill', 'freeze'):
        return 'a loader worker can be hit by kill or freeze from outside; phase=data strikes inside it'
    if fault.phase == 'data' and fault.kind == 'stop':
        return 'loader workers ignore the signals that stop a run; choose another phase'
    if fault.phase in _WITHOUT_STEP and has_step:
        return f'phase={fault.phase} comes once in a run, so give no step'
    if fault.phase == 'checkpoint' and fault.rank:
        return 'checkpoints are written by rank 0'
    return '' if fault.step else 'steps are counted from 1'


def refuse_what_never_strikes(fault: Fault, runner: Any) -> None:
    """Before the first step. Raises UserError, on all ranks, for a fault that this run will not reach."""
    _refuse(_text(fault), _unreachable(fault, runner))


def _unreachable(fault: Fault, runner: Any) -> str:
    if fault.rank >= runner.world_size:
        return f'this run has {runner.world_size} process(es), the last is rank {runner.world_size - 1}'
    if fault.phase == 'worker' and not runner.train_dataloader.num_workers:
        return 'this run has no loader worker; set train_dataloader.num_workers'
    if fault.phase == 'validation' and runner.val_loop is None:
        return 'this run has no validation'
    if fault.phase not in _WITHOUT_STEP and not runner.iter < fault.step <= runner.max_iters:
        return f'this run has the steps {runner.iter + 1} to {runner.max_iters}'
    return ''


def _text(fault: Fault) -> str:
    step = '' if fault.phase in _WITHOUT_STEP else f'step={fault.step},'
    return f'{fault.kind}:rank={fault.rank},{step}phase={fault.phase}'


def _refuse(text: str, why: str) -> None:
    if why:
        raise UserError(f'--inject {text} can never strike: {why}')
