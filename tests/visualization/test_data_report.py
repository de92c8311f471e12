"""The page about a config's data: everything stands in it, and nothing breaks on files that cannot be shown."""

import base64
import re
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from seg.datasets.gate.findings import Finding
from seg.engine import gate
from seg.visualization.data_report import write_data_report
from seg.visualization.svg import bars, size_scatter
from tests.datasets.made import disc, photo, write_image
from tests.tiny import make_data, tiny_config


def page(report: gate.GateReport, out: Path) -> str:
    write_data_report(out, 'configs/<tiny>.py', report.sources, report.sets, report.findings, ['a & b'])
    return out.read_text()


@pytest.fixture
def spoiled(tmp_path: Path) -> gate.GateReport:
    root = make_data(tmp_path / 'data')
    (root / 'train/train3.png').write_bytes(b'text')
    write_image(root / 'val_masks/val1.png', disc(24, 32) * 255)
    write_image(root / 'val_masks/val2.png', photo(24, 32))
    return gate.run(tiny_config(root, tmp_path / 'run'), cache_folder=tmp_path / 'cache')


def test_it_needs_nothing_else(spoiled: gate.GateReport, tmp_path: Path) -> None:
    text = page(spoiled, tmp_path / 'deep/report.html')
    assert not re.search(r'https?:|<script|<link|src="(?!data:)', text)
    assert [file.name for file in (tmp_path / 'deep').iterdir()] == ['report.html']
    pictures = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', text)
    assert all(Image.open(BytesIO(base64.b64decode(data))).size == (32, 24) for data in pictures)
    # 8 + 5 samples and 3 faults; a sample without a good mask shows both files, and train3.png cannot be shown
    assert len(pictures) >= 8 + 5 + 3


def test_what_stands_in_it(spoiled: gate.GateReport, tmp_path: Path) -> None:
    text = page(spoiled, tmp_path / 'report.html')
    assert 'Data of configs/&lt;tiny&gt;.py' in text
    assert '3 fault(s) keep it from being trained on' in text
    assert 'images that cannot be used: 1 of 8' in text
    assert 'class="bad"' in text
    assert '<td>train_dataloader.dataset</td><td>8</td>' in text
    assert '<li>a &amp; b</li>' in text
    assert 'box' in text


def test_good_data(tmp_path: Path) -> None:
    report = gate.run(tiny_config(make_data(tmp_path / 'data'), tmp_path / 'run'), cache_folder=tmp_path / 'cache')
    text = page(report, tmp_path / 'report.html')
    assert 'Nothing keeps it from being trained on; 0 warning(s)' in text
    assert 'class="bad"' not in text


def test_data_sets_that_could_not_be_built(tmp_path: Path) -> None:
    missing = Finding('error', 'train_dataloader.dataset', 'no such folder')
    text = page(gate.GateReport([], [missing]), tmp_path / 'report.html')
    assert 'train_dataloader.dataset: no such folder' in text


def numbers(svg: str, tag: str, attribute: str) -> list[float]:
    return [float(found.attrib[attribute]) for found in ElementTree.fromstring(svg).iter(tag)]


def test_bars_are_as_long_as_their_shares() -> None:
    widths = numbers(bars(['a<b', 'c'], [0.5, 0.25], [[0, 0, 0], [255, 0, 0]]), 'rect', 'width')
    assert widths[0] == 2 * widths[1]


def test_points_stand_where_their_sizes_are() -> None:
    sizes = [[100, 200, 4], [100, 400, 1], [50, 200, 1]]
    svg = size_scatter([('train', sizes, [255, 0, 0])])
    x, y, r = (np.array(numbers(svg, 'circle', name)) for name in ('cx', 'cy', 'r'))
    assert x[0] == x[2] < x[1]
    assert y[0] == y[1] < y[2]
    assert r[0] > r[1] == r[2]
    assert size_scatter([('train', [], [0, 0, 0])]) == ''
