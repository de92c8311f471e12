import json
import math

from PIL import Image

from seg.visualization.curves import draw_curves, find_scalars, read_series


def _write(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(''.join(json.dumps(record) + '\n' for record in records), encoding='utf-8')
    return path


def _size(path):
    with Image.open(path) as image:
        return image.size


def test_training_is_placed_by_iteration_and_validation_after_it(tmp_path):
    file = _write(
        tmp_path / 'scalars.json',
        dict(loss=3.0, lr=0.1, epoch=1, iter=10, step=10),
        dict(loss=2.0, lr=0.1, epoch=1, iter=20, step=20),
        {'val/mDice': 0.5, 'step': 25},  # by iteration
        {'val/mIoU': None, 'step': 1},  # by epoch: it can't be before iteration 20
    )
    series = read_series([file])
    assert series['loss'] == [(10, 3.0), (20, 2.0)]
    assert series['val/mDice'] == [(25, 0.5)]
    assert series['val/mIoU'][0][0] == 20 and math.isnan(series['val/mIoU'][0][1])
    assert not {'step', 'iter', 'epoch'} & set(series)


def test_a_resumed_run_draws_each_step_once(tmp_path):
    first = _write(
        tmp_path / '1',
        *({'loss': float(i), 'iter': i, 'step': i} for i in (10, 20, 30)),
        {'val/mDice': 0.3, 'step': 30},
    )
    second = _write(
        tmp_path / '2', *({'loss': i + 0.5, 'iter': i, 'step': i} for i in (20, 30)), {'val/mDice': 0.4, 'step': 30}
    )
    series = read_series([first, second])
    assert series['loss'] == [(10, 10.0), (20, 20.5), (30, 30.5)]
    assert series['val/mDice'] == [(30, 0.4)]


def test_the_half_line_of_a_killed_run_is_passed_over(tmp_path):
    file = _write(tmp_path / 'scalars.json', dict(loss=1.0, iter=1))
    file.write_text(file.read_text() + '{"loss": 2.0, "it')
    assert read_series([file]) == {'loss': [(1, 1.0)]}


def test_the_curves_are_a_picture_with_a_panel_for_each_kind(tmp_path):
    run = tmp_path / 'run'
    records = [{'loss': 1 / i, 'lr': 0.1, 'iter': i, 'step': i} for i in range(1, 4)]
    _write(run / '20260101_000000' / 'vis_data' / 'scalars.json', *records)
    assert draw_curves(find_scalars(run), tmp_path / 'vis' / 'two.png') == tmp_path / 'vis' / 'two.png'
    scores = {'val/mDice': 0.5, 'val/Dice.автомобиль': 0.4, 'val/IoU.автомобиль': 0.3, 'val_loss': 0.7, 'step': 3}
    _write(run / '20260101_000001' / 'vis_data' / 'scalars.json', scores)
    draw_curves(find_scalars(run), tmp_path / 'vis' / 'four.png')
    # A panel has 600 x 400 pixels: loss and rate; then also the score and each class's, in a second row.
    assert [_size(tmp_path / 'vis' / f'{name}.png') for name in ('two', 'four')] == [(1200, 400), (1200, 800)]
    assert sorted(file.name for file in (tmp_path / 'vis').iterdir()) == ['four.png', 'two.png']


def test_without_losses_or_scores_nothing_is_drawn(tmp_path):
    file = _write(tmp_path / 'scalars.json', dict(time=1.0, iter=1))
    assert draw_curves(file, tmp_path / 'out.png') is None and draw_curves([], tmp_path / 'out.png') is None
    assert not (tmp_path / 'out.png').exists()
