"""SplitMix64: the hash that orders epochs and seeds samples, here so that no library's version can change a run.

Integer arithmetic modulo 2**64 alone; numpy does not promise that Generator.permutation keeps its stream.
Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

import numpy as np

MASK64 = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def finalise(value: int) -> int:
    """A bijection of 0..2**64-1 that scatters neighbours."""
    value = ((value ^ (value >> 30)) * _MULTIPLIERS[0]) & MASK64
    value = ((value ^ (value >> 27)) * _MULTIPLIERS[1]) & MASK64
    return value ^ (value >> 31)


def output(state: int, count: int) -> int:
    """The output number `count` (from 0) of the generator started at `state`; distinct for distinct counts."""
    return finalise((state + (count + 1) * GAMMA) & MASK64)


def outputs(state: int, size: int) -> np.ndarray:
    """The first `size` outputs of the generator started at `state`, uint64, all distinct."""
    value = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(GAMMA) + np.uint64(state)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(_MULTIPLIERS[0])
    value = (value ^ (value >> np.uint64(27))) * np.uint64(_MULTIPLIERS[1])
    return value ^ (value >> np.uint64(31))


def start(*numbers: int) -> int:
    """One generator state from several integers, such as (seed, epoch); their order matters."""
    state = 0
    for number in numbers:
        state = output(state ^ (number & MASK64), 0)
    return state
