"""What the command lines share: flags, exit codes, who prints what; and the shell scripts around them."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seg.engine import cli
from seg.engine.cli import main, parser_for_test, parser_for_train
from seg.errors import UserError
from tests.ranks import LOOPBACK

TOOLS = Path(cli.__file__).resolve().parents[2] / 'tools'


# ---- flags ----


def test_optional_values_do_not_swallow_the_config() -> None:
    parse = parser_for_train().parse_args
    assert parse(['c.py', '--amp', '--resume']).amp == 'auto'
    assert parse(['c.py', '--resume']).resume == 'auto'
    args = parse(['c.py', '--amp', 'fp16', '--resume', 'x.pth', '--cfg-options', 'a=1', 'b=2', '--cfg-options', 'c=3'])
    assert (args.config, args.amp, args.resume, args.cfg_options) == ('c.py', 'fp16', 'x.pth', ['a=1', 'b=2', 'c=3'])
    plain = parse(['c.py'])
    assert (plain.amp, plain.resume, plain.compile, plain.check, plain.launcher) == (None, None, False, False, 'none')


@pytest.mark.parametrize('arguments', [['--amp', 'c.py'], [], ['c.py', '--amp', 'fp8'], ['c.py', '--resum']])
def test_what_argparse_refuses_is_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parser_for_train().parse_args(arguments)
    assert caught.value.code == 2


def test_old_launchers_may_pass_a_local_rank() -> None:
    assert parser_for_train().parse_args(['--local-rank=1', 'c.py']).config == 'c.py'
    args = parser_for_test().parse_args(['--local_rank', '1', 'c.py', 'c.pth', '--json', 'm.json'])
    assert (args.config, args.checkpoint, args.json) == ('c.py', 'c.pth', 'm.json')


# ---- how a run ends ----


def ending(error: BaseException | None) -> Callable[[argparse.Namespace], None]:
    def run(args: argparse.Namespace) -> None:
        if error is not None:
            raise error

    return run


@pytest.mark.parametrize(
    ('error', 'code', 'said'),
    [
        (None, 0, ''),
        (UserError('data_root: no folder x'), 2, 'error: data_root: no folder x\n'),
        (KeyboardInterrupt(), 130, ''),
        (ImportError('libGL.so.1: cannot open shared object file'), 2, 'libgl1 and libglib2.0-0'),
        (RuntimeError('unable to allocate shared memory(shm) for file </torch_1>'), 2, '/dev/shm'),
        (RuntimeError('DataLoader worker is killed by signal: Bus error. ... out of shared memory.'), 2, '--shm-size'),
        (ImportError('no such thing'), 1, 'ImportError: no such thing\n'),
        (ValueError('a bug'), 1, 'ValueError: a bug\n'),
        (
            RuntimeError('[pair.cc:545] Connection reset by peer. Check it.'),
            1,
            'rank 0 lost its connection to another rank',
        ),
    ],
)
def test_exit_codes(error: BaseException | None, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(parser_for_train(), ending(error), ['c.py']) == code
    printed = capsys.readouterr().err
    assert said in printed
    assert ('Traceback' in printed) == (code == 1 and 'rank 0' not in said)
    assert main(parser_for_train(), lambda _: 143, ['c.py']) == 143


@pytest.mark.parametrize(('ending', 'code'), [('raise ValueError("a bug")', 1), ('return 143', 143)])
def test_the_end_does_not_wait_for_workers_that_ignore_sigterm(ending: str, code: int) -> None:
    script = (
        'import multiprocessing, os, signal, sys, time\n'
        'from seg.engine.cli import main, parser_for_train\n'
        'def work():\n'
        '    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n'
        '    os.write(end, b"x")\n'
        '    time.sleep(120)\n'
        'def run(args):\n'
        '    multiprocessing.get_context("fork").Process(target=work, daemon=True).start()\n'
        '    os.read(start, 1)\n'
        f'    {ending}\n'
        'start, end = os.pipe()\n'
        'sys.exit(main(parser_for_train(), run, ["c.py"]))\n'
    )
    command, env = [sys.executable, '-c', script], {**os.environ, 'PYTHONPATH': str(TOOLS.parent)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr


def test_an_error_that_ranks_share_is_printed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv('SEG_ERROR_DIR', str(tmp_path))
    for rank, text in [('1', 'same'), ('0', 'same'), ('2', 'other')]:
        monkeypatch.setenv('RANK', rank)
        assert main(parser_for_train(), ending(UserError(text)), ['c.py']) == 2
    assert capsys.readouterr().err == 'error: same\nerror: other\n'


def test_elsewhere_the_other_ranks_give_the_first_time_to_end_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(cli.time, 'sleep', slept.append)
    for rank, waits in [('0', 0), ('1', 1)]:
        monkeypatch.setenv('SLURM_PROCID', rank)
        assert main(parser_for_train(), ending(UserError('x')), ['c.py']) == 2
        assert len(slept) == waits
        assert capsys.readouterr().err == 'error: x\n'


def test_a_rank_ends_after_its_checkpoint_and_whatever_pools_are_left(tmp_path: Path) -> None:
    script = (
        'import sys, time\n'
        'from concurrent.futures import ThreadPoolExecutor\n'
        'from pathlib import Path\n'
        'import torch.distributed as dist\n'
        'from seg.engine.state.background import BackgroundTask\n'
        'from seg.engine.cli import main, parser_for_train\n'
        'def run(args):\n'
        '    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)\n'
        '    pool.submit(print)\n'
        '    BackgroundTask("checkpoint").submit(lambda: (time.sleep(1), Path(sys.argv[1]).touch()))\n'
        '    raise ValueError("the rank fails")\n'
        'pool = ThreadPoolExecutor(1)\n'
        'main(parser_for_train(), run, ["c.py"])\n'
    )
    command = [sys.executable, '-c', script, str(tmp_path / 'written')]
    done = subprocess.run(command, timeout=60, capture_output=True, text=True, env={**os.environ, **LOOPBACK})
    assert done.returncode == 1, done.stderr
    assert 'the rank fails' in done.stderr
    assert (tmp_path / 'written').exists()


# ---- the tools ----


@pytest.mark.parametrize('tool', sorted(path.name for path in TOOLS.glob('*.py')))
def test_help_imports_nothing_heavy(tool: str) -> None:
    script = (
        'import runpy, sys; sys.argv = [sys.argv[1], "--help"]\n'
        'try: runpy.run_path(sys.argv[0], run_name="__main__")\n'
        'except SystemExit as end: code = end.code\n'
        'heavy = {"torch", "mmengine", "cv2", "numpy", "PIL"} & set(sys.modules)\n'
        'sys.exit(f"exit code {code}, imported {heavy}" if code or heavy else 0)'
    )
    done = subprocess.run(
        [sys.executable, '-c', script, str(TOOLS / tool)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert 'usage: ' in done.stdout


def test_print_config(tmp_path: Path) -> None:
    (tmp_path / 'c.py').write_text(
        "size = 3\nval_evaluator = dict(type='SegMetric', worst=size, class_scalars=['IoU', 'Dice'])\n"
    )
    command = [
        sys.executable,
        str(TOOLS / 'print_config.py'),
        str(tmp_path / 'c.py'),
        '--cfg-options',
        'val_evaluator.class_scalars.1=Acc',
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "val_evaluator = dict(type='SegMetric', worst=3, class_scalars=['IoU', 'Acc'])\n"

    done = subprocess.run([*command, 'val_evaluator.wurst=1', '--origin'], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert [line.split('  # ')[1] for line in done.stdout.splitlines()] == [
        f'{tmp_path}/c.py:2',
        f'{tmp_path}/c.py:2 (size: {tmp_path}/c.py:1)',
        f'{tmp_path}/c.py:2',
        '--cfg-options val_evaluator.class_scalars.1=Acc',
        '--cfg-options val_evaluator.wurst=1',
    ]
    assert done.stderr == (
        'error: --cfg-options val_evaluator.wurst=1: val_evaluator.wurst: '
        "SegMetric has no argument 'wurst'; did you mean worst?\n"
    )


# ---- shell scripts ----


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., str]:
    """Run a script of tools/ through a link with a space in its path; programs in PATH only say what they were given."""
    (tmp_path / 'a link').symlink_to(TOOLS.parent)
    for name in ('srun', 'sbatch', 'fake python'):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name}" "$@" "PYTHONPATH=$PYTHONPATH"\n')
        program.chmod(0o755)

    def run(script: str, *arguments: str, **env: str) -> str:
        environment = dict(os.environ, PATH=f'{tmp_path}:{os.environ["PATH"]}', PYTHON=str(tmp_path / 'fake python'))
        environment.pop('PYTHONPATH', None)
        done = subprocess.run(
            [str(tmp_path / 'a link' / 'tools' / script), *arguments],
            env={**environment, **env}, cwd='/', capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.replace(str(tmp_path), 'TMP')

    return run


@pytest.mark.parametrize('tool', ['train', 'test'])
def test_dist_scripts_hand_on_what_they_get_from_any_folder(shell: Callable[..., str], tool: str) -> None:
    given = ['my config.py', 'c.pth', '2', '--work-dir', 'a  b', '--cfg-options', "x=['1 2']"]
    expected = ['fake python', '-m', 'seg.engine.processes.launcher', tool, *given, 'PYTHONPATH=TMP/a link']
    assert shell(f'dist_{tool}.sh', *given).splitlines() == expected
    assert shell(f'dist_{tool}.sh', PYTHONPATH='/other').splitlines()[-1] == 'PYTHONPATH=TMP/a link:/other'


def test_slurm_script_runs_the_tool_under_srun(shell: Callable[..., str]) -> None:
    arguments = ['gpu part', 'my-job', 'my config.py', '--amp']
    said = shell('slurm_train.sh', *arguments, GPUS='8', GPUS_PER_NODE='4', SRUN_ARGS='--exclusive --time=1:00')
    assert said.splitlines() == [
        'srun', '--partition=gpu part', '--job-name=my-job', '--ntasks=8', '--ntasks-per-node=4', '--cpus-per-task=5',
        '--signal=USR1@120', '--gres=gpu:4', '--exclusive', '--time=1:00', '--disable-status', '--kill-on-bad-exit=1',
        'TMP/fake python', '-u',
        'TMP/a link/tools/train.py', 'my config.py', '--amp', '--launcher', 'slurm', 'PYTHONPATH=TMP/a link',
    ]  # fmt: skip
    one = shell('slurm_train.sh', *arguments, GPUS='1', GRES='').splitlines()
    assert '--ntasks-per-node=1' in one
    assert not any(line.startswith('--gres') for line in one)


def test_slurm_script_submits_a_job_that_comes_back(shell: Callable[..., str]) -> None:
    said = shell('slurm_train.sh', 'part', 'job', 'my config.py', SBATCH='1', WARN='60').splitlines()
    assert said[0] == 'sbatch'
    assert {'--requeue', '--open-mode=append', '--output=job-%j.log', '--ntasks=4', '--signal=USR1@60'} <= set(said)
    wrapped = next(line for line in said if line.startswith('--wrap='))
    assert 'setsid --wait srun --cpus-per-task=5 --kill-on-bad-exit=1 ' in wrapped
    assert r'tools/train.py my\ config.py --launcher slurm --resume ' in wrapped
    resumed = shell('slurm_train.sh', 'part', 'job', 'my config.py', '--resume', 'a.pth', SBATCH='1')
    assert resumed.count('--resume') == 1


@pytest.mark.parametrize(
    ('code', 'requeue', 'end', 'expected'),
    [
        (138, '1', '', [138, 'requeue 77']),  # 128 + SIGUSR1: warned
        (138, '0', '', [138]),
        (138, '1', 'kill $PPID', [138]),  # warned, then cancelled: it must not come back
        (143, '1', '', [143]),
        (0, '1', '', [0]),
    ],
)
def test_a_batch_job_goes_back_in_the_queue_only_after_a_warning(
    tmp_path: Path, code: int, requeue: str, end: str, expected: list
) -> None:
    for name, body in {
        'setsid': 'shift\nexec "$@"',
        'srun': f'{end}\nexit {code}',
        'scontrol': 'echo "$@" >>requeued',
        'sbatch': 'for last; do :; done; printf %s "${last#--wrap=}" >script',
    }.items():
        (tmp_path / name).write_text(f'#!/bin/sh\n{body}\n')
        (tmp_path / name).chmod(0o755)
    env = dict(os.environ, PATH=f'{tmp_path}:{os.environ["PATH"]}', SBATCH='1', REQUEUE=requeue, SLURM_JOB_ID='77')
    subprocess.run([str(TOOLS / 'slurm_train.sh'), 'part', 'job', 'config.py'], env=env, cwd=tmp_path, check=True)
    done = subprocess.run(['sh', 'script'], env=env, cwd=tmp_path, check=False, capture_output=True)
    requeued = (tmp_path / 'requeued').read_text().splitlines() if (tmp_path / 'requeued').exists() else []
    assert [done.returncode, *requeued] == expected, done.stderr


def test_slurm_script_says_how_it_is_used() -> None:
    done = subprocess.run([str(TOOLS / 'slurm_train.sh'), 'part'], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'usage: ' in done.stderr
