"""The run's curves as a picture, from the scalars it logged."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seg.evaluation.confusion import SCORES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Series = dict[str, list[tuple[float, float]]]
"""Each scalar's (iteration, value) in order; a value is nan where it was logged as null."""

_PER_CLASS = ('Dice.', 'IoU.')
_MAX_CLASSES = 20  # more lines than this in one panel can't be told apart


def draw_curves(scalars: Path | Iterable[Path], out: Path) -> Path | None:
    """Loss, scores, each class's Dice (else IoU) and the learning rate over iterations, as a PNG at `out`.

    `scalars` is a run's `scalars.json`, or those of all its starts, oldest first. None where there is nothing to draw.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = _panels(read_series([scalars] if isinstance(scalars, Path) else scalars))
    if not panels:
        return None
    columns, rows = min(2, len(panels)), math.ceil(len(panels) / 2)
    figure = Figure(figsize=(6 * columns, 4 * rows), layout='constrained')
    FigureCanvasAgg(figure)
    for place, (title, series) in enumerate(panels.items(), start=1):
        _draw_panel(figure.add_subplot(rows, columns, place), title, series)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f'.{out.name}.tmp')
    figure.savefig(temporary, format='png', dpi=100)
    temporary.replace(out)
    return out


def find_scalars(run_dir: Path) -> list[Path]:
    """The `scalars.json` of a run folder, one for each time that the run was started, oldest first."""
    return sorted(run_dir.glob('*/vis_data/scalars.json'))


def read_series(files: Iterable[Path]) -> Series:
    """Every scalar of one run's files.

    A line's place is its `iter`, else its `step`, but never before the training line above it. Where a run goes on from
    an earlier checkpoint, what it had logged beyond is dropped.
    """
    series: Series = {}
    last = 0.0
    for record in _records(files):
        if 'iter' in record and record['iter'] < last:
            _drop_from(series, record['iter'])
            last = record['iter']
        place = max(last, record.get('iter', record.get('step', last)))
        last = place if 'iter' in record else last
        for name, value in record.items():
            if name not in ('step', 'iter', 'epoch') and (value is None or isinstance(value, (int, float))):
                _add_point(series.setdefault(name, []), place, math.nan if value is None else float(value))
    return series


def _add_point(points: list[tuple[float, float]], place: float, value: float) -> None:
    """A second value at the same place is the one that counts: the step was done again."""
    if points and points[-1][0] == place:
        points.pop()
    points.append((place, value))


def _drop_from(series: Series, place: float) -> None:
    for name, points in series.items():
        series[name] = [point for point in points if point[0] < place]


def _records(files: Iterable[Path]) -> Iterable[dict[str, Any]]:
    for file in files:
        for line in file.read_text(encoding='utf-8').splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue  # a run that was killed left half a line
            if isinstance(record, dict):
                yield record


def _panels(series: Series) -> dict[str, Series]:
    """Title -> what to draw; panels with nothing in them are left out."""
    panels: dict[str, Series] = {'loss': {}, 'score': {}, 'per class': {}, 'learning rate': {}}
    for name, points in series.items():
        title = _panel_of(name.rsplit('/', 1)[-1])
        if title:
            panels[title][name] = points
    panels['per class'] = _one_kind(panels['per class'])
    return {title: chosen for title, chosen in panels.items() if chosen}


def _panel_of(name: str) -> str | None:
    if name in SCORES:
        return 'score'
    if name.startswith(_PER_CLASS):
        return 'per class'
    if name == 'lr':
        return 'learning rate'
    return 'loss' if 'loss' in name else None


def _one_kind(series: Series) -> Series:
    """Dice of each class, or IoU where there is no Dice; of many classes those that end lowest."""
    for kind in _PER_CLASS:
        chosen = {name: points for name, points in series.items() if name.rsplit('/', 1)[-1].startswith(kind)}
        if chosen:
            lowest = sorted(chosen, key=lambda name: chosen[name][-1][1])[:_MAX_CLASSES]
            return {name: chosen[name] for name in chosen if name in lowest}
    return {}


def _draw_panel(axes: 'Axes', title: str, series: Series) -> None:
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator

    colours = colormaps['tab10' if len(series) <= 10 else 'tab20']
    for i, (name, points) in enumerate(series.items()):
        marker = 'o' if len(points) < 30 else None
        axes.plot(*zip(*points), label=name, color=colours(i % colours.N), marker=marker, markersize=3, linewidth=1.2)
    axes.set_title(title)
    axes.set_xlabel('iteration')
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if title in ('score', 'per class'):
        axes.set_ylim(top=1.0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize='x-small', framealpha=0.6)
