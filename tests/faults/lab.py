"""The lab in which trials run: one database, many sessions, and the processes that drive them."""

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


@dataclass(frozen=True)
class Runs:
    """The notes of a trial's processes, up to some moment."""

    hits: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    acknowledged: int = 0
    others: list[str] = field(default_factory=list)

    def since(self, earlier: Runs) -> list[str]:
        """Return the executions after ``earlier``."""
        return self.labels[len(earlier.labels) :]

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.labels)


@dataclass(frozen=True)
class Seen:
    """A session as stored."""

    row: SessionRow
    remembered: frozenset[str]
    state: str
    emitted: list[tuple[str, str]]

    @property
    def result(self) -> tuple[object, ...]:
        """Return the facts that must not depend on interruptions."""
        return self.row.status, self.state, self.row.spent_usd, self.row.spent_tokens, self.emitted


class Lab:
    """The test's own engine, which only reads and sends requests, and the server for processes that drive."""

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
        self.do(self.engine._service.waker.stop())  # this engine must not drive sessions that wake
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
        """Return an unused session id."""
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
        """Start a process that drives a session of the sample."""
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

    # reading and requests

    def exists(self, session: str) -> bool:
        return self.do(self.store.get(session)) is not None

    def row(self, session: str) -> SessionRow:
        row = self.do(self.store.get(session))
        assert row is not None
        return row

    def records(self, session: str) -> list[Record]:
        """Return the whole log and verify the digest of each record."""
        return self.do(self.store.records(self.row(session).key, 1))

    def signals(self, session: str) -> list[SignalRecord]:
        return self.do(self.store.signals(self.row(session).key, 0))

    def see(self, session: str) -> Seen:
        """Return the session as stored. This verifies its log and signals."""
        self.signals(session)
        return Seen(self.row(session), self.remembered(session), *self.do(self._read(session)))

    def remembered(self, session: str) -> frozenset[str]:
        """Return the executions whose results are in the log. This verifies the log."""
        return frozenset(label for record in self.records(session) if (label := _label(record)))

    async def _read(self, session: str) -> tuple[str, list[tuple[str, str]]]:
        state = (await self.engine.session(session).state()).model_dump_json()
        events = [event async for event in self.engine.session(session).events()]
        own = sample.events | {"spent"}
        emitted = [(event.event_type, event.summary) for event in events if event.event_type in own]
        return state, sorted(emitted)

    def pause(self, session: str, mode: PauseMode = "finish") -> Status:
        return self.do(self.engine.session(session).pause(by="operator", mode=mode))[0].status


def _label(record: Record) -> str:
    """Return the execution whose result a record stores, or an empty string."""
    body = body_of(record)
    if record.kind == "checkpoint" and not body.skipped:
        return f"step {record.step}#{record.visit}"
    if record.kind == "operation" and not body.total:
        return "op " + str(json.loads(bytes(body.value.data))).partition("=")[0]
    return ""


@dataclass(frozen=True)
class Reference:
    """The uninterrupted run: the points that it passes, and its end."""

    points: list[str]
    labels: list[str]
    seen: Seen
    took: float

    def some(self, *beginnings: str) -> list[str]:
        """Return the points whose names start with one of the prefixes."""
        return [point for point in self.points if point.startswith(beginnings)]

    def in_last_step(self, point: str) -> bool:
        """Return whether the last step has begun at this point. A pause from here on lets the session complete."""
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
