import pytest
import torch

from seg.visualization.histogram import summarise


def test_values_are_counted_in_64_bins_from_the_lowest_to_the_highest():
    histogram = summarise(torch.tensor([[0.0, 0.5], [63.5, 64.0]]))  # bins of width 1
    assert histogram.edges == [float(i) for i in range(65)]
    assert histogram.counts == [2] + [0] * 62 + [2]
    assert histogram.total == 128.0 and histogram.total_of_squares == 0.25 + 63.5**2 + 64**2


def test_what_is_not_finite_is_left_out():
    assert sum(summarise(torch.tensor([1.0, float('nan'), float('inf'), 2.0])).counts) == 2
    assert summarise(torch.tensor([float('nan')])) is None
    assert summarise(torch.tensor([])) is None


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_equal_values_of_any_type_have_a_histogram(dtype):
    histogram = summarise(torch.nn.Parameter(torch.full((5,), 2.0, dtype=dtype)))
    assert sum(histogram.counts) == 5 and histogram.edges[0] == 1.5 and histogram.edges[-1] == 2.5
