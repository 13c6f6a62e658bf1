"""Several processes fire one schedule, and are killed. Each due time must have exactly one session.

    python -m tests.faults.schedules --seconds 600

The clock of all processes is fast: a minute of the schedule takes a quarter of a second. Some processes kill themselves
at a chosen point of their second run; all others are killed at random moments, and replaced.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pausepoint import Engine, workflow
from pausepoint.clock import SystemClock, to_datetime, to_micros
from pausepoint.engine import schedules as firing
from pausepoint.engine.blocking import BlockingEngine
from pausepoint.model.commits import NewSession
from pausepoint.model.schedules import Fired, Schedule, run_id
from pausepoint.stores.postgres import PostgresStore
from pausepoint.stores.sql import creation
from pausepoint.stores.sqlite import SqliteStore
from tests.faults.tally import Fault, Tally, main
from tests.stores.kit import Process, process
from tests.support.loop import PATIENCE

SPEED = 240
MINUTE = 60_000_000
START = 1_794_711_600_000_000
FATAL = 2
"""The run of a process at whose point it kills itself."""

POINTS = ("between", "before commit", "after commit")
"""Between the next time of the schedule and its session, before both are committed, and after."""

TWINS = ("apart", "anonymous")
"""Broken engines: one stores the next time before the session, one starts sessions whose ids are not their times."""

NAME = "digest"
CHILD = "import sys; from tests.faults.schedules import child; child(*sys.argv[1:])"


@workflow
async def digest() -> None:
    """Do nothing: the test is about the start."""


class FastClock(SystemClock):
    """A clock that shows START when it began, and is `SPEED` times as fast as the system's."""

    def __init__(self, began: float) -> None:
        self.began = began

    def now(self) -> int:
        return START + int((time.time() - self.began) * SPEED * 1e6)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)


# in the processes


def child(url: str, began: str, point: str) -> None:
    """Fire the schedule until the process is killed."""
    if point:
        _arm(point)
    asyncio.run(_fire(url, FastClock(float(began))))


async def _fire(url: str, clock: FastClock) -> None:
    async with Engine(url, workflows=[digest], clock=clock):
        print("ready", flush=True)
        await asyncio.sleep(600)


def _arm(point: str) -> None:
    runs = itertools.count(1)

    def die() -> None:
        if next(runs) == FATAL:
            os.kill(os.getpid(), signal.SIGKILL)

    if point in ("between", "before commit"):
        _arm_creation(die, first=point == "between")
        return
    change = {"after commit": _answered, "apart": _apart, "anonymous": _anonymous}[point]
    for kind in (SqliteStore, PostgresStore):
        kind.set_schedule = change(kind.set_schedule, die)  # type: ignore[assignment, method-assign]
    if point == "anonymous":
        firing.run_id = _anonymous_id  # type: ignore[assignment, attr-defined]


def _arm_creation(die: Callable[[], None], first: bool) -> None:
    create = creation.create

    def created(*given: Any) -> Any:
        if first:
            die()
        row = create(*given)
        die()
        return row

    creation.create = created  # type: ignore[assignment]


def _anonymous_id(name: str, at: int, *, triggered: bool = False) -> str:
    return f"{run_id(name, at, triggered=triggered)}-{uuid.uuid4().hex[:6]}"


Put = Callable[[Any, Schedule | None, Schedule, NewSession | None], Any]


def _answered(put: Put, die: Callable[[], None]) -> Put:
    async def after_commit(self: Any, before: Schedule | None, after: Schedule, new: NewSession | None = None) -> Fired:
        fired: Fired = await put(self, before, after, new)
        if new is not None:
            die()
        return fired

    return after_commit


def _apart(put: Put, die: Callable[[], None]) -> Put:
    async def advance_first(
        self: Any, before: Schedule | None, after: Schedule, new: NewSession | None = None
    ) -> Fired:  # fmt: skip
        fired: Fired = await put(self, before, after, None)
        if new is None or not fired.written:
            return fired
        die()
        return Fired(True, await self.create(new))

    return advance_first


