"""Sessions for the tests of the MCP server, which another process drives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Context, Declined, Workflow, step
from tests.support.children import Child, child

CALLS, HELD = 10, 5
"""How many calls a session makes, and which of them waits for the file ``go``."""


class Order(BaseModel):
    place: str
    calls: int = 0
    tone: str = ""
    paid: str = ""
    draft: str = ""


async def call(folder: str, number: int) -> int:
    """Do something outside: add a line to a file. One of the calls lasts until the test allows it to end."""
    with Path(folder, "effects").open("a") as file:
        file.write(f"{number}\n")
    while number == HELD and not Path(folder, "go").exists():
        await asyncio.sleep(0.01)
    return number


@step(writes="calls")
async def work(ctx: Context, place: str) -> int:
    return len([await ctx.do(call, place, number, key=number) for number in range(CALLS)])


@step(writes=["tone", "paid"])
async def decide(ctx: Context) -> dict[str, str]:
    tone = await ctx.ask("Which tone?", choices=["formal", "playful"])
    await ctx.ask("How many?", int)
    try:
        paid = str(await ctx.confirm("Pay 40 EUR?", payload={"to": "Ada"}))
    except Declined:
        paid = "no"
    return {"tone": tone, "paid": paid}


order = Workflow("order", state=Order, steps=[work, decide])

_DRIVER = """
from tests.integrations.mcp_jobs import order
async with Engine(args[0], workflows=[order]) as engine:
    await engine.start(order, session_id="one", place=args[1])
    say("started")
    await heard()
"""


@contextmanager
def driver(store: Path) -> Iterator[Child]:
    """Another process that starts session ``one`` and drives all sessions."""
    with child(_DRIVER, store, store.parent) as running:
        running.expect("started")
        yield running


def effects(store: Path) -> list[int]:
    """Return the numbers of the calls that took place, in their order."""
    file = store.with_name("effects")
    return list(map(int, file.read_text().split())) if file.exists() else []
