"""Choose the ready sessions whose turn it is. `pausepoint.model.queues` defines the order.

Only what decides about the order is read of many sessions; all facts are read of those that are chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from itertools import groupby, islice
from typing import Any, NamedTuple

import msgspec

from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.model.queues import WINDOW, Candidate, in_turn
from pausepoint.stores.sql import sessions, standing
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Present
from pausepoint.stores.sql.limits import Room
from pausepoint.stores.sql.rows import every


class Wanted(NamedTuple):
    """Which sessions an engine looks for. ``queues`` is None for all of them. ``skip`` is as in `Store.take`."""

    now: int
    workflows: Sequence[str]
    limit: int
    queues: Sequence[str] | None = None
    skip: Mapping[int, int] = {}

    def admits(self, queue: str, workflow: str) -> bool:
        """Return whether the engine drives sessions of this queue and workflow."""
        return workflow in self.workflows and (self.queues is None or queue in self.queues)


def ready(connection: Connection, present: Present, wanted: Wanted, room: Room) -> sessions.Rows:
    """Return sessions that can be taken, in the order of their turns, as many as there are slots."""
    number = standing.everything(connection)
    if number is None:
        return _chosen(connection, present, wanted, room, _by_kind(connection, wanted, room, due=False))
    # While everything is paused, only the few sessions that were resumed since can run.
    rows = every_named(connection, "ready_exempt", {"round": number >> 1, "now": wanted.now})
    return _chosen(connection, present, wanted, room, iter(_sorted(rows, wanted)))


def due(connection: Connection, present: Present, wanted: Wanted, room: Room, tree: str | None) -> sessions.Rows:
    """Return sessions that are due, in the order of their turns, as many as there are slots."""
    bindings: dict[str, Any] = {
        "now": wanted.now, "workflows": msgspec.json.encode(wanted.workflows).decode(), "session_id": tree,
    }  # fmt: skip
    number = standing.everything(connection)
    where = "WHERE " if number is None else f"{connection.parts['exempted']} "
    if number is not None:
        bindings["round"] = number >> 1
    among = f" AND {connection.parts['tree']}" if tree is not None else ""
    few = f" ORDER BY wakes_at LIMIT {WINDOW + 1}" if number is None and tree is None else ""
    statement = f"{connection.parts['due_candidates']} {where}{connection.parts['due']}{among}{few}"
    rows = connection.execute(statement, bindings).fetchall()
    if few and len(rows) > WINDOW:  # only the index of ready sessions knows their priorities
        return _chosen(connection, present, wanted, room, _by_kind(connection, wanted, room, due=True))
    return _chosen(connection, present, wanted, room, iter(_sorted(rows, wanted)))


def _sorted(rows: Sequence[Any], wanted: Wanted) -> list[Candidate]:
    found = map(Candidate._make, rows)
    return sorted(each for each in found if wanted.admits(each.queue, each.workflow))


def every_named(connection: Connection, query: str, bindings: Mapping[str, Any]) -> list[Any]:
    """Return all rows of a query with named bindings."""
    return connection.execute(connection.queries[query], bindings).fetchall()


def _by_kind(connection: Connection, wanted: Wanted, room: Room, due: bool) -> Iterator[Candidate]:
    """Yield ready sessions, by priority, then those that have waited longest first.

    A kind is a queue, a workflow and a priority: for each there is a range of the index.
    """
    kinds = [kind for kind in every(connection, connection.queries["ready_kinds"]) if wanted.admits(kind[0], kind[1])]
    for _, alike in groupby(sorted(kinds, key=lambda kind: kind[2]), key=lambda kind: kind[2]):
        yield from merge(*(_of_kind(connection, kind, wanted.now, room, due) for kind in alike))


def _of_kind(
    connection: Connection, kind: tuple[str, str, int], now: int, room: Room, due: bool
) -> Iterator[Candidate]:  # fmt: skip
    queue, workflow, priority = kind
    bindings = {"queue": queue, "workflow": workflow, "priority": priority, "now": now, "due": int(due),
                "limit": WINDOW, "after_at": -1, "after_key": -1}  # fmt: skip
    while not room.closed(queue, workflow):
        rows = every_named(connection, "ready", bindings)
        for at, key, lane, owner in rows:
            yield Candidate(priority, at, key, queue, workflow, lane, owner)
        if len(rows) < WINDOW:
            return
        bindings |= {"after_at": rows[-1][0], "after_key": rows[-1][1]}


def _chosen(
    connection: Connection, present: Present, wanted: Wanted, room: Room, candidates: Iterator[Candidate]
) -> sessions.Rows:
    """Return the first sessions that an engine can pick up, in the order of their turns.

    Others are passed over here, not cut off by a LIMIT: they must not keep an engine from those behind them. They are
    damaged, held, kept in memory by another engine, paused by the engine itself, in ``skip``, or have no free slot.
    """
    rows: sessions.Rows = []
    present = sessions.asked_once(present)
    for _, alike in groupby(candidates, key=lambda each: each.priority):
        while len(rows) < wanted.limit and (window := list(islice(alike, WINDOW))):
            rows += _of_window(connection, present, wanted, room, window, wanted.limit - len(rows))
    return rows


def _of_window(
    connection: Connection, present: Present, wanted: Wanted, room: Room, window: list[Candidate], limit: int
) -> sessions.Rows:
    """Return up to ``limit`` sessions of one window."""
    lanes = len({each.lane for each in window}) > 1
    turns = iter(in_turn(window, room.lanes if lanes else {}, wanted.now))
    rows: sessions.Rows = []
    while len(rows) < limit:
        some = list(islice((each for each in turns if room.full(each) is None), limit - len(rows)))
        if not some:
            break
        found = _free(connection, present, wanted, [each.key for each in some])
        for each in some:  # a session before it may have used the last slot
            row = found.get(each.key)
            if row is not None and room.full(row) is None:
                room.use(row)
                rows.append(row)
    return rows


def _free(connection: Connection, present: Present, wanted: Wanted, keys: list[int]) -> dict[int, Any]:
    """Return those of some sessions that an engine can pick up, by key."""
    statement = f"{connection.queries['facts']} WHERE {connection.parts['by_keys']}"
    free = {}
    for stored in connection.execute(statement, {"keys": msgspec.json.encode(keys).decode()}).fetchall():
        with suppress(DamagedRecord, UnknownSession):  # its removal may have begun since it was listed
            row = sessions.row_of(stored, present)
            stuck = row.live or row.kept_by is not None or row.open_pauses
            if not stuck and wanted.skip.get(row.key) != row.seq:
                free[row.key] = row
    return free
