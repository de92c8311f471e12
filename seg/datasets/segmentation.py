"""SegmentationDataset: image and mask files in folders, described by data in the config."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from mmengine.dataset import BaseDataset

from seg.datasets.folds import FoldSplit
from seg.datasets.label_rule import IGNORE_INDEX, LabelRule, MaskKey
from seg.datasets.pairs import IMAGE_SUFFIXES, Suffixes, find_pairs
from seg.datasets.palette import default_palette
from seg.datasets.split import PercentSplit, thin
from seg.errors import UserError
from seg.registry import DATASETS, TRANSFORMS


@DATASETS.register_module()
class SegmentationDataset(BaseDataset):
    """Pairs of image and mask files; a sample is what `pipeline` makes of one.

    data_prefix: folders under data_root; seg_map_path=None: images without masks, in test_mode only.
    img_suffix, seg_map_suffix: ends of file names, or several; `seg.datasets.pairs` tells how names are matched.
    ann_file: a text file under data_root that lists the names to use.
    split: dict(part='train' or 'val', val_percent=10, seed=0, group=regular expression); see `PercentSplit`; or
        fold='0/5' in the place of val_percent, see `FoldSplit`. It divides what ann_file lists, or the whole folder.
    percent: only so many of the images, in percent, of the split's part; see `thin`.
    metainfo: dict(classes=names, palette=RGB colours); the number of classes is the number of names.
    label_map, ignore_index, reduce_zero_label, mask_threshold: what the values in the mask files mean; see `LabelRule`.
    max_bad_files: how many distinct files of a training may turn out missing or damaged and be replaced by the next
        sample; see `seg.datasets.bad_files`. Without it the first one ends the run.
    indices, serialize_data, lazy_init: as in MMEngine.

    Raises UserError for folders, names, splits and rules that do not fit.
    """

    DATA_PREFIX: ClassVar[Mapping[str, str | None]] = {'img_path': '', 'seg_map_path': ''}
    IMG_SUFFIX: Suffixes = IMAGE_SUFFIXES
    SEG_MAP_SUFFIX: Suffixes = '.png'
    GROUP: str | None = None  # the split's group where the config names none
    WHERE_FROM = ''  # said when a folder is missing

    def __init__(
        self,
        *,
        data_root: str = '',
        data_prefix: Mapping[str, str | None] | None = None,
        ann_file: str = '',
        img_suffix: Suffixes | None = None,
        seg_map_suffix: Suffixes | None = None,
        metainfo: Mapping[str, Any] | None = None,
        label_map: Mapping[MaskKey, int] | None = None,
        ignore_index: int = IGNORE_INDEX,
        reduce_zero_label: bool = False,
        mask_threshold: int | None = None,
        split: Mapping[str, Any] | None = None,
        percent: float = 100,
        max_bad_files: int = 0,
        indices: int | Sequence[int] | None = None,
        pipeline: Sequence[dict[str, Any] | Callable[[dict], dict]] = (),
        test_mode: bool = False,
        serialize_data: bool = True,
        lazy_init: bool = False,
    ) -> None:
        self.img_suffix = self.IMG_SUFFIX if img_suffix is None else img_suffix
        self.seg_map_suffix = self.SEG_MAP_SUFFIX if seg_map_suffix is None else seg_map_suffix
        self.split = _build_split(split, self.GROUP)
        self.percent = percent
        self.max_bad_files = _check_bad_files(max_bad_files, test_mode)
        _refuse_no_indices(indices)
        super().__init__(
            ann_file=ann_file,
            metainfo=metainfo,
            data_root=data_root,
            data_prefix=_check_prefix(self.DATA_PREFIX if data_prefix is None else data_prefix, test_mode),
            indices=indices,
            serialize_data=serialize_data,
            pipeline=[TRANSFORMS.build(step) if isinstance(step, Mapping) else step for step in pipeline],
            test_mode=test_mode,
            lazy_init=True,
        )
        classes = _check_classes(self._metainfo)
        rule = LabelRule(len(classes), label_map, ignore_index, reduce_zero_label, mask_threshold)
        self._rule = _plain(rule)
        self._metainfo.update(classes=classes, palette=_check_palette(self._metainfo, len(classes)))
        self._metainfo.update(label_map=self._rule['label_map'], ignore_index=ignore_index)
        if not lazy_init:
            self.full_init()

    def load_data_list(self) -> list[dict[str, Any]]:
        """One dict(name, img_path, seg_map_path) a pair, sorted by name."""
        img_dir, mask_dir = self.data_prefix['img_path'], self.data_prefix.get('seg_map_path')
        self._check_folders()
        pairs = find_pairs(img_dir, mask_dir, self.img_suffix, self.seg_map_suffix, self.ann_file)
        chosen = self._choose([pair.name for pair in pairs])
        return [pair._asdict() for pair in pairs if pair.name in chosen]

    def _choose(self, names: list[str]) -> set[str]:
        if self.split is not None:
            names = self.split.choose(names)
        if self.percent == 100:
            return set(names)
        seed, group = (self.split.seed, self.split.group) if self.split is not None else (0, self.GROUP)
        return set(thin(names, self.percent, seed, group))

    def get_data_info(self, idx: int) -> dict[str, Any]:
        """A pair's dict with sample_idx and the meaning of mask values, which `LoadAnnotations` needs."""
        return {**super().get_data_info(idx), **self._rule}

    def __getitem__(self, idx: int) -> dict[str, Any]:
        self.full_init()
        sample = self.prepare_data(idx)
        if sample is None:
            path = self.get_data_info(idx)['img_path']
            raise UserError(f'{path}: a transform of the pipeline returned None; samples are never replaced by others')
        return sample

    def split_record(self) -> dict[str, Any]:
        """Plain data for the run's folder: where the pairs come from, how they were chosen, and their sorted names."""
        self.full_init()
        return {
            'img_path': self.data_prefix['img_path'],
            'seg_map_path': self.data_prefix.get('seg_map_path'),
            'ann_file': self.ann_file or None,
            'split': None if self.split is None else self.split.describe(),
            'percent': self.percent,
            'images': len(self),
            'names': sorted(self.get_data_info(index)['name'] for index in range(len(self))),
        }

    def _check_folders(self) -> None:
        for key, folder in self.data_prefix.items():
            if not Path(folder or '.').is_dir():
                raise UserError(
                    f'{folder}: no such folder (data_root={self.data_root!r}, data_prefix.{key}; working folder '
                    f'{Path.cwd()}). {self.WHERE_FROM or "Check both, or give data_root as an absolute path"}'
                )


