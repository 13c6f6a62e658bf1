"""Measure time travel: each verb in the middle of a long session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import workloads
from benchmarks.results import Figure
from benchmarks.steps import Scale
from pausepoint import Engine, Session

LIMIT_MS = 20.0
NAMES = {
    "checkpoints": "100 checkpoints around it",
    "state": "the state there, all of it",
    "state-by-name": "the state there, found by the visit's name",
    "diff": "what differs from there to three quarters",
    "fork": "a fork from there",
    "edit": "an edit of the fork",
    "rewind": "a rewind to there",
}


def travel(folder: Path, scale: Scale) -> list[Figure]:
    """Measure each verb at the middle checkpoint of a session with a growing list and a large field."""
    rounds = asyncio.run(_travel(folder / "travel.db", scale))
    where = f"checkpoint {scale.traveled // 2:,} of {scale.traveled:,}"
    figures = []
    for name, what in NAMES.items():
        took, cpu = zip(*(found[name] for found in rounds), strict=True)
        notes = {"of it processor ms": median(cpu)}
        figures.append(Figure(f"travel-{name}", f"{where}: {what}", "ms", LIMIT_MS, took, notes))
    return figures


async def _travel(path: Path, scale: Scale) -> list[dict[str, tuple[float, float]]]:
    state = workloads.Voyage(target=scale.traveled, ballast="x" * scale.ballast)
    async with Engine(path, signals=False) as engine:
        session = await engine.start(workloads.voyage, state)
        assert (await session.outcome()).status == "completed"
        places = [await _seq(session, scale.traveled * quarters // 4) for quarters in (2, 3, 4)]
        rounds = [await _round(session, places, scale) for _ in range(scale.rounds + 1)]
        return rounds[1:]  # the first round is not counted: it compiles SQL statements


async def _seq(session: Session[Any], visit: int) -> int:
    """Return the number of a visit's checkpoint. One record per visit and a few key frames come before it."""
    listed = await session.checkpoints(before=visit + visit // 8 + 2, limit=visit // 4 + 2)
    return next(each.seq for each in listed if each.visit == visit)


async def _round(session: Session[Any], places: list[int], scale: Scale) -> dict[str, tuple[float, float]]:
    middle, later, last = places
    took: dict[str, tuple[float, float]] = {}

    async def timed(name: str, verb: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        begin, cpu = time.perf_counter(), time.process_time()
        found = await verb(*args, **options)
        took[name] = (time.perf_counter() - begin) * 1e3, (time.process_time() - cpu) * 1e3
        return found

    await session.rewind(last)  # back to the first line, which the previous round has left
    listed = await timed("checkpoints", session.checkpoints, before=middle + 50)
    assert middle in [each.seq for each in listed]
    there = await timed("state", session.state, middle)
    assert (there.n, len(there.items)) == (scale.traveled // 2, scale.traveled // 2)
    assert await timed("state-by-name", session.state, f"sail#{scale.traveled // 2}") == there
    difference = await timed("diff", session.diff, middle, later)
    assert len(difference["items"].added) == scale.traveled * 3 // 4 - scale.traveled // 2
    copy = await timed("fork", session.fork, middle, paused=True)
    await timed("edit", copy.edit, note="edited", by="bench")
    await timed("rewind", session.rewind, middle)
    assert (await session.state()).n == scale.traveled // 2 - 1
    return took
