"""Where trials are made: one database, many sessions, processes that drive them, and what is seen afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pausepoint import Engine, Status
from pausepoint.log.replay import body_of
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.sessions import PauseMode, SessionRow
from pausepoint.stores.sqlite import SqliteStore
from tests.faults.jobs import waiting
from tests.support.forkserver import Child, ForkServer
from tests.support.journey import journey, leg
from tests.support.sample import LAST, sample

T = TypeVar("T")


def fast_folder() -> str | None:
    """Where a sync costs nothing: a process that is killed leaves what the system knows, wherever that is."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@dataclass(frozen=True)
class Runs:
    """What the processes of a trial noted, up to some moment."""

    hits: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    acknowledged: int = 0
    others: list[str] = field(default_factory=list)

    def since(self, earlier: Runs) -> list[str]:
        """The executions that came after ``earlier``."""
        return self.labels[len(earlier.labels) :]

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.labels)


@dataclass(frozen=True)
class Seen:
    """A session as the store shows it."""

    row: SessionRow
    remembered: frozenset[str]
    state: str
    emitted: list[tuple[str, str]]

    @property
    def result(self) -> tuple[object, ...]:
        """What must not depend on how often the run was disturbed."""
        return self.row.status, self.state, self.row.spent_usd, self.row.spent_tokens, self.emitted


class Lab:
    """An engine of the test's own that only looks and asks, and the server for those that drive."""

    def __init__(self, server: ForkServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.path = str(folder / "pausepoint.db")
        self._runner = asyncio.Runner()
        self._count = 0
        self.kills = 0

    def __enter__(self) -> Self:
        self._runner.__enter__()
        self.store = SqliteStore(self.path)
        self.engine = Engine(self.store, workflows=[sample, waiting, journey, leg], signals=False)
        self.do(self.engine.__aenter__())
        self.do(self.engine.waker.stop())  # it must not drive what wakes
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.do(self.engine.close())
        self._runner.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    # trials

    def new(self, name: str = "s") -> str:
        """The id of a session that does not exist yet."""
        self._count += 1
        return f"{name}-{self._count}"

    def file(self, session: str, kind: str) -> str:
        return str(self.folder / f"{session}.{kind}")

    def gate(self, session: str) -> str:
        path = self.file(session, f"gate{self._count}")
        self._count += 1
        os.mkfifo(path)
        return path

    def drive(self, session: str, **args: Any) -> Child:
        """Let a process drive a session of the sample."""
        return self.server.start(
            "tests.faults.jobs:drive", path=self.path, session=session, runs=self.file(session, "runs"), **args
        )

    def runs(self, session: str) -> Runs:
        try:
            lines = Path(self.file(session, "runs")).read_text().splitlines()
        except FileNotFoundError:
            return Runs()
        noted = [line.split(" ", 2)[1:] for line in lines]
        acknowledged = [int(name) for what, name in noted if what == "ack"]
        known = {"hit", "run", "ack"}
        return Runs(
            [name for what, name in noted if what == "hit"],
            [name for what, name in noted if what == "run"],
            max(acknowledged, default=0),
            [name for what, name in noted if what not in known],
        )

    # looking and asking

    def exists(self, session: str) -> bool:
        return self.do(self.store.get(session)) is not None

    def row(self, session: str) -> SessionRow:
        row = self.do(self.store.get(session))
        assert row is not None
        return row

    def records(self, session: str) -> list[Record]:
        """The whole log, each record proved against its digest."""
        return self.do(self.store.records(self.row(session).key, 1))

    def signals(self, session: str) -> list[SignalRecord]:
        return self.do(self.store.signals(self.row(session).key, 0))

    def see(self, session: str) -> Seen:
        """Reading it proves the log and the signals."""
        self.signals(session)
        return Seen(self.row(session), self.remembered(session), *self.do(self._read(session)))

    def remembered(self, session: str) -> frozenset[str]:
        """The executions whose results the log keeps. Reading it proves the log."""
        return frozenset(label for record in self.records(session) if (label := _label(record)))

    async def _read(self, session: str) -> tuple[str, list[tuple[str, str]]]:
        state = (await self.engine.state(session)).model_dump_json()
        events = [event async for event in self.engine.events(session)]
        own = sample.events | {"spent"}
        emitted = [(event.event_type, event.summary) for event in events if event.event_type in own]
        return state, sorted(emitted)

    def pause(self, session: str, mode: PauseMode = "finish") -> Status:
        return self.do(self.engine.pause(session, by="operator", mode=mode))[0].status


def _label(record: Record) -> str:
    """The execution whose result a record keeps, if any."""
    body = body_of(record)
    if record.kind == "checkpoint" and not body.skipped:
        return f"step {record.step}#{record.visit}"
    if record.kind == "operation" and not body.total:
        return "op " + str(json.loads(bytes(body.value.data))).partition("=")[0]
    return ""


@dataclass(frozen=True)
class Reference:
    """The undisturbed run: which points it passes, and how it ends."""

    points: list[str]
    labels: list[str]
    seen: Seen
    took: float

    def some(self, *beginnings: str) -> list[str]:
        """The points whose names begin so."""
        return [point for point in self.points if point.startswith(beginnings)]

    def in_last_step(self, point: str) -> bool:
        """Whoever asks for a pause from here on finds the last step entered: the session completes."""
        return self.points.index(point) >= self.points.index(LAST) - 1


def undisturbed(lab: Lab) -> Reference:
    session = lab.new("undisturbed")
    began = time.monotonic()
    child = lab.drive(session)
    assert child.wait() == 0
    took = time.monotonic() - began
    runs = lab.runs(session)
    hits = [hit for hit in runs.hits if not hit.startswith("checkpoint")]
    return Reference(hits, runs.labels, lab.see(session), took)
