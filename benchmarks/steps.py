"""Measure steps. Every round has a new store and a new plain database next to it."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel

from benchmarks import workloads
from benchmarks.baseline import Cost, Interleaved, Moment, Unit, plain_database
from benchmarks.results import Figure
from pausepoint import Engine, Workflow


@dataclass(frozen=True)
class Scale:
    """The size of the benchmarks."""

    rounds: int = 9
    block: int = 50
    steps: int = 1_000
    sessions: int = 200
    steps_each: int = 20
    grown: int = 2_000
    edge: int = 100
    ballast: int = 5_000_000
    changed: int = 500
    checkpoints: int = 1_000
    processes: int = 15
    warm_ups: int = 1  # new processes that are not counted, because they compile modules on their first import
    traveled: int = 10_000
    parked: int = 10_000
    listed: int = 100_000
    throng: int = 10_000
    turns: int = 1_000
    talk: int = 10_000
    talk_warm: int = 100
    talk_edge: int = 1_000
    agents: int = 1_000
    operations: int = 3_000
    chunks: int = 500
    agents_warm: float = 1.0  # seconds that all agents work before the pause, so that their steps do not end together
    requests: int = 200
    watchers: int = 200
    most_watchers: int = 1_000
    changes: int = 50
    driven: int = 10
    gated: int = 50
    gated_pace: float = 1.0  # seconds between two calls of an agent, on average
    hooks: int = 10
    agents_step: float = 0.6  # seconds of an average step; others take half as long, or half as long again


QUICK = Scale(
    rounds=2, block=10, steps=20, sessions=5, steps_each=3, grown=40, edge=10, ballast=100_000, changed=10,
    checkpoints=20, processes=1, warm_ups=0, traveled=40, parked=20, talk=40, talk_warm=10, talk_edge=10, agents=20,
    agents_warm=0.0, agents_step=0.02, operations=20, chunks=20, listed=60,
    requests=5, watchers=5, most_watchers=10, changes=3, driven=2, gated=3, gated_pace=0.0,
    hooks=1, throng=20, turns=20,
)  # fmt: skip


@dataclass(frozen=True)
class Round:
    """The costs of the steps of one round, and of the units in between."""

    steps: Cost
    units: Cost
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.steps.each / self.units.each


def lone(folder: Path, scale: Scale) -> list[Figure]:
    """Measure one session with many small steps."""

    def one(place: Path, unit: Unit) -> Round:
        measured = _drive(place, unit, scale, workloads.counting, workloads.Count(target=scale.steps + 1))
        return Round(measured.steps, measured.units)

    def larger_one(place: Path, unit: Unit) -> Round:
        measured = _drive(place, unit, scale, workloads.rewriting, workloads.Page(target=scale.steps + 1))
        return Round(measured.steps, measured.units)

    what = f"one session, {scale.steps:,} small steps, per step"
    larger = f"one session, {scale.steps:,} steps that replace 1 KB, per step"
    return [
        _in_units("lone", what, 2.0, _rounds(folder, scale, one)),
        _in_units("lone-field", larger, None, _rounds(folder, scale, larger_one)),
    ]


def growth(folder: Path, scale: Scale) -> list[Figure]:
    """Measure a list that grows by 1 KiB per step: the cost of a step, whether it grows, and the size on disk."""

    def one(place: Path, unit: Unit) -> Round:
        measured = _drive(place, unit, scale, workloads.growing, workloads.Growth(target=scale.grown + 1))
        few = scale.edge // scale.block
        slope = sum(measured.blocks[-few:]) / sum(measured.blocks[:few])
        size = _bytes_on_disk(place / "store.db") / ((scale.grown + 1) * 1024)
        return Round(measured.steps, measured.units, {"slope": slope, "bytes": size})

    rounds = _rounds(folder, scale, one)
    what = f"1 KiB appended per step, {scale.grown:,} steps"
    return [
        _in_units("growth", f"{what}, per step", 2.0, rounds),
        _extra("growth-slope", f"{what}: last {scale.edge} steps to first {scale.edge}", 1.25, "slope", rounds),
        _extra("growth-bytes", f"{what}: bytes on disk to data", 3.0, "bytes", rounds),
    ]


def ballast(folder: Path, scale: Scale) -> list[Figure]:
    """Measure steps next to a large field that they neither read nor write. Storing it at the start is not counted."""
    state = workloads.Ballast(target=scale.changed + 1, ballast="x" * scale.ballast)

    def one(place: Path, unit: Unit) -> Round:
        measured = _drive(place, unit, scale, workloads.beside, state)
        return Round(measured.steps, measured.units)

    what = f"100 bytes changed next to {scale.ballast / 1e6:g} MB, {scale.changed} steps, per step"
    return [_in_units("ballast", what, 2.0, _rounds(folder, scale, one))]


def crowd(folder: Path, scale: Scale) -> list[Figure]:
    """Measure many sessions at the same time, from before their start to all outcomes; units before and after."""

    def one(workflow: Workflow[Any]) -> Callable[[Path, Unit], Round]:
        return lambda place, unit: _crowd(place, unit, workflow, scale.sessions, scale.steps_each)

    what = f"{scale.sessions} sessions at once × {scale.steps_each} steps, per step in total"
    larger = f"{scale.sessions} sessions at once × {scale.steps_each} steps that replace 1 KB, per step in total"
    return [
        _in_units("crowd", what, 0.6, _rounds(folder, scale, one(workloads.counting))),
        _in_units("crowd-field", larger, None, _rounds(folder, scale, one(workloads.rewriting))),
    ]


def throng(folder: Path, scale: Scale) -> list[Figure]:
    """Measure very many sessions at the same time: a step of them, and the memory of each."""

    def one(place: Path, unit: Unit) -> Round:
        before = _peak_memory()
        found = _crowd(place, unit, workloads.counting, scale.throng, 10)
        return Round(found.steps, found.units, {"memory": (_peak_memory() - before) / scale.throng})

    rounds = _rounds(folder, replace(scale, rounds=1), one)  # a second round would find the memory of the first
    what = f"{scale.throng:,} sessions at once × 10 steps"
    return [
        _in_units("throng", f"{what}, per step in total", None, rounds),
        Figure("throng-memory", f"{what}: memory, each", "KB", None, (rounds[0].extra["memory"],)),
    ]


def _crowd(place: Path, unit: Unit, workflow: Workflow[Any], sessions: int, each: int) -> Round:
    units, steps = Cost(), Cost()
    unit.run(sessions * each // 8, units)
    begin, end = asyncio.run(_run_crowd(place, workflow, sessions, each))
    unit.run(sessions * each // 8, units)
    steps.add(begin, end, sessions * each)
    return Round(steps, units)


def _peak_memory() -> float:
    """Return the largest memory of this process so far, in KB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1.0 if sys.platform != "darwin" else 1 / 1024)


