"""The table of verbs: one test for every combination of verb and status."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from pausepoint import Engine, Session, Status
from pausepoint.errors import AlreadyRunning, VerbRefused
from pausepoint.runtime import requests
from tests.support.loop import PATIENCE, on_loop
from tests.support.pipeline import FINISHED, STEPS, Doc, Gate, Pipeline

STATUSES = ("created", "ready", "running", "pausing", "paused", "completed", "failed", "cancelled")
POSITION = {"created": 0, "ready": 1, "running": 1, "pausing": 1, "paused": 1, "failed": 1}


@pytest.fixture(autouse=True)
def unconfirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a session that is pausing record nothing about it. On a busy machine it does so while a test looks at it."""
    monkeypatch.setattr(requests, "CONFIRM_AFTER", PATIENCE)


class Stage(NamedTuple):
    """A session in a certain status. Its second step waits at a gate if it runs."""

    engine: Engine
    session: Session[Doc]
    pipeline: Pipeline
    gate: Gate


@asynccontextmanager
async def in_status(status: str, path: Path) -> AsyncIterator[Stage]:
    pipeline = Pipeline()
    gate = pipeline.hold("draft")
    if status == "failed":
        pipeline.errors["draft"] = [RuntimeError("no paper left")]
    if status == "ready":
        async with Engine(path) as earlier:
            await earlier.start(pipeline.workflow, session_id="one")
            await gate.reached.wait()
    async with Engine(path, workflows=[pipeline.workflow]) as engine:
        stage = await prepared(status, engine, pipeline, gate)
        assert await stage.session.status() == status
        pipeline.calls.clear()
        yield stage


async def prepared(status: str, engine: Engine, pipeline: Pipeline, gate: Gate) -> Stage:
    if status == "ready":
        return Stage(engine, engine.session("one"), pipeline, gate)
    session = await engine.start(pipeline.workflow, session_id="one", paused=status == "created")
    stage = Stage(engine, session, pipeline, gate)
    if status == "created":
        await engine.store.unpause("one", None, 0)
        return stage
    await gate.reached.wait()
    if status == "pausing":
        await session.pause("first", by="ann")
    elif status == "paused":
        await session.pause("first", by="ann", mode="abort")
    elif status == "cancelled":
        await session.cancel()
    if status in ("completed", "failed", "cancelled"):
        gate.opened.set()
    if status not in ("running", "pausing"):
        await session.outcome()
    if status == "failed":
        gate.opened.clear()
    return stage


PAUSE = {
    "created": "paused", "ready": "paused", "running": "pausing", "pausing": "pausing", "paused": "paused",
    "completed": "completed", "failed": "paused", "cancelled": "cancelled",
}  # fmt: skip


@pytest.mark.covers("S1.5")
@pytest.mark.parametrize("status", STATUSES)
@on_loop
async def test_pause(status: str, tmp_path: Path) -> None:
    async with in_status(status, tmp_path / "h.db") as stage:
        before = await stage.session.info()
        assert (await stage.session.pause("second", by="bob"))[0].status == PAUSE[status]
        assert await stage.session.status() == PAUSE[status]
        if status in ("pausing", "paused", "completed", "cancelled"):  # "same"
            assert await stage.session.info() == before
        authors = [pause.by for pause in await stage.session.pauses()]
        expected = {"pausing": ["ann"], "paused": ["ann"], "completed": [], "cancelled": []}
        assert authors == expected.get(status, ["bob"])
        if status in POSITION:  # the step still shows what comes next
            assert (await stage.session.info()).step == STEPS[POSITION[status]]


@pytest.mark.covers("S1.5")
@pytest.mark.parametrize("status", ["created", "ready", "running", "pausing", "paused", "failed"])
@on_loop
async def test_a_session_that_was_paused_in_any_status_goes_on_to_the_same_end(status: str, tmp_path: Path) -> None:
    async with in_status(status, tmp_path / "h.db") as stage:
        await stage.session.pause("look", by="bob")
        stage.gate.opened.set()
        assert (await stage.session.outcome()).status is Status.PAUSED
        await stage.session.resume()
        outcome = await stage.session.outcome()
        assert (outcome.status, outcome.state, outcome.failure) == (Status.COMPLETED, FINISHED, None)


