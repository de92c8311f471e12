"""What was looked at is not looked at again, until a file, the rule or the reader changes; a broken cache harms nobody."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from seg.datasets import check
from seg.datasets.check import Limits, check_data
from seg.datasets.gate import stages
from seg.datasets.gate.cache import Cache, cache_folder
from seg.datasets.gate.looks import Job, Result
from seg.datasets.gate.parallel import Crew
from seg.datasets.gate.stamps import names_and_sizes, stat_files
from tests.datasets.gate_made import dataset, look, sources, texts
from tests.datasets.made import disc, make_pairs, write_image

Looked = list[tuple[str, str]]


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    """(stage, name) of each look made."""
    made: Looked = []
    for kind, stage in stages._STAGES.items():

        def noted(job: Job, kind: str = kind, stage: stages._Stage = stage) -> Result:
            made.append((kind, Path(job.img_path).stem))
            return stage.look(job)

        monkeypatch.setitem(stages._STAGES, kind, stages._Stage(stage.title, noted, stage.take, stage.batch))
    return made


def three_stages(*names: str) -> Looked:
    return sorted((kind, name) for kind in ('head', 'mask', 'photo') for name in names)


def test_unchanged_data_is_not_looked_at_again(tmp_path: Path, looked: Looked) -> None:
    root, cache = make_pairs(tmp_path / 'data', ['a', 'b', 'c']), tmp_path / 'cache'
    first = look(cache, train=dataset(root))
    assert sorted(looked) == three_stages('a', 'b', 'c')
    looked.clear()
    assert look(cache, train=dataset(root)) == first
    assert looked == []
    assert look(tmp_path / 'other', train=dataset(root)) == first
    assert len(looked) == 9


def test_a_changed_file_and_a_new_one_are_looked_at(tmp_path: Path, looked: Looked) -> None:
    root, cache = make_pairs(tmp_path / 'data', ['a', 'b', 'c']), tmp_path / 'cache'
    look(cache, train=dataset(root))
    looked.clear()
    status = (root / 'masks/b.png').stat()
    os.utime(root / 'masks/b.png', ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    make_pairs(root, ['d'])
    assert look(cache, train=dataset(root)).sets[0].masks == 4
    assert sorted(looked) == three_stages('b', 'd')


def test_another_rule_decodes_masks_again_and_nothing_else(tmp_path: Path, looked: Looked) -> None:
    root, cache = make_pairs(tmp_path / 'data', ['a', 'b']), tmp_path / 'cache'
    write_image(root / 'masks/a.png', disc() * 255)
    write_image(root / 'masks/b.png', disc() * 255)
    assert 'values that have no class: 2 of 2' in texts(look(cache, train=dataset(root)).findings)
    looked.clear()
    assert look(cache, train=dataset(root, label_map={0: 0, 255: 1})).findings == []
    assert sorted(looked) == [('mask', 'a'), ('mask', 'b')]


def test_a_pass_that_ran_out_of_time_is_not_repeated_but_goes_on_when_asked(tmp_path: Path, looked: Looked) -> None:
    root, cache = make_pairs(tmp_path / 'data', ['a', 'b']), tmp_path / 'cache'
    short = look(cache, Limits(seconds=0), train=dataset(root))
    assert sorted(looked) == [('head', 'a'), ('head', 'b')]
    looked.clear()
    assert look(cache, Limits(seconds=0), train=dataset(root)) == short
    assert looked == []
    assert look(cache, Limits(seconds=30), train=dataset(root)).is_full
    assert sorted(looked) == [(kind, name) for kind in ('mask', 'photo') for name in 'ab']
    looked.clear()
    assert look(cache, Limits(seconds=60, full=True), train=dataset(root)).is_full
    assert looked == []


def test_a_share_of_the_time_is_for_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still but for 1 s a mask: 4 of 8 s x 0.8 are not enough for 8 masks in batches of 1."""
    root = make_pairs(tmp_path / 'data', [f'{n}' for n in range(20)])
    now = [0.0]
    monkeypatch.setattr(check.time, 'monotonic', lambda: now[0])

    def slow(job: Job) -> Result:
        now[0] += 1
        return stages.look_at_mask(job)

    stage = stages._STAGES['mask']
    monkeypatch.setitem(stages._STAGES, 'mask', stages._Stage(stage.title, slow, stage.take, 1))
    summary = look(tmp_path / 'cache', Limits(seconds=10), train=dataset(root))
    (one,) = summary.sets
    assert (one.masks, one.masks_left) == (8, 12)
    assert (one.photos, one.photos_left) == (20, 0)


