"""A checkpoint in pieces: what went in comes out, whole or cut anew; damage is seen; no pickle of a stranger is opened."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from seg.engine import checkpoint, sharded_checkpoint
from seg.engine.sharded_state import gathered
from tests.engine.test_exact_resume import assert_equal
from tests.ranks import run_ranks


def whole_state() -> dict[str, Any]:
    """Rows that ranks cannot share evenly, fewer rows than ranks, another type, a number."""
    torch.manual_seed(0)
    weights = dict(a=torch.randn(5, 3), head=torch.randn(2, 4, 1, 1), one=torch.randn(1), count=torch.tensor(3))
    return dict(
        state_dict=weights,
        optimizer=dict(state={0: dict(step=torch.tensor(4.0), exp_avg=torch.randn(7).bfloat16())}),
        meta=dict(iter=1, names=['x', ('y', None)]),
    )


def in_pieces(value: Any, mesh: DeviceMesh) -> Any:
    if isinstance(value, torch.Tensor) and value.dim():
        return distribute_tensor(value, mesh, [Shard(0)], src_data_rank=None)
    if isinstance(value, dict):
        return {key: in_pieces(item, mesh) for key, item in value.items()}
    return value


def write(path: str) -> None:
    mesh = init_device_mesh('cpu', (dist.get_world_size(),))
    state, group = in_pieces(whole_state(), mesh), dist.new_group(backend='gloo')
    for _ in range(2):  # the second over the first
        sharded_checkpoint.save(state, Path(path), group)


def read_in_pieces(path: str) -> dict | None:
    outline = sharded_checkpoint.load_outline(Path(path))
    mesh = init_device_mesh('cpu', (dist.get_world_size(),))
    found = gathered(sharded_checkpoint.fill(outline, Path(path), mesh))
    return found if dist.get_rank() == 0 else None


@pytest.mark.parametrize('ranks', [2, 3])
def test_what_went_in_comes_out(tmp_path: Path, ranks: int) -> None:
    folder = tmp_path / 'iter_1.dcp'
    run_ranks(ranks, write, str(folder))
    assert sorted(os.listdir(tmp_path)) == ['iter_1.dcp']
    assert_equal(whole_state(), checkpoint.load(folder))
    assert_equal(whole_state(), run_ranks(ranks, read_in_pieces, str(folder))[0])
    assert_equal(whole_state(), run_ranks(5 - ranks, read_in_pieces, str(folder))[0])
