"""A checkpoint is whole or absent, holds plain types, and what is damaged is refused by name (promises 5 and 10)."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from seg.engine.state import checkpoint
from seg.errors import UserError


def content() -> dict:
    return dict(meta=dict(iter=3, names=('a', 'b')), state_dict={'w': torch.arange(1000.0)})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    checkpoint.save(content(), tmp_path / 'iter_3.pth')
    loaded = checkpoint.load(tmp_path / 'iter_3.pth')
    assert loaded['meta'] == dict(iter=3, names=('a', 'b'))
    assert torch.equal(loaded['state_dict']['w'], torch.arange(1000.0))
    assert os.listdir(tmp_path) == ['iter_3.pth']


def test_numpy_values_become_plain(tmp_path: Path) -> None:
    checkpoint.save(dict(score=np.float64(0.5), ids=np.array([1, 2])), tmp_path / 'a.pth')
    loaded = checkpoint.load(tmp_path / 'a.pth')
    assert loaded == dict(score=0.5, ids=[1, 2])
    assert type(loaded['score']) is float


def test_an_object_is_named_and_not_written(tmp_path: Path) -> None:
    checkpoint.save(content(), tmp_path / 'a.pth')
    with pytest.raises(TypeError, match=r'checkpoint\.meta\.best\[1\] is a Path|PosixPath'):
        checkpoint.save(dict(meta=dict(best=[1, tmp_path])), tmp_path / 'a.pth')
    assert checkpoint.load(tmp_path / 'a.pth')['meta']['iter'] == 3
    assert os.listdir(tmp_path) == ['a.pth']


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(content(), tmp_path / 'a.pth')

    def full_disk(obj: object, file: object) -> None:
        file.write(b'half')  # type: ignore[attr-defined]
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(torch, 'save', full_disk)
    with pytest.raises(OSError, match='No space left'):
        checkpoint.save(dict(meta={}), tmp_path / 'a.pth')
    assert checkpoint.load(tmp_path / 'a.pth')['meta']['iter'] == 3
    assert os.listdir(tmp_path) == ['a.pth']


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.find(torch.arange(1000.0).numpy().tobytes()[400:440]) + 3] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    'damage',
    [
        lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        lambda path: path.write_bytes(path.read_bytes()[:-10]),
        lambda path: path.write_bytes(b''),
        lambda path: path.write_bytes(b'not a checkpoint at all'),
        _flip,
    ],
    ids=['half', 'tail', 'empty', 'text', 'bit'],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, damage: object) -> None:
    path = tmp_path / 'iter_3.pth'
    checkpoint.save(content(), path)
    damage(path)  # type: ignore[operator]
    with pytest.raises(UserError, match=r'iter_3\.pth is damaged'):
        checkpoint.load(path)


class _Payload:
    def __reduce__(self) -> tuple:
        return (Path.touch, (Path('pwned'),))


def test_a_pickled_program_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(dict(state_dict=_Payload()), 'zip.pth')
    Path('raw.pth').write_bytes(pickle.dumps(dict(state_dict=_Payload()), protocol=2))
    for name in ('zip.pth', 'raw.pth'):
        with pytest.raises(UserError, match=f'{name} (holds more than plain types|is damaged)'):
            checkpoint.load(name)
    assert not Path('pwned').exists()
    checkpoint.load('zip.pth', trust=True)
    assert Path('pwned').exists()


def test_newest_first(tmp_path: Path) -> None:
    for second, name in enumerate(('epoch_9.pth', 'iter_10.pth', 'epoch_10.pth')):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (second, second))
    (tmp_path / 'best_mDice_epoch_3.pth').touch()
    (tmp_path / '.iter_11.pth.tmp').touch()
    assert [path.name for path in checkpoint.by_age(tmp_path)] == ['epoch_10.pth', 'iter_10.pth', 'epoch_9.pth']
