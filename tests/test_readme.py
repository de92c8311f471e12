"""README.md believed only after it was followed: every command is run, on made-up cars, and every piece of Python."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets.made import disc, make_carvana, make_pairs, write_image

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / 'README.md').read_text(encoding='utf-8')
BLOCKS = re.findall(r'```bash\n(.*?)```', TEXT, re.DOTALL)
COMMANDS = [line.split('  #')[0].strip() for block in BLOCKS for line in block.splitlines() if line.strip()]
PIECES = re.findall(r'```python\n(.*?)```', TEXT, re.DOTALL)

# What makes a run small; the sense of a command stays.
SMALL = [
    'train_dataloader.num_workers=0',
    'val_dataloader.num_workers=0',
    'test_dataloader.num_workers=0',
    'train_dataloader.dataset.pipeline.2.scale=(32,32)',
    'val_dataloader.dataset.pipeline.1.scale=(32,32)',
    'test_dataloader.dataset.pipeline.1.scale=(32,32)',
    'model.network.base_channels=2',
]
SMALL_MINE = ['train_dataloader.num_workers=0', 'val_dataloader.num_workers=0', 'model.network.base_channels=2']
# Installing is what CI does, and `make demo` is minutes long; its tools are run below under other names.
NOT_HERE = ('make demo', 'make install')


@pytest.fixture(scope='module')
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a checkout, with Kaggle's folders and a user's own data."""
    folder = tmp_path_factory.mktemp('a checkout')
    for name in ('tools', 'seg'):
        (folder / name).symlink_to(ROOT / name)
    (folder / 'configs').mkdir()
    for path in (ROOT / 'configs').iterdir():
        (folder / 'configs' / path.name).symlink_to(path)
    make_carvana(folder / 'data' / 'carvana')
    make_pairs(folder / 'data' / 'mine', [f'{number:02d}' for number in range(10)])
    for mask in (folder / 'data' / 'mine' / 'masks').iterdir():
        write_image(mask, disc() * 255)
    (folder / 'photos').symlink_to(folder / 'data' / 'carvana' / 'train')
    (folder / 'configs' / 'mine.py').write_text(PIECES[0])
    return folder


def adapt(command: str) -> list[str]:
    """The command as it is run here: this Python, two processes, a small network, a folder of its own."""
    words = shlex.split(command)
    if words[0].endswith('.sh'):
        words[words.index('4')] = '2'
    if 'dist_train' in words[0] or '--amp' in words or '/data/carvana' in command:
        words += ['--work-dir', f'work_dirs/other_{len(command)}']
    words = ['data/carvana'.join(word.split('/data/carvana')) if '=/data' in word else word for word in words]
    if '--compile' in words:
        words.remove('--compile')  # a minute of compiling; tests/engine/test_training.py compiles a network
    if re.search(r'(train|test)\.(py|sh)', command):
        small = SMALL_MINE if 'mine.py' in command else SMALL
        words += small if '--cfg-options' in words else ['--cfg-options', *small]
        words = _options_last(words)
    return [sys.executable if word == 'python' else word for word in words]


def _options_last(words: list[str]) -> list[str]:
    """`--cfg-options` takes all the words behind it."""
    place = words.index('--cfg-options')
    options = [word for word in words[place + 1 :] if '=' in word]
    others = [word for word in words[place + 1 :] if '=' not in word]
    return [*words[:place], *others, '--cfg-options', *options]


def run(words: list[str], place: Path) -> str:
    environment = {**os.environ, 'PYTHON': sys.executable, 'OMP_NUM_THREADS': '1'}
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f'{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}'
    return done.stdout


def test_every_command_runs_in_order(place: Path) -> None:
    ran = [command for command in COMMANDS if command not in NOT_HERE]
    # What trains comes before what needs its checkpoint; the first block shows both.
    ran.sort(key=lambda command: command[-32:] != 'train.py configs/unet_carvana.py')
    assert len(ran) >= 13
    for command in ran:
        run(adapt(command), place)
    assert (place / 'metrics.json').is_file()
    assert (place / 'submission.csv').read_text().startswith('img,rle_mask\n')
    photos = list((place / 'photos').iterdir())
    assert len(list((place / 'masks').glob('*_overlay.png'))) == len(photos)


def test_the_python_interface(place: Path) -> None:
    piece = PIECES[1].replace("'photo.jpg'", f"'{next((place / 'photos').iterdir())}'")
    options = ', '.join(f'{key!r}: {value}' for key, value in (word.split('=') for word in SMALL))
    piece = piece.replace("'train_cfg.max_epochs': 5", f"'train_cfg.max_epochs': 1, {options}")
    (place / 'piece.py').write_text(f"{piece}\nassert mask.dtype == 'uint8'\n")
    run([sys.executable, 'piece.py'], place)


def test_every_file_named_in_the_documents_exists() -> None:
    for document in (ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *(ROOT / 'docs').glob('*.md')):
        for target in re.findall(r'\]\(([^)#]+)\)', document.read_text(encoding='utf-8')):
            assert target.startswith('http') or (document.parent / target).exists(), f'{document.name}: {target}'
