"""Whatever a config holds, the check answers with faults and fails in no other way. SEG_FUZZ=20000 tries so many."""

import copy
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seg.config_check import content_faults, lines, missing_for_training, notices, unread_keys
from seg.config_names import Names
from seg.config_origin import Origin
from tests.tiny import tiny_config

TRIES = int(os.environ.get('SEG_FUZZ', '60'))
VALUES: list[Any] = [
    None, 0, -1, 1.5, 2**70, float('nan'), float('inf'), True, 'x', '', b'x', [], {}, (), [[]], object(), len, 'mIoU',
    {1: 2}, {(1, 2): 3}, {'type': 'UNet'}, {'type': 5}, {'type': None}, {'type': [1]}, {'type': 'a.b'}, {'type': '.x'},
    {'type': 'torch.optim.Adm'}, {'type': 'UNet', '_scope_': 4}, {'type': 'LoggerHook', '_scope_': 'mmengine'},
    {'type': 'RandomFlip', 'prob': {'x': 1}}, {'a': [{'type': 'RandomFlip'}]}, {'datasets': []}, {'dataset': 5},
]  # fmt: skip
KEYS: list[Any] = ['x', 'type', 'prob', 5, (1, 2), 'dataset', 'by_epoch', 'max_iters', 'metrics', 'constructor']


def places(node: Any, path: tuple = ()) -> Iterator[tuple]:
    if path:
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def spoil(config: dict, rng: random.Random) -> None:
    *parents, last = rng.choice(list(places(config)))
    node: Any = config
    for key in parents:
        node = node[key]
    action = rng.random()
    if action < 0.6 or isinstance(node, list):
        node[last] = rng.choice(VALUES)
    elif action < 0.8:
        node[rng.choice(KEYS)] = rng.choice(VALUES)
    else:
        del node[last]


@pytest.mark.timeout(3600)
def test_the_check_never_fails(tmp_path: Path) -> None:
    rng = random.Random(0)
    plain = tiny_config(tmp_path, tmp_path)._cfg_dict.to_dict()
    for number in range(TRIES):
        config = copy.deepcopy(plain)
        for _ in range(rng.randint(1, 3)):
            spoil(config, rng)
        found = [
            *content_faults(config),
            *missing_for_training(config),
            *notices(config),
            *unread_keys(config, Names()),
        ]
        assert all(isinstance(line, str) for line in lines(found, Origin())), number
