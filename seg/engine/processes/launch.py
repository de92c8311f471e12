"""What each process does before there is a Runner: who it is, which device it has, its threads, the process group.

MMEngine's `init_dist` calls `torch.cuda.set_device` whatever there is (D3); nothing here does without a GPU.
"""

import os
import re
import signal
import socket
import subprocess
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from seg.engine.cli import LAUNCHER_PID
from seg.engine.processes import peers, slurm_warning
from seg.engine.processes.cores import threads_per_process, usable_cores
from seg.engine.processes.meeting import Meeting, meet, meet_in_store
from seg.engine.processes.network import DEFAULT_PORT, address_towards, choose_gloo_interface, interface_of
from seg.errors import UserError

_WATCH_S = 1.0


@dataclass(frozen=True)
class World:
    """Which process this is. `local_*` count those on this machine."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    address: str = ''
    port: int = DEFAULT_PORT


@dataclass(frozen=True)
class DevicePlan:
    """`backend` is torch.distributed's: the group serves tensors of the CPU always, so that ranks can agree off-stream."""

    device: str
    backend: str


def setup_process(launcher: str, dist_cfg: Mapping[str, Any] | None = None) -> World:
    """Once per process, before the Runner. `dist_cfg` is the config's `env_cfg.dist_cfg`: `backend`, `timeout` in s.

    A process group that is there already is kept. Raises UserError where the environment does not fit `launcher`, or
    there are more processes on this machine than GPUs.
    """
    world = read_world(launcher, os.environ, torch.cuda.device_count())
    plan = device_plan(world.local_rank, world.local_size, torch.cuda.device_count())
    if plan.device != 'cpu':
        torch.cuda.set_device(plan.device)
    _limit_threads(world.local_size, launcher)
    if launcher == 'slurm' and threading.current_thread() is threading.main_thread():
        slurm_warning.listen()
    _watch_launcher()
    if launcher != 'none' and not dist.is_initialized():
        _join(world, plan, dist_cfg or {})
    return world


def device_plan(local_rank: int, local_size: int, gpus: int) -> DevicePlan:
    """`gpus`: how many this machine has; 0 means CPU and gloo."""
    if not gpus:
        return DevicePlan('cpu', 'gloo')
    if local_size > gpus:
        raise UserError(
            f'{local_size} processes on this machine need {local_size} GPUs, and it has {gpus}; '
            f'ask for {gpus}, or hide the GPUs to train on the CPU: CUDA_VISIBLE_DEVICES= '
        )
    return DevicePlan(f'cuda:{local_rank}', 'cpu:gloo,cuda:nccl')


def read_world(launcher: str, env: Mapping[str, str], gpus: int) -> World:
    """Who this process is, from the variables that `launcher` sets."""
    readers = {'none': _alone, 'pytorch': _from_torch, 'slurm': _from_slurm, 'mpi': _from_mpi}
    if launcher not in readers:
        raise UserError(f'launcher must be one of {", ".join(readers)}, got {launcher!r}')
    world = readers[launcher](env, gpus)
    if not (0 <= world.rank < world.size and 0 <= world.local_rank < world.local_size <= world.size):
        raise UserError(f'--launcher {launcher}: the environment makes no sense as a process of a group: {world}')
    return world


def _alone(env: Mapping[str, str], gpus: int) -> World:
    if _number(env, 'WORLD_SIZE', 1) > 1:
        raise UserError(
            f'WORLD_SIZE={env["WORLD_SIZE"]} is set, so several processes were started, each of which would train '
            'alone; give --launcher pytorch (tools/dist_train.sh does), or unset WORLD_SIZE'
        )
    return World()


def _from_torch(env: Mapping[str, str], gpus: int) -> World:
    for name in ('RANK', 'WORLD_SIZE'):
        if name not in env:
            raise UserError(
                f'--launcher pytorch needs {name} in the environment; tools/dist_train.sh CONFIG GPUS sets it'
            )
    rank, size = _number(env, 'RANK'), _number(env, 'WORLD_SIZE')
    address = env.get('MASTER_ADDR', '' if size > 1 else '127.0.0.1')
    local_size = _number(env, 'LOCAL_WORLD_SIZE', _guess_local_size(size, address, gpus))
    local_rank = _number(env, 'LOCAL_RANK', rank % local_size)
    return World(rank, size, local_rank, local_size, address, _number(env, 'MASTER_PORT', DEFAULT_PORT))


