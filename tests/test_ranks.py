"""The pool of ranks itself: results, exceptions, hangs, deaths, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.ranks import RankError, run_ranks


def total(value: int) -> tuple[int, int, int, torch.Tensor]:
    tensor = torch.tensor([float(dist.get_rank() + value)])
    dist.all_reduce(tensor)
    return dist.get_rank(), int(os.environ['RANK']), torch.get_num_threads(), tensor


def pid() -> int:
    return os.getpid()


def leave_a_mess() -> None:
    os.chdir('/')
    os.environ['MESS'] = '1'
    dist.destroy_process_group()


def look_around() -> tuple[str, bool]:
    return str(Path.cwd()), 'MESS' in os.environ


def fail_on_one(rank: int) -> None:
    if dist.get_rank() == rank:
        raise ValueError(f'bad value on {rank}')
    dist.barrier()


class UnpicklableError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f'{one} and {two}')


def fail_unpicklable() -> None:
    raise UnpicklableError(1, 2)


def hang_on_one() -> None:
    if dist.get_rank() == 1:
        time.sleep(600)


def die_on_one() -> None:
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def test_results_come_in_rank_order_from_one_kept_pool() -> None:
    results = run_ranks(2, total, 10)
    assert [result[:3] for result in results] == [(0, 0, 1), (1, 1, 1)]
    assert [result[3].item() for result in results] == [21.0, 21.0]  # (0 + 10) + (1 + 10)
    pids = run_ranks(2, pid)
    run_ranks(2, leave_a_mess)
    assert run_ranks(2, look_around) == [(str(Path.cwd()), False)] * 2
    assert run_ranks(1, pid) == pids[:1]
    assert run_ranks(3, pid)[:2] == pids


def test_an_exception_is_raised_with_its_ranks_traceback() -> None:
    pids = run_ranks(2, pid)
    with pytest.raises(ValueError, match='bad value on 1') as caught:
        run_ranks(2, fail_on_one, 1)
    assert 'on rank 1' in str(caught.value.__cause__)
    assert 'fail_on_one' in str(caught.value.__cause__)
    with pytest.raises(RankError, match='UnpicklableError: 1 and 2'):
        run_ranks(2, fail_unpicklable)
    assert run_ranks(2, pid) == pids


def test_a_hang_shows_its_stack_and_a_death_its_code_and_the_pool_is_rebuilt() -> None:
    pids = run_ranks(2, pid)
    with pytest.raises(RankError, match=r'ranks \[1\] did not end within 0.5 s(.|\n)*hang_on_one'):
        run_ranks(2, hang_on_one, timeout_s=0.5)
    assert all(not Path(f'/proc/{number}').exists() for number in pids)
    with pytest.raises(RankError, match='rank 1 died with exit code -9'):
        run_ranks(2, die_on_one)
    assert run_ranks(2, total, 0)[1][3].item() == 1.0


def test_ranks_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    report = tmp_path / 'pid'
    script = (
        'import sys; sys.path[:] = sys.argv[2].split(":")\n'
        'from pathlib import Path; from tests import ranks, test_ranks\n'
        'Path(sys.argv[1]).write_text(str(ranks.run_ranks(1, test_ranks.pid)[0]))\n'
        'ranks.run_ranks(1, test_ranks.time.sleep, 600)'
    )
    command = [sys.executable, '-c', script, str(report), ':'.join(sys.path)]
    parent = subprocess.Popen(command, env={**os.environ, 'TMPDIR': str(tmp_path)})
    while parent.poll() is None and not report.exists():
        time.sleep(0.05)
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    child = Path('/proc') / report.read_text()
    for _ in range(100):
        if not child.exists() or ' Z ' in (child / 'stat').read_text():
            return
        time.sleep(0.1)
    os.kill(int(child.name), signal.SIGKILL)
    pytest.fail('the rank outlived its parent')
