"""Small charts as SVG text, to stand in a page: bars, points."""

from collections.abc import Sequence
from html import escape

Colour = Sequence[int]  # RGB, 0..255

_WIDTH, _HEIGHT, _MARGIN = 420, 260, 46
_BAR, _NAME = 18, 150


def bars(names: Sequence[str], shares: Sequence[float], colours: Sequence[Colour]) -> str:
    """A bar for each share in 0..1, with its name and percentage."""
    length = _WIDTH - _NAME - 70
    rows = []
    for number, (name, share) in enumerate(zip(names, shares)):
        top = number * (_BAR + 4)
        middle = top + _BAR - 5
        rows.append(f'<text x="{_NAME - 6}" y="{middle}" text-anchor="end">{escape(name[:24])}</text>')
        rows.append(
            f'<rect x="{_NAME}" y="{top}" width="{max(1.0, share * length):.1f}" height="{_BAR}" '
            f'fill="{css_colour(colours[number])}" stroke="#888"/>'
        )
        rows.append(f'<text x="{_NAME + share * length + 6:.1f}" y="{middle}">{100 * share:.3g} %</text>')
    return _svg(_WIDTH, len(names) * (_BAR + 4), rows)


def size_scatter(groups: Sequence[tuple[str, Sequence[Sequence[int]], Colour]]) -> str:
    """Points at (width, height) in pixels; a group is its name, [height, width, count] of each point, and its colour."""
    points = [point for _, sizes, _ in groups for point in sizes]
    if not points:
        return ''
    high, wide = (max(point[axis] for point in points) * 1.1 for axis in (0, 1))
    most = max(point[2] for point in points)
    marks = [_axes(wide, high)]
    for number, (name, sizes, colour) in enumerate(groups):
        for height, width, count in sizes:
            x = _MARGIN + width / wide * (_WIDTH - _MARGIN - 10)
            y = (_HEIGHT - _MARGIN) * (1 - height / high) + 10
            title = f'<title>{escape(name)}: {count} of {width} x {height}</title>'
            radius = 2.5 + 7 * (count / most) ** 0.5
            fill = f'fill="{css_colour(colour)}" fill-opacity="0.5" stroke="#444"'
            marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" {fill}>{title}</circle>')
        marks.append(
            f'<text x="{_WIDTH - 90}" y="{18 + 16 * number}" fill="{css_colour(colour)}">{escape(name)}</text>'
        )
    return _svg(_WIDTH, _HEIGHT, marks)


def css_colour(colour: Colour) -> str:
    return '#' + ''.join(f'{int(part):02x}' for part in colour)


def _axes(wide: float, high: float) -> str:
    bottom = _HEIGHT - _MARGIN + 10
    return (
        f'<path d="M{_MARGIN} 6V{bottom}H{_WIDTH - 6}" fill="none" stroke="#444"/>'
        f'<text x="{_WIDTH - 10}" y="{bottom + 16}" text-anchor="end">{wide:.0f}</text>'
        f'<text x="{_WIDTH // 2}" y="{bottom + 30}" text-anchor="middle">width in pixels</text>'
        f'<text x="{_MARGIN - 4}" y="16" text-anchor="end">{high:.0f}</text>'
        f'<text x="{_MARGIN - 4}" y="{bottom}" text-anchor="end">0</text>'
        f'<text x="14" y="{_HEIGHT // 2}" text-anchor="middle" transform="rotate(-90 14 {_HEIGHT // 2})">height</text>'
    )


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    return f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">{"".join(parts)}</svg>'
