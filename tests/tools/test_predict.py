"""`tools/predict.py`: files and folders in, files out; what goes wrong is said and told by the exit code."""

import csv
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from seg.engine.cli import main
from seg.inference.rle import decode
from tests.inference.bright import LOAD, PACK, config, right_half, save_checkpoint, save_photo

TOOL = Path(__file__).resolve().parents[2] / 'tools' / 'predict.py'
Predict = Callable[..., int]


@pytest.fixture
def predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Predict:
    """`predict(*arguments)` is the exit code of the tool with `--checkpoint a.pth --out-dir out --device cpu`."""
    monkeypatch.chdir(tmp_path)
    save_checkpoint(tmp_path / 'a.pth', config([LOAD, dict(type='Resize', scale_factor=0.5), PACK]))
    tool = runpy.run_path(str(TOOL))

    def call(*arguments: str, checkpoint: str = 'a.pth', out_dir: str = 'out') -> int:
        fixed = ['--checkpoint', checkpoint, '--out-dir', out_dir, '--device', 'cpu']
        return main(tool['parser_for_predict'](), tool['run'], [*arguments, *fixed])

    return call


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_file())


def labels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        assert image.mode == 'P'
        return np.asarray(image)


def test_files_and_folders(tmp_path: Path, predict: Predict, capsys: pytest.CaptureFixture[str]) -> None:
    save_photo(tmp_path / 'photos/car.1.2.png', right_half(427, 641))
    save_photo(tmp_path / 'photos/sub/авто фото (копия).PNG', right_half(17, 33))
    save_photo(tmp_path / 'single.png', right_half(20, 20))
    assert predict('photos', 'single.png', '--overlay', '--probs') == 0
    stems = ['car.1.2', 'single', 'sub/авто фото (копия)']
    out = tmp_path / 'out'
    assert files(out) == sorted(f'{stem}{end}.png' for stem in stems for end in ('', '_overlay', '_probs'))
    shapes = {stem: labels(out / f'{stem}.png').shape for stem in stems}
    assert shapes == {'car.1.2': (427, 641), 'single': (20, 20), 'sub/авто фото (копия)': (17, 33)}
    assert np.array_equal(labels(out / 'single.png'), right_half(20, 20))
    with Image.open(out / 'single_overlay.png') as overlay:
        # class 0 is black, so its photograph shows; class 1 is half (255, 0, 0), half the photograph's 200
        assert (overlay.size, overlay.getpixel((3, 3)), overlay.getpixel((15, 3))) == (
            (20, 20),
            (50,) * 3,
            (228, 100, 100),
        )
    with Image.open(out / 'single_probs.png') as probs:
        assert [probs.getpixel((3, 3)), probs.getpixel((15, 3))] == [0, 65535]
    captured = capsys.readouterr()
    assert captured.out == '3 of 3 predictions: out\n'
    assert captured.err == '1 of 3 photographs\n2 of 3 photographs\n3 of 3 photographs\n'  # stderr is no terminal


def test_run_lengths(tmp_path: Path, predict: Predict) -> None:
    truths = {'b.png': right_half(8, 12), 'a,1.png': np.zeros((4, 4), bool)}
    for name, truth in truths.items():
        save_photo(tmp_path / 'photos' / name, truth)
    assert predict('photos', '--rle', 'submissions/1.csv') == 0
    with (tmp_path / 'submissions/1.csv').open(newline='') as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ['img', 'a,1.png', 'b.png']
    assert rows[1][1] == ''
    # columns 7 to 12 of each of the 8 rows of 12
    assert rows[2][1] == ' '.join(f'{12 * row + 7} 6' for row in range(8))
    assert np.array_equal(decode(rows[2][1], (8, 12)), truths['b.png'])


