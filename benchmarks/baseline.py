"""The unit: one INSERT of 1 KiB and COMMIT in the standard library's sqlite3, WAL, synchronous FULL."""

from __future__ import annotations

import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Cost:
    """Seconds per piece of work: on the wall, and of processor time in all threads of this process."""

    wall: float
    cpu: float


class Stopwatch:
    """Measures what happens inside a ``with`` block."""

    def __enter__(self) -> Self:
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.wall, self.cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu

    def per(self, count: int) -> Cost:
        """What one of ``count`` pieces took."""
        return Cost(self.wall / count, self.cpu / count)


class Unit:
    """A plain database beside the one that is measured. It is never larger than a few megabytes."""

    def __init__(self, folder: Path, commits: int) -> None:
        self.commits = commits
        self._connection = sqlite3.connect(folder / "unit.db")
        mode = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise RuntimeError(f"the disk of {folder} does not allow a WAL (journal mode {mode}); choose another --dir")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        self._connection.commit()

    def measure(self) -> Cost:
        """The mean of a batch, with the automatic checkpoints of the WAL that fall into it."""
        data = os.urandom(1024)
        with Stopwatch() as watch:
            for _ in range(self.commits):
                self._connection.execute("INSERT INTO t (data) VALUES (?)", (data,))
                self._connection.commit()
        self._connection.execute("DELETE FROM t")
        self._connection.commit()
        return watch.per(self.commits)

    def close(self) -> None:
        self._connection.close()
