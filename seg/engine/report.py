"""The last lines of a run: what was reached, and where everything is."""

from pathlib import Path
from typing import Any

from seg.visualization.curves import draw_curves, find_scalars


def write_report(runner: Any, result: Any) -> None:
    """Draw the curves and log the paths of what the run made."""
    lines = [f'Run folder: {result.work_dir}']
    if result.best_checkpoint:
        lines.append(f'Best checkpoint: {result.best_checkpoint}')
    if result.last_checkpoint:
        lines.append(f'Last checkpoint: {result.last_checkpoint}')
    curves = draw_curves(find_scalars(result.work_dir), Path(runner.log_dir) / 'curves.png')
    if curves:
        lines.append(f'Curves: {curves}')
    pictures = sorted((Path(runner.log_dir) / 'vis').glob('*.png'))
    lines += [f'Picture: {path}' for path in pictures]
    runner.logger.info('\n'.join(lines))
