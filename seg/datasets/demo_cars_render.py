"""Draws a made-up car by the painter's algorithm: far faces first, each face one colour.

World frame: x right, y away from the camera, z up, the floor at z = 0, the turntable's middle at the origin, metres.
"""

from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np

from seg.datasets.demo_cars_body import RING, Array, Shape, bottom_height, half_width, mirrored, on_skin, outline, skin

Colour = tuple[float, float, float]

TYRE = np.array([30.0, 30.0, 32.0])
LAMP = np.array([225.0, 225.0, 220.0])
TAIL_LAMP = np.array([150.0, 18.0, 22.0])
PLATE = np.array([215.0, 222.0, 230.0])
LIGHT = np.array([-0.35, -0.55, 0.76])
"""The direction towards the lamp."""


@dataclass(frozen=True)
class Camera:
    """A pinhole at (0, -distance, height), tilted to look at `target` metres above the middle of the turntable."""

    width: int
    height: int
    focal: float
    distance: float
    above: float
    target: float

    @property
    def place(self) -> Array:
        return np.array([0.0, -self.distance, self.above])

    def project(self, points: Array) -> Array:
        """(..., 2): pixels from the top left corner of the picture, of (..., 3) points in the world."""
        tilt = np.arctan2(self.above - self.target, self.distance)
        away, up = np.array([0.0, np.cos(tilt), -np.sin(tilt)]), np.array([0.0, np.sin(tilt), np.cos(tilt)])
        seen = points - self.place
        depth = np.maximum(seen @ away, 0.1)
        right, high = seen[..., 0] / depth, (seen @ up) / depth
        return np.stack([0.5 * self.width + self.focal * right, 0.5 * self.height - self.focal * high], -1)

    def scaled(self, times: int) -> 'Camera':
        """The same view on a picture `times` larger."""
        return Camera(
            self.width * times, self.height * times, self.focal * times, self.distance, self.above, self.target
        )


@dataclass(frozen=True)
class Car:
    """What all views of one car share."""

    shape: Shape
    paint: Array
    trim: Array
    """The colour of the sills and bumpers' lower part."""
    rim: Array
    glass: float
    """How much of what the windows mirror is seen in them, 0..1."""
    spokes: int
    gloss: float


@dataclass(frozen=True)
class Surroundings:
    """The colours that paint and glass mirror."""

    wall: Array
    floor: Array
    lamp: Array

    def mirrored(self, directions: Array) -> Array:
        """(N, 3): the colour seen in each of the (N, 3) unit directions."""
        up = directions[:, 2:3]
        wall = self.wall + (self.lamp - self.wall) * np.clip(up * 1.6 - 0.3, 0, 1)
        above = np.clip(up * 8 + 0.5, 0, 1)
        return self.floor * (1 - above) + wall * above


@dataclass(frozen=True)
class Pose:
    """Where the car stands: turned by `angle` (radians, 0: nose to the right) and moved on the floor."""

    angle: float
    offset: tuple[float, float]

    def place(self, points: Array) -> Array:
        c, s = np.cos(self.angle), np.sin(self.angle)
        turn = np.array([[c, s, 0], [-s, c, 0], [0, 0, 1.0]])
        return points @ turn + np.array([*self.offset, 0.0])


def fill(canvas: Array, pixels: Array, colour: Array) -> None:
    """Fill a polygon of (N, 2) pixels; sixteenths of a pixel are kept. A fourth channel, if there is one, becomes 255."""
    corners = np.rint((pixels - 0.5) * 16).astype(np.int32)
    paint = [float(c) for c in np.clip(np.rint(colour), 0, 255)] + [255.0]
    edge = cv2.LINE_AA if canvas.shape[2] == 3 else cv2.LINE_8  # layers are drawn larger and averaged down instead
    cv2.fillPoly(canvas, [corners], paint[: canvas.shape[2]], edge, shift=4)


