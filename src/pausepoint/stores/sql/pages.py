"""The SQL of sorted lists: the order, and the condition that a row comes after a position (a keyset, not an offset)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pausepoint.model.sessions import Position


class Column(NamedTuple):
    """A column that a list is sorted by, or an expression, and whether its largest value comes first."""

    sql: str
    falls: bool = False


def ordered(columns: Sequence[Column], reverse: bool) -> str:
    """Return the content of ORDER BY.

    >>> ordered((Column("workflow"), Column("key", falls=True)), reverse=False)
    'workflow, key DESC'
    """
    return ", ".join(f"{each.sql} DESC" if each.falls != reverse else each.sql for each in columns)


def beyond(columns: Sequence[Column], reverse: bool, n: int = 0) -> str:
    """Return the condition that a row comes after the position in the bindings ``:after_0``, ``:after_1`` and so on.

    Columns of the same direction are compared as one row value, which SQLite finds in an index.

    >>> beyond((Column("created_at", True), Column("key", True)), reverse=False)
    '(created_at, key) < (:after_0, :after_1)'
    >>> beyond((Column("workflow"), Column("updated_at", True)), reverse=False)
    'workflow >= :after_0 AND (workflow > :after_0 OR (updated_at) < (:after_1))'
    """
    first, *rest = columns
    sign = "<" if first.falls != reverse else ">"
    if all(each.falls == first.falls for each in rest):
        values = ", ".join(f":after_{n + i}" for i in range(len(columns)))
        return f"({', '.join(each.sql for each in columns)}) {sign} ({values})"
    later = beyond(rest, reverse, n + 1)
    return f"{first.sql} {sign}= :after_{n} AND ({first.sql} {sign} :after_{n} OR {later})"


def bindings(after: Position) -> dict[str, Any]:
    """Return the bindings of `beyond`."""
    return {f"after_{n}": value for n, value in enumerate(after)}


def last_position(rows: Sequence[Sequence[Any]], columns: Sequence[int], types: tuple[type, ...]) -> Position | None:
    """Return the position of the last row. Rows whose values have other types are damaged, and passed over."""
    for row in reversed(rows):
        found = tuple(row[column] for column in columns)
        if tuple(map(type, found)) == types:
            return found
    return None
