"""MLflow as a logger, mended where MMEngine 0.10.7's is wrong with mlflow 3.17."""

import logging
import os
import re
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.visualization import vis_backend as upstream
from mmengine.visualization.vis_backend import force_init_env

from seg.registry import VISBACKENDS
from seg.visualization.backends import known_scalars
from seg.visualization.overlay import Picture

_BATCH = 100  # MLflow takes so many parameters at once


@VISBACKENDS.register_module()
class MLflowVisBackend(upstream.MLflowVisBackend):
    """MLflow; without `tracking_uri` and MLFLOW_TRACKING_URI in an SQLite file in the run's folder.

    Upstream's keeps a folder of files, which MLflow 3 refuses; stores images under names without an extension, which
    fails; can't flatten a config whose keys are numbers; at the end copies its own store into itself; and writes to
    the process's active run, which a run that failed before leaves behind. Here a run is written to by its id.
    """

    def _init_env(self) -> None:
        folder = Path(self._save_dir).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self._mlflow = _import_mlflow()
        uri, artifacts = self._tracking_uri, self._artifact_location
        if uri is None and 'MLFLOW_TRACKING_URI' not in os.environ:
            uri, artifacts = f'sqlite:///{folder / "mlflow.db"}', artifacts or (folder / 'mlartifacts').as_uri()
        self._client = self._mlflow.MlflowClient(uri)
        name = self._exp_name or 'seg'
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name, artifacts)
        self._run = self._client.create_run(number, run_name=self._run_name, tags=self._tags).info.run_id
        self._log_params(self._params or {})

    @force_init_env
    def add_config(self, config: Config, **kwargs: Any) -> None:
        params = config.to_dict()
        if self._tracked_config_keys is not None:
            params = {key: params[key] for key in self._tracked_config_keys}
        self._log_params(params)
        self._client.log_text(self._run, config.pretty_text, 'config.py')

    @force_init_env
    def add_image(self, name: str, image: Picture, step: int = 0, **kwargs: Any) -> None:
        self._client.log_image(self._run, image, f'{name}_{step}.png')

    @force_init_env
    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        self.add_scalars({name: value}, step)

    @force_init_env
    def add_scalars(self, scalar_dict: dict, step: int = 0, file_path: str | None = None, **kwargs: Any) -> None:
        for name, value in known_scalars(scalar_dict).items():
            self._client.log_metric(self._run, _legal(name), value, step=step)

    def close(self) -> None:
        if not hasattr(self, '_run'):
            return
        logs = Path(self._save_dir).parent
        for file in sorted([*logs.glob('*'), *Path(self._save_dir).glob('*')]):
            if file.is_file() and file.name.endswith(tuple(self._artifact_suffix)):
                folder = file.parent.relative_to(logs).as_posix()
                self._client.log_artifact(self._run, str(file), None if folder == '.' else folder)
        self._client.set_terminated(self._run)

    def _log_params(self, params: dict) -> None:
        entries = [self._mlflow.entities.Param(_legal(key), str(value)) for key, value in _flat(params).items()]
        for start in range(0, len(entries), _BATCH):
            self._client.log_batch(self._run, params=entries[start : start + _BATCH])


def _import_mlflow() -> Any:
    """MLflow sets up logging when it is imported, which closes the log's files; they are opened again."""
    import mlflow

    for handler in MMLogger.get_current_instance().handlers:
        if isinstance(handler, logging.FileHandler) and (handler.stream is None or handler.stream.closed):
            handler.stream = Path(handler.baseFilename).open('a', encoding=handler.encoding)  # noqa: SIM115, the handler's
    return mlflow


def _legal(name: str) -> str:
    """MLflow takes letters, digits and a few signs in a name."""
    return re.sub(r'[^\w\-. :/]', '_', name)


def _flat(value: Any, name: str = '') -> dict[str, Any]:
    """Nested dicts, and lists that hold dicts, as one dict with dotted names."""
    if isinstance(value, dict) and value:
        items: Any = value.items()
    elif isinstance(value, (list, tuple)) and any(isinstance(item, dict) for item in value):
        items = enumerate(value)
    else:
        return {name: value} if name else {}
    flat: dict[str, Any] = {}
    for key, item in items:
        flat |= _flat(item, f'{name}.{key}' if name else str(key))
    return flat
