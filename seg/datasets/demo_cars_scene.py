"""The studio around a made-up car: wall, floor, things left standing about, shadows, reflections, the camera's noise.

World frame and metres as in `demo_cars_render`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np

from seg.datasets.demo_cars_body import Array
from seg.datasets.demo_cars_render import Camera, Pose, Surroundings, fill

WALL_AT = 4.6
"""Metres from the middle of the turntable to the wall."""

LETTERS: dict[str, list[list[tuple[float, float]]]] = {
    'A': [[(0, 0), (0.5, 1), (1, 0)], [(0.2, 0.4), (0.8, 0.4)]],
    'C': [[(1, 0.9), (0.7, 1), (0.3, 1), (0, 0.7), (0, 0.3), (0.3, 0), (0.7, 0), (1, 0.1)]],
    'D': [[(0, 0), (0, 1), (0.6, 1), (1, 0.7), (1, 0.3), (0.6, 0), (0, 0)]],
    'E': [[(1, 0), (0, 0), (0, 1), (1, 1)], [(0, 0.5), (0.8, 0.5)]],
    'M': [[(0, 0), (0, 1), (0.5, 0.3), (1, 1), (1, 0)]],
    'O': [[(0.3, 0), (0, 0.3), (0, 0.7), (0.3, 1), (0.7, 1), (1, 0.7), (1, 0.3), (0.7, 0), (0.3, 0)]],
    'R': [[(0, 0), (0, 1), (0.8, 1), (1, 0.8), (0.8, 0.5), (0, 0.5)], [(0.5, 0.5), (1, 0)]],
    'S': [[(0, 0.1), (0.3, 0), (0.9, 0), (1, 0.3), (0, 0.7), (0.1, 1), (0.7, 1), (1, 0.9)]],
}
"""Strokes on a unit square, y up. Drawn by hand: OpenCV's own letters differ between its versions."""


@dataclass(frozen=True)
class Thing:
    """Something that stands on the floor; `at` is its foot's middle, (x, y) in metres, `size` its width and height."""

    kind: str
    at: tuple[float, float]
    size: tuple[float, float]
    colour: Array


@dataclass(frozen=True)
class Studio:
    """What all views of one car share of the place where it was photographed."""

    wall: Array
    floor: Array
    letters: Array
    word_at: tuple[float, float]
    """Left end and foot of the word on the wall: x and z in metres."""
    panels: tuple[tuple[Array, Array], ...]
    """Flat coloured areas on wall and floor: (4, 3) corners in the world, colour."""
    ring: float
    """Radius of the line on the floor, metres."""
    light: tuple[float, float]
    """How the light falls off to the side and to the front, fractions."""

    @property
    def surroundings(self) -> Surroundings:
        return Surroundings(self.wall, self.floor, np.minimum(self.wall * 1.15 + 10, 255))


def _floor_edge(camera: Camera) -> float:
    """The row, in pixels, where the floor meets the wall."""
    return float(camera.project(np.array([0.0, WALL_AT, 0.0]))[1])


def empty_studio(studio: Studio, camera: Camera) -> Array:
    """(H, W, 3) uint8: wall and floor with soft light, nothing in it but what is painted on them."""
    rows = np.arange(camera.height, dtype=np.float64)[:, None] + 0.5
    columns = (np.arange(camera.width, dtype=np.float64)[None] + 0.5) / camera.width * 2 - 1
    edge = _floor_edge(camera) + camera.height * 0.03 * (1 - columns**2)
    on_floor = np.clip((rows - edge) / (0.01 * camera.height) + 0.5, 0, 1)[..., None]
    near = np.clip((rows - edge) / (camera.height - edge), 0, 1)[..., None]
    side, front = studio.light
    wall = studio.wall * (1 + side * columns[..., None] - 0.10 * (columns**2)[..., None])
    floor = studio.floor * (1.06 - front * near + side * columns[..., None])
    picture = np.clip(np.rint(wall * (1 - on_floor) + floor * on_floor), 0, 255).astype(np.uint8)
    _panels(picture, studio, camera)
    _word(picture, studio, camera)
    _ring(picture, studio, camera)
    return picture


def _panels(picture: Array, studio: Studio, camera: Camera) -> None:
    """Each with a darker hem."""
    for corners, colour in studio.panels:
        fill(picture, camera.project(corners), colour * 0.75)
        middle = corners.mean(0)
        fill(picture, camera.project(middle + (corners - middle) * 0.94), colour)