def _anonymous(put: Put, die: Callable[[], None]) -> Put:
    async def create_first(
        self: Any, before: Schedule | None, after: Schedule, new: NewSession | None = None
    ) -> Fired:  # fmt: skip
        if new is None:
            fired: Fired = await put(self, before, after, None)
            return fired
        row = await self.create(new)
        die()
        fired = await put(self, before, after, None)
        return Fired(fired.written, row)

    return create_first


# outside


class Yard:
    """A schedule that is due every minute, and the processes that fire it. ``killed`` counts those that died so."""

    def __init__(self, engine: BlockingEngine, url: str, clock: FastClock, draw: random.Random) -> None:
        self.engine, self.url, self.clock, self.draw = engine, url, clock, draw
        info = engine.schedule(NAME, digest, cron="* * * * *", overlap="allow", catch_up="all")
        assert info.next_at is not None
        self.first = to_micros(info.next_at)
        self.killed = 0
        self._crew = ExitStack()

    def begin(self, point: str = "") -> Process:
        return self._crew.enter_context(process(CHILD, self.url, str(self.clock.began), point))

    def die_at(self, point: str) -> None:
        """Let a process that is alone fire until it kills itself at a point."""
        self.killed += self.begin(point).child.wait() == -signal.SIGKILL

    def kill(self, count: int, kills: int) -> None:
        """Let some processes fire, and kill them one after the other. Each is replaced but the last ones."""
        crew = [self.begin() for _ in range(count)]
        for left in reversed(range(kills)):
            self.fires(self.draw.randint(1, 2))
            time.sleep(self.draw.uniform(0, 0.1))
            self.killed += crew.pop(self.draw.randrange(len(crew))).kill() == -signal.SIGKILL
            if left:
                crew.append(self.begin())
        self.fires(1 if crew else 0)
        for each in crew:
            self.killed += each.kill() == -signal.SIGKILL

    @property
    def next_at(self) -> int:
        [info] = self.engine.schedules.list()
        assert info.next_at is not None
        return to_micros(info.next_at)

    def fires(self, runs: int) -> None:
        """Wait until the schedule has fired so often."""
        end, wanted = time.monotonic() + PATIENCE, self.next_at + runs * MINUTE
        while self.next_at < wanted:
            assert time.monotonic() < end, "nothing fires the schedule"
            time.sleep(0.01)

    def faults(self) -> list[tuple[Fault, str]]:
        """Return the due times with no session, and those with several. All processes must be dead."""
        ids = [info.session_id for info in self.engine.sessions()]
        found = Counter(id.partition("Z")[0] + "Z" for id in ids)
        due = [str(run_id(NAME, at)) for at in range(self.first, self.next_at, MINUTE)]
        lost: list[tuple[Fault, str]] = [("lost", f"{id} was not started") for id in due if not found[id]]
        return lost + [("doubled", f"{id} has {count} sessions") for id, count in found.items() if count > 1]

    def close(self) -> None:
        self._crew.close()


@contextmanager
def yard(url: str, draw: random.Random) -> Iterator[Yard]:
    """Store the schedule, and end all processes at the end of the block."""
    clock = FastClock(time.time())
    with Engine(url, clock=clock, drives="none") as engine:
        found = Yard(engine, url, clock, draw)
        try:
            yield found
        finally:
            found.close()


def run(tally: Tally) -> None:
    """Play rounds, each with a store of its own, until the time is over."""
    while tally.has_time() or not tally.done:
        with tempfile.TemporaryDirectory() as folder, yard(str(Path(folder) / "store.db"), tally.draw) as found:
            points = [tally.draw.choice(POINTS) for _ in range(2)]
            for point in points:
                found.die_at(point)
            found.kill(3, 6)
            if found.killed != len(points) + 8:
                tally.fail(f"{found.killed} of {len(points) + 8} processes were killed")
            for fault, text in found.faults():
                tally.fail(text, fault)
            tally.done["processes that were killed"] += found.killed
            tally.done["due times"] += (found.next_at - found.first) // MINUTE


def told(faults: Sequence[tuple[Fault, str]]) -> set[Fault]:
    """Return the kinds of faults."""
    return {fault for fault, _ in faults}


if __name__ == "__main__":
    print(f"A schedule from {to_datetime(START):%Y-%m-%d} on", flush=True)
    sys.exit(main(run, __doc__))
