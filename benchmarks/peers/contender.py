"""What every contender offers: one method for each kind of work. This module needs the standard library only.

A contender is a program: it reads a job as JSON from its argument, does the work, and prints a sample as JSON. Each
runs in an environment of its own, so this module is all that they share.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

KIB = 1024
UNITS = 50
"""How many units run before the measured work, and again after it."""

WINDOW = 500
"""The most steps whose mean is the cost at a point of a growth plot."""


class Lacks(Exception):
    """The contender does not have what the work needs. The text says why."""


@dataclass
class Sample:
    """What a job measured. ``unit`` is the time of one raw commit in the same process."""

    seconds: float = 0.0
    count: int = 1
    unit: float = 0.0
    bytes: int = 0
    notes: dict[str, float] = field(default_factory=dict)


@dataclass
class Job:
    """One job: a kind of work, its size, and where its files go."""

    work: str
    folder: Path
    size: dict[str, int]
    limit: float = 600.0
    spawned: float = 0.0
    server: str = ""
    traced: bool = False
    times: list[float] = field(default_factory=list)
    used: list[float] = field(default_factory=list)
    opened: float = field(default_factory=time.perf_counter)

    @property
    def steps(self) -> int:
        return self.size["steps"]

    @property
    def sessions(self) -> int:
        return self.size["sessions"]

    def begins(self, n: int) -> None:
        """Note the beginning of step ``n``. Every contender calls this first in the code of a step."""
        if self.traced:
            os.access(f"/step-begins/{n}", os.F_OK)  # a mark in the list of system calls
        self.mark()

    def more(self, n: int) -> bool:
        """Return whether another step follows after ``n`` of them: not at the end, and not beyond the time limit."""
        return n < self.steps and self.in_time

    @property
    def in_time(self) -> bool:
        """Whether the time limit of the job has not passed."""
        return time.perf_counter() - self.opened < self.limit

    def per_step(self, **notes: float) -> Sample:
        """Return the sample of a lone session: from the beginning of its first step to the beginning of its last."""
        times, count = self.times, len(self.times) - 1
        used = {"cpu": (self.used[-1] - self.used[0]) / count}
        return Sample(times[-1] - times[0], count, notes=notes | used | self._laps())

    def took(self, count: int) -> Sample:
        """Return the sample of ``count`` steps of many sessions: from the first mark until now."""
        self.mark()
        used = (self.used[-1] - self.used[0]) / count
        return Sample(self.times[-1] - self.times[0], count, notes={"cpu": used})

    def _laps(self) -> dict[str, float]:
        """Return the mean seconds of the steps just before the 100th, 1,000th and so on."""
        laps = {}
        point = 100
        while point < len(self.times):
            begin = point - min(point // 2, WINDOW)
            laps[f"at {point}"] = (self.times[point] - self.times[begin]) / (point - begin)
            laps[f"cpu at {point}"] = (self.used[point] - self.used[begin]) / (point - begin)
            point *= 10
        return laps

    def mark(self) -> None:
        """Note a moment, as `begins` does."""
        self.times.append(time.perf_counter())
        self.used.append(time.process_time())


def text(n: int, size: int = KIB) -> str:
    """Return a text of this many bytes that differs for every ``n``."""
    return (f"{n:08}" * (size // 8 + 1))[:size]


def message(n: int) -> str:
    """Return what a person says in a turn of a chat: 128 bytes."""
    return text(n, 128)


def reply(n: int) -> str:
    """Return the answer to it: 300 bytes."""
    return text(n, 300)


class Contender:
    """The kinds of work. A contender overrides what it can do; the others say that it does not have them."""

    name: ClassVar[str] = ""
    packages: ClassVar[tuple[str, ...]] = ()

    def lone(self, job: Job) -> Sample:
        """Run one session of ``steps`` steps. Each replaces a field of 1 KiB."""
        raise Lacks("no steps")

    def crowd(self, job: Job) -> Sample:
        """Run ``sessions`` sessions of ``steps`` such steps each, from the first start to the last end."""
        raise Lacks("no concurrent sessions")

    def growing(self, job: Job) -> Sample:
        """Run one session whose every step adds an item of 1 KiB to a list."""
        raise Lacks("no lists")

    def beside(self, job: Job) -> Sample:
        """Run one session whose every step changes 100 bytes beside a field of ``ballast`` bytes."""
        raise Lacks("no fields")

    def resume_prepare(self, job: Job) -> Sample:
        """Run one session, and end the process without a word in the step after ``steps`` steps."""
        raise Lacks("no resume")

    def resume(self, job: Job) -> Sample:
        """Continue that session: from opening the store until the code of the interrupted step runs."""
        raise Lacks("no resume")

    def questions(self, job: Job) -> Sample:
        """Let ``sessions`` sessions ask a person something and wait. The sample has the bytes on disk."""
        raise Lacks("no wait for a person")

    def map(self, job: Job) -> Sample:
        """Apply a function to ``items`` items inside of one step. Each result is stored on its own."""
        raise Lacks("no map whose single results are stored")

    def pause(self, job: Job) -> Sample:
        """Pause ``sessions`` sessions that are inside a step, then let these steps end.

        The time runs from that moment until all sessions are stored as paused.
        """
        raise Lacks("no pause from outside")

    def chat_prepare(self, job: Job) -> Sample:
        """Hold a conversation of ``turns`` turns."""
        raise Lacks("no chat")

    def chat(self, job: Job) -> Sample:
        """Continue it: ``warm`` turns that are not counted, then ``turns`` of them: message, answer, waiting again."""
        raise Lacks("no chat")

    def listing_prepare(self, job: Job) -> Sample:
        """Store ``sessions`` finished sessions, as many as the time limit permits."""
        raise Lacks("no list of sessions")

    def listing(self, job: Job) -> Sample:
        """Read a list of 50 of the stored sessions, as a page of an overview does, ``reads`` times."""
        raise Lacks("no list of sessions")

    def versions(self) -> dict[str, str]:
        """Return the versions of what is measured."""
        from importlib.metadata import version

        return {name: version(name) for name in (each.partition("[")[0] for each in self.packages)}


def stored(folder: Path) -> int:
    """Return the bytes of all files of a contender. The reserve that Pausepoint keeps for a full disk is left out."""
    files = [each for each in folder.rglob("*") if each.is_file() and not each.name.endswith("-ballast")]
    return sum(each.stat().st_size for each in files)


def settle(path: Path) -> None:
    """Fold the WAL of a SQLite database into it, so that the size of the file says what is stored."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    connection.close()


