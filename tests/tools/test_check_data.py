"""tools/check_data.py: exit codes, what it prints, its page."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seg.engine import cli
from seg.engine.check_data import run_check
from seg.engine.cli import main, parser_for_config
from tests.datasets.made import disc, write_image
from tests.tiny import make_data, tiny_config

TOOL = Path(cli.__file__).resolve().parents[2] / 'tools' / 'check_data.py'


def written(tmp_path: Path) -> tuple[Path, Path]:
    """(data, config file)"""
    root = make_data(tmp_path / 'data')
    config = tmp_path / 'config.py'
    config.write_text(tiny_config(root, tmp_path / 'run').pretty_text)
    return root, config


def test_bad_data_is_exit_code_2_and_one_message(tmp_path: Path) -> None:
    root, config = written(tmp_path)
    for mask in (root / 'train_masks').iterdir():
        write_image(mask, disc(24, 32) * 255)
    env = {**os.environ, 'XDG_CACHE_HOME': str(tmp_path / 'cache')}
    command = [sys.executable, str(TOOL), str(config), '--out', 'page/report.html']
    bad = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert bad.returncode == 2
    assert bad.stderr.startswith('error: the data cannot be trained on as it is: 1 fault\n')
    assert 'label_map={0: 0, 255: 1}' in bad.stderr
    assert 'Traceback' not in bad.stderr
    assert 'report: page/report.html' in bad.stdout
    assert sorted(file.name for file in tmp_path.iterdir()) == ['cache', 'config.py', 'data', 'page']


@pytest.mark.parametrize('full', [False, True])
def test_good_data_is_exit_code_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], full: bool
) -> None:
    _, config = written(tmp_path)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    parser = parser_for_config('')
    parser.set_defaults(out=None, full=full)
    assert main(parser, run_check, [str(config), '--cfg-options', 'check_data.max_seconds=0']) == 0
    printed = capsys.readouterr().out
    decoded = 8 if full else 0
    assert f'train_dataloader.dataset: 8 pairs, images of 24x32 (height x width), {decoded} masks decoded' in printed
    unchecked = 'unchecked: train_dataloader.dataset: 8 of 8 masks and 8 of 8 images are not decoded yet'
    assert (unchecked in printed) == ('--full decodes everything' in printed) == (not full)
