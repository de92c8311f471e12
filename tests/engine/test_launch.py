"""Who a process is, which device and how many threads it gets, and that the launchers' variables make one group."""

import os
import stat
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from seg.engine.processes import cores, slurm_warning
from seg.engine.processes.launch import (
    DevicePlan,
    World,
    device_plan,
    first_host,
    port_of,
    read_world,
    setup_process,
    slurm_address,
)
from seg.engine.processes.launcher import free_port
from seg.errors import UserError
from tests.ranks import run_ranks

# ---- devices, on machines that are not here ----


def test_each_process_has_its_own_gpu_and_a_group_that_serves_cpu_tensors_too() -> None:
    assert device_plan(3, 4, gpus=4) == DevicePlan('cuda:3', 'cpu:gloo,cuda:nccl')
    assert device_plan(0, 1, gpus=8) == DevicePlan('cuda:0', 'cpu:gloo,cuda:nccl')


def test_without_a_gpu_any_number_of_processes_share_the_cpu() -> None:
    assert device_plan(5, 6, gpus=0) == DevicePlan('cpu', 'gloo')


def test_more_processes_than_gpus_is_one_clear_error() -> None:
    with pytest.raises(UserError, match=r'3 processes on this machine need 3 GPUs, and it has 2; ask for 2'):
        device_plan(0, 3, gpus=2)


# ---- who this process is ----


def test_alone() -> None:
    assert read_world('none', {}, 0) == World(0, 1, 0, 1)
    assert read_world('none', {'WORLD_SIZE': '1'}, 0) == World(0, 1, 0, 1)
    with pytest.raises(UserError, match=r'WORLD_SIZE=2 is set.*--launcher pytorch'):
        read_world('none', {'WORLD_SIZE': '2'}, 0)


def test_torch_variables_are_taken_as_they_are() -> None:
    env = dict(RANK='5', WORLD_SIZE='8', LOCAL_RANK='1', LOCAL_WORLD_SIZE='4', MASTER_ADDR='node0', MASTER_PORT='1234')
    assert read_world('pytorch', env, 4) == World(5, 8, 1, 4, 'node0', 1234)


def test_ranks_started_by_hand_need_three_variables() -> None:
    env = dict(RANK='5', WORLD_SIZE='6', MASTER_ADDR='127.0.0.1')
    assert read_world('pytorch', env, 0) == World(5, 6, 5, 6, '127.0.0.1', 29500)
    elsewhere = dict(env, MASTER_ADDR='node0')
    assert read_world('pytorch', elsewhere, 4) == World(5, 6, 1, 4, 'node0', 29500)  # rank 5 is the second of node 1
    assert read_world('pytorch', elsewhere, 0) == World(5, 6, 0, 1, 'node0', 29500)


def test_slurm() -> None:
    env = dict(
        SLURM_PROCID='6', SLURM_NTASKS='7', SLURM_LOCALID='0', SLURM_NODEID='3', SLURM_TASKS_PER_NODE='2(x3),1',
        SLURM_NODELIST='gpu[03-05,9]', SLURM_JOB_ID='77', SLURM_STEP_ID='0',
    )  # fmt: skip
    assert read_world('slurm', env, 0) == World(6, 7, 0, 1, 'gpu03', port_of('77.0'))
    assert read_world('slurm', dict(env, SLURM_PROCID='3', SLURM_LOCALID='1', SLURM_NODEID='1'), 0).local_size == 2
    assert read_world('slurm', dict(env, MASTER_ADDR='ib0', MASTER_PORT='5'), 0).address == 'ib0'


def test_the_first_host_of_slurms_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    hosts = {'gpu[03-05,9],login': 'gpu03', 'a1,a2': 'a1', 'node-7': 'node-7', 'rack[2]n': 'rack2n', 'x[1-2]y,z': 'x1y'}
    assert {nodes: first_host(nodes) for nodes in hosts} == hosts
    with pytest.raises(UserError, match='names no node; set MASTER_ADDR'):
        first_host('')
    scontrol = tmp_path / 'scontrol'
    scontrol.write_text('#!/bin/sh\necho "from-$3"\necho second\n')
    scontrol.chmod(scontrol.stat().st_mode | stat.S_IXUSR)
    assert first_host('gpu[1-2]') == 'from-gpu[1-2]'


def test_a_node_that_no_name_server_knows_is_met_at_slurms_own_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
    scontrol = tmp_path / 'scontrol'
    scontrol.write_text(
        '#!/bin/sh\n[ $2 = hostnames ] && echo no-such-node-1 || echo "Arch=x NodeAddr=10.1.2.3 Port=1"\n'
    )
    scontrol.chmod(0o755)
    assert slurm_address({'SLURM_NODELIST': 'no-such-node-[1-2]'}) == '10.1.2.3'
    scontrol.write_text('#!/bin/sh\n[ $2 = hostnames ] && echo localhost\n')
    assert slurm_address({'SLURM_NODELIST': 'x'}) == 'localhost'


def test_open_mpi() -> None:
    env = {f'OMPI_COMM_WORLD_{name}': value for name, value in
           dict(RANK='1', SIZE='2', LOCAL_RANK='1', LOCAL_SIZE='2').items()}  # fmt: skip
    assert read_world('mpi', dict(env, PMIX_NAMESPACE='job7'), 0) == World(1, 2, 1, 2, '127.0.0.1', port_of('job7'))
    spread = dict(env, OMPI_COMM_WORLD_LOCAL_RANK='0', OMPI_COMM_WORLD_LOCAL_SIZE='1')
    assert read_world('mpi', spread, 0).address == ''  # nothing tells where rank 0 is


