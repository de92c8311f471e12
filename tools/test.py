"""Score a checkpoint: `python tools/test.py CONFIG CHECKPOINT`."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seg.engine.cli import main, parser_for_test


def run(args: argparse.Namespace) -> int:
    from seg.engine.test import run_test

    return run_test(args)


if __name__ == '__main__':
    sys.exit(main(parser_for_test(), run))