def _guess_local_size(size: int, address: str, gpus: int) -> int:
    """Of ranks started by hand: all are here where the first is met on the loopback, else one for each GPU."""
    if address.startswith('127.') or address in ('localhost', '::1', ''):
        return size
    return min(size, max(gpus, 1))


def _from_slurm(env: Mapping[str, str], gpus: int) -> World:
    for name in ('SLURM_PROCID', 'SLURM_NTASKS', 'SLURM_LOCALID'):
        if name not in env:
            raise UserError(f'--launcher slurm needs {name} in the environment: start by srun, or tools/slurm_train.sh')
    local_size = slurm_local_size(env)
    address = env.get('MASTER_ADDR') or slurm_address(env)
    port = _number(env, 'MASTER_PORT', port_of(f'{env.get("SLURM_JOB_ID", "")}.{env.get("SLURM_STEP_ID", "")}'))
    rank, size, local_rank = (_number(env, name) for name in ('SLURM_PROCID', 'SLURM_NTASKS', 'SLURM_LOCALID'))
    return World(rank, size, local_rank, local_size, address, port)


def slurm_local_size(env: Mapping[str, str]) -> int:
    """Tasks on this node, from a list such as '2(x3),1': three nodes with 2 each, then one with 1."""
    counts: list[int] = []
    listed = env.get('SLURM_STEP_TASKS_PER_NODE') or env.get('SLURM_TASKS_PER_NODE') or env['SLURM_NTASKS']
    for count, repeat in re.findall(r'(\d+)(?:\(x(\d+)\))?', listed):
        counts += [int(count)] * int(repeat or 1)
    node = _number(env, 'SLURM_NODEID', 0)
    if node >= len(counts):
        raise UserError(f'SLURM_NODEID={node}, but SLURM_TASKS_PER_NODE={listed} lists {len(counts)} nodes')
    return counts[node]


def slurm_address(env: Mapping[str, str]) -> str:
    """Of the first node: its name where that can be looked up, else the address that Slurm itself uses."""
    name = first_host(env.get('SLURM_STEP_NODELIST') or env.get('SLURM_NODELIST', ''))
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        found = re.search(r'\bNodeAddr=(\S+)', _scontrol('show', 'node', name))
        return found[1] if found else name
    return name


