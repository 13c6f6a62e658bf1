"""The jobs of the fork server. Each function runs in a forked process."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import apsw
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Workflow, step
from pausepoint.errors import AlreadyRunning, PausepointError
from pausepoint.model.commits import Commit, Flags, NewSession
from pausepoint.model.questions import Answer, Answered
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.found import Found
from pausepoint.stores.sql.engines import Engine as StoreEngine
from pausepoint.stores.sql.engines import Outcome
from pausepoint.stores.sqlite import SqliteStore, commits
from pausepoint.stores.sqlite.connection import Connection
from tests.faults import broken
from tests.support.forkserver import say
from tests.support.journey import go, journey, leg
from tests.support.points import Action, points, wait_at
from tests.support.sample import TOPIC, sample

T = TypeVar("T")

Verb = Literal["start", "resume", "steal"]

SLOW = 3600.0
"""A poll interval that never ends, so that only a commit reports changes."""


def warm_up() -> None:
    """Run the sample once in memory, so that every fork inherits what is created on first use."""
    asyncio.run(_warm_up())


async def _warm_up() -> None:
    async with Engine(":memory:", workflows=[sample, waiting], signals=False) as engine:
        await (await engine.start(sample, topic=TOPIC)).outcome()
        await go(engine, "warm-up", is_new=True)


# A point inside the transaction of every commit: everything is written, nothing is committed.
_move, _move_all = commits.move, commits.move_all


def point_move(cursor: apsw.Cursor, engine: StoreEngine, commit: Commit) -> Outcome:
    outcome = _move(cursor, engine, commit)
    points.hit(f"inside commit of record {commit.records[-1].seq}")
    return outcome


def point_move_all(connection: Connection, engine: StoreEngine, commits: Sequence[Commit]) -> list[Outcome]:
    outcomes = _move_all(connection, engine, commits)
    for commit in commits:
        points.hit(f"inside commit of record {commit.records[-1].seq}")
    return outcomes


commits.move, commits.move_all = point_move, point_move_all  # the names that the writer looks up


class PointStore(SqliteStore):
    """A store with a point before and after every commit and every verb from outside. Notes its acknowledgements."""

    begun = ended = checkpoints = 0

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.asked: Counter[str] = Counter()

    async def create(self, new: NewSession) -> SessionRow | None:
        points.hit("before create")
        row = await super().create(new)
        points.hit("after create")
        return row

    async def commit(self, commit: Commit) -> Flags | None:
        self.begun += 1
        points.hit(f"before commit {self.begun}")
        if commit.records[0].kind == "checkpoint":
            self.checkpoints += 1
            points.hit(f"checkpoint {self.checkpoints}")
        flags = await self.write(commit)
        self.ended += 1
        points.note("ack", str(commit.records[-1].seq))
        points.hit(f"after commit {self.ended}")
        return flags

    async def write(self, commit: Commit) -> Flags | None:
        return await super().commit(commit)

    async def revise(self, commit: Commit) -> Found:
        return await self._between("revise", super().revise(commit))

    async def answer(self, given: Answer) -> Answered:
        return await self._between("answer", super().answer(given))

    async def unpause(self, *given: Any) -> SessionRow:
        return await self._between("unpause", super().unpause(*given))

    async def claim(self, *given: Any) -> SessionRow:
        return await self._between("claim", super().claim(*given))

    async def _between(self, verb: str, work: Awaitable[T]) -> T:
        self.asked[verb] += 1
        number = self.asked[verb]
        points.hit(f"before {verb} {number}")
        result = await work
        points.hit(f"after {verb} {number}")
        return result


def drive(
    path: str, session: str, runs: str, verb: Verb = "start", point: str = "", action: Action = "kill",
    gate: str = "", poll: float = 0.005, twin: str = "",
) -> None:  # fmt: skip
    """Run the sample in this process, with an action at ``point``."""
    points.write_to(Path(runs))
    points.say = say
    points.arm(point, action, gate)
    store_class = broken.apply(twin, PointStore)
    asyncio.run(_drive(store_class(path, poll=poll), session, verb, twin != "deaf to signals"))


async def _drive(store: SqliteStore, session_id: str, verb: Verb, signals: bool) -> None:
    async with Engine(store, workflows=[sample], signals=signals) as engine:
        try:
            session = await _begin(engine, session_id, verb)
            outcome = await session.outcome()
        except PausepointError as error:
            say({"error": type(error).__name__, "text": str(error)[:1000]})
        else:
            say({"status": outcome.status.value, "skipped": outcome.skipped_visits})


async def _begin(engine: Engine, session_id: str, verb: Verb) -> Session[Any]:
    if verb == "start":
        return await engine.start(sample, session_id=session_id, topic=TOPIC)
    return await engine.session(session_id).resume(steal=verb == "steal")


def accompany(
    path: str, session: str, runs: str, is_new: bool, point: str = "", action: Action = "kill", twin: str = ""
) -> None:
    """Run the journey and its operator in this process, with an action at ``point``."""
    points.write_to(Path(runs))
    points.say = say
    points.arm(point, action)
    store_class = broken.apply(twin, PointStore)
    asyncio.run(_accompany(store_class(path, poll=0.005), session, is_new))


async def _accompany(store: SqliteStore, session_id: str, is_new: bool) -> None:
    async with Engine(store, workflows=[journey, leg]) as engine:
        try:
            status = await go(engine, session_id, is_new)
        except PausepointError as error:
            say({"error": type(error).__name__, "text": str(error)[:1000]})
        else:
            say({"status": status.value})


# races and flips


class Waiting(BaseModel):
    gate: str
    """The path of a file. The step ends when the file exists."""
    runs: str
    done: bool = False


@step(writes="done")
async def stand(gate: str, runs: str) -> bool:
    points.write_to(Path(runs))
    points.note("run", "step stand#1")
    say({"standing": Path(gate).name})
    while not Path(gate).exists():
        await asyncio.sleep(0.002)
    return True


@step
async def leave(done: bool) -> None:
    """Give a pause that was requested meanwhile a step to stop before."""


waiting = Workflow("waiting", state=Waiting, steps=[stand, leave])


def race(path: str, rounds: list[dict[str, str]], verb: Verb, twin: str = "") -> None:
    """When the gate opens, try to drive the session and report which process does, once per round."""
    store_class = broken.apply(twin, SqliteStore)
    asyncio.run(_race(store_class(path, poll=0.005), rounds, verb))


async def _race(store: SqliteStore, rounds: list[dict[str, str]], verb: Verb) -> None:
    async with Engine(store, workflows=[waiting]) as engine:
        for each in rounds:
            say({"ready": each["session"]})
            wait_at(each["gate"])
            say({"round": each["session"], **await _try(engine, each, verb)})


async def _try(engine: Engine, each: dict[str, str], verb: Verb) -> dict[str, Any]:
    try:
        if verb == "start":
            given = Waiting(gate=each["end"], runs=each["runs"])
            session: Session[Any] = await engine.start(waiting, given, session_id=each["session"])
        else:
            session = await engine.session(each["session"]).resume()
        return {"result": (await session.outcome()).status.value}
    except PausepointError as error:
        return {"result": type(error).__name__, "text": str(error), "holder": getattr(error, "holder", "")}


def hold(path: str, sessions: list[dict[str, str]], poll: float = 0.005) -> None:
    """Start sessions that wait in their step, and drive them until they end."""
    asyncio.run(_hold(path, sessions, poll))


async def _hold(path: str, sessions: list[dict[str, str]], poll: float) -> None:
    async with Engine(SqliteStore(path, poll=poll), workflows=[waiting]) as engine:
        given = [(each["session"], Waiting(gate=each["end"], runs=each["runs"])) for each in sessions]
        handles = [await engine.start(waiting, state, session_id=session) for session, state in given]
        say({"held": len(handles)})
        for handle in handles:
            say({"session": handle.id, "status": (await handle.outcome()).status.value})


def take_next(path: str, session: str) -> None:
    """Try to resume until it succeeds, and report when each refused attempt began."""
    asyncio.run(_take_next(path, session))


async def _take_next(path: str, session_id: str) -> None:
    async with Engine(SqliteStore(path), workflows=[waiting]) as engine:
        session = None
        while session is None:
            began = time.monotonic()
            try:
                session = await engine.session(session_id).resume()
            except AlreadyRunning:
                say({"refused": began})
                await asyncio.sleep(0.005)
        say({"taken": session_id})
        say({"status": (await session.outcome()).status.value})


def flip(path: str, sessions: list[str], me: str, count: int, gate: str, runs: str, twin: str = "") -> None:
    """Pause and resume in turn, from one of many processes. Note the time and the result of each request."""
    points.write_to(Path(runs))
    asyncio.run(_flip(SqliteStore(path, poll=SLOW), sessions, me, count, gate, twin))


async def _flip(store: SqliteStore, sessions: list[str], me: str, count: int, gate: str, twin: str) -> None:
    async with Engine(store, workflows=[waiting]) as engine:
        say({"ready": me})
        wait_at(gate)
        broken.apply(twin, SqliteStore)
        for number in range(count):
            session_id = sessions[(number // 2 + int(me)) % len(sessions)]
            verb = "resume" if number % 2 else "pause"
            by = f"{me}-{number}"
            first = await _signals(store, session_id)
            try:
                if verb == "pause":
                    await engine.session(session_id).pause(by=by)
                else:
                    await engine.session(session_id).resume(by=by)
                result = "ok"
            except PausepointError as error:
                result = type(error).__name__
            last = await _signals(store, session_id)
            points.note("asked", f"{session_id} {verb} {by} {first} {last} {result}")
        say({"flipped": count})


async def _signals(store: SqliteStore, session_id: str) -> int:
    row = await store.get(session_id)
    assert row is not None
    return len(await store.signals(row.key, 0))


class Idle(BaseModel):
    text: str = ""


@step(writes="text")
async def idle(ctx: Context) -> str:
    return await ctx.receive(str)


idling = Workflow("idling", state=Idle, steps=[idle])


def start_many(path: str, me: str, gate: str, twin: str = "") -> None:
    """Start sessions one after the other until the gate exists, and then a few more."""
    asyncio.run(_start_many(broken.apply(twin, SqliteStore)(path), me, Path(gate)))


async def _start_many(store: SqliteStore, me: str, gate: Path) -> None:
    async with Engine(store, workflows=[idling]) as engine:
        late = count = 0
        while late < 3:
            late += gate.exists()
            await engine.start(idling, session_id=f"{me}-{count}")
            count += 1
            if count == 3:
                say({"ready": me})
        say({"started": count})
