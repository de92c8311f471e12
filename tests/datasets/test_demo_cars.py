"""The made-up cars: their layout, their masks, that colour alone does not find them, and whose folder is written to."""

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from seg.datasets.demo_cars import MARK, Settings, car_views, make_session, write_demo_cars
from seg.datasets.demo_cars_render import Camera, CarPainter, Pose, fill
from seg.datasets.demo_cars_scene import blend
from seg.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
SMALL = Settings(cars=2, val_cars=1, views=3, size=(96, 64))


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob('*')) if p.is_file()}


@pytest.fixture(scope='module')
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp('demo') / 'cars'
    write_demo_cars(out, SMALL)
    return out


# The layout.


def test_layout_is_carvanas(small: Path) -> None:
    for split, cars in (('train', 2), ('val', 1)):
        images = sorted(p.name for p in (small / split).iterdir())
        masks = sorted(p.name for p in (small / f'{split}_masks').iterdir())
        names = sorted({name[:12] for name in images})
        assert len(names) == cars
        assert all(set(name) <= set('0123456789abcdef') for name in names)
        assert images == [f'{name}_{view}.jpg' for name in names for view in ('01', '02', '03')]
        assert masks == [image.replace('.jpg', '_mask.gif') for image in images]


def test_no_car_is_in_both_halves(small: Path) -> None:
    train, val = ({p.name[:12] for p in (small / split).iterdir()} for split in ('train', 'val'))
    assert not train & val


def test_masks_are_palette_gifs_of_0_and_1(small: Path) -> None:
    for path in [*(small / 'train_masks').iterdir(), *(small / 'val_masks').iterdir()]:
        with Image.open(path) as mask:
            assert (mask.format, mask.mode, mask.size) == ('GIF', 'P', (96, 64))
            assert (mask.getpalette() or [])[:6] == [0, 0, 0, 255, 255, 255]
            assert set(np.unique(np.array(mask))) == {0, 1}


def test_photographs_are_rgb_jpegs(small: Path) -> None:
    for path in [*(small / 'train').iterdir(), *(small / 'val').iterdir()]:
        with Image.open(path) as image:
            assert (image.format, image.mode, image.size) == ('JPEG', 'RGB', (96, 64))


# What decides a picture.


def test_the_seed_decides_every_byte(small: Path, tmp_path: Path) -> None:
    write_demo_cars(tmp_path / 'again', SMALL)
    assert all_files(tmp_path / 'again') == all_files(small)


def test_another_seed_draws_other_cars(small: Path) -> None:
    other = Settings(**{**SMALL.__dict__, 'seed': 1})
    names = {name[:12] for number in range(2) for name, _, _ in car_views(other, 'train', number)}
    assert not names & {p.name[:12] for p in (small / 'train').iterdir()}


def test_more_cars_leave_the_first_as_they_were(small: Path) -> None:
    more = Settings(**{**SMALL.__dict__, 'cars': 9, 'val_cars': 0})
    for name, _, mask in car_views(more, 'train', 1):
        with Image.open(small / 'train_masks' / f'{name}_mask.gif') as stored:
            np.testing.assert_array_equal(np.array(stored), mask)


# The drawing.


def test_the_camera_is_a_pinhole() -> None:
    level = Camera(100, 50, focal=80, distance=8, above=1, target=1)
    # Straight ahead is the middle; 1 m to the right at 8 m is 80 * 1 / 8 = 10 pixels to the right, 1 m up 10 up.
    points = np.array([[0.0, 0, 1], [1, 0, 1], [0, 0, 2], [1, 8, 1]])
    # At y = 8 the distance is 16: 80 * 1 / 16 = 5 pixels.
    np.testing.assert_allclose(level.project(points), [[50, 25], [60, 25], [50, 15], [55, 25]])


def test_the_pose_turns_to_the_left() -> None:
    quarter = Pose(np.pi / 2, (1.0, 0.0))
    # The nose (x = 2) then points away from the camera (y = 2), moved by 1 to the right.
    np.testing.assert_allclose(quarter.place(np.array([[2.0, 0, 0.5]])), [[1, 2, 0.5]], atol=1e-12)


def test_blending_is_the_mean_over_the_larger_layer() -> None:
    picture = np.full((2, 2, 3), 100, np.uint8)
    layer = np.zeros((6, 6, 4), np.uint8)
    layer[:3, :2] = (190, 40, 10, 255)  # 6 of the first pixel's 9
    blend(picture, layer)
    # 2/3 of the layer and 1/3 of the picture: (190 * 2 + 100) / 3 = 160, (80 + 100) / 3 = 60, (20 + 100) / 3 = 40.
    assert picture[0, 0].tolist() == [160, 60, 40]
    assert (picture.reshape(4, 3)[1:] == 100).all()


