"""A workflow that asks, in every way there is. Tests copy it into a folder of theirs; called, it is a program."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, Field

from pausepoint import Context, Tool, Workflow, collect, program, step


class Address(BaseModel):
    street: str = Field(description="where it goes")
    number: int
    kind: Literal["home", "work"] = "home"


HALF_HOUR = timedelta(minutes=30)


class Survey(BaseModel):
    how: str
    said: object = None


def deliver(address: Address) -> str:
    return f"to {address.street} {address.number}"


@step(writes="said")
async def ask(how: str, ctx: Context) -> object:
    match how:
        case "tone":
            chosen = await ctx.ask("Which tone for 鯨?", choices=["formal", "playful"], key="tone", expires=HALF_HOUR)
            return [chosen, await ctx.ask("How many words?", int, default=500, expires=None)]
        case "refund":
            return await ctx.confirm("Refund 20 €?", payload={"order": {"id": 7}})
        case "address":
            return (await ctx.ask("Where to?", Address)).model_dump()
        case "collect":
            return (await collect(ctx, Tool("deliver", Address, deliver), {"kind": "work"})).result
        case "tags":
            return await ctx.ask("Which tags?", list[str])
        case "both":
            return await asyncio.gather(ctx.ask("First?"), ctx.ask("Second?"))
        case "call":
            return (await ctx.call(survey, how="address")).said
        case "odd":
            return await ctx.ask("Sure?\x1b[2J\nهل أنت متأكد؟ 🦑")
        case "soon":
            return await ctx.ask("Quick?", expires=timedelta(seconds=0.4), default="nobody", on_expiry="default")
    raise ValueError(how)


survey = Workflow("survey", state=Survey, steps=[ask])

if __name__ == "__main__":
    program(survey)()
