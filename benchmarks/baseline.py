"""The unit: one INSERT of 1 KiB and COMMIT in the standard library's sqlite3, WAL, synchronous FULL.

The speed of a machine varies from one second to the next, so steps and units are measured alternately: the measured
step calls `Interleaved`, which runs a block of units after every block of steps.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Moment:
    """A reading of both clocks: wall time, and the processor time of all threads of this process."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.perf_counter(), time.process_time())


@dataclass
class Cost:
    """The seconds that a number of steps or units took."""

    wall: float = 0.0
    cpu: float = 0.0
    count: int = 0

    def add(self, begin: Moment, end: Moment, count: int) -> None:
        self.wall += end.wall - begin.wall
        self.cpu += end.cpu - begin.cpu
        self.count += count

    @property
    def each(self) -> float:
        return self.wall / self.count

    @property
    def cpu_each(self) -> float:
        return self.cpu / self.count


class Unit:
    """A plain database next to the measured one."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "unit.db")
        mode = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise RuntimeError(f"The disk of {folder} has no WAL support (journal mode {mode}). Choose another --dir.")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        self._connection.commit()
        self._data = os.urandom(1024)

    def run(self, commits: int, cost: Cost) -> Moment:
        """Run this many units, including the automatic checkpoints of the WAL that occur meanwhile."""
        begin = Moment.now()
        for _ in range(commits):
            self._connection.execute("INSERT INTO t (data) VALUES (?)", (self._data,))
            self._connection.commit()
        end = Moment.now()
        cost.add(begin, end, commits)
        return end

    def close(self) -> None:
        self._connection.close()


@contextmanager
def plain_database(folder: Path) -> Iterator[Unit]:
    """Yield a unit for one round, after a few commits that give the file its size and warm the caches."""
    unit = Unit(folder)
    try:
        unit.run(20, Cost())
        yield unit
    finally:
        unit.close()


class Units(Protocol):
    """What can run units."""

    def run(self, commits: int, cost: Cost, /) -> Moment: ...


class Interleaved:
    """A callback for the beginning of every step. It measures whole blocks, from one beginning to another."""

    def __init__(self, unit: Units, block: int) -> None:
        self.steps = Cost()
        self.units = Cost()
        self.blocks: list[float] = []
        self._unit = unit
        self._block = block
        self._calls = 0
        self._since = Moment.now()

    def __call__(self) -> None:
        if self._calls % self._block == 0:
            if self._calls:
                now = Moment.now()
                self.steps.add(self._since, now, self._block)
                self.blocks.append(now.wall - self._since.wall)
            self._since = self._unit.run(self._block, self.units)
        self._calls += 1
