"""Predictions have the photograph's own size and place, and are validation's."""

import math
from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from PIL import Image

from seg import Predictor
from seg.engine.state import checkpoint
from seg.engine.test import evaluate
from seg.engine.train import train
from seg.errors import UserError
from seg.inference import predictor as predictor_module
from tests.inference.bright import LOAD, PACK, config, right_half, save_checkpoint, save_photo
from tests.tiny import make_data, tiny_config


def bright_predictor(folder: Path, *steps: dict, **model: object) -> Predictor:
    return Predictor(save_checkpoint(folder / 'a.pth', config([LOAD, *steps, PACK], **model)), device='cpu')


def gray(value: int, height: int = 1, width: int = 1) -> np.ndarray:
    return np.full((height, width, 3), value, dtype=np.uint8)


@pytest.mark.parametrize('scale_factor', [0.5, 0.3, 1.7])
def test_the_size_is_the_photographs(tmp_path: Path, scale_factor: float) -> None:
    predictor = bright_predictor(tmp_path, dict(type='Resize', scale_factor=scale_factor))
    labels = predictor(save_photo(tmp_path / 'a.png', right_half(427, 641))).labels
    assert (labels.shape, labels.dtype) == ((427, 641), np.uint8)
    # the edge lies between columns 319 and 320; a pixel of 0.3 of the size spans 3.3 columns
    assert not labels[:, :317].any()
    assert labels[:, 323:].all()


def test_padding_does_not_shift(tmp_path: Path) -> None:
    resize, pad = dict(type='Resize', scale=(50, 50), keep_ratio=True), dict(type='Pad', size=(64, 64))
    predictor = bright_predictor(tmp_path, resize, pad)
    labels = predictor(save_photo(tmp_path / 'a.png', right_half(60, 100))).labels
    assert labels.shape == (60, 100)
    assert not labels[:, :49].any()
    assert labels[:, 51:].all()


def test_the_orientation_is_the_shown_one(tmp_path: Path) -> None:
    bright = np.zeros((4, 6), dtype=bool)
    bright[:, :3] = True  # the left half as stored
    exif = Image.Exif()
    exif[274] = 6  # stored row 0 is shown at the right, stored column 0 at the top
    path = save_photo(tmp_path / 'a.png', bright, exif=exif)
    labels = bright_predictor(tmp_path)(path).labels
    assert labels.tolist() == [[1] * 4] * 3 + [[0] * 4] * 3

    as_stored = config([dict(LOAD, apply_exif=False), PACK])
    predictor = Predictor(save_checkpoint(tmp_path / 'b.pth', as_stored), device='cpu')
    assert predictor(path).labels.tolist() == [[1, 1, 1, 0, 0, 0]] * 4
    assert predictor.pipeline.read(path).shape == (4, 6, 3)


def test_probabilities_of_two_classes_and_of_one(tmp_path: Path) -> None:
    # 128 is 0.5 above the mean: logits (0, 0.5), or one logit of 0.5
    expected = 1 / (1 + math.exp(-0.5))
    for num_classes in (2, 1):
        prediction = bright_predictor(tmp_path, num_classes=num_classes)(gray(128, 2, 3))
        assert prediction.labels.tolist() == [[1] * 3] * 2
        assert (prediction.probs.shape, prediction.probs.dtype) == ((2, 3), np.float32)
        assert prediction.probs == pytest.approx(expected, abs=1e-6)
        assert prediction.prob(0) == pytest.approx(1 - expected, abs=1e-6)
        assert prediction.all_probs().shape == (2, 2, 3)


