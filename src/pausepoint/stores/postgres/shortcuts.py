"""Verbs whose usual case is one statement, so that the whole transaction is one round trip.

The statement checks itself whether the usual case holds. If it does not, the statement writes nothing, and the verb of
all databases runs instead, which decides step by step. A statement that writes leaves the engine's mark, followed by
the keys of the sessions: if its answer is lost with the connection, the sessions are read by these keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from msgspec.structs import astuple

from pausepoint.errors import DamagedRecord, UnknownSession
from pausepoint.model.commits import NewSession
from pausepoint.model.queues import WINDOW
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.postgres.arrays import Bytes, Numbers, Texts
from pausepoint.stores.postgres.connection import Connection, Statement
from pausepoint.stores.postgres.engines import LONGEST, OwnEngine
from pausepoint.stores.sql import creation, sessions
from pausepoint.stores.sql.engines import Present
from pausepoint.stores.sql.queues import Wanted

ResultT = TypeVar("ResultT", covariant=True)

_RECORD: tuple[Any, ...] = (*[Numbers] * 2, Texts, Texts, Numbers, Numbers, *[Bytes] * 4)


_KNOWN_PLAN: Statement = ("known_plan", None)


class Unusual:
    """The usual case does not hold. Nothing was written."""


UNUSUAL: Final = Unusual()


class Signature(NamedTuple):
    """What a transaction leaves of its engine: the mark and the channel on which it tells the others.

    If the connection is lost before the server has begun the statement, the verb runs again under a higher ``attempt``,
    and the statement that comes late writes nothing.
    """

    mark: str
    channel: str
    attempt: int


class Shortcut(Protocol[ResultT]):
    """The usual case of a verb."""

    def statements(self, engine: OwnEngine, signature: Signature) -> list[Statement]:
        """Return the statements of the transaction, by name, with their bindings."""

    def result(self, connection: Connection, engine: OwnEngine, found: list[list[Any]]) -> ResultT | Unusual:
        """Return the result of the verb, from the rows of each statement. The transaction is committed."""

    def repeated(self, connection: Connection, engine: OwnEngine, keys: Sequence[int]) -> ResultT:
        """Return the result again, after it was lost with the connection."""


class Creation:
    """`create` for a session without a parent that is not paused and brings nothing but records and tags."""

    def __init__(self, new: NewSession) -> None:
        self._new = new

    @staticmethod
    def fits(new: NewSession) -> bool:
        plain = new.parent is None and new.pause is None and new.drawers_of is None
        return plain and not (new.blobs or new.names or new.files)

    def statements(self, engine: OwnEngine, signature: Signature) -> list[Statement]:
        columns = zip(*map(astuple, self._new.records), strict=True)
        records = [kind(column) for kind, column in zip(_RECORD, columns, strict=True)]
        marks = signature.mark, *engine.drives, engine.number, signature.channel, signature.attempt
        return [_KNOWN_PLAN, ("create_at_once", (*creation.bindings(engine, self._new), *records, *marks))]

    def result(
        self, connection: Connection, engine: OwnEngine, found: list[list[Any]]
    ) -> SessionRow | Unusual | None:  # fmt: skip
        (*facts, _, usual), *_ = found[-1]
        if not usual:
            return UNUSUAL
        return None if facts[0] is None else sessions.row_of(facts, _alone(engine))

    def repeated(self, connection: Connection, engine: OwnEngine, keys: Sequence[int]) -> SessionRow | None:
        return sessions.get_by_key(connection, keys[0], _alone(engine))


class Pickup:
    """`take` without limits, without a pause of everything and without dead engines."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    @staticmethod
    def fits(engine: OwnEngine, wanted: Wanted) -> bool:
        return wanted.limit <= WINDOW and not engine.careful and not engine.suspicious

    def statements(self, engine: OwnEngine, signature: Signature) -> list[Statement]:
        now, workflows, limit, queues, skip = self._wanted
        bindings = {
            "now": now, "workflows": Texts(workflows), "limit": limit, "window": WINDOW, "me": engine.number,
            "queues": None if queues is None else Texts(queues), "skipped": Numbers(skip), "at": Numbers(skip.values()),
            "spared": engine.spared, "longest": LONGEST, "mark": signature.mark, "channel": signature.channel,
            "attempt": signature.attempt,
            "drives": engine.drives.workflows, "served": engine.drives.queues,
        }  # fmt: skip
        return [_KNOWN_PLAN, ("leased_holders", (engine.spared,)), ("take_at_once", bindings)]

    def result(
        self, connection: Connection, engine: OwnEngine, found: list[list[Any]]
    ) -> list[SessionRow] | Unusual:  # fmt: skip
        *_, holders, rows = found
        dead = engine.have_died(holders)
        if rows[0][0] is None:
            return UNUSUAL if dead or rows[0][-1] else []
        taken, damaged = [], []
        for *facts, waiting, wakes_at, ready_at, _, _ in rows:
            try:
                taken.append(sessions.row_of(facts, _alone(engine)))
            except DamagedRecord:
                damaged.append((waiting, wakes_at, ready_at, facts[0], engine.number))
        if damaged:
            connection.transact(*[(connection.queries["untake"], values) for values in damaged])
        engine.careful, engine.suspicious = engine.careful or bool(damaged), bool(dead)
        return taken or UNUSUAL

    def repeated(self, connection: Connection, engine: OwnEngine, keys: Sequence[int]) -> list[SessionRow]:
        """Return what this engine still holds. A damaged session, or one that is gone, must not keep the others."""
        held = []
        for key in keys:
            with suppress(DamagedRecord, UnknownSession):
                held.append(sessions.get_by_key(connection, key, _alone(engine)))
        return [row for row in held if row.holder == engine.number]


def _alone(engine: OwnEngine) -> Present:
    """Return the present for sessions that no other engine holds or keeps."""
    return Present(engine.number.__eq__, engine.now)
