"""The place of a follower in the feed of changes, kept in the store, so that a restart continues there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from pausepoint.errors import DamagedRecord, StoreError
from pausepoint.model.changes import Mark

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine

SAVE_EVERY = 10.0
"""The fewest seconds between two writes of a cursor."""

MOST_WAITING = 1_000
"""The most unfinished items of a cursor. With more, the cursor stays where it is."""

KEPT_FOR = timedelta(days=365)


class _Place(msgspec.Struct, frozen=True):
    """Everything before ``mark`` is done, except the items ``waiting``. ``standing`` is as in `Cursor`."""

    mark: str
    waiting: tuple[str, ...] = ()
    standing: str = ""


class Cursor:
    """A place under one key. ``mark`` is the mark of the last change that was noted; None before the first one.

    ``standing`` is the id of the last pause of everything that was noted, which is no change of a session. It is empty
    if there was none.
    """

    def __init__(self, engine: Engine, key: str, digest: bytes) -> None:
        self._engine = engine
        self._key = key
        self._digest = digest
        self._saved: bytes | None = None
        self._saved_at = -SAVE_EVERY
        self.mark: str | None = None
        self.standing = ""

    async def load(self) -> tuple[str, ...]:
        """Read the place, and return the items that wait. A place that cannot be read is as good as none."""
        with suppress(DamagedRecord, msgspec.MsgspecError, ValueError):
            found = await self._engine.keys.recall(self._key)
            self._saved = None if found is None else found.answer
            if self._saved is not None:
                place = msgspec.json.decode(self._saved, type=_Place)
                self.mark = str(Mark.parse(place.mark))
                self.standing = place.standing
                return place.waiting
        return ()

    @property
    def is_due(self) -> bool:
        """Whether the last write was `SAVE_EVERY` ago."""
        return asyncio.get_running_loop().time() - self._saved_at >= SAVE_EVERY

    async def save_if_possible(self, waiting: Collection[str], log: logging.Logger) -> None:
        try:
            await self.save(waiting)
        except StoreError as error:
            log.warning("The place in the feed cannot be stored, and is tried again: %s", error)

    async def save(self, waiting: Collection[str]) -> None:
        """Store the place. Whichever process stores it last, all before the mark is done or is among the waiting."""
        if self.mark is None or len(waiting) > MOST_WAITING:
            return
        now = msgspec.json.encode(_Place(self.mark, tuple(waiting), self.standing))
        if now != self._saved:
            found = await self._engine.keys.remember(
                self._key, self._digest, now, keep_for=KEPT_FOR, replaces=self._saved
            )  # fmt: skip
            self._saved = found.answer
        self._saved_at = asyncio.get_running_loop().time()
