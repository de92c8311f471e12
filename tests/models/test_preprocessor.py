import pytest
import torch

from seg.errors import UserError
from seg.models.preprocessor import SegPreprocessor


def image(value: int, height: int, width: int, channels: int = 3) -> torch.Tensor:
    return torch.full((channels, height, width), value, dtype=torch.uint8)


def label(value: int, height: int, width: int) -> torch.Tensor:
    return torch.full((height, width), value, dtype=torch.uint8)


def unequal_batch() -> dict:
    return dict(
        inputs=[image(10, 2, 3), image(20, 4, 1)],
        labels=[label(1, 2, 3), label(0, 4, 1)],
        metas=[dict(img_path='a.jpg'), dict(img_path='b.jpg')],
    )


PREPROCESSOR = SegPreprocessor(mean=[10, 20, 30], std=[2, 4, 5])


def test_pixels_are_normalised_in_their_own_units() -> None:
    batch = dict(inputs=image(40, 2, 2)[None], labels=label(1, 2, 2)[None], metas=[{}])
    done = PREPROCESSOR(batch, training=True)
    # (40 - 10) / 2, (40 - 20) / 4, (40 - 30) / 5
    assert done['inputs'][0, :, 0, 0].tolist() == [15, 5, 2]
    assert done['inputs'].dtype == torch.float32
    assert done['labels'].dtype == torch.uint8
    assert batch['inputs'].dtype == torch.uint8  # the caller's batch is left alone


def test_training_pads_to_the_largest_image_with_mean_colour_and_ignore() -> None:
    done = PREPROCESSOR(unequal_batch(), training=True)
    # channel 0: (10 - 10) / 2 = 0 and (20 - 10) / 2 = 5, padding 0
    assert done['inputs'].shape == (2, 3, 4, 3)
    assert done['inputs'][1, 0].tolist() == [[5, 0, 0]] * 4
    assert done['inputs'][0, 1, :, 0].tolist() == [-2.5, -2.5, 0, 0]
    assert done['labels'].tolist() == [
        [[1, 1, 1], [1, 1, 1], [255] * 3, [255] * 3],
        [[0, 255, 255]] * 4,
    ]


def test_training_pads_to_what_the_ranks_agreed_on_or_the_config_says() -> None:
    assert PREPROCESSOR(unequal_batch(), training=True, pad_to=(5, 7))['inputs'].shape == (2, 3, 5, 7)
    fixed = SegPreprocessor([0], [1], size=(6, 8))
    assert fixed.needed_size(unequal_batch()['inputs']) == (6, 8)
    assert fixed(unequal_batch(), training=True)['labels'].shape == (2, 6, 8)
    assert SegPreprocessor([0], [1], size_divisor=4).needed_size(unequal_batch()['inputs']) == (4, 4)
    stacked = dict(inputs=image(1, 2, 3)[None], labels=label(1, 2, 3)[None])
    done = PREPROCESSOR(stacked, training=True, pad_to=(3, 3))
    assert done['inputs'].shape == (1, 3, 3, 3)
    assert done['labels'].tolist() == [[[1, 1, 1], [1, 1, 1], [255] * 3]]


def test_evaluation_pads_nothing_and_keeps_the_masks_own_size() -> None:
    batch = {**unequal_batch(), 'labels': [label(1, 9, 9), label(0, 5, 5)]}
    done = PREPROCESSOR(batch, training=False)
    assert [tuple(one.shape) for one in done['inputs']] == [(3, 2, 3), (3, 4, 1)]
    assert [tuple(one.shape) for one in done['labels']] == [(9, 9), (5, 5)]
    assert done['metas'] == batch['metas']
    assert 'labels' not in PREPROCESSOR(dict(inputs=batch['inputs']), training=False)


def test_float64_stays_float64() -> None:
    preprocessor = SegPreprocessor([10, 20, 30], [2, 4, 5]).double()
    assert preprocessor(unequal_batch(), training=True)['inputs'].dtype == torch.float64
    assert preprocessor(unequal_batch(), training=False)['inputs'][0].dtype == torch.float64
    assert not preprocessor.state_dict()


def test_channels_last() -> None:
    preprocessor = SegPreprocessor([0], [1], channels_last=True)
    equal = dict(inputs=torch.stack([image(1, 4, 4)] * 2), labels=torch.stack([label(1, 4, 4)] * 2))
    for batch, training in ((equal, True), (unequal_batch(), True), (equal, False)):
        assert preprocessor(batch, training)['inputs'].is_contiguous(memory_format=torch.channels_last)


def test_bad_batches_name_the_file() -> None:
    gray = dict(inputs=[image(1, 2, 2, channels=1)], labels=[label(1, 2, 2)], metas=[dict(img_path='x/gray.png')])
    with pytest.raises(UserError, match=r'x/gray\.png.*1 channels.*3 values.*in_channels'):
        PREPROCESSOR(gray, training=True)
    uneven = {**unequal_batch(), 'labels': [label(1, 2, 3), label(0, 8, 2)]}
    with pytest.raises(UserError, match=r'b\.jpg: image of 4x1 and mask of 8x2'):
        PREPROCESSOR(uneven, training=True)
    with pytest.raises(UserError, match=r'b\.jpg.*batch of 3x3'):
        PREPROCESSOR(unequal_batch(), training=True, pad_to=(3, 3))
    with pytest.raises(UserError, match='LoadAnnotations'):
        PREPROCESSOR(dict(inputs=unequal_batch()['inputs']), training=True)


@pytest.mark.parametrize(
    'options',
    [
        dict(mean=[1, 2], std=[1]),
        dict(mean=[1], std=[0]),
        dict(mean=[], std=[]),
        dict(mean=[1], std=[1], size=(30, 32), size_divisor=32),
        dict(mean=[1], std=[1], size_divisor=0),
    ],
)
def test_bad_options_are_refused(options: dict) -> None:
    with pytest.raises(UserError, match=r'model\.data_preprocessor'):
        SegPreprocessor(**options)
