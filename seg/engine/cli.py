"""What the command lines share: their flags, and how a failure leaves the process.

Exit codes: 0 done, 2 the user must change something (one message, no traceback), 130 Ctrl-C, 1 anything else. Nothing
heavy is imported here, so that `--help` answers at once.
"""

import argparse
import atexit
import errno
import hashlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seg.engine.processes import slurm_warning
from seg.engine.state import background
from seg.errors import RunError, UserError

EXIT_ERROR, EXIT_USER, EXIT_INTERRUPTED = 1, 2, 130
EXIT_LOST = 3  # between a rank and our launcher only: another rank is gone, which is not this one's failure
LAUNCHER_PID = 'SEG_LAUNCHER_PID'  # set by our launcher: the ranks watch this process
ERROR_DIR = 'SEG_ERROR_DIR'  # set by our launcher: a folder where the ranks of one machine note what has been said
_WAIT_S = 8.0  # ranks of a busy machine come to a fault seconds apart
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # full, a full quota, read-only
_SYSTEM_LIBRARIES = ('libGL', 'libgthread', 'libglib')  # what OpenCV needs of the system
# What torch says of it, before and after the system has killed a worker for it
_NO_SHARED_MEMORY = ('unable to allocate shared memory', 'out of shared memory')
# What gloo and NCCL say on a rank whose peer has ended
_PEER_IS_GONE = ('Connection closed by peer', 'Connection reset by peer', 'remote process exited')


def main(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int | None],
    argv: Sequence[str] | None = None,
) -> int:
    """The exit code of `run(parser.parse_args(argv))`; None means 0."""
    args = parser.parse_args(argv)
    if getattr(args, 'launcher', None) == 'slurm':
        slurm_warning.listen()
    try:
        return _end_rank(run(args) or 0)
    except BaseException as error:  # noqa: BLE001, every failure ends here
        return _end_rank(_fail(error))
    finally:
        _end_workers()


def _fail(error: BaseException) -> int:
    """Say what there is to say; the exit code."""
    if isinstance(error, UserError):
        _say_once(f'error: {error}')
        return EXIT_USER
    if isinstance(error, RunError) or (isinstance(error, OSError) and error.errno in _DISK):
        _say_once(f'error: {error}', EXIT_ERROR)
        return EXIT_ERROR
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if not isinstance(error, Exception):
        raise error
    instead = _known_shortage(error)
    if instead:
        _say_once(f'error: {instead}')
        return EXIT_USER
    if isinstance(error, RuntimeError) and any(sign in str(error) for sign in _PEER_IS_GONE):
        print(f'rank {_rank()} lost its connection to another rank', file=sys.stderr, flush=True)
        return EXIT_LOST if ERROR_DIR in os.environ else EXIT_ERROR
    _say_traceback(error)
    return EXIT_ERROR


def _known_shortage(error: Exception) -> str:
    """What to do about an error that tells of something missing on the machine; empty for any other."""
    text = str(error)
    if isinstance(error, ImportError) and any(library in text for library in _SYSTEM_LIBRARIES):
        return (
            f'OpenCV cannot be loaded ({error}): install the system packages libgl1 and libglib2.0-0, '
            'or put opencv-python-headless in the place of opencv-python'
        )
    if isinstance(error, RuntimeError) and any(sign in text for sign in _NO_SHARED_MEMORY):
        return (
            'the loader workers have no room left in shared memory (/dev/shm), through which they hand over their batches: '
            'make it larger (docker run --shm-size=8g), or load without workers: --cfg-options '
            'train_dataloader.num_workers=0 val_dataloader.num_workers=0'
        )
    return ''


def parser_for_train() -> argparse.ArgumentParser:
    parser = _parser('Train as CONFIG says.')
    parser.add_argument('--work-dir', metavar='D', help="the run's folder; work_dirs/NAME OF CONFIG without it")
    parser.add_argument(
        '--resume',
        nargs='?',
        const='auto',
        metavar='auto|PATH',
        help='go on from the newest good checkpoint of the work dir, or from PATH',
    )
    parser.add_argument(
        '--amp',
        nargs='?',
        const='auto',
        choices=['auto', 'bf16', 'fp16'],
        metavar='bf16|fp16',
        help='mixed precision; without a name bf16 where it is supported, else fp16',
    )
    parser.add_argument('--compile', action='store_true', help='compile the network')
    parser.add_argument(
        '--fold',
        metavar='I/K',
        help='validate fold I (from 0) of K of the training images and train on the others, in D/fold_I; '
        'tools/summarize_folds.py D sums them up',
    )
    parser.add_argument('--inject', metavar='FAULT', help='a drill, such as kill:rank=1,step=17,phase=backward')
    parser.add_argument('--check', action='store_true', help='build everything, try one step, and train nothing')
    _add_shared(parser)
    return parser


