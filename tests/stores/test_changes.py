"""The changes of a SQLite store: broken readers are caught, and the cost follows the page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pausepoint.model.changes import Mark, Page, Point, Within
from pausepoint.stores.sqlite import SqliteStore, changes
from pausepoint.stores.sqlite.connection import Connection
from pausepoint.stores.sqlite.sql import QUERIES
from pausepoint.testing import ManualClock
from pausepoint.testing.suite.base import Place, parked, started
from pausepoint.testing.suite.changes import ChangeTests, Reader

Break = Callable[[pytest.MonkeyPatch], None]


def make_store(folder: Path, clock: ManualClock) -> SqliteStore:
    return SqliteStore(":memory:", clock=clock)


def believes_every_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(changes, "_holds", lambda connection, mark: True)


def cuts_anywhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(changes, "_is_out_of_order", lambda connection, rows: False)


def ignores_when_signals_came(patch: pytest.MonkeyPatch) -> None:
    text = QUERIES["changed_signals"].replace("signals.log_end", "0")
    patch.setitem(QUERIES, "changed_signals", text)


def reads_a_page_again_after_a_kill(patch: pytest.MonkeyPatch) -> None:
    text = QUERIES["changed_records"].replace("log.session > ?3", "?3 >= 0")
    patch.setitem(QUERIES, "changed_records", text)


def skips_a_record_at_the_end_of_a_page(patch: pytest.MonkeyPatch) -> None:
    text = QUERIES["changed_records"].replace("log.id > ?1", "(log.id > ?1 + 1 OR ?1 = 0)")
    patch.setitem(QUERIES, "changed_records", text)


BREAKS: dict[Break, str] = {
    believes_every_mark: "removals",
    cuts_anywhere: "random",
    ignores_when_signals_came: "random",
    reads_a_page_again_after_a_kill: "random",
    skips_a_record_at_the_end_of_a_page: "random",
}


def histories(name: str, folder: Path) -> None:
    """Run one of the suite's tests with several seeds."""
    tests = {
        "random": ChangeTests.test_a_random_history_is_read_once_and_in_order,
        "removals": ChangeTests.test_removals_make_nothing_missing_and_nothing_double,
    }
    for seed in range(30):
        tests[name](ChangeTests(), Place(make_store, folder), seed)


@pytest.mark.parametrize("how", BREAKS, ids=lambda how: how.__name__)
def test_a_broken_reader_is_caught(how: Break, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how(monkeypatch)
    with pytest.raises(AssertionError):
        histories(BREAKS[how], tmp_path)


def test_a_page_does_not_read_the_rest_of_the_store(tmp_path: Path) -> None:
    """Count what SQLite steps through for one page near the end of a long log."""

    async def steps(records: int) -> int:
        clock = ManualClock(start=1_000_000)
        store = SqliteStore(":memory:", clock=clock)
        await store.open(lambda keys: None)
        driver = await started(store)
        for _ in range(records):
            await driver.commit()
        await store.send("s1", None, 1, b"{}")
        page = await store.changes(None, 10)
        assert page is not None
        await driver.commit()
        await store.send("s1", None, 1, b"{}")
        counted = 0

        def count() -> bool:
            nonlocal counted
            counted += 1
            return False

        assert store._read is not None
        store._read.set_progress_handler(count, 1)
        again = await store.changes(page.mark, 10)
        store._read.set_progress_handler(None)
        assert again is not None
        assert len(again.moved) == 1
        await store.close()
        return counted

    few, many = asyncio.run(steps(20)), asyncio.run(steps(1500))
    assert many <= few * 1.1 + 20, (few, many)


@pytest.mark.parametrize("name", ["changed_records", "changed_signals", "changed_stones", "last_signal_until"])
def test_no_query_scans_a_table(name: str) -> None:
    connection = Connection(":memory:")
    connection.execute((Path(changes.__file__).parent / "schema.sql").read_text(encoding="utf-8"))
    bindings = (1, 2, 3, 4) if "?4" in QUERIES[name] else (1, 2)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", bindings)]
    assert not any(line.startswith("SCAN") or "TEMP B-TREE" in line for line in plan), plan


@pytest.mark.parametrize(
    "text",
    [
        "x", "1", "1:,2:,3:", "0:,0:", "0:,0:,0:,1,0,0", "1:0123456789abcdef,0:,0:,2,0,0",
        "99999999999999999999:,0:,0:",
        "9999999999999999999:0123456789abcdef,0:,0:", "-1:,0:,0:", "0:0123456789abcdef,0:,0:", "0:,0:,0: ",
        "0:,0:,0:\n",
        "٣:0123456789abcdef,0:,0:", "0:,0:,0:,0,0", "0:,0:,0:" * 100_000,
    ],
)  # fmt: skip
def test_a_mark_from_outside_is_checked(text: str) -> None:
    with pytest.raises(ValueError, match="is not the mark of a change") as caught:
        Mark.parse(text)
    assert len(str(caught.value)) < 300


def test_a_mark_survives_as_text() -> None:
    point = Point(7, bytes(range(8)))
    for mark in (Mark(), Mark(point, point), Mark(point, point, point, Within(3, 7, 1))):
        assert Mark.parse(str(mark)) == mark
    assert Mark.parse("") == Mark()
    assert Reader().mark == Mark()


def test_rows_of_sessions_that_are_being_removed_are_not_read_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    read = changes.read

    def watched(connection: Connection, after: Mark | None, limit: int) -> Page | None:
        threads.append(threading.current_thread() is threading.main_thread())
        return read(connection, after, limit)

    async def follow() -> None:
        store = SqliteStore(tmp_path / "store.db", ballast=0)
        await store.open(lambda keys: None)
        for name in ("s1", "s2"):
            await parked(store, name)
        monkeypatch.setattr(changes, "read", watched)
        before = await store.changes(Mark(), 10)
        (removal,) = await store.remove("s1", "ann", "old", 6000)
        during = await store.changes(Mark(), 10)
        while await store.strip(removal.key, 10) is None:
            pass
        after = await store.changes(Mark(), 10)
        names = [[each.session_id for each in page.moved] for page in (before, during, after) if page is not None]
        assert names == [["s1", "s2"], ["s2"], ["s1"]], "the last one is a tombstone"
        await store.close()

    asyncio.run(follow())
    assert threads == [True, False, True]
