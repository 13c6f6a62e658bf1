"""Run queries and check the types of the rows that they return."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from pausepoint.errors import DamagedRecord
from pausepoint.stores.sql.connection import Connection

T = TypeVar("T")
K = TypeVar("K")

TURN = 32
"""How many rows are decoded before other threads get a turn: about a millisecond of work."""

# The types of an intact row. A value of another type means damage.
Flag = Literal[0, 1]
Seq = Annotated[int, msgspec.Meta(ge=1)]
Time = Annotated[int, msgspec.Meta(ge=-(2**55), le=253_402_300_799_999_999)]  # the range of a datetime


def one(connection: Connection, query: str, *bindings: object) -> Any:
    """Return the first row, or None."""
    return connection.execute(query, bindings).fetchone()


def every(connection: Connection, query: str, *bindings: object) -> list[Any]:
    """Return all rows."""
    return connection.execute(query, bindings).fetchall()


def in_turns(rows: Sequence[T]) -> Iterator[T]:
    """Yield rows, and let other threads run from time to time.

    Otherwise the event loop waits for the interpreter until its switch interval is over, 5 ms at each turn.
    """
    for n, row in enumerate(rows, 1):
        yield row
        if not n % TURN:
            time.sleep(1e-6)


def prepared(kind: K) -> K:
    """Let msgspec describe a type now, and return it. For types to which rows are converted.

    Otherwise the first conversion does it. If a second reader thread converts its first row at the same moment, it uses
    a description that is half made, and the process may end with SIGSEGV.
    """
    msgspec.json.Decoder(kind)
    return kind


def typed(stored: object, types: Any) -> Any:
    """Return a row after checking the types of its values, which SQLite does not check on reading."""
    try:
        return msgspec.convert(stored, types, builtin_types=(bytes,))
    except msgspec.ValidationError as exc:
        raise damaged_facts(exc) from exc


def damaged_facts(what: object) -> DamagedRecord:
    return DamagedRecord(f"The facts about a session cannot be read ({what}). Restore the database from a backup.")
