"""The shape of a made-up car: a lofted body in metres.

Car frame: x forward, y left, z up, the floor at z = 0, the middle of the car at x = 0. A point of the skin is named by
(station, ring): station 0..1 from nose to tail, ring 0..RING-1 from the left sill over the roof to the right sill.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

Array = np.ndarray

STATIONS = 48
RING = 15
"""Points of a section: 7 on the left side, the middle of the roof (7), 7 on the right side."""


@dataclass(frozen=True)
class Shape:
    """Lengths in metres; `cowl`, `roof_from`, `roof_to`, `rear` and `axles` are stations (0 nose, 1 tail)."""

    length: float
    width: float
    roof: float
    hood: tuple[float, float]
    deck: tuple[float, float]
    cowl: float
    roof_from: float
    roof_to: float
    rear: float
    axles: tuple[float, float]
    wheel: float
    sill: float
    pillars: tuple[float, ...]
    """Stations where the side glass is broken by a pillar."""
    bed: bool = False


SHAPES = {
    'sedan': Shape(
        length=4.75,
        width=1.84,
        roof=1.45,
        hood=(0.72, 0.96),
        deck=(1.06, 0.98),
        cowl=0.27,
        roof_from=0.41,
        roof_to=0.64,
        rear=0.82,
        axles=(0.185, 0.785),
        wheel=0.335,
        sill=0.22,
        pillars=(0.5,),
    ),
    'hatch': Shape(
        length=4.05,
        width=1.76,
        roof=1.5,
        hood=(0.74, 0.98),
        deck=(1.0, 0.84),
        cowl=0.25,
        roof_from=0.4,
        roof_to=0.8,
        rear=0.96,
        axles=(0.19, 0.81),
        wheel=0.315,
        sill=0.21,
        pillars=(0.54,),
    ),
    'suv': Shape(
        length=4.6,
        width=1.92,
        roof=1.74,
        hood=(0.94, 1.12),
        deck=(1.1, 0.96),
        cowl=0.26,
        roof_from=0.38,
        roof_to=0.88,
        rear=0.975,
        axles=(0.185, 0.795),
        wheel=0.375,
        sill=0.3,
        pillars=(0.5, 0.71),
    ),
    'pickup': Shape(
        length=5.4,
        width=1.96,
        roof=1.82,
        hood=(1.02, 1.16),
        deck=(1.14, 1.12),
        cowl=0.25,
        roof_from=0.345,
        roof_to=0.53,
        rear=0.575,
        axles=(0.175, 0.765),
        wheel=0.39,
        sill=0.36,
        pillars=(0.45,),
        bed=True,
    ),
    'van': Shape(
        length=4.9,
        width=1.94,
        roof=1.98,
        hood=(0.9, 1.14),
        deck=(1.1, 0.92),
        cowl=0.15,
        roof_from=0.3,
        roof_to=0.93,
        rear=0.985,
        axles=(0.165, 0.785),
        wheel=0.345,
        sill=0.24,
        pillars=(0.42, 0.66),
    ),
}


def vary_shape(shape: Shape, rng: np.random.Generator) -> Shape:
    """Another car of the same kind: lengths within some per cent of the table's."""
    scale = rng.uniform(0.95, 1.05, 4)
    shift = rng.uniform(-0.015, 0.015, 2)
    return replace(
        shape,
        length=shape.length * scale[0],
        width=shape.width * (1 + (scale[1] - 1) * 0.5),
        roof=shape.roof * scale[2],
        wheel=shape.wheel * scale[3],
        roof_from=shape.roof_from + shift[0],
        roof_to=shape.roof_to + shift[1],
    )


