"""Resize, crop, pad, flip, rotation and affine, on numbers small enough to work out by hand."""

import numpy as np
import pytest

from seg.datasets.transforms.affine import RandomAffine, RandomRotate
from seg.datasets.transforms.crop import RandomCrop, largest_share
from seg.datasets.transforms.flip import RandomFlip
from seg.datasets.transforms.pad import Pad
from seg.datasets.transforms.resize import RandomChoiceResize, RandomResize, Resize, fit_within
from seg.errors import UserError


def pair(height, width, channels=3):
    """An image whose first channel is its mask, so that a transform that treats them alike keeps them equal."""
    labels = (np.arange(height * width) % 200).astype(np.uint8).reshape(height, width)
    return {'img': np.repeat(labels[..., None], channels, axis=2), 'gt_seg_map': labels}


def resized(transform, height=20, width=30):
    return transform(pair(height, width))['img'].shape[1::-1]


# Resize


def test_resize_to_a_size_given_as_width_and_height():
    results = Resize((12, 10))(pair(20, 30))
    assert results['img'].shape == (10, 12, 3)
    assert results['gt_seg_map'].shape == results['img_shape'] == (10, 12)
    assert results['scale_factor'] == (12 / 30, 10 / 20)


def test_resize_keeps_the_ratio_within_the_sizes_given():
    # 30 x 20 in 12 x 10: the longer side allows 12/30 = 0.4, the shorter 10/20 = 0.5: 12 x 8.
    assert resized(Resize((12, 10), keep_ratio=True)) == (12, 8)
    # A portrait of 20 x 30 has its longer side within 12 too.
    assert resized(Resize((12, 10), keep_ratio=True), 30, 20) == (8, 12)
    assert fit_within((1000, 2), (100, 50)) == (100, 1)  # never nothing


def test_resize_by_a_factor_rounds():
    # 30 * 0.35 = 10.5 -> 11, 20 * 0.35 = 7; 30 * 0.5 = 15, 20 * 2 = 40.
    assert resized(Resize(scale_factor=0.35)) == (11, 7)
    assert resized(Resize(scale_factor=(0.5, 2.0))) == (15, 40)


def test_resize_before_the_annotations_leaves_them_their_size():
    results = Resize(8)({'img': pair(20, 30)['img']})
    assert results['img'].shape == (8, 8, 3)
    assert 'gt_seg_map' not in results


def test_resize_brings_an_image_decoded_at_half_scale_to_its_masks():
    results = Resize((6, 4))({'img': pair(10, 15)['img'], 'gt_seg_map': pair(20, 30)['gt_seg_map']})
    assert results['img'].shape[:2] == results['gt_seg_map'].shape == (4, 6)


def test_random_resize_draws_a_ratio_within_its_range():
    np.random.seed(0)
    transform = RandomResize((20, 10), ratio_range=(0.5, 2.0))
    sizes = {resized(transform) for _ in range(300)}
    assert all(10 <= width <= 40 and abs(height - width / 2) <= 1 for width, height in sizes)
    assert min(sizes)[0] <= 11
    assert max(sizes)[0] >= 39


def test_random_resize_draws_each_side_between_two_sizes():
    np.random.seed(0)
    sizes = {resized(RandomResize([(8, 5), (10, 4)])) for _ in range(100)}
    assert sizes == {(width, height) for width in (8, 9, 10) for height in (4, 5)}


def test_random_resize_keeps_the_ratio():
    # Whatever is drawn from (30, 20) * 0.5..1, a 30 x 20 image fills it: w = 1.5 h.
    np.random.seed(0)
    transform = RandomResize((30, 20), ratio_range=(0.5, 1.0), keep_ratio=True)
    assert all(abs(width - 1.5 * height) <= 1 for width, height in (resized(transform) for _ in range(30)))


def test_random_choice_resize_takes_each_of_its_sizes():
    np.random.seed(0)
    assert {resized(RandomChoiceResize([(8, 5), (4, 6)])) for _ in range(30)} == {(8, 5), (4, 6)}


# RandomCrop


def test_crop_takes_the_same_window_of_image_and_mask():
    np.random.seed(0)
    for _ in range(20):
        results = RandomCrop((4, 7))(pair(10, 12))
        assert results['img'].shape == (4, 7, 3)
        assert results['img_shape'] == (4, 7)
        assert (results['img'][..., 0] == results['gt_seg_map']).all()


