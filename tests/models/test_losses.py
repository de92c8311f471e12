"""Each loss by hand, and what all of them promise."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from seg.errors import UserError
from seg.models.losses.base import SegLoss
from seg.registry import MODELS
from tests.ranks import run_ranks

SOFTMAX = [
    dict(type='CrossEntropyLoss'),
    dict(type='CrossEntropyLoss', class_weight=[0.3, 1.0, 2.5], label_smoothing=0.1),
    dict(type='DiceLoss'),
    dict(type='DiceLoss', exponent=2, smooth=0.0, include_background=False, class_weight=[1.0, 0.2, 0.5]),
    dict(type='FocalLoss'),
    dict(type='FocalLoss', gamma=0.5, class_weight=[0.3, 1.0, 2.5]),
    dict(type='TverskyLoss'),
]
SIGMOID = [
    dict(type='BinaryCrossEntropyLoss'),
    dict(type='BinaryCrossEntropyLoss', pos_weight=3.0, class_weight=[0.3, 1.2]),
    dict(type='DiceLoss'),
    dict(type='FocalLoss', alpha=0.25),
    dict(type='TverskyLoss', alpha=0.5, beta=0.5),
]
ALL = [(config, 3) for config in SOFTMAX] + [(config, 1) for config in SIGMOID]
POOLED = [({**config, 'per': 'batch'}, count) for config, count in ALL if config['type'] in ('DiceLoss', 'TverskyLoss')]


def build(config: dict, num_classes: int = 3) -> SegLoss:
    loss = MODELS.build(config)
    loss.check(num_classes)
    return loss


def alone(config: dict, logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of one process and one micro-batch."""
    loss = build(config, logits.shape[1])
    return loss(logits, labels, loss.normaliser(labels))


def logits_of(*chances: list[float]) -> Tensor:
    """(1, classes, 1, pixels) whose softmax (for one row: sigmoid) is the given chances, one row a class."""
    chance = torch.tensor(chances, dtype=torch.float64)
    logits = chance.log() if len(chances) > 1 else chance.logit()
    return logits.view(1, len(chances), 1, -1)


def labels_of(*values: int) -> Tensor:
    return torch.tensor([[values]], dtype=torch.uint8)


def uneven_batch(num_classes: int) -> tuple[Tensor, Tensor]:
    """6 images in float64; from none to all of their pixels ignored."""
    generator = torch.Generator().manual_seed(3)
    logits = 2 * torch.randn(6, num_classes, 5, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, max(2, num_classes), (6, 5, 7), generator=generator, dtype=torch.uint8)
    labels[1, :3], labels[2], labels[4, :, 2:] = 255, 255, 255
    return logits, labels


# ---- by hand ----


def test_cross_entropy() -> None:
    logits = logits_of([0.75, 0.2, 0.5], [0.25, 0.8, 0.5])
    labels = labels_of(0, 0, 255)
    expected = -(math.log(0.75) + math.log(0.2)) / 2
    assert alone(dict(type='CrossEntropyLoss'), logits, labels).item() == pytest.approx(expected, abs=1e-12)
    # weighted: class 0 by 3, class 1 by 1, over 3 + 1
    labels = labels_of(0, 1, 255)
    expected = -(3 * math.log(0.75) + math.log(0.8)) / 4
    config = dict(type='CrossEntropyLoss', class_weight=[3, 1])
    assert alone(config, logits, labels).item() == pytest.approx(expected, abs=1e-12)
    # smoothed by 0.2: 0.8 · own + 0.2 · mean over the classes
    own = -(math.log(0.75) + math.log(0.8))
    spread = -(math.log(0.75) + math.log(0.25) + math.log(0.2) + math.log(0.8)) / 2
    config = dict(type='CrossEntropyLoss', label_smoothing=0.2)
    assert alone(config, logits, labels).item() == pytest.approx((0.8 * own + 0.2 * spread) / 2, abs=1e-12)


