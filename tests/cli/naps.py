"""Workflows that sleep, alone or below another one, for the tests of `run` and `resume`."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel

from pausepoint import Context, Workflow, step


class Nap(BaseModel):
    seconds: float = 10_800
    rested: bool = False


@step
async def lie_down() -> None: ...


@step(writes="rested")
async def rest(seconds: float, ctx: Context) -> bool:
    await ctx.sleep(timedelta(seconds=seconds))
    return True


nap = Workflow("nap", state=Nap, steps=[lie_down, rest])


@step(writes="rested")
async def send(seconds: float, ctx: Context) -> bool:
    return (await ctx.call(nap, seconds=seconds)).rested


parent = Workflow("parent", state=Nap, steps=[send])