def test_crop_reaches_every_place():
    np.random.seed(0)
    corners = {int(RandomCrop(9)(pair(10, 11))['gt_seg_map'][0, 0]) for _ in range(100)}
    assert corners == {0, 1, 2, 11, 12, 13}  # rows 0..1 of 11 columns, columns 0..2


def test_a_crop_larger_than_the_image_is_clipped_to_it():
    results = RandomCrop((4, 100))(pair(10, 12))
    assert results['img'].shape == (4, 12, 3)


def test_largest_share_leaves_ignored_pixels_out():
    # Of 5 labelled pixels, 3 are class 1. An image without a labelled pixel counts as one class.
    assert largest_share(np.uint8([[1, 1, 1, 0], [2, 255, 255, 255]])) == pytest.approx(3 / 5)
    assert largest_share(np.full((2, 2), 255, np.uint8)) == 1.0


def crop_shares(mask, draws, monkeypatch, cap=0.75):
    """The window that a crop takes when its draws are one column each, and how many it drew."""
    crop = RandomCrop((mask.shape[0], 1), cat_max_ratio=cap)
    columns = iter(draws)
    monkeypatch.setattr(crop, '_draw', lambda shape: (slice(None), slice(at := next(columns), at + 1)))
    taken = crop({'img': np.zeros((*mask.shape, 3), np.uint8), 'gt_seg_map': mask})['gt_seg_map'][:, 0].tolist()
    return taken, len(list(columns))


# Columns with shares of the largest class 1, 1 (255 is left out), 3/4, 2/4.
MASK = np.uint8([[0, 255, 0, 0], [0, 255, 0, 0], [0, 255, 0, 1], [0, 1, 1, 1]])


def test_crop_draws_until_no_class_has_more_than_its_cap(monkeypatch):
    assert crop_shares(MASK, [0, 1, 2, 3, 3], monkeypatch) == ([0, 0, 0, 1], 2)


def test_crop_takes_the_best_of_ten(monkeypatch):
    # None is within 0.4; the best, column 3 with 1/2, came seventh. The eleventh is not drawn.
    draws = [0, 1, 0, 2, 0, 1, 3, 2, 0, 1, 0]
    assert crop_shares(MASK, draws, monkeypatch, cap=0.4) == ([0, 0, 1, 1], 1)


def test_crop_without_a_cap_or_without_a_mask_draws_once(monkeypatch):
    assert crop_shares(MASK, [0, 3], monkeypatch, cap=1.0) == ([0, 0, 0, 0], 1)
    assert RandomCrop(2, cat_max_ratio=0.5)({'img': np.zeros((4, 4, 3), np.uint8)})['img'].shape == (2, 2, 3)


# Pad


def test_pad_fills_right_and_below_and_ignores_it_in_the_mask():
    results = Pad(size=(3, 2), pad_val=7)({'img': np.uint8([[[1], [2]]]), 'gt_seg_map': np.uint8([[0, 1]])})
    assert results['img'][..., 0].tolist() == [[1, 2, 7], [7, 7, 7]]
    assert results['gt_seg_map'].tolist() == [[0, 1, 255], [255, 255, 255]]
    assert results['img_shape'] == results['pad_shape'] == (2, 3)


@pytest.mark.parametrize(
    ('options', 'shape'),
    [
        ({'size': (32, 16)}, (20, 32)),  # 20 is more than 16 already
        ({'size_divisor': 16}, (32, 32)),
        ({'size_divisor': 10}, (20, 30)),
        ({'pad_to_square': True}, (30, 30)),
        ({'pad_to_square': True, 'size_divisor': 16}, (32, 32)),
        ({'size': (33, 8), 'size_divisor': 16}, (32, 48)),
    ],
)
def test_pad_sizes(options, shape):
    assert Pad(**options)(pair(20, 30))['img'].shape[:2] == shape


def test_pad_takes_a_value_for_each_channel_and_one_for_masks():
    results = Pad(size=(2, 1), pad_val={'img': [5, 6, 7], 'seg': 0})(
        {
            'img': np.uint8([[[1, 2, 3]]]),
            'gt_seg_map': np.uint8([[4]]),
        }
    )
    assert results['img'].tolist() == [[[1, 2, 3], [5, 6, 7]]]
    assert results['gt_seg_map'].tolist() == [[4, 0]]


# RandomFlip


