"""A worker for the tests of the dispatcher: ``python -m tests.workers.restate_program FOLDER PORT NAME [STORE]``."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from pausepoint import Context, Engine, workflow
from pausepoint.workers.restate import dispatcher

OPERATIONS = 8
NAP = 1.5


async def effect(folder: str, name: str) -> None:
    """Leave a line in the file of effects before the operation ends. The last one waits while there is a file hold."""
    with Path(folder, "effects").open("a") as file:
        file.write(f"{name} {os.getpid()}\n")
    await asyncio.sleep(0.05)
    while name.endswith(f"/{OPERATIONS - 1}") and Path(folder, "hold").exists():
        await asyncio.sleep(0.02)


@workflow
async def errand(place: str, who: str, ctx: Context) -> str:
    for number in range(OPERATIONS):
        await ctx.do(effect, place, f"{who}/{number}", key=number)
        if number == 1:
            await ctx.sleep(NAP)
    return "done"


async def open_gate(place: str) -> None:
    while not Path(place, "gate").exists():
        await asyncio.sleep(0.02)


@workflow
async def gated(place: str, ctx: Context) -> str:
    await ctx.do(open_gate, place)
    return "done"


@workflow
async def family(place: str, ctx: Context) -> str:
    return await ctx.call(errand, place=place, who="child")


async def main(folder: str, port: int, name: str, store: str | None = None) -> None:
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    async with Engine(store or Path(folder, "fleet.db"), workflows=[errand, family, gated], drives="asked") as engine:
        await serve(restate.app([dispatcher(engine, name=name)]), config)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
