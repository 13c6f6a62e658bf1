"""Measure what a store holds: bytes per step, per operation, per message of a chat, and what that is in a year.

    python -m benchmarks.storage [--steps 2000]

A figure is the growth of the database between two sizes of the same work, divided by the difference, so that what each
store and each session takes once does not count. It is measured after the write-ahead log was folded in.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel

from pausepoint import Append, Context, Engine, Workflow, route, step

REPLY = 1000
"""Characters of an answer of a model."""

QUESTION = 200
"""Characters of a message of a person."""


class Count(BaseModel):
    """The state of a session that counts."""

    end: int
    n: int = 0


@step(writes="n")
def count(n: int) -> int:
    """Count one further: a step with a state of two numbers."""
    return n + 1


@route(after=count)
def counted(n: int, end: int) -> Literal["count", None]:
    """Repeat until the end."""
    return "count" if n < end else None


counting = Workflow("counting", state=Count, steps=[count], routes=[counted])


async def model(number: int) -> str:
    """Answer with a text of a thousand characters, none like another."""
    return "".join(f"{number * 7919 + place * 104729:07d}"[-7:] for place in range(REPLY // 7 + 1))[:REPLY]


class Loop(BaseModel):
    """The state of an agent."""

    calls: int
    last: str = ""


@step(writes="last")
async def call(calls: int, ctx: Context) -> str:
    """Call the model again and again, as an agent does."""
    last = ""
    for number in range(calls):
        last = await ctx.do(model, number)
    return last[:10]


looping = Workflow("looping", state=Loop, steps=[call])


class Chat(BaseModel):
    """The state of a chat."""

    turns: int
    said: Annotated[list[str], Append] = []


@step(writes="said")
async def turn(turns: int, ctx: Context) -> list[str]:
    """Receive a message, and answer it."""
    message = await ctx.receive(str)
    return [message, await ctx.do(model, int(message[:7]))]


@route(after=turn)
def talked(said: list[str], turns: int) -> Literal["turn", None]:
    """Repeat until the chat has its turns."""
    return "turn" if len(said) < 2 * turns else None


chatting = Workflow("chatting", state=Chat, steps=[turn], routes=[talked])


class Figures(NamedTuple):
    """Bytes that a store grows by."""

    step: float
    operation: float
    turn: float
    session: float
    chat: float


async def _steps(engine: Engine, size: int) -> None:
    await (await engine.start(counting, end=size)).outcome()


async def _operations(engine: Engine, size: int) -> None:
    await (await engine.start(looping, calls=size)).outcome()


async def _turns(engine: Engine, size: int) -> None:
    session = await engine.start(chatting, turns=size)
    for number in range(size):
        await session.send(f"{number:07d}".ljust(QUESTION, "."))
    while (await session.outcome()).status != "completed":
        await asyncio.sleep(0.01)


async def _sessions(engine: Engine, size: int) -> None:
    for _ in range(size):
        await (await engine.start(counting, end=1)).outcome()


async def _chats(engine: Engine, size: int) -> None:
    for _ in range(size):
        await _turns(engine, 20)


async def size_of(folder: Path, work: Callable[[Engine, int], Awaitable[Any]], size: int) -> int:
    """Do the work in a new store, and return the size of the database after the store was closed."""
    file = folder / f"{work.__name__}-{size}.db"
    async with Engine(file) as engine:
        await work(engine, size)
        await engine.gc(apply=True)
    return file.stat().st_size


async def measured(folder: Path, steps: int) -> Figures:
    """Measure every figure."""

    async def grown(work: Callable[[Engine, int], Awaitable[Any]], small: int, large: int) -> float:
        return (await size_of(folder, work, large) - await size_of(folder, work, small)) / (large - small)

    many = max(steps // 20, 10)
    return Figures(
        await grown(_steps, steps // 4, steps),
        await grown(_operations, steps // 4, steps),
        await grown(_turns, steps // 8, steps // 2),
        await grown(_sessions, many // 4, many),
        await grown(_chats, max(many // 20, 1), max(many // 4, 2)),
    )


def lines(found: Figures) -> list[str]:
    """Return the figures as rows of a table."""
    year = 365
    return [
        "| what | bytes | in a year |",
        "|---|---|---|",
        f"| a step of a small state | {found.step:,.0f} | 100,000 a day: {found.step * 1e5 * year / 1e9:.1f} GB |",
        f"| an operation with a result of {REPLY:,} characters | {found.operation:,.0f} |"
        f" 100,000 a day: {found.operation * 1e5 * year / 1e9:.1f} GB |",
        f"| a turn of a chat: {QUESTION} characters in, {REPLY:,} out | {found.turn:,.0f} |"
        f" 10,000 a day: {found.turn * 1e4 * year / 1e9:.1f} GB |",
        f"| a session of one step | {found.session:,.0f} | 10,000 a day: {found.session * 1e4 * year / 1e9:.1f} GB |",
        f"| a chat of 20 turns | {found.chat:,.0f} | 1,000 a day: {found.chat * 1e3 * year / 1e9:.1f} GB |",
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure what a store holds.")
    parser.add_argument("--steps", type=int, default=2000, help="how much work to measure")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measured(Path(folder), given.steps))
    print(json.dumps(found._asdict()) if given.json else "\n".join(lines(found)))


if __name__ == "__main__":
    main()
