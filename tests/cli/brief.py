"""A workflow for the tests of the command line: four steps that note in ``calls.txt`` what they did.

A file ``hold-STEP`` holds a step as long as it is there, ``break-STEP`` lets it fail.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from pausepoint import Context, Workflow, step


class Size(BaseModel):
    pages: int
    margin: float = 1.0


class Brief(BaseModel):
    topic: str = Field(description="What it is about.")
    count: int = 3
    ratio: float | None = None
    loud: bool = False
    tone: Literal["formal", "playful"] = "formal"
    keywords: list[str] = []
    numbers: list[int] = []
    size: Size | None = None
    owner: str = "nobody"
    angles: list[str] = []
    facts: list[str] = []
    draft: str = ""
    verdict: str = ""


def note(what: str) -> None:
    with Path("calls.txt").open("a") as file:
        file.write(f"{what}\n")


async def begin(name: str) -> None:
    note(name)
    print(f"{name} prints")
    while Path(f"hold-{name}").exists():
        await asyncio.sleep(0.01)
    if Path(f"break-{name}").exists():
        raise ValueError(f"{name} is broken")


async def look_up(angle: str, ctx: Context) -> str:
    note(f"look_up {angle}")
    ctx.spend(usd=0.25)
    return f"fact about {angle}"


@step(writes="angles")
async def plan(topic: str, count: int, ctx: Context) -> list[str]:
    await ctx.do(begin, "plan")
    return [f"{topic} {number}" for number in range(count)]


@step(writes="facts")
async def research(angles: list[str], ctx: Context) -> list[str]:
    facts = await ctx.map(look_up, angles)
    await ctx.do(begin, "research")
    return facts


@step(writes="draft")
async def write(topic: str, facts: list[str], loud: bool, ctx: Context) -> str:
    await ctx.do(begin, "write")
    text = f"{topic}: {', '.join(facts)}"
    return text.upper() if loud else text


@step(writes="verdict")
async def review(draft: str, ctx: Context) -> str:
    await ctx.do(begin, "review")
    return f"{len(draft)} letters"


brief = Workflow("brief", state=Brief, steps=[plan, research, write, review])