def wal(path: Path) -> None:
    """Create a SQLite database in WAL mode, which the file keeps. ``synchronous`` is FULL unless someone changes it."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.close()


class Unit:
    """The unit: one INSERT of 1 KiB and COMMIT of the standard library's sqlite3, with WAL and synchronous=FULL."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(folder / "unit.db")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")
        self._data = os.urandom(KIB)
        self.run(10)

    def run(self, count: int) -> float:
        """Return the seconds of this many units."""
        begin = time.perf_counter()
        for _ in range(count):
            self._connection.execute("INSERT INTO t (data) VALUES (?)", (self._data,))
            self._connection.commit()
        return time.perf_counter() - begin


def run(contender: Contender, argument: str) -> dict[str, Any]:
    """Do one job, with units before and after it."""
    given = json.loads(argument)
    if given["work"] == "versions":
        return {"versions": {"Python": platform.python_version()} | contender.versions()}
    job = Job(**given | {"folder": Path(given["folder"])})
    job.folder.mkdir(parents=True, exist_ok=True)
    work: Callable[[Job], Sample] = getattr(contender, job.work)
    if job.work.endswith("_prepare") or job.traced or job.size.get("cold"):
        return _done(job, work)  # no units: they would be counted, or would warm what has to be cold
    unit = Unit(job.folder.parent / f"{job.folder.name}-unit")
    before = unit.run(UNITS)
    job.opened = time.perf_counter()
    answer = _done(job, work)
    return answer | {"unit": (before + unit.run(UNITS)) / (2 * UNITS)}


def _done(job: Job, work: Callable[[Job], Sample]) -> dict[str, Any]:
    try:
        return asdict(work(job))
    except Lacks as error:
        return {"lacks": str(error)}


def main(contender: Contender) -> None:
    """Do the job of the command line. The sample is the last line of the output."""
    found = run(contender, sys.argv[1])
    print(f"\n{json.dumps(found)}", flush=True)
    os._exit(0)  # threads and loops that a contender has left behind do not matter
