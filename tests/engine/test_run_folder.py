"""One job at a time in a run's folder, and nothing of an earlier run overwritten."""

import multiprocessing
from pathlib import Path

import pytest

from seg.engine import run_folder
from seg.errors import UserError


@pytest.fixture(autouse=True)
def _released() -> object:
    yield
    run_folder.release()


def test_an_empty_folder_is_made_and_claimed(tmp_path: Path) -> None:
    run_folder.claim(tmp_path / 'new' / 'run', resume=False)
    assert (tmp_path / 'new' / 'run').is_dir()


def test_checkpoints_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / 'epoch_1.pth').touch()
    with pytest.raises(UserError, match=r'epoch_1\.pth.*--resume'):
        run_folder.claim(tmp_path, resume=False)
    run_folder.claim(tmp_path, resume=True)


def test_a_second_job_is_kept_out(tmp_path: Path) -> None:
    run_folder.claim(tmp_path, resume=False)
    with multiprocessing.get_context('fork').Pool(1) as pool:
        assert 'another job' in pool.apply(_verdict, (tmp_path,))


def _verdict(folder: Path) -> str:
    try:
        run_folder.claim(folder, resume=True)
    except UserError as error:
        return str(error)
    return 'claimed'


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / 'file').touch()
    with pytest.raises(UserError, match=r'file/run cannot be written'):
        run_folder.claim(tmp_path / 'file' / 'run', resume=False)
