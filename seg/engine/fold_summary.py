"""Mean and standard deviation of the scores over the folds of a run: what `tools/summarize_folds.py` does."""

import argparse
import json
import math
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seg.datasets.folds import parse_fold
from seg.engine.state import checkpoint
from seg.errors import UserError
from seg.visualization.curves import Series, find_scalars, read_series


@dataclass(frozen=True)
class Summary:
    """`values`: score -> fold -> value, None where the fold has none."""

    folds: list[int]
    count: int  # how many folds there should be
    validation: str  # which one was read, in words
    values: dict[str, dict[int, float | None]]


def run_summary(args: argparse.Namespace) -> None:
    """`tools/summarize_folds.py`: print the table, write the JSON file that was asked for."""
    summary = summarise(Path(args.work_dir), args.best)
    print(as_text(summary))
    if args.json:
        text = json.dumps(as_plain(summary), indent=1, ensure_ascii=False) + '\n'
        checkpoint.write_text(text, args.json)


def summarise(work_dir: Path, best: str | None = None) -> Summary:
    """Read the scores of `work_dir/fold_*`: those of each fold's last validation, or of the one where `best` is best.

    Best is highest, of a loss lowest. Raises UserError where there are no folds, or they are not of one division.
    """
    found = _fold_folders(work_dir)
    folds = {number: _validations(folder, best) for number, folder in found.items()}
    scores = {number: values for number, values in folds.items() if values}
    if not scores:
        raise UserError(f'{work_dir}: none of its folds has logged a validation yet: {", ".join(map(str, found))}')
    names = list(dict.fromkeys(name for values in scores.values() for name in values))
    return Summary(
        folds=list(scores),
        count=_division(found),
        validation=f'validation with the best {best}' if best else 'last validation',
        values={name: {number: values.get(name) for number, values in scores.items()} for name in names},
    )


def _fold_folders(work_dir: Path) -> dict[int, Path]:
    matches = {path: re.fullmatch(r'fold_(\d+)', path.name) for path in work_dir.glob('fold_*')}
    found = {int(match[1]): path for path, match in matches.items() if match and path.is_dir()}
    if not found:
        raise UserError(
            f'{work_dir}: no folder fold_0, fold_1, ... in it; tools/train.py CONFIG --work-dir {work_dir} --fold 0/5 '
            'makes the first of five'
        )
    return dict(sorted(found.items()))


def _division(found: dict[int, Path]) -> int:
    """Into how many folds the images were divided, the same in every fold's record."""
    kinds: dict[tuple, Path] = {}
    for number, folder in found.items():
        for split in _splits(folder):
            place, count = parse_fold(split['fold'])
            kinds[(count, split.get('seed'), place == number)] = folder
    if len(kinds) > 1 or not all(fits for _, _, fits in kinds):
        folders = ', '.join(str(folder) for folder in kinds.values())
        raise UserError(f'the folds are not of one division (count, seed, number): compare split.json in {folders}')
    return next((count for count, _, _ in kinds), max(found) + 1)


def _splits(folder: Path) -> list[dict[str, Any]]:
    """Every record of a split by folds in the run's split.json."""
    try:
        todo: list[Any] = [json.loads((folder / 'split.json').read_text(encoding='utf-8'))]
    except (OSError, ValueError):
        return []  # a run that has not come to its first step
    splits = []
    while todo:
        node = todo.pop()
        if isinstance(node, dict) and 'fold' in node:
            splits.append(node)
        elif isinstance(node, dict | list):
            todo += node.values() if isinstance(node, dict) else node
    return splits


def _validations(folder: Path, best: str | None) -> dict[str, float]:
    """The scores of one validation of a run, by their names in metrics.json; empty where there was none."""
    logged = {_plain_name(name): points for name, points in read_series(find_scalars(folder)).items()}
    series = {name: points for name, points in logged.items() if name}
    if not series:
        return {}
    place = max(points[-1][0] for points in series.values()) if best is None else _best_place(series, best, folder)
    return {name: dict(points)[place] for name, points in series.items() if place in dict(points)}


def _plain_name(name: str) -> str:
    """'val/mDice' -> 'mDice', 'val_loss' as it is, '' for what is no score of a validation."""
    return name.removeprefix('val/') if name.startswith('val/') else name if name.startswith('val_') else ''


def _best_place(series: Series, best: str, folder: Path) -> float:
    known = [(value, place) for place, value in series.get(best, []) if math.isfinite(value)]
    if not known:
        raise UserError(f'--best {best}: {folder} has logged no such score; it has {", ".join(sorted(series))}')
    sign = -1 if 'loss' in best else 1
    return max(known, key=lambda pair: sign * pair[0])[1]


def spread(values: dict[int, float | None]) -> tuple[float | None, float | None]:
    """(mean, sample standard deviation with n - 1) over the folds that have the score; None where it has no meaning."""
    known = [value for value in values.values() if value is not None and math.isfinite(value)]
    return (
        statistics.fmean(known) if known else None,
        statistics.stdev(known) if len(known) > 1 else None,
    )


def as_plain(summary: Summary) -> dict[str, Any]:
    """As it goes into the JSON file."""
    scores = {}
    for name, values in summary.values.items():
        mean, std = spread(values)
        scores[name] = {'mean': mean, 'std': std, 'folds': [_finite(value) for value in values.values()]}
    return {'count': summary.count, 'folds': summary.folds, 'validation': summary.validation, 'scores': scores}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def as_text(summary: Summary) -> str:
    """The table, a line a score."""
    missing = sorted(set(range(summary.count)) - set(summary.folds))
    title = f'{len(summary.folds)} of {summary.count} folds, the {summary.validation} of each'
    if missing:
        title += f'; without fold {", ".join(map(str, missing))}, which has logged none'
    width = max(map(len, summary.values))
    head = f'{"":{width}}  {"mean":>8}  {"std":>8}' + ''.join(f'  {f"fold {number}":>8}' for number in summary.folds)
    rows = [
        f'{name:{width}}' + ''.join(f'  {_number(value):>8}' for value in (*spread(values), *values.values()))
        for name, values in summary.values.items()
    ]
    return '\n'.join([title, head, *rows])


def _number(value: float | None) -> str:
    return '-' if value is None or not math.isfinite(value) else f'{value:.4f}'
