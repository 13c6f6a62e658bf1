"""The SQLite store. All writes go through the writer.

Reads of one session run on the event loop's thread: they take microseconds. Reads whose cost follows the number of
sessions, records, questions or large values go through the reader, to another thread. A store in memory has only one
connection, which the loop needs for every commit, so it reads on the loop's thread as well: with a lock for another
thread, commits would wait for long reads just the same.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from pausepoint.clock import Clock, SystemClock
from pausepoint.errors import DamagedRecord, HoldLost, StoreClosed, StoreError, StoreReadOnly, StoreUnavailable
from pausepoint.model.budgets import NO_BUDGET, Allowance, Purse
from pausepoint.model.changes import Mark, Page
from pausepoint.model.files import FileFacts
from pausepoint.model.questions import Answer, Answered, Inquiry
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.sessions import (
    About,
    Commit,
    Filter,
    Flags,
    NewSession,
    Pause,
    Proved,
    QuestionStatus,
    Removal,
    SessionRow,
    Space,
    Status,
    Stopping,
    Sweep,
    Tombstone,
    Whole,
)
from pausepoint.stores.found import Found, FoundQuestions
from pausepoint.stores.places import StreamFolder
from pausepoint.stores.sqlite import (
    answers,
    blobs,
    changes,
    creation,
    endings,
    engines,
    files,
    pauses,
    pickup,
    records,
    recovery,
    revision,
    schema,
    sessions,
    signals,
    standing,
)
from pausepoint.stores.sqlite import questions as asking
from pausepoint.stores.sqlite import removal as cleaning
from pausepoint.stores.sqlite import transfer as moving
from pausepoint.stores.sqlite import verify as checking
from pausepoint.stores.sqlite.about import about
from pausepoint.stores.sqlite.ballast import SIZE, Ballast
from pausepoint.stores.sqlite.engines import OwnEngine
from pausepoint.stores.sqlite.errors import edge, is_full
from pausepoint.stores.sqlite.liveness import FileHold, Hold, MemoryHold, refuse_inherited
from pausepoint.stores.sqlite.notes import Notes
from pausepoint.stores.sqlite.pace import Pace
from pausepoint.stores.sqlite.reader import InlineRead, Reader, snapshot
from pausepoint.stores.sqlite.remembered import Takes
from pausepoint.stores.sqlite.removal import session_folder
from pausepoint.stores.sqlite.sql import QUERIES
from pausepoint.stores.sqlite.trouble import Trouble
from pausepoint.stores.sqlite.writer import Writer, parks

T = TypeVar("T")

INLINE = 64
"""More records than these of one session are read on another thread too."""

_SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")

# A different object in every forked process. Comparing it is cheaper than asking the system for the process id.
_forks: list[object] = [object()]
os.register_at_fork(after_in_child=lambda: _forks.append(object()))


def _real_path(path: str | Path) -> str:
    try:
        return os.path.realpath(path)
    except ValueError as exc:
        raise StoreUnavailable(
            f"{str(path)!r:.200} is not a path that the system can open ({exc}). Name another file for the store."
        ) from exc


class SqliteStore(Notes):
    """A `pausepoint.stores.base.Store` in one SQLite file, or in memory with the path ``:memory:``.

    With ``create=False``, opening raises `StoreMissing` if the file does not exist. ``synchronous`` is for tests: only
    FULL keeps acknowledged writes through a power loss. ``poll`` is the interval, in seconds, of checks for changes by
    other engines; it is shorter for a second after such a change. ``ballast`` is how many bytes are reserved for a full
    disk, in a file next to the database; 0 reserves none.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock = SystemClock(),
        vfs: str | None = None,
        synchronous: str = "FULL",
        poll: float = 0.05,
        ballast: int = SIZE,
        create: bool = True,
    ) -> None:
        if synchronous not in _SYNCHRONOUS:
            raise ValueError(f"synchronous={synchronous!r} is not valid. Use one of {', '.join(_SYNCHRONOUS)}.")
        # Resolve links only once, because the files next to the database have its real name.
        self.path = str(path) if str(path) == ":memory:" else _real_path(path)
        if ballast < 0:
            raise ValueError(f"ballast={ballast} is not valid. Pass a number of bytes, or 0 to reserve none.")
        self._place = schema.Place(self.path, vfs, synchronous, create)
        if self._place.in_memory and not create:
            raise StoreError("A store in memory is always new, so create=False needs a path. Pass the path of a file.")
        self._ballast = Ballast(self.path, 0 if self._place.in_memory else ballast)
        self._clock = clock
        self._poll = poll
        self._held: set[int] = set()
        self._state = "new"
        self._forks = _forks[-1]
        self._read: apsw.Connection | None = None
        self._drives = "[]"

    # opening and closing

    def accept_loss(self) -> str | None:
        """Make a store that raises `StoreDamaged` usable again, without the commits that cannot be read.

        Returns the path of the copy of the damaged log; None if nothing is damaged, which changes nothing.
        """
        try:
            return None if self._place.in_memory else schema.accept_loss(self._place)
        except OSError as exc:
            raise StoreUnavailable(
                f"{self.path}: the damaged log could not be copied ({exc.strerror}), so nothing was changed. Free some"
                " space and check the folder's permissions, then try again."
            ) from exc

    async def open(self, on_change: Callable[[], None]) -> None:
        if self._state != "new":
            raise StoreClosed(
                f"The store {self.path} was opened before and cannot be opened again. Create another SqliteStore."
            )
        self._forks = _forks[-1]
        if not self._place.in_memory:
            refuse_inherited(self.path)
            await asyncio.to_thread(self._with_ballast, lambda: schema.prepare(self._place))
        self._hold: Hold = MemoryHold() if self._place.in_memory else self._file_hold()
        self._engine = OwnEngine(self._hold, self._clock, self._drives)
        self._trouble = Trouble(self._place, self._clock.now, lambda: len(self._held | self._writer.lost.keys()))
        self._writer = Writer(self._place, self._engine, self._held, self._trouble, self._ballast, on_change)
        self._writer.start()
        self._reader = Reader(self._place)
        try:
            if self._place.in_memory:
                self._connect()
            else:
                await asyncio.to_thread(self._with_ballast, self._connect)
                await asyncio.to_thread(self._look_for_space)
            await self._register()
        except BaseException:
            await self._disconnect()
            raise
        self._state = "open"
        self._seen = self._data_version()
        self._watcher = None if self._place.in_memory else asyncio.create_task(self._watch(on_change))
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _connect(self) -> None:
        with edge(self.path):
            inline = self._writer.inline.connection
            if self._place.in_memory:
                schema.create(inline)
            else:
                inline.pragma("journal_mode", "wal")  # has an effect only on a copy made with VACUUM INTO
            self._read = inline if self._place.in_memory else schema.connect(self._place)

    def _file_hold(self) -> FileHold:
        try:
            return FileHold(self.path)
        except OSError as exc:
            raise StoreUnavailable(
                f"{self.path}-holds cannot be opened ({exc.strerror}). Check the free disk space and the folder's"
                " permissions."
            ) from exc

    def _with_ballast(self, act: Callable[[], None]) -> None:
        """Run ``act``; on a full disk, free the ballast for it. Even reading needs space, for the WAL index."""
        while True:
            try:
                return act()
            except StoreUnavailable as error:
                if not is_full(error.__cause__) or not self._ballast.give():
                    raise

    def _look_for_space(self) -> None:
        if not self._ballast.make() and self._ballast.short():
            self._trouble.begin_low()

    async def _register(self) -> None:
        """Give this engine its number in a first transaction, which also ends the cancelled sessions left open.

        On a full disk, the engine opens for reading only.
        """
        with suppress(StoreReadOnly):
            await self._writer.do(lambda connection: endings.end_cancelled(connection, self._engine))

    async def close(self) -> None:
        if self._state == "new":
            self._state = "closed"
        if self._state == "closed" or self._forks is not _forks[-1]:
            return
        if self._state == "closing":
            await asyncio.shield(self._closed)
            return
        self._state = "closing"
        if self._watcher is not None:
            self._watcher.cancel()
        try:
            if self._engine.number:
                await self._writer.do(self._engine.leave, urgent=True)
        finally:
            try:
                await self._disconnect()
            finally:
                self._state = "closed"
                self._closed.set_result(None)

    async def _disconnect(self) -> None:
        try:
            try:
                await self._reader.stop()
            finally:
                await self._writer.stop()
            if self._read is not None and not self._place.in_memory:
                schema.disconnect(self._read)
        finally:
            self._hold.drop()
            recovery.close_deleted()

    async def _watch(self, on_change: Callable[[], None]) -> None:
        time, pace = asyncio.get_running_loop().time, Pace(self._poll)
        while True:
            await asyncio.sleep(pace.interval(time()))
            if self._ballast.short() and not self._trouble.is_there:
                self._writer.distrust()
            now, commits = self._data_version(), self._writer.commits
            pace.check(time(), now != self._seen, commits)
            if now != self._seen:
                self._seen = now
                on_change()

    def has_news(self) -> bool:
        return self._watcher is not None and self._data_version() != self._seen

    def _data_version(self) -> int | None:
        try:
            version: int | None = None if self._read is None else self._read.execute(QUERIES["data_version"]).get
        except apsw.Error:
            return None  # the next read raises the error, and becoming readable again counts as a change
        return version

    def announce(self, workflows: Sequence[str]) -> None:
        self._drives = msgspec.json.encode(sorted(workflows)).decode()
        if self._state == "open":
            self._engine.workflows = self._drives

    # sessions

    async def create(self, new: NewSession) -> SessionRow | None:
        row = await self._act(
            lambda connection: creation.create(connection, self._engine, new), wrote=lambda row: row is not None
        )
        if row is not None and row.holder is not None:
            self._held.add(row.key)
        return row

    async def get(self, session_id: str, *, sure: bool = False) -> SessionRow | None:
        with self._reading() as connection:
            row = sessions.get(connection, session_id, self._engine.present)
        if row is None and sure:
            await self._scan(lambda connection: sessions.check_missing(connection, session_id))
        return row

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

    async def records(self, key: int, since: int, until: int | None = None) -> list[Record]:
        if until is not None and until - since > INLINE:
            return await self._scan(lambda connection: records.read(connection, key, since, until), at_once=True)
        with self._snapshot() as connection:
            return records.read(connection, key, since, until)

    async def key_frame(self, key: int, seq: int) -> int:
        with self._reading() as connection:
            return records.key_frame(connection, key, seq)

    async def blobs(self, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
        with self._snapshot() as connection:
            return blobs.read(connection, hashes)

    @property
    def number(self) -> int:
        return self._engine.number

    @property
    def trouble(self) -> str | None:
        return str(self._trouble) if self._trouble.is_there else None

    # driving

    async def claim(
        self, session_id: str, steal: bool = False, fence: int | None = None, paused: bool = False
    ) -> SessionRow:  # fmt: skip
        def verb(connection: apsw.Connection) -> SessionRow:
            return pickup.claim(connection, self._engine, session_id, steal, fence, paused)

        row = await self._do(verb)
        self._held.add(row.key)
        return row

    async def commit(self, commit: Commit) -> Flags | None:
        self._check()
        try:
            flags = await self._writer.commit(commit)
        except (HoldLost, StoreReadOnly):
            self._held.discard(commit.key)
            raise
        if commit.release and flags is not None:
            self._held.discard(commit.key)
        return flags

    async def revise(self, commit: Commit) -> Found:
        def verb(connection: apsw.Connection) -> Found:
            return revision.revise(connection, self._engine, commit)

        return await self._act(verb, urgent=parks(commit))

    async def unkeep(self, key: int, fence: int) -> None:
        try:
            await self._do(lambda connection: pickup.unkeep(connection, self._engine, key, fence), urgent=True)
        except StoreReadOnly:
            self._writer.lose(key, fence)

    async def flags(self, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
        with self._reading() as connection:
            return sessions.flags(connection, keys)

    async def mail(
        self, key: int, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        with self._snapshot() as connection:
            return signals.mail(connection, key, limit, kind, about)

    async def purses(self, key: int) -> list[Purse]:
        with self._reading() as connection:
            return sessions.purses(connection, key)

    async def due(
        self, now: int, workflows: Sequence[str], limit: int, tree: str | None = None
    ) -> list[SessionRow]:  # fmt: skip
        with self._reading() as connection:
            return pickup.due(connection, self._engine.present, now, workflows, limit, tree)

    async def take(
        self, now: int, workflows: Sequence[str], limit: int, skip: Mapping[int, int] | None = None
    ) -> list[SessionRow]:
        skipped = {} if skip is None else dict(skip)
        with self._reading() as connection:  # an idle worker looks often and must not write
            present = self._engine.present
            found = pickup.ready(connection, present, now, workflows, 1, skipped)
            if not found and not pickup.dead_holders(connection, present):
                return []
        rows = await self._do(lambda connection: pickup.take(connection, self._engine, now, workflows, limit, skipped))
        self._held.update(row.key for row in rows)
        return rows

    async def release(self, key: int, fence: int) -> None:
        try:
            await self._do(lambda connection: pickup.release(connection, self._engine, key, fence), urgent=True)
        except StoreReadOnly:
            self._writer.lose(key, fence)
        self._held.discard(key)

    async def next_wake(self, now: int, workflows: Sequence[str], tree: str | None = None) -> int | None:
        with self._reading() as connection:
            return pickup.next_wake(connection, now, workflows, tree)

    # from outside

    async def pause(self, query: Filter, pause: Pause) -> Found:
        def verb(connection: apsw.Connection, takes: Takes) -> Found:
            return pauses.pause(connection, self._engine, query, pause, takes)

        return await self._act_on(verb, urgent=True)

    async def standing_pause(self) -> Pause | None:
        with self._reading() as connection:
            return standing.read(connection)

    async def stopping(self) -> Stopping:
        with self._reading() as connection:
            return standing.stopping(connection)

    async def lift(self, by: str | None, at: int) -> bool:
        return await self._act(lambda connection: standing.lift(connection, by, at))

    async def unpause(
        self, session_id: str, by: str | None, at: int, budget: Allowance = NO_BUDGET, wake: bool = False
    ) -> SessionRow:
        def verb(connection: apsw.Connection, takes: Takes) -> SessionRow:
            return pauses.unpause(connection, self._engine, session_id, by, at, budget, wake, takes)

        return await self._act_on(verb)

    async def cancel(self, session_id: str, by: str | None, reason: str, at: int) -> Found:
        def verb(connection: apsw.Connection, takes: Takes) -> Found:
            return endings.cancel(connection, self._engine, session_id, by, reason, at, takes)

        return await self._act_on(verb, urgent=True)

    async def send(self, session_id: str, by: str | None, at: int, payload: bytes) -> SessionRow:
        return await self._act(lambda connection: signals.send(connection, self._engine, session_id, by, at, payload))

    async def answer(self, given: Answer) -> Answered:
        return await self._act(
            lambda connection: answers.answer(connection, self._engine, given), wrote=lambda found: found.was_delivered
        )

    async def questions(self, query: Inquiry) -> FoundQuestions:
        now = self._clock.now()
        if query.ids:  # the cost follows the ids; a step that asked must not wait behind a scan
            with self._snapshot() as connection:
                return asking.found(connection, query, now)
        return await self._scan(lambda connection: asking.found(connection, query, now), at_once=True)

    async def tally_questions(self, query: Inquiry) -> dict[QuestionStatus, int]:
        now = self._clock.now()
        return await self._scan(lambda connection: asking.tally(connection, query, now), at_once=True)

    async def forget_questions(self, before: int, limit: int) -> int:
        return await self._do(lambda connection: asking.forget(connection, before, limit), urgent=True)

    async def add_file(
        self, session_id: str, by: str | None, at: int, file: FileFacts, fence: int | None = None
    ) -> tuple[SignalRecord, bool]:
        return await self._act(lambda connection: files.add(connection, self._engine, session_id, by, at, file, fence))

    async def files(self, key: int, id: str | None = None, sha256: str | None = None) -> list[SignalRecord]:
        with self._snapshot() as connection:
            return files.read(connection, key, id, sha256)

    async def pauses(self, key: int, open_only: bool = True) -> list[Pause]:
        with self._snapshot() as connection:
            return pauses.read(connection, key, open_only)

    async def first_pauses(self, keys: Sequence[int]) -> dict[int, Pause]:
        if len(keys) <= pauses.FEW:
            with self._snapshot() as connection:
                return pauses.first(connection, keys)
        return await self._scan(lambda connection: pauses.first(connection, keys), at_once=True)

    async def signals(self, key: int, after: int, until: int | None = None) -> list[SignalRecord]:
        with self._snapshot() as connection:
            return signals.read(connection, key, after, until)

    async def changes(self, after: Mark | None, limit: int) -> Page | None:
        with self._snapshot() as connection:
            if not changes.is_removing(connection):
                return changes.read(connection, after, limit)
        return await self._scan(lambda connection: changes.read(connection, after, limit), at_once=True)

    def describe_holder(self, holder: int | None) -> str:
        with self._reading() as connection:
            return engines.describe(connection, holder)

    # removing data

    async def remove(
        self, session_id: str, by: str | None, reason: str, at: int, expired: bool = False, ended_for: int | None = None
    ) -> list[Removal]:
        def verb(connection: apsw.Connection) -> list[Removal]:
            return cleaning.remove(connection, self._engine, session_id, by, reason, at, expired, ended_for)

        return await self._act(verb, urgent=True)

    async def removing(self) -> list[Removal]:
        return await self._scan(cleaning.removing)

    async def strip(self, key: int, limit: int) -> Tombstone | None:
        return await self._do(lambda connection: cleaning.strip(connection, key, limit), urgent=True)

    async def expired(self, now: int, after: int, limit: int, ended_for: int | None = None) -> list[tuple[int, str]]:
        return await self._scan(lambda connection: cleaning.expired(connection, now, after, limit, ended_for))

    async def tombstones(self, session_id: str | None = None) -> list[Tombstone]:
        return await self._scan(lambda connection: cleaning.tombstones(connection, session_id))

    def folder(self, session_id: str) -> Path | None:
        return None if self._place.in_memory else session_folder(self.path, session_id)

    def flag(self) -> Path | None:
        return None if self._place.in_memory else Path(f"{self.path}-paused")

    def streams(self) -> StreamFolder | None:
        return None if self._place.in_memory else StreamFolder(Path(f"{self.path}-streams"), Path(self.path))

    async def sweep(self, after: int, limit: int, apply: bool) -> Sweep:
        if apply:
            return await self._do(lambda connection: cleaning.sweep(connection, after, limit), urgent=True)
        return await self._scan(lambda connection: cleaning.swept(cleaning.unnamed(connection, after, limit), limit))

    async def weight(self, *session_ids: str) -> int:
        def read(connection: apsw.Connection) -> int:
            tree = sessions.find(connection, Filter(ids=session_ids, tree=True), self._engine.present)
            return cleaning.weight(connection, tree)

        return await self._scan(read, at_once=True)

    async def space(self) -> Space:
        return await self._scan(cleaning.space, at_once=True)

    async def compact(self, at_most: int) -> int:
        pages = max(1, at_most // schema.PAGE_SIZE)
        given = await self._do(lambda connection: cleaning.compact(connection, pages), urgent=True)
        return given * schema.PAGE_SIZE

    async def fold(self) -> bool:
        self._check()
        return self._place.in_memory or await asyncio.to_thread(schema.fold, self._place)

    # verification

    async def survey(self, after: int, limit: int) -> list[tuple[int, str, SessionRow | DamagedRecord]]:
        return await self._scan(
            lambda connection: checking.survey(connection, after, limit, self._engine.present), at_once=True
        )

    async def names(self, key: int) -> dict[bytes, bool]:
        with self._reading() as connection:
            return checking.names(connection, key)

    async def values(self, after: int, limit: int) -> Proved:
        return await self._scan(lambda connection: checking.values(connection, after, limit))

    async def check(self) -> list[str]:
        self._check()
        if not self._place.in_memory:  # on a thread of its own, because it reads every page of the file
            return await asyncio.to_thread(checking.check_file, self._place)
        with self._reading() as connection:
            return checking.check(connection)

    async def about(self) -> About:
        return await self._scan(
            lambda connection: about(connection, self._place, self._ballast, self._engine.present), at_once=True
        )

    # transfer

    async def whole(self, session_id: str) -> list[Whole]:
        return await self._scan(
            lambda connection: moving.whole(connection, session_id, self._engine.present), at_once=True
        )

    async def import_(self, sessions: Sequence[Whole]) -> bool:
        return await self._act(lambda connection: moving.import_(connection, self._engine, sessions), wrote=bool)

    # helpers

    async def _do(self, verb: Callable[[apsw.Connection], T], *, urgent: bool = False) -> T:
        self._check()
        return await self._writer.do(verb, urgent=urgent)

    def _check(self) -> None:
        if self._forks is not _forks[-1]:
            raise StoreClosed(
                f"The store {self.path} was opened by another process. Open a new Engine in this process."
            )
        if self._state != "open":
            what = "is not open yet. Call open() first." if self._state == "new" else "is closed. Create another store."
            raise StoreClosed(f"The store {self.path} {what}")

    async def _scan(self, read: Callable[[apsw.Connection], T], *, at_once: bool = False) -> T:
        """Read what may take long on a thread of its own; with ``at_once``, all statements see the same moment."""
        self._check()
        if self._place.in_memory:
            with self._snapshot() if at_once else self._reading() as connection:
                return read(connection)
        return await self._reader.do(read, at_once)

    def _reading(self) -> InlineRead:
        self._check()
        assert self._read is not None  # the store is open
        return InlineRead(self.path, self._read)

    @contextmanager
    def _snapshot(self) -> Iterator[apsw.Connection]:
        """Read with several statements that all see the same moment."""
        with self._reading() as connection, snapshot(connection):
            yield connection
