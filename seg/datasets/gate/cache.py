"""What was found out about files, kept from run to run in the user's cache folder.

One SQLite file for each image folder. A row says what one look at one pair gave, and holds while the files' stamps do.
A summary says what a whole pass over unchanged data sets gave. Values are JSON: reading a cache executes nothing.
A cache that cannot be used costs time, never a result: it is said, and everything is looked at again.

A write is whole or not there when the process ends in the middle of it. After a power cut a file may be broken: nothing
is waited for to reach the disk. A broken one is removed and made again.
"""

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

_KEPT_SUMMARIES = 50
_BUSY_S = 10.0  # how long another job's write is waited for
_TABLES = """
CREATE TABLE IF NOT EXISTS looks (kind TEXT, pair TEXT, stamp TEXT, result TEXT, PRIMARY KEY (kind, pair)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS summaries (print TEXT PRIMARY KEY, used REAL, summary TEXT);
"""


def cache_folder() -> Path:
    """XDG_CACHE_HOME/seg, ~/.cache/seg without it."""
    return Path(os.environ.get('XDG_CACHE_HOME') or Path('~/.cache').expanduser()) / 'seg' / 'data_gate'


class Cache:
    """The cache of one image folder. `trouble` is why it cannot be used, empty as long as it can."""

    def __init__(self, image_folder: str, folder: Path | None = None) -> None:
        name = blake2b(os.path.realpath(image_folder).encode(errors='surrogateescape'), digest_size=10).hexdigest()
        self.file = (folder or cache_folder()) / f'{name}.sqlite'
        self.trouble = ''

    def looks(self, kind: str) -> dict[str, tuple[str, str]]:
        """{pair: (stamp, result as JSON)} of all looks of this kind."""
        with self._open() as database:
            if database is None:
                return {}
            rows = database.execute('SELECT pair, stamp, result FROM looks WHERE kind = ?', (kind,))
            return {pair: (stamp, result) for pair, stamp, result in rows}
        return {}

    def add_looks(self, kind: str, rows: Iterable[tuple[str, str, dict[str, Any]]]) -> None:
        """Rows of (pair, stamp, result); they take the place of older ones."""
        plain = [(kind, pair, stamp, json.dumps(result, separators=(',', ':'))) for pair, stamp, result in rows]
        with self._open() as database:
            if database is not None and plain:
                database.executemany('INSERT OR REPLACE INTO looks VALUES (?, ?, ?, ?)', plain)

    def summary(self, fingerprint: str) -> dict[str, Any] | None:
        with self._open() as database:
            if database is None:
                return None
            row = database.execute('SELECT summary FROM summaries WHERE print = ?', (fingerprint,)).fetchone()
            return None if row is None else json.loads(row[0])
        return None

    def add_summary(self, fingerprint: str, summary: dict[str, Any]) -> None:
        """Keep it, and the newest few besides."""
        with self._open() as database:
            if database is None:
                return
            row = (fingerprint, time.time(), json.dumps(summary))
            database.execute('INSERT OR REPLACE INTO summaries VALUES (?, ?, ?)', row)
            database.execute(
                'DELETE FROM summaries WHERE print NOT IN (SELECT print FROM summaries ORDER BY used DESC LIMIT ?)',
                (_KEPT_SUMMARIES,),
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection | None]:
        """A transaction: all of what is written inside is there afterwards, or nothing."""
        database = self._connected()
        if database is None:
            yield None
            return
        try:
            with closing(database), database:
                yield database
        except (sqlite3.Error, ValueError) as error:
            self._give_up(error)
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                self.file.unlink(missing_ok=True)

    def _connected(self) -> sqlite3.Connection | None:
        if self.trouble:
            return None
        try:
            return self._connect()
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        self.trouble = (
            f'the cache {self.file} cannot be used ({error}), so every file is looked at again; '
            'remove it, or set XDG_CACHE_HOME to a folder that can be written'
        )

    def _connect(self) -> sqlite3.Connection:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._with_tables()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # no database any more: a cache is made again
            self.file.unlink()
            return self._with_tables()

    def _with_tables(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.file, timeout=_BUSY_S)
        try:
            database.execute('PRAGMA synchronous = OFF')
            database.executescript(_TABLES)
        except sqlite3.Error:
            database.close()
            raise
        return database
