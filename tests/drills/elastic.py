"""The drill of `--max-restarts`: one run whose ranks are killed again and again must end as the run that nobody touched.

`python -m tests.drills --kills 30 --seed 0` prints a line for each kill and the verdict; the seed decides whom, when and
where. Compared are, bit for bit, all that the last checkpoint holds and the loss of every step.
"""

import json
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seg.engine.state import checkpoint
from tests.drills import marks
from tests.drills.run import ranks_among, start_real
from tests.tiny import make_data, tiny_config

PHASES = ('start-up', 'data', 'step', 'validation', 'checkpoint')
RANKS, STEPS_AN_EPOCH, STEPS_A_KILL = 2, 6, 18
_START_S = 6.0  # within so long after its start a rank is killed in the phase 'start-up'
_LIMIT_S = 180.0
Starter = Callable[[list[str], dict[str, str], Path], Any]


@dataclass
class Kill:
    """What is planned: which rank, in which phase, not before which step."""

    number: int
    rank: int
    phase: str
    step: int
    delay_s: float


def plan(kills: int, seed: int) -> list[Kill]:
    """Every phase as often as the others, in random order; the steps spread over the run."""
    dice = random.Random(seed)
    phases = [PHASES[number % len(PHASES)] for number in range(kills)]
    dice.shuffle(phases)
    made = []
    for number, phase in enumerate(phases, start=1):
        rank = 0 if phase == 'checkpoint' else dice.randrange(RANKS)  # the first rank writes
        step = number * STEPS_A_KILL - dice.randrange(STEPS_A_KILL)
        made.append(Kill(number, rank, phase, step, dice.uniform(0, _START_S)))
    return made


def steps_for(kills: int) -> int:
    """So many that the run is not over before the last kill."""
    return (kills + 1) * STEPS_A_KILL


