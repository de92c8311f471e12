"""`--check` tries the real run and leaves nothing behind."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from seg.engine.train import check
from seg.errors import UserError
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config


def try_out(data: Path, launcher: str, options: dict[str, Any]) -> None:
    check(tiny_config(data, data.parent / 'run', **options), launcher=launcher)


def temporary_folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob('seg_check_*'))


def test_it_reports_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    before = temporary_folders()
    data = make_data(tmp_path / 'data')
    try_out(data, 'none', {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == 'ready'
    assert 'global batch: 4 images over 1 process(es)' in lines
    # 8 images in batches of 4, 2 epochs, validated after each.
    assert any(line.startswith('step: ') and line.endswith(', 4 steps') for line in lines)
    assert any(', 2 times; checkpoint: ' in line for line in lines)
    # Masks are not resized in this config, so the labels allow everything.
    assert 'mDice that the labels alone allow at this size: 1.0000' in lines
    assert [path.name for path in tmp_path.iterdir()] == ['data']
    assert temporary_folders() == before


def test_two_ranks(tmp_path: Path) -> None:
    data = make_data(tmp_path / 'data')
    run_ranks(2, try_out, data, 'pytorch', {})
    assert [path.name for path in tmp_path.iterdir()] == ['data']


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    data = make_data(tmp_path / 'data')
    Image.fromarray(np.full((24, 32), 7, dtype=np.uint8)).save(data / 'train_masks' / 'train3.png')
    with pytest.raises(UserError, match=r'train3\.png'):
        try_out(data, 'none', {})


def test_the_label_path_is_bounded_by_the_size(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    data = make_data(tmp_path / 'data')
    small = dict(type='Resize', scale=(8, 6))
    for part in ('val', 'test'):
        pipeline = [dict(type='LoadImageFromFile'), small, dict(type='LoadAnnotations'), dict(type='PackSegInputs')]
        options = {f'{part}_dataloader.dataset.pipeline': pipeline}
    try_out(data, 'none', {**options, 'val_dataloader.dataset.pipeline': pipeline})
    bound = float(capsys.readouterr().out.split('allow at this size: ')[1].split()[0])
    # A box of 16 x 12 pixels shrunk four times and grown back loses some of its border, and of its border alone.
    assert 0.8 < bound < 1.0
