"""Cursors: positions in sorted lists of sessions and questions, as text that a caller passes back for the next page.

A cursor names the last item of a page by the values that the list is sorted by. The next page begins after these values
whether or not the item still exists, so items that are added or removed meanwhile move nothing else.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Literal

import msgspec

from pausepoint.model.sessions import Position

SESSIONS: dict[str, tuple[type, ...]] = {
    "created": (int, int),
    "updated": (int, int),
    "workflow": (str, int, int),
    "spent": (int, int),
    "id": (str,),
}
"""The types of a position in a list of sessions, by sort. The last value is unique, so that no two are alike."""

QUESTIONS: dict[str, tuple[type, ...]] = {"asked": (int,), "expires": (int, int), "updated": (int, int)}
"""The same for a list of questions."""

_SORTS = {"sessions": SESSIONS, "questions": QUESTIONS}
_LONGEST = 60_000
_LARGEST = 2**63

Of = Literal["sessions", "questions"]


def to_cursor(of: Of, sort: str, reverse: bool, after: Position | None) -> str | None:
    """Return a position in a list as text; None if there is no next page.

    >>> to_cursor("sessions", "id", False, ("brief-7",))
    'WyJzZXNzaW9ucyIsImlkIixmYWxzZSwiYnJpZWYtNyJd'
    """
    if after is None:
        return None
    return urlsafe_b64encode(msgspec.json.encode((of, sort, reverse, *after))).rstrip(b"=").decode()


def from_cursor(of: Of, sort: str, reverse: bool, cursor: str | None) -> Position | None:
    """Return the position that a cursor names. It may come from outside, so everything in it is checked.

    Raises `ValueError` if it is not the cursor of such a list, or of one that is sorted differently.

    >>> from_cursor("sessions", "id", False, "WyJzZXNzaW9ucyIsImlkIixmYWxzZSwiYnJpZWYtNyJd")
    ('brief-7',)
    """
    if cursor is None:
        return None
    parts = _parts(cursor)
    if len(parts) < 4 or parts[0] != of or not _is_position(of, parts[1], parts[3:]) or type(parts[2]) is not bool:
        raise _not_a_cursor(of, cursor)
    if parts[1:3] != [sort, reverse]:
        how = f"{parts[1]!r}{', reversed' if parts[2] else ''}"
        raise ValueError(
            f"The cursor belongs to a list sorted by {how}. Pass the same sort and reverse as for the previous page, or"
            " leave out the cursor for the first page."
        )
    return tuple(parts[3:])


def _parts(cursor: object) -> list[Any]:
    """Return the content of a cursor; empty if it cannot be one."""
    if not isinstance(cursor, str) or len(cursor) > _LONGEST or not cursor.isascii():
        return []
    try:
        found = msgspec.json.decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, msgspec.MsgspecError):
        return []
    return found if isinstance(found, list) else []


def _is_position(of: Of, sort: object, values: list[Any]) -> bool:
    types = _SORTS[of].get(sort) if isinstance(sort, str) else None
    return types == tuple(map(type, values)) and all(
        isinstance(value, str) or -_LARGEST <= value < _LARGEST for value in values
    )


def _not_a_cursor(of: Of, cursor: object) -> ValueError:
    return ValueError(
        f"{cursor!r:.60} is not a cursor of a list of {of}. Pass 'next' of the previous page as 'after', or leave"
        " it out for the first page."
    )