def write_config(folder: Path, name: str, steps: int) -> Path:
    """A run of so many steps with all that holds state: folder/name.py, work folder folder/name."""
    data = make_data(folder / 'data', train=2 * RANKS * STEPS_AN_EPOCH, val=4)
    config = tiny_config(
        data,
        folder / name,
        **{
            'train_cfg.max_epochs': -(-steps // STEPS_AN_EPOCH),
            'train_dataloader.batch_size': 2,
            'train_dataloader.num_workers': 1,
            'val_dataloader.batch_size': 1,
            'model.network.dropout': 0.3,
            'sync_bn': True,
            'custom_imports': dict(imports=['tests.drills.marks'], allow_failed_imports=False),
            'custom_hooks': [
                dict(type='MarkHook'),
                dict(type='EMAHook', momentum=0.1),
                dict(type='EarlyStoppingHook', monitor='mDice', patience=10**6),
            ],
            'default_hooks.checkpoint': dict(
                type='CheckpointHook', interval=5, by_epoch=False, max_keep_ckpts=3, save_best='mDice', rule='greater'
            ),
        },
    )
    path = folder / f'{name}.py'
    path.write_text(config.pretty_text)
    return path


class Drill:
    """One run and its kills."""

    def __init__(self, folder: Path, kills: list[Kill], steps: int, start: Starter = start_real) -> None:
        self.folder, self.kills = folder, kills
        self.marks = folder / 'marks'
        self.marks.mkdir()
        self.log_path = folder / 'killed.txt'
        config = write_config(folder, 'killed', steps)
        arguments = [str(config), str(RANKS), '--max-restarts', str(len(kills) + 10)]
        self.process = start(arguments, {marks.FOLDER: str(self.marks)}, self.log_path)

    def run(self) -> int:
        """Kill as planned; the exit code of the run."""
        try:
            print(f'{"kill":>4}  {"rank":>4}  {"planned":<10}  {"struck":<34}  resumed from', flush=True)
            seen: set[int] = set()
            for kill in self.kills:
                struck = self._strike(kill, seen)
                print(f'{kill.number:>4}  {kill.rank:>4}  {kill.phase:<10}  {struck:<34}', end='  ', flush=True)
                self._wait_for_restart(kill.number)
                print(_resumed_from(self.log_path.read_text(), kill.number), flush=True)
            return self.process.wait(timeout=_LIMIT_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()  # its ranks see it go
                self.process.wait()

    def _strike(self, kill: Kill, seen: set[int]) -> str:
        """Kill a process of a new attempt, in the phase that is planned if it can be met; what was struck, in words."""
        deadline = time.monotonic() + _LIMIT_S
        while time.monotonic() < deadline:
            self._check_running()
            pid = self._ranks().get(kill.rank)
            if pid is not None and pid not in seen:
                struck = (
                    self._strike_at_start(kill, pid) if kill.phase == 'start-up' else self._strike_in_run(kill, pid)
                )
                if struck:
                    seen.add(pid)
                    return struck
            time.sleep(0.001)
        raise TimeoutError(f'{kill} could not be struck:\n{self.log_path.read_text()[-3000:]}')

    def _strike_at_start(self, kill: Kill, pid: int) -> str:
        age_s = time.time() - Path(f'/proc/{pid}').stat().st_mtime
        if age_s < kill.delay_s:
            time.sleep(min(0.01, kill.delay_s - age_s))
            return ''
        mark = marks.read(self.marks, kill.rank)
        os.kill(pid, signal.SIGKILL)
        where = f'{mark[1]}, step {mark[2]}' if mark and mark[0] == pid else 'before the run was built'
        return f'{age_s:.1f} s after its start: {where}'

    def _strike_in_run(self, kill: Kill, pid: int) -> str:
        mark = marks.read(self.marks, kill.rank)
        if mark is None or mark[0] != pid or mark[2] < kill.step or not _meets(mark, kill):
            return ''
        os.kill(pid, signal.SIGSTOP)  # so that it is still where it was seen
        mark = marks.read(self.marks, kill.rank)
        assert mark is not None
        if not _meets(mark, kill):
            os.kill(pid, signal.SIGCONT)
            return ''
        os.kill(pid, signal.SIGKILL)
        return f'{mark[1]}, step {mark[2]}' + (f', {mark[3]} a checkpoint' if mark[3] != '-' else '')

    def _wait_for_restart(self, number: int) -> None:
        """Until the launcher has said so, and the new ranks have said where they go on, or were killed before."""
        deadline = time.monotonic() + _LIMIT_S
        while f'restart {number} of' not in self.log_path.read_text():
            self._check_running()
            assert time.monotonic() < deadline, self.log_path.read_text()[-3000:]
            time.sleep(0.01)

    @property
    def restarts(self) -> int:
        return len(re.findall(r'restart \d+ of \d+\n', self.log_path.read_text()))

    def _check_running(self) -> None:
        assert self.process.poll() is None, f'the run has ended too early:\n{self.log_path.read_text()[-3000:]}'

    def _ranks(self) -> dict[int, int]:
        """Rank -> process id, when all live."""
        tasks = Path(f'/proc/{self.process.pid}/task').glob('*/children')
        pids = ranks_among(int(pid) for path in tasks for pid in path.read_text().split())
        return dict(enumerate(pids)) if len(pids) == RANKS else {}


def _meets(mark: tuple[int, str, int, str], kill: Kill) -> bool:
    """Whether a rank is where it is to be killed; one that nears the next kill's steps is killed wherever it is."""
    late = mark[2] >= kill.step + STEPS_A_KILL // 2
    return late or (mark[3] != '-' if kill.phase == 'checkpoint' else mark[1] == kill.phase)


def _resumed_from(log: str, restart: int) -> str:
    """What the attempt before this restart had said about where it began."""
    attempt = re.split(r'restart \d+ of \d+\n', log)[restart - 1]
    found = re.search(r'Resumed from \S*/(\S+): epoch \d+, step (\d+)', attempt)
    if found:
        return f'{found.group(1)} (step {found.group(2)})'
    return 'the beginning' if 'starts at its beginning' in attempt or restart == 1 else '- (died before)'


# ---- the verdict ----


def losses(work_dir: Path) -> Iterator[tuple[int, float]]:
    """(step, loss) of every training line that the run ever logged."""
    for path in sorted(work_dir.glob('*/vis_data/scalars.json')):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if 'loss' in record:
                yield record['iter'], record['loss']


def differences(one: Any, other: Any, key: str = '') -> Iterator[str]:
    """The keys of two checkpoints whose values are not equal, but for what tells when and where."""
    if key.endswith(('.time', '.experiment_name', '.config', '.work_dir')):
        return
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if not torch.equal(one, other):
            yield key
    elif isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name in one:
            yield from differences(one[name], other[name], f'{key}.{name}')
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        for number, (a, b) in enumerate(zip(one, other)):
            yield from differences(a, b, f'{key}[{number}]')
    elif type(one) is not type(other) or one != other:
        yield f'{key}: {one!r:.60} and {other!r:.60}'


def faults(whole: Path, killed: Path) -> list[str]:
    """What the folder of the run that was killed has other than that of the run that nobody killed."""
    first, second = (checkpoint.load(checkpoint.by_age(folder)[0]) for folder in (whole, killed))
    found = [f'the last checkpoint differs in {key}' for key in differences(first, second)]
    expected = dict(losses(whole))
    found += [f'step {step} was logged with loss {loss}' for step, loss in losses(killed) if expected.get(step) != loss]
    found += [f'step {step} was never logged' for step in sorted(expected.keys() - dict(losses(killed)).keys())]
    names = [{path.name for path in folder.iterdir() if path.suffix != '.py'} for folder in (whole, killed)]
    starts = [{name for name in one if re.fullmatch(r'\d{8}_\d{6}.*', name)} for one in names]
    if names[0] - starts[0] != names[1] - starts[1]:
        found.append(f'files in the run folder: {names[1] - starts[1]}, and {names[0] - starts[0]} in the whole run')
    return found
