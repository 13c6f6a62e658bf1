"""The rows of the verb table for rewind, edit and fork: one test for every status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Status, Workflow, step
from pausepoint.errors import VerbRefused
from pausepoint.runtime import requests
from tests.support.loop import PATIENCE, on_loop

STATUSES = (
    "created", "ready", "running", "pausing", "paused", "waiting", "sleeping", "completed", "failed", "cancelled",
)  # fmt: skip
REFUSED = ("running", "pausing")
AFTER = {status: "paused" if status == "paused" else "ready" for status in STATUSES if status not in REFUSED}
ENDED = ("completed", "failed", "cancelled")


@pytest.fixture(autouse=True)
def unconfirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a session that is pausing record nothing about it. On a busy machine it does so while a test looks at it."""
    monkeypatch.setattr(requests, "CONFIRM_AFTER", PATIENCE)


class Note(BaseModel):
    topic: str = "otters"
    title: str = ""
    text: str = ""


class Work:
    """Two steps. The act in the middle of the second one determines the status of the session."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.act = "pass"
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

        @step(writes="title")
        async def entitle(topic: str) -> str:
            self.calls.append("entitle")
            return topic.title()

        @step(writes="text")
        async def write(title: str, ctx: Context) -> str:
            self.calls.append("write")
            await self._middle(ctx)
            return f"about {title}"

        self.workflow = Workflow("note", state=Note, steps=[entitle, write])

    async def _middle(self, ctx: Context) -> None:
        if self.act == "fail":
            raise RuntimeError("no paper left")
        if self.act == "wait":
            await ctx.receive()
        if self.act == "sleep":
            await ctx.sleep(3600)
        if self.act == "hold":
            self.reached.set()
            await self.opened.wait()


class Stage(NamedTuple):
    engine: Engine
    session: Session[Note]
    work: Work


@asynccontextmanager
async def in_status(status: str, path: Path) -> AsyncIterator[Stage]:
    work = Work()
    acts = {"waiting": "wait", "sleeping": "sleep", "failed": "fail", "completed": "pass"}
    work.act = acts.get(status, "hold")
    if status == "ready":
        async with Engine(path) as earlier:
            await earlier.start(work.workflow, session_id="one")
            await work.reached.wait()
    async with Engine(path, workflows=[work.workflow]) as engine:
        session = await _brought_to(status, engine, work)
        assert await session.status() == status
        work.calls.clear()
        yield Stage(engine, session, work)
        work.opened.set()


async def _brought_to(status: str, engine: Engine, work: Work) -> Session[Note]:
    if status == "ready":
        return engine.session("one")
    session = await engine.start(work.workflow, session_id="one", paused=status == "created")
    if status == "created":
        await engine.store.unpause("one", None, 0)
    elif status in ("running", "pausing", "paused", "cancelled"):
        await work.reached.wait()
    if status == "pausing":
        await session.pause("first", by="ann")
    elif status in ("paused", "cancelled"):
        await session.pause("first", by="ann", mode="abort")
        await session.outcome()
        if status == "cancelled":
            await session.cancel()
    elif status in ("completed", "failed"):
        await session.outcome()
    while status in ("waiting", "sleeping") and (await session.status()) != status:
        await asyncio.sleep(0.001)
    return session


async def _types(session: Session[Note]) -> list[str]:
    return [event.event_type async for event in session.events()]


async def _ends_well(stage: Stage, status: str) -> None:
    """Check that the session resumes and completes from any status, once its step is no longer held."""
    stage.work.act = "pass"
    await stage.session.resume()
    assert (await stage.session.outcome()).status is Status.COMPLETED, status


@pytest.mark.parametrize("status", AFTER)
@on_loop
async def test_rewind(status: str, tmp_path: Path) -> None:
    async with in_status(status, tmp_path / "h.db") as stage:
        first = "entitle"
        assert await stage.session.rewind(first, by="bob", reason="again") == AFTER[status]
        assert await stage.session.status() == AFTER[status]
        info = await stage.session.info()
        assert (info.step, info.visit, info.failure, info.waiting, info.wakes_at) == (first, 1, None, (), None)
        assert await stage.session.state() == Note()
        reopened = [kind for kind in await _types(stage.session) if kind in ("session.reopened", "session.rewound")]
        assert reopened == ["session.reopened"] * (status in ENDED) + ["session.rewound"]
        authors = [pause.by for pause in await stage.session.pauses()]
        assert authors == (["ann"] if status == "paused" else [])
        await _ends_well(stage, status)
        assert stage.work.calls == ["entitle", "write"]


@pytest.mark.parametrize("status", AFTER)
@on_loop
async def test_edit(status: str, tmp_path: Path) -> None:
    async with in_status(status, tmp_path / "h.db") as stage:
        before = await stage.session.state()
        assert await stage.session.edit(title="Weasels", by="bob", reason="dull") == AFTER[status]
        assert await stage.session.status() == AFTER[status]
        assert await stage.session.state() == before.model_copy(update={"title": "Weasels"})
        kinds = [kind for kind in await _types(stage.session) if kind in ("session.reopened", "session.edited")]
        assert kinds == ["session.reopened"] * (status in ENDED) + ["session.edited"]
        await _ends_well(stage, status)
        expected = {"created": ["entitle", "write"], "completed": []}
        assert stage.work.calls == expected.get(status, ["write"])
        text = {"created": "about Otters", "completed": "about Otters"}.get(status, "about Weasels")
        assert (await stage.session.state()).text == text


@pytest.mark.parametrize("status", REFUSED)
@pytest.mark.parametrize("verb", ["rewind", "edit"])
@on_loop
async def test_what_is_driven_is_neither_rewound_nor_edited(verb: str, status: str, tmp_path: Path) -> None:
    async with in_status(status, tmp_path / "h.db") as stage:
        before = await stage.session.info()
        with pytest.raises(VerbRefused, match="Pause it and wait") as refused:
            await (stage.session.rewind("entitle") if verb == "rewind" else stage.session.edit(title="Weasels"))
        assert refused.value.status == status
        assert await stage.session.info() == before


@pytest.mark.parametrize("status", STATUSES)
@on_loop
async def test_fork(status: str, tmp_path: Path) -> None:
    async with in_status(status, tmp_path / "h.db") as stage:
        before = await stage.session.info(), await stage.session.state(), await _types(stage.session)
        stage.work.act = "pass"
        copy = await stage.session.fork(session_id="two", topic="weasels", by="bob")
        outcome = await copy.outcome()
        assert outcome.status is Status.COMPLETED
        text = "about Weasels" if status == "created" else "about Otters"
        assert (outcome.state.topic, outcome.state.text) == ("weasels", text)
        if status != "running":  # the held step of a running session continues meanwhile
            assert (await stage.session.info(), await stage.session.state(), await _types(stage.session)) == before
        assert await stage.session.status() == status
