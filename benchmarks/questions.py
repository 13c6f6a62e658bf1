"""Measure sessions that wait for a person: their bytes, a read of the inbox, and an answer from a new process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from pydantic import BaseModel

from benchmarks.results import Figure
from benchmarks.steps import Scale
from pausepoint import Context, Engine, Status, Workflow, step

PAGE = 100


class Brief(BaseModel):
    """The state of a session that asks."""

    n: int
    tone: str = ""


@step(writes="tone")
async def agree(ctx: Context) -> str:
    """Wait longer than any benchmark takes."""
    return await ctx.ask("Formal or playful?", choices=["formal", "playful"], expires=None)


asking = Workflow("asking", state=Brief, steps=[agree])


def questions(folder: Path, scale: Scale) -> list[Figure]:
    """Measure ten thousand sessions with a question each."""
    path = folder / "questions.db"
    size = asyncio.run(_ask(path, scale.parked))
    page, everything = asyncio.run(_list(path, scale))
    command = [sys.executable, "-m", "benchmarks.questions", str(path)]
    for _ in range(scale.warm_ups):
        _output(command)
    runs = [json.loads(_output(command)) for _ in range(scale.processes)]
    what = f"{scale.parked:,} sessions with a question:"
    notes = {"all of them ms": median(everything)}
    return [
        Figure("questions-bytes", f"{what} bytes on disk, each", "bytes", 1400, (size,)),
        Figure("questions-inbox", f"{what} the first {PAGE} in the inbox", "ms", 30.0, tuple(page), notes),
        Figure("questions-answer", f"{what} a new process opens and answers one", "ms", 60.0, tuple(runs)),
    ]


async def _ask(path: Path, count: int) -> float:
    async with Engine(path, workflows=[asking], signals=False) as engine:
        await _wait_all(engine, 200)  # so that the fixed part of the store is there
        await engine.store.fold()
        before = path.stat().st_size
        for begin in range(0, count, 200):
            await _wait_all(engine, min(200, count - begin))
        await engine.store.fold()
        return (path.stat().st_size - before) / count


async def _wait_all(engine: Engine, count: int) -> None:
    sessions = await asyncio.gather(*[engine.start(asking, n=n) for n in range(count)])
    while engine._service.driver.runs:
        await asyncio.sleep(0.01)
    assert await sessions[-1].status() is Status.WAITING


async def _list(path: Path, scale: Scale) -> tuple[list[float], list[float]]:
    async with Engine(path, signals=False) as engine:
        page = [await _took(engine, PAGE) for _ in range(scale.rounds)]
        return page, [await _took(engine, None) for _ in range(scale.rounds)]


async def _took(engine: Engine, limit: int | None) -> float:
    begin = time.perf_counter()
    assert await engine.questions(limit=limit)
    return (time.perf_counter() - begin) * 1e3


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def _answer_here(path: Path) -> float:
    """Measure from opening the engine to the receipt, including finding the question."""
    begin = time.perf_counter()
    async with Engine(path, signals=False) as engine:
        [question] = await engine.questions(limit=1)
        await engine.answer(question.id, "playful", by="ann", seen=question.digest)
        return (time.perf_counter() - begin) * 1e3


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_answer_here(Path(sys.argv[1])))))
