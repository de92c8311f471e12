"""The data gate of a run: nothing wrong with the data reaches step 1.

`run` looks and reports; `require` does so once a machine, and raises on every process what any machine found.
"""

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mmengine.dist import get_rank, get_world_size

from seg.datasets.check import Limits, check_data
from seg.datasets.gate.findings import ERROR, WARNING, Finding, of_level
from seg.datasets.gate.parallel import Crew
from seg.datasets.gate.sources import PARTS, Source, find_sources
from seg.datasets.gate.stamps import names_and_sizes, stat_files
from seg.datasets.gate.summary import SetSummary
from seg.datasets.pairs import search_once
from seg.engine.dataloader import init_worker
from seg.engine.gate_advice import advise
from seg.engine.gate_nodes import Verdict, once_a_node
from seg.engine.input_fit import check_fit
from seg.engine.processes.cores import usable_cores
from seg.errors import UserError

_KEYS = ('max_seconds', 'full')


@dataclass
class GateReport:
    """What was found. `fingerprints`: part -> number of pairs, and a hash of their names and sizes."""

    sets: list[SetSummary]
    findings: list[Finding]
    proposals: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    fingerprints: dict[str, tuple[int, str]] = field(default_factory=dict)
    sources: Sequence[Source] = ()
    seconds: float = 0.0

    @property
    def errors(self) -> list[Finding]:
        return of_level(self.findings, ERROR)

    @property
    def warnings(self) -> list[Finding]:
        return of_level(self.findings, WARNING)

    def error_message(self) -> str:
        """All errors as one message; empty without any."""
        if not self.errors:
            return ''
        lines = [line for finding in self.errors for line in finding.lines()]
        return f'the data cannot be trained on as it is: {_count(self.errors, "fault")}\n' + '\n'.join(lines)

    def notes(self) -> list[str]:
        """What is no error: what was looked at, warnings, what there was no time for, proposals."""
        looked_at = ', '.join(f'{one.part} {one.pairs} pairs' for one in self.sets) or 'no data set could be read'
        lines = [f'data: {looked_at}; {_count(self.warnings, "warning")}, looked at in {self.seconds:.1f} s']
        for finding in self.warnings:
            first, *rest = finding.lines()
            lines += [f'warning: {first}', *rest]
        if self.unchecked:
            lines += [f'unchecked: {text}' for text in self.unchecked]
        return lines + [f'proposal: {text}' for text in self.proposals]


def settings_of(config: Mapping[str, Any]) -> Limits | None:
    """`check_data` of a config: True, False (None is returned), or dict(max_seconds=60, full=False)."""
    given = config.get('check_data', True)
    if isinstance(given, bool):
        return Limits() if given else None
    if not isinstance(given, Mapping) or not set(given) <= set(_KEYS):
        raise UserError(f'check_data={given!r}: expected True, False or dict(max_seconds=60, full=False)')
    seconds, full = given.get('max_seconds', Limits.seconds), given.get('full', False)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0 or not isinstance(full, bool):
        raise UserError(f'check_data={dict(given)}: expected max_seconds >= 0 (seconds) and full=True or False')
    return Limits(float(seconds), full)


def run(
    config: Mapping[str, Any],
    limits: Limits | None = None,
    *,
    parts: Sequence[str] = PARTS,
    cache_folder: Path | None = None,
    show: bool = False,
    beat: Callable[[], None] | None = None,
) -> GateReport:
    """Look at the data sets of `config`, on this machine alone.

    limits: those of `check_data` by default. show: a progress bar on stderr. beat: called every so often meanwhile.
    """
    start = time.monotonic()
    limits = limits or settings_of(config) or Limits()
    with _collector_paused(), search_once():
        found = find_sources(config, parts)
        stamps = stat_files(path for source in found.sources for pair in source.pairs for path in pair[1:])
    report = GateReport([], found.findings, sources=found.sources)
    if found.sources:
        crew = Crew(usable_cores(), init_worker, show, beat)
        summary, trouble = check_data(found.sources, stamps, limits, crew, cache_folder)
        fit = check_fit(config, found, summary.sets, get_world_size())
        report.sets = summary.sets
        report.findings += summary.findings + fit.findings
        report.unchecked = [text for one in summary.sets if (text := one.unchecked())] + fit.untried
        report.unchecked += [trouble] if trouble else []
        report.proposals = advise(config, summary.sets, fit.outcomes)
    report.fingerprints = {one.key: (len(one.pairs), names_and_sizes(one.pairs, stamps)) for one in found.sources}
    report.seconds = time.monotonic() - start
    return report


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Lists of 100,000 files hold no cycles, and looking for some in them takes as long as making them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def require(config: Mapping[str, Any], cache_folder: Path | None = None) -> None:
    """Raise UserError, on all processes, when the data of any machine cannot be trained on; print the rest, once.

    What is wrong with the test data is a warning: training does not read it.
    """
    limits = settings_of(config)
    if limits is None:
        return

    def look(beat: Callable[[], None]) -> Verdict:
        report = run(config, limits, cache_folder=cache_folder, show=get_rank() == 0 and sys.stderr.isatty(), beat=beat)
        report.findings = [_for_training(finding) for finding in report.findings]
        return Verdict(report.error_message(), report.notes(), report.fingerprints)

    notes = once_a_node(look)
    if get_rank() == 0:
        print('\n'.join(notes), flush=True)


def tables(report: GateReport) -> list[str]:
    """A line for each data set, and one for each class: its share of the labelled pixels, and the masks that have it."""
    lines = []
    for one in report.sets:
        sizes = f'{_size(one.smallest)} to {_size(one.largest)}' if one.smallest != one.largest else _size(one.smallest)
        lines.append(f'{one.key}: {one.pairs} pairs, images of {sizes} (height x width), {one.masks} masks decoded')
        labelled = sum(one.class_pixels)
        if labelled:
            rows = zip(one.classes, one.class_pixels, one.class_masks)
            lines += [
                f'    {name:<20} {100 * pixels / labelled:7.3f} %  in {masks} masks' for name, pixels, masks in rows
            ]
            lines.append(
                f'    {"ignored":<20} {100 * one.ignored_pixels / (labelled + one.ignored_pixels):7.3f} % of all'
            )
    return lines


def _size(size: Sequence[int]) -> str:
    return 'x'.join(map(str, size)) or 'unknown size'


def _for_training(finding: Finding) -> Finding:
    return replace(finding, level=WARNING) if finding.where.startswith('test_dataloader') else finding


def _count(things: Sequence[Any], what: str) -> str:
    return f'{len(things)} {what}{"" if len(things) == 1 else "s"}'
