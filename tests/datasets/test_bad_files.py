"""Files that go bad while a run reads them: named, or replaced as often as allowed."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from seg.datasets.bad_files import BadFiles, allowed_bad_files
from seg.datasets.collate import collate
from seg.datasets.concat import ConcatDataset
from seg.datasets.seeding import SeededDataset
from seg.datasets.segmentation import SegmentationDataset
from seg.errors import BadFileError, UserError
from tests.datasets.made import disc, make_pairs, write_image

PIPELINE = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomCrop', crop_size=(6, 8)),
    dict(type='PackSegInputs'),
]


def seeded(root: Path, **options: Any) -> SeededDataset:
    settings = dict(
        data_root=str(root),
        data_prefix=dict(img_path='images', seg_map_path='masks'),
        metainfo=dict(classes=('background', 'disc')),
        pipeline=PIPELINE,
    )
    return SeededDataset(SegmentationDataset(**{**settings, **options}), seed=7)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_pairs(tmp_path, [f'{number}' for number in range(5)])


def same(one: dict, other: dict) -> bool:
    return torch.equal(one['inputs'], other['inputs']) and torch.equal(one['labels'], other['labels'])


@pytest.mark.parametrize('workers', [0, 2])
def test_the_error_names_the_file_and_holds_no_workers_traceback(root: Path, workers: int) -> None:
    data = seeded(root)
    truncate(root / 'images/3.jpg')
    loader = DataLoader(data, batch_size=1, num_workers=workers, collate_fn=collate)
    with pytest.raises(UserError) as caught:
        list(loader)
    message = str(caught.value)
    assert message.startswith(f'{root}/images/3.jpg: a truncated or damaged JPEG')
    assert 'Put a good file in its place and go on with --resume' in message
    assert 'Traceback' not in message
    assert 'worker' not in message


class Failing(Dataset):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        try:
            raise ValueError('the cause')
        except ValueError as error:
            raise UserError('first line\n  second: line') from error


def test_a_message_of_several_lines_and_its_cause_survive_a_worker() -> None:
    with pytest.raises(UserError) as caught:
        next(iter(DataLoader(Failing(), num_workers=1)))
    assert str(caught.value) == 'first line\n  second: line'
    assert str(pickle.loads(pickle.dumps(BadFileError('a.jpg: no such file')))) == 'a.jpg: no such file'


@pytest.mark.parametrize('spoil', [truncate, Path.unlink, lambda path: path.write_bytes(b'')])
@pytest.mark.parametrize('file', ['images/2.jpg', 'masks/2.png'])
def test_the_next_sample_takes_the_place_seeded_as_itself(root: Path, spoil: Any, file: str) -> None:
    before = seeded(root)
    data = seeded(root, max_bad_files=1)
    spoil(root / file)
    sample = data[4, 2]
    assert same(sample, before[4, 3])
    assert [text.partition(': ')[0] for text in sample['metas'].pop('replaced')] == [f'{root}/{file}']
    assert sample['metas'] == before[4, 3]['metas']
    assert 'replaced' not in data[4, 3]['metas']


def test_behind_the_last_sample_comes_the_first(root: Path) -> None:
    data = seeded(root, max_bad_files=2)
    for number in (3, 4):
        truncate(root / f'images/{number}.jpg')
    sample = data[1, 3]
    assert same(sample, seeded(root)[1, 0])
    assert len(sample['metas']['replaced']) == 2


def test_one_more_than_allowed_stops_and_names_them_all(root: Path) -> None:
    data = seeded(root, max_bad_files=1)
    truncate(root / 'images/1.jpg')
    for _ in range(3):
        data[0, 1]  # the same file counts once
    (root / 'masks/3.png').unlink()
    with pytest.raises(UserError, match=r'2 files cannot be read, max_bad_files=1 are allowed:\n') as caught:
        data[0, 3]
    assert f'{root}/images/1.jpg: a truncated' in str(caught.value)
    assert f'{root}/masks/3.png: no such file' in str(caught.value)


def test_where_no_file_is_good_the_search_ends(tmp_path: Path) -> None:
    data = seeded(make_pairs(tmp_path, ['only']), max_bad_files=5)
    truncate(tmp_path / 'images/only.jpg')
    with pytest.raises(UserError, match='no file of the data set can be read'):
        data[0, 0]


def test_batches_with_a_replacement_do_not_depend_on_workers(root: Path) -> None:
    truncate(root / 'images/1.jpg')
    batches = [
        list(DataLoader(seeded(root, max_bad_files=1), batch_size=2, num_workers=workers, collate_fn=collate))
        for workers in (0, 2)
    ]
    for one, other in zip(*batches, strict=True):
        assert same(one, other)
        assert one['metas'] == other['metas']


def test_a_mask_that_the_config_misreads_is_no_bad_file(root: Path) -> None:
    write_image(root / 'masks/2.png', disc() * 255)
    with pytest.raises(UserError, match=r'2\.png: 2 mask values') as caught:
        seeded(root, max_bad_files=3)[0, 2]
    assert not isinstance(caught.value, BadFileError)


def test_good_then_truncated_twice_is_the_same_refusal_and_no_pixel_of_the_good_one(root: Path) -> None:
    """A decoder that keeps its buffer would give the former picture's pixels for the latter."""
    white = np.full((12, 16, 3), 255, np.uint8)
    write_image(root / 'images/0.jpg', white, quality=100)
    write_image(root / 'images/1.jpg', 255 - white, quality=100)
    truncate(root / 'images/1.jpg')
    strict, lenient = seeded(root), seeded(root, max_bad_files=1)
    refusals, replacements = [], []
    for _ in range(2):
        assert strict[0, 0]['inputs'].min() == 255
        with pytest.raises(UserError) as caught:
            strict[0, 1]
        refusals.append(str(caught.value))
        lenient[0, 0]
        replacements.append(lenient[0, 1])
    assert refusals[0] == refusals[1]
    assert same(*replacements)
    assert same(replacements[0], seeded(root)[0, 2])


def test_what_is_allowed_is_found_within_wrappers(root: Path) -> None:
    parts = [seeded(root, max_bad_files=count).dataset for count in (2, 3)]
    both = ConcatDataset(parts, repeats=[1, 2])
    assert allowed_bad_files(both) == 5
    assert allowed_bad_files(SeededDataset(both, 0)) == 5
    assert allowed_bad_files([1, 2]) == 0


def test_a_replacement_that_the_log_could_not_tell_of_is_refused(root: Path) -> None:
    data = seeded(root, max_bad_files=1, pipeline=PIPELINE[:2])
    truncate(root / 'images/1.jpg')
    with pytest.raises(UserError, match='must end in PackSegInputs'):
        data[0, 1]


@pytest.mark.parametrize(
    ('options', 'what'),
    [
        (dict(max_bad_files=-1), 'a number of files'),
        (dict(max_bad_files=True), 'a number of files'),
        (dict(max_bad_files=2, test_mode=True), 'goes with training'),
    ],
)
def test_counts_that_mean_nothing_are_refused(root: Path, options: dict, what: str) -> None:
    with pytest.raises(UserError, match=what):
        seeded(root, **options)


def test_a_known_file_is_not_counted_again() -> None:
    files = BadFiles(2)
    assert [files.add(text) for text in ('a', 'b', 'a')] == [True, True, False]
    for _ in range(2):
        with pytest.raises(UserError, match='3 files'):
            files.add('c')
