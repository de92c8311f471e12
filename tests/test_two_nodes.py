"""Two launchers on two machines that share nothing but the code and the data: train, stop, resume, and lose one of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seg.engine.processes.launcher import free_port
from seg.engine.processes.peers import SILENCE_S
from seg.engine.state import checkpoint
from tests.tiny import make_data, tiny_config
from tests.two_nodes import TwoNodes, missing

namespaces = pytest.mark.skipif(bool(missing()), reason=missing() or 'there are namespaces')
DIST_TRAIN = Path(__file__).resolve().parents[1] / 'tools' / 'dist_train.sh'
PORT = free_port()
ENDLESS: dict[str, object] = {
    'train_cfg.max_epochs': 10**6,
    'train_cfg.val_interval': 3,
    'train_dataloader.batch_size': 2,
}
ENDLESS['default_hooks.checkpoint'] = dict(type='CheckpointHook', interval=1, max_keep_ckpts=3)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    made = TwoNodes(tmp_path)
    yield made
    made.close()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    made = tiny_config(make_data(tmp_path / 'data', train=8, val=2), tmp_path / 'unused', **ENDLESS)
    (tmp_path / 'config.py').write_text(made.pretty_text)
    return tmp_path / 'config.py'


def checkpoints(folder: Path) -> list[Path]:
    return checkpoint.by_age(folder) if folder.exists() else []


@namespaces
def test_train_stop_and_resume_with_nothing_shared(nodes: TwoNodes, config: Path, tmp_path: Path) -> None:
    both = [nodes.train(node, config, 2, '--cfg-options', 'train_dataloader.batch_size=1') for node in (0, 1)]
    said = nodes.wait_for(0, 'Val epoch 3')
    assert 'Global batch 4 = 1 per process x 4 process(es)' in said
    both[1].send_signal(signal.SIGTERM)
    assert [run.wait(60) for run in both] == [143, 143], nodes.said()
    newest = checkpoints(tmp_path / 'run0')[0]
    step = checkpoint.load(newest)['meta']['iter']
    assert f'SIGTERM: stopping after step {step}, with a checkpoint' in nodes.output(0).read_text()
    assert not checkpoints(tmp_path / 'run1')  # node 1 has no file to resume from

    flags = ['--resume', '--cfg-options', 'train_dataloader.batch_size=1']
    both = [nodes.train(node, config, 2, *flags) for node in (0, 1)]
    nodes.wait_for(0, f'Resumed from {newest}: epoch {step // 2}, step {step} of')
    nodes.wait_for(0, f'Val epoch {(step // 2 // 3 + 1) * 3} ')
    both[0].send_signal(signal.SIGINT)
    assert [run.wait(60) for run in both] == [130, 130], nodes.said()
    assert checkpoint.load(checkpoints(tmp_path / 'run0')[0])['meta']['iter'] > step


@namespaces
def test_a_node_that_dies_or_is_cut_off_ends_the_other(nodes: TwoNodes, config: Path, tmp_path: Path) -> None:
    both = [nodes.train(node, config, 1) for node in (0, 1)]
    nodes.wait_for(0, 'Train [3/')
    nodes.kill(1)
    assert both[0].wait(15) == 1, nodes.said()
    assert 'rank 0 lost its connection to another rank' in nodes.output(0).read_text()
    assert not nodes.pids(0)

    both = [nodes.train(node, config, 1, '--resume') for node in (0, 1)]
    nodes.wait_for(0, '][1/2]')
    nodes.pull_cable(1)
    began_s = time.monotonic()
    assert [run.wait(SILENCE_S + 20) for run in both] == [1, 1], nodes.said()
    assert time.monotonic() - began_s > 5
    assert f'the machine of rank 1 (10.77.0.2) is gone (no answer for {SILENCE_S} s)' in nodes.output(0).read_text()
    assert 'the machine of rank 0 (10.77.0.1) is gone' in nodes.output(1).read_text()


@namespaces
def test_a_killed_rank_starts_both_nodes_anew_and_a_dead_node_is_missed(
    nodes: TwoNodes, config: Path, tmp_path: Path
) -> None:
    nodes.patience_s = '20'
    flags = ['--max-restarts', '2', '--inject', 'kill:rank=1,step=3,phase=forward']
    both = [nodes.train(node, config, 1, *flags) for node in (0, 1)]
    nodes.wait_for(0, 'Resumed from')
    nodes.wait_for(0, 'Train [4/')
    assert 'rank 1 (process ' in nodes.output(1).read_text()  # was killed
    nodes.kill(1)
    assert both[0].wait(60) == 2, nodes.said()
    assert 'error: rank 0 of 2 waited 20 s for rank 1 at node0:29511' in nodes.output(0).read_text()


@namespaces
def test_a_node_that_never_comes_is_named(nodes: TwoNodes, config: Path, tmp_path: Path) -> None:
    run = nodes.start(
        0, str(DIST_TRAIN), str(config), '1',
        NNODES='3', NODE_RANK='0', MASTER_ADDR='node0', MEETING_TIMEOUT='3',
    )  # fmt: skip
    assert run.wait(60) == 2
    said = nodes.output(0).read_text()
    assert 'error: node 0 of 3 waited 3 s for node 1, 2 at node0:29500; ' in said
    assert said.count('error: ') == 1


@pytest.mark.skipif(not missing(), reason='tried on two network namespaces')
def test_two_launchers_on_one_machine_train(config: Path, tmp_path: Path) -> None:
    runs = []
    for node in (0, 1):
        env = dict(
            NNODES='2', NODE_RANK=str(node), MASTER_ADDR=f'127.0.0.{node + 1}', PORT=str(PORT), OMP_NUM_THREADS='1'
        )
        command = [str(DIST_TRAIN), str(config), '1', '--work-dir', str(tmp_path / f'run{node}')]
        few = ['--cfg-options', 'train_cfg.max_epochs=2']
        runs.append(subprocess.Popen([*command, *few], env={**os.environ, **env, 'PYTHON': sys.executable}))
    assert [run.wait(120) for run in runs] == [0, 0]
    assert checkpoint.load(checkpoints(tmp_path / 'run0')[0])['meta']['seg']['world_size'] == 2
    assert not checkpoints(tmp_path / 'run1')
