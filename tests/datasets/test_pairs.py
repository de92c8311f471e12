"""Which image goes with which mask."""

import unicodedata
from pathlib import Path

import pytest

from seg.datasets.pairs import Pair, find_pairs, search_once
from seg.errors import UserError


def touch(root: Path, *names: str) -> Path:
    """Empty files: pairing looks at names alone."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def carvana(root: Path, *stems: str) -> tuple[Path, Path]:
    for stem in stems:
        touch(root, f'img/{stem}.jpg', f'mask/{stem}_mask.gif')
    return root / 'img', root / 'mask'


def names(pairs: list[Pair]) -> list[str]:
    return [pair.name for pair in pairs]


def test_1_never_goes_with_10(tmp_path: Path) -> None:
    img, mask = carvana(tmp_path, *map(str, range(1, 13)))
    pairs = find_pairs(img, mask, '.jpg', '_mask.gif')
    assert len(pairs) == 12
    for name, img_path, mask_path in pairs:
        assert img_path == str(img / f'{name}.jpg')
        assert mask_path == str(mask / f'{name}_mask.gif')


@pytest.mark.parametrize(
    'stem', ['a.1.2_high', 'авто фото.v1.2 (копия)', 'a [1]', 'two words', 'x_mask', 'x.jpg', '.5'.lstrip('.')]
)
def test_any_stem(tmp_path: Path, stem: str) -> None:
    img, mask = carvana(tmp_path, stem)
    assert find_pairs(img, mask, '.jpg', '_mask.gif') == [
        (stem, str(img / f'{stem}.jpg'), str(mask / f'{stem}_mask.gif'))
    ]


def test_strays_are_skipped(tmp_path: Path) -> None:
    img, mask = carvana(tmp_path, 'a', 'b')
    touch(img, '.DS_Store', '._a.jpg', 'notes.txt', '.hidden/c.jpg', 'no_suffix')
    touch(mask, 'Thumbs.db', '.a_mask.gif')
    (img / 'empty').mkdir()
    (img / 'folder.jpg').mkdir()
    assert names(find_pairs(img, mask, '.jpg', '_mask.gif')) == ['a', 'b']


def test_folders_below_pair_by_their_path(tmp_path: Path) -> None:
    touch(tmp_path, 'img/one/1.png', 'img/two/1.png', 'mask/one/1_gt.png', 'mask/two/1_gt.png')
    pairs = find_pairs(tmp_path / 'img', tmp_path / 'mask', '.png', '_gt.png')
    assert names(pairs) == ['one/1', 'two/1']
    assert pairs[1].seg_map_path == str(tmp_path / 'mask/two/1_gt.png')


def test_linked_folders_are_entered_and_loops_end(tmp_path: Path) -> None:
    img, mask = carvana(tmp_path / 'real', 'a')
    (tmp_path / 'img').mkdir()
    (tmp_path / 'mask').mkdir()
    (tmp_path / 'img' / 'linked').symlink_to(img)
    (tmp_path / 'mask' / 'linked').symlink_to(mask)
    (img / 'loop').symlink_to(tmp_path / 'img')
    assert names(find_pairs(tmp_path / 'img', tmp_path / 'mask', '.jpg', '_mask.gif')) == ['linked/a']


def test_images_and_masks_in_one_folder(tmp_path: Path) -> None:
    touch(tmp_path, '1.png', '1_mask.png', '2.png', '2_mask.png')
    assert names(find_pairs(tmp_path, tmp_path, '.png', '_mask.png')) == ['1', '2']


def test_masks_in_a_folder_below_the_images(tmp_path: Path) -> None:
    touch(tmp_path, '1.png', '2.png', 'masks/1.png', 'masks/2.png')
    assert names(find_pairs(tmp_path, tmp_path / 'masks', '.png', '.png')) == ['1', '2']


def test_several_suffixes_in_any_case(tmp_path: Path) -> None:
    touch(tmp_path, 'img/a.JPG', 'img/b.jpeg', 'img/c.Png', 'mask/a.png', 'mask/b.PNG', 'mask/c.png')
    assert names(find_pairs(tmp_path / 'img', tmp_path / 'mask')) == ['a', 'b', 'c']


def test_a_suffix_is_any_end_of_a_name(tmp_path: Path) -> None:
    touch(tmp_path, 'images/21_training.tif', '1st_manual/21_manual1.gif')
    assert names(find_pairs(tmp_path / 'images', tmp_path / '1st_manual', '_training.tif', '_manual1.gif')) == ['21']


def test_letters_with_marks_pair_however_they_are_written(tmp_path: Path) -> None:
    composed, in_pieces = (unicodedata.normalize(form, 'плёнка й é') for form in ('NFC', 'NFD'))
    assert composed != in_pieces
    touch(tmp_path, f'img/{in_pieces}.jpg', f'mask/{composed}.png')
    assert names(find_pairs(tmp_path / 'img', tmp_path / 'mask')) == [composed]


def test_a_missing_mask_stops_with_folder_suffix_counts_and_names(tmp_path: Path) -> None:
    img, mask = carvana(tmp_path, *(f'car_{number}' for number in range(10)))
    (mask / 'car_3_mask.gif').unlink()
    with pytest.raises(UserError) as info:
        find_pairs(img, mask, '.jpg', '_mask.gif')
    said = str(info.value)
    assert '1 images have no mask (10 images of' in said
    assert '9 masks of' in said
    assert "'_mask.gif'" in said
    assert "'car_3'" in said
    assert str(mask) in said


def test_many_missing_masks_are_not_all_listed(tmp_path: Path) -> None:
    touch(tmp_path, *(f'img/{number:02d}.jpg' for number in range(20)), 'mask/00.png')
    with pytest.raises(UserError, match=r"19 images have no mask .*'01', '02', '03', '04', '05' and 14 more\."):
        find_pairs(tmp_path / 'img', tmp_path / 'mask')


def test_a_wrong_suffix_is_answered_with_the_right_one(tmp_path: Path) -> None:
    img, mask = carvana(tmp_path, *map(str, range(1, 13)))
    with pytest.raises(UserError, match=r"0 images, none ends in '\.png'; the folder holds 12 \.jpg files"):
        find_pairs(img, mask, '.png', '_mask.gif')
    with pytest.raises(UserError, match=r"go on with '_mask\.gif': is that the seg_map_suffix"):
        find_pairs(img, mask, '.jpg', '.gif')


def test_empty_and_missing_folders(tmp_path: Path) -> None:
    (tmp_path / 'img').mkdir()
    with pytest.raises(UserError, match=r'0 images.*holds no files'):
        find_pairs(tmp_path / 'img', None)
    with pytest.raises(UserError, match=r'nowhere: no such folder'):
        find_pairs(tmp_path / 'nowhere', None)
    touch(tmp_path, 'img/a.jpg')
    with pytest.raises(UserError, match=r'nowhere: no such folder'):
        find_pairs(tmp_path / 'img', tmp_path / 'nowhere')


def test_a_mask_without_an_image_stops(tmp_path: Path) -> None:
    img, mask = carvana(tmp_path, 'a', 'b')
    touch(mask, 'c_mask.gif')
    with pytest.raises(UserError, match=r"1 masks have no image .*'c'"):
        find_pairs(img, mask, '.jpg', '_mask.gif')


def test_two_files_for_one_name_stop(tmp_path: Path) -> None:
    touch(tmp_path, 'img/a.jpg', 'img/a.png', 'mask/a.png')
    with pytest.raises(UserError, match=r"image 'a' is ambiguous: .*a\.jpg and .*a\.png"):
        find_pairs(tmp_path / 'img', tmp_path / 'mask')
    touch(tmp_path, 'mask/a.gif')
    with pytest.raises(UserError, match=r"mask 'a' is ambiguous"):
        find_pairs(tmp_path / 'img', tmp_path / 'mask', '.jpg', ('.png', '.gif'))


def test_an_image_is_not_its_own_mask(tmp_path: Path) -> None:
    touch(tmp_path, 'a.png')
    with pytest.raises(UserError, match='1 images would be their own masks'):
        find_pairs(tmp_path, tmp_path, '.png', '.png')
    with pytest.raises(UserError, match='empty img_suffix'):
        find_pairs(tmp_path, tmp_path, '', '.png')


def test_a_file_lists_names_with_or_without_suffix(tmp_path: Path) -> None:
    img, mask = carvana(tmp_path, 'a.1', 'b', 'c d', 'e')
    (mask / 'e_mask.gif').unlink()  # not listed, so not missed
    split = tmp_path / 'val.txt'
    split.write_bytes('\ufeffc d\r\n\r\na.1.jpg\r\n'.encode())
    assert names(find_pairs(img, mask, '.jpg', '_mask.gif', split)) == ['a.1', 'c d']
    assert names(find_pairs(img, None, '.jpg', ann_file=split)) == ['a.1', 'c d']


@pytest.mark.parametrize(
    ('content', 'what'),
    [
        ('a\nzz\nb', r"1 of 3 listed names are not among the 2 images: 'zz'\. The images are called 'a', 'b'"),
        ('a\nb\na.jpg', r"1 names are listed twice: 'a'"),
        ('../a', 'leads out of the image folder'),
        ('x/../../a', 'leads out of the image folder'),
        ('/etc/passwd', 'leads out of the image folder'),
        ('\n\n', 'lists no names'),
    ],
)
def test_a_list_that_does_not_fit_stops(tmp_path: Path, content: str, what: str) -> None:
    img, mask = carvana(tmp_path, 'a', 'b')
    (tmp_path / 'list.txt').write_text(content)
    with pytest.raises(UserError, match=rf'list\.txt: .*{what}'):
        find_pairs(img, mask, '.jpg', '_mask.gif', tmp_path / 'list.txt')


def test_a_list_that_is_no_text_or_not_there(tmp_path: Path) -> None:
    img, mask = carvana(tmp_path, 'a')
    (tmp_path / 'list.txt').write_bytes(b'\xff\xfe\x00')
    for name in ('list.txt', 'none.txt'):
        with pytest.raises(UserError, match=rf'{name}: the split file \(ann_file\) cannot be read'):
            find_pairs(img, mask, '.jpg', '_mask.gif', tmp_path / name)


def test_one_search_may_serve_training_and_validation(tmp_path: Path) -> None:
    touch(tmp_path, 'images/a.jpg', 'masks/a.png')
    folders = (tmp_path / 'images', tmp_path / 'masks')
    with search_once():
        first = find_pairs(*folders)
        touch(tmp_path, 'images/b.jpg', 'masks/b.png')
        assert find_pairs(*folders) is first
        assert [pair.name for pair in find_pairs(*folders, img_suffix='.jpg')] == ['a', 'b']
    assert [pair.name for pair in find_pairs(*folders)] == ['a', 'b']
