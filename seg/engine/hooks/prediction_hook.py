"""Predictions of `tools/test.py` as files: label maps, and overlays on the photographs."""

import os
from pathlib import Path
from typing import Any

from mmengine.hooks import Hook

from seg.inference.masks import write_label_map, write_overlay
from seg.registry import HOOKS


@HOOKS.register_module()
class SavePredictionsHook(Hook):
    """Writes each test image's label map to `out_dir` and its overlay to `show_dir`: PNG, by the photo's place and stem."""

    def __init__(self, out_dir: str | None = None, show_dir: str | None = None) -> None:
        self.out_dir = out_dir and Path(out_dir)
        self.show_dir = show_dir and Path(show_dir)

    def before_test(self, runner: Any) -> None:
        for folder in (self.out_dir, self.show_dir):
            if folder:
                folder.mkdir(parents=True, exist_ok=True)

    def after_test_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        dataset = runner.test_dataloader.dataset
        palette = dataset.metainfo.get('palette')
        root = common_folder(dataset.dataset)
        for meta, output in zip(data_batch['metas'], outputs or []):
            self._write(meta['img_path'], _name(meta['img_path'], root), output['pred'].cpu().numpy(), palette)

    def _write(self, img_path: str, name: Path, labels: Any, palette: Any) -> None:
        if self.out_dir:
            write_label_map(labels, _place(self.out_dir / name), palette)
        if self.show_dir:
            write_overlay(img_path, labels, _place(self.show_dir / name), palette)


def common_folder(dataset: Any) -> str:
    """The folder that holds all images of a data set, or of all that it is made of; '' where that is not known."""
    parts = getattr(dataset, 'datasets', [dataset])
    folders = [getattr(part, 'data_prefix', {}).get('img_path', '') for part in parts]
    return os.path.commonpath(folders) if all(folders) else ''


def _name(img_path: str, root: str) -> Path:
    """The photo's path below the data set's image folder, so that nested photos of one stem stay apart."""
    path = Path(img_path)
    inside = bool(root) and path.is_relative_to(root)
    return (path.relative_to(root) if inside else Path(path.name)).with_suffix('.png')


def _place(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
