"""A process that has lost its session to another one begins nothing more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Workflow, step
from pausepoint.errors import HoldLost
from pausepoint.stores.sqlite import SqliteStore
from tests.support.loop import on_loop


class Work(BaseModel):
    done: str = ""


@pytest.mark.no_always_replay("counts the runs of operations")
@pytest.mark.parametrize("pause", ["operation", "step"])
@on_loop
async def test_a_step_that_was_taken_over_begins_no_operation(
    tmp_path: Path, pause: Literal["operation", "step"]
) -> None:
    reached, go = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    async def operation() -> str:
        ran.append("operation")
        return "done"

    @step(writes="done", pause=pause)
    async def work(ctx: Context) -> str:
        if not reached.is_set():  # the first engine stops here, as a process that is suspended
            reached.set()
            await go.wait()
        return await ctx.do(operation)

    def store() -> SqliteStore:
        return SqliteStore(tmp_path / "store.db", poll=600)  # it does not hear of other processes on its own

    workflow = Workflow("work", state=Work, steps=[work])
    async with Engine(store(), workflows=[workflow]) as slow, Engine(store(), workflows=[workflow]) as quick:
        session = await slow.start(workflow, session_id="s")
        await reached.wait()
        stolen = await quick.session("s").resume(steal=True)
        assert (await stolen.outcome()).state.done == "done"
        go.set()
        with pytest.raises(HoldLost):
            await session.outcome()
        assert ran == ["operation"]
