"""Measure the HTTP server: reads of a store with many sessions, the live stream, and what both cost the work."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import workloads
from benchmarks.fresh import import_seconds
from benchmarks.many import fill
from benchmarks.results import Figure
from benchmarks.served import Served, served
from benchmarks.steps import Scale
from benchmarks.watchers import Watchers
from pausepoint import Engine
from pausepoint.server.routes import ROUTES

Gaps = list[tuple[float, float]]

LONG = "long"
"""The session with many checkpoints."""

PAGES = 1_000
"""The number of pages before the late one."""

LISTS = {
    "created": ("newest first", ""),
    "updated": ("last updated first", "sort=updated"),
    "workflow": ("by workflow", "sort=workflow"),
    "spent": ("by cost", "sort=spent"),
    "id": ("by id", "sort=id"),
    "failed": ("those that failed", "status=failed"),
    "open": ("those that sleep or wait", "status=sleeping,waiting"),
    "ended": ("those that completed", "status=completed"),
    "of-workflow": ("those of a workflow", "workflow=napping"),
    "of-owner": ("those of an owner", "owner=person-07"),
    "of-tag": ("those with a tag", "tag=project-3"),
}
SEARCHES = {
    "text": ("a text that many have", "text=project-3"),
    "text-none": ("a text that none has", "text=nowhere"),
}
PARTS = ("", "/spans", "/checkpoints", "/events", "/state", "/plan")
"""What the page of a session reads, below its address."""


def server(folder: Path, scale: Scale) -> list[Figure]:
    """Measure everything about the server."""
    place = folder / "server"
    place.mkdir()
    fill(place / "many.db", scale.listed)
    asyncio.run(_make_long(place / "many.db", scale.checkpoints))
    with served(place / "many.db", folder) as many:
        reads = _reads(many, scale)
    for name in ("watched", "alone"):
        (place / name).mkdir()
    stores = place / "watched" / "store.db", place / "alone" / "store.db"
    with served(stores[0], folder) as watched, served(stores[1], folder) as alone:
        live = asyncio.run(_live(watched, alone, scale))
    return [*reads, *live, *_imports(folder, scale)]


async def _make_long(path: Path, checkpoints: int) -> None:
    """Add a session that was interrupted in the step after its last checkpoint."""
    workloads.reached = asyncio.Event()
    async with Engine(path, signals=False, drives="asked") as engine:
        await engine.start(workloads.standing, session_id=LONG, target=checkpoints)
        await workloads.reached.wait()


# reads


def _reads(place: Served, scale: Scale) -> list[Figure]:
    what = f"{scale.listed:,} sessions:"
    first = _first(place, what)
    for _ in range(5):
        place.bench("bare")
    place.bench("gaps_since")
    before = place.bench("cpu")
    bare = [place.timed("/bench/bare")[0] for _ in range(scale.requests)]
    used = (place.bench("cpu") - before) / scale.requests
    idle = place.bench("gaps_since")
    read = _Reading(place, used)
    late = _late_page(place)
    few = max(scale.requests // 5, 3)
    notes = {"p99 ms": _p99(bare), "processor ms": used}
    figures = [Figure("server-bare", "a bare answer of Starlette", "ms", None, tuple(bare), notes)]
    for name, (text, query) in LISTS.items():
        figures.append(read(f"list-{name}", f"{what} a list of 50, {text}", 10.0, f"/sessions?{query}", scale.requests))
    figures.append(read("list-late", f"{what} page {PAGES:,} of such lists", 10.0, late, scale.requests))
    figures.append(_worst("server-list-p99", f"{what} the slowest of 100 lists, each kind", 30.0, figures[1:]))
    for name, (text, query) in SEARCHES.items():
        figures.append(read(f"list-{name}", f"{what} a list of 50, {text}", 300.0, f"/sessions?{query}", few))
    figures.append(read("now", f"{what} GET /now", 5.0, "/now", scale.requests))
    figures.append(_page(place, scale, few))
    busy = place.bench("gaps_since")
    return [
        *figures,
        first,
        _pauses(place, what, few),
        _lag("server-lag", f"{what} the longest wait of the loop", idle, busy),
    ]


def _first(place: Served, what: str) -> Figure:
    """Measure the first answer that needs the hub, which then reads all sessions that have not completed."""
    place.bench("gaps_since")
    before = place.bench("cpu")
    elapsed, _ = place.timed("/api/v1/now", tries=10)
    notes = {"processor ms": place.bench("cpu") - before}
    notes |= _longest(place.bench("gaps_since"))
    return Figure("server-first", f"{what} the first GET /now of a server", "ms", None, (elapsed,), notes)


class _Reading:
    """Measures one read, with bare answers in between, because the machine is not always equally fast.

    ``bare`` is the processor time of one of them.
    """

    def __init__(self, place: Served, bare: float) -> None:
        self._place = place
        self._bare = bare

    def __call__(self, name: str, what: str, limit: float, path: str, count: int) -> Figure:
        self._place.timed(f"/api/v1{path}")
        values, bare = [], []
        before = self._place.bench("cpu")
        for _ in range(count):
            values.append(self._place.timed(f"/api/v1{path}")[0])
            bare.append(self._place.timed("/bench/bare")[0])
        used = (self._place.bench("cpu") - before) / count - self._bare
        notes = {"p99 ms": _p99(values), "× a bare answer": median(values) / median(bare), "processor ms": used}
        return Figure(f"server-{name}", what, "ms", limit, tuple(values), notes)


def _late_page(place: Served) -> str:
    """Return the address of a list after many pages, or of the last one."""
    path = "/sessions?limit=200"
    late = "/sessions?limit=50"
    for _ in range(PAGES * 50 // 200):
        following = place.ask(path)["next"]
        if following is None:
            break
        path, late = f"/sessions?limit=200&after={following}", f"/sessions?limit=50&after={following}"
    return late


def _worst(name: str, what: str, limit: float, figures: list[Figure]) -> Figure:
    """Return the 99th of 100 of each kind of list. The highest of them counts, and is named."""
    found = {each.name: each.notes["p99 ms"] for each in figures}
    return Figure(name, what, "ms", limit, (max(found.values()),), {max(found, key=lambda each: found[each]): 1.0})


def _page(place: Served, scale: Scale, count: int) -> Figure:
    """Measure all that the page of a session with many checkpoints reads, one after the other."""
    known = {route.path for route in ROUTES if route.method == "GET"}
    parts = [part for part in PARTS if f"/sessions/{{session_id}}{part}" in known]
    times: dict[str, list[float]] = {part: [] for part in parts}
    before = place.bench("cpu")
    for _ in range(count):
        for part in parts:
            times[part].append(place.timed(f"/api/v1/sessions/{LONG}{part}")[0])
    values = tuple(map(sum, zip(*times.values(), strict=True)))
    notes = {"p99 ms": _p99(values), "processor ms": (place.bench("cpu") - before) / count}
    notes |= {f"{part or 'its facts'} ms": median(found) for part, found in times.items()}
    return Figure("server-page", f"the page of a session with {scale.checkpoints:,} checkpoints", "ms", 60.0,
                  values, notes)  # fmt: skip


def _pauses(place: Served, what: str, count: int) -> Figure:
    paused, lifted = [], []
    for _ in range(count):
        paused.append(place.timed("/api/v1/standing-pause", "PUT", {"reason": "a wrong model is live"})[0])
        lifted.append(place.timed("/api/v1/standing-pause", "DELETE", {})[0])
    notes = {"p99 ms": _p99(paused), "lifted ms": median(lifted)}
    return Figure("server-pause", f"{what} everything paused, until acknowledged", "ms", 100.0, tuple(paused), notes)


def _lag(name: str, what: str, idle: Gaps, busy: Gaps) -> Figure:
    """Return the longest time that the loop did not come back to a task which ticks every millisecond."""
    late = [gap for gap, _ in busy]
    notes = {"p99 ms": _p99(late), "longest during bare answers ms": max(gap for gap, _ in idle)} | _longest(busy)
    return Figure(name, what, "ms", None, (max(late),), notes)


def _longest(gaps: Gaps) -> dict[str, float]:
    """Return the most processor time that the loop used between two ticks.

    On a busy machine other programs take the processor away, which this does not include.
    """
    return {"the loop's own longest processor ms": max(cpu for _, cpu in gaps)}


# the live stream


async def _live(watched: Served, alone: Served, scale: Scale) -> list[Figure]:
    watchers = Watchers(watched)
    try:
        before = watched.bench("memory")
        await watchers.grow(scale.watchers)
        return [
            await _delay(watchers, watched, scale, scale.watchers, 500.0),
            await _slowed(watched, alone, scale, scale.watchers, 1.05),
            await _slowed(watched, alone, scale, scale.watchers, None, busy=True),
            *await _crowd(watchers, watched, alone, scale, before),
        ]
    finally:
        watchers.close()


async def _crowd(
    watchers: Watchers, watched: Served, alone: Served, scale: Scale, before: int
) -> list[Figure]:  # fmt: skip
    count = scale.most_watchers
    await watchers.grow(count)
    delay = await _delay(watchers, watched, scale, count, None)
    slowed = await _slowed(watched, alone, scale, count, None)
    memory = watched.bench("memory")
    notes = {"MiB without clients": before / 2**20, "KiB each": (memory - before) / 2**10 / count}
    return [delay, slowed, Figure("server-memory", f"{count:,} clients: memory of the server", "MiB", None,
                                  (memory / 2**20,), notes)]  # fmt: skip


async def _delay(watchers: Watchers, place: Served, scale: Scale, count: int, limit: float | None) -> Figure:
    """Measure from the request that changes something until the last client knows."""
    last: list[float] = []
    for n in range(scale.changes):
        name = f"change-{count}-{n:04}"
        body = {"workflow": "counting", "input": {"target": 1}, "session_id": name}
        last.append(max(await watchers.delays(name, lambda body=body: place.ask("/sessions", "POST", body))))  # type: ignore[misc]
        await asyncio.sleep(random.uniform(0.0, 0.2))  # at another moment of the server's rounds each time
    notes = {"p50 ms": median(last)}
    what = f"{count:,} clients: a change reaches the last of them, p99"
    return Figure(f"server-delay-{_size(count, scale)}", what, "ms", limit, (_p99(last),), notes)


async def _slowed(
    watched: Served, alone: Served, scale: Scale, count: int, limit: float | None, busy: bool = False
) -> Figure:  # fmt: skip
    """Measure the steps of sessions that clients watch, and of sessions of another server without clients, in turns."""
    many = f"steps?count={scale.driven * 50}&busy" if busy else f"steps?count={scale.driven}"
    rounds: list[tuple[Any, Any]] = []
    for n in range(scale.rounds + 1):
        pair = [(await asyncio.to_thread(place.bench, many)) for place in ((watched, alone), (alone, watched))[n % 2]]
        rounds.append((pair[n % 2], pair[1 - n % 2]))
    rounds = rounds[1:]
    notes = {
        "ms per step": median(with_["wall"] for with_, _ in rounds),
        "without ms": median(without["wall"] for _, without in rounds),
        "processor ms": median(with_["cpu"] for with_, _ in rounds),
        "without, processor ms": median(without["cpu"] for _, without in rounds),
    }
    kind = "busy-steps" if busy else "steps"
    what = f"{count:,} clients: " + ("steps that do nothing" if busy else "steps of 100 ms") + ", to those without"
    values = tuple(with_["wall"] / without["wall"] for with_, without in rounds)
    return Figure(f"server-{kind}-{_size(count, scale)}", what, "×", limit, values, notes)


def _size(count: int, scale: Scale) -> str:
    return "some" if count == scale.watchers else "many"


# imports

_IMPORTS = {
    "import": ("import pausepoint.server", 200.0),
    "import-app": ("from pausepoint.server import app", 200.0),
    "import-starlette": ("import starlette.routing", None),
}


def _imports(folder: Path, scale: Scale) -> list[Figure]:
    for program, _ in list(_IMPORTS.values()) * scale.warm_ups:
        import_seconds(program, folder)
    rounds = [
        {name: import_seconds(program, folder) * 1e3 for name, (program, _) in _IMPORTS.items()}
        for _ in range(scale.processes)
    ]
    return [
        Figure(f"server-{name}", f"{program}, processor time", "ms", limit, tuple(found[name] for found in rounds))
        for name, (program, limit) in _IMPORTS.items()
    ]


def _p99(values: Any) -> float:
    ordered = sorted(values)
    found: float = ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]
    return found
