"""What the shared verbs know about the engines of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import msgspec

from pausepoint.clock import to_datetime
from pausepoint.errors import HoldLost
from pausepoint.model.commits import Commit, Flags
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.rows import one

Outcome = Flags | HoldLost | None


class Present(NamedTuple):
    """Facts about the present that are not in a session's row: which engines are alive, and the time."""

    alive: Callable[[int], bool]
    now: Callable[[], int]


class Drives(NamedTuple):
    """Whose due sessions an engine picks up, as stored: names as JSON. ``queues`` is None for all of them."""

    workflows: str = "[]"
    queues: str | None = None

    @staticmethod
    def of(workflows: Iterable[str], queues: Iterable[str] | None) -> Drives:
        return Drives(_json(workflows), None if queues is None else _json(queues))


NOTHING = Drives()

NO_QUEUE = Drives(queues="[]")
"""Of an engine that never picks anything up."""


def _json(names: Iterable[str]) -> str:
    return msgspec.json.encode(sorted(names)).decode()


class Engine(Protocol):
    """This engine. ``number`` is how the other engines of the store know it; 0 until it is registered."""

    present: Present
    now: Callable[[], int]

    @property
    def number(self) -> int: ...

    def move(self, connection: Connection, commit: Commit) -> Outcome:
        """Apply one commit to a session that this engine holds."""


def describe(connection: Connection, holder: int | None) -> str:
    """Describe a holder for people."""
    if holder is None:
        return "nobody"
    found: tuple[int, str, int] | None = one(connection, connection.queries["engine"], holder)
    if found is None:
        return f"an engine that is gone (number {holder})"
    pid, host, since = found
    return f"process {pid} on {host}, since {to_datetime(since).isoformat(timespec='seconds')}"
