"""A metric is a function of the data set (promise 3), through the data loader, the model and the loop that training uses.

Images of unequal sizes, some of them equal, so that a batch holds both what one forward takes and what needs several.
In float32 a convolution of two images and of each alone differ in their last bits (oneDNN takes other ways), so across
batch sizes the loss is compared to 1e-6; counts, scores and, for one batch size, the loss are compared to the bit.
"""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dist import get_rank, get_world_size
from PIL import Image

from seg.engine.cli import parser_for_test
from seg.engine.loops import ValLoop
from seg.engine.runner import SegRunner
from seg.engine.step import unwrap
from seg.engine.test import run_test
from seg.engine.train import build_runner, train
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config

SIZES_PX = [(24, 32), (24, 32), (17, 40), (24, 32), (40, 17), (17, 40), (33, 21)]
COUNTS = (1, 5, 7)
WALKS = [(1, 1), *((count, batch_size) for count in (5, 7) for batch_size in (1, 2, 3))]
LOSSES = [dict(type='CrossEntropyLoss', class_weight=[0.3, 1.7]), dict(type='DiceLoss'), dict(type='FocalLoss')]
TRAINING = ('train_dataloader', 'train_cfg', 'optim_wrapper', 'param_scheduler')
TEST = ('test_dataloader', 'test_cfg', 'test_evaluator')


def make_images(root: Path, count: int) -> Path:
    """`count` photographs of SIZES_PX with random masks of two classes and ignored pixels, unevenly spread."""
    for folder in ('val', 'val_masks'):
        (root / folder).mkdir(parents=True)
    rng = np.random.default_rng(count)
    for number, size in enumerate(SIZES_PX[:count]):
        mask = rng.integers(0, 2, size, dtype=np.uint8)
        image = rng.integers(0, 200, (*size, 3), dtype=np.uint8) + 50 * (mask == 1)[..., None].astype(np.uint8)
        mask[: 3 * number] = 255
        Image.fromarray(image).save(root / 'val' / f'{number}.png')
        Image.fromarray(mask).save(root / 'val_masks' / f'{number}.png')
    return root


def eval_config(data: Path, work_dir: Path) -> Config:
    """Of a run that only validates. Every rank has a model of the same weights, by the seed."""
    return tiny_config(
        data,
        work_dir,
        **dict.fromkeys((*TRAINING, *TEST)),
        **{'model.losses': LOSSES, 'launcher': 'none' if get_world_size() == 1 else 'pytorch'},
    )


def walk(runner: SegRunner, data: Path, batch_size: int) -> dict[str, Any]:
    """All that one walk of the validation loop says."""
    loader = {**runner._val_dataloader, 'batch_size': batch_size}
    # Serialising collects garbage, which takes longer than all the rest.
    loader['dataset'] = {**loader['dataset'], 'data_root': str(data), 'serialize_data': False}
    loop = ValLoop(runner, loader, dict(type='SegMetric', worst=2))
    scores, metric = loop.run(), loop.evaluator.metrics[0]
    return dict(scores=scores, matrix=metric.matrix, report=metric.report, worst=metric.worst_images)


def walks(root: Path) -> dict[tuple[int, int], dict[str, Any]]:
    runner = SegRunner.from_cfg(eval_config(root / '7', root / f'{get_world_size()}_{get_rank()}'))
    head = unwrap(runner.model).network.head
    with torch.no_grad():  # untrained, it calls all pixels one class; so the dark ones are one and the bright the other
        head.weight.copy_(20 * (head.weight - head.weight.mean(dim=0)))
        head.bias.zero_()
    return {(count, size): walk(runner, root / str(count), size) for count, size in WALKS}


def test_any_cut_gives_the_same_numbers(tmp_path: Path) -> None:
    for count in COUNTS:
        make_images(tmp_path / str(count), count)
    alone = walks(tmp_path)
    whole = {count: alone[count, 1] for count in COUNTS}
    for count in (5, 7):
        (hit, missed), (false, true) = whole[count]['matrix']
        assert min(hit, missed, false, true) > 0, 'a model that has only one answer proves nothing'
        pixels = sum(h * w - min(3 * n, h) * w for n, (h, w) in enumerate(SIZES_PX[:count]))
        assert hit + missed + false + true == pixels
    for answers in [alone, *run_ranks(2, walks, tmp_path), *run_ranks(3, walks, tmp_path)]:
        for (count, batch_size), answer in answers.items():
            loss, expected = ({k: v for k, v in one['scores'].items() if 'loss' in k} for one in (answer, whole[count]))
            assert loss == (expected if batch_size == 1 else pytest.approx(expected, rel=1e-6)), (count, batch_size)
            assert {**answer, 'scores': {**answer['scores'], **expected}} == whole[count], (count, batch_size)


def scored_by_the_tool(root: Path) -> dict[str, Any]:
    """`tools/test.py CONFIG CHECKPOINT --json FILE`, within this rank."""
    world, report = get_world_size(), root / f'{get_world_size()}.json'
    args = parser_for_test().parse_args(
        [str(root / 'config.py'), str(root / 'run' / 'epoch_1.pth'), '--json', str(report)]
        + ['--work-dir', str(root / f'test{world}'), '--launcher', 'none' if world == 1 else 'pytorch']
    )
    assert run_test(args) == 0
    return {} if get_rank() else json.loads(report.read_text())


def trained(root: Path) -> dict[str, Any]:
    """One epoch, validated on one image."""
    config = tiny_config(root, root / 'run', **{'train_cfg.max_epochs': 1, 'train_dataloader.batch_size': 2})
    return train(config, launcher='pytorch').metrics


def test_one_image_on_two_ranks_in_training_and_by_the_tool(tmp_path: Path) -> None:
    make_data(tmp_path, train=4, val=1)
    (tmp_path / 'config.py').write_text(tiny_config(tmp_path, tmp_path / 'unused').pretty_text)
    both = run_ranks(2, trained, tmp_path)
    assert both[0] == both[1]
    alone = scored_by_the_tool(tmp_path)
    assert run_ranks(2, scored_by_the_tool, tmp_path) == [alone, {}]
    assert alone['mDice'] == pytest.approx(both[0]['mDice'], abs=1e-6)


def scored_in_training(root: Path, name: str, resume: str | None) -> dict[str, float]:
    """Two epochs of BatchNorm that is each rank's own."""
    config = tiny_config(root, root / name, **{'train_dataloader.batch_size': 2})
    return train(config, launcher='pytorch', resume=resume and str(root / resume)).metrics


def scored_alone(root: Path) -> dict[str, float]:
    """What a validation of the last checkpoint in one process says."""
    config = tiny_config(root, root / 'again', load_from=str(root / 'whole' / 'epoch_2.pth'))
    with closing(build_runner(config)) as runner:
        runner.load_or_resume()
        return runner.val()


def test_scores_are_those_of_the_checkpoint_where_batchnorm_is_not_synchronised(tmp_path: Path) -> None:
    make_data(tmp_path, train=8, val=4)
    whole = run_ranks(2, scored_in_training, tmp_path, 'whole', None)
    resumed = run_ranks(2, scored_in_training, tmp_path, 'cut', 'whole/epoch_1.pth')
    assert whole == resumed
    assert whole[0]['val_loss'] == pytest.approx(scored_alone(tmp_path)['val_loss'], rel=1e-6)
