"""Four processes on one store, paused again and again: nothing begins after `pause(wait=True)` has returned.

python -m tests.faults.standstill --seconds 600
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pausepoint import Engine
from tests.faults.tally import Tally, main
from tests.support.folders import scratch


@asynccontextmanager
async def fleet(
    tmp_path: Path, *flags: str, processes: int = 4, each: str = "ab"
) -> AsyncIterator[tuple[Engine, Path]]:
    """Run processes that drive sessions, beside an engine that drives nothing."""
    store, file = tmp_path / "fleet.db", tmp_path / "begun"
    file.touch()
    command = [sys.executable, "-m", "tests.support.looper", str(store), str(file)]
    children = [subprocess.Popen([*command, *[f"{n}{name}" for name in each], *flags]) for n in range(processes)]
    try:
        while not store.exists():
            await asyncio.sleep(0.01)
        async with Engine(store, drives="none", signals=False) as engine:
            while len(await engine.sessions()) < len(each) * processes:
                await asyncio.sleep(0.01)
            yield engine, file
    finally:
        for child in children:
            child.kill()
            child.wait()


async def begun_after(engine: Engine, file: Path) -> int:
    """Pause all sessions, and return how many operations began after that and before their session was resumed.

    The sessions are resumed one after the other, so most of them are observed for longer than the sleep. In the end
    every session runs again.
    """
    await engine.select(workflow="looping").pause(wait=True)
    paused_at = file.stat().st_size
    await asyncio.sleep(0.004)
    early, sessions = 0, [info.session_id for info in await engine.sessions()]
    for session_id in sessions:
        early += begun_since(paused_at, file)[session_id]
        await engine.session(session_id).resume(here=False)
    while len(begun_since(paused_at, file)) < len(sessions):
        await asyncio.sleep(0.001)
    return early


def begun_since(place: int, file: Path) -> Counter[str]:
    """Return how many operations of each session began after this place in the file."""
    with open(file) as begun:
        begun.seek(place)
        return Counter(begun.read().split())


async def pause_again_and_again(tally: Tally) -> None:
    with scratch() as folder:
        async with fleet(folder) as (engine, file):
            while tally.has_time():
                tally.done["pauses of four processes"] += 1
                if count := await begun_after(engine, file):
                    tally.fail(f"{count} operations began after round {tally.done.total()}")


def run(tally: Tally) -> None:
    asyncio.run(pause_again_and_again(tally))


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
