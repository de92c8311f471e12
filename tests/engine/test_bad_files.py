"""Files that go bad while a run goes on: the log, the count over ranks, and how the run ends."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mmengine.dist import get_rank
from mmengine.hooks import Hook

from seg.engine import cli
from seg.engine.cli import main, parser_for_train
from seg.engine.hooks.bad_files_hook import BadFilesHook
from seg.engine.train import TrainResult, run_training, train
from seg.errors import UserError
from seg.registry import HOOKS
from tests.ranks import run_ranks
from tests.tiny import make_data, tiny_config

ROOT = Path(cli.__file__).resolve().parents[2]
ALLOW = 'train_dataloader.dataset.max_bad_files'


@HOOKS.register_module(force=True)
class SpoilHook(Hook):
    """Cuts files in two after the first epoch, as a disk that goes bad in the middle of a run."""

    def __init__(self, files: list[str]) -> None:
        self.files = [Path(file) for file in files]

    def after_train_epoch(self, runner: Any) -> None:
        if runner.epoch == 0 and runner.rank == 0:
            for file in self.files:
                file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def spoiling(files: list[Path], **changes: Any) -> dict[str, Any]:
    hook = dict(type='SpoilHook', files=[str(file) for file in files])
    return {'custom_hooks': [hook], 'train_cfg.max_epochs': 4, **changes}


def run(data: Path, work_dir: Path, files: list[Path], **changes: Any) -> TrainResult:
    return train(tiny_config(data, work_dir, **spoiling(files, **changes)))


def log_of(work_dir: Path) -> str:
    return ''.join(path.read_text() for path in work_dir.glob('*/*.log'))


@pytest.mark.parametrize('workers', [0, 2])
def test_replaced_files_are_named_and_counted_once(tmp_path: Path, workers: int) -> None:
    data = make_data(tmp_path / 'data')
    bad = [data / 'train/train3.png', data / 'train_masks/train5.png']
    options = {ALLOW: 2, 'train_dataloader.num_workers': workers, 'train_dataloader.persistent_workers': False}
    run(data, tmp_path / 'run', bad, **options)
    log = log_of(tmp_path / 'run')
    for file in bad:
        assert log.count(f'{file}: a truncated or damaged PNG') == 1
    assert '1 bad file(s) of max_bad_files=2: ' in log
    assert 'The next sample takes its place' in log
    assert '2 bad file(s) of max_bad_files=2 were replaced by other samples in this run' in log


def test_replacement_is_the_same_with_and_without_workers(tmp_path: Path) -> None:
    """The whole run is: same files, same losses."""
    metrics = []
    for workers in (0, 2):
        data = make_data(tmp_path / f'data{workers}')
        changes = {ALLOW: 1, 'train_dataloader.num_workers': workers, 'train_dataloader.persistent_workers': False}
        metrics.append(run(data, tmp_path / f'run{workers}', [data / 'train/train3.png'], **changes).metrics)
    assert metrics[0] == metrics[1]


def test_too_many_end_the_run_with_their_names(tmp_path: Path) -> None:
    data = make_data(tmp_path / 'data')
    bad = [data / f'train/train{number}.png' for number in (1, 4, 6)]
    with pytest.raises(UserError, match=r'files cannot be read, max_bad_files=1 are allowed') as caught:
        run(data, tmp_path / 'run', bad, **{ALLOW: 1})
    assert 'Traceback' not in str(caught.value)


@pytest.mark.parametrize('key', ['train_dataloader', 'val_dataloader'])
def test_one_message_and_exit_code_2_from_workers_of_training_and_validation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    data = make_data(tmp_path / 'data')
    part = key.removesuffix('_dataloader')
    file = data / part / f'{part}2.png'
    changes = {f'{key}.num_workers': 1, f'{key}.persistent_workers': False}
    config = tiny_config(data, tmp_path / 'run', **spoiling([file], **changes))
    (tmp_path / 'c.py').write_text(config.pretty_text)
    assert main(parser_for_train(), run_training, [str(tmp_path / 'c.py')]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f'error: {file}: a truncated or damaged PNG')
    assert said.count('\n') == 1


def count_on_rank(allowed: int) -> tuple[list[str], str]:
    """Each rank meets a file of its own and one that both meet; they put them together at step 50."""
    warnings: list[str] = []
    runner: Any = SimpleNamespace(iter=0, logger=SimpleNamespace(warning=warnings.append))
    data = SimpleNamespace(dataset=SimpleNamespace(max_bad_files=allowed))
    hook = BadFilesHook()
    runner.train_dataloader = data
    hook.before_train(runner)
    said = ''
    try:
        for runner.iter in range(50):
            found = [f'{get_rank()}.png: bad', 'both.png: bad'] if runner.iter == 20 else []
            hook.after_train_iter(runner, 0, dict(metas=[{}, dict(replaced=found)]))
    except UserError as error:
        said = f'{runner.iter}: {error}'
    return warnings, said


def test_ranks_count_together_and_the_first_one_logs() -> None:
    (first, said), (second, said_too) = run_ranks(2, count_on_rank, 3)
    assert (said, said_too) == ('', '')
    assert second == []
    assert [text.partition('. ')[0] for text in first] == [
        '1 bad file(s) of max_bad_files=3: 0.png: bad',
        '2 bad file(s) of max_bad_files=3: both.png: bad',
        '3 bad file(s) of max_bad_files=3: 1.png: bad',
    ]
    for _, said in run_ranks(2, count_on_rank, 2):
        assert said.startswith('49: 3 files cannot be read, max_bad_files=2 are allowed')


def test_on_two_ranks_a_bad_file_ends_all_with_one_message(tmp_path: Path) -> None:
    data = make_data(tmp_path / 'data')
    file = data / 'train/train3.png'
    changes = {'train_dataloader.batch_size': 2, 'train_dataloader.num_workers': 1, 'train_cfg.max_epochs': 5}
    config = tiny_config(data, tmp_path / 'run', **spoiling([file], **changes))
    config.custom_imports = dict(imports=['tests.engine.test_bad_files'])
    (tmp_path / 'c.py').write_text(config.pretty_text)
    done = subprocess.run(
        [str(ROOT / 'tools/dist_train.sh'), str(tmp_path / 'c.py'), '2'],
        env={**os.environ, 'PYTHON': sys.executable, 'PYTHONPATH': str(ROOT), 'CUDA_VISIBLE_DEVICES': ''},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count(f'error: {file}: a truncated or damaged PNG') == 1
    assert 'Traceback' not in done.stderr
