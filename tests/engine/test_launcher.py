"""The parent of ranks: its exit codes, its signals, two at once, and what its command line refuses."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seg.engine.cli import EXIT_LOST
from seg.engine.processes import launcher
from seg.engine.processes.agent import first_failure
from seg.engine.processes.launcher import Job, job_from, launch, rank_arguments
from seg.errors import UserError

REPO = Path(launcher.__file__).resolve().parents[3]
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Launch a script in this process, which gets its signal handlers and environment back."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    before = dict(os.environ)
    monkeypatch.setenv('FOLDER', str(tmp_path))

    def run(script: str, *arguments: str, **job: Any) -> int:
        path = tmp_path / 'a script.py'
        path.write_text('import os, signal, sys, time\nrank = os.environ["RANK"]\n' + textwrap.dedent(script))
        return launch([str(path), *arguments], Job(**{'nproc': 2, **job}))

    yield run
    for number, handler in handlers.items():
        signal.signal(number, handler)
    os.environ.clear()
    os.environ.update(before)


def gone(pid: int) -> bool:
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] == 'Z'
    except OSError:
        return True


def wait_for(condition: Callable[[], bool], limit_s: float = 60.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# ---- one launch ----


def test_each_rank_gets_its_arguments_and_its_place(start: Callable[..., int], tmp_path: Path) -> None:
    os.environ.pop('OMP_NUM_THREADS', None)
    script = """
        import json
        names = ['WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'MASTER_ADDR', 'OMP_NUM_THREADS', 'SEG_LAUNCHER_PID']
        found = [sys.argv[1:], *(os.environ[name] for name in names)]
        open(os.path.join(os.environ['FOLDER'], rank), 'w').write(json.dumps(found))
    """
    arguments = ['--work-dir', 'a b/$HOME $$ ${local_rank}', '--cfg-options', 'x="1 2"']
    assert start(script, *arguments) == 0
    threads = str(max(1, len(os.sched_getaffinity(0)) // 2))
    for rank in ('0', '1'):
        found = json.loads((tmp_path / rank).read_text())
        assert found == [arguments, '2', rank, '2', '127.0.0.1', threads, str(os.getpid())]


@pytest.mark.parametrize(
    ('script', 'code', 'said'),
    [
        ('sys.exit(2) if rank == "1" else time.sleep(60)', 2, ''),
        ('sys.exit(7) if rank == "0" else time.sleep(60)', 7, 'rank 0 failed with exit code 7\n'),
        ('os.kill(os.getpid(), signal.SIGKILL) if rank == "1" else time.sleep(60)', 128 + 9, 'when memory runs out\n'),
    ],
)
def test_the_first_failed_ranks_code_is_ours_and_the_cause_is_one_line(
    start: Callable[..., int], capfd: pytest.CaptureFixture[str], script: str, code: int, said: str
) -> None:
    assert start(script) == code
    error = capfd.readouterr().err
    assert error.endswith(said)
    assert error.count('\n') == bool(said)


def test_a_failed_group_is_started_again_as_often_as_asked(
    start: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = """
        attempt = os.environ['TORCHELASTIC_RESTART_COUNT']
        open(os.path.join(os.environ['FOLDER'], rank + attempt), 'w')
        if attempt == '0' and rank == '1':
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60 if attempt == '0' else 0)
    """
    assert start(script, max_restarts=3) == 0
    assert {path.name for path in tmp_path.iterdir()} == {'a script.py', '00', '10', '01', '11'}
    said = capfd.readouterr().err
    assert re.fullmatch(r'rank 1 .* was killed by SIGKILL.*; starting all ranks anew, restart 1 of 3\n', said)


@pytest.mark.parametrize(
    ('end', 'code'),
    [('sys.exit(2)', 2), ('sys.exit(143)', 143), ('os.kill(os.getpid(), signal.SIGTERM)', 143)],
)
def test_what_was_refused_or_stopped_is_not_started_again(
    start: Callable[..., int], tmp_path: Path, end: str, code: int
) -> None:
    script = f"""
        open(os.path.join(os.environ['FOLDER'], rank + os.environ['TORCHELASTIC_RESTART_COUNT']), 'w')
        while not os.path.exists(os.path.join(os.environ['FOLDER'], '10')):
            time.sleep(0.01)
        {end} if rank == '0' else time.sleep(60)
    """
    assert start(script, max_restarts=3) == code
    assert {path.name for path in tmp_path.iterdir()} == {'a script.py', '00', '10'}


@pytest.mark.parametrize(('sent', 'code'), [('SIGINT', 130), ('SIGTERM', 143)])
def test_a_signal_reaches_every_rank(start: Callable[..., int], tmp_path: Path, sent: str, code: int) -> None:
    script = f"""
        path = os.path.join(os.environ['FOLDER'], rank)
        signal.signal(signal.{sent}, lambda *_: (open(path + '-got', 'w'), sys.exit(0)))
        open(path, 'w')
        while not os.path.exists(os.path.join(os.environ['FOLDER'], '1')):
            time.sleep(0.01)
        if rank == '0':
            os.kill(os.getppid(), signal.{sent})
        time.sleep(60)
    """
    assert start(script) == code
    assert {path.name for path in tmp_path.glob('*-got')} == {'0-got', '1-got'}


def test_a_taken_port_is_named(start: Callable[..., int]) -> None:
    with socket.socket() as taken:
        taken.bind(('', 0))
        taken.listen()
        with pytest.raises(UserError, match=rf'port {taken.getsockname()[1]} cannot be used .*leave PORT unset'):
            start('', port=taken.getsockname()[1])


def failure(code: int, timestamp: int) -> SimpleNamespace:
    return SimpleNamespace(exitcode=code, timestamp=timestamp)


@pytest.mark.parametrize(
    ('codes_and_times', 'cause'),
    [
        ({0: (1, 100), 1: (2, 101)}, 1),  # 0's collective broke because 1 had told the user something
        ({0: (1, 100), 2: (-9, 100), 1: (-15, 100)}, 2),  # torch ended 1
        ({0: (1, 100), 1: (-9, 130)}, 0),  # 1 was stuck, and torch killed it half a minute later
        ({3: (1, 100), 0: (1, 100)}, 3),  # in the order in which they were seen
        ({0: (-15, 100), 1: (1, 100)}, 1),
    ],
)
def test_the_cause_is_told_from_its_consequences(codes_and_times: dict[int, tuple[int, int]], cause: int) -> None:
    assert first_failure({rank: failure(*both) for rank, both in codes_and_times.items()})[0] == cause  # type: ignore[misc]


# ---- two at once, and killed ----

GROUP = """
import os, sys, time, torch, torch.distributed as dist
from seg.engine.processes.launch import setup_process
setup_process('pytorch')
total = torch.ones(1)
dist.all_reduce(total)
open(os.path.join(sys.argv[1], f'{dist.get_rank()}-{int(total)}-{os.getpid()}'), 'w')
time.sleep(120)
"""


def test_two_run_at_once_and_a_killed_one_takes_only_its_own_ranks_along(tmp_path: Path) -> None:
    (tmp_path / 'group.py').write_text(GROUP)
    driver = 'import sys; from seg.engine.processes.launcher import *; sys.exit(launch(sys.argv[1:], Job(2)))'
    environment = {**os.environ, 'PYTHONPATH': str(REPO), 'TMPDIR': str(tmp_path)}
    parents, folders = [], [tmp_path / 'one', tmp_path / 'two']
    for folder in folders:
        folder.mkdir()
        command = [sys.executable, '-c', driver, str(tmp_path / 'group.py'), str(folder)]
        parents.append(subprocess.Popen(command, env=environment))
    try:
        assert wait_for(lambda: all(len(list(folder.iterdir())) == 2 for folder in folders))
        names = [sorted(path.name.rsplit('-', 1) for path in folder.iterdir()) for folder in folders]
        assert [[name for name, _ in ranks] for ranks in names] == [['0-2', '1-2']] * 2  # 1 + 1 over each group
        first, second = ([int(pid) for _, pid in ranks] for ranks in names)
        parents[0].kill()
        parents[0].wait()
        assert wait_for(lambda: all(map(gone, first)), 15)
        assert not any(map(gone, second))
        parents[1].terminate()
        assert parents[1].wait(30) == 143
        assert all(map(gone, second))
    finally:
        for parent in parents:
            parent.terminate()
            parent.wait()


# ---- the command line ----


def test_jobs_from_the_environment() -> None:
    assert job_from({}, '4', 3) == Job(4, max_restarts=3)
    assert job_from({'PORT': '1234'}, '4') == Job(4, port=1234)
    two = dict(NNODES='2', NODE_RANK='1', MASTER_ADDR='node0')
    assert job_from(two, '8') == Job(8, 2, 1, 'node0', 29500)
    assert job_from(dict(two, PORT='7'), '8') == Job(8, 2, 1, 'node0', 7)


@pytest.mark.parametrize(
    ('env', 'gpus', 'message'),
    [
        ({}, 'two', r"GPUS must be a whole number from 1, got 'two'"),
        ({}, '0', 'GPUS must be'),
        ({}, '-1', 'GPUS must be'),
        ({'PORT': 'x'}, '1', 'PORT must be'),
        ({'NNODES': '2'}, '1', r'NNODES=2 needs NODE_RANK'),
        ({'NNODES': '2', 'NODE_RANK': '0'}, '1', r'NNODES=2 needs MASTER_ADDR'),
        ({'NNODES': '2', 'NODE_RANK': '2', 'MASTER_ADDR': 'a'}, '1', 'of 2 nodes the last is 1'),
    ],
)
def test_jobs_that_make_no_sense(env: dict[str, str], gpus: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        job_from(env, gpus)


def test_ranks_get_everything_but_what_is_the_launchers() -> None:
    train = rank_arguments('train', ['a b.py', '4', '--amp', '--max-restarts', '3', '--cfg-options', 'x=1', 'y=2'])
    tool = str(REPO / 'tools' / 'train.py')
    assert train == [tool, 'a b.py', '--amp', '--cfg-options', 'x=1', 'y=2', '--launcher', 'pytorch']
    test = rank_arguments('test', ['c.py', 'c.pth', '2', '--json', 'm.json'])
    assert test[1:] == ['c.py', 'c.pth', '--json', 'm.json', '--launcher', 'pytorch']


def dist_train(*arguments: str) -> subprocess.CompletedProcess:
    command = [str(REPO / 'tools' / 'dist_train.sh'), *arguments]
    env = {**os.environ, 'PYTHON': sys.executable}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_what_is_wrong_is_said_once_before_any_rank_starts(tmp_path: Path) -> None:
    (tmp_path / 'unet.py').write_text('model = dict()\ncustom_hoks = []\n')
    for arguments, message in [
        ([str(tmp_path / 'unett.py'), '2'], f'did you mean {tmp_path / "unet.py"}?'),
        ([str(tmp_path / 'unet.py'), '2'], 'custom_hoks: nothing reads this key; did you mean custom_hooks?'),
        ([str(tmp_path / 'unet.py'), '2', '--cfg-options', 'model.x'], 'expected key=value'),
        ([str(tmp_path / 'unet.py'), '2', '--no-such-flag'], 'unrecognized arguments: --no-such-flag'),
        ([str(tmp_path / 'unet.py'), '--amp', 'bf16', '2'], 'must come first'),
        ([str(tmp_path / 'unet.py')], 'the following arguments are required: GPUS'),
    ]:
        done = dist_train(*arguments)
        assert done.returncode == 2
        assert done.stderr.count('error: ') == 1
        assert message in done.stderr
        assert 'Traceback' not in done.stderr
        assert done.stdout == ''


def failed(code: int, second_s: int = 0) -> SimpleNamespace:
    return SimpleNamespace(exitcode=code, timestamp=second_s, pid=7)


def test_the_rank_that_lost_another_is_not_the_cause() -> None:
    assert first_failure({0: failed(EXIT_LOST), 1: failed(1)})[0] == 1  # type: ignore[dict-item]
    assert first_failure({0: failed(EXIT_LOST), 1: failed(-9, second_s=1)})[0] == 1  # type: ignore[dict-item]


def test_the_last_line_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    hint = launcher._hint(['tools/train.py', 'c.py'], launcher.Job(2, max_restarts=1))
    assert launcher._report(1, failed(1), hint) == 1  # type: ignore[arg-type]
    assert launcher._report(0, failed(EXIT_LOST)) == 1  # type: ignore[arg-type]
    assert capsys.readouterr().err.splitlines() == [
        'rank 1 failed with exit code 1, after 1 restart; the same command with --resume goes on',
        'rank 0 lost a rank of another machine',
    ]
    assert launcher._hint(['tools/test.py'], launcher.Job(2)) == ''
    assert launcher._report(1, failed(130), hint) == 130  # type: ignore[arg-type]
    assert capsys.readouterr().err == 'rank 1 was stopped by SIGINT\n'


def test_a_fault_on_a_rank_that_is_not_there_is_refused_at_once() -> None:
    launcher._check_fault('kill:rank=3', launcher.Job(2, nodes=2))
    with pytest.raises(UserError, match='of 4 ranks the last is 3'):
        launcher._check_fault('kill:rank=4', launcher.Job(2, nodes=2))
