"""What is going on in all sessions: who wakes next, what was spent, and how far the steps are."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, step
from tests.support.loop import PATIENCE, on_loop
from tests.support.postgres import schema_of


class Doc(BaseModel):
    hours: int = 0
    text: str = ""


@step(writes="text")
async def nap(ctx: Context, hours: int) -> str:
    ctx.spend(usd=hours)
    await ctx.sleep(timedelta(hours=hours))
    return "woke"


napping = Workflow("napping", state=Doc, steps=[nap])


@on_loop
async def test_the_next_to_wake_come_first_and_paused_ones_are_left_out() -> None:
    async with Engine(":memory:") as engine:
        for hours in (3, 1, 2):
            owner = "ann" if hours == 3 else None
            session = await engine.start(napping, session_id=f"n{hours}", owner=owner, hours=hours)
            async with asyncio.timeout(PATIENCE):
                async for info in session.watch():
                    if info.wakes_at is not None:
                        break

        async def waking(owner: str | None = None, limit: int = 100) -> list[str]:
            return [str(info.session_id) for info in await engine.waking(owner=owner, limit=limit)]

        assert await waking() == ["n1", "n2", "n3"]
        assert await waking(limit=1) == ["n1"]
        assert await waking("ann") == ["n3"]
        await engine.session("n1").pause()
        assert await waking() == ["n2", "n3"]
        assert [info.session_id for info in await engine.sessions(own_pause=True)] == ["n1"]
        assert await engine.spending() == {"napping": 6.0}
        assert await engine.spending(owner="ann", status="sleeping") == {"napping": 3.0}
        assert await engine.spending(workflow="other") == {}


@on_loop
async def test_progress_is_that_of_the_steps_that_run_here() -> None:
    go, reported = asyncio.Event(), asyncio.Event()

    @step(writes="text")
    async def work(ctx: Context) -> str:
        ctx.progress(2, 5)
        reported.set()
        await go.wait()
        return "done"

    async with Engine(":memory:") as engine:
        assert await engine.progress() == {}
        session = await engine.start(Workflow("working", state=Doc, steps=[work]), session_id="w")
        async with asyncio.timeout(PATIENCE):
            await reported.wait()
        assert await engine.progress() == {"w": (2, 5)}
        assert (await engine.session("w").info()).progress is None, "it is stored with the next record"
        go.set()
        await session.outcome()
        assert await engine.progress() == {}


async def check_stranded(url: str) -> None:
    async def stranded(limit: int = 100) -> list[str]:
        return [str(info.session_id) for info in await observer.stranded(limit=limit)]

    async with Engine(url, drives="none") as observer, Engine(url, workflows=[napping], queues=["web"]) as web:
        for id, queue in (("g1", "gpu"), ("m1", "mail"), ("g2", "gpu")):
            await web.start(napping, session_id=id, queue=queue)
        assert await stranded() == ["g2", "m1", "g1"]
        async with Engine(url, workflows=[napping], queues=["mail"], concurrency=1):
            assert await stranded() == ["g2", "g1"], "a worker for mail leaves the queue gpu to others"
            assert await stranded(limit=1) == ["g2"]
            other = Workflow("other", state=Doc, steps=[nap])
            async with Engine(url, workflows=[other], queues=["gpu"]):
                assert await stranded() == ["g2", "g1"], "workflow and queue must be those of one engine"
        async with Engine(url, workflows=[napping]):
            assert await stranded() == []


@on_loop
async def test_a_session_in_a_queue_that_no_engine_drives_is_stranded(tmp_path: Path) -> None:
    await check_stranded(str(tmp_path / "store.db"))


@pytest.mark.long
@on_loop
async def test_a_session_in_a_queue_that_no_engine_drives_is_stranded_on_postgres_too() -> None:
    with schema_of() as url:
        await check_stranded(url)
