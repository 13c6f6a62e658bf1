"""A store with many sessions: some thousand real ones, and copies of their rows without logs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
from pydantic import BaseModel

from benchmarks.parked import napping
from benchmarks.questions import asking
from benchmarks.workloads import counting
from pausepoint import Engine, Workflow, step
from pausepoint.stores import checksums
from pausepoint.stores.sqlite.sql import QUERIES

REAL = 2_000
"""At most so many sessions are real. The others are copies of their rows, without logs."""

BETWEEN = 3_600_000_000
"""Microseconds by which each round of copies is older than the one after it."""


class Trial(BaseModel):
    """The state of a session that fails."""

    n: int


@step
async def stumble(n: int) -> None:
    """Fail as a call of a service does."""
    raise ConnectionError(f"The service refused request {n}: too many requests")


failing = Workflow("failing", state=Trial, steps=[stumble])

WORKFLOWS: list[Workflow[Any]] = [counting, napping, asking, failing]


def fill(path: Path, count: int) -> None:
    """Fill a new store with sessions: of ten, two sleep, and the others have completed or, seldom, wait or failed.

    Each has one of twenty owners and one of ten tags.
    """
    asyncio.run(_real_sessions(path, min(count, REAL)))
    _copy(path, count)


async def _real_sessions(path: Path, count: int) -> None:
    async with Engine(path, workflows=WORKFLOWS, signals=False) as engine:
        for begin in range(0, count, 200):
            await asyncio.gather(*[_start(engine, n) for n in range(begin, min(begin + 200, count))])
            while engine._service.driver.runs:
                await asyncio.sleep(0.01)


async def _start(engine: Engine, n: int) -> None:
    options: dict[str, Any] = {"owner": f"person-{n % 20:02}", "tags": (f"project-{n % 10}",)}
    if n % 5 == 0:
        await engine.start(napping, n=n, **options)
    elif n % 50 == 1:
        await engine.start(asking, n=n, **options)
    elif n % 50 == 2:
        await engine.start(failing, n=n, **options)
    else:
        await engine.start(counting, target=1, **options)


def _copy(path: Path, count: int) -> None:
    """Fill the store up with copies of its sessions, under other ids and with their own times and checksums."""
    connection = apsw.Connection(str(path))
    real = connection.execute("SELECT max(key) FROM sessions").get
    columns = [row[1] for row in connection.execute("PRAGMA table_info(sessions)")]
    changed = ("key", "session_id", "created_at", "updated_at")
    names = ", ".join(name for name in columns if name not in changed)
    with connection:
        for n in range(1, -(-count // real)):
            first = connection.execute("SELECT max(key) FROM sessions").get
            some = f"key <= {min(real, count - n * real)} ORDER BY key"
            connection.execute(
                f"INSERT INTO sessions (session_id, created_at, updated_at, {names}) SELECT session_id || '-{n}',"
                f" created_at - {n * BETWEEN}, updated_at - {n * BETWEEN}, {names} FROM sessions WHERE {some}"
            )
            connection.execute(
                f"INSERT INTO tagged (tag, at, session) SELECT tag, at - {n * BETWEEN}, session + {first} FROM tagged"
                f" WHERE session <= {min(real, count - n * real)}"
            )
        for (key,) in connection.execute(f"SELECT key FROM sessions WHERE key > {real}").fetchall():
            given = connection.execute(QUERIES["given"], (key,)).fetchone()
            assert given is not None
            connection.execute(QUERIES["seal_given"], (checksums.given(*given), key))
    connection.close()