def test_filling_covers_what_the_corners_enclose() -> None:
    canvas = np.zeros((20, 20, 4), np.uint8)
    fill(canvas, np.array([[4.0, 6], [10, 6], [10, 9], [4, 9]]), np.array([10.0, 20, 30]))
    inside = canvas[6:9, 4:10]
    assert (inside == (10, 20, 30, 255)).all()
    assert canvas[:5].max() == 0 and canvas[11:].max() == 0  # OpenCV counts pixels on the outline, one more at most


def test_the_mask_is_where_half_a_pixel_is_car() -> None:
    """Against the car drawn anew at nine times the size, a pixel's cover is its mean to about a sixth."""
    settings = Settings(size=(120, 80), views=1)
    session = make_session(settings, 'train', 0)
    mask = next(iter(car_views(settings, 'train', 0)))[2]
    rng = np.random.default_rng([0, 0, 0, 1])
    angle = -np.pi / 2 + session.start + rng.normal(0, 0.03)
    pose = Pose(float(angle), (float(rng.normal(0, 0.10)), float(rng.normal(0, 0.10))))
    large = CarPainter(session.car, pose, session.camera.scaled(9), session.studio.surroundings).draw()[..., 3]
    cover = cv2.resize(large, (120, 80), interpolation=cv2.INTER_AREA) / 255
    assert (mask[cover > 0.75] == 1).all()
    assert (mask[cover < 0.25] == 0).all()


def test_a_car_turns_smoothly_and_shows_its_length_from_the_side() -> None:
    settings = Settings(cars=1, val_cars=0, views=24, size=(120, 80))
    masks = [mask for _, _, mask in car_views(settings, 'train', 0)]
    overlap = [2 * (a & b).sum() / (a.sum() + b.sum()) for a, b in zip(masks, [*masks[1:], masks[0]])]
    assert min(overlap) > 0.75
    wide = [int(np.ptp(np.flatnonzero(mask.any(axis=0)))) for mask in masks]
    # Views 1 and 13 are front and rear, 7 and 19 the sides: a sedan is 4.75 m long and 1.84 m wide.
    assert min(wide[6], wide[18]) > 1.8 * max(wide[0], wide[12])


# Colour alone does not find the car.


def colour_channels(rgb: np.ndarray) -> np.ndarray:
    other = [cv2.cvtColor(rgb, code) for code in (cv2.COLOR_RGB2HSV, cv2.COLOR_RGB2LAB)]
    return np.concatenate([rgb, *other, cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)[..., None]], axis=2)


def histograms(rgb: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """(channels, 2, 256): how many pixels of background and of car have each value."""
    values = colour_channels(rgb)
    return np.array([[np.bincount(c[mask == k], minlength=256) for k in (0, 1)] for c in np.moveaxis(values, 2, 0)])


def best_dice(counts: np.ndarray) -> float:
    """The best Dice of `low <= value < high` over all channels and all low, high: both one-sided thresholds too."""
    below = np.concatenate([np.zeros((*counts.shape[:2], 1)), counts.cumsum(2)], axis=2)
    between = below[:, :, None, :] - below[:, :, :, None]
    hit, called = between[:, 1], between.sum(1)
    return float((2 * hit / np.maximum(called + below[:, 1, -1][:, None, None], 1)).max())


def test_the_search_finds_a_car_that_colour_does_give_away() -> None:
    mask = np.zeros((10, 10), np.uint8)
    mask[:4] = 1
    rgb = np.full((10, 10, 3), (90, 90, 90), np.uint8)
    rgb[:4] = (200, 90, 90)
    assert best_dice(histograms(rgb, mask)) == 1.0
    rgb[:2] = 90
    # Half of the car is found and nothing else: 2 * 20 / (20 + 40).
    assert best_dice(histograms(rgb, mask)) == pytest.approx(2 / 3)


def test_no_threshold_on_a_colour_channel_finds_the_cars(tmp_path: Path) -> None:
    settings = Settings(cars=10, val_cars=5, views=4, size=(120, 80))
    write_demo_cars(tmp_path, settings)
    for split in ('train', 'val'):
        total = np.zeros((10, 2, 256), np.int64)
        single = []
        for path in sorted((tmp_path / split).iterdir()):
            mask_path = tmp_path / f'{split}_masks' / f'{path.stem}_mask.gif'
            with Image.open(path) as image, Image.open(mask_path) as mask:
                counts = histograms(np.array(image), np.array(mask))
            single.append(best_dice(counts))
            total += counts
        assert best_dice(total) < 0.6
        # Even with a threshold of its own for each picture, chosen with its mask in hand:
        assert np.mean(single) < 0.7


# Whose folder it is.


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / 'train').mkdir()
    (tmp_path / 'train' / 'mine.jpg').write_bytes(b'mine')
    with pytest.raises(UserError, match='not empty and was not made by this tool'):
        write_demo_cars(tmp_path, SMALL)
    assert all_files(tmp_path) == {'train/mine.jpg': b'mine'}


