"""Predict photographs: `python tools/predict.py INPUT... --checkpoint CHECKPOINT --out-dir D`."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seg.engine.cli import main


def parser_for_predict() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description='Predict photographs. Each gets a label map D/NAME.png of its own size, a palette PNG whose index is '
        'the class; what lies in subfolders of a folder goes to the same subfolders of D.',
        allow_abbrev=False,
    )
    parser.add_argument('inputs', nargs='+', metavar='INPUT', help='photographs, and folders of them')
    parser.add_argument('--checkpoint', required=True, metavar='CHECKPOINT', help='as tools/train.py wrote it')
    parser.add_argument('--out-dir', required=True, metavar='D', help='where the predictions go')
    parser.add_argument(
        '--config', metavar='CONFIG', help="in the place of the checkpoint's own; needed for files of other programs"
    )
    parser.add_argument('--overlay', action='store_true', help='the photograph with its labels: D/NAME_overlay.png')
    parser.add_argument(
        '--probs',
        action='store_true',
        help="the foreground's probability as 16-bit gray, 65535 = 1: D/NAME_probs.png; of more than two classes each "
        'one: D/NAME_probs_CLASS.png',
    )
    parser.add_argument(
        '--rle', metavar='FILE.csv', help="the foreground in Carvana's submission format, for models of two classes"
    )
    parser.add_argument('--device', default='auto', metavar='D', help='auto (the default), cpu, cuda, cuda:1, ...')
    parser.add_argument(
        '--trust-checkpoint',
        action='store_true',
        help='load a checkpoint that can run code: only from a source you trust',
    )
    return parser


def run(args: argparse.Namespace) -> int:
    from seg.inference.predict_files import run_prediction

    return run_prediction(args)


if __name__ == '__main__':
    sys.exit(main(parser_for_predict(), run))
