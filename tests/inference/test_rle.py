"""Carvana's run lengths, by hand on small masks and there and back on random ones."""

import numpy as np
import pytest

from seg.errors import UserError
from seg.inference.rle import RleWriter, decode, encode


@pytest.mark.parametrize(
    ('mask', 'rle'),
    [
        # pixels are numbered   1 2 3
        #                       4 5 6
        ([[0, 1, 1], [1, 0, 0]], '2 3'),  # 2, 3 and, across the row's end, 4
        ([[0, 1, 1], [0, 0, 0]], '2 2'),
        ([[0, 0, 0], [0, 0, 0]], ''),
        ([[1, 1, 1], [1, 1, 1]], '1 6'),
        ([[1, 0, 1], [0, 1, 1]], '1 1 3 1 5 2'),
        ([[1, 0, 0], [0, 0, 1]], '1 1 6 1'),
        ([[0], [1], [1], [0]], '2 2'),  # one column: row by row is down the column
        ([[1]], '1 1'),
        ([[0]], ''),
    ],
)
def test_by_hand(mask: list, rle: str) -> None:
    array = np.array(mask, dtype=np.uint8)
    assert encode(array) == rle
    assert decode(rle, array.shape).tolist() == mask


def test_any_value_but_zero_is_foreground_in_any_memory_order() -> None:
    mask = np.array([[0, 255, 1], [2, 0, 0]], dtype=np.uint8)
    assert encode(mask) == '2 3'
    assert encode(np.asfortranarray(mask)) == '2 3'
    assert encode(mask.astype(bool)) == '2 3'


def test_no_pixels_at_all() -> None:
    assert encode(np.zeros((0, 5), dtype=np.uint8)) == ''


def test_there_and_back_on_random_masks() -> None:
    generator = np.random.default_rng(0)
    for _ in range(300):
        size = tuple(generator.integers(1, 12, size=2))
        mask = (generator.random(size) < generator.random()).astype(np.uint8)
        rle = encode(mask)
        assert np.array_equal(decode(rle, size), mask)
        numbers = [int(word) for word in rle.split()]
        assert sum(numbers[1::2]) == mask.sum()
        # runs are as long as they can be: at least one pixel lies between the end of one and the start of the next
        starts, ends = numbers[::2], [start + length for start, length in zip(numbers[::2], numbers[1::2])]
        assert all(start > end for start, end in zip(starts[1:], ends))


@pytest.mark.parametrize(
    'rle',
    ['1', '1 2 3', 'a b', '1.5 2', '0 1', '-1 1', '1 0', '1 -1', '6 2', '7 1', '3 2 4 1', '4 1 1 1'],
)
def test_what_cannot_be_a_mask_of_2x3_is_refused(rle: str) -> None:
    with pytest.raises(UserError):
        decode(rle, (2, 3))


def test_csv(tmp_path) -> None:
    path = tmp_path / 'new folder' / 'submission.csv'
    with RleWriter(path) as writer:
        writer.add('car_01.jpg', np.array([[0, 1], [1, 0]]))
        assert not path.exists()  # nothing half written under its name
        writer.add('with, comma.jpg', np.zeros((2, 2)))
        writer.add('авто.jpg', np.ones((2, 2)))
    expected = 'img,rle_mask\ncar_01.jpg,2 2\n"with, comma.jpg",\nавто.jpg,1 4\n'
    assert path.read_bytes() == expected.encode('utf8')
    assert [file.name for file in path.parent.iterdir()] == ['submission.csv']


def test_a_failure_leaves_the_csv_that_was_there(tmp_path) -> None:
    path = tmp_path / 'submission.csv'
    path.write_text('the last one')
    with pytest.raises(ZeroDivisionError), RleWriter(path) as writer:
        writer.add('a.jpg', np.ones((1, 1)))
        raise ZeroDivisionError
    assert path.read_text() == 'the last one'
    assert [file.name for file in tmp_path.iterdir()] == ['submission.csv']
