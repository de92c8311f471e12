"""Predictions of `tools/test.py` as files: label maps, and overlays on the photographs."""

from pathlib import Path
from typing import Any

from mmengine.hooks import Hook

from seg.registry import HOOKS


@HOOKS.register_module()
class SavePredictionsHook(Hook):
    """Writes each test image's label map to `out_dir` and its overlay to `show_dir`, as PNG with the photo's stem."""

    def __init__(self, out_dir: str | None = None, show_dir: str | None = None) -> None:
        self.out_dir = out_dir and Path(out_dir)
        self.show_dir = show_dir and Path(show_dir)

    def before_test(self, runner: Any) -> None:
        for folder in (self.out_dir, self.show_dir):
            if folder:
                folder.mkdir(parents=True, exist_ok=True)

    def after_test_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        palette = runner.test_dataloader.dataset.metainfo.get('palette')
        for meta, output in zip(data_batch['metas'], outputs or []):
            self._write(meta['img_path'], output['pred'].cpu().numpy(), palette)

    def _write(self, img_path: str, labels: Any, palette: Any) -> None:
        from seg.inference.masks import write_label_map, write_overlay

        name = f'{Path(img_path).stem}.png'
        if self.out_dir:
            write_label_map(labels, self.out_dir / name, palette)
        if self.show_dir:
            write_overlay(img_path, labels, self.show_dir / name, palette)
