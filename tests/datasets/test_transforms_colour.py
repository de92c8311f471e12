import numpy as np
import pytest

from seg.datasets.transforms.colour import Distortion, PhotoMetricDistortion, RandomGrayscale, distort
from seg.errors import UserError


def pixel(*values):
    return np.uint8([[values]])


@pytest.mark.parametrize(
    ('amount', 'expected'),
    [
        (Distortion(), (100, 150, 250)),
        (Distortion(brightness=10), (110, 160, 255)),
        (Distortion(contrast=0.5), (50, 75, 125)),
        # Second: (100 + 10) * 1.2 = 132, 160 * 1.2 = 192, 255 * 1.2 -> 255. The sum was clipped before.
        (Distortion(brightness=10, contrast=1.2), (132, 192, 255)),
        (Distortion(brightness=10, contrast=0.8, contrast_last=True), (88, 128, 204)),
        (Distortion(brightness=-120), (0, 30, 130)),
    ],
)
def test_brightness_and_contrast_by_hand(amount, expected):
    assert distort(pixel(100, 150, 250), amount).tolist() == [[list(expected)]]


def test_hue_turns_red_to_green_and_green_to_blue():
    # 60 units are 120 degrees. The order is RGB: taken for BGR, red would become blue.
    assert distort(pixel(255, 0, 0), Distortion(hue=60)).tolist() == [[[0, 255, 0]]]
    assert distort(pixel(0, 255, 0), Distortion(hue=60)).tolist() == [[[0, 0, 255]]]
    assert distort(pixel(255, 0, 0), Distortion(hue=-60)).tolist() == [[[0, 0, 255]]]


def test_saturation_0_leaves_the_largest_channel():
    assert distort(pixel(40, 200, 90), Distortion(saturation=0)).tolist() == [[[200, 200, 200]]]


def test_contrast_last_comes_after_saturation():
    # Gray of 200, halved. Before it, the largest channel would be 100 all the same, but with hue 100 of 255.
    amount = Distortion(saturation=0, contrast=0.5, contrast_last=True)
    assert distort(pixel(40, 200, 90), amount).tolist() == [[[100, 100, 100]]]


def test_the_given_image_is_left_alone():
    image = pixel(100, 150, 250)
    for amount in (Distortion(brightness=5), Distortion(hue=4), Distortion(contrast=2, contrast_last=True)):
        distort(image, amount)
    assert image.tolist() == [[[100, 150, 250]]]


def test_one_channel_keeps_its_axis_and_has_no_hue():
    image = np.uint8([[[10], [20]]])
    assert distort(image, Distortion(brightness=5, saturation=0.2, hue=30)).tolist() == [[[15], [25]]]


def test_a_window_of_an_image_is_distorted_alone():
    image = np.arange(5 * 6 * 3, dtype=np.uint8).reshape(5, 6, 3)
    assert (distort(image[1:3, 2:5], Distortion(brightness=7)) == image[1:3, 2:5] + 7).all()


def test_draws_stay_in_their_ranges_and_each_is_off_half_the_time():
    np.random.seed(0)
    transform = PhotoMetricDistortion(10, (0.5, 2.0), (0.2, 0.9), 5)
    draws = [transform._draw() for _ in range(1000)]
    for values, off, low, high in (
        ([draw.brightness for draw in draws], 0.0, -10, 10),
        ([draw.contrast for draw in draws], 1.0, 0.5, 2.0),
        ([draw.saturation for draw in draws], 1.0, 0.2, 0.9),
        ([draw.hue for draw in draws], 0, -5, 5),
    ):
        on = [value for value in values if value != off]
        assert low <= min(on) <= low + (high - low) / 10
        assert high - (high - low) / 10 <= max(on) <= high
        assert 400 <= len(on) <= 570  # 500 expected, or 455 for the hue, of which 1 in 11 is 0; 16 is one deviation
    assert 400 <= sum(draw.contrast_last for draw in draws) <= 600


def test_grayscale_keeps_three_channels():
    # 0.299 * 100 + 0.587 * 150 + 0.114 * 250 = 146.45.
    assert RandomGrayscale(1.0)({'img': pixel(100, 150, 250)})['img'].tolist() == [[[146, 146, 146]]]
    assert RandomGrayscale(0.0)({'img': pixel(100, 150, 250)})['img'].tolist() == [[[100, 150, 250]]]
    assert RandomGrayscale(1.0)({'img': pixel(9)})['img'].tolist() == [[[9]]]


@pytest.mark.parametrize('image', [np.zeros((2, 2, 4), np.uint8), np.zeros((2, 2, 3), np.uint16)])
@pytest.mark.parametrize('transform', [PhotoMetricDistortion(), RandomGrayscale(1.0)])
def test_what_is_not_an_rgb_image_in_bytes_is_refused(transform, image):
    with pytest.raises(UserError, match='expected 3'):
        transform({'img': image})


@pytest.mark.parametrize('options', [{'contrast_range': (1.5, 0.5)}, {'saturation_range': (-1, 1)}])
def test_ranges_that_cannot_be_meant_are_refused(options):
    with pytest.raises(UserError, match='the smaller first'):
        PhotoMetricDistortion(**options)
