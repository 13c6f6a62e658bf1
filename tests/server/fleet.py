"""A workflow whose operations leave a line in a file, for servers that are killed while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Context, Workflow, step


class Job(BaseModel):
    name: str
    place: str
    done: list[str] = []


async def note(job: Job, what: str) -> str:
    """Have the effect: one line. Appending a short line is atomic."""
    with Path(job.place, "effects").open("a") as effects:
        effects.write(f"{job.name} {what}\n")
    return what


async def long(job: Job) -> str:
    """Have an effect, and last until the test lets it end."""
    await note(job, "long")
    while not Path(job.place, "go").exists():
        await asyncio.sleep(0.05)
    return "long"


@step(writes="done")
async def work(state: Job, ctx: Context) -> list[str]:
    return [await ctx.do(note, state, "begin"), await ctx.do(long, state), await ctx.do(note, state, "end")]


fleet = Workflow("fleet", state=Job, steps=[work])
