"""What the pause of everything tells about how it took effect: asked, stopped, still finishing, and the longest."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, step
from pausepoint.engine import documents
from pausepoint.model import Finishing, StandingPause
from tests.support.loop import on_loop


class Work(BaseModel):
    out: str = ""


@on_loop
async def test_the_pause_of_everything_names_what_is_still_finishing_and_then_how_long_it_took(tmp_path: Path) -> None:
    gate, inside = asyncio.Event(), asyncio.Event()

    async def look_up() -> str:
        inside.set()
        await gate.wait()
        return "found"

    @step(writes="out")
    async def search(ctx: Context) -> str:
        return await ctx.do(look_up) + await ctx.do(look_up)

    work = Workflow("work", state=Work, steps=[search])
    async with Engine(tmp_path / "s.db") as engine, Engine(tmp_path / "s.db", drives="none") as observer:
        assert await observer.standing_pause() is None
        session = await engine.start(work, session_id="one")
        await inside.wait()
        await observer.pause_all(reason="fire drill", by="ann")
        found = await observer.standing_pause()
        assert isinstance(found, StandingPause)
        assert (found.reason, found.by, found.asked, found.stopped, found.longest) == ("fire drill", "ann", 1, 0, None)
        while not (found := await observer.standing_pause()) or found.finishing[0].operation != "look_up":
            await asyncio.sleep(0.005)  # the engine tells what it finishes a moment later
        [late] = found.finishing
        assert isinstance(late, Finishing)
        assert (late.session_id, late.step) == ("one", "search#1")
        told = documents.standing_pause(found)
        assert told is not None
        assert told["finishing"][0]["operation"] == "look_up"
        gate.set()
        await session.outcome()
        found = await observer.standing_pause()
        assert found is not None
        assert (found.asked, found.stopped, found.finishing) == (1, 1, ())
        assert found.longest is not None
        assert timedelta() < found.longest < timedelta(seconds=60)
        [pause] = await session.pauses()
        assert pause.took_effect_at is not None
        assert timedelta(microseconds=pause.took_effect_at - pause.created_at) == found.longest
        await observer.lift_pause()
        assert await observer.standing_pause() is None
