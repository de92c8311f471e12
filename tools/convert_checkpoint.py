"""A plain file of a checkpoint in pieces: `python tools/convert_checkpoint.py work_dirs/run/epoch_3.dcp epoch_3.pth`."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seg.engine.cli import main


def parser_for_convert() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description='Make one plain file of a checkpoint that FSDP wrote in pieces. Nothing else needs it: the tools read '
        'the folder, too. The file can be resumed on any number of processes, with FSDP or without.',
        allow_abbrev=False,
    )
    parser.add_argument('source', metavar='FOLDER', help='the checkpoint in pieces, such as work_dirs/run/epoch_3.dcp')
    parser.add_argument('target', metavar='FILE', help='the file to write; there must be none')
    return parser


def run(args: argparse.Namespace) -> None:
    from seg.engine.state.convert import convert

    convert(Path(args.source), Path(args.target))


if __name__ == '__main__':
    sys.exit(main(parser_for_convert(), run))