@pytest.mark.covers("S3.60")
@pytest.mark.parametrize("status", ["created", "ready", "pausing", "paused", "failed"])
@on_loop
async def test_resume_runs_on(status: str, tmp_path: Path) -> None:
    async with in_status(status, tmp_path / "h.db") as stage:
        await stage.session.resume(by="bob")
        assert await stage.session.status() is Status.RUNNING
        stage.gate.opened.set()
        outcome = await stage.session.outcome()
        assert (outcome.status, outcome.state, outcome.pauses) == (Status.COMPLETED, FINISHED, ())
        # The interrupted step starts again, except while pausing: there it never exited.
        again = list(STEPS[POSITION[status] :]) if status != "pausing" else list(STEPS[2:])
        assert stage.pipeline.calls == again


@on_loop
async def test_resume_of_a_running_session_is_refused(tmp_path: Path) -> None:
    async with in_status("running", tmp_path / "h.db") as stage:
        before = await stage.session.info()
        with pytest.raises(AlreadyRunning):
            await stage.session.resume()
        assert await stage.session.info() == before
        stage.gate.opened.set()
        assert (await stage.session.outcome()).state == FINISHED


@pytest.mark.covers("S1.59")
@on_loop
async def test_resume_of_a_completed_session_gives_the_stored_result(tmp_path: Path) -> None:
    async with in_status("completed", tmp_path / "h.db") as stage:
        outcome = await (await stage.session.resume()).outcome()
        assert (outcome.status, outcome.state, stage.pipeline.calls) == (Status.COMPLETED, FINISHED, [])


@on_loop
async def test_resume_of_a_cancelled_session_is_refused(tmp_path: Path) -> None:
    async with in_status("cancelled", tmp_path / "h.db") as stage:
        with pytest.raises(VerbRefused, match="cancelled"):
            await stage.session.resume()
        assert (await stage.session.status(), stage.pipeline.calls) == (Status.CANCELLED, [])


CANCEL = {
    "created": "cancelled", "ready": "cancelled", "running": "running", "pausing": "pausing", "paused": "cancelled",
    "completed": "completed", "failed": "cancelled", "cancelled": "cancelled",
}  # fmt: skip


@pytest.mark.parametrize("status", STATUSES)
@on_loop
async def test_cancel(status: str, tmp_path: Path) -> None:
    async with in_status(status, tmp_path / "h.db") as stage:
        before = await stage.session.info()
        assert await stage.session.cancel("no longer needed", by="bob") == CANCEL[status]
        if status in ("completed", "cancelled"):
            assert await stage.session.info() == before
        if status in ("running", "pausing"):  # at the next safe point, which is the end of the step
            assert (await stage.session.info()).cancel_requested
            stage.gate.opened.set()
            outcome = await stage.session.outcome()
            assert outcome.status is Status.CANCELLED
            assert outcome.state.draft == FINISHED.draft  # finished work stays readable
        assert stage.pipeline.calls == []
        if status not in ("completed", "cancelled"):
            told = [(event.event_type, event.agent_name) async for event in stage.session.events()]
            assert ("cancel.requested", "bob") in told
            assert told[-1][0] == "session.cancelled"


@pytest.mark.parametrize("status", STATUSES)
@on_loop
async def test_looking_works_in_every_status_and_changes_nothing(status: str, tmp_path: Path) -> None:
    async with in_status(status, tmp_path / "h.db") as stage:
        before = await stage.session.info()
        assert (await stage.session.state()).topic == "otters"
        await stage.session.checkpoints(limit=None)
        await stage.session.pauses()
        assert [event async for event in stage.session.events()]
        assert [info.session_id for info in await stage.engine.sessions(status=status)] == ["one"]
        assert await stage.session.info() == before


@pytest.mark.parametrize("status", ["running", "pausing"])
@on_loop
async def test_a_cancel_from_another_engine_reaches_the_driver(status: str, tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    async with in_status(status, path) as stage, Engine(path) as other:
        assert await other.session("one").cancel() == status
        stage.gate.opened.set()
        assert (await stage.session.outcome()).status is Status.CANCELLED
