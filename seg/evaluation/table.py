"""The scores as text: a row a class, and a line that sums them up."""

import unicodedata
from typing import Any

from seg.evaluation.confusion import CLASS_SCORES, SCORES


def score_table(report: dict[str, Any]) -> str:
    """`report` as SegMetric makes it. Scores in percent, n/a where there is none; columns align for any script."""
    rows = [['class', *CLASS_SCORES]]
    rows += [[name, *(_percent(scores[key]) for key in CLASS_SCORES)] for name, scores in report['per_class'].items()]
    widths = [max(_width(cell) for cell in column) for column in zip(*rows)]
    rule = '+'.join(['', *('-' * (width + 2) for width in widths), ''])
    lines = [_row(cells, widths) for cells in rows]
    summary = '  '.join(f'{key} {_percent(report[key])}' for key in SCORES)
    return '\n'.join([rule, lines[0], rule, *lines[1:], rule, summary])


def _row(cells: list[str], widths: list[int]) -> str:
    name = cells[0] + ' ' * (widths[0] - _width(cells[0]))
    numbers = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:])]
    return f'| {" | ".join([name, *numbers])} |'


def _percent(score: float | None) -> str:
    return 'n/a' if score is None else f'{100 * score:.2f}'


def _width(text: str) -> int:
    """Columns on a terminal: 2 for a wide (East Asian) letter, 0 for a combining mark, 1 for the rest."""
    return sum(_columns(letter) for letter in text)


def _columns(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) in ('Mn', 'Me', 'Cf'):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in 'WF' else 1
