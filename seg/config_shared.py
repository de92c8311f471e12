"""The top-level key `dataset`: what the data sets of a config share, said once.

`dataset = dict(data_root=..., label_map=...)` goes into the data sets of train_dataloader, val_dataloader and
test_dataloader as a base goes into a child: what a data set says itself wins. So a child config, or
`--cfg-options dataset.data_root=...`, changes all three.
"""

import copy
from collections.abc import Mapping
from typing import Any

from mmengine.config import ConfigDict

from seg.config_merge import inherit

SHARED = 'dataset'
LOADERS = ('train_dataloader', 'val_dataloader', 'test_dataloader')


def share_dataset(config: ConfigDict) -> ConfigDict:
    """The config with the shared keys in its data sets and without `dataset`; as it is where there is none to fill.

    A data set of another `type` is left alone.
    """
    shared = config.get(SHARED)
    described = [key for key in LOADERS if isinstance((config.get(key) or {}).get('dataset'), Mapping)]
    if not isinstance(shared, Mapping) or not described:
        return config
    filled = ConfigDict({key: value for key, value in config.items() if key != SHARED})
    for key in described:
        filled[key] = ConfigDict(config[key], dataset=_fill(config[key]['dataset'], shared))
    return filled


def _fill(node: Mapping[str, Any], shared: Mapping[str, Any]) -> ConfigDict:
    if 'datasets' in node:
        return ConfigDict(node, datasets=[_fill(dataset, shared) for dataset in node['datasets']])
    if 'dataset' in node:
        return ConfigDict(node, dataset=_fill(node['dataset'], shared))
    if 'type' in node and 'type' in shared and node['type'] != shared['type']:
        return ConfigDict(node)
    return inherit(node, copy.deepcopy(shared))
