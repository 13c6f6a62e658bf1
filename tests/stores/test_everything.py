"""The pause of everything costs the same however many sessions there are, and the view shows and takes it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pausepoint.model.sessions import Filter, Status
from pausepoint.stores.sql import standing
from pausepoint.stores.sqlite.connection import Connection
from pausepoint.testing.suite.base import operator, parked, started, stored
from tests.stores.kit import opened
from tests.support.children import outside_sql
from tests.support.loop import on_loop

ALL = Filter(unended=True)
PAUSE = operator("fire drill", standing=True)


def crowd(path: Path, count: int) -> None:
    """Store many open sessions quickly, as copies of the first."""
    connection = Connection(str(path))
    names = ", ".join(
        row[1] for row in connection.execute("PRAGMA table_info(sessions)") if row[1] not in ("key", "session_id")
    )
    connection.execute(
        f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        f" INSERT INTO sessions (session_id, {names}) SELECT 'copy ' || i, {names} FROM n JOIN sessions WHERE key = 1"
    )
    connection.close()


def cost(path: Path) -> tuple[int, int]:
    """Return how many rows a pause of everything and its lift write, and with how many statements."""
    connection = Connection(str(path))
    statements: list[str] = []

    def traced(_: object, statement: str, __: object) -> bool:
        statements.append(statement)
        return True

    connection.exec_trace = traced
    before = connection.total_changes()
    standing.start(connection, PAUSE, lambda holder: True)
    standing.lift(connection, "ben", 6000)
    rows = connection.total_changes() - before
    connection.close()
    return rows, len(statements)


@on_loop
async def test_its_cost_does_not_grow_with_the_sessions(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(str(path)) as store:
        await parked(store)
    few = cost(path)
    crowd(path, 2000)
    assert cost(path) == few
    assert few[0] <= 4, "the pause, its round, the lift and the end of the round"
    async with opened(str(path)) as store:
        await store.pause(ALL, PAUSE)
        assert await store.tally(Filter()) == {("brief", Status.PAUSED): 2001}
        await store.lift("ben", 6000)
        assert await store.tally(Filter()) == {("brief", Status.READY): 2001}


@pytest.mark.covers("S1.17", "S1.20", "S1.48")
@on_loop
async def test_the_view_shows_it_and_takes_a_session_out_of_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    look = "SELECT session_id, status, pause_requested, pause_mode FROM workflow_states ORDER BY session_id"

    async def seen(change: str = "") -> list[tuple[object, ...]]:
        if change:
            await asyncio.to_thread(outside_sql, path, change)
        return [tuple(row.values()) for row in await asyncio.to_thread(outside_sql, path, look)]

    async with opened(str(path)) as store:
        driver = await started(store, "driven")
        await parked(store, "failed", ended="failed")
        await parked(store, "ready")
        await store.pause(ALL, operator("fire drill", standing=True, mode="abort"))
        assert await seen() == [
            ("driven", "pausing", 1, "abort"), ("failed", "failed", 0, "finish"), ("ready", "paused", 1, "abort"),
        ]  # fmt: skip
        await driver.commit(release=True, only_if_paused=True)
        before = await stored(store, "driven")
        found = await seen("UPDATE workflow_states SET pause_requested = 0 WHERE session_id = 'driven'")
        assert found[0] == ("driven", "ready", 0, "finish")
        after = await stored(store, "driven")
        names = [name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)]
        assert set(names) == {"pause_requested", "pause_mode", "under_everything"}
        assert await store.pauses(driver.key) == []
        assert found[2][1] == "paused", "the others stay paused"
        found = await seen("UPDATE workflow_states SET pause_requested = 1 WHERE session_id = 'driven'")
        assert found[0] == ("driven", "paused", 1, "finish")
        await store.lift("ben", 6000)
        assert [row[1] for row in await seen()] == ["paused", "failed", "ready"]


@on_loop
async def test_a_pause_that_was_deleted_by_hand_is_reported_and_the_next_one_repairs_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(str(path)) as store:
        await store.pause(ALL, PAUSE)
        assert await store.check() == []
        await asyncio.to_thread(outside_sql, path, "DELETE FROM standing_pause")
        [line] = await store.check()
        assert "does not match its rounds" in line
        await store.pause(ALL, PAUSE)
        await store.lift("ben", 6000)
        assert await store.check() == []
