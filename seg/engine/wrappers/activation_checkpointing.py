"""Activation checkpointing: activations inside a module are computed again in the backward pass instead of kept.

Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174. MMEngine's own helper uses torch's
deprecated re-entrant kind and lets each batch update the running statistics twice (D15).
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from seg.errors import UserError


class _Checkpointed:
    """Mixed into the class of a module: its keys, its hooks and its deep copies stay what they were."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inner = super().forward  # type: ignore[misc]
        if not torch.is_grad_enabled():
            return inner(*args, **kwargs)

        def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
            return nullcontext(), _frozen_statistics(self)  # type: ignore[arg-type]

        return checkpoint(inner, *args, use_reentrant=False, context_fn=contexts, **kwargs)


def turn_on_activation_checkpointing(model: nn.Module, patterns: str | Sequence[str]) -> list[str]:
    """Checkpoint each module whose dotted name matches a pattern, and return the names.

    A pattern has as many parts as the name, each with shell wildcards: 'network.encoder.*' are the encoder's blocks,
    not what is inside them. Raises UserError for a pattern that matches nothing.
    """
    modules = dict(model.named_modules())
    names = matching_modules(model, patterns, 'activation_checkpointing')
    for name in names:
        _wrap(modules[name])
    return names


def matching_modules(model: nn.Module, patterns: str | Sequence[str], option: str) -> list[str]:
    """The dotted names that match. Raises UserError, with `option` in it, for a pattern that matches nothing."""
    modules = dict(model.named_modules())
    names: list[str] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matches = [name for name in modules if _matches(name, pattern)]
        if not matches:
            raise UserError(f'{option}: {pattern!r} matches no module. {_near(list(modules), pattern)}')
        names += [name for name in matches if name not in names]
    return names


def _wrap(module: nn.Module) -> None:
    kind = type(module)
    if isinstance(module, nn.ModuleList | nn.ModuleDict):
        raise UserError(f'activation_checkpointing: a {kind.__name__} is never run itself; name its children by ".*".')
    if not isinstance(module, _Checkpointed):
        # torch.compile cannot look into it, so a compiled network runs it as it is.
        members = {'__module__': kind.__module__, 'forward': torch.compiler.disable(_Checkpointed.forward)}
        module.__class__ = type(kind.__name__, (_Checkpointed, kind), members)


@contextmanager
def _frozen_statistics(module: nn.Module) -> Iterator[None]:
    """While activations are computed again: the batch has been counted already."""
    layers = [layer for layer in module.modules() if isinstance(layer, _NormBase)]
    kept = [(layer.momentum, layer.num_batches_tracked) for layer in layers]
    for layer in layers:
        layer.momentum, layer.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for layer, (momentum, count) in zip(layers, kept):
            layer.momentum, layer.num_batches_tracked = momentum, count


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split('.'), pattern.split('.')
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _near(names: list[str], pattern: str) -> str:
    """The names that go on from the longest part of `pattern` that does match."""
    wanted = pattern.split('.')
    for depth in range(len(wanted) - 1, 0, -1):
        stem = '.'.join(wanted[:depth])
        found = [name for name in names if name.count('.') == depth and _matches(name.rpartition('.')[0], stem)]
        if found:
            return f'Modules there: {", ".join(found[:12])}.'
    return f'Modules at the top: {", ".join(name for name in names if name and "." not in name)}.'
