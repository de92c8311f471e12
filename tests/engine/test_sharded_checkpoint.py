"""A checkpoint in pieces: what went in comes out, whole or cut anew; damage is seen; no pickle of a stranger is opened."""

import io
import os
import pickle
import re
import resource
import shutil
import signal
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from seg.engine.hooks.checkpoint_hook import CheckpointHook
from seg.engine.state import checkpoint, sharded_checkpoint
from seg.engine.state.resume import newest_good
from seg.engine.wrappers.sharded_state import gathered
from seg.errors import UserError
from tests.crash_disk import Disk
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


# ---- what a folder may not do ----


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp('pieces') / 'iter_1.dcp'
    run_ranks(2, write, str(path))
    return path


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(folder, tmp_path / folder.name)
    return tmp_path / folder.name


class Evil:
    def __reduce__(self) -> tuple:
        return os.system, ('touch ran',)


def replace(copy: Path, name: str, content: bytes) -> None:
    """A file of the folder, with the checksums made to fit."""
    (copy / name).write_bytes(content)
    state = torch.load(copy / 'run.pth', weights_only=True)
    state['pieces']['files'][name] = [len(content), zlib.crc32(content)]
    for entry in state['pieces']['tensors'].values():
        for piece in entry['pieces']:
            if piece[2] == name:
                piece[3:] = [0, len(content)]
    torch.save(state, copy / 'run.pth')


def test_torchs_metadata_is_never_opened(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    replace(copy, '.metadata', pickle.dumps(Evil()))
    assert_equal(whole_state(), checkpoint.load(copy))
    assert not Path('ran').exists()
    with pytest.raises(Exception):  # noqa: B017, whatever comes of it: torch's own reader does run it
        dcp.FileSystemReader(copy).read_metadata()
    assert Path('ran').exists()


def test_a_malicious_piece_is_refused(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stream = io.BytesIO()
    torch.save(Evil(), stream)
    replace(copy, '__0_0.distcp', stream.getvalue())
    with pytest.raises(UserError, match='does not fit the files'):
        checkpoint.load(copy)
    torch.save(dict(pieces=Evil()), copy / 'run.pth')
    with pytest.raises(UserError, match=r'run\.pth holds more than plain types'):
        checkpoint.load(copy)
    assert not Path('ran').exists()


def change(copy: Path, edit: Callable[[dict], Any]) -> None:
    state = torch.load(copy / 'run.pth', weights_only=True)
    edit(state)
    torch.save(state, copy / 'run.pth')


@pytest.mark.parametrize(
    ('edit', 'words'),
    [
        (lambda s: s['pieces']['tensors']['state_dict/a']['pieces'][0].__setitem__(2, '../x'), 'no name of a file'),
        (lambda s: s['pieces']['tensors']['state_dict/a'].update(dtype='load'), 'no type of a tensor'),
        (lambda s: s['pieces']['tensors'].pop('state_dict/a'), 'does not fit the files'),
        (lambda s: s['state_dict'].update(a=torch.empty(6, 3, device='meta')), 'does not fit the files'),
        (lambda s: s.pop('pieces'), 'it lists no files'),
        (lambda s: s.update(pieces=3), 'it lists no files'),
        (lambda s: s['pieces'].update(tensors=[3]), 'does not fit the files'),
        (lambda s: s.update(pieces=dict(files={})), 'does not fit the files'),
    ],
)
def test_a_table_that_does_not_fit_is_refused(copy: Path, edit: Callable[[dict], Any], words: str) -> None:
    change(copy, edit)
    with pytest.raises(UserError, match=words):
        checkpoint.load(copy)


@pytest.mark.parametrize('name', ['run.pth', '__0_0.distcp', '__1_0.distcp', '.metadata'])
def test_a_missing_or_a_cut_file_is_named(copy: Path, name: str) -> None:
    content = (copy / name).read_bytes()
    (copy / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=f'damaged.*{re.escape(name)}|{re.escape(name)} is damaged'):
        checkpoint.load(copy)
    (copy / name).unlink()
    with pytest.raises(UserError, match=f'damaged.*{re.escape(name)}'):
        checkpoint.load(copy)


def test_torchs_tools_read_the_folder(copy: Path, tmp_path: Path) -> None:
    dcp_to_torch_save(copy, tmp_path / 'torchs.pth')
    found = torch.load(tmp_path / 'torchs.pth', weights_only=True)
    assert torch.equal(found['state_dict/a'], whole_state()['state_dict']['a'])


# ---- what happens in the middle of a write ----


def fail_on_rank_one(path: str) -> str:
    state, group = in_pieces(whole_state(), init_device_mesh('cpu', (2,))), dist.new_group(backend='gloo')
    if dist.get_rank() == 1:
        RLIMIT = resource.getrlimit(resource.RLIMIT_FSIZE)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, RLIMIT[1]))
    try:
        sharded_checkpoint.save(state, Path(path), group)
    except RuntimeError as error:
        return str(error)
    finally:
        if dist.get_rank() == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, RLIMIT)
    return ''


