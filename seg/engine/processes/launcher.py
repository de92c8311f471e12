"""The parent of ranks: `python -m seg.engine.processes.launcher train CONFIG GPUS [flags]`, called by tools/dist_train.sh.

It checks what can be checked once, starts the ranks by torch's elastic launcher in this very process, and leaves with
the first failed rank's exit code; raw torchrun turns every code into 1 with a traceback (E13).
"""

import argparse
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seg.engine.cli import (
    ERROR_DIR,
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_LOST,
    EXIT_USER,
    LAUNCHER_PID,
    main,
    parser_for_test,
    parser_for_train,
)
from seg.engine.processes.cores import threads_per_process, usable_cores
from seg.engine.processes.meeting import Meeting, meet
from seg.engine.processes.network import DEFAULT_PORT, choose_gloo_interface
from seg.errors import UserError

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

TOOLS = Path(__file__).resolve().parents[3] / 'tools'
LAUNCHED_S = 'SEG_LAUNCHED_S'  # when it was started, in seconds of the clock
_MEETING_S = 900  # what the machines of a job have to come together
_LOOK_S = 0.1  # between two looks at the ranks


@dataclass(frozen=True)
class Job:
    """`nproc` ranks on each of `nodes` machines. `port` 0 takes a free one."""

    nproc: int
    nodes: int = 1
    node_rank: int = 0
    address: str = '127.0.0.1'
    port: int = 0
    max_restarts: int = 0


def launch(script: Sequence[str], job: Job) -> int:
    """Run `python *script` as each rank; the exit code for this process, 128 + N where signal N ended it.

    Raises UserError when the port is taken.
    """
    from torch.distributed.elastic.multiprocessing import SignalException

    job = replace(job, port=job.port or free_port())
    if job.nodes > 1:
        choose_gloo_interface(meet(Meeting(job.address, job.port, job.node_rank, job.nodes, 'node')))
    else:
        _refuse_taken_port(job)
    with tempfile.TemporaryDirectory(prefix='seg-launch-') as folder:
        _set_environment(job, Path(folder))
        try:
            return _start(script, job, folder)
        except SignalException as error:
            return EXIT_INTERRUPTED if error.sigval == signal.SIGINT else 128 + error.sigval


def _start(script: Sequence[str], job: Job, folder: str) -> int:
    from seg.engine.processes.agent import Agent

    _quieten_elastic()
    # torch fills ${local_rank} into arguments, and so makes $ of $$
    arguments = [argument.replace('$', '$$') for argument in ('-u', *script)]
    agent = Agent(**_specs(arguments, job, folder))
    if not agent.run().is_failed():
        return 0
    if agent.cause is None:
        return EXIT_ERROR
    return _report(*agent.cause, hint=_hint(script, job))


def _specs(arguments: Sequence[str], job: Job, folder: str) -> dict[str, Any]:
    """What torch's agent wants to be told: what to run, and how its machines meet."""
    from torch.distributed.elastic.agent.server.api import WorkerSpec
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import create_rdzv_handler

    local_addr = job.address if job.nodes == 1 else None
    endpoint, run_id = f'{job.address}:{job.port}', f'seg-{job.port}'
    meeting = RendezvousParameters(
        'static', endpoint, run_id, job.nodes, job.nodes, local_addr, rank=job.node_rank, timeout=_MEETING_S
    )
    spec = WorkerSpec(
        role='default_role',
        local_world_size=job.nproc,
        entrypoint=sys.executable,
        args=tuple(arguments),
        rdzv_handler=create_rdzv_handler(meeting),
        max_restarts=job.max_restarts,
        monitor_interval=_LOOK_S,
        master_addr=job.address,
        master_port=job.port,
        local_addr=local_addr,
    )
    return dict(spec=spec, logs_specs=DefaultLogsSpecs(log_dir=folder))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def _refuse_taken_port(job: Job) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(('', job.port))
        except OSError as error:
            raise UserError(
                f'port {job.port} cannot be used ({error.strerror}); leave PORT unset for a free one'
            ) from None


def _set_environment(job: Job, folder: Path) -> None:
    """What the ranks inherit. Each has its share of the cores, unless the user has set it."""
    notes = folder / 'errors'
    notes.mkdir()
    os.environ[ERROR_DIR] = str(notes)
    os.environ[LAUNCHER_PID] = str(os.getpid())
    os.environ[LAUNCHED_S] = str(time.time())
    os.environ.setdefault('OMP_NUM_THREADS', str(threads_per_process(usable_cores(), job.nproc)))
    # Under nohup a closed terminal must not end the run; torch would listen to the signal all the same.
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    os.environ['TORCHELASTIC_SIGNALS_TO_HANDLE'] = f'SIGTERM,SIGINT,SIGQUIT{"" if ignored else ",SIGHUP"}'


