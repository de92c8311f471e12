"""MNIST's own files, IDX, as they come or gunzipped (LeCun, Cortes and Burges, "The MNIST database", 1998)."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from seg.errors import UserError
from seg.registry import DATASETS


@DATASETS.register_module()
class MnistDataset(Dataset):
    """`part` is 'train' or 't10k', the beginning of the names of the two files in `data_root`."""

    def __init__(self, data_root: str, part: str) -> None:
        self.metainfo = dict(classes=tuple('0123456789'))
        self.images = read_idx(Path(data_root) / f'{part}-images-idx3-ubyte')
        self.labels = read_idx(Path(data_root) / f'{part}-labels-idx1-ubyte')
        if len(self.images) != len(self.labels):
            raise UserError(f'{data_root}: {part} has {len(self.images)} images and {len(self.labels)} labels')

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict:
        return dict(inputs=self.images[index][None], labels=self.labels[index], metas=dict(sample_idx=index))


def read_idx(path: Path) -> Tensor:
    """The uint8 array in `path`, or in `path`.gz. UserError where there is none, or it is damaged."""
    zipped = path.with_name(f'{path.name}.gz')
    try:
        content = gzip.decompress(zipped.read_bytes()) if zipped.is_file() else path.read_bytes()
        zeros, kind, dimensions = struct.unpack_from('>HBB', content)
        shape = struct.unpack_from(f'>{dimensions}I', content, 4)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise UserError(f'{path}, with or without .gz: {error}; data_root must hold the four files of MNIST') from error
    start = 4 + 4 * dimensions
    if (zeros, kind) != (0, 8) or len(content) != start + math.prod(shape):
        raise UserError(f'{path} is no whole IDX file of bytes: {len(content)} bytes for an array of {shape}')
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=start).view(shape)
