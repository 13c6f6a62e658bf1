"""Run queries and check the types of the rows that they return."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import apsw
import msgspec

from pausepoint.errors import DamagedRecord

# The types of an intact row. A value of another type means damage.
Flag = Literal[0, 1]
Seq = Annotated[int, msgspec.Meta(ge=1)]
Time = Annotated[int, msgspec.Meta(ge=-(2**55), le=253_402_300_799_999_999)]  # the range of a datetime


def one(connection: apsw.Connection, query: str, *bindings: object) -> Any:
    """Return the first row, or None."""
    return connection.execute(query, bindings).fetchone()


def every(connection: apsw.Connection, query: str, *bindings: object) -> list[Any]:
    """Return all rows."""
    return connection.execute(query, bindings).fetchall()


def typed(stored: object, types: Any) -> Any:
    """Return a row after checking the types of its values, which SQLite does not check on reading."""
    try:
        return msgspec.convert(stored, types, builtin_types=(bytes,))
    except msgspec.ValidationError as exc:
        raise damaged_facts(exc) from exc


def damaged_facts(what: object) -> DamagedRecord:
    return DamagedRecord(f"The facts about a session cannot be read ({what}). Restore the database from a backup.")