def test_probabilities_of_three_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prediction = bright_predictor(tmp_path, num_classes=3)(gray(128))
    # logits 0, -1 and 0.5
    total = 1 + math.exp(-1) + math.exp(0.5)
    expected = [1 / total, math.exp(-1) / total, math.exp(0.5) / total]
    assert prediction.labels.item() == 2
    assert prediction.all_probs().ravel() == pytest.approx(expected, abs=1e-6)
    assert prediction.prob(1).item() == pytest.approx(expected[1], abs=1e-6)
    with pytest.raises(UserError, match=r'3 classes.*prob\(label\)'):
        _ = prediction.probs
    with pytest.raises(UserError, match='classes 0 to 2'):
        prediction.prob(3)
    monkeypatch.setattr(predictor_module, 'MAX_ALL_PROBS_BYTES', 11)
    with pytest.raises(UserError, match='one class at a time'):
        prediction.all_probs()


def test_each_keeps_order_and_goes_on_after_a_bad_file(tmp_path: Path) -> None:
    predictor = bright_predictor(tmp_path)
    photos = [gray(200), tmp_path / 'missing.png', gray(50), gray(128, 3, 3)]
    outcomes = list(predictor.each(photos))
    assert [given is photo for (given, _), photo in zip(outcomes, photos)] == [True] * 4
    assert isinstance(outcomes[1][1], UserError)
    assert [outcome.labels.tolist() for _, outcome in outcomes[::2]] == [[[1]], [[0]]]
    assert list(predictor.each([])) == []
    assert next(predictor.each(iter(photos)))[1].labels.item() == 1  # and the rest is dropped


def test_the_wrong_number_of_channels_is_named(tmp_path: Path) -> None:
    wrong = config([dict(LOAD, channels=1), PACK])
    predictor = Predictor(save_checkpoint(tmp_path / 'a.pth', wrong), device='cpu')
    with pytest.raises(UserError, match=r'a\.png: the image has 1 channels.*3 values'):
        predictor(save_photo(tmp_path / 'a.png', right_half(2, 2)))


def resized_config(root: Path, work_dir: Path) -> Config:
    run = tiny_config(root, work_dir, train_cfg=dict(max_epochs=8))
    for loader in (run.val_dataloader, run.test_dataloader):
        loader.dataset.pipeline.insert(1, dict(type='Resize', scale=(40, 32)))
    return run


@pytest.fixture(scope='module')
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(data, checkpoint) of a run of 8 epochs."""
    folder = tmp_path_factory.mktemp('trained')
    root = make_data(folder / 'data', size=(37, 50))
    result = train(resized_config(root, folder / 'run'), work_dir=folder / 'run')
    assert result.last_checkpoint is not None
    return root, result.last_checkpoint


def confusion(truth_HW: np.ndarray, labels_HW: np.ndarray) -> np.ndarray:
    return np.bincount((truth_HW * 2 + labels_HW).ravel(), minlength=4).reshape(2, 2)


@pytest.mark.parametrize('precision', ['fp32', 'bf16'])
def test_predictions_are_what_validation_scored(trained: tuple[Path, Path], tmp_path: Path, precision: str) -> None:
    """On the validation images of a run, from its checkpoint alone."""
    root, path = trained
    state = checkpoint.load(path)
    state['meta']['seg']['precision'] = precision
    checkpoint.save(state, tmp_path / 'a.pth')
    scored = tmp_path / 'scored'
    config = resized_config(root, tmp_path / 'run')
    scores = evaluate(config, tmp_path / 'a.pth', out_dir=str(scored), work_dir=str(tmp_path / 'test'))
    predictor = Predictor(tmp_path / 'a.pth', device='cpu')
    assert predictor.precision == precision
    assert predictor.classes == ('background', 'box')
    matrix = np.zeros((2, 2))
    for photo, outcome in predictor.each(sorted((root / 'val').iterdir())):
        assert np.array_equal(outcome.labels, np.asarray(Image.open(scored / photo.name)))
        matrix += confusion(np.asarray(Image.open(root / 'val_masks' / photo.name)), outcome.labels)
    assert matrix.sum() == 5 * 37 * 50
    assert matrix.sum(axis=0).min() > 0  # both classes are predicted, so there is something to compare
    dice = 2 * matrix.diagonal() / (matrix.sum(axis=0) + matrix.sum(axis=1))
    assert scores['mDice'] == pytest.approx(dice.mean(), abs=1e-12)
