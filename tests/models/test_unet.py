import pytest
import torch

from seg.errors import UserError
from seg.models.unet import UNet


@pytest.mark.parametrize('upsample', ['transposed', 'bilinear'])
@pytest.mark.parametrize('norm', [{'type': 'BN'}, {'type': 'IN'}])
@pytest.mark.parametrize('size', [(17, 33), (513, 511), (8, 5), (1, 1), (16, 16), (31, 1)])
def test_logits_have_the_size_of_the_image(upsample: str, norm: dict, size: tuple[int, int]) -> None:
    network = UNet(num_classes=3, base_channels=2, upsample=upsample, norm_cfg=norm).eval()
    assert network(torch.rand(1, 3, *size)).shape == (1, 3, *size)
    network.train()
    assert network(torch.rand(2, 3, *size)).shape == (2, 3, *size)


def test_a_small_image_is_seen_as_if_padded_by_zeros() -> None:
    network = UNet(num_classes=2, base_channels=2).eval()
    image = torch.rand(1, 3, 8, 20)
    padded = torch.zeros(1, 3, 16, 20)
    padded[:, :, :8] = image
    assert torch.equal(network(image), network(padded)[:, :, :8])


@pytest.mark.parametrize('depth, bottom', [(1, 8), (3, 32), (5, 128)])
@pytest.mark.parametrize('upsample', ['transposed', 'bilinear'])
def test_depth_doubles_the_channels_of_each_level(depth: int, bottom: int, upsample: str) -> None:
    network = UNet(num_classes=1, in_channels=5, base_channels=4, depth=depth, upsample=upsample)
    halved = 2 if upsample == 'bilinear' else 1
    assert network.encoder[-1].conv2.out_channels == bottom // halved
    assert len(network.decoder) == depth
    assert network(torch.rand(2, 5, 40, 50)).shape == (2, 1, 40, 50)


@pytest.mark.parametrize(
    'norm, kind',
    [
        ({'type': 'BN', 'momentum': 0.01}, 'BatchNorm2d'),
        ({'type': 'SyncBN'}, 'SyncBatchNorm'),
        ({'type': 'GN', 'num_groups': 2}, 'GroupNorm'),
        ({'type': 'IN', 'affine': True}, 'InstanceNorm2d'),
        (None, 'Identity'),
    ],
)
def test_norm_by_config(norm: dict | None, kind: str) -> None:
    network = UNet(num_classes=2, base_channels=4, depth=2, norm_cfg=norm)
    block = network.encoder[0]
    assert type(block.norm1).__name__ == kind
    assert (block.conv1.bias is None) == (norm is not None)
    network(torch.rand(2, 3, 9, 9)).sum().backward()
    assert block.conv1.weight.grad.isfinite().all()


@pytest.mark.parametrize(
    'act, expected',
    [
        ({'type': 'ReLU'}, 'ReLU(inplace=True)'),
        ({'type': 'LeakyReLU', 'negative_slope': 0.1}, 'LeakyReLU(negative_slope=0.1, inplace=True)'),
        ({'type': 'SiLU', 'inplace': False}, 'SiLU()'),
        ({'type': 'GELU'}, "GELU(approximate='none')"),
        ({'type': 'torch.nn.Mish'}, 'Mish(inplace=True)'),
        (None, 'Identity()'),
    ],
)
def test_activation_by_config(act: dict | None, expected: str) -> None:
    network = UNet(num_classes=2, base_channels=2, depth=1, act_cfg=act)
    assert repr(network.encoder[0].act1) == expected
    network(torch.rand(2, 3, 8, 8)).sum().backward()


def test_dropout_is_at_the_bottom_and_in_training_only() -> None:
    network = UNet(num_classes=2, base_channels=2, depth=1, dropout=0.5)
    image = torch.rand(1, 3, 16, 16)
    assert not torch.equal(network(image), network(image))
    network.eval()
    assert torch.equal(network(image), network(image))
    assert UNet(num_classes=2, base_channels=2, depth=1).state_dict().keys() == network.state_dict().keys()


@pytest.mark.parametrize(
    'option, words',
    [
        ({'depth': 0}, 'depth=0: expected an integer from 1 to 10'),
        ({'depth': 40}, 'depth=40'),
        ({'depth': 2.5}, r'depth=2\.5'),
        ({'upsample': 'nearest'}, "upsample='nearest': expected one of .*transposed.*bilinear"),
        ({'base_channels': 0}, 'base_channels=0'),
        ({'in_channels': 0}, 'in_channels=0'),
        ({'dropout': 1.0}, r'dropout=1\.0'),
        ({'norm_cfg': {'type': 'BNN'}}, "type 'BNN' is not a known layer.*SyncBN"),
        ({'norm_cfg': {'type': 'GN'}}, 'needs num_groups, a divisor of 4'),
        ({'norm_cfg': {'type': 'GN', 'num_groups': 3}}, 'needs num_groups, a divisor of 4'),
        ({'norm_cfg': {'type': 'LN'}}, 'LayerNorm normalises W'),
        ({'act_cfg': {'type': 'Relu'}}, "type 'Relu' is not a known layer.*'ReLU'"),
    ],
)
def test_nonsense_is_refused(option: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        UNet(**{'num_classes': 2, 'base_channels': 4, **option})


def test_one_value_a_channel_is_refused_before_batch_norm_fails() -> None:
    network = UNet(num_classes=2, base_channels=2)
    with pytest.raises(UserError, match=r'one image of 16x16.*depth=4'):
        network(torch.rand(1, 3, 5, 16))
    network(torch.rand(1, 3, 16, 32))  # two values
    network.eval()(torch.rand(1, 3, 5, 16))