@pytest.mark.parametrize('text', ['', '[]', '{"train": 3}', '{"train": ["../../x"], "val": [], "views": 1}'])
def test_a_mark_that_is_not_ours_makes_a_folder_foreign(tmp_path: Path, text: str) -> None:
    (tmp_path / MARK).write_text(text)
    with pytest.raises(UserError, match='not made by this tool'):
        write_demo_cars(tmp_path, SMALL)


def test_force_writes_among_foreign_files(tmp_path: Path) -> None:
    (tmp_path / 'mine.txt').write_bytes(b'mine')
    write_demo_cars(tmp_path, Settings(cars=1, val_cars=0, views=1, size=(48, 48)), force=True)
    assert (tmp_path / 'mine.txt').read_bytes() == b'mine'
    assert len(list((tmp_path / 'train').iterdir())) == 1


def test_our_own_folder_is_drawn_anew_without_leftovers(tmp_path: Path) -> None:
    write_demo_cars(tmp_path, Settings(cars=2, val_cars=0, views=2, size=(48, 48)))
    (tmp_path / 'train' / 'mine.txt').write_bytes(b'mine')
    write_demo_cars(tmp_path, Settings(cars=1, val_cars=0, views=1, size=(48, 48), seed=5))
    names = sorted(p.name for p in (tmp_path / 'train').iterdir())
    assert len(names) == 2 and 'mine.txt' in names


def test_a_finished_set_is_kept_and_an_unfinished_one_drawn(tmp_path: Path) -> None:
    settings = Settings(cars=1, val_cars=0, views=1, size=(48, 48))
    assert 'already there' not in write_demo_cars(tmp_path, settings)
    image = next((tmp_path / 'train').iterdir())
    drawn = image.read_bytes()
    image.write_bytes(b'touched')
    assert 'already there' in write_demo_cars(tmp_path, settings)
    assert image.read_bytes() == b'touched'
    write_demo_cars(tmp_path, settings, force=True)
    assert image.read_bytes() == drawn
    image.unlink()
    assert 'already there' not in write_demo_cars(tmp_path, settings)
    assert image.read_bytes() == drawn


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / 'out').write_bytes(b'')
    with pytest.raises(UserError, match='is a file'):
        write_demo_cars(tmp_path / 'out', SMALL)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / 'file').write_bytes(b'')
    with pytest.raises(UserError, match='cannot be written to'):
        write_demo_cars(tmp_path / 'file' / 'out', SMALL)


@pytest.mark.parametrize(
    'bad',
    [
        {'cars': 0},
        {'val_cars': -1},
        {'views': 0},
        {'views': 100},
        {'seed': -1},
        {'size': (47, 64)},
        {'size': (64, 5000)},
    ],
)
def test_settings_out_of_range_are_refused_before_anything_is_written(tmp_path: Path, bad: dict[str, object]) -> None:
    name = {'size': 'width|height'}.get(next(iter(bad)), next(iter(bad)))
    with pytest.raises(UserError, match=f'({name}) must be from'):
        write_demo_cars(tmp_path / 'out', Settings(**bad))  # type: ignore[arg-type]
    assert not (tmp_path / 'out').exists()


# The command.


def run_tool(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / 'tools' / 'make_demo_data.py'), *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_says_what_it_drew_and_refuses_in_one_line(tmp_path: Path) -> None:
    out = tmp_path / 'cars'
    args = ('--cars', '1', '--val-cars', '1', '--views', '2', '--size', '60x48', '--seed', '3')
    done = run_tool(str(out), *args)
    assert (done.returncode, done.stderr) == (0, '')
    assert str(out) in done.stdout and 'made-up' in done.stdout
    assert len(list((out / 'val_masks').iterdir())) == 2
    (out / MARK).unlink()
    refused = run_tool(str(out), *args)
    assert refused.returncode == 2 and refused.stderr.startswith('error: ') and refused.stderr.count('\n') == 1
    assert run_tool(str(out), '--size', 'large').returncode == 2


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import runpy, sys; sys.argv = ['make_demo_data.py', '--help']\n"
        "try: runpy.run_path('tools/make_demo_data.py', run_name='__main__')\n"
        'except SystemExit as end: assert end.code == 0\n'
        "assert not {'cv2', 'numpy', 'PIL', 'torch'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
