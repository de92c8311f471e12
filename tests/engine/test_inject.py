"""`--inject`: what is a fault, and what can never strike; that the others strike is seen in test_drills and test_stops."""

import re
import shlex
from pathlib import Path

import pytest

from seg.engine.faults import KINDS, PHASES, Fault, parse_fault
from seg.engine.processes.launcher import launcher_parser
from seg.engine.train import train
from seg.errors import UserError
from tests.tiny import make_data, tiny_config

TEXT = (Path(__file__).parents[2] / 'docs' / 'failures.md').read_text(encoding='utf-8')


def test_the_document_lists_every_kind_and_phase_and_its_commands_are_understood() -> None:
    cells = [line.split('|')[1] for line in TEXT.splitlines() if line.startswith('| `')]
    assert sorted(name for cell in cells for name in re.findall('`([a-z]+)`', cell)) == sorted(KINDS + PHASES)
    commands = re.findall(r'^tools/dist_train\.sh (.+)$', TEXT, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        args = launcher_parser('train').parse_args(shlex.split(command))
        if args.inject:
            parse_fault(args.inject)


def test_what_is_written_is_what_happens() -> None:
    assert parse_fault('kill:rank=1,step=17,phase=backward') == Fault('kill', 1, 17, 'backward')
    assert parse_fault('nan') == parse_fault('nan:') == Fault('nan', 0, 1, 'forward')
    assert parse_fault('stop:phase=end,rank=3') == Fault('stop', 3, 1, 'end')


@pytest.mark.parametrize(
    'text',
    ['', 'kil', 'kill:rank=one', 'kill:rank=-1', 'kill:rank', 'kill:phase=forwards', 'kill:ranks=1', 'kill rank=1'],
)
def test_what_is_no_fault_is_told_what_one_is(text: str) -> None:
    with pytest.raises(UserError, match=r'expected KIND:rank=R,step=S,phase=PHASE with KIND one of kill, raise'):
        parse_fault(text)


@pytest.mark.parametrize(
    ('text', 'why'),
    [
        ('nan:phase=backward', 'its phase is forward'),
        ('raise:phase=worker', 'kill or freeze from outside'),
        ('stop:phase=data', 'loader workers ignore'),
        ('kill:step=3,phase=end', 'so give no step'),
        ('kill:step=3,phase=start', 'so give no step'),
        ('kill:rank=1,phase=checkpoint', 'written by rank 0'),
        ('kill:step=0', 'counted from 1'),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, why: str) -> None:
    with pytest.raises(UserError, match=f'--inject {text} can never strike: .*{why}'):
        parse_fault(text)


@pytest.mark.parametrize(
    ('text', 'why'),
    [
        ('kill:rank=1', r'this run has 1 process\(es\), the last is rank 0'),
        ('kill:step=5', 'this run has the steps 1 to 4'),
        ('kill:phase=worker', 'this run has no loader worker; set'),
        ('kill:phase=validation', 'this run has no validation'),
    ],
)
def test_what_this_run_never_reaches_is_refused_before_it_begins(tmp_path: Path, text: str, why: str) -> None:
    config = tiny_config(make_data(tmp_path / 'data'), tmp_path / 'run')  # 2 epochs of 2 steps
    if 'validation' in text:
        config.merge_from_dict(dict(val_dataloader=None, val_cfg=None, val_evaluator=None))
    with pytest.raises(UserError, match=f'can never strike: {why}'):
        train(config, inject=text)
    assert not list((tmp_path / 'run').glob('*.pth'))
