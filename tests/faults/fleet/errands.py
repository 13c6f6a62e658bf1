"""The work of the chaos campaign: each operation notes when it begins, ends, is acknowledged or dropped.

A note is one line of a file that all processes append to: the time, the process, what happened, and the token of this
run of the operation. The token is also the operation's result. So the log of a session says which run counts.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid

from pausepoint import Context, workflow

OPERATIONS = 12
NAP = 0.12
"""Seconds that an operation takes."""


def note(book: str, what: str, token: str) -> None:
    """Append a line. One short write to a file opened for appending is never mixed with others."""
    file = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{time.monotonic():.6f} {os.getpid()} {what} {token}\n".encode())
    finally:
        os.close(file)


async def run(book: str, name: str) -> str:
    token = f"{name}={uuid.uuid4().hex[:12]}"
    note(book, "began", token)
    await asyncio.sleep(NAP)
    note(book, "did", token)
    return token


async def operation(ctx: Context, book: str, name: str) -> str:
    try:
        token: str = await ctx.do(run, book, name, key=name.rpartition("/")[2])
    except BaseException:
        note(book, "dropped", f"{name}=")
        raise
    note(book, "acknowledged", token)
    return token


@workflow
async def errand(book: str, who: str, ctx: Context) -> list[str]:
    """Run operations one after the other."""
    return [await operation(ctx, book, f"{who}/{n}") for n in range(OPERATIONS)]
