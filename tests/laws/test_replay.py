"""Replay laws, checked on a corpus of workflows.

1. A replay in an unchanged world gives the same state.
2. A session that is paused after every record does the same work and ends like an uninterrupted one.
3. Stored records never change.
4. The size of a commit depends on the size of the change, not of the state.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from pausepoint import Engine, Status, Workflow, route, step
from pausepoint.codec.values import DEFAULT_LIMITS
from pausepoint.errors import AlreadyRunning
from pausepoint.log.access import StateAccess
from pausepoint.log.ledger import KEY_FRAME_EVERY
from pausepoint.log.replay import Line, fold
from pausepoint.model.commits import Commit, Flags
from pausepoint.model.records import Record
from pausepoint.model.sessions import Filter, Pause, PauseMode, SessionRow
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from tests.support.corpus import CORPUS, Case, long
from tests.support.loop import on_loop
from tests.support.scripted import World

FROM_THE_WORK = ("operation", "checkpoint")


class RestlessStore(SqliteStore):
    """A store that requests a pause after every record of a step."""

    def __init__(self, mode: PauseMode, every: int = 1) -> None:
        super().__init__(":memory:")
        self.mode: PauseMode = mode
        self.every = every
        self.asked = 0

    async def commit(self, commit: Commit) -> Flags | None:
        flags = await super().commit(commit)
        if flags is None or commit.release or commit.records[0].kind not in FROM_THE_WORK:
            return flags
        self.asked += 1
        if self.asked % self.every:
            return flags
        row = next(row for row in await self.find(Filter()) if row.key == commit.key)
        pause = Pause("", "operator", "again", "a restless soul", commit.updated_at, mode=self.mode)
        await self.pause(Filter(session_id=row.session_id), pause)
        return Flags(True, self.mode, flags.cancel_requested)


class WeighingStore(SqliteStore):
    """A store that notes the number of bytes in each commit."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.weights: list[int] = []

    async def commit(self, commit: Commit) -> Flags | None:
        records = sum(len(record.payload) + len(record.salt) + 64 for record in commit.records)
        self.weights.append(records + sum(len(data) for _, data in commit.blobs))
        return await super().commit(commit)


async def stored(engine: Engine, session_id: str) -> tuple[SessionRow, list[Record]]:
    row = await engine.store.get(session_id)
    assert row is not None
    return row, await engine.store.records(row.key, 1)


async def built(engine: Engine, workflow: Workflow[Any], line: Line) -> Any:
    """Return the state that a line of records describes."""
    access = StateAccess(workflow, line.state, engine.store, DEFAULT_LIMITS)
    line.state.provide(await engine.store.blobs(line.state.needs(workflow.shape.fields)))
    return access.build()


async def undisturbed(case: Case) -> tuple[Any, list[tuple[str, int, str]], list[str], float]:
    """Return the state, visits, operations and cost of an uninterrupted run."""
    async with Engine(":memory:", signals=False) as engine:
        session = await engine.start(case.workflow, **case.given)
        outcome = await session.outcome()
        assert outcome.status is Status.COMPLETED, outcome
        visits = [(visit.step, visit.visit, visit.skipped) for visit in await session.checkpoints(limit=None)]
        ran, case.ran[:] = list(case.ran), []
        return outcome.state, visits, ran, outcome.spent_usd


# 1


@pytest.mark.parametrize("name", CORPUS)
@on_loop
async def test_folding_all_records_or_those_since_a_key_frame_gives_the_state(name: str) -> None:
    case = CORPUS[name]()
    async with Engine(":memory:", signals=False) as engine:
        session = await engine.start(case.workflow, **case.given)
        outcome = await session.outcome()
        row, records = await stored(engine, session.id)
        frames = [record.seq for record in records if record.kind == "key"]
        assert row.key_frame == frames[-1]
        for seq in frames:
            line = fold(records[seq - 1 :])
            assert await built(engine, case.workflow, line) == outcome.state == await session.state()
            assert (line.step, line.visits) == (None, fold(records).visits)


@on_loop
async def test_a_long_session_has_key_frames_and_is_loaded_from_the_last() -> None:
    case = long()
    async with Engine(":memory:", signals=False) as engine:
        session = await engine.start(case.workflow)
        await session.outcome()
        _, records = await stored(engine, session.id)
        frames = [record.seq for record in records if record.kind == "key"]
        assert len(frames) >= 3
        assert all(later - earlier >= KEY_FRAME_EVERY for earlier, later in pairwise(frames))


