"""What rank 0 reads, every rank has; what it refuses, every rank refuses."""

from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from mmengine.dist import get_rank

from seg.engine.state import checkpoint
from seg.engine.state.first_rank import read_on_first
from seg.errors import UserError
from tests.engine.test_exact_resume import assert_equal
from tests.ranks import run_ranks

STATE = {
    'weights': OrderedDict(w=torch.arange(6.0).view(2, 3).t(), half=torch.ones(2, dtype=torch.bfloat16)),
    'meta': {'iter': 3, 'names': ['a', ('b', None)], 'empty': torch.zeros(0, 4), 'flag': torch.tensor(True)},
}


def read_where_only_the_first_has_it(path: str) -> dict:
    calls: list[int] = []

    def read() -> dict:
        calls.append(get_rank())
        return checkpoint.load(path)

    state = read_on_first(read)
    assert calls == ([0] if get_rank() == 0 else [])
    return state


def refuse() -> str:
    def read() -> None:
        raise UserError('no such file')

    with pytest.raises(UserError, match='no such file'):
        read_on_first(read)
    return read_on_first(lambda: 'the group goes on')


def test_every_rank_has_what_the_first_read(tmp_path: Path) -> None:
    checkpoint.save(STATE, tmp_path / 'state.pth')
    for state in run_ranks(3, read_where_only_the_first_has_it, str(tmp_path / 'state.pth')):
        assert_equal(checkpoint.plain(STATE), state)
        assert state['weights']['half'].dtype is torch.bfloat16


def test_a_refusal_reaches_every_rank() -> None:
    assert run_ranks(2, refuse) == ['the group goes on'] * 2


def test_one_process_reads_for_itself() -> None:
    assert read_on_first(lambda: STATE) is STATE
