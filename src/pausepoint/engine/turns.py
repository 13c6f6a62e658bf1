"""Long work on the loop's thread, in turns: other tasks continue after every few items."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable
from typing import TypeVar

ITEMS = 64
"""After how many items other tasks get a turn. An item takes some ten microseconds."""

T = TypeVar("T")
U = TypeVar("U")


async def in_turns(make: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """Return what ``make`` returns for each item.

    >>> asyncio.run(in_turns(str.upper, ["a", "b"]))
    ['A', 'B']
    """
    found = list[U]()
    for n, item in enumerate(items, 1):
        found.append(make(item))
        if not n % ITEMS:
            await asyncio.sleep(0)
    return found


async def listed(items: AsyncIterable[T]) -> list[T]:
    """Return the items of an iterator that rarely waits."""
    found = list[T]()
    async for item in items:
        found.append(item)
        if not len(found) % ITEMS:
            await asyncio.sleep(0)
    return found