def _scontrol(*arguments: str) -> str:
    """What it answers; '' where there is none (inside a container, for one), or it does not know."""
    try:
        return subprocess.run(['scontrol', *arguments], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ''


def first_host(nodes: str) -> str:
    """The first of Slurm's node list: 'gpu[03-05,9],login' -> 'gpu03'. `scontrol` is asked where there is one."""
    answer = _scontrol('show', 'hostnames', nodes).split()
    if answer:
        return answer[0]
    match = re.match(r'([^\[,\s]+)(?:\[([^\],-]+)[^\]]*\]([^,\s]*))?', nodes)
    if match is None:
        raise UserError(f'SLURM_NODELIST={nodes!r} names no node; set MASTER_ADDR to the first node')
    return ''.join(part or '' for part in match.groups())


def _from_mpi(env: Mapping[str, str], gpus: int) -> World:
    names = [f'OMPI_COMM_WORLD_{name}' for name in ('RANK', 'SIZE', 'LOCAL_RANK', 'LOCAL_SIZE')]
    for name in names:
        if name not in env:
            raise UserError(
                f'--launcher mpi needs {name} in the environment: start by Open MPI, mpirun -n 4 python ...'
            )
    rank, size, local_rank, local_size = (_number(env, name) for name in names)
    address = env.get('MASTER_ADDR') or ('127.0.0.1' if size == local_size else '')
    job = env.get('PMIX_NAMESPACE') or env.get('OMPI_MCA_ess_base_jobid', '')
    return World(rank, size, local_rank, local_size, address, _number(env, 'MASTER_PORT', port_of(job)))


def port_of(job: str) -> int:
    """A port that all processes of one job agree on, below those that systems hand out: two jobs can share a node."""
    return 15000 + zlib.crc32(job.encode()) % 15000


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    if name not in env and default is not None:
        return default
    try:
        return int(env[name])
    except ValueError:
        raise UserError(f'{name}={env[name]!r} in the environment: expected a number') from None


def _limit_threads(local_size: int, launcher: str) -> None:
    """N processes share the cores of the machine, unless the user has said how many threads each may have.

    Slurm gives each task cores of its own, and says how many.
    """
    if 'OMP_NUM_THREADS' in os.environ:
        return
    threads = threads_per_process(usable_cores(), local_size)
    if launcher == 'slurm' and 'SLURM_CPUS_PER_TASK' in os.environ:
        threads = min(usable_cores(), _number(os.environ, 'SLURM_CPUS_PER_TASK'))
    torch.set_num_threads(min(torch.get_num_threads(), threads))


def _join(world: World, plan: DevicePlan, dist_cfg: Mapping[str, Any]) -> None:
    if not world.address:
        raise UserError('several processes need MASTER_ADDR in the environment: the address of the machine of rank 0')
    os.environ.update(
        RANK=str(world.rank),
        WORLD_SIZE=str(world.size),
        LOCAL_RANK=str(world.local_rank),
        LOCAL_WORLD_SIZE=str(world.local_size),
        MASTER_ADDR=world.address,
        MASTER_PORT=str(world.port),
    )
    timeout_s = dist_cfg.get('timeout')
    options: dict[str, Any] = {} if timeout_s is None else {'timeout': timedelta(seconds=float(timeout_s))}
    ours = _gather(world)
    if world.size == world.local_size and interface_of('127.0.0.1'):
        ours = '127.0.0.1'  # a host name that leads nowhere does no harm then
    choose_gloo_interface(ours)
    store = _own_keys(next(dist.rendezvous('env://', world.rank, world.size, **options))[0])
    if world.size > world.local_size:
        attempt = os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')
        meet_in_store(Meeting(world.address, world.port, world.rank, world.size), store, attempt)
        peers.watch(world.rank, world.local_rank, world.address, store, attempt)
    dist.init_process_group(_backend(plan, dist_cfg), store=store, rank=world.rank, world_size=world.size, **options)


def _own_keys(store: dist.Store) -> dist.Store:
    """The store of this start alone: torch's launcher keeps one for all restarts, with the addresses of ranks that died."""
    return dist.PrefixStore(f'start {os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")}', store)


def leave_together() -> None:
    """Before an exit code that has the launcher end the other ranks: the first may still be writing the report."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if dist.is_initialized():
        dist.all_reduce(torch.zeros(1))


def _gather(world: World) -> str:
    """Our own address on the way to rank 0. Without a launcher that has done so, all ranks wait for each other first."""
    if world.size == 1 or os.environ.get('TORCHELASTIC_USE_AGENT_STORE') == 'True':
        return address_towards(world.address)
    return meet(Meeting(world.address, world.port, world.rank, world.size))


def _backend(plan: DevicePlan, dist_cfg: Mapping[str, Any]) -> str:
    """OpenMMLab's configs say nccl everywhere; what that can mean depends on the machine."""
    wanted = dist_cfg.get('backend', 'nccl')
    if wanted == 'nccl' or plan.device == 'cpu':
        return plan.backend
    return wanted


def _watch_launcher() -> None:
    """A launcher that is killed outright cannot end its ranks (E13): they see it go, and go too."""
    launcher = os.environ.get(LAUNCHER_PID)
    if launcher is not None and not any(thread.name == LAUNCHER_PID for thread in threading.enumerate()):
        threading.Thread(target=_end_with, args=(int(launcher),), name=LAUNCHER_PID, daemon=True).start()


def _end_with(launcher: int) -> None:
    while os.getppid() == launcher:
        time.sleep(_WATCH_S)
    os.kill(os.getpid(), signal.SIGKILL)
