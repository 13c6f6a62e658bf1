"""Workflows that tests of the command line name as a target. In process, a test can hold a step in its middle."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, Field

from pausepoint import Context, Workflow, route, step

held: dict[str, Any] = {}
"""Step → where it waits, each time that it runs."""


class Plan(BaseModel):
    title: str = ""
    pages: int = Field(default=1, ge=1)


class Brief(BaseModel):
    topic: str
    facts: list[str] = []
    plan: Plan = Plan()
    due: date | None = None
    draft: str = ""
    rounds: int = 0
    wanted: int = 2


async def passed(name: str) -> None:
    if name in held:
        await held[name].hold()


@step(writes="facts")
async def research(topic: str) -> list[str]:
    await passed("research")
    return [f"{topic} are animals"]


@step(writes="draft")
async def write(topic: str, facts: list[str], ctx: Context) -> str:
    await passed("write")
    return f"{topic}, draft {ctx.visit}"


@step(writes="rounds")
async def review(rounds: int) -> int:
    await passed("review")
    return rounds + 1


@route(after=review)
def enough(rounds: int, wanted: int) -> Literal["write", "finish"]:
    return "write" if rounds < wanted else "finish"


@step
async def finish() -> None:
    await passed("finish")


brief = Workflow("brief", state=Brief, steps=[research, write, review, finish], routes=[enough])


class Chat(BaseModel):
    name: str = "nobody"
    said: list[Any] = []


@step(writes="said")
async def listen(said: list[Any], ctx: Context) -> list[Any]:
    return [*said, await ctx.receive(Any)]


@route(after=listen)
def more(said: list[Any]) -> Literal["listen"] | None:
    return None if said[-1] == "bye" else "listen"


chat = Workflow("chat", state=Chat, steps=[listen], routes=[more])
