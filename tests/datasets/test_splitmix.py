"""The hash gives the published numbers, so runs do not depend on a library's version."""

from seg.datasets import splitmix

# SplitMix64 started at 1234567, as listed with the algorithm's reference implementations.
PUBLISHED = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]


def test_scalar_outputs_are_the_published_ones():
    assert [splitmix.output(1234567, count) for count in range(5)] == PUBLISHED


def test_vector_outputs_are_the_published_ones():
    assert splitmix.outputs(1234567, 5).tolist() == PUBLISHED


def test_vector_equals_scalar_where_the_sums_overflow():
    state = splitmix.MASK64 - 1
    assert splitmix.outputs(state, 4).tolist() == [splitmix.output(state, count) for count in range(4)]


def test_start_depends_on_every_number_and_on_their_order():
    starts = {splitmix.start(*numbers) for numbers in [(0, 0), (0, 1), (1, 0), (1, 1), (0,), (-1, 0), (2**64, 1)]}
    assert len(starts) == 6  # 2**64 is 0 modulo 2**64, the rest differ
