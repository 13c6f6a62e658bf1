"""Operations that are retried, in processes that are killed: at every attempt, and in every back-off.

Each trial returns a list of failures. An empty list means that the promise held.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pausepoint import Context, Engine, Retry, Workflow, step
from pausepoint.log.replay import WaitBody
from pausepoint.runtime.visit import Visit
from tests.faults.jobs import PointStore
from tests.support.forkserver import ForkServer, say
from tests.support.points import points

QUICK = Retry(attempts=4, first=0.01, factor=1, jitter=0)
FAILURES = 3


class State(BaseModel):
    done: list[str] = []


async def inner(name: str, ctx: Context) -> str:
    """Run once, whatever its caller does."""
    await points.begin(f"op inner {name}")
    ctx.spend(usd=0.01)
    return name


async def outer(name: str, ctx: Context) -> str:
    """Fail as often as the policy allows. Each attempt pays, and runs nothing again that it remembers."""
    number = ctx._frame.attempt
    await points.begin(f"op outer {name} {number}")
    ctx.spend(usd=0.25)
    found = await ctx.do(inner, name)
    ctx.spend(usd=0.5)
    if name == "bad" or number <= FAILURES:
        raise ConnectionError(f"attempt {number}")
    return found


@step(writes="done")
async def act(ctx: Context) -> list[str]:
    """Retry one operation, then a map with an item that never succeeds."""
    alone = await ctx.do(outer, "alone", retry=QUICK, timeout=60)
    batch = await ctx.map(outer, ["a", "bad"], concurrency=1, on_error="collect", retry=QUICK)
    return [alone, *batch.done.values(), *(str(error) for error in batch.failed.values())]


retrying = Workflow("retrying", state=State, steps=[act])


def warm_up() -> None:
    """Import and run everything once, so that every fork inherits it."""

    async def once() -> None:
        async with Engine(":memory:", signals=False) as engine:
            await (await engine.start(retrying)).outcome()

    asyncio.run(once())


def drive(path: str, runs: str, point: str = "", twin: str = "") -> None:
    """Start or resume the session in this process, and kill the process at ``point``."""
    points.write_to(Path(runs))
    points.arm(point, "kill")
    if twin == "counts attempts in memory":
        Visit.open_wait = _keep_in_memory  # type: ignore[method-assign,assignment]
    asyncio.run(_drive(path))


async def _drive(path: str) -> None:
    async with Engine(PointStore(path, poll=0.005), workflows=[retrying], signals=False) as engine:
        outcome = await (await engine.start(retrying, session_id="s")).outcome()
        events = [event async for event in engine.session("s").events()]
        retried = [
            f"{event.data['id']} {event.data['attempt']}" for event in events if event.event_type == "operation.retried"
        ]
        report = await engine.session("s").verify()
        say({
            "status": outcome.status.value, "done": outcome.state.done, "usd": outcome.spent_usd,
            "operations": (await engine.session("s").info()).spent_operations, "retried": sorted(retried),
            "ok": report.ok,
        })  # fmt: skip


async def _keep_in_memory(visit: Visit, body: WaitBody, **facts: Any) -> None:
    visit.host.line.waits[body.id] = body


@dataclass(frozen=True)
class Run:
    """What one session did over all its processes."""

    said: dict[str, Any]
    hits: list[str]
    labels: Counter[str]


class Trials:
    """Kills processes, and compares what becomes of their session with a run that nothing interrupts."""

    def __init__(self, server: ForkServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.count = self.kills = 0
        self.reference = self.run()

    def run(self, *kill_at: str, twin: str = "") -> Run:
        """Drive a new session, in one process per point and a last one that completes it."""
        self.count += 1
        path, runs = str(self.folder / f"{self.count}.db"), self.folder / f"{self.count}.runs"
        for point in kill_at:
            code = self.server.start("tests.faults.retries:drive", path=path, runs=str(runs), point=point, twin=twin)
            self.kills += code.wait() == -signal.SIGKILL
        child = self.server.start("tests.faults.retries:drive", path=path, runs=str(runs), twin=twin)
        assert child.wait() == 0, child.said
        noted = [line.split(" ", 2)[1:] for line in runs.read_text().splitlines()]
        hits = [name for what, name in noted if what == "hit"]
        return Run(child.said[-1], hits, Counter(name for what, name in noted if what == "run"))

    def killed(self, *points: str, twin: str = "") -> list[str]:
        """Kill at these points. Return how the session differs from one that nothing interrupted."""
        run, wrong = self.run(*points, twin=twin), []
        if run.said != self.reference.said:
            wrong.append(f"ended with {run.said} instead of {self.reference.said}")
        for label, count in run.labels.items():
            if count > 1 + len(points):
                wrong.append(f"{label} ran {count} times")
        again = sum(run.labels.values()) - sum(self.reference.labels.values())
        # What was in flight runs again: an operation, the one inside it, and a failed item that is tried once more.
        if again > 3 * len(points):
            wrong.append(f"{again} more executions than undisturbed")
        return [f"{', '.join(points)}: {text}" for text in wrong]