@pytest.mark.parametrize('smoothing', [0.0, 0.1])
@pytest.mark.parametrize('weights', [None, [0.3, 1.0, 2.5]])
def test_cross_entropy_is_torchs_mean(smoothing: float, weights: list | None) -> None:
    logits, labels = uneven_batch(3)
    weight = weights and torch.tensor(weights, dtype=torch.float64)
    expected = F.cross_entropy(logits, labels.long(), weight, ignore_index=255, label_smoothing=smoothing)
    config = dict(type='CrossEntropyLoss', class_weight=weights, label_smoothing=smoothing)
    assert alone(config, logits, labels).item() == pytest.approx(expected.item(), abs=1e-12)


def test_binary_cross_entropy() -> None:
    logits, labels = logits_of([0.75, 0.2, 0.9]), labels_of(1, 0, 255)
    expected = -(math.log(0.75) + math.log(0.8)) / 2
    assert alone(dict(type='BinaryCrossEntropyLoss'), logits, labels).item() == pytest.approx(expected, abs=1e-12)
    expected = -(5 * math.log(0.75) + math.log(0.8)) / 2
    config = dict(type='BinaryCrossEntropyLoss', pos_weight=5)
    assert alone(config, logits, labels).item() == pytest.approx(expected, abs=1e-12)
    expected = -(3 * math.log(0.75) + math.log(0.8)) / 4
    config = dict(type='BinaryCrossEntropyLoss', class_weight=[1, 3])
    assert alone(config, logits, labels).item() == pytest.approx(expected, abs=1e-12)


def test_focal() -> None:
    labels = labels_of(1, 0, 255)
    # chance of the own class 0.75 and 0.8; (1 - p)^2 = 0.0625 and 0.04
    terms = [-0.0625 * math.log(0.75), -0.04 * math.log(0.8)]
    for logits in (logits_of([0.75, 0.2, 0.9]), logits_of([0.25, 0.8, 0.1], [0.75, 0.2, 0.9])):
        expected = sum(terms) / 2
        assert alone(dict(type='FocalLoss'), logits, labels).item() == pytest.approx(expected, abs=1e-12)
        expected = (0.25 * terms[0] + 0.75 * terms[1]) / 2
        assert alone(dict(type='FocalLoss', alpha=0.25), logits, labels).item() == pytest.approx(expected, abs=1e-12)
    plain = alone(dict(type='CrossEntropyLoss'), *uneven_batch(3))
    assert alone(dict(type='FocalLoss', gamma=0), *uneven_batch(3)).item() == pytest.approx(plain.item(), abs=1e-12)


def test_focal_of_a_certain_pixel_has_a_finite_slope_at_any_gamma() -> None:
    logits = torch.tensor([200.0, 0.0]).view(1, 2, 1, 1).requires_grad_()
    alone(dict(type='FocalLoss', gamma=0.5), logits, labels_of(0)).backward()
    assert logits.grad.tolist() == [[[[0.0]], [[0.0]]]]


def test_dice() -> None:
    logits, labels = logits_of([0.75, 0.2, 0.9]), labels_of(1, 0, 255)
    # both 0.75, predicted 0.95, true 1
    expected = 1 - (2 * 0.75 + 1) / (0.95 + 1 + 1)
    assert alone(dict(type='DiceLoss'), logits, labels).item() == pytest.approx(expected, abs=1e-12)
    # predicted squared: 0.5625 + 0.04
    expected = 1 - 2 * 0.75 / (0.6025 + 1)
    config = dict(type='DiceLoss', exponent=2, smooth=0)
    assert alone(config, logits, labels).item() == pytest.approx(expected, abs=1e-12)
    # two classes: class 0 has both 0.8, predicted 1.05, true 1
    logits = logits_of([0.25, 0.8, 0.1], [0.75, 0.2, 0.9])
    first, second = 1 - 2.6 / 3.05, 1 - 2.5 / 2.95
    assert alone(dict(type='DiceLoss'), logits, labels).item() == pytest.approx((first + second) / 2, abs=1e-12)
    config = dict(type='DiceLoss', class_weight=[1, 3])
    assert alone(config, logits, labels).item() == pytest.approx((first + 3 * second) / 4, abs=1e-12)
    config = dict(type='DiceLoss', include_background=False)
    assert alone(config, logits, labels).item() == pytest.approx(second, abs=1e-12)


