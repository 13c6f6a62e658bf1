"""A session that floods its live stream, as a program to kill, and a judge of what a follower has seen.

    python -m tests.faults.floods --seconds 60

kills many of them.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.model import Gap, Restarted, StreamChunk, StreamItem
from tests.faults.tally import Tally, main
from tests.support.forkserver import Child, ForkServer

OPERATIONS = 9
CHUNKS = 150

_endless = False


class Flood(BaseModel):
    operations: int = OPERATIONS
    out: int = 0


async def pour(number: int, ctx: Context) -> int:
    """Send chunks that name their operation and their own number."""
    for index in range(CHUNKS):
        if _endless and index == CHUNKS - 1:
            await asyncio.Event().wait()
        ctx.stream(f"{number} {index} " + "x" * (index % 90))
        if index % 3 == 0:
            await asyncio.sleep(0.001)
    return number


@step(writes="out")
async def flood(operations: int, ctx: Context) -> int:
    ctx.stream("0 0 ")
    await ctx.map(pour, range(1, operations + 1), concurrency=3)
    return operations


flooding = Workflow("flooding", state=Flood, steps=[flood])


def warm_up() -> None:
    """Open a store once, so that every fork inherits what is created on first use."""
    asyncio.run(_drive(":memory:", 0))


def drive(path: str, endless: bool) -> None:
    """Drive the session until it has completed, however often its processes died before.

    ``endless``: No operation ends, so that a kill is never too late, however slow the follower is.
    """
    global _endless
    _endless = endless
    asyncio.run(_drive(path, OPERATIONS))


async def _drive(path: str, operations: int) -> None:
    async with Engine(path) as engine:
        session = await engine.start(flooding, session_id="flood", operations=operations)
        while (await session.outcome()).status is not Status.COMPLETED:
            await session.resume()


class Judge:
    """Checks what a follower has seen: per source, the numbers of one run from 0 on, except where a gap says so."""

    def __init__(self, heeds_restarts: bool = True) -> None:
        self.heeds_restarts = heeds_restarts
        self.seen: dict[str, tuple[int, int]] = {}  # by source: the run, and the number of the last chunk
        self.last = 0
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def apply(self, item: StreamItem) -> None:
        self.counts[type(item).__name__] += 1
        self.last = item.n
        if isinstance(item, Gap):
            self.counts["lost"] += item.lost
            self.seen = {}  # whatever was lost, the next chunk of a source may have any number
        elif isinstance(item, Restarted):
            for source in item.sources if self.heeds_restarts else ():
                self.seen[source] = (0, -1)
        elif isinstance(item, StreamChunk):
            self._chunk(item)

    def _chunk(self, item: StreamChunk) -> None:
        number, index, _ = str(item.data).split(" ")
        if self.counts["lost"] and item.source not in self.seen:
            self.seen[item.source] = item.run, int(index) - 1
        run, before = self.seen.get(item.source, (0, -1))
        if int(index) != before + 1 or run not in (0, item.run):
            self.wrong.append(f"{item.source}: chunk {index} of run {item.run} after chunk {before} of run {run}")
        if item.operation and not item.operation.endswith("#1"):
            self.wrong.append(f"{item.source}: of another operation")
        self.seen[item.source] = item.run, int(index)
        self.counts[f"of {number}"] += 1

    @property
    def complete(self) -> bool:
        """Whether the text that a page shows at the end has every chunk of every operation."""
        ends = sorted(last for _, last in self.seen.values())
        return ends == [0, *([CHUNKS - 1] * OPERATIONS)]


async def followed(server: ForkServer, path: Path, kills: int, draw: random.Random, judges: list[Judge]) -> int:
    """Follow the session while its processes are killed; return how many were. The last one ends it."""
    async with Engine(path, workflows=[flooding], drives="none") as engine:
        killed = 0
        while True:
            after = draw.uniform(5, CHUNKS * 1.5) if killed < kills else None
            child = server.start("tests.faults.floods:drive", path=str(path), endless=after is not None)
            code = await _one(engine, child, after, judges)
            assert code in (0, -9), code
            if code == 0:
                return killed
            killed += 1


async def _one(engine: Engine, child: Child, after: float | None, judges: list[Judge]) -> int:
    """Read until the process has ended; kill it after so many chunks. Return its code."""
    first = judges[0].counts["StreamChunk"]
    while True:
        over = not child.is_alive()
        if await engine.tally():
            async for item in engine.session("flood").stream(judges[0].last, follow=False):
                for judge in judges:
                    judge.apply(item)
        if child.code is not None and over:
            return child.code
        if after is not None and judges[0].counts["StreamChunk"] - first > after:
            child.signal(signal.SIGKILL)
        await asyncio.sleep(0.002)


def run(tally: Tally) -> None:
    """Flood and kill until the time is over."""
    with ForkServer("tests.faults.floods") as server:
        while tally.has_time():
            with tempfile.TemporaryDirectory() as folder:
                judge = Judge()
                tally.done["kills"] += asyncio.run(followed(server, Path(folder) / "s.db", 8, tally.draw, [judge]))
                tally.done["chunks"] += judge.counts["StreamChunk"]
                for text in judge.wrong:
                    tally.fail(text, "other")


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
