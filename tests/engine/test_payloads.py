"""Nothing in a checkpoint is run (promise 10): a payload in every string of it, keys and values, for all who read it.

An audit hook watches for what a payload could do: start a program, import its module, run text as code, write or remove a
file elsewhere. Each reader either works or says in one UserError what it will not do.
"""

import contextlib
import copy
import functools
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from seg.engine.state import checkpoint, continuation
from seg.engine.test import evaluate
from seg.engine.train import build_runner, train
from seg.errors import UserError
from seg.inference.predictor import Predictor
from tests.tiny import make_data, tiny_config

MODULE = 'payload_of_a_stranger'
PAYLOADS = [
    "__import__('os').system('touch MARKER')",
    '$(touch MARKER)',
    '`touch MARKER`; touch MARKER | touch MARKER && touch MARKER',
    '{0.__class__.__init__.__globals__} {x!r:>9999} %(touch)s %n %s',
    '{{ fileDirname }} {{_base_.model}} {{$HOME:touch MARKER}}',
    'os.system',
    'subprocess.getoutput',
    MODULE,
    f'{MODULE}.run',
    f'exec:import {MODULE}',
    "!!python/object/apply:os.system ['touch MARKER']",
    "cos\nsystem\n(S'touch MARKER'\ntR.",
    'VICTIM',
    '../victim',
    f'_base_ = []\nimport {MODULE}',
]
PROGRAMS = ('os.system', 'subprocess.Popen', 'os.exec', 'os.posix_spawn', 'os.fork', 'pty.spawn')
OPTIONS: dict[str, Any] = {
    # Serialising collects garbage, which takes longer than all the rest.
    **{f'{part}_dataloader.dataset.serialize_data': False for part in ('train', 'val', 'test')},
    'train_dataloader.batch_size': 4,
    'custom_hooks': [dict(type='EMAHook'), dict(type='EarlyStoppingHook', monitor='mDice', patience=9)],
    'default_hooks.checkpoint': dict(type='CheckpointHook', interval=1, save_best='mDice', rule='less'),
}


class Watch:
    """What was done while it was `on`. An audit hook cannot be taken away, so there is one for all tests."""

    def __init__(self) -> None:
        self.on, self.seen, self.victim = False, list[str](), ''

    def __call__(self, event: str, arguments: tuple) -> None:
        if not self.on:
            return
        runs_module = event == 'exec' and MODULE in getattr(arguments[0], 'co_filename', '')
        if event in PROGRAMS or runs_module:
            self.seen.append(f'{event} {arguments}')
        if event in ('os.remove', 'os.rename', 'shutil.rmtree') and self.victim in map(str, arguments):
            self.seen.append(f'{event} {arguments}')


WATCH = Watch()
sys.addaudithook(WATCH)


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('boxes'), train=4, val=1, size=(16, 16))


