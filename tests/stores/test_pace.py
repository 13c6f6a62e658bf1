"""An engine checks more often for changes while other processes write, and not because of its own commits."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pausepoint.stores.sqlite.pace import QUICK, QUICK_FOR, Pace
from pausepoint.stores.sqlite.store import SqliteStore
from tests.stores.kit import new_session, outside
from tests.support.loop import on_loop


def test_only_a_change_by_another_process_makes_it_quick() -> None:
    pace = Pace(0.05)
    pace.check(1.0, True, 2)
    assert pace.interval(1.0) == 0.05  # it has committed itself
    pace.check(1.1, True, None)
    assert pace.interval(1.1) == 0.05  # a commit of its own is in flight
    pace.check(1.2, False, 2)
    assert pace.interval(1.2) == 0.05
    pace.check(1.3, True, 2)
    assert pace.interval(1.3) == QUICK
    pace.check(1.4, True, 4)
    assert pace.interval(1.3 + QUICK_FOR * 0.9) == QUICK  # its answers do not end a conversation
    assert pace.interval(1.3 + QUICK_FOR) == 0.05


def test_a_store_with_a_shorter_interval_keeps_it() -> None:
    pace = Pace(0.001)
    pace.check(1.0, True, 0)
    assert pace.interval(1.0) == pace.interval(9.0) == 0.001


@on_loop
async def test_a_store_counts_its_own_commits_and_not_those_of_others(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    noticed = asyncio.Event()
    store = SqliteStore(path, poll=0.01)
    await store.open(noticed.set)
    try:
        before = store._writer.commits
        await store.create(new_session("one"))
        after = store._writer.commits
        assert before is not None
        assert after is not None
        assert after > before
        await asyncio.to_thread(outside, path, "UPDATE sessions SET pause_requested = 1")
        assert store._writer.commits == after
    finally:
        await store.close()
