"""The validation loss, and the walk of a batch: any model with the protocol's methods will do."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seg.engine.evaluate import LossMeter, evaluate_batch
from seg.models.segmentor import Segmentor
from tests.ranks import run_ranks


def sums(total: float, denominator: float) -> Tensor:
    return torch.tensor([total, denominator], dtype=torch.float64)


def test_the_loss_is_sums_over_sums() -> None:
    meter = LossMeter()
    meter.update(dict(loss_a=sums(6, 2), loss_b=sums(1, 1)))
    meter.update({})  # a sample without a label
    meter.update(dict(loss_a=sums(0, 4), loss_b=sums(2, 1)))
    # (6 + 0) / (2 + 4) = 1, where the mean of means would be 1.5; (1 + 2) / (1 + 1) = 1.5
    assert meter.compute() == dict(val_loss=2.5, val_loss_a=1.0, val_loss_b=1.5)
    assert LossMeter().compute() == {}


def test_the_order_of_the_images_does_not_move_a_bit_of_it() -> None:
    # 1e16 has steps of 2: added to it one by one the ones are lost, among themselves they are 2.
    found = []
    for totals in ([1.0, 1e16, 1.0], [1e16, 1.0, 1.0], [1.0, 1.0, 1e16]):
        meter = LossMeter()
        for total in totals:
            meter.update(dict(loss_a=sums(total, 1)))
        found.append(meter.compute()['val_loss'])
    assert found == [(1e16 + 2) / 3] * 3


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_a_loss_that_is_not_finite_stays_so(value: float) -> None:
    meter = LossMeter()
    for total in (1.0, value, value):
        meter.update(dict(loss_a=sums(total, 1)))
    assert not math.isfinite(meter.compute()['val_loss'])


def meter_of_a_rank() -> dict[str, float]:
    meter = LossMeter()
    if torch.distributed.get_rank() == 0:
        meter.update(dict(loss_a=sums(6, 2)))
    return meter.compute()


def test_a_rank_without_images_has_the_loss_too() -> None:
    assert run_ranks(2, meter_of_a_rank) == [dict(val_loss=3.0, val_loss_a=3.0)] * 2


class Doubling(nn.Module):
    """A model of another kind: whatever `evaluate` returns is for its own metric."""

    def data_preprocessor(self, batch: dict, training: bool) -> dict:
        return {**batch, 'training': training}

    def evaluate(self, batch: dict) -> list[dict[str, Any]]:
        assert not batch['training']
        return [dict(twice=2 * batch['inputs'], losses=dict(loss_x=sums(3, 1)))]


def test_samples_go_to_the_metric_and_losses_to_the_meter() -> None:
    meter = LossMeter()
    samples = evaluate_batch(Doubling(), dict(inputs=torch.ones(1)), 'fp32', meter)  # type: ignore[arg-type]
    assert samples == [dict(twice=torch.tensor([2.0]))]
    assert meter.compute() == dict(val_loss=3.0, val_loss_x=3.0)


@pytest.mark.parametrize('labelled', [True, False])
def test_a_segmentor_is_scored_at_the_size_of_the_mask(labelled: bool) -> None:
    model = Segmentor(
        num_classes=2,
        data_preprocessor=dict(type='SegPreprocessor', mean=[0.0] * 3, std=[1.0] * 3),
        network=dict(type='UNet', base_channels=2, depth=1),
        losses=dict(type='CrossEntropyLoss'),
    ).eval()
    batch: dict[str, Any] = dict(inputs=torch.zeros(1, 3, 8, 8, dtype=torch.uint8), metas=[dict(ori_shape=(12, 10))])
    if labelled:
        batch['labels'] = torch.full((1, 16, 16), 255, dtype=torch.uint8)
        batch['labels'][0, :4] = 1
    meter = LossMeter()
    (sample,) = evaluate_batch(model, batch, 'fp32', meter)  # type: ignore[arg-type]
    assert sample['pred'].shape == ((16, 16) if labelled else (12, 10))
    assert set(sample) == ({'pred', 'label'} if labelled else {'pred'})
    if labelled:
        # The mask is shrunk to the logits' 8x8: its upper 4 of 16 rows are 2 rows of 8 pixels.
        assert meter._rows[0][1].tolist() == [16.0]
