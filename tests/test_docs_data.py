"""docs/data.md: every piece of config is loaded, built on files of its kind, and read; every command is understood."""

import re
import runpy
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.registry import DefaultScope

from seg.config import Config, load_config
from seg.datasets.collate import collate
from seg.datasets.loading import LoadAnnotations
from seg.datasets.segmentation import SegmentationDataset
from seg.engine.cli import parser_for_train
from seg.registry import DATASETS, MODELS
from tests.datasets.made import disc, photo, write_image, write_palette_mask

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / 'docs/data.md').read_text(encoding='utf-8')
PIECES = re.findall(r'```python\n(.*?)```', TEXT, re.DOTALL)
COMMANDS = [line for block in re.findall(r'```bash\n(.*?)```', TEXT, re.DOTALL) for line in block.splitlines()]
BASES = (
    "_base_ = ['_base_/models/unet.py', '_base_/datasets/pairs.py', '_base_/schedules/adamw_cosine.py', "
    "'_base_/runtime.py']\n"
)
NAMES = [f'{number:02d}' for number in range(10)]
THREE = disc() + disc()[::-1] * 2  # classes 0, 1, 2 and 3 where they meet
THREE[THREE == 3] = 0
HOLE = disc()
HOLE[0] = 255


def write_pairs(root: str, mask: Callable[[Path], Any], names: list[str] = NAMES, suffix: str = '.png') -> None:
    for number, name in enumerate(names):
        write_image(Path(root) / 'images' / f'{name}.jpg', photo(seed=number))
        path = Path(root) / 'masks' / f'{name}{suffix}'
        path.parent.mkdir(parents=True, exist_ok=True)
        mask(path)


def gray(values: np.ndarray) -> Callable[[Path], Any]:
    return lambda path: write_image(path, values)


def mine() -> np.ndarray:
    write_pairs('data/mine', gray(disc() * 255))
    write_image(Path('data/mine/new/01.jpg'), photo())
    return disc()


def numbers() -> np.ndarray:
    write_pairs('data/numbers', gray(np.where(HOLE == 255, 9, THREE).astype(np.uint8)))
    return np.where(HOLE == 255, 255, THREE)


def voc() -> np.ndarray:
    for number, name in enumerate(NAMES):
        write_image(Path(f'data/voc/JPEGImages/{name}.jpg'), photo(seed=number))
        colours = [(0, 0, 0), (128, 0, 0), *[(9, 9, 9)] * 253, (224, 224, 192)]
        write_palette_mask(Path(f'data/voc/SegmentationClass/{name}.png'), HOLE, colours)
    return HOLE


def colours() -> np.ndarray:
    table = np.zeros((256, 3), np.uint8)
    table[1], table[255] = (128, 64, 128), (255, 255, 255)
    write_pairs('data/colours', gray(table[HOLE]))
    return HOLE


def deep() -> np.ndarray:
    write_pairs('data/deep', gray(disc().astype(np.uint16) * 65535))
    return disc()


def blurred() -> np.ndarray:
    write_pairs('data/blurred', lambda path: write_image(path, disc() * 255, quality=95), suffix='.jpg')
    return disc()


def from_one() -> np.ndarray:
    write_pairs('data/from_one', gray(THREE + (HOLE != 255)))  # 1, 2, 3, and 0 in the first row
    return np.where((THREE + (HOLE != 255)) == 0, 255, THREE + (HOLE != 255) - 1)


def nested() -> np.ndarray:
    for number, name in enumerate(NAMES):
        city, kind = ('paris', 'jpg') if number % 2 else ('rome/old', 'png')
        write_image(Path(f'data/nested/photos/{city}/{name}_photo.{kind}'), photo(seed=number))
        write_image(Path(f'data/nested/labels/{city}/{name}_label.png'), disc())
    return disc()


def photos_only() -> np.ndarray:
    for number, name in enumerate(NAMES):
        write_image(Path(f'data/photos_only/{name}.jpg'), photo(seed=number))
        write_image(Path(f'data/elsewhere/masks/{name}.png'), disc())
    return disc()


def patients() -> np.ndarray:
    write_pairs('data/patients', gray(disc()), [f'{n:03d}_slice{k}' for n in range(3) for k in range(4)])
    return disc()


def parted() -> np.ndarray:
    for number, name in enumerate(NAMES):
        part = 'train' if number < 9 else 'val'
        write_image(Path(f'data/parted/{part}/{name}.jpg'), photo(seed=number))
        write_image(Path(f'data/parted/{part}_masks/{name}.png'), disc())
    return disc()