def _quieten_elastic() -> None:
    """What its loggers say about a failure, `_report` says in one line."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith('torch.distributed.elastic'):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _report(rank: int, failure: 'ProcessFailure', hint: str = '') -> int:
    from seg.engine.processes.agent import describe, is_final

    code = failure.exitcode
    if code != EXIT_USER:  # then the rank has said what to change
        print(describe(rank, failure) + ('' if is_final(code) else hint), file=sys.stderr)
    if code == EXIT_LOST:
        return EXIT_ERROR
    return code if code > 0 else 128 - code


def _hint(script: Sequence[str], job: Job) -> str:
    used = f', after {job.max_restarts} restart{"s" if job.max_restarts > 1 else ""}' if job.max_restarts else ''
    return used + ('; the same command with --resume goes on' if script[0].endswith('train.py') else '')


# ---- the command line ----


def job_from(env: Mapping[str, str], gpus: str, max_restarts: int = 0) -> Job:
    """`gpus`: processes on each machine. NNODES, NODE_RANK, MASTER_ADDR and PORT are OpenMMLab's."""
    nproc, nodes = _count('GPUS', gpus), _count('NNODES', env.get('NNODES', '1'))
    port = _count('PORT', env.get('PORT') or ('0' if nodes == 1 else str(DEFAULT_PORT)), 0)
    if nodes == 1:
        return Job(nproc, port=port, max_restarts=max_restarts)
    for name in ('NODE_RANK', 'MASTER_ADDR'):
        if name not in env:
            raise UserError(
                f'NNODES={nodes} needs {name}: set NODE_RANK (0 to {nodes - 1}) and MASTER_ADDR (of node 0)'
            )
    node_rank = _count('NODE_RANK', env['NODE_RANK'], 0)
    if node_rank >= nodes:
        raise UserError(f'NODE_RANK={node_rank}, but of {nodes} nodes the last is {nodes - 1}')
    return Job(nproc, nodes, node_rank, env['MASTER_ADDR'], port, max_restarts)


def _count(name: str, text: str, least: int = 1) -> int:
    if not text.isdigit() or int(text) < least:
        raise UserError(f'{name} must be a whole number from {least}, got {text!r}')
    return int(text)


def launcher_parser(tool: str) -> argparse.ArgumentParser:
    """The tool's own parser, so that its flags are judged once for all ranks, with GPUS and `--max-restarts`."""
    parser = parser_for_train() if tool == 'train' else parser_for_test()
    parser.prog = f'dist_{tool}.sh'
    parser.add_argument('gpus', metavar='GPUS', help='processes on this machine, each with a GPU if there is one')
    parser.add_argument('--max-restarts', type=int, default=0, metavar='N', help='start again after a failure, N times')
    return parser


def rank_arguments(tool: str, argv: Sequence[str]) -> list[str]:
    """What each rank runs: the tool with what was given, less what is for the launcher."""
    gpus = 1 if tool == 'train' else 2
    ours = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    ours.add_argument('--max-restarts')
    _, given = ours.parse_known_args([*argv[:gpus], *argv[gpus + 1 :]])
    return [str(TOOLS / f'{tool}.py'), *given, '--launcher', 'pytorch']


def run(tool: str, argv: Sequence[str], args: argparse.Namespace) -> int:
    """Check the command and the config, start the ranks, and give the exit code."""
    positionals = [args.config, args.gpus] if tool == 'train' else [args.config, args.checkpoint, args.gpus]
    if list(argv[: len(positionals)]) != positionals:
        raise UserError(f'{" ".join(positionals)} must come first, before the flags')
    job = job_from(os.environ, args.gpus, args.max_restarts)
    _check_config(tool, args, job)
    _check_devices(job)
    return launch(rank_arguments(tool, argv), job)


def _check_config(tool: str, args: argparse.Namespace, job: Job) -> None:
    from seg.config import load_config, load_for_training

    load = load_for_training if tool == 'train' else load_config
    load(args.config, args.cfg_options)
    if getattr(args, 'inject', None):
        _check_fault(args.inject, job)


def _check_fault(text: str, job: Job) -> None:
    from seg.engine.faults import parse_fault

    fault, ranks = parse_fault(text), job.nproc * job.nodes
    if fault.rank >= ranks:
        raise UserError(f'--inject {text}: of {ranks} ranks the last is {ranks - 1}')


def _check_devices(job: Job) -> None:
    import torch

    from seg.engine.processes.launch import device_plan

    gpus = torch.cuda.device_count()
    device_plan(0, job.nproc, gpus)
    if not gpus:
        print(f'no GPU here: {job.nproc} process{"es" if job.nproc > 1 else ""} on the CPU, over gloo', flush=True)


if __name__ == '__main__':
    if sys.argv[1:2] not in (['train'], ['test']):
        print(
            'usage: python -m seg.engine.processes.launcher train|test CONFIG [CHECKPOINT] GPUS [flags]',
            file=sys.stderr,
        )
        sys.exit(EXIT_USER)
    name, rest = sys.argv[1], sys.argv[2:]
    exit_code = main(launcher_parser(name), lambda args: run(name, rest, args), rest)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)  # nothing is left to do, and to take torch down can take seconds on a busy machine
