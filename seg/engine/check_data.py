"""What `tools/check_data.py` does: look at the data of a config, say what was found, write it up."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from seg.config import load_config
from seg.engine import gate
from seg.errors import UserError


def run_check(args: argparse.Namespace) -> None:
    """Raises UserError with all that keeps the data from being trained on, after the rest is printed and written."""
    config = load_config(args.config, args.cfg_options)
    limits = gate.settings_of(config) or gate.Limits()
    report = gate.run(config, replace(limits, full=args.full or limits.full), show=sys.stderr.isatty())
    print('\n'.join([*gate.tables(report), *report.notes()]), flush=True)
    if report.unchecked and not args.full:
        print('--full decodes everything, however long it takes', flush=True)
    if args.out:
        from seg.visualization.data_report import write_data_report

        remarks = [*(f'unchecked: {text}' for text in report.unchecked), *report.proposals]
        write_data_report(Path(args.out), str(args.config), report.sources, report.sets, report.findings, remarks)
        print(f'report: {args.out}', flush=True)
    if report.errors:
        raise UserError(report.error_message())
