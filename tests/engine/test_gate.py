"""The data gate of a run: all faults in one message, one look a machine, obeyed by all ranks."""

import os
from pathlib import Path
from typing import Any

import pytest

from seg.datasets.check import Limits
from seg.engine import gate, gate_nodes
from seg.engine.gate_nodes import Verdict, once_a_node
from seg.errors import UserError
from tests.datasets.made import disc, write_image
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config


def spoiled(root: Path) -> Path:
    """Tiny data with a truncated image in training, a mask of 0 and 255 in validation, a photo of training in it."""
    make_data(root)
    whole = (root / 'train/train3.png').read_bytes()
    (root / 'train/train3.png').write_bytes(whole[:-40])
    write_image(root / 'val_masks/val1.png', disc(24, 32) * 255)
    (root / 'val/val2.png').write_bytes((root / 'train/train0.png').read_bytes())
    return root


def test_good_data_passes_and_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny_config(make_data(tmp_path / 'data'), tmp_path / 'run')
    gate.require(config, tmp_path / 'cache')
    assert capsys.readouterr().out.startswith('data: train 8 pairs, val 5 pairs; 0 warnings, looked at in ')


def test_all_faults_stand_in_one_message(tmp_path: Path) -> None:
    config = tiny_config(spoiled(tmp_path / 'data'), tmp_path / 'run')
    with pytest.raises(UserError) as caught:
        gate.require(config, tmp_path / 'cache')
    told = str(caught.value)
    assert told.startswith('the data cannot be trained on as it is: 2 faults\n')
    assert 'train_dataloader.dataset: images that cannot be used: 1 of 8' in told
    assert 'train3.png: a truncated or damaged PNG' in told
    assert 'val_dataloader.dataset: masks with values that have no class: 1 of 5' in told
    report = gate.run(config, cache_folder=tmp_path / 'cache')
    assert 'the same file as one of train_dataloader.dataset: 1 of 5' in '\n'.join(report.notes())


def test_missing_masks_and_missing_images_of_all_data_sets(tmp_path: Path) -> None:
    root = make_data(tmp_path / 'data')
    for file in ('train/train0.png', 'train_masks/train1.png', 'val/val0.png'):
        (root / file).unlink()
    with pytest.raises(UserError) as caught:
        gate.require(tiny_config(root, tmp_path / 'run'), tmp_path / 'cache')
    told = str(caught.value)
    assert 'train_dataloader.dataset: 1 images have no mask' in told
    assert '1 masks have no image' in told
    assert 'val_dataloader.dataset: 1 masks have no image' in told


def test_what_is_wrong_with_the_test_data_does_not_keep_training_from_starting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(make_data(tmp_path / 'data'), tmp_path / 'run')
    config.test_dataloader.dataset.data_prefix.img_path = 'nowhere'
    gate.require(config, tmp_path / 'cache')
    assert 'warning: test_dataloader.dataset: ' in capsys.readouterr().out
    assert [finding.where for finding in gate.run(config, cache_folder=tmp_path / 'cache').errors] == [
        'test_dataloader.dataset'
    ]


@pytest.mark.parametrize(
    ('given', 'limits'),
    [
        (True, Limits()),
        (False, None),
        ({'max_seconds': 5}, Limits(seconds=5)),
        ({'full': True}, Limits(full=True)),
        ({'max_seconds': 0}, Limits(seconds=0)),
    ],
)
def test_the_key_check_data(given: Any, limits: Limits | None) -> None:
    assert gate.settings_of({'check_data': given}) == limits


@pytest.mark.parametrize('given', ['no', 3, {'seconds': 5}, {'max_seconds': -1}, {'max_seconds': True}, {'full': 1}])
def test_a_check_data_that_cannot_be_meant(given: Any) -> None:
    with pytest.raises(UserError, match=r'check_data=.*max_seconds.*full'):
        gate.settings_of({'check_data': given})


def test_it_can_be_switched_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gate.require(tiny_config(spoiled(tmp_path / 'data'), tmp_path / 'run', check_data=False), tmp_path / 'cache')
    assert capsys.readouterr().out == ''
    assert not (tmp_path / 'cache').exists()


def test_no_generator_of_the_run_is_moved(tmp_path: Path) -> None:
    import random

    import numpy as np
    import torch

    config = tiny_config(make_data(tmp_path / 'data'), tmp_path / 'run')
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    gate.run(config, cache_folder=tmp_path / 'cache')
    after = torch.rand(1).item(), np.random.rand(), random.random()
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    assert after == (torch.rand(1).item(), np.random.rand(), random.random())


# ---- several processes, several machines ----


def obey(look_at: str, local_ranks: list[int], errors: dict[int, str], sizes: dict[int, int]) -> tuple[bool, str]:
    """(whether this rank looked, what it was told); ranks with local rank 0 stand for machines."""
    rank = int(os.environ['RANK'])
    os.environ['LOCAL_RANK'] = str(local_ranks[rank])
    gate_nodes._BEAT_S = 0.0
    looked = []

    def look(beat: Any) -> Verdict:
        looked.append(rank)
        for _ in range(rank * 2 + 1):  # lookers of different speed
            beat()
        prints = {'train_dataloader.dataset': (sizes.get(rank, 8), 'same')}
        return Verdict(errors.get(rank, ''), [f'{look_at} {rank}'], prints, host=f'host{rank}')

    try:
        told = once_a_node(look)[0]
    except UserError as error:
        told = str(error)
    return rank in looked, told


@pytest.mark.parametrize(
    ('local_ranks', 'errors', 'sizes', 'told'),
    [
        ([0, 1], {}, {}, 'seen by 0'),
        ([0, 1], {0: 'bad'}, {}, 'bad'),
        ([0, 0], {}, {}, 'seen by 0'),
        ([0, 0], {1: 'bad'}, {}, 'on host1: bad'),
        ([0, 0], {0: 'bad', 1: 'bad'}, {}, 'on host0: bad'),
        ([0, 0], {}, {1: 7}, 'the machines have different data: 8 pairs on host0, 7 on host1'),
    ],
)
def test_one_look_a_machine_and_all_ranks_obey(
    local_ranks: list[int], errors: dict[int, str], sizes: dict[int, int], told: str
) -> None:
    answers = run_ranks(2, obey, 'seen by', local_ranks, errors, sizes)
    assert [looked for looked, _ in answers] == [local == 0 for local in local_ranks]
    assert answers[0][1] == answers[1][1]
    assert told in answers[0][1]


def look_for_real(root: str, cache: str) -> str:
    try:
        gate.require(tiny_config(Path(root), Path(root) / 'run'), Path(cache))
    except UserError as error:
        return str(error)
    return ''


def test_two_ranks_refuse_alike(tmp_path: Path) -> None:
    root = spoiled(tmp_path / 'data')
    one, two = run_ranks(2, look_for_real, str(root), str(tmp_path / 'cache'))
    assert one == two
    assert 'train3.png' in one
