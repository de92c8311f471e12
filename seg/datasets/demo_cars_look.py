"""What a made-up car and its studio look like, drawn by lot: shape, paint, wheels, walls, clutter, camera."""

import numpy as np

from seg.datasets.demo_cars_body import SHAPES, Array, vary_shape
from seg.datasets.demo_cars_render import Camera, Car, Colour
from seg.datasets.demo_cars_scene import WALL_AT, Studio, Thing

PAINTS: tuple[tuple[Colour, ...], ...] = (
    ((232, 232, 230), (214, 208, 196), (196, 200, 204)),
    ((150, 26, 34), (32, 66, 140), (190, 92, 24), (30, 92, 62)),
    ((28, 29, 32), (44, 46, 58), (58, 30, 34)),
    ((128, 131, 136), (100, 108, 118), (150, 140, 122)),
    ((196, 160, 40), (92, 40, 96), (60, 130, 160), (120, 70, 44)),
)
"""Light, strong, dark, grey and odd paints; cars take the groups in turn."""


def choose_car(number: int, rng: np.random.Generator) -> Car:
    group = PAINTS[number % len(PAINTS)]
    paint = np.array(group[rng.integers(len(group))]) * rng.uniform(0.85, 1.1) + rng.uniform(-7, 7, 3)
    kinds = list(SHAPES)
    shape = vary_shape(SHAPES[kinds[(number + number // len(kinds)) % len(kinds)]], rng)
    return Car(
        shape=shape,
        paint=np.clip(paint, 14, 245),
        trim=np.clip(paint, 14, 245) * 0.8 if rng.random() < 0.5 else np.array([44.0, 44, 47]),
        rim=np.array([1.0, 1, 1.02]) * (rng.uniform(150, 215) if rng.random() < 0.75 else 70),
        glass=float(rng.uniform(0.2, 0.6)),
        spokes=int(rng.integers(5, 11)),
        gloss=float(rng.uniform(0.5, 1.0)),
    )


def _like(colour: Array, rng: np.random.Generator) -> Array:
    """The colour in another light: the same hue, nearly the same brightness."""
    return np.clip(colour * rng.uniform(0.75, 1.15) + rng.uniform(-6, 6, 3), 8, 250)


def _sheet(rng: np.random.Generator) -> list[tuple[float, float, float]]:
    """The corners of a rectangle on the wall."""
    x, z = rng.uniform(-4.0, 4.0), rng.uniform(0.0, 0.8)
    half, high = 0.5 * rng.uniform(1.0, 2.4), z + rng.uniform(0.9, 2.4)
    return [(x - half, WALL_AT, z), (x + half, WALL_AT, z), (x + half, WALL_AT, high), (x - half, WALL_AT, high)]


def _mat(rng: np.random.Generator) -> list[tuple[float, float, float]]:
    """The corners of a rectangle on the floor beside, behind or before the turntable."""
    x, half = rng.uniform(-4.5, 4.5), 0.5 * rng.uniform(1.2, 2.6)
    deep, beside, before = rng.uniform(0.8, 1.8), rng.uniform(-3.0, 1.5), rng.uniform(-3.0, -2.6)
    if abs(x) - half > 2.5:
        y = beside
    else:
        y = before - deep if rng.random() < 0.7 else -before
    return [(x - half, y, 0), (x + half, y, 0), (x + half, y + deep, 0), (x - half, y + deep, 0)]


def _panel(paint: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    corners = _sheet(rng) if rng.random() < 0.5 else _mat(rng)
    return np.array(corners), _like(paint, rng)


def _tinted(grey: float, paint: Array, rng: np.random.Generator) -> Array:
    """A grey with a slight cast, drawn up to a third of the way to the car's paint in every other studio."""
    colour = np.clip(grey + rng.uniform(-9, 9, 3), 0, 250)
    pull = rng.uniform(0, 0.35) if rng.random() < 0.5 else 0.0
    return colour * (1 - pull) + paint * pull


def choose_studio(paint: Array, rng: np.random.Generator) -> Studio:
    """Walls and floors of a grey studio; panels, mats and letters mostly in the car's own colour."""
    return Studio(
        wall=_tinted(rng.uniform(140, 228), paint, rng),
        floor=_tinted(rng.uniform(90, 180), paint, rng),
        letters=_like(paint, rng) if rng.random() < 0.5 else np.array([70.0, 70, 74]),
        word_at=(float(rng.uniform(-4.4, -2.8)), float(rng.uniform(1.3, 1.9))),
        panels=tuple(_panel(paint, rng) for _ in range(rng.integers(3, 7))),
        ring=float(rng.uniform(2.7, 3.3)),
        light=(float(rng.uniform(-0.08, 0.08)), float(rng.uniform(0.05, 0.25))),
    )


SIZES = {
    'box': (0.5, 1.1, 0.5, 1.2),
    'cone': (0.35, 0.5, 0.5, 0.8),
    'banner': (0.7, 1.2, 1.6, 2.3),
    'barrel': (0.55, 0.75, 0.8, 1.1),
    'tyres': (0.6, 0.75, 0.6, 0.95),
    'lamp': (0.7, 1.1, 2.0, 2.6),
}
"""Smallest and largest width, smallest and largest height, metres."""


def choose_thing(paint: Array, rng: np.random.Generator) -> Thing:
    kind = list(SIZES)[rng.integers(len(SIZES))]
    w0, w1, h0, h1 = SIZES[kind]
    colour = _like(paint, rng) if rng.random() < 0.6 else rng.uniform(25, 225, 3)
    x = rng.uniform(-4.2, 4.2)
    y = rng.uniform(0.4, 4.0) if abs(x) > 3.0 else rng.uniform(2.9, 4.2)
    return Thing(kind, (float(x), float(y)), (float(rng.uniform(w0, w1)), float(rng.uniform(h0, h1))), colour)


def choose_camera(size: tuple[int, int], length: float, rng: np.random.Generator) -> Camera:
    """A focal length at which a car of `length` metres fills the picture's width to a few per cent, side on."""
    focal = min(size[0], 1.5 * size[1]) * rng.uniform(1.05, 1.20) * min(1.0, 4.75 / length)
    return Camera(
        *size, focal, float(rng.uniform(7.1, 7.9)), float(rng.uniform(1.4, 2.1)), float(rng.uniform(0.6, 0.95))
    )
