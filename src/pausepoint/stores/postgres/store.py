"""The Postgres store. Writes run on one thread, reads on another one, and a third thread keeps the lease."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from pausepoint.clock import Clock, SystemClock
from pausepoint.errors import LimitReached, StoreClosed
from pausepoint.model.budgets import NO_BUDGET, Allowance
from pausepoint.model.changes import Mark, Page
from pausepoint.model.commits import Commit, Flags, NewSession
from pausepoint.model.drawers import Change, DrawerId, Fold, StoredDrawer
from pausepoint.model.files import FileFacts
from pausepoint.model.limits import StoredLimit
from pausepoint.model.questions import Answer, Answered, Inquiry
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.remembered import Remembered
from pausepoint.model.schedules import Fired, Schedule
from pausepoint.model.sessions import Filter, Pause, SessionRow
from pausepoint.stores import text
from pausepoint.stores.base import OnChange
from pausepoint.stores.files import Files
from pausepoint.stores.found import Found, FoundQuestions
from pausepoint.stores.pause_flag import PauseFlag
from pausepoint.stores.places import StreamFolder
from pausepoint.stores.postgres import changes, crashes, locks, pickup, schema
from pausepoint.stores.postgres.connection import Connection
from pausepoint.stores.postgres.engines import OwnEngine
from pausepoint.stores.postgres.locks import Lock
from pausepoint.stores.postgres.place import files_in, place_of
from pausepoint.stores.postgres.shortcuts import Creation, Pickup, Unusual
from pausepoint.stores.postgres.threads import Reader
from pausepoint.stores.postgres.upkeep import Upkeep
from pausepoint.stores.postgres.watch import Watch
from pausepoint.stores.postgres.writer import EXCLUSIVE, MAIL, SHARED, Keys, Writer
from pausepoint.stores.remembered import current, current_each
from pausepoint.stores.sql import (
    answers,
    creation,
    endings,
    engines,
    files,
    pauses,
    revision,
    sessions,
    signals,
    standing,
)
from pausepoint.stores.sql import pickup as shared_pickup
from pausepoint.stores.sql import questions as asking
from pausepoint.stores.sql.drawers import DISCARDED
from pausepoint.stores.sql.notes import Notes
from pausepoint.stores.sql.queues import Wanted
from pausepoint.stores.sql.reads import Reads
from pausepoint.stores.sql.remembered import Takes

T = TypeVar("T")

# What the present verb locks, and which sessions it changes: `Notes` passes verbs on, and need not know about that.
_wanted: ContextVar[tuple[Lock | None, str | None, Keys | None]] = ContextVar(
    "pausepoint_locks", default=(None, None, None)
)

_forks: list[object] = [object()]
os.register_at_fork(after_in_child=lambda: _forks.append(object()))


def _of_row(row: SessionRow) -> Iterable[int]:
    return (row.key,)


def _of_none(answer: object) -> Iterable[int]:
    """Return no key: what was written concerns no session."""
    return ()


def _of_new(row: SessionRow | None) -> Iterable[int] | None:
    return None if row is None or row.parent is not None else (row.key,)


def _of_answered(found: Answered) -> Iterable[int] | None:
    return None if found.row is None else (found.row.key,)


def _of_rows(found: Found) -> Iterable[int] | None:
    return None if found.damaged else [row.key for row in found]


class PostgresStore(Reads, Notes, Upkeep):
    """A `pausepoint.stores.base.Store` in a Postgres database.

    ``url`` is ``postgresql://user:password@host/database``, with these options: ``schema`` (by default ``pausepoint``),
    ``files``, the folder or the bucket (``s3://bucket/prefix``) for the files of sessions, which all engines must reach
    under this name, and ``prepare=off`` for a pooler that gives each transaction another connection. ``poll`` is the
    interval, in seconds, of checks for changes by other engines.
    """

    _engine: OwnEngine
    _reads_inline = False

    def __init__(
        self, url: str, *, clock: Clock = SystemClock(), poll: float = 1.0, create: bool = True
    ) -> None:  # fmt: skip
        self._place = place_of(url, create)
        self.path = self._place.shown
        self._clock = clock
        self._poll = poll
        self._state = "new"
        self._drives = engines.NOTHING
        self._forks = _forks[-1]
        self.reached: Callable[[], None] = lambda: None

    # opening and closing

    def exists(self) -> bool:
        """Return whether the database has this store. Raises `StoreError` if it cannot be reached."""
        return schema.exists(self._place)

    async def open(self, on_change: OnChange) -> None:
        if self._state != "new":
            raise StoreClosed(
                f"The store {self.path} was opened before and cannot be opened again. Create another PostgresStore."
            )
        self._forks = _forks[-1]
        (self._uuid, lock_file), connection = await asyncio.to_thread(schema.prepare, self._place)
        channel = f"pausepoint_{self._uuid}"
        self._engine = OwnEngine(self._clock, lock_file, self._drives)
        self._writer = Writer(self._place, self._engine, channel, lambda: self.reached(), connection)
        self._reader = Reader(self._place, self._engine, lambda: self.reached())
        self._watch: Watch | None = None
        self._files = None
        try:
            self._files = await asyncio.to_thread(files_in, self._place, self._uuid)
            await self._writer.do(lambda connection: self._engine.become(self._engine.enrol(connection)))
            await self._writer.do(self._end_cancelled)
        except BaseException:
            await self._disconnect()
            raise
        self._watch = Watch(self._place, self._engine, self._writer.begin_again, channel, self._poll, on_change)
        self._reader.warm()
        self._state = "open"
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _end_cancelled(self, connection: Any) -> None:
        left = endings.cancelled_open(connection)
        locks.line(connection, *left)
        endings.end_cancelled(connection, self._engine, left)

    async def close(self) -> None:
        if self._state == "new":
            self._state = "closed"
        if self._state == "closed" or self._forks is not _forks[-1]:
            return
        if self._state == "closing":
            await asyncio.shield(self._closed)
            return
        self._state = "closing"
        try:
            if self._watch is not None:
                await self._watch.stop()
            await self._writer.do(self._engine.leave)
        finally:
            try:
                await self._disconnect()
            finally:
                self._state = "closed"
                self._closed.set_result(None)

    async def _disconnect(self) -> None:
        try:
            await self._reader.stop()
        finally:
            await self._writer.stop()
            self._engine.drop()
            if self._files is not None:
                await asyncio.to_thread(self._files.close)

    def has_news(self) -> bool:
        return self._state == "open" and self._watch is not None and self._watch.news

    def announce(self, workflows: Sequence[str], queues: Sequence[str] | None = None) -> None:
        self._drives = engines.Drives.of(workflows, queues)
        if self._state == "open":
            self._engine.drives = self._drives

    @property
    def number(self) -> int:
        return self._engine.number

    def lease_left(self, number: int) -> float | None:
        return self._engine.lease_left(number)

    @property
    def trouble(self) -> str | None:
        return None

    # sessions

    async def create(self, new: NewSession) -> SessionRow | None:
        new = text.of_session(new)
        if Creation.fits(new) and current(self) is None:
            self._check()
            row = await self._writer.do_at_once(Creation(new))
            if not isinstance(row, Unusual):
                return row
        with self._locked(locks.of_new(new), SHARED, _of_new):
            return await self._act(
                lambda connection: creation.create(connection, self._engine, new), wrote=lambda row: row is not None
            )

    async def get(self, session_id: str, *, sure: bool = False) -> SessionRow | None:
        return await self._scan(lambda connection: sessions.get(connection, session_id, self._engine.present))

    async def records(self, key: int, since: int, until: int | None = None) -> list[Record]:
        return await self._scan(lambda connection: connection.read_records(key, since, until))

    # driving

    async def claim(
        self, session_id: str, steal: bool = False, fence: int | None = None, paused: bool = False
    ) -> SessionRow:  # fmt: skip
        def verb(connection: Any) -> SessionRow | LimitReached:
            return shared_pickup.claim(connection, self._engine, session_id, steal, fence, paused)

        row = await self._do(verb, lock=locks.one_of(session_id), gate=SHARED, keys=_of_row)
        if isinstance(row, LimitReached):
            raise row
        return row

    async def commit(self, commit: Commit) -> Flags | None:
        self._check()
        return await self._writer.commit(text.of_commit(commit))

    async def revise(self, commit: Commit) -> Found:
        with self._locked(locks.lines(commit.key), EXCLUSIVE if commit.unname else SHARED):
            return await self._act(lambda connection: revision.revise(connection, self._engine, commit))

    async def unkeep(self, key: int, fence: int) -> None:
        verb = lambda connection: shared_pickup.unkeep(connection, self._engine, key, fence)  # noqa: E731
        await self._do(verb, keys=lambda _: (key,))

    async def flags(self, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
        return await self._scan(lambda connection: sessions.flags(connection, keys))

    async def take(
        self, now: int, workflows: Sequence[str], limit: int, skip: Mapping[int, int] | None = None,
        queues: Sequence[str] | None = None,
    ) -> list[SessionRow]:  # fmt: skip
        wanted = Wanted(now, workflows, limit, queues, {} if skip is None else dict(skip))

        self._check()
        if Pickup.fits(self._engine, wanted):
            taken = await self._writer.do_at_once(Pickup(wanted))
            if not isinstance(taken, Unusual):
                return taken
        self._engine.suspicious = False

        def look(connection: Any) -> tuple[bool, bool]:
            ready = shared_pickup.anything_to_take(connection, self._engine.present, wanted)
            return self._engine.anything_left(connection), ready

        left, ready = await self._scan(look)
        if left:
            await self.reap()
        elif not ready:
            return []
        verb = lambda connection: pickup.take(connection, self._engine, wanted)  # noqa: E731
        return await self._do(verb, gate=SHARED, keys=lambda rows: [row.key for row in rows])

    async def reap(self) -> frozenset[int]:
        self._check()
        freed: set[int] = set()
        while await self._scan(self._engine.anything_left):
            found = await self._do(lambda connection: crashes.reap(connection, self._engine), gate=SHARED)
            if not found:
                break  # what is left is locked
            freed.update(found)
        return frozenset(freed)

    async def release(self, key: int, fence: int) -> None:
        verb = lambda connection: shared_pickup.release(connection, self._engine, key, fence)  # noqa: E731
        await self._do(verb, keys=lambda _: (key,))

    async def set_schedule(self, before: Schedule | None, after: Schedule, new: NewSession | None = None) -> Fired:
        with self._locked(locks.schedules, SHARED):
            return await super().set_schedule(before, after, new)

    async def set_limit(self, limit: StoredLimit) -> None:
        with self._locked(None, EXCLUSIVE):  # sessions that start meanwhile know the limit, or came before it
            await super().set_limit(limit)

    # from outside

    async def pause(self, query: Filter, pause: Pause) -> Found:
        def verb(connection: Any, takes: Takes) -> Found:
            chosen = query if pause.standing else locks.matching(connection, query, self._engine.present)
            return pauses.pause(connection, self._engine, chosen, pause, takes)

        named = None if query.session_id is None else locks.line_of(query.session_id)
        keys = None if pause.standing else _of_rows
        with self._locked(None if pause.standing else named, EXCLUSIVE if pause.standing else SHARED, keys):
            return await self._act_on(verb)

    async def standing_pause(self) -> Pause | None:
        return await self._scan(standing.read)

    async def lift(self, by: str | None, at: int) -> bool:
        with self._locked(None, EXCLUSIVE):
            return await self._act(lambda connection: standing.lift(connection, by, at))

    async def unpause(
        self, session_id: str, by: str | None, at: int, budget: Allowance = NO_BUDGET, wake: bool = False,
        exempt: bool = True,
    ) -> SessionRow:  # fmt: skip
        def verb(connection: Any, takes: Takes) -> SessionRow:
            return pauses.unpause(connection, self._engine, session_id, by, at, budget, wake, takes, exempt)

        with self._locked(locks.line_of(session_id), SHARED):
            return await self._act_on(verb)

    async def cancel(self, session_id: str, by: str | None, reason: str, at: int) -> Found:
        def verb(connection: Any, takes: Takes) -> Found:
            return endings.cancel(connection, self._engine, session_id, by, reason, at, takes)

        with self._locked(locks.line_of(session_id), SHARED):
            return await self._act_on(verb)

    async def send(self, session_id: str, by: str | None, at: int, payload: bytes) -> SessionRow:
        with self._locked(locks.one_of(session_id), MAIL, _of_row):  # the row says whether everything is paused
            return await self._act(
                lambda connection: signals.send(connection, self._engine, session_id, by, at, payload)
            )

    async def answer(self, given: Answer) -> Answered:
        with self._locked(locks.of_answer(given), MAIL, _of_answered):
            return await self._act(
                lambda connection: answers.answer(connection, self._engine, given),
                wrote=lambda found: found.was_delivered,
            )

    async def questions(self, query: Inquiry) -> FoundQuestions:
        now = self._clock.now()
        return await self._scan(lambda connection: asking.found(connection, query, now))

    async def forget_questions(self, before: int, limit: int) -> int:
        return await self._do(lambda connection: asking.forget(connection, before, limit))

    async def add_file(
        self, session_id: str, by: str | None, at: int, file: FileFacts, fence: int | None = None
    ) -> tuple[SignalRecord, bool]:
        with self._locked(locks.one_of(session_id)):
            return await self._act(
                lambda connection: files.add(connection, self._engine, session_id, by, at, file, fence)
            )

    async def remember(
        self, key: str, digest: bytes, answer: bytes | None, until: int, replaces: bytes | None = None
    ) -> Remembered:
        with self._locked(locks.request(key)):
            return await super().remember(key, digest, answer, until, replaces)

    async def changes(self, after: Mark | None, limit: int) -> Page | None:
        self._check()
        horizon = await changes.settled(lambda: self._reader.do(changes.running, at_once=False))
        return await self._scan(lambda connection: changes.read(connection, self._uuid, after, limit, horizon))

    # drawers

    async def drawer_append(
        self, drawer: DrawerId, stream: str, entries: Sequence[bytes], fold: Fold | None, keep_for: int | None = None
    ) -> int:
        with self._locked(locks.drawer(drawer), keys=_of_none):
            return await super().drawer_append(drawer, stream, entries, fold, keep_for)

    async def drawer_pop(self, drawer: DrawerId, stream: str) -> bytes | None:
        with self._locked(locks.drawer(drawer), keys=_of_none):
            return await super().drawer_pop(drawer, stream)

    async def drawer_drop(self, drawer: DrawerId, streams: Sequence[str]) -> int:
        with self._locked(locks.drawer(drawer), keys=_of_none):
            return await super().drawer_drop(drawer, streams)

    async def drawer_put(self, drawer: DrawerId, changes: Sequence[Change], keep_for: int | None = None) -> list[int]:
        with self._locked(locks.drawer(drawer), keys=_of_none):
            return await super().drawer_put(drawer, changes, keep_for)

    async def drawer_clear(self, drawer: DrawerId, prefix: str = "") -> int:
        with self._locked(locks.drawer(drawer), keys=_of_none):
            return await super().drawer_clear(drawer, prefix)

    async def expire_drawers(self, now: int, limit: int) -> int:
        with self._locked(locks.drawers_of(0, DISCARDED), keys=_of_none):
            return await super().expire_drawers(now, limit)

    async def delete_discarded(self, limit: int) -> int:
        with self._locked(locks.drawers_of(DISCARDED), keys=_of_none):
            return await super().delete_discarded(limit)

    async def import_drawer(self, drawer: StoredDrawer) -> bool:
        with self._locked(locks.drawer(DrawerId(drawer.name)), keys=_of_none):
            return await super().import_drawer(drawer)

    # places on the disk

    def files_of(self, session_id: str) -> Files | None:
        return None if self._files is None else self._files.of(session_id)

    async def sessions_with_files(self) -> list[str]:
        return [] if self._files is None else await self._files.sessions()

    def flag(self) -> PauseFlag | None:
        return None

    def streams(self) -> StreamFolder | None:
        return None

    # helpers

    @contextmanager
    def _locked(self, lock: Lock | None, gate: str | None = None, keys: Keys | None = None) -> Iterator[None]:
        """Make the verb of the ``with`` block lock something before it runs, and tell others what it changed."""
        token = _wanted.set((lock, gate, keys))
        try:
            yield
        finally:
            _wanted.reset(token)

    async def _do(
        self, verb: Callable[[Connection], T], *, urgent: bool = False, lock: Lock | None = None,
        gate: str | None = None, keys: Keys | None = None,
    ) -> T:  # fmt: skip
        self._check()
        wanted = _wanted.get()
        repeated = current(self) is not None or current_each(self) is not None  # then it has another answer
        told = None if repeated else keys or wanted[2]
        return await self._writer.do(verb, lock or wanted[0], gate or wanted[1], keys=told)

    async def _scan(self, read: Callable[[Connection], T], *, at_once: bool = False) -> T:
        self._check()
        return await self._reader.do(read)

    async def _look(self, read: Callable[[Connection], T], *, at_once: bool = False) -> T:
        return await self._scan(read)

    def _check(self) -> None:
        if self._forks is not _forks[-1]:
            raise StoreClosed(
                f"The store {self.path} was opened by another process. Open a new Engine in this process."
            )
        if self._state != "open":
            what = "is not open yet. Call open() first." if self._state == "new" else "is closed. Create another store."
            raise StoreClosed(f"The store {self.path} {what}")
