"""A workflow for tests of the command line that counts its paid calls in ``calls.txt``.

``now.txt`` is an argument of the first call. A file ``break`` lets the workflow fail after it, ``strict`` makes the
workflow strict, and ``other`` is a changed program that no longer pays.
"""

from __future__ import annotations

from pathlib import Path

from pausepoint import Context, workflow


def paid(call: str) -> None:
    with Path("calls.txt").open("a") as file:
        file.write(f"{call}\n")


async def charge(card: str, now: str, ctx: Context) -> str:
    paid("charge")
    ctx.spend(usd=0.25)
    return "paid"


async def ship(card: str) -> str:
    paid("ship")
    return "shipped"


@workflow(strict=Path("strict").exists())
async def shop(ctx: Context) -> str:
    if not Path("other").exists():
        await ctx.do(charge, "4711", now=Path("now.txt").read_text())
    if Path("break").exists():
        raise OSError("the line is down")
    await ctx.confirm("Ship it?")
    return await ctx.do(ship, "4711")
