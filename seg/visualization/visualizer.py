"""The one door to all loggers: one that is missing or fails is dropped with a word, and the run goes on."""

import difflib
import inspect
import logging
from collections.abc import Sequence
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.logging import print_log
from mmengine.visualization import Visualizer
from mmengine.visualization.vis_backend import BaseVisBackend

from seg.errors import UserError
from seg.registry import VISBACKENDS, VISUALIZERS
from seg.visualization.histogram import summarise
from seg.visualization.overlay import Picture

_IN_EXTRA = ('TensorboardVisBackend', 'WandbVisBackend', 'MLflowVisBackend')  # what seg[vis] installs


@VISUALIZERS.register_module(name=['SegVisualizer', 'Visualizer'])
class SegVisualizer(Visualizer):
    """MMEngine's Visualizer whose `vis_backends` can't stop the run. Only rank 0 has any.

    A backend that does not exist, or an argument that it does not take, is a UserError: that is a misspelt config.
    """

    def __init__(
        self,
        name: str = 'visualizer',
        image: Any = None,
        vis_backends: Sequence[dict | BaseVisBackend] | dict | BaseVisBackend | None = None,
        save_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, image, **kwargs)
        if isinstance(vis_backends, (dict, BaseVisBackend)):
            vis_backends = [vis_backends]
        folder = None if save_dir is None else f'{save_dir}/vis_data'
        for backend in vis_backends or []:
            self._add_backend(backend, folder)

    def add_config(self, config: Config, **kwargs: Any) -> None:
        self._each('add_config', config, **kwargs)

    def add_graph(self, model: torch.nn.Module, data_batch: Any, **kwargs: Any) -> None:
        self._each('add_graph', model, data_batch, **kwargs)

    def add_image(self, name: str, image: Picture, step: int = 0) -> None:
        """Show an RGB, HWC, uint8 picture in every logger."""
        self._each('add_image', name, image, step)

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self._each('add_scalar', name, value, step, **kwargs)

    def add_scalars(self, scalar_dict: dict, step: int = 0, file_path: str | None = None, **kwargs: Any) -> None:
        self._each('add_scalars', scalar_dict, step, file_path, **kwargs)

    def add_histogram(self, name: str, values: torch.Tensor, step: int = 0) -> None:
        """Show how a tensor's finite values are spread in every logger that has histograms."""
        backends = [key for key, backend in self._vis_backends.items() if hasattr(backend, 'add_histogram')]
        histogram = summarise(values) if backends else None
        if histogram is not None:
            self._each('add_histogram', name, histogram, step, only=backends)

    @property
    def has_histograms(self) -> bool:
        """Whether any logger here shows histograms."""
        return any(hasattr(backend, 'add_histogram') for backend in self._vis_backends.values())

    def close(self) -> None:
        self._each('close')

    def _each(self, method: str, *args: Any, only: Sequence[str] | None = None, **kwargs: Any) -> None:
        for name, backend in list(self._vis_backends.items()):
            if only is not None and name not in only:
                continue
            try:
                getattr(backend, method)(*args, **kwargs)
            except Exception as error:  # noqa: BLE001, a logger can fail in any way, and none is worth the run
                del self._vis_backends[name]
                _say_dropped(name, type(backend).__name__, method, error)

    def _add_backend(self, backend: dict | BaseVisBackend, folder: str | None) -> None:
        if not is_main_process():
            return
        name = backend.get('name') if isinstance(backend, dict) else None
        if isinstance(backend, dict):
            built = _build(backend, folder)
            if built is None:
                return
            backend = built
        name = name or type(backend).__name__
        if name in self._vis_backends:
            raise UserError(f'visualizer.vis_backends has {name} twice; give one of them another `name`')
        self._vis_backends[name] = backend


def _build(config: dict, folder: str | None) -> BaseVisBackend | None:
    """The backend, or None where it can't be made. Raises UserError for a type or an argument that does not exist."""
    arguments = {key: value for key, value in config.items() if key not in ('type', 'name')}
    kind = _find(config.get('type'))
    arguments.setdefault('save_dir', folder)
    try:
        inspect.signature(kind).bind(**arguments)
    except TypeError as error:
        raise UserError(f'visualizer.vis_backends: {kind.__name__}: {error}, given {sorted(arguments)}') from None
    try:
        return kind(**arguments)
    except Exception as error:  # noqa: BLE001, as in SegVisualizer._each
        _say_dropped(kind.__name__, kind.__name__, '__init__', error)
        return None


def _find(name: Any) -> type[BaseVisBackend]:
    if isinstance(name, type):
        return name
    kind = VISBACKENDS.get(name) if isinstance(name, str) else None
    if kind is None:
        known = [*VISBACKENDS.module_dict, *(VISBACKENDS.parent.module_dict if VISBACKENDS.parent else ())]
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f'did you mean {near[0]}?' if near else f'expected one of {sorted(set(known))}'
        raise UserError(f'visualizer.vis_backends has the type {name!r}; {hint}')
    return kind


def _say_dropped(name: str, kind: str, method: str, error: Exception) -> None:
    in_extra = isinstance(error, ImportError) and kind in _IN_EXTRA
    remedy = "install it with: pip install 'seg[vis]'" if in_extra else 'its own message says what to mend'
    print_log(
        f'{name} is switched off, the run goes on: {method} failed with {type(error).__name__}: {error}. '
        f'From here on scalars, images and histograms do not reach it; {remedy}, or take it out of '
        'visualizer.vis_backends.',
        logger='current',
        level=logging.WARNING,
    )
