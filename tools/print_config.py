"""Print CONFIG as it is after inheritance and --cfg-options: `python tools/print_config.py CONFIG [--origin]`.

What is wrong with it comes after it; the exit code is then 2.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seg.engine.cli import main, parser_for_config


def run(args: argparse.Namespace) -> None:
    from seg.config import examine, to_plain
    from seg.config_text import format_origins
    from seg.errors import UserError

    found = examine(args.config, args.cfg_options)
    plain = to_plain(found.config)
    print(format_origins(plain, found.origin) if args.origin else found.config.pretty_text, end='', flush=True)
    if found.faults:
        raise UserError('\n'.join(found.faults))


if __name__ == '__main__':
    parser = parser_for_config('Print CONFIG as it is after inheritance and --cfg-options.')
    parser.add_argument('--origin', action='store_true', help='a line for each value, with where it was written')
    sys.exit(main(parser, run))
