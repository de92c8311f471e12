"""A trained model at work: photographs in, label maps of their own size out."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mmengine.config
import numpy as np
import torch
from mmengine.logging import print_log
from mmengine.registry import DefaultScope
from numpy.typing import NDArray
from torch import Tensor

from seg.datasets.collate import collate
from seg.engine.precision import autocast
from seg.errors import UserError
from seg.inference.device import choose_device, usable_precision
from seg.inference.photo_pipeline import Photo, PhotoPipeline, PhotoSample
from seg.inference.stored import StoredModel, evaluation_dataset, read_stored_model
from seg.models.weights import load_weights
from seg.registry import MODELS

MAX_ALL_PROBS_BYTES = 2**31


@dataclass(frozen=True)
class Prediction:
    """`labels`: uint8 HW of the photograph's own size, in the orientation that viewers show it in (EXIF).

    Probabilities are made when they are asked for, from logits at the network's resolution.
    """

    labels: NDArray[np.uint8]
    _logits: Tensor  # CHW
    _segmentor: Any

    @property
    def num_classes(self) -> int:
        """2 for a model of one class, too: background and that class."""
        return max(2, self._segmentor.num_classes)

    @property
    def probs(self) -> NDArray[np.float32]:
        """float32 HW: the probability of the foreground. Raises UserError for more than two classes."""
        if self.num_classes > 2:
            raise UserError(f'the model has {self.num_classes} classes, so say which: prob(label), or all_probs()')
        return self.prob(1)

    def prob(self, label: int) -> NDArray[np.float32]:
        """float32 HW: the probability of one class."""
        height, width = self.labels.shape
        return self._segmentor.prob_map(self._logits, (height, width), label).float().numpy()

    def all_probs(self) -> NDArray[np.float32]:
        """float32 CHW. Raises UserError where that is more than 2 GiB: ask for one class at a time."""
        size = 4 * self.num_classes * self.labels.size
        if size > MAX_ALL_PROBS_BYTES:
            raise UserError(
                f'the probabilities of {self.num_classes} classes at {self.labels.shape[1]}x{self.labels.shape[0]} are '
                f'{size / 2**30:.1f} GiB; ask for one class at a time, by prob(label)'
            )
        return np.stack([self.prob(label) for label in range(self.num_classes)])


class Predictor:
    """A model from a checkpoint alone, or with the user's `config` for a file that does not hold one.

    Predicts as validation does: the same pipeline, the precision that the checkpoint records. `device`: 'cpu', 'cuda:1',
    ...; by itself the best that is here. `trust_checkpoint` allows the file to hold any Python object, whose loading runs
    code. Raises UserError.
    """

    def __init__(
        self,
        checkpoint: str | Path,
        config: str | Path | mmengine.config.Config | None = None,
        device: str | None = None,
        trust_checkpoint: bool = False,
    ) -> None:
        stored = read_stored_model(checkpoint, config, trust_checkpoint)
        self.device = choose_device(device)
        self.precision = _precision(stored, self.device)
        self.classes, self.palette = stored.classes, stored.palette
        self.pipeline = _build_pipeline(stored)
        self.segmentor = _build_segmentor(stored).to(self.device).eval()
        memory_format = getattr(self.segmentor.data_preprocessor, 'memory_format', torch.contiguous_format)
        self.segmentor.to(memory_format=memory_format)

    @property
    def num_classes(self) -> int:
        return self.segmentor.num_classes

    def __call__(self, photo: Photo) -> Prediction:
        """`photo`: a file, or an RGB HWC uint8 array. Raises UserError for one that cannot be read."""
        return self._predict(self.pipeline(photo))

    def each(self, photos: Iterable[Photo]) -> Iterator[tuple[Photo, Prediction | UserError]]:
        """The photographs in order, each with its prediction, or with what is wrong with it. Reads one ahead."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            waiting: list[tuple[Photo, Any]] = []
            for photo in photos:
                waiting.append((photo, pool.submit(self.pipeline, photo)))
                if len(waiting) > 1:
                    yield self._finish(*waiting.pop(0))
            for photo, future in waiting:
                yield self._finish(photo, future)

    def _finish(self, photo: Photo, future: Any) -> tuple[Photo, Prediction | UserError]:
        try:
            return photo, self._predict(future.result())
        except UserError as error:
            return photo, error

    @torch.inference_mode()
    def _predict(self, sample: PhotoSample) -> Prediction:
        batch = collate([dict(inputs=sample.inputs, metas=sample.metas)])
        try:
            inputs_NCHW = self.segmentor.data_preprocessor(batch, training=False)['inputs']
            with autocast(self.precision, self.device):
                logits_CHW = self.segmentor(inputs_NCHW)[0]
        except torch.OutOfMemoryError as error:
            shape = f'{sample.inputs.shape[-1]}x{sample.inputs.shape[-2]}'
            raise UserError(
                f'{sample.metas.get("img_path")}: the network cannot take {shape} pixels in the memory of '
                f'{self.device}; give a config whose test pipeline has a Resize by --config, or another device'
            ) from error
        logits_CHW = logits_CHW[:, : sample.content_px[0], : sample.content_px[1]]
        labels = self.segmentor.label_map(logits_CHW, sample.size_px).cpu().numpy()
        return Prediction(labels, logits_CHW.cpu(), self.segmentor)


def _precision(stored: StoredModel, device: torch.device) -> str:
    usable = usable_precision(stored.precision, device)
    if usable != stored.precision:
        print_log(
            f'{stored.path} was validated in {stored.precision}, in which {device} cannot compute: predicting in {usable}',
            logger='current',
        )
    return usable


def _build_pipeline(stored: StoredModel) -> PhotoPipeline:
    steps = evaluation_dataset(stored.config).get('pipeline')
    if not steps:
        raise UserError(
            'the config has no test_dataloader.dataset.pipeline (nor val_dataloader), which tells how a photograph is '
            'prepared for the network; give a config that has by --config'
        )
    with _explained('the test pipeline', stored):
        return PhotoPipeline([dict(step) for step in steps])


def _build_segmentor(stored: StoredModel) -> Any:
    if not stored.config.get('model'):
        raise UserError('the config has no model; give a config that has by --config')
    with _explained('the model', stored), DefaultScope.overwrite_default_scope('seg'):
        segmentor = MODELS.build(_without_class_weights(stored.config.model))
    report = load_weights(segmentor, stored.weights)
    if report.missing or report.skipped:
        raise UserError(f'{stored.path} does not fit the model, which would predict from random weights. {report}')
    return segmentor


def _without_class_weights(model: Any) -> Any:
    """Of the losses only the names are needed here, and their weights may be due to be counted from training data."""
    losses = model.get('losses') or []
    losses = [losses] if isinstance(losses, dict) else losses
    return {**model, 'losses': [{key: loss[key] for key in loss if key != 'class_weight'} for loss in losses]}


@contextmanager
def _explained(what: str, stored: StoredModel) -> Iterator[None]:
    """Turn what a builder raises into a UserError that names the checkpoint: what a config can do wrong is no bug."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        imports = ', '.join(stored.custom_imports)
        hint = 'Give the config that it was trained with by --config'
        if imports:
            hint = f'The training imported {imports} (custom_imports); a checkpoint may not. {hint}'
        raise UserError(f'{what} of {stored.path} cannot be built: {error}. {hint}') from error
