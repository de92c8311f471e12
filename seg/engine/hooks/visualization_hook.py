"""Pictures of the run: its first batch, a few validation images each time, the worst and the best."""

from pathlib import Path
from typing import Any

import torch
from mmengine.dist import gather_object, is_main_process
from mmengine.hooks import Hook
from torch import Tensor
from torch.nn.functional import interpolate

from seg.evaluation.confusion import score_from_fixed
from seg.evaluation.metric import SegMetric
from seg.registry import HOOKS
from seg.visualization.gallery import Gallery, Sample
from seg.visualization.overlay import (
    Picture,
    contact_sheet,
    fit_size,
    overlay,
    palette_of,
    resize_image,
    save_png,
    to_rgb,
    triple,
)

_SIDE_PX = 384
_MAX_IN_BATCH_PICTURE = 16
_FLUSH_AT = 32  # scores are read from the device for this many images at once

Small = tuple[Tensor, Tensor | None, Tensor]
"""An image (CHW), its truth and its prediction (HW), on their devices, no side over `_SIDE_PX`."""


@HOOKS.register_module()
class SegVisualizationHook(Hook):
    """Draws, on rank 0, into `vis` beside the log:

    `first_batch.png`, the augmented images of this start's first batch under their labels; after training
    `worst_1_NAME.png`, `best_1_NAME.png`, ...: image, truth and prediction of the validation images with the lowest and
    the highest Dice of their own, as the last validation saw them (these need a SegMetric that names as many). At every
    `interval`-th validation `samples` fixed images go to every logger.

    A rank holds at most `worst` + `best` + 32 pictures of 384 pixels a side.
    """

    priority = 'LOW'

    def __init__(
        self,
        draw_first_batch: bool = True,
        samples: int = 4,
        worst: int = 4,
        best: int = 4,
        interval: int = 1,
    ) -> None:
        self.draw_first_batch = draw_first_batch
        self.samples = samples
        self.worst, self.best = worst, best
        self.interval = interval
        self._validations = 0
        self._drawn = 0
        self._gallery = Gallery(worst, best)
        self._pending: list[tuple[Tensor, str, Small]] = []
        self._metric: SegMetric | None = None

    # -- the first batch ------------------------------------------------------------------------------------------

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        if self.draw_first_batch and is_main_process():
            palette = palette_of(getattr(runner.train_dataloader.dataset, 'metainfo', None))
            self._save(runner, 'first_batch.png', batch_picture(data_batch, palette))
        self.draw_first_batch = False

    # -- validation -----------------------------------------------------------------------------------------------

    def before_val_epoch(self, runner: Any) -> None:
        self._gallery = Gallery(self.worst, self.best)
        self._pending = []
        self._drawn = 0
        self._metric = next((m for m in runner.val_loop.evaluator.metrics if isinstance(m, SegMetric)), None)

    def after_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        labelled = [i for i, output in enumerate(outputs) if output.get('label') is not None]
        if is_main_process() and self._validations % self.interval == 0:
            self._log_samples(runner, batch_idx, data_batch, outputs)
        if self._metric is not None and self._metric.last_scores is not None and self.worst + self.best > 0:
            for i, score in zip(labelled, self._metric.last_scores):
                path = str(data_batch['metas'][i].get('img_path', ''))
                self._pending.append((score, path, _small(data_batch, outputs, i)))
        if len(self._pending) >= _FLUSH_AT:
            self._flush()

    def after_val_epoch(self, runner: Any, metrics: dict | None = None) -> None:
        self._flush()
        self._validations += 1

    def _log_samples(self, runner: Any, batch_idx: int, data_batch: dict, outputs: list[dict]) -> None:
        """The same images at every validation: the first of batches spread evenly over this rank's."""
        batches = len(runner.val_dataloader)
        stride, per_batch = max(1, batches // max(1, self.samples)), -(-self.samples // batches)
        if batch_idx % stride:
            return
        palette = palette_of(getattr(runner.val_dataloader.dataset, 'metainfo', None))
        for i in range(min(per_batch, self.samples - self._drawn, len(outputs))):
            sample = _to_host(_small(data_batch, outputs, i))
            self._drawn += 1
            name = Path(str(data_batch['metas'][i].get('img_path', ''))).stem
            picture = sample_picture(sample, palette)
            runner.visualizer.add_image(f'val/{self._drawn}_{name}', picture, step=runner.iter)

    def _flush(self) -> None:
        """Read the scores of the pending images, all at once, and keep the pictures that matter."""
        if not self._pending:
            return
        for fixed, (_, path, sample) in zip(torch.stack([p[0] for p in self._pending]).tolist(), self._pending):
            score = score_from_fixed(fixed)
            if score is not None and self._gallery.admits(score, path):
                self._gallery.add(score, path, _to_host(sample))
        self._pending = []

    # -- the end --------------------------------------------------------------------------------------------------

    def after_train(self, runner: Any) -> None:
        if self._metric is not None and self.worst + self.best > 0:
            self._draw_extremes(runner, self._metric)

    def _draw_extremes(self, runner: Any, metric: SegMetric) -> None:
        """Every rank sends the pictures that it has of the images that the metric named; rank 0 draws them."""
        chosen = {'worst': metric.worst_images[: self.worst], 'best': metric.best_images[: self.best]}
        parts = gather_object(self._gallery.pick([*chosen['worst'], *chosen['best']]))
        if not is_main_process() or parts is None:
            return
        samples = {path: sample for part in parts for path, sample in part.items()}
        palette = palette_of(getattr(runner.val_dataloader.dataset, 'metainfo', None))
        for kind, images in chosen.items():
            for place, (score, path) in enumerate(images, start=1):
                if path in samples:
                    caption = f'Dice {score:.4f}  {Path(path).name}'
                    picture = sample_picture(samples[path], palette, caption)
                    self._save(runner, f'{kind}_{place}_{Path(path).stem}.png', picture)

    @staticmethod
    def _save(runner: Any, name: str, picture: Picture) -> None:
        """A picture that can't be written is missed, not mourned; a full disk stops the run where it matters."""
        path = Path(runner.log_dir) / 'vis' / name
        try:
            save_png(path, picture)
        except OSError as error:
            runner.logger.warning(f'{path} was not written: {error}')


def batch_picture(batch: dict, palette: Any) -> Picture:
    """A training batch as it comes from the loader (uint8, before the preprocessor), its labels painted over it."""
    pictures = []
    labels = batch.get('labels')
    for i in range(min(len(batch['inputs']), _MAX_IN_BATCH_PICTURE)):
        image = to_rgb(_hwc(batch['inputs'][i]))
        image = resize_image(image, fit_size(image.shape[:2], _SIDE_PX))
        pictures.append(image if labels is None else overlay(image, labels[i].cpu().numpy(), palette))
    return contact_sheet(pictures)


def sample_picture(sample: Sample, palette: Any, caption: str = '') -> Picture:
    """Image, truth and prediction side by side at the truth's shape."""
    image = resize_image(to_rgb(sample.image), sample.prediction.shape[:2])
    return triple(image, sample.truth, sample.prediction, palette, caption)


def _small(data_batch: dict, outputs: list[dict], i: int) -> Small:
    """Copies, never views: those would keep whole batches in memory."""
    image, prediction, truth = data_batch['inputs'][i], outputs[i]['pred'], outputs[i].get('label')
    size_px = fit_size(tuple(prediction.shape), _SIDE_PX)
    small = fit_size(tuple(image.shape[-2:]), _SIDE_PX)
    if small == tuple(image.shape[-2:]):
        image = image.clone()
    else:
        image = interpolate(image[None].float(), size=small, mode='area')[0].round().to(image.dtype)
    return image, None if truth is None else _nearest(truth, size_px), _nearest(prediction, size_px)


def _nearest(label_HW: Tensor, size_px: tuple[int, int]) -> Tensor:
    return interpolate(label_HW[None, None], size=size_px, mode='nearest-exact')[0, 0]


def _to_host(sample: Small) -> Sample:
    image, truth, prediction = sample
    return Sample(_hwc(image), None if truth is None else truth.cpu().numpy(), prediction.cpu().numpy())


def _hwc(image_CHW: Tensor) -> Any:
    return image_CHW.cpu().permute(1, 2, 0).numpy()
