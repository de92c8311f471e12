"""Look at the data of CONFIG before it is trained on: `python tools/check_data.py CONFIG --out report.html`."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seg.engine.cli import main, parser_for_config


def parser() -> argparse.ArgumentParser:
    p = parser_for_config(
        'Look at the files that CONFIG trains, validates and tests on: pairs, damage, sizes, labels, duplicates. '
        'Exit code 2 where training must not start.'
    )
    p.add_argument('--out', metavar='report.html', help='write what was found as a page with pictures')
    p.add_argument('--full', action='store_true', help='decode every file; without it, decode for a minute')
    return p


def run(args: argparse.Namespace) -> None:
    from seg.engine.check_data import run_check

    run_check(args)


if __name__ == '__main__':
    sys.exit(main(parser(), run))
