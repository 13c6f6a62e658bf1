"""The figures about steps: each round is measured between two batches of the unit."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from benchmarks import workloads
from benchmarks.baseline import Cost, Stopwatch, Unit
from benchmarks.results import Figure
from holdfast import Engine


@dataclass(frozen=True)
class Scale:
    """How much is done. ``quick`` only shows that everything runs."""

    rounds: int = 9
    commits: int = 1_000
    steps: int = 1_000
    sessions: int = 200
    steps_each: int = 20
    grown: int = 2_000
    edge: int = 100
    ballast: int = 5_000_000
    changed: int = 500
    checkpoints: int = 1_000
    processes: int = 15


QUICK = Scale(
    rounds=2, commits=50, steps=50, sessions=10, steps_each=5, grown=60, edge=20, ballast=100_000, changed=20,
    checkpoints=40, processes=2,
)  # fmt: skip


@dataclass(frozen=True)
class Round:
    """The cost of one step, and of the unit just before and after."""

    step: Cost
    unit: Cost
    extra: dict[str, float]

    @property
    def ratio(self) -> float:
        return self.step.wall / self.unit.wall


Workload = Callable[[Path, Scale], tuple[Cost, dict[str, float]]]


def measure(folder: Path, scale: Scale, workload: Workload) -> list[Round]:
    """Several rounds, each with a new store."""
    unit = Unit(folder, scale.commits)
    rounds = []
    try:
        before = unit.measure()
        for _ in range(scale.rounds):
            with tempfile.TemporaryDirectory(dir=folder) as place:
                cost, extra = workload(Path(place), scale)
            after = unit.measure()
            rounds.append(Round(cost, _mean(before, after), extra))
            before = after
    finally:
        unit.close()
        for path in folder.glob("unit.db*"):
            path.unlink()
    return rounds


def _mean(one: Cost, two: Cost) -> Cost:
    return Cost(mean((one.wall, two.wall)), mean((one.cpu, two.cpu)))


def _figure(name: str, what: str, limit: float, rounds: list[Round]) -> Figure:
    notes = {
        "µs per step": median(found.step.wall for found in rounds) * 1e6,
        "of which processor": median(found.step.cpu for found in rounds) * 1e6,
        "unit µs": median(found.unit.wall for found in rounds) * 1e6,
        "of which processor ": median(found.unit.cpu for found in rounds) * 1e6,
    }
    return Figure(name, what, "units", limit, tuple(found.ratio for found in rounds), notes)


def _extra(name: str, what: str, unit: str, limit: float, key: str, rounds: list[Round]) -> Figure:
    return Figure(name, what, unit, limit, tuple(found.extra[key] for found in rounds))


# one session


def lone(folder: Path, scale: Scale) -> list[Figure]:
    """One session, many small steps."""
    rounds = measure(folder, scale, _lone)
    return [_figure("lone", f"one session, {scale.steps:,} small steps, per step", 2.0, rounds)]


def _lone(place: Path, scale: Scale) -> tuple[Cost, dict[str, float]]:
    async def main() -> Cost:
        async with Engine(place / "store.db", signals=False) as engine:
            with Stopwatch() as watch:
                session = await engine.start(workloads.counting, target=scale.steps)
                outcome = await session.outcome()
        assert outcome.state.n == scale.steps
        return watch.per(scale.steps)

    return asyncio.run(main()), {}


# many sessions


def crowd(folder: Path, scale: Scale) -> list[Figure]:
    """Many sessions at once, from their start to their end."""
    rounds = measure(folder, scale, _crowd)
    what = f"{scale.sessions} sessions at once × {scale.steps_each} steps, per step in total"
    return [_figure("crowd", what, 0.6, rounds)]


def _crowd(place: Path, scale: Scale) -> tuple[Cost, dict[str, float]]:
    async def one(engine: Engine) -> None:
        session = await engine.start(workloads.counting, target=scale.steps_each)
        outcome = await session.outcome()
        assert outcome.state.n == scale.steps_each

    async def main() -> Cost:
        async with Engine(place / "store.db", signals=False) as engine:
            with Stopwatch() as watch:
                await asyncio.gather(*[one(engine) for _ in range(scale.sessions)])
        return watch.per(scale.sessions * scale.steps_each)

    return asyncio.run(main()), {}


# a list that grows


def growth(folder: Path, scale: Scale) -> list[Figure]:
    """A list that grows by 1 KiB per step: the price of a step, whether it stays, and what lies on the disk."""
    rounds = measure(folder, scale, _growth)
    what = f"a list that grows by 1 KiB per step, {scale.grown:,} steps"
    edge = f"{scale.edge} steps"
    return [
        _figure("growth", f"{what}, per step", 2.0, rounds),
        _extra("growth-slope", f"{what}: last {edge} to first {edge}", "×", 1.25, "slope", rounds),
        _extra("growth-bytes", f"{what}: bytes on disk to data", "×", 3.0, "bytes", rounds),
    ]


def _growth(place: Path, scale: Scale) -> tuple[Cost, dict[str, float]]:
    path = place / "store.db"

    async def main() -> Cost:
        async with Engine(path, signals=False) as engine:
            with Stopwatch() as watch:
                session = await engine.start(workloads.growing, target=scale.grown)
                outcome = await session.outcome()
        assert len(outcome.state.items) == scale.grown
        return watch.per(scale.grown)

    workloads.marks.clear()
    cost = asyncio.run(main())
    marks, edge = workloads.marks, scale.edge
    slope = (marks[-1] - marks[-1 - edge]) / (marks[edge] - marks[0])
    return cost, {"slope": slope, "bytes": _bytes_on_disk(path) / (scale.grown * 1024)}


def _bytes_on_disk(path: Path) -> int:
    """Of the database and what lies beside it, once the WAL has been folded in and truncated."""
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.close()
    return sum(os.path.getsize(file) for file in path.parent.glob(f"{path.name}*"))


# a large field beside


def ballast(folder: Path, scale: Scale) -> list[Figure]:
    """A large field that a step neither reads nor writes. Storing it once, at the start, is not counted."""
    rounds = measure(folder, scale, _ballast)
    what = f"100 bytes changed beside {scale.ballast / 1e6:g} MB, {scale.changed} steps, per step"
    return [_figure("ballast", what, 2.0, rounds)]


def _ballast(place: Path, scale: Scale) -> tuple[Cost, dict[str, float]]:
    async def main() -> Cost:
        async with Engine(place / "store.db", signals=False) as engine:
            state = workloads.Ballast(target=scale.changed, ballast="x" * scale.ballast)
            session = await engine.start(workloads.beside, state, paused=True)
            await session.resume()
            with Stopwatch() as watch:
                while (await session.info()).status == "running":
                    await asyncio.sleep(0.02)
            assert len(workloads.marks) == scale.changed
        steps = scale.changed - 1
        return Cost((workloads.marks[-1] - workloads.marks[0]) / steps, watch.cpu / steps)

    workloads.marks.clear()
    return asyncio.run(main()), {}
