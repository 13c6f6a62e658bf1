"""The figures about a long chat: one session, woken and parked once per turn, that reads a window of its history."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import workloads
from benchmarks.baseline import Cost, Moment, Unit, plain_database
from benchmarks.results import Figure
from benchmarks.steps import Scale
from holdfast import Engine, Event, Session

SESSION = "chat"


def chat(folder: Path, scale: Scale) -> list[Figure]:
    """What a turn costs, whether that stays, and how soon a new process answers at the end."""
    with tempfile.TemporaryDirectory(dir=folder) as name, plain_database(Path(name)) as unit:
        path = Path(name) / "store.db"
        blocks = asyncio.run(_talk(path, unit, scale))
        command = [sys.executable, "-m", "benchmarks.chat", str(path)]
        _output(command)  # not counted: it compiles what was never imported
        runs = [json.loads(_output(command)) for _ in range(scale.processes)]
    few = scale.talk_edge // scale.block
    early, late = blocks[scale.talk_warm // scale.block :][:few], blocks[-few:]
    what = f"a chat of {scale.talk:,} turns, {workloads.WINDOW} messages read in each"
    ends = f"{what}: last {scale.talk_edge:,} turns to {scale.talk_edge:,} after the first {scale.talk_warm:,}"
    notes = {
        "turn µs": _median(blocks, _wall) * 1e6, "of it processor": _median(blocks, _cpu) * 1e6,
        "unit µs": median(units.each for _, units in blocks) * 1e6,
    }  # fmt: skip
    answered = tuple(run["answered"] for run in runs)
    parts = {f"{name} ms": median(run[name] for run in runs) for name in ("open", "cpu")}
    return [
        Figure("chat", f"{what}: per turn", "units", None, (_median(blocks, _in_units),), notes),
        Figure("chat-slope", ends, "×", 1.25, (_median(late, _in_units) / _median(early, _in_units),)),
        Figure("chat-slope-cpu", f"{ends}, processor", "×", 1.25, (_median(late, _cpu) / _median(early, _cpu),)),
        Figure("chat-resume", f"{what}: a new process opens and answers", "ms", 60.0, answered, parts),
    ]


Block = tuple[Cost, Cost]
"""Some turns, and the units behind them."""


def _median(blocks: list[Block], of: Callable[[Block], float]) -> float:
    """The machine does other things as well, now and then: so no sum."""
    return median(map(of, blocks))


def _wall(block: Block) -> float:
    return block[0].each


def _cpu(block: Block) -> float:
    return block[0].cpu_each


def _in_units(block: Block) -> float:
    return block[0].each / block[1].each


async def _talk(path: Path, unit: Unit, scale: Scale) -> list[Block]:
    blocks = list[Block]()
    async with Engine(path, signals=False) as engine:
        session = await engine.start(workloads.chatting, session_id=SESSION)
        events = session.events(follow=True)
        await _parked(events)
        for first in range(0, scale.talk, scale.block):
            turns, units = Cost(), Cost()
            begin = Moment.now()
            for n in range(first, first + scale.block):
                await session.send(f"{n:08}" * 16)
                await _parked(events)
            turns.add(begin, Moment.now(), scale.block)
            unit.run(scale.block, units)
            blocks.append((turns, units))
        assert len((await session.state()).messages) == 2 * scale.talk
    return blocks


async def _parked(events: AsyncIterator[Event]) -> None:
    """Until the answer is stored and the session waits for the next message."""
    async for event in events:
        if event.event_type == "session.waiting":
            return
    raise AssertionError("the chat has ended")


async def _answer_here(path: Path) -> dict[str, float]:
    """From the call that opens the engine to the answer in hand, in a process that has imported everything."""
    cpu, begin = time.process_time(), time.perf_counter()
    async with Engine(path, workflows=[workloads.chatting], signals=False) as engine:
        opened = time.perf_counter()
        session: Session[Any] = await engine.session(SESSION)
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
