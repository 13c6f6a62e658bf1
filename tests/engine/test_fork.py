"""Forks: a new session that begins with the state of another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine, Status, Workflow
from pausepoint.errors import (
    DamagedRecord,
    DefinitionError,
    InputConflict,
    StateRefused,
    UnknownCheckpoint,
    UnknownSession,
    VerbRefused,
)
from pausepoint.log.replay import Origin
from tests.engine.essay import COUNTING, WHOLE, Desk, again, essay_of, events
from tests.support.loop import on_loop
from tests.support.pipeline import Doc, Pipeline


@on_loop
async def test_a_fork_goes_its_own_way() -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await desk.done(engine)
        before = await session.info(), await session.state()
        copy = await session.fork(at_step="write#2", session_id="two", topic="ink", by="ann")
        outcome = await copy.outcome()
        assert outcome.state.final == "INK, DRAFT 3"
        assert desk.calls == WHOLE[3:]
        assert (outcome.spent_usd, outcome.skipped_visits) == (2, 3)
        assert (await session.info(), await session.state()) == before
        listed = {each.name: each.seq for each in await session.checkpoints()}
        origin = await copy.origin()
        assert origin == Origin("one", listed["review#1"], "write#2", ("topic",))
        assert await session.origin() is None
        (forked,) = await events(copy, "session.forked")
        assert forked.data == {"from": "one", "seq": listed["review#1"], "at_step": "write#2", "fields": ["topic"]}
        with pytest.raises(UnknownCheckpoint, match="older than this fork"):
            await copy.state(at_checkpoint="write#1")


@on_loop
async def test_a_fork_inherits_what_is_not_given() -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await engine.start(desk.workflow, topic="squid", owner="ann", tags=["a"], budget=50)
        await session.outcome()
        copy = await (await session.fork(at_step="finish", paused=True, reason="wait", by="bob")).info()
        assert (copy.owner, copy.tags, copy.budget_usd, copy.status) == ("ann", ("a",), 50, Status.PAUSED)
        other = await session.fork("finish", owner="bob", tags="b", budget=5, paused=True)
        info = await other.info()
        assert (info.owner, info.tags, info.budget_usd) == ("bob", ("b",), 5)
        with pytest.raises(StateRefused, match="topic"):
            await session.fork(changes={"topic": 1})


@on_loop
async def test_a_fork_under_a_known_id_goes_on_or_conflicts() -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await desk.done(engine)
        copy = await session.fork(at_step="finish", session_id="two", topic="ink", paused=True)
        same = await session.fork(at_step="finish", session_id="two", topic="ink")
        assert (await same.outcome()).status is Status.COMPLETED
        assert copy.id == same.id
        assert desk.calls == ["finish"]
        with pytest.raises(InputConflict):
            await session.fork(at_step="finish", session_id="two", topic="other")
        with pytest.raises(UnknownSession):
            await engine.session("nobody").fork()


@on_loop
async def test_a_fork_shares_large_values_and_outlives_the_session_it_comes_from() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COUNTING, target=600, ballast="x" * 100_000, session_id="one")
        await session.outcome()
        copy = await session.fork(at_step="count#500", paused=True)
        await engine.session("one").remove()
        await engine.gc(apply=True)
        state = await copy.state()
        assert (state.n, len(state.items), len(state.ballast)) == (499, 499, 100_000)
        assert (await again(copy)).state.n == 600


@on_loop
async def test_a_fork_whose_large_values_were_swept_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Engine(":memory:", workflows=[COUNTING]) as engine:
        session = await engine.start(COUNTING, target=3, ballast="x" * 100_000, session_id="one")
        await session.outcome()
        create = engine.store.create

        def swept(before: Callable[[], Any]) -> Callable[[Any], Any]:
            async def late(new: Any) -> Any:
                monkeypatch.setattr(engine.store, "create", create)
                await before()
                return await create(new)

            return late

        async def sweep() -> None:
            await engine.store._do(lambda db: db.execute("DELETE FROM blobs"))  # type: ignore[attr-defined]  # a fault

        monkeypatch.setattr(engine.store, "create", swept(sweep))
        with pytest.raises(DamagedRecord, match=r"no longer exists\. Nothing was written"):
            await session.fork(session_id="two")
        with pytest.raises(UnknownSession):
            await engine.session("two").info()

        async def remove() -> None:
            await engine.session("one").remove()
            await engine.gc(apply=True)

        monkeypatch.setattr(engine.store, "create", swept(remove))
        with pytest.raises(UnknownSession, match="'one'"):
            await session.fork(session_id="two")


@on_loop
async def test_a_fork_onto_a_newer_definition_is_migrated(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        await (await engine.start(essay_of(1), session_id="one")).outcome()
    async with Engine(tmp_path / "h.db", workflows=[essay_of(2)]) as engine:
        session = engine.session("one")
        copy = await session.fork(at_step="old_write", subject="ink")
        outcome = await copy.outcome()
        assert (outcome.status, outcome.state.text) == (Status.COMPLETED, "new ink")
        assert ((await copy.info()).version, (await session.info()).version) == (2, 1)
        with pytest.raises(VerbRefused, match=r"version 1 .* version 2"):
            await session.edit(subject="ink")
        await session.rewind("old_write")
        assert (await again(session)).state.text == "new squid"


@on_loop
async def test_a_fork_onto_a_definition_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        pipeline = Pipeline()
        await (await engine.start(pipeline.workflow, session_id="one")).outcome()
    shorter = Workflow("pipeline", state=Doc, steps=[each for each in Pipeline()._steps({}) if each.name != "draft"])
    async with Engine(tmp_path / "h.db", workflows=[shorter]) as engine:
        session = engine.session("one")
        with pytest.raises(DefinitionError, match=r"cannot be forked or rewound: .*'draft'"):
            await session.fork()
        copy = await session.fork(at_step="outline")
        assert (await copy.outcome()).status is Status.COMPLETED