class CarPainter:
    """One car in one pose before one camera. `draw` gives RGBA whose alpha is 255 on the car and 0 elsewhere."""

    def __init__(self, car: Car, pose: Pose, camera: Camera, around: Surroundings, upside_down: bool = False) -> None:
        self.car, self.pose, self.camera, self.around = car, pose, camera, around
        self.points = skin(car.shape)
        self.flip = np.array([1.0, 1.0, -1.0 if upside_down else 1.0])
        self.eye = camera.place * self.flip
        self.canvas = np.zeros((camera.height, camera.width, 4), np.uint8)
        here = pose.place(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
        away = self.eye - here[2]
        self.eye_in_car = np.array([away @ (here[0] - here[2]), away @ (here[1] - here[2]), away[2]])

    def draw(self) -> Array:
        sides = (1, -1)
        for side in sides:
            self._mirror(side)
            for axle in self.car.shape.axles:
                self._tyre(axle, side)
        self._body()
        self._panels()
        self._ends()
        for side in sides:
            if side * self.eye_in_car[1] > 0.5 * self.car.shape.width:
                self._side(side)
        return self.canvas

    # The three things that everything else is drawn with.

    def _fill(self, points: Array, colour: Array) -> None:
        """Fill a polygon of (N, 3) points in the car's frame."""
        fill(self.canvas, self.camera.project(self.pose.place(points) * self.flip), colour)

    def _faces_eye(self, points: Array) -> bool:
        """Whether a polygon wound anticlockwise as seen from outside shows its outside."""
        after = np.roll(points, -1, axis=0)
        normal = np.cross(points - points[0], after - points[0]).sum(0)
        return bool(normal @ (self.eye_in_car - points.mean(0)) > 0)

    def _shade(self, base: Array, normals: Array, middles: Array, gloss: float) -> Array:
        """(N, 3): colours of faces with outward unit `normals` at `middles`, both (N, 3) in the world."""
        sight = middles - self.eye
        sight = sight / np.linalg.norm(sight, axis=1, keepdims=True)
        facing = np.clip(-(sight * normals).sum(1, keepdims=True), 0, 1)
        bounced = sight + 2 * facing * normals
        lit = np.clip(normals @ LIGHT, 0, 1)[:, None]
        shine = np.clip(bounced @ LIGHT, 0, 1)[:, None] ** 24
        mirror = gloss * (0.10 + 0.75 * (1 - facing) ** 3)
        seen = self.around.mirrored(bounced)
        return base * (0.42 + 0.62 * lit) * (1 - mirror) + seen * mirror + 170 * gloss * shine

    # The body.

    def _quads(self) -> tuple[Array, Array]:
        """(N, 4, 3) faces of the skin in the car's frame, wound anticlockwise from outside, and their (N,) ring."""
        p = self.points
        quads = np.stack([p[:-1, :-1], p[1:, :-1], p[1:, 1:], p[:-1, 1:]], axis=2)
        rings = np.broadcast_to(np.arange(RING - 1), quads.shape[:2])
        return quads.reshape(-1, 4, 3), rings.reshape(-1)

    def _body(self) -> None:
        quads, rings = self._quads()
        for end in (self.points[0], self.points[-1, ::-1]):
            if self._faces_eye(end):
                self._fill(end, self._flat(end, self.car.paint, self.car.gloss))
        world = self.pose.place(quads)
        normals = np.cross(world[:, 2] - world[:, 0], world[:, 3] - world[:, 1])
        normals /= np.linalg.norm(normals, axis=1, keepdims=True) + 1e-9
        middles = world.mean(1)
        base = np.where(np.isin(rings, (0, RING - 2))[:, None], self.car.trim, self.car.paint)
        colours = self._shade(base, normals, middles, self.car.gloss)
        depth = np.linalg.norm(middles - self.eye, axis=1)
        seen = (normals * (self.eye - middles)).sum(1) > 0
        pixels = self.camera.project(world * self.flip)
        for i in np.argsort(-depth, kind='stable'):
            if seen[i]:
                fill(self.canvas, pixels[i], colours[i])

    def _flat(self, points: Array, base: Array, gloss: float) -> Array:
        """The colour of one plane polygon in the car's frame."""
        world = self.pose.place(points)
        normal = np.cross(world - world[0], np.roll(world, -1, axis=0) - world[0]).sum(0)
        normal = normal / (np.linalg.norm(normal) + 1e-9)
        return self._shade(base, normal[None], world.mean(0)[None], gloss)[0]

    # What lies on the skin.

    def _patch(self, corners: list[tuple[float, float]], base: Array, gloss: float, both: bool = False) -> None:
        """A coloured patch with (station, ring) corners, left side, and its twin on the right."""
        where = outline(corners)
        for place in (where, mirrored(where)) if both else (where,):
            points = on_skin(self.points, place)
            if self._faces_eye(points):
                self._fill(points, self._flat(points, base, gloss))

    def _glass(self, corners: list[tuple[float, float]], both: bool = False) -> None:
        """A window: dark inside, the wall mirrored in it, a lighter streak across."""
        dark = np.array([26.0, 29.0, 33.0])
        self._patch(corners, dark * (1 - self.car.glass) + self.around.wall * self.car.glass * 0.8, 0.8, both)
        a, b, c, d = (np.array(p) for p in corners)
        streak = [a * 0.55 + b * 0.45, a * 0.3 + b * 0.7, d * 0.45 + c * 0.55, d * 0.7 + c * 0.3]
        bright = dark * 0.5 + self.around.wall * (0.25 + 0.45 * self.car.glass)
        self._patch([(float(p[0]), float(p[1])) for p in streak], bright, 0.8, both)

    def _panels(self) -> None:
        s = self.car.shape
        self._patch([(0.0, 3.9), (0.0, 2.6), (0.035, 2.6), (0.075, 3.7)], LAMP, 0.6, both=True)
        self._patch([(0.955, 3.8), (0.955, 2.4), (1.0, 2.4), (1.0, 3.8)], TAIL_LAMP, 0.5, both=True)
        if s.bed:
            self._patch([(s.rear + 0.02, 5.2), (0.985, 5.2), (0.985, 8.8), (s.rear + 0.02, 8.8)], TYRE * 1.3, 0.1)
        self._glass([(s.cowl + 0.01, 5.5), (s.roof_from - 0.01, 5.6), (s.roof_from - 0.01, 8.4), (s.cowl + 0.01, 8.5)])
        self._glass([(s.rear - 0.012, 8.5), (s.roof_to + 0.012, 8.4), (s.roof_to + 0.012, 5.6), (s.rear - 0.012, 5.5)])
        self._side_glass()

    def _side_glass(self) -> None:
        s = self.car.shape
        front = s.cowl + 0.35 * (s.roof_from - s.cowl)
        back = s.roof_to + 0.5 * (s.rear - s.roof_to)
        edges = [front, *s.pillars, back]
        for i, (a, b) in enumerate(pairwise(edges)):
            top_a = max(a, s.roof_from - 0.01) if i == 0 else a
            top_b = min(b, s.roof_to + 0.01) if i == len(edges) - 2 else b
            corners = [(a + 0.006, 4.12), (b - 0.006, 4.12), (top_b - 0.006, 4.86), (top_a + 0.006, 4.86)]
            self._glass(corners, both=True)

    def _ends(self) -> None:
        """Grille, lamps, bumper and plate, on the flat ends of the body."""
        for nose in (True, False):
            ring = self.points[0 if nose else -1]
            low, high, wide = ring[0, 2], ring[4, 2], ring[2, 1]
            tall, lamp = high - low, LAMP if nose else TAIL_LAMP
            grille, plate = (0.45, 0.30) if nose else (0.85, 0.55)
            self._end_box(nose, (-0.60 * wide, 0.60 * wide), (low + grille * tall, high - 0.03), TYRE)
            for side in (-1, 1):
                across = sorted((side * 0.62 * wide, side * 0.97 * wide))
                self._end_box(nose, (across[0], across[1]), (low + 0.62 * tall, high - 0.02), lamp)
            self._end_box(nose, (-0.88 * wide, 0.88 * wide), (low, low + 0.22 * tall), self.car.trim)
            self._end_box(nose, (-0.26, 0.26), (low + plate * tall - 0.06, low + plate * tall + 0.06), PLATE)

    def _end_box(self, nose: bool, across: tuple[float, float], up: tuple[float, float], colour: Array) -> None:
        """A rectangle on the nose's or the tail's plane: `across` and `up` in metres."""
        x = (0.5 if nose else -0.5) * self.car.shape.length
        points = np.array([[x, y, z] for y, z in zip((*across, *across[::-1]), (up[0], up[0], up[1], up[1]))])
        points = points if nose else points[::-1]
        if self._faces_eye(points):
            self._fill(points, self._flat(points, colour, 0.2))

    # Wheels and mirrors.

    def _circle(self, axle: float, y: float, radius: float, steps: int = 32) -> Array:
        turn = np.linspace(0, 2 * np.pi, steps, endpoint=False)
        s = self.car.shape
        x = (0.5 - axle) * s.length + radius * np.cos(turn)
        return np.stack([x, np.full(steps, y), s.wheel + radius * np.sin(turn)], 1)

    def _wheel_plane(self, axle: float) -> float:
        return float(half_width(self.car.shape, np.array([axle]))[0]) * 0.985

    def _tyre(self, axle: float, side: int) -> None:
        """What is seen of a tyre from all around: the hull of its two faces."""
        outer = self._wheel_plane(axle) * side
        rims = np.concatenate([self._circle(axle, y, self.car.shape.wheel) for y in (outer, outer - 0.22 * side)])
        pixels = self.camera.project(self.pose.place(rims) * self.flip)
        fill(self.canvas, cv2.convexHull(pixels.astype(np.float32))[:, 0], TYRE * 0.7)

    def _side(self, side: int) -> None:
        """What is seen of a side only from that side: arches, wheels, door lines, the mirror."""
        for axle in self.car.shape.axles:
            self._arch(axle, side)
            self._wheel(axle, side)
        self._doors(side)
        self._mirror(side)

    def _arch(self, axle: float, side: int) -> None:
        s = self.car.shape
        points = self._circle(axle, side * self._wheel_plane(axle) * 1.012, s.wheel * 1.16)
        low = float(bottom_height(s, np.array([axle]))[0])
        points[:, 2] = np.maximum(points[:, 2], low)
        self._fill(points, TYRE * 0.45)

    def _wheel(self, axle: float, side: int) -> None:
        s, y = self.car.shape, side * (self._wheel_plane(axle) + 0.005)
        self._fill(self._circle(axle, y, s.wheel), TYRE)
        self._fill(self._circle(axle, y, s.wheel * 0.70), self.car.rim)
        self._fill(self._circle(axle, y, s.wheel * 0.62), TYRE * 0.8)
        for turn in np.arange(self.car.spokes) * 2 * np.pi / self.car.spokes + 3 * axle:
            self._spoke(axle, y, float(turn))
        self._fill(self._circle(axle, y, s.wheel * 0.16, 12), self.car.rim * 0.8)

    def _spoke(self, axle: float, y: float, turn: float) -> None:
        s = self.car.shape
        along, across = np.array([np.cos(turn), np.sin(turn)]), np.array([-np.sin(turn), np.cos(turn)])
        reach, thick = 0.66 * s.wheel, 0.55 * s.wheel / self.car.spokes
        flat = np.array(
            [across * thick * 0.6, along * reach + across * thick, along * reach - across * thick, -across * thick]
        )
        centre = np.array([(0.5 - axle) * s.length, s.wheel])
        points = np.stack([flat[:, 0] + centre[0], np.full(4, y), flat[:, 1] + centre[1]], 1)
        self._fill(points, self.car.rim)

    def _doors(self, side: int) -> None:
        s = self.car.shape
        for station in (s.cowl + 0.04, s.pillars[0], s.axles[1] - 0.075):
            where = np.array(
                [(station, ring) for ring in (1.0, 2.0, 3.0, 4.0)]
                + [(station + 0.003, ring) for ring in (4.0, 3.0, 2.0, 1.0)]
            )
            where = where if side > 0 else mirrored(where)
            self._fill(on_skin(self.points, where), self.car.paint * 0.3)

    def _mirror(self, side: int) -> None:
        s = self.car.shape
        base = on_skin(self.points, np.array([[s.cowl + 0.07, 4.0]]))[0]
        size = np.array([0.06, 0.085, 0.06])
        corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * size
        centre = (base + np.array([0.0, 0.13, 0.07])) * np.array([1, side, 1])
        housing = np.concatenate([corners + centre, [base * np.array([1, side, 1])]])
        pixels = self.camera.project(self.pose.place(housing) * self.flip)
        fill(self.canvas, cv2.convexHull(pixels.astype(np.float32))[:, 0], self.car.paint * 0.7)
