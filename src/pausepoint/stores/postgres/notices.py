"""The text of a notification: the keys of the sessions that a transaction has changed."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 100
"""With more keys than these, a notification names none: its text may have only 8,000 bytes."""


def names_of(keys: Iterable[int] | None) -> str:
    """Return the text for some keys; it is empty for None, which stands for anything.

    >>> names_of([3, 12]), names_of(None), names_of(range(1000))
    ('3,12', '', '')
    """
    found = sorted(set(keys or ()))
    return ",".join(map(str, found)) if len(found) <= MOST else ""


def keys_of(text: str) -> frozenset[int] | None:
    """Return the keys of a text; None if it names none, or if another program wrote it.

    >>> keys_of("3,12") == {3, 12}, keys_of(""), keys_of("hello")
    (True, None, None)
    """
    try:
        return frozenset(int(each) for each in text.split(",")) or None
    except ValueError:
        return None