def test_dice_per_image_and_per_batch() -> None:
    logits = logits_of([0.5, 1e-9, 0.5, 1e-9]).view(2, 1, 1, 2)
    labels = torch.tensor([[[1, 0]], [[0, 0]]], dtype=torch.uint8)
    # image 0: 1 - 2·0.5 / (0.5 + 1) = 1/3; image 1: 1 - 0 / 0.5 = 1. Pooled: 1 - 2·0.5 / (1 + 1) = 1/2
    image, batch = (dict(type='DiceLoss', smooth=0, per=per) for per in ('image', 'batch'))
    assert alone(image, logits, labels).item() == pytest.approx(2 / 3, abs=1e-6)
    assert alone(batch, logits, labels).item() == pytest.approx(1 / 2, abs=1e-6)
    evaluated = build(batch, 1).eval()  # ranks may have unequal numbers of batches
    assert evaluated(logits, labels, evaluated.normaliser(labels)).item() == pytest.approx(2 / 3, abs=1e-6)


def test_tversky() -> None:
    logits, labels = logits_of([0.75, 0.2, 0.9]), labels_of(1, 0, 255)
    # both 0.75, false positive 0.2, false negative 0.25
    expected = 1 - 1.75 / (1.75 + 0.3 * 0.2 + 0.7 * 0.25)
    assert alone(dict(type='TverskyLoss'), logits, labels).item() == pytest.approx(expected, abs=1e-12)
    even = dict(type='TverskyLoss', alpha=0.5, beta=0.5, smooth=0.5)  # (x + s) / y and (2x + 2s) / 2y
    dice = alone(dict(type='DiceLoss'), *uneven_batch(3))
    assert alone(even, *uneven_batch(3)).item() == pytest.approx(dice.item(), abs=1e-12)


# ---- promises of all ----


@pytest.mark.parametrize('config, num_classes', ALL + POOLED)
def test_ignored_pixels_cost_nothing_and_move_nothing(config: dict, num_classes: int) -> None:
    logits, labels = uneven_batch(num_classes)
    logits.requires_grad_()
    alone(config, logits, labels).backward()
    assert (logits.grad.abs().sum(1)[labels == 255] == 0).all()
    assert (logits.grad.abs().sum(1)[labels != 255] > 0).all()
    other = torch.where((labels == 255).unsqueeze(1), 9.0, logits.detach())
    assert torch.equal(alone(config, other, labels), alone(config, logits.detach(), labels))
    if config.get('per') != 'batch':  # an image of nothing is as if it were not there
        some = [0, 1, 3, 4, 5]
        without = alone(config, logits.detach()[some], labels[some])
        assert alone(config, logits.detach(), labels).item() == pytest.approx(without.item(), abs=1e-12)


@pytest.mark.parametrize('config, num_classes', ALL + POOLED)
@pytest.mark.parametrize('smooth', [0.0, 1.0])
def test_a_batch_of_only_ignored_pixels_is_zero_and_finite(config: dict, num_classes: int, smooth: float) -> None:
    if config['type'] in ('DiceLoss', 'TverskyLoss'):
        config = {**config, 'smooth': smooth}
    logits = torch.randn(2, num_classes, 4, 4, requires_grad=True)
    loss = alone(config, logits, torch.full((2, 4, 4), 255, dtype=torch.uint8))
    loss.backward()
    assert loss.item() == 0.0
    assert (logits.grad == 0).all()


def test_an_ignored_mistake_is_no_mistake() -> None:
    for smooth in (0.0, 1.0):  # nothing predicted, one pixel true, none valid
        assert alone(dict(type='DiceLoss', smooth=smooth), logits_of([1e-9] * 3), labels_of(255, 255, 255)).item() == 0


@pytest.mark.parametrize('config, num_classes', ALL + POOLED)
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_sums_do_not_overflow(config: dict, num_classes: int, dtype: torch.dtype) -> None:
    logits = torch.full((1, num_classes, 512, 512), -30.0, dtype=dtype)
    logits[:, -1] = 30.0
    labels = torch.full((1, 512, 512), max(1, num_classes - 1), dtype=torch.uint8)
    if 'label_smoothing' in config:  # is never satisfied
        config = {**config, 'label_smoothing': 0.0}
    loss = alone(config, logits, labels)
    assert loss.dtype == torch.float32
    assert abs(loss.item()) < 1e-6
    wrong = alone(config, -logits, labels)
    assert wrong.isfinite() and wrong > 0.2


