from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seg.errors import UserError
from seg.models.segmentor import Segmentor

PREPROCESSOR = dict(type='SegPreprocessor', mean=[127.5], std=[64])
CE, BCE, DICE = (dict(type=f'{kind}Loss') for kind in ('CrossEntropy', 'BinaryCrossEntropy', 'Dice'))


def build(num_classes: int = 3, losses: list | dict = CE, **options: object) -> Segmentor:
    options = {'network': dict(type='UNet', base_channels=2), 'data_preprocessor': PREPROCESSOR, **options}
    return Segmentor(num_classes=num_classes, losses=losses, **options)


class Constant(nn.Module):
    """Gives back the first `num_classes` channels of its input as logits, and keeps what it was called with."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes, self.seen = num_classes, []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(tuple(x.shape))
        return x[:, : self.num_classes]


def with_logits(num_classes: int, **options: object) -> Segmentor:
    return build(num_classes, BCE if num_classes == 1 else CE, network=dict(type=Constant), **options)


def test_loss_is_the_weighted_shares_by_name() -> None:
    # two pixels, logits (0, 0): p = 1/2 each. Cross entropy ln 2; Dice per class with smooth 1, labels (0, 1):
    # both = 1/2, predicted = 1, true = 1, loss = 1 - (2/2 + 1) / (1 + 1 + 1) = 1/3
    model = with_logits(2)
    model.losses = build(2, [CE, {**DICE, 'weight': 3.0}, {**DICE, 'name': 'more'}]).losses
    labels = torch.tensor([[[0, 1]]], dtype=torch.uint8)
    losses = model(torch.zeros(1, 2, 1, 2), labels, mode='loss')
    assert list(losses) == ['loss_ce', 'loss_dice', 'loss_more']
    assert torch.stack(list(losses.values())).tolist() == pytest.approx([0.693147, 1.0, 1 / 3], abs=1e-6)
    # with a denominator of twice as many pixels and images, half of each
    shares = model(torch.zeros(1, 2, 1, 2), labels, 2 * model.normalisers(labels), mode='loss')
    assert torch.stack(list(shares.values())).tolist() == pytest.approx([0.346574, 0.5, 1 / 6], abs=1e-6)
    assert model.normalisers(labels).dtype == torch.float64


def test_predict_is_argmax_of_bilinear_logits() -> None:
    model = with_logits(3)
    logits = torch.randn(2, 3, 12, 14)
    sizes = [(50, 61), (12, 14)]
    for got, one, size in zip(model.predict(logits, sizes), logits, sizes):
        assert got.dtype == torch.uint8
        assert torch.equal(got, F.interpolate(one[None], size, mode='bilinear')[0].argmax(0).byte())


def test_one_channel_is_sigmoid_above_the_threshold() -> None:
    logits = torch.tensor([-0.1, 0.0, 0.1, 1.0, 2.0]).view(1, 1, 1, 5)
    # sigmoid: 0.475, 0.5, 0.525, 0.731, 0.881
    assert with_logits(1).predict(logits, [(1, 5)])[0].tolist() == [[0, 0, 1, 1, 1]]
    assert with_logits(1, threshold=0.8).predict(logits, [(1, 5)])[0].tolist() == [[0, 0, 0, 0, 1]]


def test_probabilities_of_a_class() -> None:
    logits = torch.randn(1, 3, 8, 8, dtype=torch.float64)
    grown = F.interpolate(logits, (20, 21), mode='bilinear')[0].softmax(0)
    for label in range(3):
        (probs,) = with_logits(3).predict_probs(logits, [(20, 21)], label)
        assert (probs - grown[label]).abs().max() < 1e-12
    foreground, background = (with_logits(1).predict_probs(logits, [(8, 8)], label)[0] for label in (1, 0))
    assert torch.allclose(foreground, logits[0, 0].sigmoid())
    assert torch.allclose(foreground + background, torch.ones(8, 8, dtype=torch.float64))
    with pytest.raises(UserError, match='classes 0 to 2'):
        with_logits(3).predict_probs(logits, [(8, 8)], 3)


def test_unequal_sizes_go_through_the_network_once_each_and_come_back_in_order() -> None:
    model = with_logits(3)
    images = [torch.randn(3, *size) for size in ((8, 8), (5, 9), (8, 8), (9, 5))]
    predicted = model.predict(images, [tuple(image.shape[1:]) for image in images])
    assert model.network.seen == [(2, 3, 8, 8), (1, 3, 5, 9), (1, 3, 9, 5)]
    for labels, image in zip(predicted, images):
        assert torch.equal(labels, image.argmax(0).byte())


def test_an_image_alone_and_in_a_batch_of_other_sizes_gets_the_same_logits() -> None:
    model = build().eval()
    images = [torch.randn(3, 40, 33), torch.randn(3, 64, 64)]
    together = model.each_logits(images)
    assert torch.equal(together[0], model(images[0][None])[0])


def test_size_divisor_pads_and_cuts_for_networks_that_need_it() -> None:
    model = with_logits(3, data_preprocessor={**PREPROCESSOR, 'size_divisor': 32})
    assert model(torch.zeros(2, 3, 33, 64)).shape == (2, 3, 33, 64)
    assert model.network.seen == [(2, 3, 64, 64)]


def test_float64_from_pixels_to_loss() -> None:
    model = build(losses=[CE, DICE]).double()
    batch = dict(inputs=torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8), labels=torch.zeros(2, 32, 32).byte())
    data = model.data_preprocessor(batch, training=True)
    losses = model(data['inputs'], data['labels'], mode='loss')
    assert all(loss.dtype == torch.float64 for loss in losses.values())
    assert model.predict_probs(data['inputs'], [(9, 9)] * 2)[0].dtype == torch.float64


def test_labels_that_are_no_class_are_named() -> None:
    labels = torch.tensor([[[0, 3, 255, 7]]], dtype=torch.uint8)
    with pytest.raises(UserError, match=r'Labels hold \[3, 7\]; model.num_classes=3 allows 0 to 2, and 255'):
        with_logits(3)(torch.zeros(1, 3, 1, 4), labels, mode='loss')


@pytest.mark.parametrize(
    'make, words',
    [
        (lambda: build(1, CE), 'CrossEntropyLoss with num_classes=1.*Use BinaryCrossEntropyLoss'),
        (lambda: build(2, BCE), 'BinaryCrossEntropyLoss with num_classes=2.*Use CrossEntropyLoss'),
        (lambda: build(3, dict(type='FocalLoss', alpha=0.25)), 'balances two classes, the model has 3'),
        (lambda: build(3, {**CE, 'class_weight': [1, 2]}), 'class_weight has 2 values, expected 3'),
        (lambda: build(3, {**CE, 'class_weight': 'auto'}), "class_weight='auto': expected a list"),
        (lambda: build(3, {**CE, 'class_weight': [1, -1, 1]}), 'none negative'),
        (lambda: build(1, {**DICE, 'class_weight': [1, 1]}), 'no meaning for num_classes=1'),
        (lambda: build(3, [CE, CE]), r"names \['ce', 'ce'\]: expected at least one, all different"),
        (lambda: build(3, []), 'at least one'),
        (lambda: build(3, dict(type=Constant, num_classes=2)), r'losses\[0\]: Constant is not a'),
        (lambda: build(0), 'num_classes=0'),
        (lambda: build(256), 'num_classes=256'),
        (lambda: build(3, network=dict(type='UNet', num_classes=2)), 'contradicts model.num_classes=3'),
        (lambda: build(3, network=dict(type='UNet', in_channels=4), data_preprocessor=RGB), 'in_channels=4.*3 values'),
        (lambda: build(1, BCE, threshold=1.0), r'threshold=1\.0'),
    ],
)
def test_what_cannot_be_meant_is_refused_at_build_time(make: Callable[[], Segmentor], words: str) -> None:
    with pytest.raises(UserError, match=words):
        make()


RGB = dict(type='SegPreprocessor', mean=[1, 2, 3], std=[1, 1, 1])


def test_weights_are_initialised_by_config() -> None:
    model = build(init_cfg=dict(type='Constant', layer='Conv2d', val=0.5))
    model.init_weights()
    assert (model.network.encoder[0].conv1.weight == 0.5).all()
