"""`tools/train.py CONFIG --fold 0/5`: the config's training images in k folds, one of them validated."""

import copy
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict

from seg.datasets.folds import parse_fold
from seg.errors import UserError
from seg.registry import DATASETS

_OF_TRAINING_ALONE = ('indices', 'percent', 'max_bad_files')
_OF_EVALUATION = ('pipeline', 'test_mode')


def apply_fold(config: Config, fold: str) -> None:
    """Rewrite the training and validation data, and put the run into `fold_0` of its folder.

    The folds divide what the training data set describes, without its own split; the validated fold takes pipeline and
    test_mode from the validation data. Test data that are the validation data stay so. Raises UserError for data sets
    that have no `split`.
    """
    number, _ = parse_fold(fold)
    for key in ('train_dataloader', 'val_dataloader'):
        if not isinstance((config.get(key) or {}).get('dataset'), Mapping):
            raise UserError(
                f'--fold {fold}: the config has no {key}.dataset; folds need data to train on and to validate'
            )
    tested_too = config.get('test_dataloader') == config.val_dataloader
    whole, shown = config.train_dataloader.dataset, _first_leaf(config.val_dataloader.dataset)
    view = {key: shown[key] for key in _OF_EVALUATION if key in shown}
    config.train_dataloader = ConfigDict(config.train_dataloader, dataset=_training(whole, fold))
    config.val_dataloader = ConfigDict(config.val_dataloader, dataset=_validation(whole, fold, view))
    if tested_too:
        config.test_dataloader = copy.deepcopy(config.val_dataloader)
    config.work_dir = str(Path(config.work_dir) / f'fold_{number}')


def _training(node: Mapping[str, Any], fold: str) -> dict[str, Any]:
    if 'datasets' in node:
        return {**node, 'datasets': [_training(dataset, fold) for dataset in node['datasets']]}
    if 'dataset' in node:
        return {**node, 'dataset': _training(node['dataset'], fold)}
    return _with_fold(node, 'train', fold)


def _validation(node: Mapping[str, Any], fold: str, view: Mapping[str, Any]) -> dict[str, Any]:
    """Each image once: without what repeats or thins out the training data."""
    if 'datasets' in node:
        parts = [_validation(dataset, fold, view) for dataset in node['datasets']]
        return {'type': node['type'], 'datasets': parts}
    if 'dataset' in node:
        return _validation(node['dataset'], fold, view)
    kept = {key: value for key, value in node.items() if key not in (*_OF_TRAINING_ALONE, *_OF_EVALUATION)}
    return {**_with_fold(kept, 'val', fold), **copy.deepcopy(dict(view))}


def _with_fold(leaf: Mapping[str, Any], part: str, fold: str) -> dict[str, Any]:
    _need_split(leaf.get('type'), fold)
    kept = {key: value for key, value in (leaf.get('split') or {}).items() if key in ('seed', 'group')}
    return {**copy.deepcopy(dict(leaf)), 'split': {'part': part, 'fold': fold, **kept}}


def _need_split(kind: Any, fold: str) -> None:
    found = DATASETS.get(kind) if isinstance(kind, str) else kind
    if found is None or 'split' not in inspect.signature(found).parameters:
        raise UserError(f'--fold {fold}: the data set {kind} has no argument `split`, as SegmentationDataset has')


def _first_leaf(node: Mapping[str, Any]) -> Mapping[str, Any]:
    if 'datasets' in node:
        return _first_leaf(node['datasets'][0])
    return _first_leaf(node['dataset']) if 'dataset' in node else node
