"""A page of a list reads about as many sessions as it has, whatever the store has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest

from pausepoint.model.drawers import Range
from pausepoint.model.sessions import Filter, Position, Sort, Status
from pausepoint.stores.sql import pickup, sessions
from pausepoint.stores.sql.engines import Present
from pausepoint.stores.sql.queues import Wanted
from pausepoint.stores.sqlite import schema, sql
from pausepoint.stores.sqlite.connection import Connection
from tests.stores.kit import unbound

NOW = Present(lambda holder: True, lambda: 0)
RESTED: dict[Sort, str] = {"updated": "sessions_rested", "spent": "sessions_spent"}
HELD = "SEARCH sessions USING INDEX sessions_held (holder>?)"
TAGGED = "SEARCH tagged USING PRIMARY KEY (tag=?"


def page_plan(query: Filter) -> list[str]:
    """Return the plan of the statement that reads a page."""
    connection = Connection(":memory:")
    schema.create(connection)
    asked: list[tuple[str, Any]] = []

    def traced(_: object, statement: str, bindings: Any) -> bool:
        asked.append((statement, bindings))
        return True

    connection.exec_trace = traced
    sessions.find(connection, query, NOW)
    connection.exec_trace = None
    ((statement, bindings),) = [(each, given) for each, given in asked if "key IN" in each]
    return [str(line[3]) for line in connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)]


def scans(plan: list[str]) -> list[str]:
    """Return the lines that read all sessions, in an order that is not the page's."""
    return [line for line in plan if line.startswith("SCAN sessions") and "USING INDEX" not in line]


@pytest.mark.parametrize("sort", RESTED)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("after", [None, (1, 1)])
@pytest.mark.parametrize(
    "chosen", [{}, {"level": "root"}, {"since": 1}, {"statuses": (Status.COMPLETED,)}, {"failed": False}],
    ids=lambda chosen: next(iter(chosen), "all"),
)  # fmt: skip
def test_what_driven_sessions_change_has_an_index_of_the_others(
    chosen: dict[str, Any], after: Position | None, reverse: bool, sort: Sort
) -> None:
    plan = page_plan(Filter(sort=sort, limit=50, after=after, reverse=reverse, **chosen))
    (line,) = [each for each in plan if f"sessions USING INDEX {RESTED[sort]}" in each]
    assert HELD in plan, "those that are driven are not in the index, and few"
    assert not scans(plan), plan
    since = after is not None or ("since" in chosen and sort == "updated")
    assert line.startswith("SEARCH" if since else "SCAN"), plan


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("after", [None, ("brief", 1, 1)])
def test_a_list_by_workflow_is_read_in_the_order_of_its_index(after: Position | None, reverse: bool) -> None:
    plan = page_plan(Filter(sort="workflow", limit=50, after=after, reverse=reverse))
    assert any("sessions USING INDEX sessions_workflow" in line for line in plan), plan
    assert plan.count("USE TEMP B-TREE FOR ORDER BY") <= 1, "only the page itself is sorted"


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("after", [None, (1, 1)])
@pytest.mark.parametrize("chosen", [{}, {"statuses": (Status.FAILED,)}, {"owner": "ann"}], ids=["", "status", "owner"])
def test_the_sessions_with_a_tag_are_read_in_the_order_of_their_index(
    chosen: dict[str, Any], after: Position | None, reverse: bool
) -> None:
    plan = page_plan(Filter(tag="night", limit=50, after=after, reverse=reverse, **chosen))
    assert any(TAGGED in line for line in plan), plan
    assert "SEARCH sessions USING INTEGER PRIMARY KEY (rowid=?)" in plan, plan
    assert plan.count("USE TEMP B-TREE FOR ORDER BY") <= 1, "only the page itself is sorted"
    assert not scans(plan), plan


def test_a_session_that_is_found_otherwise_is_checked_for_its_tag_by_index() -> None:
    plan = page_plan(Filter(ids=("a", "b"), tag="night", limit=50))
    assert any("USING COVERING INDEX tagged_session (session=? AND tag=?)" in line for line in plan), plan


