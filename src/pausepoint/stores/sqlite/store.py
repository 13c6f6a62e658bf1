"""The SQLite store. All writes go through the writer.

Reads of one session run on the event loop's thread: they take microseconds. Reads whose cost follows the number of
sessions, records, questions or large values go through the reader, to another thread. A store in memory has only one
connection, which the loop needs for every commit, so it reads on the loop's thread as well: with a lock for another
thread, commits would wait for long reads just the same.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import apsw
from msgspec.structs import replace

from pausepoint.clock import Clock, SystemClock
from pausepoint.errors import (
    HoldLost,
    LimitReached,
    StoreClosed,
    StoreError,
    StoreReadOnly,
    StoreRemoved,
    StoreUnavailable,
)
from pausepoint.model.budgets import NO_BUDGET, Allowance
from pausepoint.model.changes import Mark, Page
from pausepoint.model.commits import Commit, Flags, NewSession
from pausepoint.model.files import FileFacts
from pausepoint.model.questions import Answer, Answered, Inquiry
from pausepoint.model.records import Record, SignalRecord
from pausepoint.model.schedules import Fired, Schedule
from pausepoint.model.sessions import Filter, Pause, SessionRow
from pausepoint.stores.base import OnChange
from pausepoint.stores.files import Files
from pausepoint.stores.folders import SessionFolders
from pausepoint.stores.found import Found, FoundQuestions
from pausepoint.stores.liveness import FileHold, Hold, MemoryHold, refuse_inherited
from pausepoint.stores.pause_flag import PauseFlag, Version
from pausepoint.stores.places import StreamFolder
from pausepoint.stores.remembered import current
from pausepoint.stores.sql import (
    answers,
    crashes,
    creation,
    endings,
    engines,
    files,
    pauses,
    pickup,
    revision,
    sessions,
    signals,
    standing,
)
from pausepoint.stores.sql import questions as asking
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.notes import Notes
from pausepoint.stores.sql.queues import Wanted
from pausepoint.stores.sql.reads import Reads
from pausepoint.stores.sql.remembered import Takes
from pausepoint.stores.sqlite import changes, locks, records, recovery, schema
from pausepoint.stores.sqlite.ballast import SIZE, Ballast
from pausepoint.stores.sqlite.connection import Connection as SqliteConnection
from pausepoint.stores.sqlite.engines import OwnEngine
from pausepoint.stores.sqlite.errors import edge, is_full
from pausepoint.stores.sqlite.everything import EverythingRequest, applied
from pausepoint.stores.sqlite.pace import Pace
from pausepoint.stores.sqlite.reader import InlineRead, Reader, snapshot
from pausepoint.stores.sqlite.sql import QUERIES
from pausepoint.stores.sqlite.trouble import Trouble
from pausepoint.stores.sqlite.upkeep import Upkeep
from pausepoint.stores.sqlite.work import Brief
from pausepoint.stores.sqlite.writer import Writer, parks
from pausepoint.stores.text import of_commit

T = TypeVar("T")

INLINE = 64
"""More records than these of one session are read on another thread too."""

BRIEF = 64 * 2**10
"""A message with more bytes than these is written on the writer's thread."""

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


