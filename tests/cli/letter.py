"""A workflow for the tests of the command line: writes a letter, then waits for the reply."""

from __future__ import annotations

from pydantic import BaseModel

from pausepoint import Context, Workflow, step


class Letter(BaseModel):
    name: str
    text: str = ""
    reply: str = ""


@step(writes="text")
async def write(name: str) -> str:
    return f"Dear {name}"


@step(writes="reply")
async def post(text: str, ctx: Context) -> str:
    return await ctx.receive(str)


letter = Workflow("letter", state=Letter, steps=[write, post])