def _check_prefix(prefix: Mapping[str, str | None], test_mode: bool) -> dict[str, str]:
    """The folders that there are; MMEngine joins them to data_root and knows no None."""
    known = {'img_path', 'seg_map_path'}
    if 'img_path' not in prefix or not set(prefix) <= known:
        raise UserError(f'data_prefix={dict(prefix)}: its keys are img_path and seg_map_path')
    if prefix.get('seg_map_path') is None and not test_mode:
        raise UserError(
            f'data_prefix={dict(prefix)}: training needs masks; give seg_map_path (the empty string: the same folder '
            'as the images), or test_mode=True for images without masks'
        )
    return {key: folder for key, folder in prefix.items() if folder is not None}


def _build_split(split: Mapping[str, Any] | None, group: str | None) -> PercentSplit | FoldSplit | None:
    if split is None:
        return None
    kind = FoldSplit if 'fold' in split else PercentSplit
    known = set(kind.__dataclass_fields__)
    if 'part' not in split or not set(split) <= known:
        raise UserError(f'split={dict(split)}: part is needed, and its keys are {sorted(known)}')
    return kind(**{'group': group, **split})


def _check_bad_files(count: int, test_mode: bool) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise UserError(f'max_bad_files={count!r}; a number of files is meant, 0 or more')
    if count and test_mode:
        raise UserError(
            f'max_bad_files={count} goes with training; scores of a validation or a test (test_mode=True) would change '
            'with every file that another one replaces'
        )
    return count


def _refuse_no_indices(indices: int | Sequence[int] | None) -> None:
    if indices is not None and not indices:
        raise UserError(f'indices={indices!r} leaves no image; give a number or a list, or leave it out')


def _check_classes(metainfo: Mapping[str, Any]) -> tuple[str, ...]:
    classes = metainfo.get('classes')
    if not isinstance(classes, Sequence) or isinstance(classes, str) or not classes:
        raise UserError(
            f'metainfo: classes={classes!r}; the data set needs the names of its classes, as '
            "metainfo=dict(classes=('background', 'car'))"
        )
    if len(set(classes)) < len(classes):
        raise UserError(f'metainfo: classes={list(classes)} names a class twice')
    return tuple(classes)


def _check_palette(metainfo: Mapping[str, Any], num_classes: int) -> list[list[int]]:
    palette = metainfo.get('palette')
    if palette is None:
        return default_palette(num_classes)
    colours = [list(colour) for colour in palette]
    if len(colours) != num_classes or any(len(c) != 3 or not all(0 <= part <= 255 for part in c) for c in colours):
        raise UserError(f'metainfo: palette={colours}; {num_classes} colours [r, g, b] of 0 to 255 are needed')
    return colours


def _plain(rule: LabelRule) -> dict[str, Any]:
    """The rule as plain data: it travels in samples and checkpoints."""
    label_map = rule.label_map
    return {
        'num_classes': rule.num_classes,
        'label_map': None if label_map is None else {_plain_key(key): int(label) for key, label in label_map.items()},
        'ignore_index': rule.ignore_index,
        'reduce_zero_label': rule.reduce_zero_label,
        'mask_threshold': rule.mask_threshold,
    }


def _plain_key(key: MaskKey) -> MaskKey:
    return (int(key[0]), int(key[1]), int(key[2])) if isinstance(key, tuple) else int(key)
