"""A disk that may lose its power before any operation of a writer: what it would hold then, for tests to resume from."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Disk:
    """Clones `folder` before each watched operation: as it is, and with what is not synced cut in half, or empty."""

    def __init__(self, folder: Path, clones: Path) -> None:
        self.folder, self.clones, self.count, self.synced = folder, clones, 0, set[int]()
        self.least_step = 0  # a checkpoint of this step has been promised to be on the disk
        self.expected: dict[Path, int] = {}

    def watch(self, owner: Any, name: str, put: Callable[[Any, str, Any], None] = setattr) -> None:
        """`put` sets the watched operation, such as pytest's monkeypatch."""
        operation = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self.clone()
            result = operation(*args, **kwargs)
            if name == 'fsync':
                self.synced.add(os.fstat(args[0]).st_ino)
            return result

        put(owner, name, watched)

    def clone(self) -> None:
        for kind in ('whole', 'half', 'empty'):
            target = self.clones / f'{self.count:03d}_{kind}'
            shutil.copytree(self.folder, target)
            self.expected[target] = self.least_step
            for path in self.folder.rglob('*'):
                if path.is_file() and path.stat().st_ino not in self.synced and kind != 'whole':
                    data = path.read_bytes()
                    (target / path.relative_to(self.folder)).write_bytes(
                        data[: len(data) // 2] if kind == 'half' else b''
                    )
        self.count += 1
