"""One page about the data of a config: counts, classes, sizes, samples, and every fault with its pictures.

It needs no network and no other file: styles, charts and pictures stand in it.
"""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from seg.datasets.check import spread
from seg.datasets.gate.findings import ERROR, Finding
from seg.datasets.gate.sources import Source
from seg.datasets.gate.summary import SetSummary
from seg.datasets.pairs import Pair
from seg.visualization.file_pictures import pair_pictures, sample_picture
from seg.visualization.overlay import make_palette, palette_of
from seg.visualization.svg import bars, size_scatter

_SAMPLES = 8  # of each data set
_SAMPLE_PX, _FAULT_PX = 280, 160  # longer sides of the pictures
_FAULTS_WITH_PICTURES = 40
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;color:#222;max-width:1160px;margin:24px auto;padding:0 16px}
h1{font-size:24px} h2{font-size:19px;margin-top:32px;border-bottom:1px solid #ccc} h3{font-size:16px}
table{border-collapse:collapse} td,th{padding:3px 12px 3px 0;text-align:left;vertical-align:top}
pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f5f5f5;padding:8px;font-size:13px}
.error{border-left:5px solid #c22;padding-left:12px} .warning{border-left:5px solid #e90;padding-left:12px}
figure{display:inline-block;margin:4px 8px 4px 0;vertical-align:top;max-width:290px}
figcaption{font-size:11px;color:#666;overflow-wrap:anywhere}
.bad div{width:160px;background:#fdd;padding:6px;font-size:11px}
svg text{font-size:12px} img{display:block}
"""


def write_data_report(
    path: Path,
    title: str,
    sources: Sequence[Source],
    sets: Sequence[SetSummary],
    findings: Sequence[Finding],
    remarks: Sequence[str],
) -> None:
    """Write the page, whole or not at all. remarks: sentences that stand below the faults. Raises OSError."""
    body = [
        f'<h1>Data of {escape(title)}</h1>',
        _verdict(findings),
        *_faults(sources, findings),
        *([f'<h2>Remarks</h2><ul>{"".join(f"<li>{escape(text)}</li>" for text in remarks)}</ul>'] if remarks else []),
        *_overview(sets),
        *(part for source, summary in zip(sources, sets) for part in _data_set(source, summary)),
    ]
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
    page += f'<style>{_STYLE}</style><body>{"".join(body)}</body></html>'
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f'.{path.name}.tmp')
    temporary.write_text(page, encoding='utf-8', errors='backslashreplace')
    temporary.replace(path)


def _verdict(findings: Sequence[Finding]) -> str:
    errors = sum(finding.level == ERROR for finding in findings)
    told = f'{errors} fault(s) keep it from being trained on' if errors else 'Nothing keeps it from being trained on'
    return f'<p class="{"error" if errors else ""}">{told}; {len(findings) - errors} warning(s).</p>'


def _faults(sources: Sequence[Source], findings: Sequence[Finding]) -> Iterator[str]:
    if not findings:
        return
    yield '<h2>Faults and warnings</h2>'
    by_file = _pairs_of(sources, {file for finding in findings for file in finding.files})
    for number, finding in enumerate(sorted(findings, key=lambda finding: finding.level != ERROR)):
        text = escape('\n'.join(finding.lines()))
        shown = finding.files if number < _FAULTS_WITH_PICTURES else []
        pictures = ''.join(pair_pictures(*by_file[file], _FAULT_PX) for file in shown if file in by_file)
        yield f'<div class="{finding.level}"><h3>{finding.level}</h3><pre>{text}</pre>{pictures}</div>'


def _pairs_of(sources: Sequence[Source], files: set[str]) -> dict[str, tuple[Source, Pair]]:
    return {
        str(file): (source, pair)
        for source in sources
        for pair in source.pairs
        for file in (pair.img_path, pair.seg_map_path)
        if file in files
    }


def _overview(sets: Sequence[SetSummary]) -> Iterator[str]:
    if not sets:
        return
    head = ('data set', 'pairs', 'masks decoded', 'images decoded', 'smallest sides', 'largest sides')
    yield '<h2>Data sets</h2><table><tr>' + ''.join(f'<th>{name}</th>' for name in head) + '</tr>'
    for one in sets:
        sizes = ('x'.join(map(str, size)) or '-' for size in (one.smallest, one.largest))
        cells = (one.key, one.pairs, one.masks, one.photos, *sizes)
        yield '<tr>' + ''.join(f'<td>{escape(str(cell))}</td>' for cell in cells) + '</tr>'
    yield '</table><h3>Sizes of the images</h3>'
    colours = make_palette(len(sets) + 1)[1:]
    yield size_scatter([(one.part, one.sizes, colour) for one, colour in zip(sets, colours.tolist())])


def _data_set(source: Source, summary: SetSummary) -> Iterator[str]:
    yield f'<h2>{escape(summary.key)}</h2>'
    total = sum(summary.class_pixels) + summary.ignored_pixels
    if total:
        palette = palette_of({'classes': summary.classes, 'palette': source.palette}).tolist()
        colours = [palette[label] if label < len(palette) else [128] * 3 for label in range(len(summary.classes))]
        shares = [pixels / total for pixels in (*summary.class_pixels, summary.ignored_pixels)]
        yield '<h3>Share of the pixels</h3>'
        yield bars([*summary.classes, 'ignored'], shares, [*colours, [255] * 3])
    yield '<h3>Samples</h3>'
    for _, index in spread([source])[:_SAMPLES]:
        yield sample_picture(source, source.pairs[index], _SAMPLE_PX)
