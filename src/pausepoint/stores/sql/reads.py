"""The reads that are the same in every SQL store: of sessions, and of what came to them from outside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from pausepoint.clock import Clock
from pausepoint.model.budgets import Purse
from pausepoint.model.questions import Inquiry
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import Filter, Pause, QuestionStatus, SessionRow, Status, Stopping
from pausepoint.stores.found import Found
from pausepoint.stores.sql import (
    blobs,
    engines,
    files,
    pauses,
    pickup,
    questions,
    records,
    schedules,
    sessions,
    signals,
    standing,
)
from pausepoint.stores.sql.connection import Connection

T = TypeVar("T")


class Reads:
    """A part of a store in an SQL database. What follows the number of sessions is a scan, the rest a look."""

    _engine: engines.Engine
    _clock: Clock

    if TYPE_CHECKING:

        async def _scan(self, read: Callable[[Connection], T], *, at_once: bool = False) -> T: ...
        async def _look(self, read: Callable[[Connection], T], *, at_once: bool = False) -> T: ...

    async def find(self, query: Filter) -> Found:
        return await self._scan(lambda connection: sessions.find(connection, query, self._engine.present))

    async def ids(self, query: Filter) -> list[str]:
        return await self._scan(lambda connection: sessions.ids(connection, query, self._engine.present))

    async def tally(self, query: Filter) -> dict[tuple[str, Status], int]:
        return await self._scan(
            lambda connection: sessions.tally(connection, query, self._engine.present), at_once=True
        )

    async def spending(self, query: Filter) -> dict[str, int]:
        return await self._scan(lambda connection: sessions.spending(connection, query, self._engine.present))

    async def waking(self, now: int, limit: int, owner: str | None = None) -> Found:
        return await self._scan(lambda connection: pickup.waking(connection, self._engine.present, now, limit, owner))

    async def due(
        self, now: int, workflows: Sequence[str], limit: int, tree: str | None = None,
        queues: Sequence[str] | None = None, skip: Mapping[int, int] | None = None,
    ) -> list[SessionRow]:  # fmt: skip
        return await self._look(
            lambda connection: pickup.due(connection, self._engine.present, now, workflows, limit, tree, queues, skip)
        )

    async def next_wake(self, now: int, workflows: Sequence[str], tree: str | None = None) -> int | None:
        return await self._look(lambda connection: schedules.next_wake(connection, now, workflows, tree))

    async def key_frame(self, key: int, seq: int) -> int:
        return await self._look(lambda connection: records.key_frame(connection, key, seq))

    async def blobs(self, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
        wanted = list(hashes)
        return await self._look(lambda connection: blobs.read(connection, wanted), at_once=True)

    async def mail(
        self, key: int, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        return await self._look(lambda connection: signals.mail(connection, key, limit, kind, about), at_once=True)

    async def signals(self, key: int, after: int, until: int | None = None) -> list[SignalRecord]:
        return await self._look(lambda connection: signals.read(connection, key, after, until), at_once=True)

    async def purses(self, key: int) -> list[Purse]:
        return await self._look(lambda connection: sessions.purses(connection, key))

    async def files(self, key: int, id: str | None = None, sha256: str | None = None) -> list[SignalRecord]:
        return await self._look(lambda connection: files.read(connection, key, id, sha256), at_once=True)

    async def pauses(self, key: int, open_only: bool = True) -> list[Pause]:
        return await self._look(lambda connection: pauses.read(connection, key, open_only), at_once=True)

    async def first_pauses(self, keys: Sequence[int]) -> dict[int, Pause]:
        read = self._look if len(keys) <= pauses.FEW else self._scan
        return await read(lambda connection: pauses.first(connection, keys), at_once=True)

    async def stopping(self) -> Stopping:
        return await self._look(standing.stopping)

    async def tally_questions(self, query: Inquiry) -> dict[QuestionStatus, int]:
        now = self._clock.now()
        return await self._scan(lambda connection: questions.tally(connection, query, now), at_once=True)

    async def describe_holders(self, holders: Collection[int]) -> dict[int, str]:
        return await self._look(lambda connection: {each: engines.describe(connection, each) for each in holders})
