"""Train: `python tools/train.py CONFIG`."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seg.engine.cli import main, parser_for_train


def run(args: argparse.Namespace) -> int:
    from seg.engine.train import run_training

    return run_training(args)


if __name__ == '__main__':
    sys.exit(main(parser_for_train(), run))
