"""MMEngine's loggers, mended where 0.10.7's are wrong with tensorboard 2.21 and wandb 0.31 (MLflow: `mlflow_backend`).

A scalar that is None is left out, one that is not finite is null in a file. `add_histogram(name, histogram, step)` is
there where the logger has histograms.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.visualization import vis_backend as upstream
from mmengine.visualization.vis_backend import force_init_env

from seg.registry import VISBACKENDS
from seg.visualization.histogram import Histogram
from seg.visualization.overlay import Picture, save_png


@VISBACKENDS.register_module()
class LocalVisBackend(upstream.LocalVisBackend):
    """Files in the run's folder: `scalars.json` (a JSON object a line) and `vis_image/`.

    Upstream's writes NaN, which is no JSON, and drops an image without a word whose name holds a slash.
    """

    @force_init_env
    def add_image(self, name: str, image: Picture, step: int = 0, **kwargs: Any) -> None:
        save_png(Path(self._img_save_dir) / f'{name}_{step}.png', image)

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self.add_scalars({name: value}, step)

    def _dump(self, value_dict: dict, file_path: str, file_format: str) -> None:
        finite = {key: _finite(value) for key, value in value_dict.items()}
        with Path(file_path).open('a', encoding='utf-8') as file:
            file.write(json.dumps(finite, ensure_ascii=False) + '\n')


@VISBACKENDS.register_module()
class TensorboardVisBackend(upstream.TensorboardVisBackend):
    """Event files for TensorBoard. Upstream's refuses a scalar called `step`, and has no histograms."""

    @force_init_env
    def add_scalars(self, scalar_dict: dict, step: int = 0, file_path: str | None = None, **kwargs: Any) -> None:
        for key, value in known_scalars(scalar_dict).items():
            self._tensorboard.add_scalar(key, value, step)

    @force_init_env
    def add_histogram(self, name: str, histogram: Histogram, step: int = 0) -> None:
        self._tensorboard.add_histogram_raw(
            name,
            min=histogram.edges[0],
            max=histogram.edges[-1],
            num=sum(histogram.counts),
            sum=histogram.total,
            sum_squares=histogram.total_of_squares,
            bucket_limits=histogram.edges[1:],
            bucket_counts=histogram.counts,
            global_step=step,
        )


@VISBACKENDS.register_module()
class WandbVisBackend(upstream.WandbVisBackend):
    """Weights & Biases, online or offline (WANDB_MODE=offline).

    Upstream's logs every .py file under the working folder as the run's code, a virtual environment's too, and forgets
    the step. Here the code is logged where `log_code_name` asks for it, and curves are drawn over the run's own step.
    """

    def _init_env(self) -> None:
        super()._init_env()
        self._wandb.define_metric('*', step_metric='step')

    @force_init_env
    def add_config(self, config: Config, **kwargs: Any) -> None:
        if self._log_code_name is not None:
            super().add_config(config, **kwargs)
            return
        allow = (self._init_kwargs or {}).get('allow_val_change', False)
        self._wandb.config.update(config.to_dict(), allow_val_change=allow)

    @force_init_env
    def add_image(self, name: str, image: Picture, step: int = 0, **kwargs: Any) -> None:
        self._log({name: self._wandb.Image(image)}, step)

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self._log(known_scalars({name: value}), step)

    @force_init_env
    def add_scalars(self, scalar_dict: dict, step: int = 0, file_path: str | None = None, **kwargs: Any) -> None:
        self._log(known_scalars(scalar_dict), step)

    @force_init_env
    def add_histogram(self, name: str, histogram: Histogram, step: int = 0) -> None:
        values = self._wandb.Histogram(np_histogram=(histogram.counts, histogram.edges))
        self._log({name: values}, step)

    def close(self) -> None:
        if hasattr(self, '_wandb'):
            self._wandb.finish()

    def _log(self, values: dict[str, Any], step: int) -> None:
        self._wandb.log({**values, 'step': step}, commit=self._commit)


def known_scalars(scalars: dict[str, Any]) -> dict[str, float]:
    """The scalars that have a value, as Python numbers; `step` goes by the call's own argument."""
    numbers = {key: _number(value) for key, value in scalars.items() if key != 'step'}
    return {key: value for key, value in numbers.items() if value is not None}


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, 'item') else value


def _finite(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.size != 1:
        return value.tolist()
    value = _number(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