def listed() -> np.ndarray:
    write_pairs('data/listed', gray(disc()))
    Path('data/listed/train.txt').write_text('\n'.join(NAMES[:8]))
    Path('data/listed/val.txt').write_text('08.jpg\n\n')
    return disc()


def many() -> np.ndarray:
    write_pairs('data/many', gray(disc()))
    write_pairs('data/few', gray(disc() * 255), NAMES[:2])
    return disc()


MADE = {maker.__name__: maker for maker in (
    mine, numbers, voc, colours, deep, blurred, from_one, nested, photos_only, patients, parted, listed, many,
)}  # fmt: skip
SIZES = {'patients': (8, 4), 'parted': (9, 1), 'listed': (8, 1), 'many': (9 + 3 * 2, 1)}  # else 9 and 1 of 10


def kind_of(piece: str) -> str:
    return re.search(r"data_root='data/(\w+)'", piece)[1]  # type: ignore[index]


def load(piece: str, folder: Path) -> Config:
    shutil.copytree(ROOT / 'configs/_base_', folder / 'configs/_base_', dirs_exist_ok=True)
    (folder / 'configs/piece.py').write_text(piece if '_base_ =' in piece else BASES + piece)
    return load_config('configs/piece.py')


@pytest.mark.parametrize('piece', PIECES, ids=[f'{number}-{kind_of(piece)}' for number, piece in enumerate(PIECES)])
def test_a_piece_of_config_reads_its_kind_of_mask(piece: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    truth = MADE[kind_of(piece)]()
    config = load(piece, tmp_path)
    train, val = (DATASETS.build(config[f'{part}_dataloader'].dataset) for part in ('train', 'val'))
    sizes = SIZES.get(kind_of(piece), (9, 1))
    if 'percent=25' in piece:
        sizes = (2, 1)  # a quarter of 9
    assert (len(train), len(val)) == sizes
    for dataset in (train, val):
        for index in range(len(dataset)):
            info = LoadAnnotations().transform(dict(dataset.get_data_info(index)))
            assert np.array_equal(info['gt_seg_map'], truth)
    batch = collate([train[0], train[1]])
    assert batch['labels'].shape == (2, 12, 16)
    assert len(train.metainfo['classes']) == config.model.num_classes


def test_the_first_piece_is_a_whole_config_that_takes_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine()
    config = load(PIECES[0], tmp_path)
    config.model.network.base_channels = 4
    with DefaultScope.overwrite_default_scope('seg'):
        model = MODELS.build(config.model)
    dataset = DATASETS.build(config.train_dataloader.dataset)
    batch = collate([dataset[0], dataset[1]])
    data = model.data_preprocessor(batch, training=True)
    losses = model(data['inputs'], data['labels'], model.normalisers(data['labels']), mode='loss')
    assert all(torch.isfinite(loss) for loss in losses.values())


def test_images_without_masks_are_dealt_without_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine()
    (piece,) = (piece for piece in PIECES if 'seg_map_path=None' in piece)
    dataset = DATASETS.build(load(piece, tmp_path).test_dataloader.dataset)
    assert isinstance(dataset, SegmentationDataset)
    assert set(dataset[0]) == {'inputs', 'metas'}


def test_groups_and_folders_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in ('patients', 'parted', 'listed'):
        MADE[kind]()
        (piece,) = (piece for piece in PIECES if kind_of(piece) == kind)
        config = load(piece, tmp_path)
        names = [
            {name[:3] for name in DATASETS.build(config[f'{part}_dataloader'].dataset).split_record()['names']}
            for part in ('train', 'val')
        ]
        assert not names[0] & names[1]
        assert config.test_dataloader == config.val_dataloader


@pytest.mark.parametrize('command', COMMANDS)
def test_a_command_is_understood(command: str) -> None:
    line = command.replace('for i in 0 1 2 3 4; do ', '').replace('; done', '').replace('$i', '0')
    python, tool, *arguments = shlex.split(line, comments=True)
    assert python == 'python'
    assert (ROOT / tool).is_file()
    if tool == 'tools/train.py':
        parser_for_train().parse_args(arguments)
    elif tool != 'tools/check_data.py':
        names = runpy.run_path(str(ROOT / tool))
        parser = next(value for name, value in names.items() if name.startswith('parser_for_') and 'config' not in name)
        parser().parse_args(arguments)
