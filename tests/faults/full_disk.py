"""A scenario on a disk that fills up. It runs as its own program, in the folder that is the disk.

`Real` is a file system that is mounted for the test. `Budget` replaces it where mounting is not allowed: a VFS that
limits the bytes in a folder.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Workflow, step
from pausepoint.errors import StoreReadOnly
from pausepoint.stores.sqlite import SqliteStore, ballast
from tests.faults.vfs import FaultVFS, Perform, Touch
from tests.support.loop import PATIENCE

CAPACITY = 6 * 2**20
BLOCK = 4096


class Real:
    """The file system that ``folder`` is on."""

    vfs: str | None = None

    def __init__(self, folder: Path) -> None:
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        with open(self._filler, "ab", buffering=0) as filler:
            for size in (2**18, BLOCK, 1):
                with suppress(OSError):
                    while True:
                        filler.write(bytes(size))

    def free(self) -> None:
        self._filler.unlink()


class Budget:
    """A limit on the bytes in ``folder``, counted in blocks like on a disk."""

    vfs: str | None = "budget"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._taken = 0
        self._vfs = FaultVFS("budget", self._act)
        self._allocate = ballast._allocate
        ballast._allocate = self._allocate_within

    def fill(self) -> None:
        self._taken += self._left()

    def free(self) -> None:
        self._taken = 0

    def _left(self) -> int:
        used = sum(-(-file.stat().st_size // BLOCK) * BLOCK for file in self._folder.iterdir())
        return max(0, CAPACITY - used - self._taken)

    def _act(self, touch: Touch, perform: Perform) -> None:
        if touch.kind == "write":
            size = Path(f"{self._folder / 'store.db'}{touch.file}").stat().st_size
            if -(-(touch.offset + len(touch.data)) // BLOCK) * BLOCK - size > self._left() + BLOCK - 1:
                raise apsw.FullError("the budget is spent")
        perform()

    def _allocate_within(self, descriptor: int, start: int, length: int) -> None:
        if length > self._left():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._allocate(descriptor, start, length)


# the workflow

CALLS: Counter[str] = Counter()
GATES: dict[str, asyncio.Event] = {}


class Paper(BaseModel):
    topic: str
    text: str = ""


async def look_up(topic: str) -> str:
    CALLS[topic] += 1
    await GATES[topic].wait()
    return topic.upper()


@step(writes="text")
async def research(topic: str, ctx: Context) -> str:
    return await ctx.do(look_up, topic)


@step(writes="text")
async def fatten(topic: str, ctx: Context) -> str:
    for number in range(250):
        await ctx.do(lambda: "x" * 8_000, key=str(number))
    return topic


paper = Workflow("paper", state=Paper, steps=[research])
heavy = Workflow("heavy", state=Paper, steps=[fatten])


class Day:
    """The scenario, step by step. ``seen`` collects what was observed."""

    def __init__(self, folder: Path, disk: Real | Budget, reserve: int) -> None:
        self.path = folder / "store.db"
        self.disk = disk
        self.reserve = reserve
        self.seen: dict[str, Any] = {}

    def engine(self) -> Engine:
        store = SqliteStore(self.path, vfs=self.disk.vfs, ballast=self.reserve)
        return Engine(store, workflows=[paper, heavy], signals=False)

    def ballast(self) -> int:
        file = Path(f"{self.path}-ballast")
        return file.stat().st_size if file.exists() else -1

    async def run(self) -> None:
        async with self.engine() as engine:
            try:
                await self.evening(engine)
            finally:
                for gate in GATES.values():
                    gate.set()
        self.disk.fill()  # closing checkpoints the WAL, which can free space
        await self.next_morning()

    async def evening(self, engine: Engine) -> None:
        """Fill the disk while sessions run, then pause everything and clean up."""
        await (await engine.start(heavy, session_id="heavy", topic="old")).outcome()
        done = await self.begin(engine, "done")
        GATES["done"].set()
        await done.outcome()
        finishing, cut = await self.begin(engine, "finishing"), await self.begin(engine, "cut")
        self.seen["ballast at first"] = self.ballast()
        self.disk.fill()
        await self.work_until_full(engine)
        await self.read(engine, "reading")
        self.seen["delete"] = await asyncio.to_thread(self.delete_alone)
        GATES["finishing"].set()
        self.seen["checkpoint"] = await error_of(finishing.outcome())
        self.seen["ballast after checkpoint"] = self.ballast()
        self.seen["pause"] = await error_of(engine.pause_all(by="ann", mode="abort"))
        if not self.seen["pause"]:
            self.seen["cut"] = (await cut.outcome()).status
        self.seen["ballast after pause"] = self.ballast()
        await self.clean_up(engine)

    async def begin(self, engine: Engine, topic: str) -> Session[Paper]:
        """Start a session and wait until its operation has begun."""
        GATES[topic] = asyncio.Event()
        session = await engine.start(paper, session_id=topic, topic=topic)
        while not CALLS[topic]:
            await asyncio.sleep(0)
        return session

    async def work_until_full(self, engine: Engine) -> None:
        """Start sessions until the store refuses them, and then a few more."""
        while not (error := await error_of(engine.start(paper, topic="more", paused=True))):
            pass
        self.seen["start"] = error
        self.seen["trouble"] = engine.trouble
        start = time.monotonic()
        for _ in range(100):
            with suppress(StoreReadOnly):
                await engine.start(paper, topic="refused", paused=True)
        self.seen["seconds for 100 refusals"] = time.monotonic() - start
        self.seen["ballast after starts"] = self.ballast()

    async def read(self, engine: Engine, when: str) -> None:
        state = await engine.session("done").state()
        events = [event.event_type async for event in engine.session("done").events()]
        listed = {info.session_id for info in await engine.sessions()} >= {"done", "finishing", "cut"}
        self.seen[when] = [state.model_dump()["text"], len(events) > 1, listed]

    async def clean_up(self, engine: Engine) -> None:
        """Remove an ended session and free its space, on a full disk."""
        size = self.path.stat().st_size
        self.seen["remove"] = await error_of(engine.session("heavy").remove(by="ann"))
        self.seen["gc"] = await error_of(engine.gc(apply=True))
        self.seen["bytes given back"] = size - self.path.stat().st_size
        self.seen["trouble after cleaning"] = await self.trouble_after_a_while(engine)
        self.seen["ballast after cleaning"] = self.ballast()

    async def trouble_after_a_while(self, engine: Engine) -> str | None:
        """Wait until the engine reports no trouble, or for some time, and return what it reports then."""
        end = time.monotonic() + PATIENCE
        while engine.trouble is not None and time.monotonic() < end and self.reserve:
            await asyncio.sleep(0.01)
        return engine.trouble

    def delete_alone(self) -> str:
        """Try a plain SQL DELETE, and return the name of the error."""
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=self.disk.vfs)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        try:
            connection.execute("DELETE FROM log WHERE session = 1")
        except apsw.Error as error:
            return type(error).__name__
        finally:
            connection.close()
        return ""

    async def next_morning(self) -> None:
        """Open another engine on the full disk, then free space."""
        async with self.engine() as engine:
            self.seen["trouble in the morning"] = engine.trouble
            await self.read(engine, "reading in the morning")
            self.seen["start in the morning"] = await error_of(engine.start(paper, topic="refused"))
            self.disk.free()
            self.seen["trouble at last"] = await self.trouble_after_a_while(engine)
            self.seen["ballast at last"] = self.ballast()
            for topic in ("finishing", "cut"):
                GATES[topic].set()
                outcome = await (await engine.session(topic).resume(by="ann")).outcome()
                self.seen[topic + " at last"] = [outcome.status, outcome.state.text, CALLS[topic]]


async def error_of(verb: Any) -> str:
    try:
        await verb
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(folder: Path, kind: str, reserve: int) -> None:
    day = Day(folder, Budget(folder) if kind == "budget" else Real(folder), reserve)
    try:
        asyncio.run(day.run())
    except Exception as error:
        day.seen["ended"] = "".join(traceback.format_exception(error))
    print(json.dumps(day.seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
