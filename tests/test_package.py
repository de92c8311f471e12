"""What `seg` itself offers, and that it costs nothing before it is asked for."""

import importlib.metadata
import subprocess
import sys

import pytest

import seg


def test_names() -> None:
    from seg import Predictor, train
    from seg.engine.train import train as engine_train

    assert train is engine_train
    assert Predictor.__module__ == 'seg.inference.predictor'
    assert seg.__version__ == importlib.metadata.version('seg')
    with pytest.raises(AttributeError, match="no attribute 'predictor_'"):
        _ = seg.predictor_


def test_importing_it_imports_nothing_heavy() -> None:
    code = 'import seg, sys; assert not {"torch", "numpy", "cv2", "mmengine"} & set(sys.modules)'
    assert subprocess.run([sys.executable, '-c', code]).returncode == 0
