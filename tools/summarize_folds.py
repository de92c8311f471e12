"""Sum up a cross-validation: `python tools/summarize_folds.py WORK_DIR`."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seg.engine.cli import main


def parser_for_folds() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description='Mean and standard deviation (with n - 1) of each score over the folds that '
        '`tools/train.py CONFIG --work-dir WORK_DIR --fold I/K` trained, each fold counting once.',
        allow_abbrev=False,
    )
    parser.add_argument('work_dir', metavar='WORK_DIR', help='the folder that holds fold_0, fold_1, ...')
    parser.add_argument(
        '--best',
        metavar='SCORE',
        help="read each fold's validation with the highest SCORE (lowest for a loss), such as mDice; its last one "
        'without it. The best is chosen on the images that it is scored on, so it flatters',
    )
    parser.add_argument('--json', metavar='OUT', help='write the numbers there, too')
    return parser


def run(args: argparse.Namespace) -> None:
    from seg.engine.fold_summary import run_summary

    run_summary(args)


if __name__ == '__main__':
    sys.exit(main(parser_for_folds(), run))