class SqliteStore(Reads, Notes, Upkeep):
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
        self._files = SessionFolders(Path(f"{self.path}.sessions"))
        self._everything = EverythingRequest(self.path, self._place.in_memory)
        self._ballast = Ballast(self.path, 0 if self._place.in_memory else ballast)
        self._clock = clock
        self._poll = poll
        self._held: set[int] = set()
        self._state = "new"
        self._forks = _forks[-1]
        self._read: SqliteConnection | None = None
        self._presence = locks.Presence(self.path)
        self._drives = engines.NOTHING

    _engine: OwnEngine

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

    async def open(self, on_change: OnChange) -> None:
        if self._state != "new":
            raise StoreClosed(
                f"The store {self.path} was opened before and cannot be opened again. Create another SqliteStore."
            )
        self._forks = _forks[-1]
        if not self._place.in_memory:
            refuse_inherited(self.path)
            await self._prepare()
        self._hold: Hold = MemoryHold() if self._place.in_memory else self._file_hold()
        self._engine = OwnEngine(self._hold, self._clock, self._everything, self._drives)
        self._trouble = Trouble(self._place, self._clock.now, lambda: len(self._held | self._writer.lost.keys()))
        self._writer = Writer(
            self._place, self._engine, self._held, self._trouble, self._ballast, lambda: on_change(None)
        )
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
        self._seen = self._version()
        self._watcher = None if self._place.in_memory else asyncio.create_task(self._watch(on_change))
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _connect(self) -> None:
        with edge(self.path):
            inline = self._writer.inline.connection
            if self._place.in_memory:
                schema.create(inline)
            self._read = inline if self._place.in_memory else schema.connect(self._place)
            self._trouble.remember_file()

    async def _prepare(self) -> None:
        try:
            await asyncio.to_thread(self._with_ballast, lambda: schema.prepare(self._place, self._presence))
        except BaseException:
            self._presence.close()
            raise

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

        On a full disk, the engine opens for reading only. An engine that picks up nothing gets its number with its
        first write, so that one that only looks does not wait for another program's write.
        """
        if self._drives == engines.NO_QUEUE and not self._has_cancelled():
            return
        with suppress(StoreReadOnly):
            await self._writer.do(self._end_cancelled)

    def _has_cancelled(self) -> bool:
        assert self._read is not None  # it is connected
        with edge(self.path):
            return endings.are_left_open(self._read, self._engine)

    def _end_cancelled(self, connection: Connection) -> None:
        endings.end_cancelled(connection, self._engine, endings.cancelled_open(connection))

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
                with suppress(StoreRemoved):  # it was reported, and there is nothing to leave
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
                self._presence.withdraw()
                schema.disconnect(self._read)
        finally:
            self._presence.close()
            self._hold.drop()
            recovery.close_deleted()

    async def _watch(self, on_change: OnChange) -> None:
        time, pace = asyncio.get_running_loop().time, Pace(self._poll)
        while True:
            await asyncio.sleep(pace.interval(time()))
            self._writer.look()
            now, commits = self._version(), self._writer.commits
            pace.check(time(), now != self._seen, commits)
            if now != self._seen:
                self._seen = now
                on_change(None)  # SQLite knows that there was a write, and not which one

    def lease_left(self, number: int) -> float | None:
        return None

    def has_news(self) -> bool:
        return self._watcher is not None and self._version() != self._seen

    def _version(self) -> tuple[int | None, Version]:
        """Return what differs after a write by any engine, and after a request to pause everything."""
        try:
            version: int | None = None if self._read is None else self._read.execute(QUERIES["data_version"]).get
        except apsw.Error:
            version = None  # the next read raises the error, and becoming readable again counts as a change
        return version, self._everything.version()

    def announce(self, workflows: Sequence[str], queues: Sequence[str] | None = None) -> None:
        self._drives = engines.Drives.of(workflows, queues)
        if self._state == "open":
            self._engine.drives = self._drives

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

    async def records(self, key: int, since: int, until: int | None = None) -> list[Record]:
        if until is not None and until - since > INLINE:
            return await self._scan(lambda connection: records.read(connection, key, since, until), at_once=True)
        with self._snapshot() as connection:
            return records.read(connection, key, since, until)

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
        def verb(connection: Connection) -> SessionRow | LimitReached:
            return pickup.claim(connection, self._engine, session_id, steal, fence, paused)

        row = await self._do(Brief(verb))
        if isinstance(row, LimitReached):
            raise row
        self._held.add(row.key)
        return row

    async def commit(self, commit: Commit) -> Flags | None:
        self._check()
        try:
            flags = await self._writer.commit(of_commit(commit))
        except (HoldLost, StoreReadOnly):
            self._held.discard(commit.key)
            raise
        if commit.release and flags is not None:
            self._held.discard(commit.key)
        if flags is not None and self._everything.version() is not None:  # perhaps requested during the commit
            with suppress(StoreError):
                _, present = self._asked([commit.key]).get(commit.key, (0, flags))
                if present.pause_requested:  # the rest is as the commit saw it, such as the mail that it has read
                    flags = replace(flags, pause_requested=True, pause_mode=present.pause_mode)
        return flags

    async def revise(self, commit: Commit) -> Found:
        def verb(connection: Connection) -> Found:
            return revision.revise(connection, self._engine, commit)

        return await self._act(verb, urgent=parks(commit))

    async def unkeep(self, key: int, fence: int) -> None:
        try:
            await self._do(lambda connection: pickup.unkeep(connection, self._engine, key, fence), urgent=True)
        except StoreReadOnly:
            self._writer.lose(key, fence)

    async def flags(self, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
        return self._asked(keys)

    def _asked(self, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
        with self._reading() as connection:
            asked = self._everything.pending(connection)  # first: it may be stored meanwhile, and is in the rows then
            rows = sessions.flags(connection, keys)
        return {key: (fence, applied(asked, flags)) for key, (fence, flags) in rows.items()}

    async def take(
        self, now: int, workflows: Sequence[str], limit: int, skip: Mapping[int, int] | None = None,
        queues: Sequence[str] | None = None,
    ) -> list[SessionRow]:  # fmt: skip
        wanted = Wanted(now, workflows, limit, queues, {} if skip is None else dict(skip))
        await self.reap()
        with self._reading() as connection:
            if not pickup.anything_to_take(connection, self._engine.present, wanted):
                return []
        rows = await self._do(lambda connection: pickup.take(connection, self._engine, wanted))
        self._held.update(row.key for row in rows)
        return rows

    async def reap(self) -> frozenset[int]:
        freed: set[int] = set()
        while await self._look(lambda connection: crashes.dead_holders(connection, self._engine.present)):
            freed.update(await self._do(lambda connection: crashes.reap(connection, self._engine)))
        return frozenset(freed)

    async def release(self, key: int, fence: int) -> None:
        try:
            await self._do(lambda connection: pickup.release(connection, self._engine, key, fence), urgent=True)
        except StoreReadOnly:
            self._writer.lose(key, fence)
        self._held.discard(key)

    async def set_schedule(self, before: Schedule | None, after: Schedule, new: NewSession | None = None) -> Fired:
        fired = await super().set_schedule(before, after, new)
        if fired.row is not None and fired.row.holder is not None:
            self._held.add(fired.row.key)
        return fired

    # from outside

    async def pause(self, query: Filter, pause: Pause) -> Found:
        def verb(connection: Connection, takes: Takes) -> Found:
            return pauses.pause(connection, self._engine, query, pause, takes)

        if not pause.standing or current(self) is not None:  # a request by key may be refused
            return await self._act_on(verb, urgent=True)
        with self._reading() as connection:
            stands = standing.everything(connection) is not None
        return await self._everything.insist(pause, stands, lambda: self._act_on(verb, urgent=True))

    async def standing_pause(self) -> Pause | None:
        with self._reading() as connection:
            asked = self._everything.pending(connection)
            return standing.read(connection) or asked

    async def lift(self, by: str | None, at: int) -> bool:
        return await self._act(lambda connection: standing.lift(connection, by, at))

    async def unpause(
        self, session_id: str, by: str | None, at: int, budget: Allowance = NO_BUDGET, wake: bool = False,
        exempt: bool = True,
    ) -> SessionRow:  # fmt: skip
        def verb(connection: Connection, takes: Takes) -> SessionRow:
            return pauses.unpause(connection, self._engine, session_id, by, at, budget, wake, takes, exempt)

        return await self._act_on(verb)

    async def cancel(self, session_id: str, by: str | None, reason: str, at: int) -> Found:
        def verb(connection: Connection, takes: Takes) -> Found:
            return endings.cancel(connection, self._engine, session_id, by, reason, at, takes)

        return await self._act_on(verb, urgent=True)

    async def send(self, session_id: str, by: str | None, at: int, payload: bytes) -> SessionRow:
        def verb(connection: Connection) -> SessionRow:
            return signals.send(connection, self._engine, session_id, by, at, payload)

        if current(self) is None:
            return await self._do(Brief(verb) if len(payload) <= BRIEF else verb)
        return await self._act(verb)

    async def answer(self, given: Answer) -> Answered:
        def verb(connection: Connection) -> Answered:
            return answers.answer(connection, self._engine, given)

        if current(self) is None:
            return await self._do(Brief(verb) if len(given.value) <= BRIEF else verb)
        return await self._act(verb, wrote=lambda found: found.was_delivered)

    async def questions(self, query: Inquiry) -> FoundQuestions:
        now = self._clock.now()
        if query.ids:  # the cost follows the ids; a step that asked must not wait behind a scan
            with self._snapshot() as connection:
                return asking.found(connection, query, now)
        return await self._scan(lambda connection: asking.found(connection, query, now), at_once=True)

    async def forget_questions(self, before: int, limit: int) -> int:
        return await self._do(lambda connection: asking.forget(connection, before, limit), urgent=True)

    async def add_file(
        self, session_id: str, by: str | None, at: int, file: FileFacts, fence: int | None = None
    ) -> tuple[SignalRecord, bool]:
        return await self._act(lambda connection: files.add(connection, self._engine, session_id, by, at, file, fence))

    async def changes(self, after: Mark | None, limit: int) -> Page | None:
        with self._snapshot() as connection:
            if not changes.is_removing(connection):
                return changes.read(connection, after, limit)
        return await self._scan(lambda connection: changes.read(connection, after, limit), at_once=True)

    # places on the disk

    def files_of(self, session_id: str) -> Files | None:
        return None if self._place.in_memory else self._files.of(session_id)

    async def sessions_with_files(self) -> list[str]:
        return [] if self._place.in_memory else await self._files.sessions()

    def flag(self) -> PauseFlag | None:
        return self._everything.flag

    def streams(self) -> StreamFolder | None:
        return None if self._place.in_memory else StreamFolder(Path(f"{self.path}-streams"), Path(self.path))

    # helpers

    async def _do(self, verb: Callable[[Connection], T], *, urgent: bool = False) -> T:
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

    async def _scan(self, read: Callable[[Connection], T], *, at_once: bool = False) -> T:
        """Read what may take long on a thread of its own; with ``at_once``, all statements see the same moment."""
        self._check()
        if self._place.in_memory:
            with self._snapshot() if at_once else self._reading() as connection:
                return read(connection)
        return await self._reader.do(read, at_once)

    async def _look(self, read: Callable[[Connection], T], *, at_once: bool = False) -> T:
        """Read what takes microseconds on the loop's thread; ``at_once`` is as in `_scan`."""
        with self._snapshot() if at_once else self._reading() as connection:
            return read(connection)

    def _reading(self) -> InlineRead:
        self._check()
        assert self._read is not None  # the store is open
        return InlineRead(self.path, self._read)

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        """Read with several statements that all see the same moment."""
        with self._reading() as connection, snapshot(connection):
            yield connection
