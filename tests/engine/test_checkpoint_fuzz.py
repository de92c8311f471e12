"""The checkpoint reader on spoilt files: it returns a dict or says what is wrong; `SEG_FUZZ=N` tries N of them."""

import os
import random
import zipfile
from pathlib import Path

import torch

from seg.engine.state import checkpoint
from seg.errors import UserError

TRIES = int(os.environ.get('SEG_FUZZ', 300))


def spoil(data: bytes, rng: random.Random) -> bytes:
    """A flipped bit, a run of noise, a cut, a doubled or a moved piece."""
    at, length = rng.randrange(len(data)), rng.randrange(1, 200)
    return rng.choice(
        [
            data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :],
            data[:at] + rng.randbytes(length) + data[at + length :],
            data[:at],
            data[:at] + data[at : at + length] * 2 + data[at + length :],
            data[at:] + data[:at],
        ]
    )


def respoil_pickle(data: bytes, path: Path, rng: random.Random) -> None:
    """The same inside the archive's pickle, with checksums that fit: what only the unpickler can refuse."""
    path.write_bytes(data)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, spoil(content, rng) if name.endswith('data.pkl') else content)


def test_any_file_is_read_or_refused_by_name(tmp_path: Path) -> None:
    whole, path = tmp_path / 'whole.pth', tmp_path / 'spoilt.pth'
    checkpoint.save(dict(meta=dict(iter=3, names=['a']), state_dict={'w': torch.arange(100.0)}), whole)
    data, rng, refused = whole.read_bytes(), random.Random(0), 0
    for number in range(TRIES):
        if number % 2:
            respoil_pickle(data, path, rng)
        else:
            path.write_bytes(spoil(data, rng))
        try:
            assert isinstance(checkpoint.load(path), dict)
        except UserError as error:
            refused += 1
            assert 'spoilt.pth' in str(error)
    assert refused > TRIES // 2
