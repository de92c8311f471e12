"""The gate on labels: values against classes, what never occurs, what is ignored, and what it proposes."""

from pathlib import Path

import numpy as np
import pytest

from seg.datasets.check import Limits
from seg.datasets.gate.labels import propose
from seg.datasets.label_rule import LabelRule
from tests.datasets.gate_made import dataset, look, texts
from tests.datasets.made import disc, make_pairs, write_image


def made(root: Path, *masks: np.ndarray) -> Path:
    make_pairs(root, [f'{number}' for number in range(len(masks))])
    for number, mask in enumerate(masks):
        write_image(root / f'masks/{number}.png', mask)
    return root


def stripes(*values: int) -> np.ndarray:
    """12 x 16 uint8, equally wide stripes of these values."""
    return np.repeat(np.array(values, np.uint8), 16 // len(values))[None].repeat(12, axis=0)


@pytest.mark.parametrize(
    ('values', 'rule', 'said'),
    [
        ([0, 255], LabelRule(2), 'If 255 is the foreground, set label_map={0: 0, 255: 1}; if it is to be ignored'),
        ([0, 1, 255], LabelRule(2), 'Other masks hold 1. If 255 is the same, set label_map={0: 0, 1: 1, 255: 1}'),
        ([0, 100], LabelRule(2), 'set label_map={0: 0, 100: 1}'),
        ([1, 2], LabelRule(2), 'set label_map={1: 0, 2: 1}'),
        ([0, 50, 100, 150], LabelRule(4), 'set label_map={0: 0, 50: 1, 100: 2, 150: 3}'),
        ([0, 1, 2], LabelRule(2), 'label_map={0: 255, 1: 0, 2: 1} (reduce_zero_label is not for two classes)'),
        (
            [0, 1, 2, 3],
            LabelRule(3),
            'If 0 is what nobody labelled, set reduce_zero_label=True; if 3 is, set ignore',
        ),
        ([0, 1, 3], LabelRule(2), 'To ignore 3, set ignore_index=3'),
        ([0, 1, 77], LabelRule(5), 'To ignore 77, set ignore_index=77'),
        ([0, 65535], LabelRule(2), 'set label_map={0: 0, 65535: 1}'),
        ([0, 4, 7], LabelRule(2, label_map={0: 0, 1: 1}), 'Name 4, 7 in label_map'),
        ([3, 9, 27], LabelRule(2), 'Set label_map={value: class, ...}'),
    ],
)
def test_a_proposal_fits_the_values(values: list[int], rule: LabelRule, said: str) -> None:
    assert said in propose(values, rule)


@pytest.mark.parametrize('proposed', [{1: 0, 2: 1}, {0: 255, 1: 0, 2: 1}, {0: 0, 255: 1}, {0: 0, 1: 1, 255: 255}])
def test_what_is_proposed_is_accepted(proposed: dict) -> None:
    assert None not in LabelRule(2, label_map=proposed).classes_of(list(proposed))


def test_255_as_object_and_as_ignore_is_refused(tmp_path: Path) -> None:
    # 3 masks of 12 x 16, stripes 0 and 255 of half the width each: 50 %; a fourth is all 0
    root = made(tmp_path / 'data', *[stripes(0, 255)] * 3, stripes(0))
    summary = look(tmp_path / 'cache', train=dataset(root))
    told = texts(summary.findings)
    assert 'masks with values that have no class: 3 of 4, which hold 0 (50 %, in 3), 255 (50 %, in 3)' in told
    assert "class 1 ('disc') would never occur, and 50 % of their pixels would be ignored" in told
    assert 'label_map={0: 0, 255: 1}' in told
    assert 'or in train_dataloader.dataset alone' in told
    mended = look(tmp_path / 'cache', train=dataset(root, label_map={0: 0, 255: 1}))
    assert texts(mended.findings) == ''
    # 4 x 192 pixels, 3 x 96 of them class 1
    assert mended.sets[0].class_pixels == [768 - 288, 288]
    assert mended.sets[0].class_masks == [4, 3]


def test_255_said_to_be_ignored_leaves_one_class(tmp_path: Path) -> None:
    root = made(tmp_path / 'data', stripes(0, 0, 0, 255), stripes(0))
    said = {0: 0, 1: 1, 255: 255}
    told = texts(look(tmp_path / 'cache', train=dataset(root, label_map=said)).findings)
    # 48 of 2 x 192 pixels
    assert "class 1 ('disc') never occurs in the 2 masks decoded; 12.5 % of their pixels are ignored" in told
    assert texts(look(tmp_path / 'cache', val=dataset(root, label_map=said)).findings) == ''


def test_with_more_classes_255_alone_is_not_doubtful_but_still_one_class(tmp_path: Path) -> None:
    root = made(tmp_path / 'data', stripes(0, 255))
    told = texts(look(tmp_path / 'cache', train=dataset(root, classes=('a', 'b', 'c'))).findings)
    assert "class 1 ('b'), 2 ('c') never occurs in the 1 masks decoded; 50 % of their pixels are ignored" in told
    assert 'Value 255 is read as ignore' in told


def test_a_class_without_a_pixel_is_a_warning(tmp_path: Path) -> None:
    root = made(tmp_path / 'data', stripes(0, 1), stripes(0))
    findings = look(tmp_path / 'cache', train=dataset(root, classes=('a', 'b', 'c'))).findings
    assert texts(findings) == ''
    assert "class 2 ('c') never occurs in the 2 masks decoded" in texts(findings, 'warning')


def test_masks_of_nothing_and_much_that_is_ignored_are_warnings(tmp_path: Path) -> None:
    root = made(tmp_path / 'data', stripes(0, 1), stripes(255), stripes(255))
    silent = texts(look(tmp_path / 'cache', train=dataset(root)).findings)
    assert 'if it is to be ignored, label_map={0: 0, 1: 1, 255: 255}' in silent
    findings = look(tmp_path / 'cache', train=dataset(root, label_map={0: 0, 1: 1, 255: 255})).findings
    warned = texts(findings, 'warning')
    assert texts(findings) == ''
    assert 'masks in which every pixel is ignored: 2 of 3' in warned
    assert '66.7 % of the pixels of the 3 masks decoded are ignored' in warned


def test_what_was_not_decoded_yet_is_not_missed(tmp_path: Path) -> None:
    root = made(tmp_path / 'data', stripes(0), stripes(0))
    summary = look(tmp_path / 'cache', Limits(seconds=0), train=dataset(root))
    assert summary.findings == []
    assert summary.sets[0].unchecked() == 'train_dataloader.dataset: 2 of 2 masks and 2 of 2 images are not decoded yet'
    whole = look(tmp_path / 'cache', Limits(seconds=0, full=True), train=dataset(root))
    assert 'never occurs' in texts(whole.findings)
    assert whole.sets[0].unchecked() == ''


def test_two_classes_and_one_name(tmp_path: Path) -> None:
    root = made(tmp_path / 'data', disc())
    summary = look(tmp_path / 'cache', train=dataset(root, classes=('disc',)))
    assert summary.findings == []
    assert summary.sets[0].classes == ['not disc', 'disc']
    assert summary.sets[0].class_pixels[1] == int(disc().sum())


def test_lossy_masks_are_refused_with_their_number_of_values(tmp_path: Path) -> None:
    root = made(tmp_path / 'data', disc(), disc())
    write_image(root / 'masks/1.png', np.tile(np.arange(16, dtype=np.uint8) * 10, (12, 1)))
    told = texts(look(tmp_path / 'cache', train=dataset(root)).findings)
    assert 'lossy or smoothly resized masks, whose values are no classes: 1 of 2' in told
    assert '1.png: 16 values' in told
    assert 'mask_threshold=128' in told
    told = texts(look(tmp_path / 'cache', train=dataset(root, classes=('a', 'b', 'c'))).findings)
    assert 'mask_threshold' not in told
