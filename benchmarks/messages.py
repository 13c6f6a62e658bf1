"""Measure a message to a session of another process, and the answer to it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from benchmarks.results import Figure
from benchmarks.steps import Scale
from pausepoint import Context, Engine, Workflow, route, step

SESSION = "echo"


class Talk(BaseModel):
    turns: int
    n: int = 0


@step(writes="n")
async def answer(n: int, ctx: Context) -> int:
    """Answer one message. A loop in one step would replay all earlier turns whenever a message wakes it."""
    ctx.emit("answered", await ctx.receive())
    return n + 1


@route(after="answer")
def talk_on(n: int, turns: int) -> Literal["answer", None]:
    """Wait for the next message."""
    return "answer" if n < turns else None


echo = Workflow("echo", state=Talk, steps=[answer], routes=[talk_on], events=["answered"])


def messages(folder: Path, scale: Scale) -> list[Figure]:
    """Measure the time from sending a message to seeing its answer, with a process on each side."""
    times = asyncio.run(_talk(folder / "messages.db", max(scale.chunks // 10, 5)))
    ordered = sorted(times)
    notes = {"90 of 100 ms": ordered[int(len(ordered) * 0.9)], "longest ms": ordered[-1]}
    return [Figure("messages", "a message to another process and its answer, p50", "ms", 25.0, tuple(times), notes)]


async def _talk(path: Path, turns: int) -> list[float]:
    """Return the milliseconds of each turn. The first one is not counted: the other process imports modules."""
    async with Engine(path, workflows=[echo], drives="none", signals=False) as engine:
        await engine.start(echo, session_id=SESSION, turns=turns + 1, paused=True)
        command = [sys.executable, "-m", "benchmarks.messages", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)
            answers = (
                event async for event in engine.session(SESSION).events(follow=True) if event.event_type == "answered"
            )
            times = []
            for turn in range(turns + 1):
                began = time.perf_counter()
                await engine.session(SESSION).send(str(turn))
                assert (await anext(answers)).summary == str(turn)
                times.append((time.perf_counter() - began) * 1e3)
    return times[1:]


async def _answer(path: Path) -> None:
    async with Engine(path, workflows=[echo], signals=False) as engine:
        session = await engine.session(SESSION).resume()
        print("answering", flush=True)
        await session.outcome()
        while (await session.info()).status.value != "completed":
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(_answer(Path(sys.argv[1])))