@pytest.mark.parametrize(
    ('direction', 'flipped'),
    [
        ('horizontal', [[2, 1, 0], [5, 4, 3]]),
        ('vertical', [[3, 4, 5], [0, 1, 2]]),
        ('diagonal', [[5, 4, 3], [2, 1, 0]]),
    ],
)
def test_flips_by_hand(direction, flipped):
    results = RandomFlip(1.0, direction)(pair(2, 3, channels=1))
    assert results['gt_seg_map'].tolist() == results['img'][..., 0].tolist() == flipped
    assert (results['flip'], results['flip_direction']) == (True, direction)


def frequencies(transform, count=2000):
    np.random.seed(0)
    found = [transform(pair(1, 1))['flip_direction'] for _ in range(count)]
    return {direction: found.count(direction) / count for direction in ('horizontal', 'vertical', 'diagonal', None)}


def test_one_probability_is_shared_by_the_directions():
    share = frequencies(RandomFlip(0.6, ['horizontal', 'vertical']))
    # 2000 draws at 0.3: standard deviation 0.0102.
    assert share['horizontal'] == pytest.approx(0.3, abs=0.05)
    assert share['vertical'] == pytest.approx(0.3, abs=0.05)
    assert share['diagonal'] == 0


def test_each_direction_may_have_its_probability():
    share = frequencies(RandomFlip([0.1, 0.6], ['diagonal', 'horizontal']))
    assert share['diagonal'] == pytest.approx(0.1, abs=0.035)
    assert share['horizontal'] == pytest.approx(0.6, abs=0.055)
    assert share[None] == pytest.approx(0.3, abs=0.05)


def test_probability_0_never_flips_and_says_so():
    assert frequencies(RandomFlip(0))[None] == 1
    assert RandomFlip(0)(pair(1, 1))['flip'] is False


@pytest.mark.parametrize(
    ('direction', 'labels'),
    [('horizontal', [[2, 1, 7]]), ('vertical', [[7, 2, 1]]), ('diagonal', [[1, 2, 7]])],
)
def test_a_mirror_swaps_left_and_right_and_a_turn_does_not(direction, labels):
    mask = np.uint8([[7, 1, 2]])
    flip = RandomFlip(1, direction, swap_seg_labels=[(1, 2)])
    # Mirrored: 7 1 2 -> 2 1 7, then 1 <-> 2: 1 2 7. Upside down: 7 1 2 -> 7 2 1. Turned: 2 1 7.
    swapped = {'horizontal': [[1, 2, 7]], 'vertical': [[7, 2, 1]], 'diagonal': [[2, 1, 7]]}[direction]
    assert flip({'img': np.zeros((1, 3, 3), np.uint8), 'gt_seg_map': mask})['gt_seg_map'].tolist() == swapped
    assert mask.tolist() == [[7, 1, 2]]


# RandomRotate, RandomAffine


@pytest.mark.parametrize('shape', [(5, 8), (6, 6)])
def test_a_turn_by_90_degrees_is_clockwise_and_exact(shape):
    results = RandomRotate(1.0, (90, 90), auto_bound=True)(pair(*shape))
    assert (results['gt_seg_map'] == np.rot90(pair(*shape)['gt_seg_map'], -1)).all()
    assert (results['img'] == np.rot90(pair(*shape)['img'], -1)).all()
    assert results['img_shape'] == shape[::-1]


def test_a_turn_in_place_keeps_the_size_and_ignores_the_corners():
    results = RandomRotate(1.0, (45, 45), pad_val=9)(pair(9, 9))
    assert results['img'].shape == (9, 9, 3)
    assert results['gt_seg_map'][0, 0] == 255
    assert results['img'][0, 0].tolist() == [9, 9, 9]
    assert results['gt_seg_map'][4, 4] == pair(9, 9)['gt_seg_map'][4, 4]  # the centre stays


def test_rotation_draws_from_its_range_and_with_its_probability(monkeypatch):
    np.random.seed(0)
    rotate = RandomRotate(0.25, 10)
    drawn = []
    monkeypatch.setattr(
        'seg.datasets.transforms.affine.linear_part', lambda degrees: drawn.append(degrees) or np.eye(2)
    )
    for _ in range(400):
        rotate(pair(2, 2))
    assert 60 <= len(drawn) <= 140  # 100 expected, standard deviation 8.7
    assert -10 <= min(drawn) < -8
    assert 8 < max(drawn) <= 10


