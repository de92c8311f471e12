"""The data sets of a config, as the gate looks at them: which pairs, read how, and what their values mean."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmengine.dataset import BaseDataset

from seg.datasets.bad_files import allowed_bad_files
from seg.datasets.gate.findings import Finding, named
from seg.datasets.label_rule import LabelRule
from seg.datasets.loading import LoadAnnotations, LoadImageFromFile
from seg.datasets.opening import MAX_PIXELS
from seg.datasets.pairs import Pair
from seg.errors import UserError
from seg.registry import DATASETS

PARTS = ('train', 'val', 'test')
_RULE_KEYS = ('num_classes', 'label_map', 'ignore_index', 'reduce_zero_label', 'mask_threshold')


@dataclass(frozen=True)
class Reading:
    """How a data set's pipeline opens its files."""

    channels: int = 3
    value_range: tuple[float, float] | None = None
    apply_exif: bool = True
    max_pixels: int = MAX_PIXELS
    mask_max_pixels: int = MAX_PIXELS


@dataclass
class Source:
    """One data set that is no wrapper of others. `part` is 'train', 'val' or 'test'; `key` is where the config has it."""

    key: str
    part: str
    pairs: list[Pair]
    classes: list[str]
    palette: list[list[int]]
    rule: LabelRule
    reading: Reading
    transforms: Sequence[Any] = ()
    info: dict[str, Any] = field(default_factory=dict)  # what a sample carries into the pipeline
    max_bad_files: int = 0  # how many may be replaced by others

    @property
    def image_folder(self) -> str:
        return str(Path(self.pairs[0].img_path).parent) if self.pairs else ''

    @property
    def has_masks(self) -> bool:
        return any(pair.seg_map_path is not None for pair in self.pairs)


@dataclass
class Found:
    """The data sets of a config. samples: part -> length of what its loader goes through, repeats of wrappers included.

    findings: for each data set that cannot be built or is empty, which `sources` then lacks.
    """

    sources: list[Source] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    samples: dict[str, int] = field(default_factory=dict)


def find_sources(config: Mapping[str, Any], parts: Sequence[str] = PARTS) -> Found:
    """A loader whose data set is that of an earlier one is left out."""
    found = Found()
    seen: list[Any] = []
    for part in parts:
        key, dataset = f'{part}_dataloader.dataset', (config.get(f'{part}_dataloader') or {}).get('dataset')
        if dataset is None or any(dataset is other or _equal(dataset, other) for other in seen):
            continue
        seen.append(dataset)
        try:
            built = _build(dataset)
            leaves = list(_leaves(built, key, part))
        except UserError as error:
            found.findings.append(named(key, str(error)))
            continue
        found.samples[part] = len(built)
        found.sources += [leaf for leaf in leaves if leaf.pairs]
        found.findings += [named(leaf.key, 'the data set has no images') for leaf in leaves if not leaf.pairs]
    return found


def _equal(one: Any, other: Any) -> bool:
    return isinstance(one, Mapping) and isinstance(other, Mapping) and dict(one) == dict(other)


def _build(dataset: Any) -> Any:
    """A data set whose list of files is a plain list, which is faster to walk than MMEngine's bytes."""
    if not isinstance(dataset, Mapping):
        return dataset
    options = dict(dataset)
    kind = DATASETS.get(options['type']) if isinstance(options.get('type'), str) else options.get('type')
    if inspect.isclass(kind) and issubclass(kind, BaseDataset):
        parameters = inspect.signature(kind).parameters
        if 'serialize_data' in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            options.update(serialize_data=False, lazy_init=False)
    return DATASETS.build(options)


def _leaves(dataset: Any, key: str, part: str) -> Iterator[Source]:
    """The data sets under wrappers: those of `datasets`, or that of `dataset`."""
    if hasattr(dataset, 'full_init'):
        dataset.full_init()
    if hasattr(dataset, 'datasets'):
        for number, inner in enumerate(dataset.datasets):
            yield from _leaves(inner, f'{key}.datasets.{number}', part)
    elif hasattr(dataset, 'dataset'):
        yield from _leaves(dataset.dataset, f'{key}.dataset', part)
    elif hasattr(dataset, 'get_data_info'):
        yield _source(dataset, key, part)


def _source(dataset: Any, key: str, part: str) -> Source:
    transforms = getattr(getattr(dataset, 'pipeline', None), 'transforms', ())
    first = dataset.get_data_info(0) if len(dataset) else {}
    metainfo = dataset.metainfo
    return Source(
        key=key,
        part=part,
        pairs=[Pair(info.get('name', info['img_path']), info['img_path'], _mask_of(info)) for info in _infos(dataset)],
        classes=list(metainfo.get('classes') or ()),
        palette=[list(colour) for colour in metainfo.get('palette') or ()],
        rule=LabelRule(**{name: first[name] for name in _RULE_KEYS if name in first}),
        reading=_reading(transforms),
        transforms=transforms,
        info=first,
        max_bad_files=allowed_bad_files(dataset),
    )


def _infos(dataset: Any) -> Iterator[dict[str, Any]]:
    if getattr(dataset, 'serialize_data', True):
        return (dataset.get_data_info(index) for index in range(len(dataset)))
    return iter(dataset.data_list)


def _mask_of(info: Mapping[str, Any]) -> str | None:
    return info.get('seg_map_path') or None


def _reading(transforms: Sequence[Any]) -> Reading:
    image = next((step for step in transforms if isinstance(step, LoadImageFromFile)), None)
    mask = next((step for step in transforms if isinstance(step, LoadAnnotations)), None)
    found: dict[str, Any] = {} if mask is None else {'mask_max_pixels': mask.max_pixels}
    if image is not None:
        found |= {name: getattr(image, name) for name in ('channels', 'value_range', 'apply_exif', 'max_pixels')}
    return Reading(**found)
