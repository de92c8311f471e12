"""The random generators of every rank, in a checkpoint: dropout goes on where it was (D11)."""

import random
from typing import Any

import numpy as np
import torch
from mmengine.dist import get_rank, get_world_size


def all_states() -> list[dict[str, Any]]:
    """Each rank's generators, in plain types, by rank. Every rank must call it."""
    states: list[Any] = [None] * get_world_size()
    if len(states) == 1:
        return [own_state()]
    torch.distributed.all_gather_object(states, own_state())
    return states


def restore(states: list[dict[str, Any]]) -> bool:
    """Put this rank's generators back. False, and nothing done, where the states are of another number of ranks."""
    if len(states) != get_world_size():
        return False
    set_own_state(states[get_rank()])
    return True


def set_own_state(state: dict[str, Any]) -> None:
    """Put back what `own_state` gave."""
    version, words, gauss = state['python']
    random.setstate((version, tuple(words), gauss))
    np.random.set_state((state['numpy'][0], np.array(state['numpy'][1], dtype=np.uint32), *state['numpy'][2:]))
    torch.set_rng_state(state['torch'])
    if state['cuda'] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state['cuda'])


def own_state() -> dict[str, Any]:
    """This process's generators, in plain types."""
    name, words, place, has_gauss, gauss = np.random.get_state(legacy=True)
    version, python_words, python_gauss = random.getstate()
    return dict(
        python=[version, list(python_words), python_gauss],
        numpy=[str(name), np.asarray(words).tolist(), int(place), int(has_gauss), float(gauss)],
        torch=torch.get_rng_state(),
        cuda=torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    )
