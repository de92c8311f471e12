"""Every resampling is pixel-centred, image and mask alike."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from seg.datasets.transforms.affine import linear_part, to_source_matrix, turned_size
from seg.datasets.transforms.resample import nearest_indices, resize_image, resize_labels, warp_image, warp_labels

MASKS = Path(__file__).parents[3] / 'shared/data/carvana_full/train_masks'


def noise(height, width, channels, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def disc(height, width, x, y, radius):
    """0/1 uint8, the pixels whose centres lie within the radius of pixel position (x, y)."""
    rows, columns = np.mgrid[:height, :width]
    return ((rows - y) ** 2 + (columns - x) ** 2 <= radius**2).astype(np.uint8)


def centroid(weights):
    weights = weights.astype(float)
    rows, columns = np.arange(weights.shape[0]), np.arange(weights.shape[1])
    return np.array([weights.sum(0) @ columns, weights.sum(1) @ rows]) / weights.sum()


def test_nearest_indices_by_hand():
    # Centres of 3 targets in 5 sources: 0.5 * 5/3 = 0.83, 2.5, 4.17; pixel k covers k..k+1.
    assert nearest_indices(5, 3).tolist() == [0, 2, 4]
    # 4 targets in 2 sources: 0.25, 0.75, 1.25, 1.75.
    assert nearest_indices(2, 4).tolist() == [0, 0, 1, 1]
    # 4 in 8: 1, 3, 5, 7 are edges between two pixels: left, right, left, right.
    assert nearest_indices(8, 4).tolist() == [0, 3, 4, 7]


@pytest.mark.parametrize(('source', 'target'), [(1918, 960), (1280, 640), (512, 128), (1280, 128), (97, 131)])
def test_nearest_indices_are_unshifted_and_nearest(source, target):
    exact = (np.arange(target) + 0.5) * source / target - 0.5
    error = nearest_indices(source, target) - exact
    assert abs(error).max() <= 0.5
    assert abs(error.mean()) < 1 / target


def test_labels_are_picked_not_mixed():
    labels = np.array([[0, 10, 10, 0, 0], [10, 0, 0, 10, 0]], np.uint8)
    assert resize_labels(labels, (3, 2)).tolist() == [[0, 10, 0], [10, 0, 0]]


def test_growing_is_bilinear_between_pixel_centres():
    # Target centres in source pixels: -0.25, 0.25, 0.75, 1.25; outside the outer centres the edge goes on.
    assert resize_image(np.uint8([[0, 100]]), (4, 1)).tolist() == [[0, 25, 75, 100]]


def test_shrinking_averages_the_area():
    # (0 + 100) / 2, (200 + 40) / 2. A point sample would take one of each two.
    assert resize_image(np.uint8([[0, 100, 200, 40]]), (2, 1)).tolist() == [[50, 120]]


def test_one_axis_may_shrink_while_the_other_grows():
    image = np.uint8([[0, 100, 200, 40], [100, 160, 120, 160]])
    # Across: averages 50 120 and 130 140. Down, bilinear: 50, 50 + 80/4, 130 - 80/4, 130; 120, 120 + 20/4, ...
    assert resize_image(image, (2, 4)).tolist() == [[50, 120], [70, 125], [110, 135], [130, 140]]


def test_the_right_size_is_returned_as_it_is():
    image, labels = noise(4, 6, 3), noise(4, 6, 1)[..., 0]
    assert resize_image(image, (6, 4)) is image
    assert resize_labels(labels, (6, 4)) is labels


def test_named_interpolations_are_opencvs():
    image = noise(7, 9, 3)
    for name, code in (('bilinear', cv2.INTER_LINEAR), ('bicubic', cv2.INTER_CUBIC), ('lanczos', cv2.INTER_LANCZOS4)):
        assert (resize_image(image, (5, 4), name) == cv2.resize(image, (5, 4), interpolation=code)).all()
    assert (resize_image(image, (5, 4), 'nearest') == image[nearest_indices(7, 4)][:, nearest_indices(9, 5)]).all()


@pytest.mark.parametrize('channels', [1, 2, 3, 4, 5, 8, 9, 130])
@pytest.mark.parametrize('size', [(5, 4), (14, 15), (5, 15)])
def test_any_channel_count_is_resized_channel_by_channel(channels, size):
    image = noise(7, 9, channels)
    alone = [resize_image(np.ascontiguousarray(image[..., c]), size) for c in range(channels)]
    assert (resize_image(image, size) == np.stack(alone, axis=-1)).all()


@pytest.mark.parametrize('channels', [1, 2, 3, 4, 5, 8, 9, 130])
def test_any_channel_count_is_warped_channel_by_channel_with_its_own_padding(channels):
    image, values = noise(20, 30, channels), np.arange(channels) % 200
    matrix = to_source_matrix(linear_part(20, 1.1, 5), (30, 20), (30, 20))
    alone = [
        warp_image(np.ascontiguousarray(image[..., c]), matrix, (30, 20), float(values[c])) for c in range(channels)
    ]
    error = warp_image(image, matrix, (30, 20), tuple(values)).astype(int) - np.stack(alone, axis=-1)
    assert abs(error).max() <= 8  # OpenCV places some channel counts to 1/32 pixel: 255 / 32 on noise


@pytest.mark.parametrize(('degrees', 'turns'), [(90, -1), (-90, 1), (180, 2), (270, 1), (0, 0)])
@pytest.mark.parametrize(('height', 'width'), [(6, 6), (7, 7), (5, 8), (64, 31)])
def test_a_quarter_turn_is_exact(degrees, turns, height, width):
    image = noise(height, width, 3)
    target = turned_size((width, height), degrees)
    matrix = to_source_matrix(linear_part(degrees), (width, height), target)
    assert (warp_image(image, matrix, target) == np.rot90(image, turns)).all()
    assert (warp_labels(image[..., 0].copy(), matrix, target) == np.rot90(image[..., 0], turns)).all()


def test_shift_and_scale_by_hand():
    labels = np.uint8([[1, 2, 3, 4]])
    shifted = to_source_matrix(linear_part(), (4, 1), (4, 1), shift=(1, 0))
    assert warp_labels(labels, shifted, (4, 1)).tolist() == [[255, 1, 2, 3]]
    # Twice as large about 1.5: targets 0..3 look at 1.5 + (x - 1.5) / 2 = 0.75, 1.25, 1.75, 2.25.
    doubled = to_source_matrix(linear_part(scale=2.0), (4, 1), (4, 1))
    assert warp_labels(labels, doubled, (4, 1)).tolist() == [[2, 2, 3, 3]]


def test_shear_moves_along_x_by_the_height_above_the_centre():
    # Shear by 45 degrees: x' = x + (y - 1) for 3 rows about row 1: the top row goes left, the bottom row right.
    labels = np.uint8([[1, 2, 3]] * 3)
    matrix = to_source_matrix(linear_part(shear=45), (3, 3), (3, 3))
    assert warp_labels(labels, matrix, (3, 3)).tolist() == [[2, 3, 255], [1, 2, 3], [255, 1, 2]]


@pytest.mark.parametrize('size', [(800, 600), (400, 300), (799, 601), (533, 401), (200, 150), (1200, 901), (1600, 100)])
def test_image_and_labels_stay_aligned_when_resized(size):
    labels = disc(600, 800, 391.3, 307.8, 250)
    image = np.repeat(labels[..., None] * 255, 3, axis=2)
    # The centre of the image's light, and of the labels 1, where the disc's centre goes: (x + 0.5) * w / 800 - 0.5.
    expected = (centroid(labels) + 0.5) * size / np.array([800, 600]) - 0.5
    assert np.abs(centroid(resize_image(image, size)[..., 0]) - expected).max() < 0.01
    assert np.abs(centroid(resize_labels(labels, size)) - expected).max() < 0.05


# At no angle a shift by part of a pixel cannot be seen in labels at all: there the shift is whole.
@pytest.mark.parametrize(('degrees', 'shift'), [(-33, (2.3, -1.6)), (7, (0.4, 5.5)), (45, (-7.2, 0.1)), (0, (3, -2))])
@pytest.mark.parametrize(('scale', 'shear'), [(0.45, 0), (0.6, 12), (1.0, 0), (1.0, 12), (1.27, -5)])
def test_image_and_labels_go_where_the_matrix_says(degrees, shift, scale, shear):
    size, grid_centre = (401, 300), np.array([200, 149.5])
    forward = linear_part(degrees, scale, shear)
    errors = []
    for x, y, radius in [(191.3, 157.8, 90), (205.9, 141.1, 83.5), (199.4, 150.2, 95.7), (210.5, 149.9, 77.1)]:
        labels = disc(300, 401, x, y, radius)
        image = np.repeat(labels[..., None] * 255, 3, axis=2)
        expected = forward @ (centroid(labels) - grid_centre) + grid_centre + shift
        matrix = to_source_matrix(forward, size, size, shift)
        assert np.abs(centroid(warp_image(image, matrix, size)[..., 0]) - expected).max() < 0.02
        errors.append(centroid(warp_labels(labels, matrix, size) == 1) - expected)
    # One disc's labels are rounded to whole pixels, which moves the centre by 0.03 or so; a shift would move them all.
    assert np.abs(np.mean(errors, axis=0)).max() < 0.05


def test_a_warp_that_shrinks_averages():
    # Columns 0 200 0 200 ... at a third of the size: what is left is gray, 100. Without averaging it is 0 or 200.
    image = np.tile(np.uint8([[[0], [200]]]), (60, 45, 1))
    matrix = to_source_matrix(linear_part(scale=1 / 3), (90, 60), (90, 60))
    inside = warp_image(image, matrix, (90, 60))[25:35, 35:55]
    assert abs(inside.astype(int) - 100).max() <= 35
    assert abs(inside.mean() - 100) < 2


def carvana_masks():
    if not MASKS.is_dir():
        pytest.skip('no real masks here')
    masks = []
    for path in sorted(MASKS.glob('*.gif')):
        with Image.open(path) as image:
            masks.append(np.asarray(image))
    return masks


def dice_after_round_trip(mask, size):
    """The best Dice at the mask's own size that a network trained on masks of `size` could reach."""
    grown = resize_image(resize_labels(mask, size) * 255, mask.shape[::-1]) > 127.5
    return 2 * (grown & (mask > 0)).sum() / (grown.sum() + mask.sum())


@pytest.mark.parametrize(('size', 'floor'), [((960, 640), 0.9983), ((128, 128), 0.991)])
def test_real_masks_survive_shrinking(size, floor):
    assert np.mean([dice_after_round_trip(mask, size) for mask in carvana_masks()]) >= floor


def test_halved_real_masks_are_not_shifted():
    # cv2.INTER_NEAREST_EXACT, and any fixed choice between two equally near pixels, shifts by half a pixel.
    shifts = []
    for mask in carvana_masks():
        half = resize_labels(mask, (959, 640))
        shifts.append((centroid(half) + 0.5) * 2 - 0.5 - centroid(mask))
    assert np.abs(np.mean(shifts, axis=0)).max() < 0.05