def parser_for_test() -> argparse.ArgumentParser:
    parser = _parser('Score CHECKPOINT on the test data of CONFIG.')
    parser.add_argument('checkpoint', metavar='CHECKPOINT')
    parser.add_argument('--work-dir', metavar='D', help='where the log goes; work_dirs/NAME OF CONFIG_test without it')
    parser.add_argument('--json', metavar='FILE', help='write the scores there')
    parser.add_argument('--out', metavar='DIR', help='write the predicted masks there')
    parser.add_argument('--show-dir', metavar='D', help='write overlays there')
    _add_shared(parser)
    return parser


def parser_for_config(description: str) -> argparse.ArgumentParser:
    """CONFIG and `--cfg-options`: what every tool that reads a config takes."""
    parser = _parser(description)
    _add_options(parser)
    return parser


def _parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument('config', metavar='CONFIG')
    return parser


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action='extend',
        metavar='KEY=VALUE',
        help='change the config: model.network.depth=3, train_dataloader.dataset.pipeline.2.prob=0.3, ...',
    )


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--launcher',
        choices=['none', 'pytorch', 'slurm', 'mpi'],
        default='none',
        help='who started the processes; tools/dist_*.sh and tools/slurm_train.sh set it',
    )
    parser.add_argument(
        '--trust-checkpoint',
        action='store_true',
        help='load a checkpoint that can run code: only from a source you trust',
    )
    parser.add_argument('--local-rank', '--local_rank', help=argparse.SUPPRESS)  # old launchers pass it
    _add_options(parser)


def _rank() -> str:
    return os.environ.get('RANK') or os.environ.get('SLURM_PROCID') or os.environ.get('OMPI_COMM_WORLD_RANK') or '0'


def _say_traceback(error: Exception) -> None:
    """Of ranks of one machine that fail alike the first shows where."""
    text = ''.join(traceback.format_exception(error))
    if ERROR_DIR in os.environ and not _is_first_to_say(text):
        text = f'rank {_rank()} failed in the same way\n'
    print(text, file=sys.stderr, end='', flush=True)


def _is_first_to_say(message: str) -> bool:
    note = Path(os.environ[ERROR_DIR]) / hashlib.sha256(message.encode()).hexdigest()
    try:
        note.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _say_once(message: str, code: int = EXIT_USER) -> None:
    """Print an error that the other ranks may have as well; `code` is what this process is about to exit with.

    Under our launcher the first rank to say it notes that. Elsewhere all ranks but the first wait: they are ended
    meanwhile when the first has failed too.
    """
    if ERROR_DIR in os.environ:
        if not _is_first_to_say(message):
            return
    elif _rank() != '0':
        signal.signal(signal.SIGTERM, lambda *_: os._exit(code))  # srun gives the largest code of all ranks
        time.sleep(_WAIT_S)
    print(message, file=sys.stderr, flush=True)


def over_note(start: int) -> Path:
    """Exists once our launcher ends the ranks that it started for the `start`-th time (from 0), since one has failed."""
    return Path(os.environ[ERROR_DIR]) / f'over{start}'


def _group() -> Any:
    """torch.distributed, where this process is one of a group."""
    torch = sys.modules.get('torch')
    return torch.distributed if torch is not None and torch.distributed.is_initialized() else None


def _end_rank(code: int) -> int:
    """End a process of a group here and now, with its exit code, after what is registered for the exit.

    gloo's threads can abort it while the interpreter takes itself down, and after a failure the peers may hang.
    """
    if _group() is None:
        return code
    _end_workers()
    # For a checkpoint that is being written, and for no other thread: a pool's threads (the compiler has one) never end.
    background.wait(None if code != EXIT_INTERRUPTED else 0.5)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _end_workers() -> None:
    """A loader's workers ignore SIGTERM, by which Python would try to end them on its way out, and wait for ever."""
    workers = multiprocessing.active_children()
    if not workers or threading.current_thread() is not threading.main_thread():
        return
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's would raise that they were killed
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join()
    signal.signal(signal.SIGCHLD, handler)
