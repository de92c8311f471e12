"""Print CONFIG as it is after inheritance and --cfg-options: `python tools/print_config.py CONFIG`."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seg.engine.cli import main, parser_for_config


def run(args: argparse.Namespace) -> None:
    from seg.config import load_config

    print(load_config(args.config, args.cfg_options).pretty_text, end='')


if __name__ == '__main__':
    sys.exit(main(parser_for_config('Print CONFIG as it is after inheritance and --cfg-options.'), run))
