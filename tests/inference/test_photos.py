"""Which files are photographs, and where their predictions go."""

from pathlib import Path

import pytest

from seg.errors import UserError
from seg.inference.photos import PhotoFile, check_outputs, find_photos


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def stems(photos: list[PhotoFile]) -> list[str]:
    return [str(photo.stem) for photo in photos]


def test_a_folder_is_walked_and_strays_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, 'b.JPG', 'a.1.2_high.jpg', 'sub/авто фото (копия).tif', 'sub/deep/c.webp', 'sub2/d.gif')
    touch(tmp_path, '.DS_Store', '.hidden.jpg', '.cache/e.jpg', 'notes.txt', 'Thumbs.db', 'jpg')
    (tmp_path / 'empty').mkdir()
    photos = find_photos([tmp_path], tmp_path / 'out')
    assert stems(photos) == ['a.1.2_high', 'b', 'sub/авто фото (копия)', 'sub/deep/c', 'sub2/d']
    assert photos[0].output(Path('out'), '.png') == Path('out/a.1.2_high.png')
    assert photos[2].output(Path('out'), '_overlay.png') == Path('out/sub/авто фото (копия)_overlay.png')


def test_a_file_is_taken_by_its_word_and_by_its_name_alone(tmp_path: Path) -> None:
    touch(tmp_path, 'deep/inside/photo.raw', 'x.jpg')
    photos = find_photos([tmp_path / 'deep/inside/photo.raw', tmp_path / 'x.jpg'], tmp_path / 'out')
    assert stems(photos) == ['photo', 'x']


def test_earlier_predictions_are_not_photographs(tmp_path: Path) -> None:
    touch(tmp_path, 'a.jpg', 'out/a.png', 'out/sub/b.png')
    assert stems(find_photos([tmp_path], tmp_path / 'out')) == ['a']


def test_a_photograph_named_twice_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, 'a.jpg', 'sub/b.jpg')
    monkeypatch.chdir(tmp_path)
    inputs = ['.', 'a.jpg', tmp_path / 'a.jpg', 'sub/../a.jpg', 'sub']
    assert stems(find_photos(inputs, Path('out'))) == ['a', 'sub/b']


def test_a_link_that_leads_back_is_followed_once(tmp_path: Path) -> None:
    touch(tmp_path, 'photos/a.jpg', 'elsewhere/b.jpg')
    (tmp_path / 'photos/loop').symlink_to(tmp_path / 'photos')
    (tmp_path / 'photos/more').symlink_to(tmp_path / 'elsewhere')
    assert stems(find_photos([tmp_path / 'photos'], tmp_path / 'out')) == ['a', 'more/b']


def test_nothing_to_predict(tmp_path: Path) -> None:
    touch(tmp_path, 'folder/notes.txt')
    with pytest.raises(UserError, match=r'no images in .*folder.*\.jpeg, \.jpg'):
        find_photos([tmp_path / 'folder'], tmp_path / 'out')
    with pytest.raises(UserError, match=r'nowhere: no such file or folder'):
        find_photos([tmp_path / 'nowhere'], tmp_path / 'out')


def test_two_photographs_of_one_name_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, 'one/a.jpg', 'two/a.jpg', 'same/b.jpg', 'same/b.png')
    out = tmp_path / 'out'
    for inputs in (['one', 'two'], ['same']):
        photos = find_photos([tmp_path / name for name in inputs], out)
        with pytest.raises(UserError, match=r'[ab]\.jpg and .*[ab]\.(jpg|png) would both be written to .*[ab]\.png'):
            check_outputs(photos, out, ['.png'])
    # the folder above both keeps them apart
    check_outputs(find_photos([tmp_path / 'one', tmp_path / 'two/..' / 'one'], out), out, ['.png'])
    check_outputs([photo for photo in find_photos([tmp_path], out) if 'same' not in str(photo.stem)], out, ['.png'])


def test_one_photographs_overlay_is_not_anothers_label_map(tmp_path: Path) -> None:
    touch(tmp_path, 'car.jpg', 'car_overlay.jpg')
    photos = find_photos([tmp_path], tmp_path / 'out')
    check_outputs(photos, tmp_path / 'out', ['.png'])
    with pytest.raises(UserError, match=r'would both be written to .*car_overlay\.png'):
        check_outputs(photos, tmp_path / 'out', ['.png', '_overlay.png'])


def test_a_photograph_is_never_overwritten(tmp_path: Path) -> None:
    touch(tmp_path, 'photos/a.png')
    photos = find_photos([tmp_path / 'photos/a.png'], tmp_path / 'photos')
    with pytest.raises(UserError, match='would overwrite the photograph'):
        check_outputs(photos, tmp_path / 'photos', ['.png'])
    check_outputs(photos, tmp_path / 'photos', ['_overlay.png'])
