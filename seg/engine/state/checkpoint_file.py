"""Checkpoint files: written whole or not at all, read without running anything that is in them.

Every record's CRC is verified before a file is believed (torch.load accepts a flipped bit, E12), and only plain types are
unpickled (`weights_only=True`, promise 10).
"""

import os
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seg.errors import UserError


def save(checkpoint: dict, path: str | Path) -> None:
    """Write `checkpoint` to `path` so that a crash leaves either the old file or the new one: temporary file, fsync,
    rename, fsync of the folder."""
    path = Path(path)
    temporary = path.with_name(f'.{path.name}.tmp')
    try:
        with temporary.open('wb') as file:
            torch.save(plain(checkpoint), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_text(text: str, path: str | Path) -> None:
    """A small text file, by the same rule as `save`."""
    path = Path(path)
    temporary = path.with_name(f'.{path.name}.tmp')
    with temporary.open('w', encoding='utf8') as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load(path: str | Path, map_location: Any = 'cpu', trust: bool = False) -> dict:
    """The checkpoint in the file `path`, tensors on `map_location`.

    `trust` allows a file to hold any Python object, whose loading runs code: for MMEngine's own old files.
    Raises UserError when the file is missing, damaged, not a checkpoint, or holds more than plain types.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f'no checkpoint file at {path}')
    _verify(path)
    try:
        checkpoint = torch.load(path, map_location=map_location, weights_only=not trust)
    except pickle.UnpicklingError as error:
        raise UserError(_refusal(path, error)) from error
    except Exception as error:  # what damage makes an unpickler raise has no bound
        raise UserError(f'{path} is damaged or not a checkpoint: {_first_line(error)}') from error
    if not isinstance(checkpoint, dict):
        raise UserError(f'{path} holds a {type(checkpoint).__name__}; expected a checkpoint or a state dict')
    return checkpoint


def _verify(path: Path) -> None:
    if path.stat().st_size == 0:
        raise UserError(f'{path} is damaged: it is empty')
    try:
        bad_record = _bad_record(path)
    except Exception as error:  # nor has what a damaged archive makes the reader raise
        raise UserError(f'{path} is damaged: {_first_line(error)}') from error
    if bad_record:
        raise UserError(f'{path} is damaged: {bad_record}')


def _bad_record(path: Path) -> str | None:
    """What is wrong with the archive, by its checksums. None, too, for torch's format before 1.6: the unpickler judges."""
    if not zipfile.is_zipfile(path):
        with path.open('rb') as file:
            is_cut = file.read(2) == b'PK'
        return 'its end is missing, as after a full disk or a power cut' if is_cut else None
    with zipfile.ZipFile(path) as archive:
        record = archive.testzip()
    return f'the checksum of its record {record} is wrong' if record else None


def _refusal(path: Path, error: pickle.UnpicklingError) -> str:
    foreign = re.search(r'GLOBAL (\S+)', str(error))
    if foreign is None:
        return f'{path} is damaged or not a checkpoint'
    return (
        f'{path} holds more than plain types and tensors ({foreign.group(1)}), so loading it could run code. '
        'If you trust who made it (MMEngine writes such files), pass --trust-checkpoint'
    )


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def plain(value: Any, key: str = 'checkpoint') -> Any:
    """`value` in plain types: tensors, dicts, lists, tuples, numbers, strings, None.

    NumPy scalars and arrays become numbers and lists. Raises TypeError naming the key of anything else: a checkpoint that
    could not be loaded again must not be written.
    """
    if value is None or isinstance(value, torch.Tensor) or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, dict):
        return {plain(k, f'{key} (a key)'): plain(v, f'{key}.{k}') for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [plain(item, f'{key}[{i}]') for i, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (bool, int, float, str)):  # a subclass of one, such as an enum
        return next(base(value) for base in (bool, int, float, str) if isinstance(value, base))
    raise TypeError(f'{key} is a {type(value).__name__}; checkpoints hold plain types only')
