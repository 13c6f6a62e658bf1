"""Programs work on one store while other code in their processes uses the store's files, or the store is taken away.

    python -m tests.faults.neighbours --seconds 600

A neighbour is a thread of the program that opens and closes every file in the folder, or queries the database with
Python's ``sqlite3``. The program also forks a process that may live longer than itself. Some programs are killed and
started again. In every fourth round the folder is moved away instead, and put back when all programs have ended.
Whatever an operation returned must be in the store, and none may run again after it had returned.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

import apsw

from pausepoint import Context, Engine, PausepointError, Status, workflow
from pausepoint.stores.sqlite import locks
from tests.faults.tally import Tally, main
from tests.support.forkserver import Child, ForkServer
from tests.support.waits import until

PROGRAMS = 3
SESSIONS = 2
OPERATIONS = 120
FORK_AFTER, LIFE = 0.1, 0.3
"""Seconds until a program forks a process, and how long that one lives."""

Neighbour = Callable[[threading.Event], None]


async def operate(number: int, log: str) -> int:
    _note(log, "began", number)
    return number


@workflow
async def work(log: str, ctx: Context) -> None:
    for number in range(OPERATIONS):
        await ctx.do(operate, number, log)
        _note(log, "returned", number)


def _note(log: str, event: str, number: int) -> None:
    with open(log, "a") as file:
        file.write(f"{event} {number}\n")


def warm_up() -> None:
    """Open a store once, so that every fork inherits what is created on first use."""
    asyncio.run(_drive(":memory:", ".", [], lambda working: None))


def drive(path: str, logs: str, ids: list[str], seed: int, removes: bool, twin: bool) -> None:
    """Drive sessions until they have ended, with a neighbour.

    ``removes``: the folder is moved away meanwhile. ``twin``: without what keeps the locks.
    """
    if twin:
        apsw.VFS("twin", "unix").xSetSystemCall("fcntl", 0)
        locks.Presence.take = lambda self: None  # type: ignore[method-assign]
    with suppress(PausepointError) if removes else nullcontext():
        asyncio.run(_drive(path, logs, ids, _neighbour(Path(path), random.Random(seed))))


async def _drive(path: str, logs: str, ids: list[str], neighbour: Neighbour) -> None:
    working = threading.Event()
    working.set()
    thread = threading.Thread(target=neighbour, args=(working,), daemon=True)
    thread.start()
    asyncio.get_running_loop().call_later(FORK_AFTER, _fork)
    async with Engine(path, workflows=[work], drives="asked") as engine:

        async def one(id: str) -> None:
            session = await engine.start(work, session_id=id, log=f"{logs}/{id}")
            await session.outcome()

        try:
            await asyncio.gather(*map(one, ids))
        finally:
            working.clear()
            thread.join()


def _fork() -> None:
    if os.fork() == 0:
        time.sleep(LIFE)
        os._exit(0)


def _neighbour(path: Path, draw: random.Random) -> Neighbour:
    def read() -> None:
        for file in path.parent.iterdir():
            os.close(os.open(file, os.O_RDONLY))

    def query() -> None:
        connection = sqlite3.connect(f"file:{path}?mode=rw", uri=True)
        with suppress(sqlite3.Error):
            connection.execute("SELECT status FROM workflow_states").fetchall()
        connection.close()

    def neighbour(working: threading.Event) -> None:
        while working.is_set():
            with suppress(OSError, sqlite3.Error):
                draw.choice((read, query))()
            time.sleep(draw.uniform(0, 0.01))

    return neighbour


def round_of(server: ForkServer, folder: Path, tally: Tally, removes: bool, twin: bool = False) -> None:
    """Let programs work on one store, disturb them, and judge what is in the store."""
    path, logs, away = folder / "project" / "s.db", folder / "logs", folder / "away"
    path.parent.mkdir()
    logs.mkdir()
    owned = [[f"{program}-{number}" for number in range(SESSIONS)] for program in range(PROGRAMS)]

    def start(ids: list[str]) -> Child:
        seed = tally.draw.randrange(10**6)
        where = {"path": str(path), "logs": str(logs)}
        return server.start("tests.faults.neighbours:drive", **where, ids=ids, seed=seed, removes=removes, twin=twin)

    children = [start(ids) for ids in owned]
    if removes:  # a program that opens the store later would make another one
        until(lambda: len(list(logs.iterdir())) == PROGRAMS * SESSIONS)
    time.sleep(tally.draw.uniform(0.05, 0.6))
    if removes:
        path.parent.rename(away)
        tally.done["stores taken away"] += 1
    for program in tally.draw.sample(range(PROGRAMS), 0 if removes else 2):
        if children[program].is_alive():
            children[program].signal(signal.SIGKILL)
            tally.done["kills"] += 1
        children[program].wait()
        children[program] = start(owned[program])
    codes = [child.wait() for child in children]
    if removes:
        away.rename(path.parent)
    tally.done["programs"] += len(codes)
    if any(codes):
        tally.fail(f"programs ended with {codes}")
    asyncio.run(_judge(path, logs, [id for ids in owned for id in ids], tally, removes))


async def _judge(path: Path, logs: Path, ids: list[str], tally: Tally, removes: bool) -> None:
    try:
        async with Engine(path, workflows=[work], drives="none") as engine:
            report = await engine.verify()
            if not report.ok:
                tally.fail(f"verify: {report.problems[:2]}", "lost")
            for info in await engine.sessions():
                if not removes and info.status is not Status.COMPLETED:
                    tally.fail(f"{info.session_id} is {info.status}", "lost")
            for id in ids:
                await _compare(engine, id, logs / id, tally)
    except PausepointError as error:
        tally.fail(f"{type(error).__name__}: {str(error)[:200]}", "lost")


async def _compare(engine: Engine, id: str, log: Path, tally: Tally) -> None:
    if not log.exists():
        tally.fail(f"{id} was not started", "lost")
        return
    lines = [line.split() for line in log.read_text().splitlines()]
    returned = set[str]()
    for event, number in lines:
        if event == "began" and number in returned:
            tally.fail(f"operation {number} of {id} ran again", "doubled")
        elif event == "returned":
            returned.add(number)
    kept = sum([event.event_type == "operation.completed" async for event in engine.session(id).events()])
    tally.done["operations that returned"] += len(returned)
    if kept < len(returned):
        tally.fail(f"{len(returned)} operations of {id} returned, {kept} are in the store", "lost")


def run(tally: Tally, twin: bool = False) -> None:
    """Run rounds until the time is over."""
    with ForkServer("tests.faults.neighbours") as server:
        while tally.has_time():
            with tempfile.TemporaryDirectory() as folder:
                removes = tally.draw.random() < 0.25
                round_of(server, Path(folder), tally, removes, twin)
                tally.done["rounds"] += 1


if __name__ == "__main__":
    sys.exit(main(run, __doc__))
