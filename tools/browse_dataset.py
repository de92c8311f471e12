"""Draw samples as training sees them: `python tools/browse_dataset.py CONFIG --out-dir D`."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seg.engine.cli import main, parser_for_config


def parser_for_browse() -> argparse.ArgumentParser:
    parser = parser_for_config(
        'Draw samples as training sees them, augmented, their masks painted over them: one file each, '
        'D/train_epoch1_PLACE_NAME.png, and all on one sheet.'
    )
    parser.add_argument('--out-dir', required=True, metavar='D', help='where the pictures go')
    parser.add_argument(
        '--part', choices=['train', 'val', 'test'], default='train', help='whose data; train without it'
    )
    parser.add_argument(
        '--epoch',
        type=int,
        default=1,
        metavar='E',
        help='which epoch of a run, from 1 as in its log; the first without it',
    )
    parser.add_argument('--number', type=int, default=16, metavar='N', help='how many samples; 16 without it')
    return parser


def run(args: argparse.Namespace) -> None:
    from seg.visualization.browse import run_browse

    run_browse(args)


if __name__ == '__main__':
    sys.exit(main(parser_for_browse(), run))
