"""An engine checks more often for changes after one, unless it is busy with its own commits."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pausepoint.stores.sqlite.pace import FEW, QUICK, QUICK_FOR, Pace
from pausepoint.stores.sqlite.store import SqliteStore
from tests.stores.kit import new_session, outside
from tests.support.loop import on_loop


def test_a_change_makes_it_quick_for_a_second_unless_the_engine_is_busy() -> None:
    pace = Pace(0.05)
    pace.check(1.0, False, 2)
    assert pace.interval(1.0) == 0.05
    pace.check(1.1, True, 2 + FEW + 1)
    assert pace.interval(1.1) == 0.05  # its own commits
    pace.check(1.2, True, 2 + FEW + 3)
    assert pace.interval(1.2) == QUICK  # a message was sent, and perhaps answered
    assert pace.interval(1.2 + QUICK_FOR * 0.9) == QUICK
    assert pace.interval(1.2 + QUICK_FOR) == 0.05


def test_a_store_with_a_shorter_interval_keeps_it() -> None:
    pace = Pace(0.001)
    pace.check(1.0, True, 0)
    assert pace.interval(1.0) == pace.interval(9.0) == 0.001


@on_loop
async def test_a_store_counts_its_own_commits_and_not_those_of_others(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    noticed = asyncio.Event()
    store = SqliteStore(path, poll=0.01)
    await store.open(lambda keys: noticed.set())
    try:
        before = store._writer.commits
        await store.create(new_session("one"))
        after = store._writer.commits
        assert after > before
        noticed.clear()
        await asyncio.to_thread(outside, path, "UPDATE sessions SET pause_requested = 1")
        await noticed.wait()
        assert store._writer.commits == after
    finally:
        await store.close()
