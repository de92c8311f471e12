"""SyncBatchNorm: N ranks are one process, to rounding in float64, and one process is plain batch normalisation."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seg.models import layers
from seg.models.norm import SyncBatchNorm, convert_sync_batchnorm, revert_sync_batchnorm
from seg.models.reduce import all_reduce_sum
from tests.ranks import run_ranks

OPTIONS = [
    {},
    {'momentum': None},
    {'affine': False},
    {'bias': False},
    {'track_running_stats': False},
    {'momentum': 0.3, 'eps': 0.1},
]


def batch(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Values off zero, and the gradient that arrives."""
    generator = torch.Generator().manual_seed(5)
    x = 3 + torch.randn(7, 3, 4, 5, generator=generator, dtype=torch.float64)
    dy = torch.randn(7, 3, 4, 5, generator=generator, dtype=torch.float64)
    return x.to(dtype), dy.to(dtype)


def train_twice(norm: nn.Module, part: slice) -> dict[str, Tensor]:
    """Output and input gradient of this part of the second batch; the norm's own gradients and state."""
    x, dy = (tensor[part] for tensor in batch(next(iter(norm.buffers()), torch.zeros(1).double()).dtype))
    for scale in (0.5, 1.0):
        norm.zero_grad()
        x = (scale * x).detach().requires_grad_()
        y = norm(x)
        y.backward(dy)
    found = {f'{name}.grad': parameter.grad for name, parameter in norm.named_parameters()}
    return {'y': y.detach(), 'dx': x.grad, **found, **norm.state_dict()}


def make(kind: type[nn.Module], options: dict) -> nn.Module:
    norm = kind(3, **options).double()
    for seed, parameter in enumerate(norm.parameters()):
        parameter.data.uniform_(0.5, 2, generator=torch.Generator().manual_seed(seed))
    return norm


def on_a_rank(options: dict, cuts: list[int]) -> dict[str, Tensor]:
    return train_twice(make(SyncBatchNorm, options), slice(cuts[dist.get_rank()], cuts[dist.get_rank() + 1]))


@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize('cuts', [[0, 1, 7], [0, 3, 5, 7]])
def test_ranks_of_unequal_batches_are_one_process(options: dict, cuts: list[int]) -> None:
    whole = train_twice(make(nn.BatchNorm2d, options), slice(None))
    ranks = run_ranks(len(cuts) - 1, on_a_rank, options, cuts)
    for key in ('y', 'dx'):
        assert (torch.cat([rank[key] for rank in ranks]) - whole[key]).abs().max() < 1e-12
    for key, value in whole.items():
        if key.endswith('.grad'):
            assert (sum(rank[key] for rank in ranks) - value).abs().max() < 1e-12
        elif key not in ('y', 'dx'):
            assert all((rank[key] - value).abs().max() <= 1e-12 * value.abs().max() for rank in ranks), key
    assert ranks[0].keys() == whole.keys()


def in_half(dtype: torch.dtype, autocast: bool) -> tuple[torch.dtype, Tensor, Tensor]:
    norm = SyncBatchNorm(3)
    x = batch()[0].to(dtype)[2 * dist.get_rank() :][:2].requires_grad_()
    with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
        y = norm(x)
    y.float().square().sum().backward()
    return y.dtype, norm.running_mean, x.grad.isfinite().all()


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16, torch.float32])
def test_statistics_are_float32_under_autocast(dtype: torch.dtype) -> None:
    x = batch()[0].to(dtype)[:4]
    expected = 0.1 * x.double().mean((0, 2, 3))  # from the values as they arrive, not from a rounded sum
    for out, running_mean, finite in run_ranks(2, in_half, dtype, dtype == torch.bfloat16):
        assert out == dtype and finite
        assert (running_mean - expected).abs().max() < 1e-7


def ddp_takes_it() -> list[str]:
    model = convert_sync_batchnorm(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
    model = DistributedDataParallel(model)
    model(torch.rand(2, 3, 4, 4)).sum().backward()
    return list(model.module.state_dict())


def test_ddp_on_cpu_takes_it_and_the_keys_are_batch_norms() -> None:
    assert run_ranks(2, ddp_takes_it)[0] == list(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).state_dict())


def evaluate_on_one_rank() -> Tensor:
    norm = SyncBatchNorm(3).eval()
    return norm(torch.ones(1, 3, 2, 2)) if dist.get_rank() == 0 else torch.zeros(0)


def test_eval_mode_waits_for_nobody() -> None:
    assert run_ranks(2, evaluate_on_one_rank)[0].shape == (1, 3, 2, 2)


@pytest.mark.parametrize('options', OPTIONS)
def test_without_a_group_it_is_batch_norm(options: dict) -> None:
    ours, theirs = (train_twice(make(kind, options), slice(None)) for kind in (SyncBatchNorm, nn.BatchNorm2d))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_convert_and_revert_keep_every_parameter() -> None:
    model = nn.Sequential(
        nn.BatchNorm1d(2), nn.BatchNorm2d(3), nn.BatchNorm3d(4), nn.SyncBatchNorm(5), nn.GroupNorm(1, 6)
    )
    parameters, state = list(model.parameters()), copy.deepcopy(model.state_dict())
    convert_sync_batchnorm(model)
    assert [type(layer).__name__ for layer in model] == ['SyncBatchNorm'] * 4 + ['GroupNorm']
    revert_sync_batchnorm(model)
    kinds = ['BatchNorm1d', 'BatchNorm2d', 'BatchNorm3d', 'BatchNorm2d', 'GroupNorm']
    assert [type(layer).__name__ for layer in model] == kinds
    assert all(now is before for now, before in zip(model.parameters(), parameters))
    assert model.state_dict().keys() == state.keys()
    model[0](torch.rand(4, 2))


def test_a_single_process_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(layers, 'print_log', lambda message, logger: said.append(message))
    layers._say_that_nothing_is_synchronised.cache_clear()
    for _ in range(3):
        assert type(layers.build_norm({'type': 'SyncBN'}, 4)) is SyncBatchNorm
    assert len(said) == 1 and 'one process' in said[0]


def far_from_zero() -> Tensor:
    norm = SyncBatchNorm(1)
    norm(torch.tensor([1e4 - 1, 1e4 + 1]).add(4 * dist.get_rank()).view(2, 1, 1, 1))
    return norm.running_var


def test_values_far_from_zero_keep_their_variance_in_float32() -> None:
    # -1, 1, 3, 5 around 1e4: mean 2, unbiased variance (9 + 1 + 1 + 9) / 3; a sum of squares would be off by about 8.
    # running: 0.9 · 1 + 0.1 · 20 / 3
    assert run_ranks(2, far_from_zero)[0].item() == pytest.approx(0.9 + 2 / 3, rel=1e-6)


def reduce_and_differentiate() -> tuple[Tensor, Tensor]:
    rank = dist.get_rank()
    x = torch.tensor([1.0, 2.0], dtype=torch.float64).mul(rank + 1).requires_grad_()
    total = all_reduce_sum(x)
    ((rank + 1) * total.square()).sum().backward()
    return total.detach(), x.grad


def test_all_reduce_sum_and_its_gradient() -> None:
    # x = (1, 2) and (2, 4): total (3, 6). Loss of rank r: (r + 1) · total², slope 2 (r + 1) · total.
    # Both losses see both x: gradient (2 + 4) · total = (18, 36) on both ranks
    for total, gradient in run_ranks(2, reduce_and_differentiate):
        assert total.tolist() == [3, 6]
        assert gradient.tolist() == [18, 36]
    alone = torch.ones(2)
    assert all_reduce_sum(alone) is alone
