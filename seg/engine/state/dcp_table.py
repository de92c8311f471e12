"""torch.distributed.checkpoint without its pickle: where each piece of a tensor lies, in plain types.

torch keeps that in `.metadata`, a pickle, which its reader runs as it finds it. `RememberingWriter` writes that file for
torch's own tools; what it says is kept in plain types, too, and `PlainReader` goes by those alone (promise 10).
"""

from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)


class RememberingWriter(FileSystemWriter):
    """torch's writer. Afterwards `table` on the first rank has, of each tensor: shape, type, and its pieces as
    [offsets, sizes, file, first byte, bytes]."""

    table: dict[str, Any]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.table = {}

    def finish(self, metadata: Metadata, results: list) -> None:
        super().finish(metadata, results)
        for key, tensor in metadata.state_dict_metadata.items():
            assert isinstance(tensor, TensorStorageMetadata)
            self.table[key] = dict(
                shape=list(tensor.size),
                dtype=str(tensor.properties.dtype).removeprefix('torch.'),
                pieces=[
                    _piece(metadata.storage_data[MetadataIndex(key, chunk.offsets)], chunk) for chunk in tensor.chunks
                ],
            )


def _piece(info: _StorageInfo, chunk: ChunkStorageMetadata) -> list:
    return [list(chunk.offsets), list(chunk.sizes), info.relative_path, info.offset, info.length]


class PlainReader(FileSystemReader):
    """torch's reader, of a folder whose pieces are where `table` says. ValueError for a table that makes no sense."""

    def __init__(self, folder: Path, table: dict[str, Any]) -> None:
        super().__init__(folder)
        self._metadata = Metadata(
            state_dict_metadata={key: _tensor(entry) for key, entry in table.items()},
            planner_data={key: (key,) for key in table},
            storage_data={
                MetadataIndex(key, torch.Size(offsets)): _StorageInfo(_bare(name), first, length)
                for key, entry in table.items()
                for offsets, _, name, first, length in entry['pieces']
            },
            storage_meta=StorageMeta(load_id=self.load_id),
        )

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self._metadata


def _tensor(entry: dict[str, Any]) -> TensorStorageMetadata:
    dtype = getattr(torch, entry['dtype'], None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f'{entry["dtype"]!r} is no type of a tensor')
    chunks = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes, *_ in entry['pieces']]
    return TensorStorageMetadata(TensorProperties(dtype=dtype), torch.Size(entry['shape']), chunks)


def _bare(name: str) -> str:
    """A name in the folder itself, not a path out of it."""
    if Path(name).name != name:
        raise ValueError(f'{name!r} is no name of a file')
    return name
