"""Loading weights, ours and Pytorch-UNet's.

golden_unet.npz holds logits of Pytorch-UNet's own class (commit 21d7850, `UNet(3, 2, bilinear)`, eval mode), made once:
its state dict filled by `fill` below from each key's name and shape, its input `picture`. The names and shapes of its
state dict are written out in `upstream_shapes`.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seg.errors import UserError
from seg.models.unet import UNet
from seg.models.weights import load_weights
from seg.registry import MODELS

GOLDEN = Path(__file__).with_name('golden_unet.npz')
Shapes = Iterator[tuple[str, tuple[int, ...]]]


def fill(key: str, shape: tuple[int, ...]) -> Tensor:
    rng = np.random.RandomState(zlib.crc32(key.encode()))
    values = rng.standard_normal(shape)
    if key.endswith('num_batches_tracked'):
        return torch.tensor(0)
    if len(shape) == 4:
        fan_in = shape[0] if '.up.weight' in key else np.prod(shape[1:])
        values = values * np.sqrt(1.5 / fan_in)
    elif key.endswith('running_var'):
        values = 0.5 + rng.uniform(size=shape)
    else:
        values = 0.1 * values + (1 if key.endswith('.weight') else 0)
    return torch.from_numpy(values.astype(np.float32))


def picture(height: int, width: int) -> Tensor:
    rng = np.random.RandomState(zlib.crc32(f'image {height}x{width}'.encode()))
    return torch.from_numpy(rng.standard_normal((1, 3, height, width)).astype(np.float32))


def upstream_shapes(bilinear: bool, base: int = 64, classes: int = 2) -> Shapes:
    """Every key of Pytorch-UNet's state dict."""
    widths = [base * 2**level for level in range(5)]
    halved = 2 if bilinear else 1
    yield from double_conv_shapes('inc', 3, widths[0], widths[0])
    for level in range(1, 5):
        outputs = widths[level] // (halved if level == 4 else 1)
        yield from double_conv_shapes(f'down{level}.maxpool_conv.1', widths[level - 1], outputs, outputs)
    for number in range(1, 5):
        inputs = widths[5 - number]
        outputs = inputs // 2 // (halved if number < 4 else 1)
        if not bilinear:
            yield f'up{number}.up.weight', (inputs, inputs // 2, 2, 2)
            yield f'up{number}.up.bias', (inputs // 2,)
        yield from double_conv_shapes(f'up{number}.conv', inputs, inputs // 2 if bilinear else outputs, outputs)
    yield 'outc.conv.weight', (classes, base, 1, 1)
    yield 'outc.conv.bias', (classes,)


def double_conv_shapes(prefix: str, inputs: int, middle: int, outputs: int) -> Shapes:
    for conv, ins, outs in ((0, inputs, middle), (3, middle, outputs)):
        yield f'{prefix}.double_conv.{conv}.weight', (outs, ins, 3, 3)
        for name in ('weight', 'bias', 'running_mean', 'running_var'):
            yield f'{prefix}.double_conv.{conv + 1}.{name}', (outs,)
        yield f'{prefix}.double_conv.{conv + 1}.num_batches_tracked', ()


def upstream_weights(bilinear: bool, prefix: str = '', **sizes: int) -> dict:
    weights = {prefix + key: fill(key, shape) for key, shape in upstream_shapes(bilinear, **sizes)}
    return {**weights, 'mask_values': [0, 255]}


def small(upsample: str = 'transposed', classes: int = 2, **network: object) -> nn.Module:
    return MODELS.build(
        dict(
            type='Segmentor',
            num_classes=classes,
            network=dict(type='UNet', base_channels=2, upsample=upsample, **network),
            losses=dict(type='BinaryCrossEntropyLoss' if classes == 1 else 'CrossEntropyLoss'),
            data_preprocessor=dict(type='SegPreprocessor', mean=[0], std=[1]),
        )
    )


@pytest.mark.parametrize('upsample', ['transposed', 'bilinear'])
def test_pytorch_unet_checkpoints_give_its_logits(upsample: str) -> None:
    network = UNet(num_classes=2, upsample=upsample).eval()
    bilinear = upsample == 'bilinear'
    report = load_weights(network, upstream_weights(bilinear, prefix='module.' if bilinear else ''))
    assert report.complete
    assert len(report.loaded) == len(list(upstream_shapes(bilinear)))
    with np.load(GOLDEN) as golden, torch.no_grad():
        for height, width in ((64, 64), (97, 131)):
            expected = torch.from_numpy(golden[f'{upsample}_{height}x{width}'])
            assert expected.std() > 0.5  # logits that could tell a difference
            assert (network(picture(height, width))[0] - expected).abs().max() < 1e-5


def test_every_wrapper_of_the_same_weights_loads() -> None:
    source = small()
    torch.nn.init.normal_(source.network.encoder[0].norm1.running_mean)
    bare = source.network.state_dict()
    whole = source.state_dict()
    for given in (
        whole,
        {f'module.{key}': value for key, value in whole.items()},
        {f'module._orig_mod.{key}': value for key, value in whole.items()},
        {'meta': {}, 'state_dict': whole},
        bare,
    ):
        target = small()
        assert load_weights(target, given).complete
        for key, value in target.state_dict().items():
            assert torch.equal(value, whole[key]), key
    assert load_weights(small().network, whole).complete  # a Segmentor's file into its bare network


def test_another_class_count_loads_the_rest_and_lists_what_it_skipped() -> None:
    weights = upstream_weights(bilinear=False, base=2, classes=19)
    model = small(classes=2)
    before = model.network.head.weight.clone()
    report = load_weights(model, weights)
    assert report.skipped == {'network.head.weight': ((19, 2, 1, 1), (2, 2, 1, 1)), 'network.head.bias': ((19,), (2,))}
    assert torch.equal(model.network.head.weight, before)
    assert torch.equal(model.network.encoder[0].conv1.weight, weights['inc.double_conv.0.weight'])
    assert not report.missing and not report.unexpected
    assert 'network.head.weight (file [19, 2, 1, 1], model [2, 2, 1, 1])' in str(report)


def test_missing_and_unexpected_keys_are_reported_and_strict_refuses_them() -> None:
    weights = small().state_dict()
    weights['network.extra'] = torch.zeros(3)
    del weights['network.head.bias']
    report = load_weights(small(), weights)
    assert report.missing == ['network.head.bias']
    assert report.unexpected == ['network.extra']
    with pytest.raises(UserError, match=r'(?s)do not fit.*network\.head\.bias.*network\.extra'):
        load_weights(small(), weights, strict=True)


def test_zero_matches_is_an_error_even_where_small_vectors_fit() -> None:
    with pytest.raises(UserError, match='0 tensors loaded'):
        load_weights(small(), {'backbone.stem.weight': torch.zeros(4, 3, 3, 3)})
    with pytest.raises(UserError, match=r'encoder\.0\.conv1\.weight \(file \[4, 3, 3, 3\], model \[2, 3, 3, 3\]\)'):
        load_weights(small(), upstream_weights(bilinear=False, base=4))  # only the head's bias has the same shape


@pytest.mark.parametrize('theirs, ours', [('transposed', 'bilinear'), ('bilinear', 'transposed')])
def test_the_other_upsampling_is_named(theirs: str, ours: str) -> None:
    with pytest.raises(UserError, match=rf"made with upsample='{theirs}'.*Set model\.network\.upsample='{theirs}'"):
        load_weights(small(ours), upstream_weights(theirs == 'bilinear', base=2))


def test_an_encoder_alone_loads() -> None:
    weights = {key: value for key, value in small().state_dict().items() if '.encoder.' in key}
    report = load_weights(small('transposed'), weights)
    assert all('encoder' in key for key in report.loaded)
    assert all('decoder' in key or 'head' in key for key in report.missing)