@pytest.mark.parametrize("index", RESTED.values())
def test_a_checkpoint_leaves_the_index_of_what_it_sets_alone(index: str) -> None:
    """A driven session is not in the index, so its row is neither taken out nor put back."""
    connection = Connection(":memory:")
    schema.create(connection)
    text = sql.QUERIES["move_and_count"]
    program = list(connection.execute(f"EXPLAIN {text}", unbound(text)))
    (root,) = [row[0] for row in connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (index,))]
    opened = {line[2] for line in program if line[1] == "OpenWrite" and line[3] == root}
    touches = [line for line in program if line[1] in ("IdxInsert", "IdxDelete") and line[2] in opened]
    assert opened
    assert len(touches) == 2
    for line in touches:
        guards = [each for each in program[: line[0]] if each[1] in ("NotNull", "IsNull") and each[3] > line[0]]
        assert guards, "a jump over it, taken while the session has a holder"


@pytest.mark.parametrize(
    ("query", "indexes"), [("move", {RESTED["updated"]}), ("move_and_count", set(RESTED.values()))]
)
def test_nothing_else_that_a_checkpoint_sets_is_in_an_index(query: str, indexes: set[str]) -> None:
    connection = Connection(":memory:")
    schema.create(connection)
    text = sql.QUERIES[query]
    found: list[Any] = connection.execute("SELECT rootpage, name FROM sqlite_schema WHERE type = 'index'").fetchall()
    roots = dict(found)
    opened = {roots.get(line[3]) for line in connection.execute(f"EXPLAIN {text}", unbound(text)) if "Open" in line[1]}
    assert opened - {None} == indexes


def _steps_of_a_look(sleeping: int) -> int:
    """Return how many steps SQLite takes to find out that nothing can be taken, beside sleeping sessions."""
    connection = Connection(":memory:")
    schema.create(connection)
    connection.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO sessions (session_id,"
        " workflow, version, input_digest, created_at, updated_at, seq, head, key_frame, digest, visit, priority,"
        " wakes_at, ready_at, signals_digest, given_sum, moved_sum)"
        " SELECT 's' || i, 'brief', 1, x'', 0, 0, 1, 1, 1, x'', 1, i % 3, i + 1000, i + 1000, x'', 0, 0 FROM n",
        (sleeping,),
    )
    with counted(connection) as steps:
        assert not pickup.anything_to_take(connection, NOW, Wanted(999, ["brief"], 9))
        assert pickup.due(connection, NOW, 999, ["brief"], 9, None, None, None) == []
    return sum(steps)


@contextmanager
def counted(connection: Connection) -> Iterator[list[int]]:
    """Collect the steps that SQLite takes for each statement."""
    steps: list[int] = []
    connection.trace_v2(
        apsw.SQLITE_TRACE_PROFILE, lambda event: steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])
    )
    yield steps
    connection.trace_v2(0, None)


def test_a_look_that_finds_nothing_costs_the_same_however_many_sessions_sleep() -> None:
    few = _steps_of_a_look(9)
    assert 0 < few == _steps_of_a_look(3000)


@pytest.mark.parametrize("prefix", ["", "k"])
def test_a_page_of_a_drawer_costs_the_same_wherever_it_begins(prefix: str) -> None:
    connection = Connection(":memory:")
    schema.create(connection)
    connection.execute("INSERT INTO drawers (id, session, name, changed, version, sum) VALUES (1, 0, 'lg', 0, 0, 0)")
    connection.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1001 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) INSERT INTO drawer_values"
        " (drawer, key, version, changed, data, sum) SELECT 1, 'k' || i, 1, 0, x'', 0 FROM n"
    )
    found = []
    for after in ("k1005", "k2900"):
        keys = Range(prefix, after=after)
        with counted(connection) as steps:
            rows = connection.execute(sql.QUERIES["values_first"], (1, keys.since, keys.until, 5)).fetchall()
        assert len(rows) == 5
        found.append(steps)
    assert found[0] == found[1]
