"""A checkpoint in pieces: a folder `epoch_3.dcp` that each rank has written its part of, by torch.distributed.checkpoint.

In the folder are `run.pth`, which is a checkpoint like any other but for the tensors in pieces, of which it has the
shapes, and torch's own files with the pieces. `run.pth` also says where each piece is, and the size and CRC-32 of each
file. The folder gets its name when all of it is on the disk, so that it is whole or not there.
"""

import shutil
import uuid
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.tensor as dtensor
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from seg.engine.state import checkpoint_file
from seg.engine.state.dcp_table import PlainReader, RememberingWriter
from seg.engine.wrappers.sharded_state import filled, outline_of, places
from seg.errors import RunError, UserError

SUFFIX = '.dcp'
OUTLINE = 'run.pth'
PIECES = 'pieces'  # the entry of the outline that tells of the files beside it
_CHUNK_BYTES = 1 << 24


def save(state: dict, path: Path, group: Any) -> None:
    """Write `state`, of which each rank has its pieces, to the folder `path`, as `checkpoint_file.save` does a file.

    Every rank of `group` must call it, and `path` must be one folder to all of them. RunError on every rank, with the
    first cause, where a rank could not write.
    """
    temporary = path.with_name(f'.{path.name}.tmp')
    first = dist.get_rank(group) == 0
    together(lambda: _empty_folder(temporary) if first else None, path, group)
    tensors = places(state, lambda tensor: isinstance(tensor, DTensor))
    writer = RememberingWriter(temporary)
    together(lambda: _write_pieces(tensors, writer, group), path, group)
    prefix = f'__{dist.get_rank(group)}_'
    own = [*temporary.glob(f'{prefix}*'), *([temporary / '.metadata'] if first else [])]
    rows = together(lambda: {file.name: [file.stat().st_size, _crc(file)] for file in own}, path, group)
    files = {name: sums for row in rows for name, sums in row.items()}
    outline = {**outline_of(state), PIECES: dict(files=files, tensors=writer.table)}
    together(lambda: _finish(outline, temporary, path) if first else None, path, group)


def _write_pieces(tensors: dict[str, Tensor], writer: dcp.FileSystemWriter, group: Any) -> None:
    try:
        dcp.save(tensors, storage_writer=writer, process_group=group)
    except dcp.CheckpointException as error:  # the same on all ranks
        rank, (cause, _) = next(iter(error.failures.items()))
        raise OSError(f'on rank {rank}: {type(cause).__name__}: {cause}') from error


def _empty_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _finish(outline: dict, temporary: Path, path: Path) -> None:
    checkpoint_file.save(outline, temporary / OUTLINE)
    put_in_place(temporary, path)


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a whole folder its name. One of that name goes first: for a moment there is only the checkpoint before it."""
    checkpoint_file.sync_folder(temporary)
    remove(path)
    temporary.rename(path)
    checkpoint_file.sync_folder(path.parent)


def remove(path: Path) -> None:
    """A folder loses its name first, so that a half removed one is never taken for a checkpoint."""
    if path.is_dir():
        doomed = path.with_name(f'.{path.name}.old')
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """What a writer left that was killed."""
    for ending in ('tmp', 'old'):
        for path in folder.glob(f'.*{SUFFIX}.{ending}'):
            shutil.rmtree(path, ignore_errors=True)


def together(task: Callable[[], Any], path: Path, group: Any) -> list[Any]:
    """What `task` returned on each rank of `group`; RunError on all of them where it failed on one."""
    try:
        own = (task(), '')
    except (OSError, RuntimeError) as error:
        own = (None, f'{type(error).__name__}: {error}')
    rows: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(rows, own, group=group)
    for rank, (_, problem) in enumerate(rows):
        if problem:
            raise RunError(
                f'{path} could not be written by rank {rank}: {problem}. The checkpoints before it are whole'
            )
    return [value for value, _ in rows]


def require_one_folder(folder: Path, group: Any) -> None:
    """Raise UserError where `folder` is not one and the same to all ranks."""
    names = [f'.seen_{uuid.uuid4().hex}']
    dist.broadcast_object_list(names, src=0, group=group)
    mark = folder / names[0]
    first = dist.get_rank(group) == 0
    together(lambda: mark.touch() if first else None, folder, group)
    seen = together(mark.exists, folder, group)
    together(lambda: mark.unlink() if first else None, folder, group)
    if not all(seen):
        raise UserError(
            f'checkpoints in pieces need one folder that all machines share, and rank {seen.index(False)} does not see '
            f'what the first rank writes in {folder}. Choose a shared --work-dir, or have the first rank gather plain '
            'files by default_hooks.checkpoint.sharded=False'
        )


def _crc(file: Path) -> int:
    value = 0
    with file.open('rb') as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            value = zlib.crc32(chunk, value)
    return value


# -- reading ----------------------------------------------------------------------------------------------------------


def load_outline(path: Path) -> dict:
    """All of a checkpoint but the numbers of the tensors in pieces, which are on the device 'meta'; `fill` reads them.

    Raises UserError where the folder is not whole or holds more than plain types.
    """
    if not (path / OUTLINE).is_file():
        raise UserError(f'{path} is damaged or not a checkpoint: it has no {OUTLINE}')
    state = checkpoint_file.load(path / OUTLINE)
    pieces = state.get(PIECES)
    files = pieces.get('files') if isinstance(pieces, dict) else None
    if not isinstance(files, dict):
        raise UserError(f'{path / OUTLINE} is damaged or not part of a checkpoint in pieces: it lists no files')
    for name, sums in files.items():
        _verify(path / Path(str(name)).name, sums)
    return state


def is_outline(state: dict) -> bool:
    return PIECES in state


def _verify(file: Path, sums: Any) -> None:
    if not file.is_file():
        raise UserError(f'{file.parent} is damaged: {file.name} is missing')
    if [file.stat().st_size, _crc(file)] != sums:
        raise UserError(f'{file.parent} is damaged: the checksum of {file.name} is wrong')


def fill(outline: dict, path: Path, mesh: DeviceMesh | None = None) -> dict:
    """An outline with its numbers: whole tensors, or with a `mesh` those pieces that this rank has there.

    Raises UserError where they are not in the folder.
    """
    missing = places(outline, lambda tensor: tensor.is_meta)
    try:
        tensors = {key: _room_for(tensor, mesh) for key, tensor in missing.items()}
        _read(tensors, PlainReader(path, outline[PIECES]['tensors']))
    except OSError as error:
        raise UserError(
            f'{path} cannot be read here, where every rank reads its own pieces: {error}. Resume from a plain file '
            '(tools/convert_checkpoint.py) where the machines share no folder'
        ) from error
    except Exception as error:  # what a table that was tampered with makes the reader raise has no bound
        raise UserError(f'{path} is damaged: {OUTLINE} does not fit the files ({error})') from error
    whole = filled(outline, tensors)
    del whole[PIECES]
    return whole


def _read(tensors: dict[str, Tensor], reader: PlainReader) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # torch thinks it should say that each rank reads for itself
            dcp.load(tensors, storage_reader=reader, no_dist=True)
    except dcp.CheckpointException as error:
        raise next(iter(error.failures.values()))[0] from error


def _room_for(tensor: Tensor, mesh: DeviceMesh | None) -> Tensor:
    if mesh is None:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    return dtensor.empty(*tensor.shape, dtype=tensor.dtype, device_mesh=mesh, placements=[Shard(0)])
