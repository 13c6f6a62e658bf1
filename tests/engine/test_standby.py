"""An engine stands by for a session that has stopped, and continues it after someone resumes it in another process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import CallRefused
from tests.support.loop import on_loop


class Talk(BaseModel):
    said: str = ""


@step(writes="said")
async def listen(ctx: Context) -> str:
    return str(await ctx.ask("What?", str))


listening = Workflow("listening", state=Talk, steps=[listen])


async def stands_by(engine: Engine, session_id: str) -> bool:
    own = engine.store.number
    return any(each.picks_up("listening", session_id) for each in await engine.engines() if each.number != own)


async def announced(engine: Engine, session_id: str, expected: bool = True) -> None:
    while await stands_by(engine, session_id) is not expected:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("how", ["resumed", "lifted", "answered"])
@on_loop
async def test_it_returns_when_another_process_lets_the_session_continue_and_nothing_runs_before(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "s.db"
    async with Engine(path, drives="asked") as engine, Engine(path, drives="none", signals=False) as other:
        for name in ("one", "two"):
            await (await engine.start(listening, session_id=name)).outcome()
        if how == "resumed":
            await other.session("one").pause()
        elif how == "lifted":
            await other.pause_all()
        waiting = asyncio.ensure_future(engine.session("one").stand_by())
        await announced(other, "one")
        assert not await stands_by(other, "two")
        if how == "resumed":
            await other.session("one").resume(here=False)
        [question] = await other.session("one").questions()
        await other.answer(question.id, "ahoy")
        if how == "lifted":
            await other.lift_pause()
        info = await waiting
        assert (info.status, engine.running) == (Status.READY, ())
        assert "listening/one" not in engine._service.standing_by
        assert (await (await engine.session("one").resume()).outcome()).state.said == "ahoy"


@on_loop
async def test_it_returns_when_another_engine_drives_the_session_or_this_one_ends(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with Engine(path, workflows=[listening], signals=False) as other:
        async with Engine(path, drives="asked") as engine:
            for name in ("one", "two"):
                await (await engine.start(listening, session_id=name)).outcome()
            await other.session("one").pause()
            first = asyncio.ensure_future(engine.session("one").stand_by())
            await announced(other, "one")
            await other.session("one").resume(wake=True)
            [question] = await other.session("one").questions()
            await other.answer(question.id, "ahoy")
            assert (await first).status is not Status.PAUSED
            second = asyncio.ensure_future(engine.session("two").stand_by())
            await announced(other, "two")
        with pytest.raises(Exception, match="not open"):
            await second
        await announced(other, "two", expected=False)


@on_loop
async def test_an_engine_that_drives_everything_does_not_stand_by() -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(listening, session_id="one")).outcome()
        with pytest.raises(CallRefused, match=r'drives="asked"'):
            await engine.session("one").stand_by()
