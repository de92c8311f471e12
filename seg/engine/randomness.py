"""Seeds, and the deterministic or the fast mode of the device."""

import os
import random

import numpy as np
import torch
from mmengine.dist import get_rank, sync_random_seed


def seed_everything(seed: int | None, *, diff_rank_seed: bool = False, deterministic: bool | str = False) -> int:
    """Seed Python's, NumPy's and torch's generators; returns the seed, which is the same on all ranks.

    With `seed=None` one is drawn. `diff_rank_seed` adds the rank for the generators, not for the data's order.
    `deterministic` is False, True (an operation without a deterministic kernel raises), or 'warn' (it warns).
    """
    if seed is None:
        seed = sync_random_seed()
    own = seed + get_rank() if diff_rank_seed else seed
    random.seed(own)
    np.random.seed(own % 2**32)
    torch.manual_seed(own)
    torch.use_deterministic_algorithms(False)
    if deterministic:
        # cuBLAS reads it once, when the device is first used (D14).
        os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
        torch.use_deterministic_algorithms(True, warn_only=deterministic == 'warn')
    return seed
