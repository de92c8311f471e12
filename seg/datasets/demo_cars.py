"""Made-up cars in Carvana's own layout: `train/HASH_NN.jpg`, `train_masks/HASH_NN_mask.gif`, `val/`, `val_masks/`.

A car follows from the seed, its half of the data and its number alone: asking for more cars leaves the others as they were.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from seg.datasets.demo_cars_body import Array
from seg.datasets.demo_cars_look import choose_camera, choose_car, choose_studio, choose_thing
from seg.datasets.demo_cars_render import Camera, Car, CarPainter, Pose
from seg.datasets.demo_cars_scene import Studio, Thing, blend, car_shadow, draw_things, empty_studio, photograph
from seg.errors import UserError

VERSION = 1
"""Raised when the same settings begin to give other pictures."""
MARK = 'demo_cars.json'
"""The file in the folder that says it is ours: the settings and the cars' names."""
SPLITS = ('train', 'val')
SUPERSAMPLING = 3


@dataclass(frozen=True)
class Settings:
    """How many made-up cars; `size` is a photograph's width and height in pixels."""

    cars: int = 40
    val_cars: int = 8
    views: int = 8
    size: tuple[int, int] = (480, 320)
    seed: int = 0

    def check(self) -> None:
        """Raises UserError that names the setting."""
        limits = {'cars': (1, 9999), 'val_cars': (0, 9999), 'views': (1, 99), 'seed': (0, 2**32 - 1)}
        given = {name: getattr(self, name) for name in limits}
        given |= {'width': self.size[0], 'height': self.size[1]}
        for name, (low, high) in (limits | {'width': (48, 4096), 'height': (48, 4096)}).items():
            if not low <= given[name] <= high:
                raise UserError(f'{name} must be from {low} to {high}, got {given[name]}')

    def count(self, split: str) -> int:
        return self.cars if split == 'train' else self.val_cars


@dataclass(frozen=True)
class Session:
    """One car in one studio: what its views share. `start` is the turntable's angle at the first view, radians."""

    car: Car
    studio: Studio
    things: tuple[Thing, ...]
    camera: Camera
    floor_gloss: float
    start: float


def car_name(settings: Settings, split: str, number: int) -> str:
    """Twelve hexadecimal digits, as Carvana names its cars."""
    return hashlib.sha256(f'made-up car {settings.seed} {split} {number}'.encode()).hexdigest()[:12]


def _dice(settings: Settings, split: str, number: int, view: int) -> np.random.Generator:
    """View 0 is the car itself."""
    return np.random.default_rng([settings.seed, SPLITS.index(split), number, view])


def make_session(settings: Settings, split: str, number: int) -> Session:
    rng = _dice(settings, split, number, 0)
    car = choose_car(number + 2 * SPLITS.index(split), rng)
    return Session(
        car=car,
        studio=choose_studio(car.paint, rng),
        things=tuple(choose_thing(car.paint, rng) for _ in range(rng.integers(4, 9))),
        camera=choose_camera(settings.size, car.shape.length, rng),
        floor_gloss=float(rng.uniform(0.05, 0.25)),
        start=float(rng.uniform(-0.1, 0.1)),
    )