class Product(SegLoss):
    """A loss of somebody else's, with an operation that autocast would round."""

    def total(self, logits_NCHW: Tensor, labels_NHW: Tensor) -> Tensor:
        pixels = logits_NCHW.flatten(1)
        return (pixels @ pixels.T).sum()


@pytest.mark.parametrize('loss', [Product(), *(build(config) for config in SOFTMAX)], ids=lambda loss: loss.name)
def test_autocast_changes_nothing(loss: SegLoss) -> None:
    logits, labels = uneven_batch(3)
    plain = loss(logits.float(), labels, torch.ones(()))
    with torch.autocast('cpu', torch.bfloat16):
        assert torch.equal(loss(logits.float(), labels, torch.ones(())), plain)


@pytest.mark.parametrize('config, num_classes', ALL)
def test_shares_of_micro_batches_add_up_to_the_whole(config: dict, num_classes: int) -> None:
    logits, labels = uneven_batch(num_classes)
    whole, whole_gradient = value_and_gradient(build(config, num_classes), logits, labels, None)
    loss = build(config, num_classes)
    parts = [slice(0, 1), slice(1, 3), slice(3, 6)]
    normaliser = sum(loss.normaliser(labels[part]) for part in parts)
    shares = [value_and_gradient(loss, logits[part], labels[part], normaliser) for part in parts]
    assert sum(share for share, _ in shares).item() == pytest.approx(whole.item(), abs=1e-12)
    assert (torch.cat([gradient for _, gradient in shares]) - whole_gradient).abs().max() < 1e-12


def value_and_gradient(
    loss: SegLoss, logits: Tensor, labels: Tensor, normaliser: Tensor | None
) -> tuple[Tensor, Tensor]:
    logits = logits.detach().requires_grad_()
    value = loss(logits, labels, loss.normaliser(labels) if normaliser is None else normaliser)
    value.backward()
    return value.detach(), logits.grad


def pooled_share(config: dict, num_classes: int, cuts: list[int]) -> tuple[Tensor, Tensor]:
    import torch.distributed as dist

    logits, labels = uneven_batch(num_classes)
    part = slice(cuts[dist.get_rank()], cuts[dist.get_rank() + 1])
    loss = build(config, num_classes)
    normaliser = loss.normaliser(labels[part])
    dist.all_reduce(normaliser)
    return value_and_gradient(loss, logits[part], labels[part], normaliser)


@pytest.mark.parametrize('cuts', [[0, 1, 6], [0, 2, 3, 6]])  # in the second, rank 1 has ignored pixels only
@pytest.mark.parametrize('config, num_classes', POOLED)
def test_batch_losses_pool_over_the_ranks(config: dict, num_classes: int, cuts: list[int]) -> None:
    whole, whole_gradient = value_and_gradient(build(config, num_classes), *uneven_batch(num_classes), None)
    shares = run_ranks(len(cuts) - 1, pooled_share, config, num_classes, cuts)
    assert sum(share for share, _ in shares).item() == pytest.approx(whole.item(), abs=1e-12)
    assert (torch.cat([gradient for _, gradient in shares]) - whole_gradient).abs().max() < 1e-12


@pytest.mark.parametrize(
    'config',
    [
        dict(type='CrossEntropyLoss', label_smoothing=1.0),
        dict(type='BinaryCrossEntropyLoss', pos_weight=0),
        dict(type='FocalLoss', gamma=-1),
        dict(type='FocalLoss', alpha=1.5),
        dict(type='DiceLoss', per='pixel'),
        dict(type='DiceLoss', smooth=-1),
        dict(type='DiceLoss', exponent=0.5),
        dict(type='DiceLoss', include_background=False, class_weight=[1, 0, 0]),
        dict(type='TverskyLoss', alpha=0, beta=0),
        dict(type='CrossEntropyLoss', class_weight=[float('nan'), 1, 1]),
    ],
)
def test_nonsense_is_refused(config: dict) -> None:
    with pytest.raises(UserError, match=config['type']):
        build(config)
