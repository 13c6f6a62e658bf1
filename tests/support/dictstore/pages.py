"""The order of lists, and what comes after a position."""

from __future__ import annotations

from pausepoint.model.sessions import Filter, Position, SessionRow, position


def falling(at: Position) -> Position:
    """Return a position as a sort key: numbers fall, texts rise."""
    return tuple(value if isinstance(value, str) else -value for value in at)


def place(row: SessionRow, query: Filter) -> Position:
    return falling(position(row, query.sort))


def comes_after(row: SessionRow, query: Filter) -> bool:
    if query.after is None:
        return True
    here, there = place(row, query), falling(query.after)
    return here < there if query.reverse else here > there
