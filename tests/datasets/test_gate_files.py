"""The gate on files: what is cut off, damaged, of another size, turned; and what one look at a pair gives."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seg.datasets.gate.ends import is_whole
from seg.datasets.gate.looks import Job, look_at_head, look_at_mask, look_at_photo
from seg.datasets.gate.sources import Reading
from seg.datasets.gate.tally import Tally
from seg.datasets.label_rule import LabelRule
from seg.datasets.opening import open_image
from seg.datasets.pairs import Pair
from seg.errors import UserError
from tests.datasets.gate_made import dataset, look, sources, texts
from tests.datasets.made import disc, exif, make_pairs, photo, tiff_bytes, write_image, write_palette_mask

WRITERS: dict[str, Callable[[Path], object]] = {
    'a.jpg': lambda path: write_image(path, photo()),
    'a.png': lambda path: write_image(path, photo()),
    'a.gif': lambda path: write_palette_mask(path, disc()),
    'a.bmp': lambda path: write_image(path, photo()),
    'a.webp': lambda path: write_image(path, photo()),
    'a.tif': lambda path: write_image(path, photo()),  # Pillow writes the pixels last
    'tiled.tif': lambda path: path.write_bytes(tiff_bytes(photo(), tile=16)),
}


@pytest.mark.parametrize('name', WRITERS)
def test_a_whole_file_is_seen_to_be_whole(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    assert is_whole(open_image(tmp_path / name))
    with (tmp_path / name).open('ab') as file:
        file.write(bytes(100))
    assert is_whole(open_image(tmp_path / name))


@pytest.mark.parametrize('missing', [1, 2, 13, 60])
@pytest.mark.parametrize('name', [name for name in WRITERS if name != 'tiled.tif'])  # its directory stands last
def test_a_file_that_is_cut_off_is_not(tmp_path: Path, name: str, missing: int) -> None:
    WRITERS[name](tmp_path / name)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-missing])
    try:
        opened = open_image(tmp_path / name)
    except UserError:  # as good
        return
    assert not is_whole(opened)


def job(root: Path, name: str = 'a', rule: LabelRule = LabelRule(2), **reading: object) -> Job:  # noqa: B008, frozen
    return Job(str(root / f'images/{name}.jpg'), str(root / f'masks/{name}.png'), Reading(**reading), rule)  # type: ignore[arg-type]


def test_a_head_gives_sizes_and_hashes(tmp_path: Path) -> None:
    make_pairs(tmp_path, ['a', 'b'])
    write_image(tmp_path / 'images/c.jpg', photo(12, 16, seed=0))
    write_image(tmp_path / 'masks/c.png', disc())
    first, other, same = (look_at_head(job(tmp_path, name)) for name in 'abc')
    assert first['size'] == (12, 16)
    assert set(first) == {'size', 'image', 'mask'}
    assert first == same
    assert first['image'] != other['image']
    assert first['mask'] == other['mask']


def test_what_a_head_finds_wrong(tmp_path: Path) -> None:
    make_pairs(tmp_path, ['a'])
    whole = (tmp_path / 'images/a.jpg').read_bytes()
    (tmp_path / 'images/a.jpg').write_bytes(whole[: len(whole) * 2 // 3])
    write_image(tmp_path / 'masks/a.png', disc(16, 12))
    found = look_at_head(job(tmp_path))
    assert [kind for kind, _ in found['errors']] == ['image']
    assert 'truncated' in found['errors'][0][1]
    (tmp_path / 'images/a.jpg').write_bytes(whole)
    ((kind, message),) = look_at_head(job(tmp_path))['errors']
    assert kind == 'size'
    assert 'a.png: the mask is 12x16' in message


def test_a_turned_photo_is_compared_as_it_is_read(tmp_path: Path) -> None:
    make_pairs(tmp_path, ['a'])
    write_image(tmp_path / 'images/a.jpg', photo(), exif=exif(6))
    ((kind, message),) = look_at_head(job(tmp_path))['errors']
    assert (kind, 'apply_exif=False' in message) == ('size', True)
    assert look_at_head(job(tmp_path, apply_exif=False))['size'] == (12, 16)
    write_image(tmp_path / 'images/a.jpg', photo(), exif=exif(3))
    ((kind, message),) = look_at_head(job(tmp_path))['said']
    assert (kind, 'look at them' in message) == ('turned', True)


def test_a_mask_of_several_pictures_is_found_without_decoding_it(tmp_path: Path) -> None:
    make_pairs(tmp_path, ['a'])
    frames = [Image.fromarray(disc() * value) for value in (1, 2)]
    frames[0].save(tmp_path / 'masks/a.gif', save_all=True, append_images=frames[1:])
    moving = Job(str(tmp_path / 'images/a.jpg'), str(tmp_path / 'masks/a.gif'), Reading(), LabelRule(2))
    ((kind, message),) = look_at_head(moving)['errors']
    assert (kind, 'several pictures' in message) == ('mask', True)


def test_labels_are_counted_by_class(tmp_path: Path) -> None:
    make_pairs(tmp_path, ['a'])
    ones = int(disc().sum())
    assert look_at_mask(job(tmp_path)) == {'labels': [[0, 12 * 16 - ones], [1, ones]]}
    write_image(tmp_path / 'masks/a.png', disc() * 255)
    rule = LabelRule(2, label_map={0: 255, 255: 1})
    assert look_at_mask(job(tmp_path, rule=rule)) == {'labels': [[1, ones], [255, 12 * 16 - ones]]}


def test_refused_masks_are_told_apart(tmp_path: Path) -> None:
    make_pairs(tmp_path, ['a'])
    ones = int(disc().sum())
    write_image(tmp_path / 'masks/a.png', disc() * 7)
    found = look_at_mask(job(tmp_path))
    assert found['values'] == [[0, 12 * 16 - ones], [7, ones]]
    assert found['errors'] == [['values', f'{tmp_path}/masks/a.png: 0 ({192 - ones} px), 7 ({ones} px)']]
    write_image(tmp_path / 'masks/a.png', np.arange(192, dtype=np.uint8).reshape(12, 16))
    assert look_at_mask(job(tmp_path))['errors'] == [['lossy', f'{tmp_path}/masks/a.png: 192 values']]
    write_image(tmp_path / 'masks/a.png', photo())
    assert look_at_mask(job(tmp_path))['errors'][0][0] == 'colours'
    (tmp_path / 'masks/a.png').write_bytes(b'')
    assert look_at_mask(job(tmp_path))['errors'][0][0] == 'mask'


def test_a_photo_is_decoded_as_training_reads_it(tmp_path: Path) -> None:
    make_pairs(tmp_path, ['a'])
    assert len(look_at_photo(job(tmp_path))['thumb']) == 96  # 72 bytes in base64
    ((kind, message),) = look_at_photo(job(tmp_path, channels=4))['errors']
    assert (kind, 'has 3 channels, 4 are wanted' in message) == ('image', True)


def test_all_faults_of_a_data_set_are_told_at_once(tmp_path: Path) -> None:
    root = make_pairs(tmp_path / 'data', [f'{n:02}' for n in range(12)])
    for name in ('01', '02', '03', '04', '05', '06', '07'):
        (root / f'images/{name}.jpg').write_bytes(b'')
    write_image(root / 'masks/08.png', disc(16, 12))
    write_image(root / 'masks/09.png', disc() * 9)
    (root / 'masks/10.png').write_bytes((root / 'masks/11.png').read_bytes()[:-20])
    summary = look(tmp_path / 'cache', train=dataset(root))
    told = texts(summary.findings)
    assert 'train_dataloader.dataset: images that cannot be used: 7 of 12' in told
    assert '01.jpg: the file is empty' in told
    assert '05.jpg: the file is empty' in told
    assert '06.jpg' not in told
    assert '... and 2 more' in told
    assert 'masks of another size than their image: 1 of 12' in told
    assert 'masks that cannot be used: 1 of 12' in told
    assert 'masks with values that have no class: 1 of 11' in told
    assert len([finding for finding in summary.findings if finding.level == 'error']) == 4


def test_files_that_may_be_replaced_are_a_warning(tmp_path: Path) -> None:
    root = make_pairs(tmp_path / 'data', ['a', 'b', 'c'])
    (root / 'images/a.jpg').write_bytes(b'')
    (root / 'masks/b.png').write_bytes(b'')
    for allowed, errors in ((1, 2), (2, 0)):
        findings = look(tmp_path / 'cache', train=dataset(root, max_bad_files=allowed)).findings
        assert [finding.level for finding in findings].count('error') == errors
    assert 'max_bad_files=2 allows them' in texts(findings, 'warning')


def test_sizes_are_counted_and_the_smallest_is_kept() -> None:
    tally = Tally()
    for number, size in enumerate([(10, 10)] * 3 + [(20, 9)] * 2 + [(30, 30)] * 2 + [(2, 40)]):
        tally.add_head(Pair(f'{number}', f'{number}.jpg', None), {'size': size})
    assert tally.size_list(3) == [[10, 10, 3], [20, 9, 2], [2, 40, 1]]
    assert tally.size_list(9) == [[10, 10, 3], [20, 9, 2], [30, 30, 2], [2, 40, 1]]
    assert (tally.low.tolist(), tally.high.tolist()) == ([2, 9], [30, 40])
    assert Tally().size_list(3) == []


def test_data_sets_in_data_sets_are_looked_at_one_by_one(tmp_path: Path) -> None:
    one, two = make_pairs(tmp_path / 'one', ['a', 'b']), make_pairs(tmp_path / 'two', ['c'])
    write_image(two / 'masks/c.png', disc() * 5)
    joined = {'type': 'ConcatDataset', 'datasets': [dataset(one), dataset(two)], 'repeats': [1, 3]}
    assert sources(train=joined).samples == {'train': 2 + 3}
    summary = look(tmp_path / 'cache', train=joined)
    assert [(part.key, part.pairs) for part in summary.sets] == [
        ('train_dataloader.dataset.datasets.0', 2),
        ('train_dataloader.dataset.datasets.1', 1),
    ]
    assert 'train_dataloader.dataset.datasets.1: masks with values that have no class: 1 of 1' in texts(
        summary.findings
    )


def test_images_without_masks_are_looked_at_too(tmp_path: Path) -> None:
    root = make_pairs(tmp_path / 'data', ['a', 'b'], masks=False)
    bare = dataset(root, data_prefix={'img_path': 'images'}, test_mode=True)
    (root / 'images/b.jpg').write_bytes(b'')
    summary = look(tmp_path / 'cache', test=bare)
    assert 'test_dataloader.dataset: images that cannot be used: 1 of 2' in texts(summary.findings)
    assert (summary.sets[0].has_masks, summary.sets[0].masks, summary.sets[0].photos) == (False, 0, 1)


def test_one_data_set_of_two_loaders_is_looked_at_once(tmp_path: Path) -> None:
    root = make_pairs(tmp_path / 'data', ['a'])
    assert [one.part for one in sources(val=dataset(root), test=dataset(root)).sources] == ['val']
