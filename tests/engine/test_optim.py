"""Optimizer wrappers: clipping, scaling, and what of it a checkpoint holds."""

import pytest
import torch
from torch import nn

from seg.engine.optim import AmpOptimWrapper, OptimWrapper
from seg.errors import UserError


def parameter(value: float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.tensor([value, value]))


def test_the_norm_before_clipping_is_kept() -> None:
    weight = parameter()
    wrapper = OptimWrapper(torch.optim.SGD([weight], lr=1.0), clip_grad=dict(max_norm=1.0))
    wrapper.backward((weight * torch.tensor([3.0, 4.0])).sum())
    wrapper.step()
    # The gradient is (3, 4), its norm 5; clipped to norm 1 it is (0.6, 0.8), and the step goes from 1 to (0.4, 0.2).
    assert wrapper.grad_norm is not None
    assert wrapper.grad_norm.item() == pytest.approx(5.0)
    torch.testing.assert_close(weight.data, torch.tensor([0.4, 0.2]))
    assert weight.grad is None


def test_gradients_are_clipped_after_unscaling() -> None:
    weight = parameter()
    wrapper = AmpOptimWrapper(
        torch.optim.SGD([weight], lr=1.0), dtype='float16', loss_scale=1024.0, clip_grad=dict(max_norm=1.0)
    )
    wrapper.backward((weight * torch.tensor([3.0, 4.0])).sum())
    assert weight.grad is not None
    assert weight.grad.tolist() == [3072.0, 4096.0]  # 1024 times (3, 4)
    wrapper.step()
    torch.testing.assert_close(weight.data, torch.tensor([0.4, 0.2]), rtol=1e-5, atol=1e-6)
    assert wrapper.loss_scaler.get_scale() == 1024.0


def test_an_overflow_skips_the_step_and_halves_the_scale() -> None:
    weight = parameter()
    wrapper = AmpOptimWrapper(torch.optim.SGD([weight], lr=1.0), dtype='fp16')
    wrapper.backward((weight * float('inf')).sum())
    wrapper.step()
    assert weight.tolist() == [1.0, 1.0]
    assert wrapper.loss_scaler.get_scale() == 2**15  # from torch's initial 2**16


def test_only_fp16_has_a_scaler() -> None:
    for dtype, has_scaler in (('float16', True), ('bfloat16', False)):
        wrapper = AmpOptimWrapper(torch.optim.SGD([parameter()], lr=1.0), dtype=dtype)
        assert ('loss_scaler' in wrapper.state_dict()) is has_scaler


def test_the_scale_is_resumed() -> None:
    first = AmpOptimWrapper(torch.optim.SGD([parameter()], lr=1.0), dtype='float16', loss_scale=dict(init_scale=8.0))
    weight = first.optimizer.param_groups[0]['params'][0]
    first.backward((weight * float('inf')).sum())
    first.step()
    second = AmpOptimWrapper(torch.optim.SGD([parameter()], lr=1.0), dtype='float16')
    second.load_state_dict(first.state_dict())
    assert second.loss_scaler.get_scale() == 4.0  # 8 halved once


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (dict(dtype='float8'), "dtype is 'float8'; expected one of bfloat16, float16"),
        (dict(loss_scale='big'), "loss_scale is 'big'"),
        (dict(accumulative_counts=0), 'accumulative_counts is 0'),
    ],
)
def test_what_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        AmpOptimWrapper(torch.optim.SGD([parameter()], lr=1.0), **arguments)
