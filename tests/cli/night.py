"""A workflow whose sessions fail while the file ``broken`` exists. ``calls.txt`` tells what was executed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Context, Workflow, step


class Item(BaseModel):
    number: int
    text: str = ""
    kept: bool = False


async def fetch(number: int) -> str:
    with Path("calls.txt").open("a") as out:
        out.write(f"{number}\n")
    return f"text {number}"


@step(writes="text")
async def load(number: int, ctx: Context) -> str:
    return await ctx.do(fetch, number)


@step(writes="kept")
async def keep(number: int) -> bool:
    broken = Path("broken")
    if broken.exists() and broken.read_text() in ("", str(number)):
        raise ConnectionError(f"item {number} cannot be kept")
    while Path("hold").exists():
        with Path("held.txt").open("a") as out:
            out.write(f"{number}\n")
        await asyncio.sleep(0.01)
    return True


night = Workflow("night", state=Item, steps=[load, keep])