def test_any_part_of_the_order_is_spread_over_the_data(tmp_path: Path) -> None:
    names = [f'{n:03}' for n in range(200)]
    found = sources(train=dataset(make_pairs(tmp_path / 'data', names, size=(2, 2)))).sources
    order = [index for _, index in check.spread(found)]
    assert sorted(order) == list(range(200))
    assert order == [index for _, index in check.spread(found)]
    quarters = [sum(index // 50 == quarter for index in order[:80]) for quarter in range(4)]
    assert min(quarters) >= 10  # 20 each were even


def test_workers_find_what_one_process_finds(tmp_path: Path) -> None:
    root = make_pairs(tmp_path / 'data', [f'{n:03}' for n in range(80)], size=(4, 4))
    write_image(root / 'masks/041.png', disc(4, 4) * 9 + 9)
    found = sources(train=dataset(root)).sources
    stamps = stat_files(path for pair in found[0].pairs for path in pair[1:])
    beats: list[int] = []
    crew = Crew(workers=2, beat=lambda: beats.append(1))
    parallel, _ = check_data(found, stamps, Limits(), crew, tmp_path / 'cache')
    assert parallel == look(tmp_path / 'other', train=dataset(root))
    assert '041.png: 9' in texts(parallel.findings)
    assert len(beats) == 2 + 10 + 10  # heads in batches of 64, masks and photographs of 8


def test_a_cache_that_is_no_database_is_made_again(tmp_path: Path) -> None:
    root, cache = make_pairs(tmp_path / 'data', ['a']), tmp_path / 'cache'
    look(cache, train=dataset(root))
    (file,) = cache.iterdir()
    file.write_bytes(b'no database' * 100)
    look(cache, train=dataset(root))
    assert sqlite3.connect(file).execute('SELECT count(*) FROM looks').fetchone() == (3,)


def test_a_cache_that_cannot_be_written_is_said_and_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / 'cache').write_bytes(b'')  # a file where the folder belongs
    found = sources(train=dataset(make_pairs(tmp_path / 'data', ['a']))).sources
    stamps = stat_files(path for pair in found[0].pairs for path in pair[1:])
    summary, trouble = check_data(found, stamps, Limits(), Crew(), tmp_path / 'cache')
    assert summary.sets[0].masks == 1
    assert 'cannot be used' in trouble
    assert 'XDG_CACHE_HOME' in trouble


def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'mine'))
    assert cache_folder() == tmp_path / 'mine/seg/data_gate'
    monkeypatch.delenv('XDG_CACHE_HOME')
    monkeypatch.setenv('HOME', str(tmp_path))
    assert cache_folder() == tmp_path / '.cache/seg/data_gate'


def test_names_that_are_no_unicode_are_cached(tmp_path: Path) -> None:
    root = make_pairs(tmp_path / 'data', ['a'])
    try:
        (root / 'images/a.jpg').rename(root / 'images' / os.fsdecode(b'\xff.jpg'))
        (root / 'masks/a.png').rename(root / 'masks' / os.fsdecode(b'\xff.png'))
    except OSError:
        pytest.skip('the file system takes no such names')
    assert look(tmp_path / 'cache', train=dataset(root)) == look(tmp_path / 'cache', train=dataset(root))


def test_an_entry_survives_what_is_added_later(tmp_path: Path) -> None:
    cache = Cache('/data', tmp_path)
    cache.add_looks('head', [('a', '1', {'x': 1}), ('b', '1', {})])
    cache.add_looks('head', [('b', '2', {'y': [2]})])
    assert cache.looks('head') == {'a': ('1', '{"x":1}'), 'b': ('2', '{"y":[2]}')}
    assert cache.looks('mask') == {}
    for number in range(60):
        cache.add_summary(f'{number}', {'n': number})
    assert cache.summary('59') == {'n': 59}
    assert cache.summary('0') is None
    assert not cache.trouble
    assert stat.S_ISREG(cache.file.stat().st_mode)


def test_copies_of_a_data_set_have_one_fingerprint(tmp_path: Path) -> None:
    prints = []
    for folder in ('one', 'two', 'other'):
        root = make_pairs(tmp_path / folder, ['a', 'b'])
        if folder == 'other':
            (root / 'masks/b.png').write_bytes((root / 'masks/b.png').read_bytes() + b'\0')
        pairs = sources(train=dataset(root)).sources[0].pairs
        prints.append(names_and_sizes(pairs, stat_files(path for pair in pairs for path in pair[1:])))
    assert prints[0] == prints[1] != prints[2]
