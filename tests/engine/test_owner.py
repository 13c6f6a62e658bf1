"""A session may carry an owner; others cannot resume it."""

from __future__ import annotations

import pytest

from pausepoint import Engine, Status
from pausepoint.errors import WrongOwner
from tests.support.loop import on_loop
from tests.support.pipeline import FINISHED, Pipeline


@pytest.mark.covers("S1.30")
@on_loop
async def test_a_resume_by_another_owner_is_refused_and_changes_nothing() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, owner="ann@example.com", paused=True)
        before = await session.info()
        with pytest.raises(WrongOwner, match=r"belongs to 'ann@example.com', not to 'bob@example.com'") as refused:
            await engine.session(session.id, owner="bob@example.com").resume()
        assert refused.value.owner == "ann@example.com"
        assert await session.info() == before
        assert pipeline.calls == []
        await engine.session(session.id, owner="ann@example.com").resume()
        assert (await session.outcome()).state == FINISHED


@pytest.mark.covers("S1.30")
@on_loop
async def test_a_start_of_a_known_session_by_another_owner_is_refused_too() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        await engine.start(pipeline.workflow, session_id="memo-1", owner="ann", paused=True)
        with pytest.raises(WrongOwner):
            await engine.start(pipeline.workflow, session_id="memo-1", owner="bob")
        assert pipeline.calls == []


@on_loop
async def test_a_session_is_not_paused_by_a_start_of_another_owner() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, session_id="memo-1", owner="ann")
        await session.outcome()
        await session.rewind("draft")
        with pytest.raises(WrongOwner):
            await engine.start(pipeline.workflow, session_id="memo-1", owner="bob", paused=True)
        assert await session.pauses() == []


@pytest.mark.parametrize("other", ["Ann", "ann ", "an", "annie"])
@on_loop
async def test_owners_are_told_apart_by_every_letter(other: str) -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, owner="ann", paused=True)
        with pytest.raises(WrongOwner):
            await engine.session(session.id, owner=other).resume()
        assert pipeline.calls == []


@pytest.mark.covers("S1.30")
@on_loop
async def test_the_owner_is_asked_for_whatever_the_status() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, owner="ann")
        assert (await session.outcome()).status is Status.COMPLETED
        with pytest.raises(WrongOwner):
            await engine.session(session.id, owner="bob").resume()


@on_loop
async def test_a_session_without_an_owner_can_be_resumed_by_anybody() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, paused=True)
        assert (await session.info()).owner is None
        await engine.session(session.id, owner="bob").resume()
        assert (await session.outcome()).status is Status.COMPLETED
