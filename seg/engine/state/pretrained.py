"""`init_cfg=dict(type='Pretrained', checkpoint=FILE)`: MMEngine's way to start from weights, through our reader.

MMEngine's own reader trusts what torch's default happens to be, and takes a name such as `https://` for something to fetch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mmengine.runner import CheckpointLoader

from seg.engine.state import checkpoint
from seg.errors import UserError


@contextmanager
def read_by_us(trust: bool) -> Iterator[None]:
    """Within it, MMEngine's loaders of every scheme read a local file by `checkpoint.load`, or raise UserError."""

    def load_from_file(filename: str, map_location: Any = None, logger: Any = None) -> dict:
        if '://' in filename:
            raise UserError(f'init_cfg.checkpoint={filename}: nothing is fetched; download it and give its path')
        return checkpoint.load(filename, map_location or 'cpu', trust=trust)

    theirs = dict(CheckpointLoader._schemes)
    CheckpointLoader.register_scheme(list(theirs), load_from_file, force=True)
    try:
        yield
    finally:
        for prefix, loader in theirs.items():
            CheckpointLoader.register_scheme(prefix, loader, force=True)