@pytest.fixture(scope='module')
def state(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """A real run's checkpoint after one of two epochs."""
    folder = tmp_path_factory.mktemp('run')
    train(tiny_config(data, folder, **OPTIONS))
    return checkpoint.load(folder / 'epoch_1.pth')


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which the payloads' marker would appear, and a file that they name."""
    (tmp_path / f'{MODULE}.py').write_text(f'open({str(tmp_path / "marker")!r}, "w")')
    (tmp_path / 'victim').write_text('whole')
    monkeypatch.syspath_prepend(tmp_path)
    WATCH.on, WATCH.seen, WATCH.victim = True, [], str(tmp_path / 'victim')
    yield tmp_path
    WATCH.on = False
    assert not WATCH.seen
    assert not (tmp_path / 'marker').exists()
    assert (tmp_path / 'victim').read_text() == 'whole'
    assert MODULE not in sys.modules


def resume(data: Path, file: Path) -> None:
    """As far as `tools/train.py --resume FILE` goes before its first step."""
    config = tiny_config(data, file.parent / f'{file.stem}_run', **OPTIONS)
    found = continuation.prepare(config, str(file), trust=False)
    with closing(build_runner(config, found=found)) as runner:
        runner.prepare()


def score(data: Path, file: Path) -> None:
    evaluate(tiny_config(data, file.parent / f'{file.stem}_test', **OPTIONS), file)


def predict(data: Path, file: Path) -> None:
    Predictor(file, device='cpu')(next((data / 'val').iterdir()))


# Where to plant, one at a time, so that what is refused in one place does not hide another; and who reads there.
CONFIG = ('meta', 'seg', 'config')
READERS = (resume, score, predict)
PARTS: dict[tuple[str, ...], tuple[Callable[[Path, Path], None], ...]] = {
    ('state_dict',): READERS,
    ('ema_state_dict',): READERS,
    ('message_hub',): (resume,),
    ('rng',): (resume,),
    ('optimizer',): (resume,),
    ('param_schedulers',): (resume,),
    ('meta',): READERS,
    ('meta', 'seg'): READERS,
    ('meta', 'seg', 'precision'): (score, predict),
    ('meta', 'seg', 'dataset_meta'): (predict,),
    CONFIG: (predict,),
    (*CONFIG, 'model'): (predict,),
    (*CONFIG, 'model', 'network'): (predict,),
    (*CONFIG, 'model', 'losses'): (predict,),
    (*CONFIG, 'model', 'data_preprocessor'): (predict,),
    (*CONFIG, 'test_dataloader'): (predict,),
    (*CONFIG, 'test_dataloader', 'dataset', 'pipeline'): (predict,),
}


def planted(value: Any, payloads: Iterator[str], keys: bool) -> Any:
    """`value` with a payload in the place of every string in it, or of every string that is a key."""
    if isinstance(value, dict):
        return {
            next(payloads) if keys and isinstance(key, str) else key: planted(item, payloads, keys)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return type(value)(planted(item, payloads, keys) for item in value)
    return next(payloads) if isinstance(value, str) and not keys else value


def poisoned(state: dict, path: tuple[str, ...], payloads: Iterator[str], keys: bool) -> dict:
    copied = copy.deepcopy(state)
    *way, last = path
    node = functools.reduce(dict.__getitem__, way, copied)
    node[last] = planted(node[last], payloads, keys)
    return copied


def test_every_part_of_a_checkpoint_is_planted(state: dict) -> None:
    assert set(state) == {path[0] for path in PARTS}


@pytest.mark.parametrize('path', PARTS, ids='.'.join)
def test_no_payload_runs(data: Path, state: dict, watched: Path, path: tuple[str, ...]) -> None:
    marker, victim = str(watched / 'marker'), str(watched / 'victim')
    payloads = [payload.replace('MARKER', marker).replace('VICTIM', victim) for payload in PAYLOADS]
    # Prediction takes milliseconds, so each string gets a third of the payloads in turn; else it gets two, a key one.
    starts = [(start, False) for start in range(0, len(payloads), 3 if PARTS[path] == (predict,) else 8)]
    for number, (start, keys) in enumerate([*starts, (4, True)]):
        endless = itertools.islice(itertools.cycle(payloads), start, None)
        file = watched / f'{number}.pth'
        checkpoint.save(poisoned(state, path, endless, keys), file)
        for reader in PARTS[path]:
            with contextlib.suppress(UserError):
                reader(data, file)


def test_the_watch_sees(watched: Path) -> None:
    """What the tests above rely on: each kind of payload is seen when it does run."""
    os.system('true')
    importlib.import_module(MODULE)
    (watched / 'victim').unlink()
    seen = [line.split()[0] for line in WATCH.seen]
    assert {'os.system', 'exec', 'os.remove'} <= set(seen)
    assert (watched / 'marker').exists()
    # Put all back, for the fixture looks too.
    (watched / 'victim').write_text('whole')
    (watched / 'marker').unlink()
    del sys.modules[MODULE]
    WATCH.seen.clear()


@pytest.mark.parametrize('name', ['VICTIM', '../victim', 'best_mDice_../../victim.pth'])
def test_an_outdated_best_file_elsewhere_is_left(data: Path, state: dict, watched: Path, name: str) -> None:
    """The name of the best file comes from the checkpoint, and a better score removes that file."""
    notes = state['message_hub']['runtime_info']
    assert notes['best_ckpt_mDice'].startswith('best_mDice_')
    changed = {**notes, 'best_ckpt_mDice': name.replace('VICTIM', str(watched / 'victim')), 'best_score_mDice': 2.0}
    checkpoint.save({**state, 'message_hub': dict(runtime_info=changed)}, watched / 'a.pth')
    result = train(tiny_config(data, watched / 'run', **OPTIONS), resume=str(watched / 'a.pth'))
    assert result.best_checkpoint is not None  # by rule 'less' any score is better than 2
    assert result.best_checkpoint.parent == watched / 'run'


def test_custom_imports_and_bases_of_a_stored_config_do_nothing(data: Path, state: dict, watched: Path) -> None:
    (watched / 'base.py').write_text(f'import {MODULE}')
    changed = copy.deepcopy(state)
    changed['meta']['seg']['config'].update(
        _base_=str(watched / 'base.py'), custom_imports=dict(imports=[MODULE], allow_failed_imports=False)
    )
    checkpoint.save(changed, watched / 'a.pth')
    for reader in READERS:
        reader(data, watched / 'a.pth')


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_weights_that_a_stored_config_names_are_not_loaded(data: Path, state: dict, watched: Path) -> None:
    """MMEngine's `init_cfg` would fetch and unpickle them."""
    torch.save(dict(state_dict=_Touch(watched / 'marker')), watched / 'evil.pth')
    changed = copy.deepcopy(state)
    named = dict(type='Pretrained', checkpoint=str(watched / 'evil.pth'))
    changed['meta']['seg']['config']['model']['init_cfg'] = named
    checkpoint.save(changed, watched / 'a.pth')
    predict(data, watched / 'a.pth')
