"""A config-driven trainer for semantic segmentation: `from seg import train, Predictor`.

`import seg` alone is cheap: what it offers is imported when it is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seg.engine.train import train
    from seg.inference.predictor import Predictor

    __version__: str

__all__ = ['Predictor', '__version__', 'train']


def __getattr__(name: str) -> Any:
    if name == 'train':
        from seg.engine.train import train

        return train
    if name == 'Predictor':
        from seg.inference.predictor import Predictor

        return Predictor
    if name == '__version__':
        from importlib.metadata import version

        return version('seg')
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
