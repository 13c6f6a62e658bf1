"""Measure a turn of a chat of 1,000 turns: a message, the answer, and the session is parked again (W9).

python -m benchmarks --only turns
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from benchmarks import workloads
from benchmarks.baseline import Cost, Moment, Unit, plain_database
from benchmarks.chat import SESSION, parked
from benchmarks.results import Figure
from benchmarks.steps import Scale
from pausepoint import Engine, Session

Turn = Callable[[str], Awaitable[None]]


def turns(folder: Path, scale: Scale) -> list[Figure]:
    """Measure a turn that nobody follows, one that a task follows, and the first turn of a new process."""
    with tempfile.TemporaryDirectory(dir=folder) as name, plain_database(Path(name)) as unit:
        path = Path(name) / "chat.db"
        alone, followed, units = asyncio.run(_talk(path, unit, scale))
        command = [sys.executable, "-m", "benchmarks.chat", str(path)]
        runs = [_run(command) for _ in range(scale.warm_ups + scale.processes)][scale.warm_ups :]
    what = f"a turn of a chat of {scale.turns:,} turns"
    return [
        _figure("turns", f"{what} that nobody follows", None, alone, units),
        _figure("turns-followed", f"{what} that a task follows", None, followed, units),
        Figure("turns-cold", f"{what}: a new process opens and answers", "ms", None, tuple(run[0] for run in runs)),
        Figure("turns-process", f"{what}: the whole process", "s", None, tuple(run[1] for run in runs)),
    ]


def _figure(name: str, what: str, limit: float | None, blocks: list[Cost], units: list[Cost]) -> Figure:
    """Return a figure in units. The unit of a block is the one that ran after it."""
    ratios = tuple(block.each / unit.each for block, unit in zip(blocks, units, strict=True))
    notes = {
        "turn µs": median(block.each for block in blocks) * 1e6,
        "of it processor": median(block.cpu_each for block in blocks) * 1e6,
        "unit µs": median(unit.each for unit in units) * 1e6,
    }
    return Figure(name, what, "units", limit, ratios, notes)


async def _talk(path: Path, unit: Unit, scale: Scale) -> tuple[list[Cost], list[Cost], list[Cost]]:
    alone: list[Cost] = []
    followed: list[Cost] = []
    units: list[Cost] = []
    async with Engine(path, signals=False) as engine:
        session = await engine.start(workloads.chatting, session_id=SESSION)
        await engine.idle(SESSION)
        for n in range(scale.turns):
            await _alone(engine, session, f"{n:08}" * 16)
        for _ in range(scale.rounds):
            alone.append(await _block(lambda text: _alone(engine, session, text), scale.block))
            followed.append(await _followed(session, scale.block))
            units.append(Cost())
            unit.run(scale.block, units[-1])
    return alone, followed, units


async def _followed(session: Session[workloads.Chat], count: int) -> Cost:
    last = [event async for event in session.events()][-1]
    events = session.events(last.cursor, follow=True)  # it ends with this function

    async def turn(text: str) -> None:
        await session.send(text)
        await parked(events)

    await turn("the follower begins")
    return await _block(turn, count)


async def _alone(engine: Engine, session: Session[workloads.Chat], text: str) -> None:
    await session.send(text)
    await engine.idle(SESSION)


async def _block(turn: Turn, count: int) -> Cost:
    cost, begin = Cost(), Moment.now()
    for n in range(count):
        await turn(f"{n:08}" * 16)
    cost.add(begin, Moment.now(), count)
    return cost


def _run(command: list[str]) -> tuple[float, float]:
    """Return the milliseconds from the import to the stored answer, and the seconds of the whole process."""
    begin = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)["answered"], time.perf_counter() - begin