def test_bad_files_are_named_at_the_end(tmp_path: Path, predict: Predict, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ('a.png', 'c.png'):
        save_photo(tmp_path / 'photos' / name, right_half(4, 4))
    (tmp_path / 'photos/b.png').write_text('this is no image')
    (tmp_path / 'photos/d.jpg').touch()
    assert predict('photos', '--overlay', '--rle', 'all.csv') == 2
    assert files(tmp_path / 'out') == ['a.png', 'a_overlay.png', 'c.png', 'c_overlay.png']
    assert [line.split(',')[0] for line in (tmp_path / 'all.csv').read_text().splitlines()] == ['img', 'a.png', 'c.png']
    captured = capsys.readouterr()
    assert captured.out == '2 of 4 predictions: out; run lengths: all.csv\n'
    message = captured.err[captured.err.index('error: ') :]
    assert message.startswith('error: 2 of 4 photographs could not be predicted:\n')
    assert 'photos/b.png: not an image' in message
    assert 'photos/d.jpg: the file is empty' in message


def test_a_long_list_of_bad_files_is_cut(tmp_path: Path, predict: Predict, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / 'photos').mkdir()
    for number in range(25):
        (tmp_path / f'photos/{number}.jpg').touch()
    assert predict('photos') == 2
    captured = capsys.readouterr().err
    assert captured.count('the file is empty') == 20
    assert captured.endswith('\n  and 5 more\n')
    assert captured.count(' of 25 photographs\n') == 10  # a line at each tenth of the way


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (['empty'], 'no images in empty'),
        (['nowhere'], 'nowhere: no such file or folder'),
        (['one', 'two'], 'would both be written to out/x.png'),
        (['one', 'one/sub', '--rle', 'r.csv'], '2 photographs are named x.png'),
        (['one', '--device', 'cuda:77'], '--device cuda:77'),
        (['one', '--config', 'missing.py'], 'missing.py'),
    ],
)
def test_what_the_user_must_change_is_said_before_the_work(
    tmp_path: Path, predict: Predict, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    (tmp_path / 'empty').mkdir()
    for name in ('one/x.png', 'one/sub/x.png', 'two/x.png'):
        save_photo(tmp_path / name, right_half(4, 4))
    # what comes later wins, so the arguments' own --device goes behind the fixture's
    fixed = ['--checkpoint', 'a.pth', '--out-dir', 'out', '--device', 'cpu']
    tool = runpy.run_path(str(TOOL))
    assert main(tool['parser_for_predict'](), tool['run'], [*fixed, *arguments]) == 2
    message = capsys.readouterr().err
    assert message.startswith('error: ')
    assert words in message
    assert not (tmp_path / 'out').exists()


def test_checkpoints_that_cannot_be_used(tmp_path: Path, predict: Predict, capsys: pytest.CaptureFixture[str]) -> None:
    save_photo(tmp_path / 'x.png', right_half(4, 4))
    assert predict('x.png', checkpoint='missing.pth') == 2
    assert 'no checkpoint file at missing.pth' in capsys.readouterr().err
    torch.save({'inc.double_conv.0.weight': torch.ones(4, 3, 3, 3)}, tmp_path / 'foreign.pth')
    assert predict('x.png', checkpoint='foreign.pth') == 2
    assert 'Give the config that builds its model and prepares its photographs by --config' in capsys.readouterr().err


def test_more_than_two_classes(tmp_path: Path, predict: Predict, capsys: pytest.CaptureFixture[str]) -> None:
    save_checkpoint(tmp_path / 'three.pth', config([LOAD, PACK], num_classes=3))
    save_photo(tmp_path / 'x.png', right_half(4, 4))
    assert predict('x.png', '--rle', 'r.csv', checkpoint='three.pth') == 2
    assert '--rle: the submission format holds one class against the rest; this model has 3' in capsys.readouterr().err
    assert predict('x.png', '--probs', checkpoint='three.pth') == 0
    assert files(tmp_path / 'out') == ['x.png', *(f'x_probs_{label}.png' for label in range(3))]
    assert np.array_equal(labels(tmp_path / 'out/x.png'), 2 * right_half(4, 4))


def test_an_out_dir_that_cannot_be_written(
    tmp_path: Path, predict: Predict, capsys: pytest.CaptureFixture[str]
) -> None:
    save_photo(tmp_path / 'x.png', right_half(4, 4))
    (tmp_path / 'out').write_text('a file')
    assert predict('x.png', '--rle', 'r.csv') == 2
    assert 'error: out: cannot be written' in capsys.readouterr().err
    assert not (tmp_path / 'r.csv').exists()


def test_predictions_beside_the_photographs(tmp_path: Path, predict: Predict) -> None:
    save_photo(tmp_path / 'photos/a.bmp', right_half(4, 4))
    save_photo(tmp_path / 'photos/b.png', right_half(4, 4))
    before = (tmp_path / 'photos/b.png').read_bytes()
    assert predict('photos/a.bmp', out_dir='photos') == 0
    assert files(tmp_path / 'photos') == ['a.bmp', 'a.png', 'b.png']
    assert predict('photos/b.png', out_dir='photos') == 2
    assert (tmp_path / 'photos/b.png').read_bytes() == before


def test_a_bar_on_a_terminal(
    tmp_path: Path, predict: Predict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_photo(tmp_path / 'x.png', right_half(4, 4))
    monkeypatch.setattr(sys.stderr, 'isatty', lambda: True)
    assert predict('x.png') == 0
    captured = capsys.readouterr().err
    assert '1/1' in captured
    assert 'of 1 photographs' not in captured


def test_help_imports_nothing_heavy() -> None:
    code = (
        'import runpy, sys\n'
        f'sys.argv = ["predict.py", "--help"]\n'
        'try:\n'
        f'    runpy.run_path({str(TOOL)!r}, run_name="__main__")\n'
        'except SystemExit as end:\n'
        '    assert end.code == 0, end.code\n'
        'heavy = {"torch", "cv2", "numpy", "mmengine", "PIL"} & set(sys.modules)\n'
        'assert not heavy, heavy\n'
    )
    run = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, '')
    assert '--checkpoint' in run.stdout