def test_a_rank_that_cannot_write_is_named_by_all(tmp_path: Path) -> None:
    for said in run_ranks(2, fail_on_rank_one, str(tmp_path / 'iter_1.dcp')):
        assert re.search(r'iter_1\.dcp could not be written by rank 0: OSError: on rank 1: .*too large', said), said
    assert checkpoint.by_age(tmp_path) == []


def test_what_a_killed_writer_left_is_cleared_away(copy: Path) -> None:
    for name in ('.iter_3.dcp.tmp', '.iter_2.dcp.old'):
        shutil.copytree(copy, copy.with_name(name))
    sharded_checkpoint.remove_leftovers(copy.parent)
    assert [path.name for path in copy.parent.iterdir()] == ['iter_1.dcp']


def two_folders(path: str) -> None:
    sharded_checkpoint.require_one_folder(Path(path) / str(dist.get_rank()), dist.new_group(backend='gloo'))


def test_a_folder_of_each_rank_is_refused(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
    with pytest.raises(UserError, match=r'rank 1 does not see .*sharded=False'):
        run_ranks(2, two_folders, str(tmp_path))
    assert list(tmp_path.glob('*/*')) == []


SAVES = 4


def save_and_clone(root: str) -> dict[Path, int]:
    """Four saves by the hook, with a best each, of which two are kept."""
    folder = Path(root) / 'run'
    folder.mkdir()
    hook = CheckpointHook(interval=1, max_keep_ckpts=2, save_best='mDice', rule='greater')
    hook._folder, hook._group = folder, dist.new_group(backend='gloo')
    disk = Disk(folder, Path(root) / 'clones')
    originals = [(os, name, getattr(os, name)) for name in ('fsync', 'rename', 'replace', 'unlink', 'link')]
    try:
        for owner, name, _ in originals:
            disk.watch(owner, name)
        for step in range(1, SAVES + 1):
            state = in_pieces(
                dict(meta=dict(iter=step), state_dict=dict(w=torch.full((6,), float(step)))),
                init_device_mesh('cpu', (1,)),
            )
            hook._write(state, [f'iter_{step}.dcp', f'best_mDice_iter_{step}.dcp'], [f'best_mDice_iter_{step - 1}.dcp'])
            disk.least_step = step
        disk.clone()
    finally:
        for owner, name, operation in originals:
            setattr(owner, name, operation)
    return disk.expected


def test_every_cut_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    expected = run_ranks(1, save_and_clone, str(tmp_path))[0]
    assert len(expected) > 3 * 10 * SAVES
    for clone, promised in expected.items():
        found = newest_good(clone, warn=lambda text: None) if promised else None
        if promised:
            assert found is not None, clone
            step = found[1]['meta']['iter']
            assert step >= promised, clone
            assert torch.equal(found[1]['state_dict']['w'], torch.full((6,), float(step)))
    names = sorted(path.name for path in (tmp_path / 'run').iterdir())
    assert names == ['best_mDice_iter_4.dcp', 'iter_3.dcp', 'iter_4.dcp', 'last_checkpoint']