def test_two_jobs_on_a_node_have_ports_of_their_own() -> None:
    assert len({port_of(f'{job}.0') for job in range(100, 110)}) == 10
    assert all(15000 <= port_of(str(job)) < 30000 for job in range(100))


@pytest.mark.parametrize(
    ('launcher', 'env', 'message'),
    [
        ('pytorch', {}, r'needs RANK in the environment; tools/dist_train\.sh'),
        ('pytorch', dict(RANK='0', WORLD_SIZE='x'), r"WORLD_SIZE='x' in the environment: expected a number"),
        ('pytorch', dict(RANK='2', WORLD_SIZE='2', MASTER_ADDR='localhost'), 'makes no sense'),
        ('slurm', {}, 'needs SLURM_PROCID'),
        ('slurm', dict(SLURM_PROCID='0', SLURM_NTASKS='4', SLURM_LOCALID='0', SLURM_NODEID='2'), 'SLURM_NODEID=2'),
        ('mpi', {}, 'needs OMPI_COMM_WORLD_RANK'),
        ('torchrun', {}, 'launcher must be one of none, pytorch, slurm, mpi'),
    ],
)
def test_an_environment_that_does_not_fit_is_refused(launcher: str, env: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_world(launcher, env, 0)


# ---- threads ----


def test_cores_are_shared_by_the_processes_of_a_machine() -> None:
    assert cores.threads_per_process(16, 4) == 4
    assert cores.threads_per_process(2, 3) == 1


def test_a_containers_limit_counts_as_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: set(range(16)))
    assert cores.usable_cores(tmp_path) == 16
    (tmp_path / 'cpu').mkdir()
    (tmp_path / 'cpu' / 'cpu.cfs_quota_us').write_text('300000\n')
    (tmp_path / 'cpu' / 'cpu.cfs_period_us').write_text('100000\n')
    assert cores.usable_cores(tmp_path) == 3
    for text, expected in {'max 100000': 16, '450000 100000': 4, '20000 100000': 1}.items():  # 4.5 cores, 0.2 cores
        (tmp_path / 'cpu.max').write_text(text + '\n')
        assert cores.usable_cores(tmp_path) == expected


# ---- the group ----


def join(launcher: str, port: int, dist_cfg: dict) -> tuple[World, str, float, int]:
    """Leave the pool's own group and join again by what the launcher sets."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'OMP_NUM_THREADS'):
        os.environ.pop(name)
    names = dict(
        pytorch=dict(RANK=rank, WORLD_SIZE=size),
        slurm=dict(SLURM_PROCID=rank, SLURM_NTASKS=size, SLURM_LOCALID=rank),
        mpi={f'OMPI_COMM_WORLD_{name}': value for name, value in
             dict(RANK=rank, SIZE=size, LOCAL_RANK=rank, LOCAL_SIZE=size).items()},
    )  # fmt: skip
    os.environ.update({name: str(value) for name, value in names[launcher].items()})
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))
    with mock.patch.object(slurm_warning, 'listen'):  # SIGUSR1 is the pool's own
        world = setup_process(launcher, dist_cfg)
    tensor = torch.tensor([1.0 + rank])
    dist.all_reduce(tensor)
    return world, dist.get_backend(), tensor.item(), int(os.environ['LOCAL_RANK'])


@pytest.mark.parametrize('launcher', ['pytorch', 'slurm', 'mpi'])
def test_ranks_of_each_launcher_meet_over_gloo_whatever_the_config_says(launcher: str) -> None:
    port = free_port()
    results = run_ranks(2, join, launcher, port, dict(backend='nccl', timeout=60))
    assert results == [(World(rank, 2, rank, 2, '127.0.0.1', port), 'gloo', 3.0, rank) for rank in (0, 1)]  # 1 + 2


def join_nowhere() -> None:
    dist.destroy_process_group()
    setup_process('pytorch')


def test_without_an_address_nobody_waits() -> None:
    with pytest.raises(UserError, match='need MASTER_ADDR'):
        run_ranks(2, join_nowhere)


def join_twice() -> int:
    before = dist.distributed_c10d._get_default_group()
    setup_process('pytorch')
    return int(before is dist.distributed_c10d._get_default_group())


def test_a_group_that_is_there_is_kept() -> None:
    assert run_ranks(2, join_twice) == [1, 1]


def threads() -> tuple[int, int]:
    os.environ.update(LOCAL_WORLD_SIZE='1', LOCAL_RANK='0', WORLD_SIZE='1', RANK='0')
    torch.set_num_threads(8)
    setup_process('pytorch')
    kept = torch.get_num_threads()
    del os.environ['OMP_NUM_THREADS']
    setup_process('pytorch')
    return kept, torch.get_num_threads()


def test_threads_are_limited_unless_the_user_has_set_them() -> None:
    assert run_ranks(1, threads) == [(8, min(8, cores.usable_cores()))]


def slurm_threads() -> list[int]:
    del os.environ['OMP_NUM_THREADS']
    os.environ.update(SLURM_PROCID='0', SLURM_NTASKS='1', SLURM_LOCALID='0', SLURM_CPUS_PER_TASK='1')
    os.environ['SLURM_NODELIST'] = 'localhost'
    torch.set_num_threads(8)
    with mock.patch.object(slurm_warning, 'listen') as listen:
        setup_process('slurm')
    return [torch.get_num_threads(), listen.call_count]


def test_under_slurm_a_process_has_the_cores_of_its_task() -> None:
    assert run_ranks(1, slurm_threads) == [[1, 1]]