def _word(picture: Array, studio: Studio, camera: Camera) -> None:
    x, z = studio.word_at
    thick = max(1, round(0.022 * camera.height))
    for letter in 'DEMOCARS':
        for stroke in LETTERS[letter]:
            points = np.array([[x + 0.62 * u, WALL_AT, z + 0.85 * v] for u, v in stroke])
            pixels = np.rint((camera.project(points) - 0.5) * 16).astype(np.int32)
            cv2.polylines(picture, [pixels], False, [float(c) for c in studio.letters], thick, cv2.LINE_AA, shift=4)
        x += 0.92


def _circle(radius: float, at: tuple[float, float] = (0.0, 0.0), height: float = 0.0, steps: int = 48) -> Array:
    turn = np.linspace(0, 2 * np.pi, steps, endpoint=False)
    return np.stack([at[0] + radius * np.cos(turn), at[1] + radius * np.sin(turn), np.full(steps, height)], 1)


def _ring(picture: Array, studio: Studio, camera: Camera) -> None:
    pixels = np.rint((camera.project(_circle(studio.ring)) - 0.5) * 16).astype(np.int32)
    colour = [float(c) for c in studio.floor * 0.7]
    cv2.polylines(picture, [pixels], True, colour, max(1, camera.height // 200), cv2.LINE_AA, shift=4)


# Things that stand about.


def draw_things(picture: Array, things: list[Thing], camera: Camera) -> None:
    """The far ones first, each with its shadow on the floor."""
    for thing in sorted(things, key=lambda t: -t.at[1]):
        _soft_shadow(picture, camera.project(_circle(0.65 * thing.size[0], thing.at)), 0.45, 0.012 * camera.height)
        DRAW[thing.kind](picture, thing, camera)


def _soft_shadow(picture: Array, pixels: Array, strength: float, blur: float) -> None:
    """Darken what lies inside the polygon by `strength` at its middle, with an edge about `blur` pixels wide."""
    blur = max(blur, 0.5)
    low = np.maximum(np.floor(pixels.min(0) - 3 * blur), 0).astype(int)
    high = np.maximum(np.ceil(pixels.max(0) + 3 * blur), 0).astype(int)
    part = picture[low[1] : high[1], low[0] : high[0]]
    if part.size:
        shade = np.zeros((*part.shape[:2], 1), np.uint8)
        fill(shade, pixels - low, np.array([255.0]))
        soft = cv2.GaussianBlur(shade, (0, 0), blur)[..., None].astype(np.float32)
        part[:] = np.rint(part * (1 - soft * np.float32(strength / 255)))


def _upright(thing: Thing, camera: Camera, box: tuple[float, float, float, float]) -> Array:
    """Pixels of an upright rectangle: x0, z0, x1, z1 as fractions of the thing's width (from its middle) and height."""
    x0, z0, x1, z1 = box
    (x, y), (wide, tall) = thing.at, thing.size
    corners = [(x0, z0), (x1, z0), (x1, z1), (x0, z1)]
    return camera.project(np.array([[x + wide * u, y, tall * v] for u, v in corners]))


def _box(picture: Array, thing: Thing, camera: Camera) -> None:
    (x, y), (wide, tall) = thing.at, thing.size
    top = np.array(
        [
            [x - wide / 2, y, tall],
            [x + wide / 2, y, tall],
            [x + wide / 2, y + wide, tall],
            [x - wide / 2, y + wide, tall],
        ]
    )
    fill(picture, camera.project(top), thing.colour * 1.15)
    fill(picture, _upright(thing, camera, (-0.5, 0, 0.5, 1)), thing.colour * 0.8)
    fill(picture, _upright(thing, camera, (-0.42, 0.52, 0.42, 0.9)), thing.colour * 0.9)


def _cone(picture: Array, thing: Thing, camera: Camera) -> None:
    fill(picture, _upright(thing, camera, (-0.5, 0, 0.5, 0.08)), thing.colour * 0.6)
    for low, high, shade in ((0.0, 1.0, thing.colour), (0.4, 0.65, np.array([225.0, 225, 225]))):
        a, b = 0.38 * (1 - low), 0.38 * (1 - high) + 0.03
        (x, y), (wide, tall) = thing.at, thing.size
        corners = np.array([[-a * wide, low], [a * wide, low], [b * wide, high], [-b * wide, high]])
        points = np.stack([x + corners[:, 0], np.full(4, y), corners[:, 1] * tall], 1)
        fill(picture, camera.project(points), shade)


def _banner(picture: Array, thing: Thing, camera: Camera) -> None:
    fill(picture, _upright(thing, camera, (-0.35, 0, 0.35, 0.03)), np.array([60.0, 60, 62]))
    fill(picture, _upright(thing, camera, (-0.5, 0.05, 0.5, 1)), thing.colour)
    fill(picture, _upright(thing, camera, (-0.35, 0.6, 0.35, 0.8)), thing.colour * 0.6 + 90)
    fill(picture, _upright(thing, camera, (-0.35, 0.2, 0.1, 0.26)), thing.colour * 0.5)


def _barrel(picture: Array, thing: Thing, camera: Camera) -> None:
    for i, shade in enumerate((0.55, 0.8, 1.0, 1.1, 0.9, 0.65)):
        left = i / 6 - 0.5
        fill(picture, _upright(thing, camera, (left, 0, left + 0.17, 1)), thing.colour * shade)
    fill(picture, camera.project(_circle(0.5 * thing.size[0], thing.at, thing.size[1])), thing.colour * 1.15)


def _tyres(picture: Array, thing: Thing, camera: Camera) -> None:
    for i in range(4):
        foot = thing.size[1] * i / 4
        side = np.concatenate([_circle(0.5 * thing.size[0], thing.at, h) for h in (foot, foot + thing.size[1] * 0.22)])
        hull = cv2.convexHull(camera.project(side).astype(np.float32))[:, 0]
        fill(picture, hull, np.array([34.0, 34, 36]) * (1 + 0.25 * (i % 2)))
    fill(picture, camera.project(_circle(0.28 * thing.size[0], thing.at, thing.size[1])), np.array([90.0, 90, 92]))


def _lamp(picture: Array, thing: Thing, camera: Camera) -> None:
    fill(picture, _upright(thing, camera, (-0.03, 0, 0.03, 0.8)), np.array([45.0, 45, 48]))
    fill(picture, _upright(thing, camera, (-0.3, 0, 0.3, 0.02)), np.array([45.0, 45, 48]))
    fill(picture, _upright(thing, camera, (-0.5, 0.72, 0.5, 1)), np.array([40.0, 40, 42]))
    fill(picture, _upright(thing, camera, (-0.44, 0.74, 0.44, 0.98)), np.array([250.0, 250, 246]))


DRAW: dict[str, Callable[[Array, Thing, Camera], None]] = {
    'box': _box,
    'cone': _cone,
    'banner': _banner,
    'barrel': _barrel,
    'tyres': _tyres,
    'lamp': _lamp,
}


# What the car does to the floor.


def car_shadow(picture: Array, pose: Pose, size: tuple[float, float], camera: Camera) -> None:
    """The soft shadow of the studio's lamps and the dark one right under the car; `size` is its length and width."""
    for grow, strength, blur, shift in ((1.12, 0.35, 0.035, 0.12), (0.94, 0.55, 0.010, 0.0)):
        x, y = 0.5 * size[0] * grow, 0.5 * size[1] * grow
        foot = np.array([[x, y, 0], [-x, y, 0], [-x, -y, 0], [x, -y, 0]])
        pixels = camera.project(pose.place(foot) + np.array([shift, 0.05, 0.0]))
        _soft_shadow(picture, pixels, strength, blur * camera.height)


def _touched(layer: Array, step: int, margin: int) -> tuple[slice, slice]:
    """The part of an RGBA layer that is not empty, grown to whole blocks of `step` pixels and by `margin` of them."""
    spans = []
    for axis in (1, 0):
        used = np.flatnonzero(layer[..., 3].any(axis=axis))
        first, last = (used[0], used[-1] + 1) if used.size else (0, step)
        low, high = (
            max(int(first) // step - margin, 0),
            min(-(-int(last) // step) + margin, layer.shape[1 - axis] // step),
        )
        spans.append(slice(low, high))
    return spans[0], spans[1]


def blend(picture: Array, layer: Array, strength: float = 1.0, blur: float = 0.0) -> None:
    """Lay the RGBA `layer`, a whole number of times larger than the picture, averaged down and blurred, over it."""
    step = layer.shape[0] // picture.shape[0]
    rows, columns = _touched(layer, step, round(3 * blur))
    part = picture[rows, columns]
    big = layer[rows.start * step : rows.stop * step, columns.start * step : columns.stop * step]
    small = cv2.resize(big, part.shape[1::-1], interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), blur) if blur else small
    over = small.astype(np.float32) * np.float32(strength)
    part[:] = np.rint(part * (1 - over[..., 3:] / 255) + over[..., :3])


def photograph(picture: Array, noise: float, exposure: float, rng: np.random.Generator) -> Array:
    """(H, W, 3) uint8: darker corners, exposure, the sensor's noise (grey levels)."""
    high, wide = picture.shape[:2]
    y, x = np.linspace(-1, 1, high)[:, None, None], np.linspace(-1, 1, wide)[None, :, None]
    light = (exposure * (1 - 0.06 * (x**2 + y**2))).astype(np.float32)
    grain = rng.standard_normal((high, wide, 3), dtype=np.float32) * np.float32(0.8 * noise)
    return np.clip(np.rint(picture * light + grain), 0, 255).astype(np.uint8)
