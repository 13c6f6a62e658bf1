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
        standing = await observer.standing_pause()
        assert isinstance(standing, StandingPause)
        assert (standing.reason, standing.by) == ("fire drill", "ann")
        assert (standing.asked, standing.stopped, standing.longest) == (1, 0, None)
        while not (standing := await observer.standing_pause()) or standing.finishing[0].operation != "look_up":
            await asyncio.sleep(0.005)  # the engine tells what it finishes a moment later
        [late] = standing.finishing
        assert isinstance(late, Finishing)
        assert (late.session_id, late.step) == ("one", "search#1")
        document = documents.standing_pause(standing)
        assert document is not None
        assert document.finishing[0].operation == "look_up"
        gate.set()
        await session.outcome()
        standing = await observer.standing_pause()
        assert standing is not None
        assert (standing.asked, standing.stopped, standing.finishing) == (1, 1, ())
        assert standing.longest is not None
        assert timedelta() < standing.longest < timedelta(seconds=60)
        [pause] = await session.pauses()
        assert pause.took_effect_at is not None
        assert timedelta(microseconds=pause.took_effect_at - pause.created_at) == standing.longest
        await observer.lift_pause()
        assert await observer.standing_pause() is None