def test_affine_shifts_by_whole_pixels_within_its_share():
    np.random.seed(0)
    starts = set()
    for _ in range(200):
        results = RandomAffine(translate=(0.25, 0.5))(pair(4, 8))
        mask = results['gt_seg_map']
        assert (results['img'][..., 0] == mask)[mask != 255].all()  # a part of a pixel would blur the image
        rows, columns = np.nonzero(mask != 255)
        value = int(mask[rows[0], columns[0]])
        starts.add((int(columns[0]) - value % 8, int(rows[0]) - value // 8))
    # A quarter of 8 columns, half of 4 rows, either way.
    assert starts == {(right, down) for right in range(-2, 3) for down in range(-2, 3)}


def test_affine_scales_about_the_centre():
    # 1 x 4 twice as large: targets look at 1.5 + (x - 1.5) / 2 = 0.75, 1.25, 1.75, 2.25.
    results = RandomAffine(scale=(2.0, 2.0))(
        {
            'img': np.uint8([[[0], [80], [160], [240]]]),
            'gt_seg_map': np.uint8([[1, 2, 3, 4]]),
        }
    )
    assert results['gt_seg_map'].tolist() == [[2, 2, 3, 3]]
    assert results['img'][..., 0].tolist() == [[60, 100, 140, 180]]


# What all of them refuse


@pytest.mark.parametrize(
    ('transform', 'options', 'message'),
    [
        (Resize, {}, 'exactly one'),
        (Resize, {'scale': (4, 4), 'scale_factor': 0.5}, 'exactly one'),
        (Resize, {'scale': (4, 0)}, r'Resize\.scale'),
        (Resize, {'scale': (4.5, 4)}, r'Resize\.scale'),
        (Resize, {'scale_factor': 0}, r'Resize\.scale_factor'),
        (Resize, {'scale': 4, 'interpolation': 'smooth'}, "'smooth'; expected one of auto, nearest"),
        (RandomResize, {'scale': (4, 4)}, 'two sizes'),
        (RandomResize, {'scale': [(4, 4), (8, 8)], 'ratio_range': (0.5, 2)}, r'RandomResize\.scale'),
        (RandomResize, {'scale': (4, 4), 'ratio_range': (2, 0.5)}, r'ratio_range'),
        (RandomChoiceResize, {'scales': []}, 'at least one'),
        (RandomCrop, {'crop_size': 0}, r'crop_size'),
        (RandomCrop, {'crop_size': 4, 'cat_max_ratio': 0}, 'cat_max_ratio'),
        (Pad, {}, 'nothing to do'),
        (Pad, {'size': (2, 2), 'pad_val': {'image': 0}}, 'image'),
        (RandomFlip, {'prob': 1.5}, r'RandomFlip\.prob'),
        (RandomFlip, {'prob': [0.7, 0.7], 'direction': ['horizontal', 'vertical']}, 'sum at most 1'),
        (RandomFlip, {'prob': [0.5], 'direction': ['horizontal', 'vertical']}, '2 directions'),
        (RandomFlip, {'prob': 0.5, 'direction': 'sideways'}, 'sideways'),
        (RandomFlip, {'prob': 0.5, 'swap_seg_labels': [(1, 2, 3)]}, 'pairs'),
        (RandomRotate, {'prob': -0.1, 'degree': 3}, r'RandomRotate\.prob'),
        (RandomRotate, {'prob': 0.1, 'degree': (3, -3)}, r'RandomRotate\.degree'),
        (RandomAffine, {'scale': (0, 1)}, 'factors above 0'),
        (RandomAffine, {'shear': 90}, 'below 90'),
        (RandomAffine, {'translate': (0.1,)}, 'two shares'),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(transform, options, message):
    with pytest.raises(UserError, match=message):
        transform(**options)


@pytest.mark.parametrize('transform', [RandomCrop(2), Pad(size=(40, 40)), RandomFlip(1), RandomAffine(5)])
def test_a_mask_of_another_size_than_its_image_is_refused(transform):
    results = {'img': pair(4, 6)['img'], 'gt_seg_map': pair(8, 12)['gt_seg_map'], 'seg_map_path': 'a_mask.gif'}
    with pytest.raises(UserError, match=r'a_mask\.gif is 12x8, but its image is 6x4'):
        transform(results)
