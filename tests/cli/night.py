"""A workflow whose sessions fail while the file ``broken`` exists. ``calls.txt`` tells what was executed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Context, Workflow, step


class Item(BaseModel):
    kept: bool = False


async def fetch(ctx: Context) -> str:
    with Path("calls.txt").open("a") as out:
        out.write(f"{ctx.session_id}\n")
    return "a text"


@step(writes="kept")
async def keep(ctx: Context) -> bool:
    await ctx.do(fetch)
    broken = Path("broken")
    if broken.exists() and broken.read_text() in ("", ctx.session_id):
        raise ConnectionError(f"{ctx.session_id} cannot be kept")
    while Path("hold").exists():
        with Path("held.txt").open("a") as out:
            out.write(f"{ctx.session_id}\n")
        await asyncio.sleep(0.01)
    return True


night = Workflow("night", state=Item, steps=[keep])
