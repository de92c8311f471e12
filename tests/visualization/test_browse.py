"""Samples as pictures: byte for byte those that training is dealt."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seg.datasets.io import read_image
from seg.datasets.seeding import SeededDataset
from seg.engine.train import build_runner
from seg.errors import UserError
from seg.visualization.browse import browse, build_loader, deal, draw, name_of
from seg.visualization.overlay import overlay, palette_of
from tests.tiny import make_data, tiny_config

RANDOM = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomCrop', crop_size=(16, 20)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]


@pytest.fixture(scope='module')
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('boxes'))


def config_of(root: Path, tmp_path: Path, **changes: Any) -> Any:
    options = {'train_dataloader.dataset.pipeline': RANDOM, 'randomness.seed': 3}
    return tiny_config(root, tmp_path / 'run', **{**options, **changes})


@pytest.mark.parametrize('workers', [0, 2])
def test_they_are_what_the_training_loader_delivers(root: Path, tmp_path: Path, workers: int) -> None:
    changes = {
        'train_dataloader.num_workers': workers,
        'train_dataloader.persistent_workers': False,
        'optim_wrapper.accumulative_counts': 2,
        'train_dataloader.batch_size': 2,
    }
    config = config_of(root, tmp_path, **changes)
    shown = list(deal(build_loader(config, 'train'), epoch=1, number=8))
    loader = build_runner(config).train_loop.dataloader  # type: ignore[union-attr]
    loader.batch_sampler.set_position(len(loader))  # where the second epoch starts
    batches = list(loader)
    inputs = torch.cat([batch['inputs'] for batch in batches])
    labels = torch.cat([batch['labels'] for batch in batches])
    metas = [meta for batch in batches for meta in batch['metas']]
    assert len(shown) == len(inputs) == 8
    for place, dealt in enumerate(shown):
        assert dealt.place == place
        assert torch.equal(dealt.sample['inputs'], inputs[place])
        assert torch.equal(dealt.sample['labels'], labels[place])
        assert dealt.sample['metas'] == metas[place]


def test_epochs_and_seeds_differ(root: Path, tmp_path: Path) -> None:
    def dealt(epoch: int, **changes: Any) -> bytes:
        loader = build_loader(config_of(root, tmp_path, **changes), 'train')
        return b''.join(one.sample['inputs'].numpy().tobytes() for one in deal(loader, epoch, 4))

    assert len({dealt(0), dealt(1), dealt(0, **{'randomness.seed': 4})}) == 3
    assert dealt(1) == dealt(1)


def test_files_tell_epoch_place_and_name_and_hold_the_overlay(root: Path, tmp_path: Path) -> None:
    config = config_of(root, tmp_path)
    files, sheet = browse(config, tmp_path / 'out', epoch=2, number=3)
    loader = build_loader(config, 'train')
    order = loader.batch_sampler.order(1)[:3].tolist()  # type: ignore[union-attr]
    assert [file.name for file in files] == [f'train_epoch2_{n:04d}_train{index}.png' for n, index in enumerate(order)]
    sample = loader.dataset[1, order[0]]
    image, labels = sample['inputs'].permute(1, 2, 0).numpy(), sample['labels'].numpy()
    palette = palette_of(loader.dataset.metainfo)  # type: ignore[attr-defined]
    assert np.array_equal(read_image(files[0]), overlay(image, labels, palette))
    assert {path.name for path in (tmp_path / 'out').iterdir()} == {sheet.name, *(file.name for file in files)}
    assert read_image(sheet).shape[1] >= 2 * 20  # three pictures of 20 pixels, two in a row


def test_an_evaluation_is_shown_in_order_and_a_sample_without_mask_too(root: Path, tmp_path: Path) -> None:
    files, _ = browse(config_of(root, tmp_path), tmp_path / 'out', part='val', number=99)
    assert [file.name for file in files] == [f'val_{number:04d}_val{number}.png' for number in range(5)]
    bare = {'test_dataloader.dataset.test_mode': True, 'test_dataloader.dataset.data_prefix.seg_map_path': None}
    files, _ = browse(config_of(root, tmp_path, **bare), tmp_path / 'out', part='test', number=1)
    assert np.array_equal(read_image(files[0]), read_image(root / 'val/val0.png'))


def test_a_replaced_file_shows_in_the_name(root: Path, tmp_path: Path) -> None:
    class Stub:
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> dict:
            inputs = torch.zeros(1, 4, 4, dtype=torch.uint8)
            return dict(inputs=inputs, metas=dict(img_path='a/b.jpg', replaced=['c.jpg: no such file']))

    dataset = SeededDataset(Stub(), 0)  # type: ignore[arg-type]
    (dealt,) = deal(torch.utils.data.DataLoader(dataset), 0, 5)
    assert name_of(dealt) == '0000_b_replaces_a_bad_file'
    assert draw(dealt.sample, palette_of(None)).shape == (4, 4, 3)


@pytest.mark.parametrize(
    ('options', 'what'),
    [
        (dict(epoch=0), 'count from 1'),
        (dict(number=0), 'count from 1'),
        (dict(part='val', epoch=2), 'same samples in every epoch'),
        (dict(part='test'), 'the config has no test_dataloader'),
    ],
)
def test_what_cannot_be_shown_is_refused(root: Path, tmp_path: Path, options: dict, what: str) -> None:
    config = config_of(root, tmp_path)
    config.pop('test_dataloader')
    with pytest.raises(UserError, match=what):
        browse(config, tmp_path / 'out', **options)


def test_a_run_without_a_seed_is_told_of(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_loader(config_of(root, tmp_path, **{'randomness.seed': None}), 'train')
    assert 'no randomness.seed' in capsys.readouterr().out
