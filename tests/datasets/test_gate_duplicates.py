"""The same photograph twice: within a data set, in training and validation, with two masks; and nearly the same one."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seg.datasets.gate.near import near_pairs
from tests.datasets.gate_made import dataset, look, texts
from tests.datasets.made import DATA, disc, make_pairs, photo, write_image


def scene(seed: int, height: int = 96, width: int = 128) -> np.ndarray:
    """A picture of blocks, unlike any other."""
    blocks = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return np.kron(blocks, np.ones((height // 6, width // 8, 1), np.uint8))


def made(root: Path, *seeds: int) -> Path:
    for seed in seeds:
        write_image(root / f'images/{seed}.jpg', scene(seed), quality=95)
        write_image(root / f'masks/{seed}.png', disc(96, 128))
    return root


def warned(tmp_path: Path, **datasets: dict) -> str:
    findings = look(tmp_path / 'cache', **datasets).findings
    assert texts(findings) == ''
    return texts(findings, 'warning')


def test_different_pictures_are_nobodys_copies(tmp_path: Path) -> None:
    one, two = made(tmp_path / 'one', 1, 2, 3), made(tmp_path / 'two', 4, 5)
    assert warned(tmp_path, train=dataset(one), val=dataset(two)) == ''


def test_the_same_file_twice(tmp_path: Path) -> None:
    root = made(tmp_path / 'one', 1, 2, 3)
    for folder, suffix in (('images', 'jpg'), ('masks', 'png')):
        (root / f'{folder}/again.{suffix}').write_bytes((root / f'{folder}/2.{suffix}').read_bytes())
    told = warned(tmp_path, train=dataset(root))
    assert 'the same file as another one of this data set, and so count twice: 1' in told
    assert f'{root}/images/again.jpg = {root}/images/2.jpg' in told
    assert 'two different masks' not in told
    write_image(root / 'masks/again.png', 1 - disc(96, 128))
    assert 'images with two different masks, of which one must be wrong: 1' in warned(tmp_path, train=dataset(root))


def test_a_validation_photo_that_was_trained_on(tmp_path: Path) -> None:
    train, val = made(tmp_path / 'one', 1, 2, 3), made(tmp_path / 'two', 3, 4)
    told = warned(tmp_path, train=dataset(train), val=dataset(val))
    assert 'val_dataloader.dataset: images that are the same file as one of train_dataloader.dataset: 1 of 2' in told
    assert 'two/images/3.jpg = ' in told
    test = made(tmp_path / 'three', 4)
    assert 'test_dataloader' not in warned(tmp_path, train=dataset(train), val=dataset(val), test=dataset(test))


def test_a_photo_compressed_anew_and_resized(tmp_path: Path) -> None:
    train, val = made(tmp_path / 'one', 1, 2), made(tmp_path / 'two', 4)
    picture = Image.fromarray(scene(2)).resize((64, 48))
    picture.save(val / 'images/4.jpg', quality=60)
    write_image(val / 'masks/4.png', disc(48, 64))
    told = warned(tmp_path, train=dataset(train), val=dataset(val))
    assert 'nearly the same picture as one of train_dataloader.dataset: 1 of 1' in told
    assert f'{val}/images/4.jpg ~ {train}/images/2.jpg' in told


def test_flat_pictures_are_not_all_alike(tmp_path: Path) -> None:
    for number in range(4):
        gray = np.full((12, 16, 3), 100 + number, np.uint8)
        write_image(tmp_path / f'data/images/{number}.png', gray)
        write_image(tmp_path / f'data/masks/{number}.png', disc())
    assert warned(tmp_path, train=dataset(tmp_path / 'data')) == ''


def test_near_pairs_are_those_of_comparing_each_with_each() -> None:
    rng = np.random.default_rng(0)
    thumbs = rng.integers(0, 200, (60, 72)).astype(np.uint8)
    thumbs[40:50] = thumbs[:10] + (rng.random((10, 72)) < 0.3)  # a mean difference of 0.3 grays
    thumbs[50:60] = thumbs[10:20] + 9
    wide = thumbs.astype(float)
    expected = {(i, j) for i in range(60) for j in range(i + 1, 60) if np.abs(wide[i] - wide[j]).mean() <= 1.5}
    assert expected == {(i, i + 40) for i in range(10)}
    assert {tuple(sorted(pair)) for pair in near_pairs(thumbs)} == expected
    assert list(near_pairs(thumbs[:1])) == []


@pytest.mark.skipif(not (DATA / 'carvana').is_dir(), reason='the real files are not on this machine')
def test_views_of_different_cars_are_different_pictures(tmp_path: Path) -> None:
    cars = {'type': 'CarvanaDataset', 'data_root': str(DATA / 'carvana'), 'pipeline': [{'type': 'LoadImageFromFile'}]}
    validation = {**cars, 'data_prefix': {'img_path': 'val', 'seg_map_path': 'val_masks'}}
    summary = look(tmp_path / 'cache', train={**cars, 'indices': 96}, val=validation)
    assert [one.pairs for one in summary.sets] == [96, 64]
    assert summary.findings == []


def test_one_photo_may_be_read_twice_by_the_same_data_set(tmp_path: Path) -> None:
    root = make_pairs(tmp_path / 'data', ['a'])
    write_image(root / 'images/a.jpg', photo())
    assert warned(tmp_path, val=dataset(root), test=dataset(root, test_mode=True)) == ''
