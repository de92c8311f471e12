"""One job at a time in a run's folder, and nothing of an earlier run overwritten."""

import multiprocessing
from pathlib import Path

import pytest

from seg.engine.state import run_folder
from seg.errors import UserError
from tests.drills.run import small_disk


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


def test_checkpoints_in_another_folder_are_not_overwritten_either(tmp_path: Path) -> None:
    hook = dict(type='CheckpointHook', out_dir=str(tmp_path / 'out'))
    config = dict(work_dir=str(tmp_path / 'run'), default_hooks=dict(checkpoint=hook))
    folder = run_folder.checkpoint_folder(config)
    assert folder == tmp_path / 'out' / 'run'
    folder.mkdir(parents=True)
    (folder / 'epoch_1.pth').touch()
    with pytest.raises(UserError, match=r'out/run holds checkpoints'):
        run_folder.claim(tmp_path / 'run', False, folder)


def test_what_a_killed_job_was_writing_is_cleared_away(tmp_path: Path) -> None:
    for name in ('.epoch_2.pth.tmp', 'epoch_1.pth', '.best_mDice_epoch_2.pth.tmp'):
        (tmp_path / name).touch()
    run_folder.claim(tmp_path, resume=True)
    assert {path.name for path in tmp_path.iterdir()} == {'.lock', 'epoch_1.pth'}


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


def test_a_full_disk_is_refused_before_the_run(tmp_path: Path) -> None:
    with small_disk(tmp_path / 'disk', 100) as disk:
        if disk is None:
            pytest.skip('mounting a small disk needs root')
        (disk / 'ballast').write_bytes(bytes(80_000))
        with pytest.raises(UserError, match='cannot be written: No space left on device'):
            run_folder.claim(disk / 'run', resume=False)
