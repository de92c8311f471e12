"""What all tests share: nothing is left in the user's cache folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before torch is imported: tiny tensors on two threads spend their time waiting for each other.
os.environ.setdefault('OMP_NUM_THREADS', '1')


@pytest.fixture(autouse=True, scope='session')
def _cache_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """XDG_CACHE_HOME, where trainings keep what they found out about their data; programs that tests start inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        # matplotlib would search for the fonts of the system anew
        patch.setenv('MPLCONFIGDIR', os.environ.get('MPLCONFIGDIR') or str(Path('~/.cache/matplotlib').expanduser()))
        patch.setenv('XDG_CACHE_HOME', str(tmp_path_factory.mktemp('cache')))
        yield