def _rounded(at: list[float], values: list[float], stations: Array, width: int = 13) -> Array:
    """Straight lines through the control points with their corners rounded by two moving averages."""
    dense = np.linspace(-0.1, 1.1, 481)
    line = np.interp(dense, at, values)
    box = np.ones(width) / width
    for _ in range(2):
        line = np.convolve(np.pad(line, width // 2, mode='edge'), box, mode='valid')
    return np.interp(stations, dense, line)


def shoulder_height(shape: Shape, stations: Array) -> Array:
    """Metres from the floor to the line where the side turns into hood, glass or deck."""
    nose, tail = shape.hood[0] - 0.16, shape.deck[1] - 0.16
    at = [0.0, 0.035, shape.cowl, shape.rear, 0.97, 1.0]
    values = [nose, shape.hood[0], shape.hood[1], shape.deck[0], shape.deck[1], tail]
    if shape.rear > 0.9:
        at, values = at[:3] + [0.95, 1.0], [*values[:3], shape.deck[0], shape.deck[1]]
    return _rounded(at, values, stations, 7)


def roof_height(shape: Shape, stations: Array) -> Array:
    """Metres from the floor to the top of the section; hood and deck are the shoulder's own height."""
    shoulder = shoulder_height(shape, stations)
    at = [0.0, shape.cowl, shape.roof_from, 0.5 * (shape.roof_from + shape.roof_to), shape.roof_to, shape.rear, 1.0]
    cabin = [0.0, 0.0, 0.96, 1.0, 0.96, 0.0, 0.0]
    return shoulder + _rounded(at, cabin, stations, 11) * (shape.roof - shoulder)


def bottom_height(shape: Shape, stations: Array) -> Array:
    """Metres from the floor to the lower edge of the body."""
    return _rounded([0.0, 0.1, 0.88, 1.0], [shape.sill + 0.06, shape.sill, shape.sill, shape.sill + 0.12], stations)


def half_width(shape: Shape, stations: Array) -> Array:
    """Metres from the middle plane to the widest point of each section."""
    return 0.5 * shape.width * (1 - 0.20 * np.abs(2 * stations - 1) ** 5)


def _half_section(shape: Shape, stations: Array) -> Array:
    """(stations, 8, 2): y and z from the sill to the middle of the roof, left side."""
    low, shoulder, top = (f(shape, stations) for f in (bottom_height, shoulder_height, roof_height))
    wide = half_width(shape, stations)
    cabin = top - shoulder
    inset = 0.90 * wide - 0.30 * cabin
    y = [0.90 * wide, 0.985 * wide, wide, 0.97 * wide, 0.92 * wide, inset, 0.80 * inset, 0 * wide]
    rise = shoulder - low
    z = [
        low,
        low + 0.2 * rise,
        low + 0.6 * rise,
        shoulder - 0.05,
        shoulder,
        top - 0.06 * (cabin > 0.1),
        top,
        top + 0.03,
    ]
    return np.stack([np.stack(y, 1), np.stack(z, 1)], 2)


def skin(shape: Shape) -> Array:
    """(STATIONS, RING, 3): the points of the body."""
    stations = np.linspace(0, 1, STATIONS)
    left = _half_section(shape, stations)
    right = left[:, -2::-1] * np.array([-1.0, 1.0])
    section = np.concatenate([left, right], axis=1)
    x = np.broadcast_to((0.5 - stations)[:, None, None] * shape.length, (STATIONS, RING, 1))
    return np.concatenate([x, section], axis=2)


def on_skin(points: Array, where: Array) -> Array:
    """(N, 3): the points of the skin at `where`, (N, 2) of (station, ring), bilinear between its corners."""
    station = np.clip(where[:, 0], 0, 1) * (STATIONS - 1)
    ring = np.clip(where[:, 1], 0, RING - 1)
    i, j = np.minimum(station.astype(int), STATIONS - 2), np.minimum(ring.astype(int), RING - 2)
    s, r = (station - i)[:, None], (ring - j)[:, None]
    near = points[i, j] * (1 - r) + points[i, j + 1] * r
    far = points[i + 1, j] * (1 - r) + points[i + 1, j + 1] * r
    return near * (1 - s) + far * s


def outline(corners: list[tuple[float, float]], steps: int = 8) -> Array:
    """(N, 2): a closed polygon in (station, ring) with `steps` points on each side, so that it follows the skin."""
    closed = np.array([*corners, corners[0]])
    t = np.linspace(0, 1, steps, endpoint=False)[:, None]
    return np.concatenate([a * (1 - t) + b * t for a, b in pairwise(closed)])


def mirrored(where: Array) -> Array:
    """The same place on the other side of the car, wound the same way as seen from outside."""
    return np.stack([where[:, 0], RING - 1 - where[:, 1]], 1)[::-1]
