"""What a checkpoint says of its model: a config as plain data, the precision, the classes and their colours.

It is data from a stranger: nothing of it is run (promise 10, E11).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mmengine.config
import numpy as np
from numpy.typing import NDArray

from seg.config import from_plain, load_config
from seg.engine.state import checkpoint
from seg.engine.state.stored_run import precision_of, seg_meta
from seg.errors import UserError
from seg.registry import DATASETS
from seg.visualization.overlay import palette_of

_BUILT_KEYS = ('model', 'test_dataloader', 'val_dataloader')


@dataclass
class StoredModel:
    """`config` holds what is built. `custom_imports` are what the training imported and nobody has imported here."""

    path: Path
    config: mmengine.config.Config
    weights: dict[str, Any]
    precision: str
    classes: tuple[str, ...]
    palette: NDArray[np.uint8]
    custom_imports: list[str]


def read_stored_model(
    path: str | Path, config: str | Path | mmengine.config.Config | None = None, trust: bool = False
) -> StoredModel:
    """A checkpoint and its own config, or the user's `config`, which is a program and is run.

    Raises UserError for a file that is damaged, unsafe or without config.
    """
    state = checkpoint.load(path, trust=trust)
    seg = seg_meta(state)
    chosen = _own_config(seg, Path(path)) if config is None else _users_config(config)
    metainfo = _part(seg, 'dataset_meta') or _metainfo(evaluation_dataset(chosen))
    classes, palette = _classes(metainfo, Path(path))
    return StoredModel(
        path=Path(path),
        config=chosen,
        weights=state['state_dict'] if isinstance(state.get('state_dict'), dict) else state,
        precision=precision_of(state, path),
        classes=classes,
        palette=palette,
        custom_imports=_custom_imports(seg) if config is None else [],
    )


def _own_config(seg: dict[str, Any], path: Path) -> mmengine.config.Config:
    if 'config' not in seg:
        raise UserError(
            f'{path} does not tell of which model it is: it was not written by tools/train.py. Give the config that '
            "builds its model and prepares its photographs by --config (Pytorch-UNet's: _base_/models/unet.py with "
            'data_preprocessor mean=[0, 0, 0] and std=[255, 255, 255])'
        )
    return from_plain(seg['config'], *_BUILT_KEYS)


def _users_config(config: str | Path | mmengine.config.Config) -> mmengine.config.Config:
    return config if isinstance(config, mmengine.config.Config) else load_config(config)


def evaluation_dataset(config: mmengine.config.Config) -> dict[str, Any]:
    """The config of the test (or validation) data set, within its wrappers; empty where there is none."""
    loader = _part(config, 'test_dataloader') or _part(config, 'val_dataloader')
    dataset = _part(loader, 'dataset')
    while 'pipeline' not in dataset and ('dataset' in dataset or 'datasets' in dataset):
        wrapped = dataset['dataset'] if 'dataset' in dataset else next(iter(dataset['datasets'] or ()), None)
        dataset = wrapped if isinstance(wrapped, dict) else {}
    return dataset


def _metainfo(dataset: dict[str, Any]) -> dict[str, Any]:
    kind = DATASETS.get(dataset['type']) if isinstance(dataset.get('type'), str) else dataset.get('type')
    return {**getattr(kind, 'METAINFO', {}), **_part(dataset, 'metainfo')}


def _classes(metainfo: dict[str, Any], path: Path) -> tuple[tuple[str, ...], NDArray[np.uint8]]:
    try:
        palette = palette_of(metainfo)
        if palette.ndim != 2 or palette.shape[1] != 3:
            raise ValueError(f'shape {palette.shape}')
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f'{path}: palette: expected a list of [red, green, blue] in 0..255 ({error})') from error
    return tuple(str(name) for name in metainfo.get('classes') or ()), palette


def _custom_imports(seg: dict[str, Any]) -> list[str]:
    imports = _part(seg.get('config'), 'custom_imports').get('imports') or []
    return [str(name) for name in ([imports] if isinstance(imports, str) else imports)]


def _part(whole: Any, key: str) -> dict[str, Any]:
    """`whole[key]` where both are dicts, else an empty one."""
    part = whole.get(key) if isinstance(whole, (dict, mmengine.config.Config)) else None
    return part if isinstance(part, dict) else {}
