"""Measure a long chat: one session, woken and parked once per turn, that reads a window of its history."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import workloads
from benchmarks.baseline import Cost, Moment, Unit, plain_database
from benchmarks.results import Figure
from benchmarks.steps import Scale
from pausepoint import Engine, Session
from pausepoint.model import Event

SESSION = "chat"


@dataclass
class Talks:
    """The costs of blocks of turns of an old and a young chat, and of the units after them."""

    old: list[Cost] = field(default_factory=list)
    young: list[Cost] = field(default_factory=list)
    units: list[Cost] = field(default_factory=list)


def chat(folder: Path, scale: Scale) -> list[Figure]:
    """Measure the cost of a turn, whether it grows, and how soon a new process answers at the end."""
    with tempfile.TemporaryDirectory(dir=folder) as name, plain_database(Path(name)) as unit:
        path = Path(name) / "old.db"
        talks = asyncio.run(_talk(path, Path(name) / "young.db", unit, scale))
        command = [sys.executable, "-m", "benchmarks.chat", str(path)]
        for _ in range(scale.warm_ups):
            _output(command)
        runs = [json.loads(_output(command)) for _ in range(scale.processes)]
    wall, cpu = _median("each", talks.old), _median("cpu_each", talks.old)
    slope, steepness = wall / _median("each", talks.young), cpu / _median("cpu_each", talks.young)
    what = f"a chat of {scale.talk:,} turns, {workloads.WINDOW} messages read in each"
    ends = f"{what}: last {scale.talk_edge:,} to the {scale.talk_edge:,} after the first {scale.talk_warm:,}"
    notes = {"turn µs": wall * 1e6, "of it processor": cpu * 1e6, "unit µs": _median("each", talks.units) * 1e6}
    answered = tuple(run["answered"] for run in runs)
    parts = {f"{name} ms": median(run[name] for run in runs) for name in ("open", "cpu")}
    return [
        Figure("chat", f"{what}: one of the last", "units", None, (wall / _median("each", talks.units),), notes),
        Figure("chat-slope", ends, "×", 1.25, (slope,)),
        Figure("chat-slope-cpu", f"{ends}, processor time", "×", 1.25, (steepness,)),
        Figure("chat-resume", f"{what}: a new process opens and answers", "ms", 60.0, answered, parts),
    ]


def _median(clock: str, blocks: list[Cost]) -> float:
    """Return the median of the blocks, not their sum, because the machine sometimes does other work."""
    return median(float(getattr(block, clock)) for block in blocks)


async def _talk(path: Path, beside: Path, unit: Unit, scale: Scale) -> Talks:
    """Alternate the last turns of a long chat with those of a young one, so the machine is the same for both."""
    talks = Talks()
    async with Engine(path, signals=False) as engine, Engine(beside, signals=False) as other:
        old, young = await _Speaker.start(engine), await _Speaker.start(other)
        await old.say(scale.talk - scale.talk_edge)
        await young.say(scale.talk_warm)
        for _ in range(scale.talk_edge // scale.block):
            talks.old.append(await old.say(scale.block))
            talks.young.append(await young.say(scale.block))
            talks.units.append(Cost())
            unit.run(scale.block, talks.units[-1])
        assert len((await old.session.state()).messages) == 2 * scale.talk
    return talks


class _Speaker:
    """A person who sends a message, waits for the answer, and sends the next one."""

    def __init__(self, session: Session[workloads.Chat]) -> None:
        self.session = session
        self.events = session.events(follow=True)

    @classmethod
    async def start(cls, engine: Engine) -> _Speaker:
        speaker = cls(await engine.start(workloads.chatting, session_id=SESSION))
        await parked(speaker.events)
        return speaker

    async def say(self, turns: int) -> Cost:
        cost, begin = Cost(), Moment.now()
        for n in range(turns):
            await self.session.send(f"{n:08}" * 16)
            await parked(self.events)
        cost.add(begin, Moment.now(), turns)
        return cost


async def parked(events: AsyncIterator[Event]) -> None:
    """Wait until the answer is stored and the session waits for the next message."""
    async for event in events:
        if event.event_type == "session.waiting":
            return
    raise AssertionError("the chat has ended")


async def _answer_here(path: Path) -> dict[str, float]:
    """Measure from opening the engine to the stored answer, in a process that has imported everything."""
    cpu, begin = time.process_time(), time.perf_counter()
    async with Engine(path, workflows=[workloads.chatting], signals=False) as engine:
        opened = time.perf_counter()
        session: Session[Any] = engine.session(SESSION)
        before = await session.info()
        await session.send("and one more")
        while (now := await session.info()).visit == before.visit or now.status != "waiting":
            await asyncio.sleep(0.0005)
        answered, used = time.perf_counter(), time.process_time() - cpu
    seconds = {"open": opened - begin, "answered": answered - begin, "cpu": used}
    return {name: value * 1e3 for name, value in seconds.items()}


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_answer_here(Path(sys.argv[1])))))