def draw_view(session: Session, picture: Array, turn: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """The photograph (H, W, 3) and its mask (H, W) of 0 and 1, the car `turn` of a full turn on from the front.

    `picture` is the empty studio, and is drawn on. A pixel is the car's where the car covers at least half of it.
    """
    angle = -np.pi / 2 - 2 * np.pi * turn + session.start + rng.normal(0, 0.03)
    pose = Pose(float(angle), (float(rng.normal(0, 0.10)), float(rng.normal(0, 0.10))))
    camera, car, around = session.camera, session.car, session.studio.surroundings
    draw_things(picture, [thing for thing in session.things if rng.random() < 0.8], camera)
    car_shadow(picture, pose, (car.shape.length, car.shape.width), camera)
    mirrored = CarPainter(car, pose, camera, around, upside_down=True).draw()
    blend(picture, mirrored, strength=session.floor_gloss, blur=0.008 * camera.height)
    layer = CarPainter(car, pose, camera.scaled(SUPERSAMPLING), around).draw()
    blend(picture, layer)
    photo = photograph(picture, float(rng.uniform(1.5, 4.0)), float(rng.uniform(0.93, 1.07)), rng)
    cover = cv2.resize(layer[..., 3], (camera.width, camera.height), interpolation=cv2.INTER_AREA)
    return photo, (cover >= 128).astype(np.uint8)


def car_views(settings: Settings, split: str, number: int) -> Iterator[tuple[str, Array, Array]]:
    """(HASH_NN, photograph, mask) of each view of one car; `split` is train or val."""
    session = make_session(settings, split, number)
    empty = empty_studio(session.studio, session.camera)
    for view in range(settings.views):
        rng = _dice(settings, split, number, view + 1)
        photo, mask = draw_view(session, empty.copy(), view / settings.views, rng)
        yield f'{car_name(settings, split, number)}_{view + 1:02d}', photo, mask


# The folder.


def _mark_of(settings: Settings) -> dict[str, Any]:
    names = {split: [car_name(settings, split, i) for i in range(settings.count(split))] for split in SPLITS}
    return {'version': VERSION, 'seed': settings.seed, 'size': list(settings.size), 'views': settings.views, **names}


def _read_mark(out: Path) -> dict[str, Any] | None:
    """The mark an earlier run left, None where there is none that could be ours."""
    try:
        mark = json.loads((out / MARK).read_text(encoding='utf-8'))
        names = [name for split in SPLITS for name in mark[split]]
        ours = mark['views'] in range(1, 100) and all(re.fullmatch('[0-9a-f]{12}', name) for name in names)
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None
    return mark if ours else None


def _files_of(mark: dict[str, Any]) -> list[Path]:
    """Every picture that a mark stands for, relative to the folder."""
    stems = [(s, f'{name}_{v + 1:02d}') for s in SPLITS for name in mark[s] for v in range(mark['views'])]
    return [path for s, stem in stems for path in (Path(s, f'{stem}.jpg'), Path(f'{s}_masks', f'{stem}_mask.gif'))]


def _claim(out: Path, force: bool) -> dict[str, Any] | None:
    """The mark of what already lies in `out`; raises UserError where the folder is somebody else's."""
    if out.exists() and not out.is_dir():
        raise UserError(f'{out} is a file; give a folder for the made-up cars')
    old = _read_mark(out)
    if old is None and not force and out.exists() and any(out.iterdir()):
        raise UserError(
            f'{out} is not empty and was not made by this tool (it has no {MARK}); give another folder, '
            'or --force to write the made-up cars among what is there'
        )
    return old


def _save(out: Path, split: str, stem: str, photo: Array, mask: Array) -> None:
    Image.fromarray(photo).save(out / split / f'{stem}.jpg', quality=90)
    picture = Image.fromarray(mask)
    picture.putpalette([0, 0, 0, 255, 255, 255])
    picture.save(out / f'{split}_masks' / f'{stem}_mask.gif')


def _draw_all(out: Path, settings: Settings) -> None:
    for split in SPLITS:
        (out / split).mkdir(parents=True, exist_ok=True)
        (out / f'{split}_masks').mkdir(exist_ok=True)
    mark = _mark_of(settings)
    (out / MARK).write_text(json.dumps(mark), encoding='utf-8')
    for split in SPLITS:
        for number in range(settings.count(split)):
            for stem, photo, mask in car_views(settings, split, number):
                _save(out, split, stem, photo, mask)
    (out / MARK).write_text(json.dumps({**mark, 'finished': True}), encoding='utf-8')


def write_demo_cars(out: Path, settings: Settings, force: bool = False) -> str:
    """Draws the data set into `out` and says what lies there; a finished set of the same settings is left as it is.

    What an earlier run wrote there is removed first; nothing else is. Raises UserError for settings out of range, for
    a folder with anything else in it, unless `force`, and for one that cannot be written to.
    """
    settings.check()
    try:
        return _write(out, settings, force)
    except OSError as error:
        raise UserError(f'the made-up cars cannot be written to {out}: {error}') from error


def _write(out: Path, settings: Settings, force: bool) -> str:
    mark, old = _mark_of(settings), _claim(out, force)
    if old == {**mark, 'finished': True} and not force and all((out / path).is_file() for path in _files_of(mark)):
        return f'{_summary(out, settings)} (already there)'
    for path in _files_of(old) if old else []:
        (out / path).unlink(missing_ok=True)
    _draw_all(out, settings)
    return _summary(out, settings)


def _summary(out: Path, settings: Settings) -> str:
    wide, high = settings.size
    return (
        f'{out}: drawings of made-up cars, no photographs, in the layout of Carvana: '
        f'train/ and train_masks/ hold {settings.cars} cars, val/ and val_masks/ {settings.val_cars} others, '
        f'{settings.views} views each, {wide}x{high}, seed {settings.seed}'
    )
