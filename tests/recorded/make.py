"""Record the sessions and stores of this folder with the version at hand: ``python -m tests.recorded.make 0.2``.

Run once per version, before it is released. Files that are there are never written again: they stand for what is
in the databases of users.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from pausepoint import Session, testing
from pausepoint.testing import ManualClock
from tests.recorded.stores import SHOWN, record_stores
from tests.recorded.workflows import diary, poll, shelf, wake

HERE = Path(__file__).parent


async def keep(session: Session[Any], folder: Path, name: str) -> None:
    """The session as a file, and beside it the state that it ends with."""
    path = folder / f"{name}.jsonl"
    if path.exists():
        raise SystemExit(f"{path} is there already and must stay as it is")
    folder.mkdir(exist_ok=True)
    await testing.record(session, path)
    path.with_suffix(".state.json").write_text((await session.state()).model_dump_json(indent=1) + "\n", "utf-8")


async def record_all(folder: Path) -> None:
    """One session in every condition that one can be kept in."""
    async with testing.engine(shelf, diary, wake) as engine:
        done = await engine.start(shelf, name="books", session_id="completed", owner="ann", tags=["a", "b"])
        await done.outcome()
        await keep(done, folder, "completed")
        held_back = await engine.start(shelf, name="full", session_id="held-back")
        await held_back.outcome()
        await held_back.pause("lunch", by="ann")
        await keep(held_back, folder, "held-back")
        long = await engine.start(diary, session_id="long")
        await long.outcome()
        await keep(long, folder, "long")
        waiting = await engine.start(wake, session_id="waiting")
        while await waiting.status() != "waiting":
            await waiting.outcome()
            await asyncio.sleep(0)
        await keep(waiting, folder, "waiting")
        await waiting.send("good morning")
        while await waiting.status() != "completed":
            await asyncio.sleep(0)
        await keep(waiting, folder, "woken")
    await record_questions(folder)


async def record_questions(folder: Path) -> None:
    """A session that waits for a second try at an answer, and the same when everything was answered."""
    async with testing.engine(poll, clock=ManualClock()) as engine:  # the clock never moves: nothing expires
        asked = await engine.start(poll, session_id="asked")
        await asked.outcome()
        for said in ("many", "3", "cross", "yes"):
            await asked.send(said, by="ann")
            await asked.outcome()
            if said == "many":
                await keep(asked, folder, "asked")
        await keep(asked, folder, "answered")


async def record_version(folder: Path) -> None:
    """Record everything of one version. Refuse to change what is there."""
    if (folder / SHOWN).exists():
        raise SystemExit(
            f"{folder} is recorded already. The files of a released version never change. Before the release, remove"
            " the folder and run this command again."
        )
    await record_all(folder)
    await record_stores(folder)


if __name__ == "__main__":
    asyncio.run(record_version(HERE / sys.argv[1]))
