import copy

import pytest
import torch
from torch import Tensor, nn

from seg.engine.wrappers.activation_checkpointing import turn_on_activation_checkpointing
from seg.errors import UserError
from seg.models.unet import UNet


def network(**options: object) -> UNet:
    torch.manual_seed(0)
    return UNet(num_classes=2, base_channels=2, depth=2, **options)


def trained_once(model: nn.Module) -> dict[str, Tensor]:
    torch.manual_seed(1)
    model(torch.rand(2, 3, 16, 16)).square().sum().backward()
    return {**{name: parameter.grad for name, parameter in model.named_parameters()}, **dict(model.named_buffers())}


@pytest.mark.parametrize('options', [{}, {'norm_cfg': {'type': 'BN', 'momentum': None}}, {'dropout': 0.5}])
def test_gradients_and_running_statistics_are_the_same_bits(options: dict) -> None:
    plain, saving = network(**options), network(**options)
    assert turn_on_activation_checkpointing(saving, ['encoder.*', 'decoder.0', 'dropout']) == [
        'encoder.0',
        'encoder.1',
        'encoder.2',
        'decoder.0',
        'dropout',
    ]
    expected, found = trained_once(plain), trained_once(saving)
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    assert saving.state_dict().keys() == plain.state_dict().keys()
    assert saving.encoder[0].norm1.momentum == plain.encoder[0].norm1.momentum
    assert saving.encoder[0].norm1.num_batches_tracked == 1


def kept_bytes(model: nn.Module) -> int:
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(torch.rand(2, 3, 64, 64))
    return sum(kept.values())


def test_activations_are_not_kept() -> None:
    saving = network()
    turn_on_activation_checkpointing(saving, ['encoder.*', 'decoder.*'])
    assert kept_bytes(saving) < kept_bytes(network()) / 2


def test_a_deep_copy_runs_its_own_weights() -> None:
    model = network().eval()
    turn_on_activation_checkpointing(model, 'encoder.*')
    image = torch.rand(1, 3, 16, 16)
    before = model(image)
    twin = copy.deepcopy(model)  # as the moving average of the weights is made
    for parameter in model.parameters():
        parameter.data.zero_()
    assert torch.equal(twin(image), before)


def test_turning_it_on_twice_is_turning_it_on_once() -> None:
    model = network()
    turn_on_activation_checkpointing(model, 'encoder.0')
    kind = type(model.encoder[0])
    turn_on_activation_checkpointing(model, 'encoder.0')
    assert type(model.encoder[0]) is kind


@pytest.mark.parametrize(
    'pattern, words',
    [
        ('encoder.7', r"'encoder\.7' matches no module\. Modules there: encoder\.0, encoder\.1, encoder\.2"),
        ('backbone', r"'backbone' matches no module\. Modules at the top: encoder, dropout, decoder, head"),
        ('encoder', r'ModuleList is never run itself; name its children'),
    ],
)
def test_a_name_that_means_nothing_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        turn_on_activation_checkpointing(network(), pattern)
