"""Data sets for the gate's tests, looked at as a config's training data."""

from pathlib import Path
from typing import Any

from seg.datasets.check import Limits, check_data
from seg.datasets.gate.findings import Finding
from seg.datasets.gate.parallel import Crew
from seg.datasets.gate.sources import Found, find_sources
from seg.datasets.gate.stamps import stat_files
from seg.datasets.gate.summary import DataSummary

PIPELINE = [{'type': 'LoadImageFromFile'}, {'type': 'LoadAnnotations'}, {'type': 'PackSegInputs'}]


def dataset(root: Path, classes: tuple[str, ...] = ('ground', 'disc'), **options: Any) -> dict[str, Any]:
    """A config of root/images and root/masks, as `made.make_pairs` makes them."""
    folders = {'img_path': 'images', 'seg_map_path': 'masks'}
    settings = {'data_root': str(root), 'data_prefix': folders, 'metainfo': {'classes': classes}, 'pipeline': PIPELINE}
    return {'type': 'SegmentationDataset', **settings, **options}


def config(**datasets: dict[str, Any]) -> dict[str, Any]:
    """config(train=dataset(...), val=dataset(...))"""
    return {f'{part}_dataloader': {'batch_size': 2, 'dataset': one} for part, one in datasets.items()}


def sources(**datasets: dict[str, Any]) -> Found:
    found = find_sources(config(**datasets))
    assert not found.findings
    return found


def look(cache: Path, limits: Limits = Limits(), **datasets: dict[str, Any]) -> DataSummary:  # noqa: B008, frozen
    """What a pass over these data sets finds; `cache` is the cache's folder."""
    found = sources(**datasets).sources
    stamps = stat_files(path for source in found for pair in source.pairs for path in pair[1:])
    summary, trouble = check_data(found, stamps, limits, Crew(), cache)
    assert not trouble
    return summary


def texts(findings: list[Finding], level: str = 'error') -> str:
    """All of them as they are printed."""
    return '\n'.join(line for finding in findings if finding.level == level for line in finding.lines())