def _rounds(folder: Path, scale: Scale, one: Callable[[Path, Unit], Round]) -> list[Round]:
    rounds = []
    for _ in range(scale.rounds):
        with tempfile.TemporaryDirectory(dir=folder) as name, plain_database(Path(name)) as unit:
            rounds.append(one(Path(name), unit))
    return rounds


def _drive(place: Path, unit: Unit, scale: Scale, workflow: Workflow[Any], state: BaseModel) -> Interleaved:
    """Run one session until it ends, with units between its steps."""
    measured = Interleaved(unit, scale.block)

    async def main() -> None:
        async with Engine(place / "store.db", signals=False) as engine:
            session = await engine.start(workflow, state)
            assert (await session.outcome()).status == "completed"

    workloads.between_steps = measured
    try:
        asyncio.run(main())
    finally:
        workloads.between_steps = workloads.nothing
    return measured


async def _run_crowd(place: Path, workflow: Workflow[Any], sessions: int, each: int) -> tuple[Moment, Moment]:
    async def one() -> None:
        session = await engine.start(workflow, target=each)
        assert (await session.outcome()).state.n == each

    async with Engine(place / "store.db", signals=False) as engine:
        begin = Moment.now()
        await asyncio.gather(*[one() for _ in range(sessions)])
        return begin, Moment.now()


def _bytes_on_disk(path: Path) -> int:
    """Return the size of the database and the files next to it, once the WAL is folded in and truncated."""
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.close()
    files = [file for file in path.parent.glob(f"{path.name}*") if not file.name.endswith("-ballast")]
    return sum(map(os.path.getsize, files))


def _in_units(name: str, what: str, limit: float | None, rounds: list[Round]) -> Figure:
    quietest = min(rounds, key=lambda found: found.units.each)
    notes = {
        "units in the quietest round": quietest.ratio,
        "step µs": median(found.steps.each for found in rounds) * 1e6,
        "of it processor": median(found.steps.cpu_each for found in rounds) * 1e6,
        "unit µs": median(found.units.each for found in rounds) * 1e6,
        "of it processor ": median(found.units.cpu_each for found in rounds) * 1e6,
    }
    return Figure(name, what, "units", limit, tuple(found.ratio for found in rounds), notes)


def _extra(name: str, what: str, limit: float, key: str, rounds: list[Round]) -> Figure:
    return Figure(name, what, "×", limit, tuple(found.extra[key] for found in rounds))