# 2 and 3


@pytest.mark.long
@pytest.mark.covers("S1.57", "S1.58", "S4.108")
@pytest.mark.parametrize("mode", ["finish", "abort"])
@pytest.mark.parametrize("name", CORPUS)
@on_loop
async def test_a_pause_after_every_record_changes_neither_the_end_nor_what_was_done(name: str, mode: PauseMode) -> None:
    case = CORPUS[name]()
    state, visits, ran, spent = await undisturbed(case)
    # For the long workflow, about twenty pauses are enough.
    store = RestlessStore(mode, every=29 if name == "long" else 1)
    async with Engine(store, workflows=[case.workflow], signals=False) as engine:
        session = await engine.start(case.workflow, **case.given)
        pauses, settled = 0, (await stored(engine, session.id))[1]
        while (outcome := await session.outcome()).status is Status.PAUSED:
            settled = await still_settled(engine, session.id, settled)
            pauses += 1
            await session.resume()
        assert outcome.status is Status.COMPLETED, outcome
        await still_settled(engine, session.id, settled)
        assert pauses >= len(visits) / store.every - 1
        assert outcome.state == state
        assert [(visit.step, visit.visit, visit.skipped) for visit in await session.checkpoints(limit=None)] == visits
        assert sorted(case.ran) == sorted(ran)
        assert outcome.spent_usd == spent


async def still_settled(engine: Engine, session_id: str, before: list[Record]) -> list[Record]:
    """Check that the earlier records of the log are unchanged, and return the whole log."""
    row, records = await stored(engine, session_id)
    assert records[: len(before)] == before
    assert [record.seq for record in records] == list(range(1, row.seq + 1))
    return records


@on_loop
async def test_reading_changes_nothing() -> None:
    case = CORPUS["bent"]()
    async with Engine(RestlessStore("finish"), workflows=[case.workflow], signals=False) as engine:
        session = await engine.start(case.workflow, **case.given)
        await session.outcome()
        before = await stored(engine, session.id)
        await session.state()
        await session.checkpoints(limit=None)
        await session.pauses()
        await engine.sessions()
        assert [event async for event in session.events()] == [event async for event in session.events()]
        assert await stored(engine, session.id) == before


@on_loop
async def test_a_resume_that_is_refused_changes_nothing() -> None:
    world = World()
    async with Engine(":memory:", workflows=[world.workflow], clock=ManualClock(auto=True), signals=False) as engine:
        session = await engine.start(world.workflow, plan=["wait"], budget=1)
        before = await stored(engine, session.id)
        with pytest.raises(AlreadyRunning):
            await session.resume(budget=5)
        assert await stored(engine, session.id) == before


# 4


class Heavy(BaseModel):
    weight: str
    parts: dict[str, str] = {}
    n: int = 0
    note: str = ""


@step(writes=["n", "note"])
async def tick(n: int) -> dict[str, Any]:
    return {"n": n + 1, "note": f"{n}".rjust(100)}


@route(after="tick")
def until_300(n: int) -> Literal["tick", None]:
    return "tick" if n < 300 else None


heavy = Workflow("heavy", state=Heavy, steps=[tick], routes=[until_300])


@on_loop
async def test_a_step_beside_a_megabyte_that_it_does_not_touch_writes_under_two_kibibytes() -> None:
    store = WeighingStore()
    async with Engine(store, signals=False) as engine:
        session = await engine.start(heavy, weight="w" * 1_000_000, parts={"p": "q" * 1_000_000})
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.n) == (Status.COMPLETED, 300)
        _, records = await stored(engine, session.id)
        assert len([record for record in records if record.kind == "key"]) > 1
    assert len(store.weights) == 300
    assert max(store.weights) < 2048


@on_loop
async def test_a_growing_list_costs_what_is_added_and_a_key_frame_now_and_then() -> None:
    case = long()
    store = WeighingStore()
    async with Engine(store, signals=False) as engine:
        session = await engine.start(case.workflow)
        assert (await session.outcome()).status is Status.COMPLETED
    usual = sorted(store.weights)[: len(store.weights) - 3]
    assert max(usual) < 512
    assert sum(store.weights) < 2 * sum(usual)
