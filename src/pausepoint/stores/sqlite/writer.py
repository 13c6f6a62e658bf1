"""Adaptive group commit.

A single session commits inline, on the event loop's thread, as long as commits are cheap. So do the brief writes that
wake it: a message, an answer, a claim. Otherwise all work of one loop tick goes to a writer thread as one transaction.
The next batch collects in the meantime. Another process's write lock never blocks the loop: inline commits do not wait,
and work that finds the database locked goes to the thread, which waits.

While the disk is in trouble, all work goes to the thread. The thread checks from time to time whether the trouble is
over. It refuses normal work, and uses the ballast for work that stops sessions or frees space.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import apsw

from pausepoint.errors import PausepointError, StoreReadOnly, StoreRemoved, StoreUnavailable
from pausepoint.model.commits import Commit, Flags
from pausepoint.name import NAME
from pausepoint.stores.sql import sessions
from pausepoint.stores.sqlite import commits, schema
from pausepoint.stores.sqlite.ballast import Ballast
from pausepoint.stores.sqlite.connection import Connection
from pausepoint.stores.sqlite.engines import OwnEngine
from pausepoint.stores.sqlite.errors import BROKEN, LOCK_PATIENCE
from pausepoint.stores.sqlite.sql import QUERIES
from pausepoint.stores.sqlite.trouble import Trouble
from pausepoint.stores.sqlite.work import Brief
from pausepoint.stores.sqlite.work import Work as Work
from pausepoint.stores.suspension import SUSPENSION, unsuspended

logger = logging.getLogger(NAME)

CHEAP = 400e-6  # seconds; if commits take longer on average, they go to the thread
TICK = 2e-3  # seconds; how long a single session may commit before other tasks on the loop get a turn
REFUSALS = 3  # after this many refusals in a row by a full disk, the rest of a batch is not tried
NOTE_BYTES = 64 * 2**10  # the largest final note about a session that may use the ballast

T = TypeVar("T")


class Trace(NamedTuple):
    """A query, and the value that it returns if a transaction took effect."""

    query: str
    bindings: tuple[object, ...]
    expected: object


class Transactions:
    """Runs batches on one connection. Finds out whether a batch took effect even if COMMIT reports an error."""

    def __init__(
        self, place: schema.Place, engine: OwnEngine, trouble: Trouble, tune: Callable[[Connection], None]
    ) -> None:
        self._place = place
        self._engine = engine
        self._trouble = trouble
        self._tune = tune
        self._connection: Connection | None = None
        self._cursor: apsw.Cursor | None = None  # reused for single commits, because creating cursors is slow
        self.commits = 0

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._trouble.check_file()  # another process may have created another store at this path
            self._connection = schema.connect(self._place)
            self._tune(self._connection)
        return self._connection

    def close(self) -> None:
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            schema.disconnect(connection)

    def run(self, batch: Sequence[Work]) -> None:
        """Run a batch in one transaction. Afterwards each work item has its answer or its error.

        If one item makes the transaction fail, each item gets its own transaction. Raises `apsw.BusyError`, with
        nothing done, if the database is locked.
        """
        try:
            self._once(batch)
        except apsw.BusyError:
            raise
        except Exception as exc:
            # Do not retry on a broken disk, or if it is unknown whether the batch was written (StoreUnavailable).
            if len(batch) > 1 and not isinstance(exc, (*BROKEN, StoreUnavailable)):
                self._one_by_one(batch)
            else:
                self.fail(batch, exc)

    def _one_by_one(self, batch: Sequence[Work]) -> None:
        refusals = 0
        for work in batch:
            if refusals == REFUSALS:
                work.error = self._trouble.refusal()
                continue
            try:
                self.run((work,))
            except apsw.BusyError as exc:
                self.fail((work,), exc)
            refusals = refusals + 1 if isinstance(work.error, StoreReadOnly) else 0

    def fail(self, batch: Sequence[Work], exc: Exception) -> None:
        busy = str(self._trouble.met(exc)) if isinstance(exc, apsw.BusyError) else ""  # which looks at all processes
        for work in batch:
            work.error = exc
            if isinstance(exc, apsw.Error | UnicodeDecodeError):
                work.error = StoreUnavailable(busy) if busy else self._trouble.met(exc)
                work.error.__cause__ = exc

    @unsuspended
    def move(self, commit: Commit) -> Flags | None:
        """Run a single commit. Does the same as `run`, but faster, for an engine that drives one session."""
        try:
            cursor = self._cursor
            if cursor is None:
                cursor = self._cursor = self.connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            self._engine.begin(self.connection)
            outcome = commits.move(cursor, self._engine, commit)
            self._commit(cursor, lambda: _trace(commit))
        except BaseException as exc:
            self._abandon(exc)
            if isinstance(exc, apsw.Error) and not isinstance(exc, apsw.BusyError):
                raise self._trouble.met(exc) from exc
            raise
        if isinstance(outcome, PausepointError):
            raise outcome
        return outcome

    @unsuspended
    def _once(self, batch: Sequence[Work]) -> None:
        connection = self.connection
        newcomer = not self._engine.number
        try:
            connection.execute("BEGIN IMMEDIATE")
            if newcomer:
                self._engine.register(connection)
            self._engine.begin(connection)
            trace = self._perform(connection, batch)
            self._commit(connection, trace)
        except BaseException as exc:  # a KeyboardInterrupt must not leave a transaction open either
            if newcomer:
                self._engine.unregister()
            self._abandon(exc)
            raise

    def _perform(self, connection: Connection, batch: Sequence[Work]) -> Callable[[], Trace | None]:
        """Perform the work and return a function that says how to find out whether it took effect."""
        moved: Commit | None = None
        verbs = False
        for run, verb in _runs(batch):
            if run:
                moved = self._move_all(connection, run) or moved
            if verb is not None:
                verbs = True
                _do(verb, connection)
        if verbs:
            mark = self._mark(connection)
            return lambda: mark
        return lambda: None if moved is None else _trace(moved)

    def _move_all(self, connection: Connection, run: Sequence[Work]) -> Commit | None:
        """Apply the commits, and return the last one that was written; None if all were refused."""
        moves = [work.commit for work in run if work.commit is not None]
        moved: Commit | None = None
        for work, outcome in zip(run, commits.move_all(connection, self._engine, moves), strict=True):
            if isinstance(outcome, PausepointError):
                work.answer, work.error = None, outcome
            else:
                work.answer, work.error = outcome, None
                moved = work.commit if outcome is not None else moved
        return moved

    def _mark(self, connection: Connection) -> Trace:
        mark, number = str(uuid.uuid4()), self._engine.number
        connection.execute(QUERIES["leave_mark"], (mark, *self._engine.drives, number))
        return Trace(QUERIES["mark"], (number,), mark)

    def _commit(self, place: Connection | apsw.Cursor, trace: Callable[[], Trace | None]) -> None:
        self.commits += 1
        try:
            place.execute("COMMIT")
        except apsw.Error as exc:
            if self._place.in_memory:
                raise
            # Do not retry a failed sync on this connection: the second attempt could wrongly report success.
            self.replace()
            if not self._took_effect(trace(), exc):
                raise
        self._trouble.check_file()

    def _took_effect(self, trace: Trace | None, exc: apsw.Error) -> bool:
        if trace is None:
            return True  # there was nothing to write
        try:
            found = self.connection.execute(trace.query, trace.bindings).fetchone()
        except apsw.Error as second:
            raise self._trouble.unknown(exc, second) from exc
        return found is not None and found[0] == trace.expected

    def _abandon(self, exc: BaseException) -> None:
        if self._connection is None:
            return
        if isinstance(exc, BROKEN) and not self._place.in_memory:
            self.replace()
        elif self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                self.replace()

    def fold(self) -> None:
        """Copy as much of the WAL as possible into the database, so that the WAL file can be reused from its start."""
        with suppress(apsw.Error, StoreRemoved):
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def replace(self) -> None:
        """Drop the connection. The next use opens another one."""
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            connection.close(True)


def _do(work: Work, connection: Connection) -> None:
    assert work.verb is not None
    work.answer = work.error = None
    before = connection.total_changes()
    try:
        work.answer = work.verb(connection)
    except PausepointError as exc:
        if connection.total_changes() != before:
            raise  # roll back, because a refusal must leave nothing behind
        work.error = exc


def _trace(commit: Commit) -> Trace:
    """Return the trace of a commit. A record's digest includes a random salt, so it identifies the transaction."""
    last = commit.records[-1]
    return Trace(QUERIES["record_digest"], (commit.key, last.seq), last.digest)


def _runs(batch: Sequence[Work]) -> Iterator[tuple[list[Work], Work | None]]:
    """Split a batch into runs of commits that share their statements, each with the write that follows it."""
    run: list[Work] = []
    for work in batch:
        if work.commit is None:
            yield run, work
            run = []
        else:
            run.append(work)
    yield run, None


def parks(commit: Commit) -> bool:
    """Return whether a commit only releases a session with a final note. Such commits are tried on a full disk."""
    if not commit.release or commit.blobs:
        return False
    return all(record.kind == "event" for record in commit.records) and _weight(commit) <= NOTE_BYTES


def _weight(commit: Commit) -> int:
    return sum(len(record.payload) for record in commit.records)


class _Elsewhere(Exception):
    """The work cannot run on the loop's thread, and nothing was done. The writer thread can wait or use the ballast."""


class Writer:
    """Decides where a commit runs, and keeps the order in which work was submitted.

    Everything here runs on the loop's thread, except `_serve` and what it calls. The writer calls ``on_trouble``, on
    the loop, when the store becomes read-only and when it becomes writable again.
    """

    def __init__(
        self, place: schema.Place, engine: OwnEngine, held: set[int], trouble: Trouble, ballast: Ballast,
        on_trouble: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._in_memory = place.in_memory
        self._path = place.path
        self._engine = engine
        self._held = held
        self._trouble = trouble
        self._ballast = ballast
        self._on_trouble = on_trouble
        self._in_trouble = False  # the last state that was reported on the loop
        self._next_look: asyncio.TimerHandle | None = None
        self.lost: dict[int, int] = {}  # key and fence of sessions that are no longer driven or kept; not written yet
        self.inline = Transactions(place, engine, trouble, self._tune_inline)
        self.threaded = Transactions(place, engine, trouble, self._tune_threaded)
        self._pending: list[Work] = []
        self._in_flight = False
        self._flush_due = False
        self._tick_task: asyncio.Task[Any] | None = None  # the task that commits inline in this tick of the loop
        self._tick_until = 0.0  # when its time is over
        self._answered = 0  # batches whose tasks have an answer, but have not run since
        self._tick_over = False  # whether it must let other tasks run
        self._cost = 0.0  # moving average of the duration of a single commit, in seconds
        self._waited_since = 0.0
        self._serving: list[Work] = []  # the batch of the thread
        self._stopping = False
        self._queue: queue.SimpleQueue[list[Work] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def commits(self) -> int:
        """How many commits this engine has begun."""
        return self.inline.commits + self.threaded.commits

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        if not self._in_memory:
            self._thread = threading.Thread(target=self._serve, name=f"{NAME}-writer", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        """Finish all submitted work, end the thread, and disconnect."""
        self._stopping = True
        if self._next_look is not None:
            self._next_look.cancel()
        if self._thread is not None:
            if self._pending or self._in_flight:  # empty work that runs after everything else
                await asyncio.wait([self._submit(Work(urgent=True))])
            self._queue.put(None)
            await self._ended
        self.inline.close()

    async def commit(self, commit: Commit) -> Flags | None:
        if self._in_memory:
            return self.inline.move(commit)
        if not self._pending and self._cheap():
            try:
                flags = self._move_inline(commit)
            except _Elsewhere:
                pass
            else:
                if self._tick_over:
                    await asyncio.sleep(0)
                return flags
        answer: Flags | None = await self._submit(Work(commit=commit, urgent=parks(commit)))
        return answer

    async def do(self, verb: Callable[[Connection], T], *, urgent: bool = False) -> T:
        """Run a write in a transaction, possibly together with others. ``urgent`` work may use the ballast.

        Only work that stops sessions or frees space is urgent, never work that resumes them. A `Brief` write may run on
        the loop's thread, like a commit.
        """
        work = Work(verb=verb, urgent=urgent)
        if self._in_memory:
            self.inline.run((work,))
        elif not (isinstance(verb, Brief) and self._is_free() and self._do_inline(work)):
            await self._submit(work)
        answer: T = work.result()
        return answer

    def _submit(self, work: Work) -> asyncio.Future[Any]:
        work.future = self._loop.create_future()
        self._queue_up(work)
        return work.future

    def _queue_up(self, work: Work) -> None:
        self._pending.append(work)
        if not self._flush_due and not self._in_flight:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _cheap(self) -> bool:
        if self._in_flight or self._cost >= CHEAP or len(self._held) > 1 or self._trouble.is_there:
            return False
        # If two tasks commit in one tick, a batch is faster.
        return self._tick_task is None or self._tick_task is asyncio.current_task()

    def _is_free(self) -> bool:
        """Return whether a write may run on the loop's thread now. The caller need not let others run afterwards.

        Tasks that the thread has answered come first: what they wrote is in the store, but they do not know it yet.
        """
        return not (self._pending or self._tick_over or self._answered) and self._cheap()

    def _flush(self) -> None:
        self._flush_due = False
        batch = self._pending
        if self._in_flight or not batch:
            return
        self._pending = []
        if not (len(batch) == 1 and self._cheap() and self._flush_inline(batch[0])):
            self._in_flight = True
            self._queue.put(batch)

    def _flush_inline(self, work: Work) -> bool:
        """Run one commit on the loop's thread. Return False, with nothing done, if that is not possible."""
        if work.commit is None:
            return False
        try:
            work.answer = self._move_inline(work.commit)
        except _Elsewhere:
            return False
        except Exception as exc:
            work.error = exc
        work.deliver()
        return True

    def _do_inline(self, work: Work) -> bool:
        """Run one write on the loop's thread. Return False, with nothing done, if another process is writing."""
        start = self._enter_tick()
        try:
            self.inline.run((work,))
        except apsw.BusyError:
            return False
        if isinstance(work.error, StoreReadOnly):
            self._heed_trouble()
        self._leave_tick(start)
        return True

    def _enter_tick(self) -> float:
        start = time.perf_counter()
        if self._tick_task is None:
            self._tick_task = asyncio.current_task()
            self._tick_until = start + TICK
            self._loop.call_soon(self._next_tick)
        return start

    def _leave_tick(self, start: float) -> None:
        end = time.perf_counter()
        self._note_cost(end - start)
        self._tick_over = end > self._tick_until

    def _move_inline(self, commit: Commit) -> Flags | None:
        start = self._enter_tick()
        try:
            flags = self.inline.move(commit)
        except apsw.BusyError:
            raise _Elsewhere from None  # another process is writing; the thread can wait for it
        except StoreReadOnly:
            self._heed_trouble()
            if parks(commit):
                raise _Elsewhere from None
            self.lose(commit.key, commit.fence)
            raise
        self._leave_tick(start)
        return flags

    def _next_tick(self) -> None:
        self._tick_task, self._tick_over = None, False

    def _note_cost(self, seconds: float) -> None:
        # Limit the weight of one slow commit (a key frame, a WAL checkpoint). Only many slow commits matter.
        self._cost += (min(seconds, 2 * CHEAP) - self._cost) * 0.1

    def _tune_inline(self, connection: Connection) -> None:
        connection.set_busy_timeout(0)  # never wait on the loop; the thread waits instead
        connection.wal_autocheckpoint(schema.WAL_PAGES)

    # on the writer thread

    def _serve(self) -> None:
        while (batch := self._queue.get()) is not None:
            start, self._serving = time.perf_counter(), batch
            self._run_threaded(batch)
            self._post(self._done, batch, time.perf_counter() - start)
        try:
            self.threaded.close()
        finally:
            self._post(self._finish)

    def _run_threaded(self, batch: list[Work]) -> None:
        try:
            self._run_permitted(batch)
        except BaseException as exc:  # no task may wait forever
            for work in batch:
                work.error = exc
        for work in batch:
            if work.error is not None and work.commit is not None and isinstance(work.error, StoreReadOnly):
                self.lose(work.commit.key, work.commit.fence)

    def lose(self, key: int, fence: int) -> None:
        """Remember a hold to give back after the trouble. An older hold on the same session must not hide a newer one.

        The session may also be kept in memory under this fence: then the engine no longer keeps it.
        """
        self.lost[key] = max(fence, self.lost.get(key, 0))

    def _run_permitted(self, batch: Iterable[Work]) -> None:
        freeing: Work | None = None
        if self._trouble.is_there and not self._recovers():
            batch = [work for work in batch if work.urgent or self._refuse(work)]
            if self.lost and (batch or self._is_to_pause()):  # what must stop must not look as if it were driven
                freeing = Work(verb=self._give_back, urgent=True)
                batch = [freeing, *batch]
        left = [work for work in batch if work.commit is not None or work.verb is not None]
        while left:
            self._attempt(left)
            left = [work for work in left if work.urgent and isinstance(work.error, StoreReadOnly) and work.error.full]
            if left and not self._ballast.give():
                break
        if freeing is not None and freeing.answer and freeing.error is None:
            self.lost.clear()

    def _is_to_pause(self) -> bool:
        """Return whether one of the sessions in ``lost`` is to pause, which someone may wait for. Only read, so far."""
        try:
            flags = sessions.flags(self.threaded.connection, list(self.lost)).values()
        except (apsw.Error, PausepointError):
            return False
        return any(requests.pause_requested for _, requests in flags)

    def _refuse(self, work: Work) -> bool:
        work.error = self._trouble.refusal()
        return False

    def _attempt(self, batch: Sequence[Work]) -> None:
        try:
            self.threaded.run(batch)
        except apsw.BusyError as exc:
            self.threaded.fail(batch, exc)

    def _recovers(self) -> bool:
        """Check whether the trouble is over, unless the last check was a moment ago."""
        if not self._trouble.is_due():
            return False
        try:
            self._trouble.check_file()
        except StoreRemoved:
            return False
        for transactions in (self.inline, self.threaded):  # the loop uses neither while a batch is in flight
            transactions.replace()
        self.threaded.fold()
        if not self._ballast.make():
            return False
        first = Work(verb=self._give_back)
        self._attempt((first,))
        if first.error is not None:
            return False
        self.lost.clear()
        self._trouble.is_over()
        return True

    def _give_back(self, connection: Connection) -> bool:
        """Release the sessions in ``lost``. This is the first write after the trouble."""
        bindings = [(key, fence, self._engine.number) for key, fence in self.lost.items()]
        for query in ("give_back", "unkeep"):
            connection.executemany(QUERIES[query], bindings)
        return True

    def _tune_threaded(self, connection: Connection) -> None:
        connection.set_busy_handler(self._wait_for_lock)
        connection.wal_autocheckpoint(schema.WAL_PAGES)

    def _wait_for_lock(self, attempt: int) -> bool:
        if attempt == 0 or SUSPENSION.stand_aside():
            self._waited_since = time.monotonic()
        if self._stopping and all(work.future is not None and work.future.cancelled() for work in self._serving):
            return False  # nobody waits for the work any more, such as after Ctrl+C, so the end does not wait for it
        time.sleep(random.uniform(0.0005, 0.001 * min(attempt + 1, 10)))
        return time.monotonic() - self._waited_since < LOCK_PATIENCE

    def _post(self, callback: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, so no task is waiting
            self._loop.call_soon_threadsafe(callback, *args)

    # back on the loop

    def _done(self, batch: list[Work], seconds: float) -> None:
        self._in_flight = False
        if self._in_trouble or self._trouble.is_there:
            self._heed_trouble()
        elif len(batch) == 1:
            self._note_cost(seconds)
        self._flush()  # first, so that thread and loop work in parallel
        for work in batch:
            work.deliver()
        self._answered += 1
        self._loop.call_soon(self._heard)

    def _heard(self) -> None:
        self._answered -= 1

    def _heed_trouble(self) -> None:
        """Report trouble that has begun or ended, and schedule the next check while it lasts."""
        if self._trouble.is_there and self._next_look is None and not self._stopping:
            self._next_look = self._loop.call_later(self._trouble.wait(), self._look_again)
        if self._trouble.is_there != self._in_trouble:
            self._in_trouble = self._trouble.is_there
            logger.warning("%s: %s", self._path, self._trouble if self._in_trouble else "the store is writable again")
            self._on_trouble()

    def _look_again(self) -> None:
        self._next_look = None
        if self._trouble.is_there:
            self._queue_up(Work())  # empty work, which makes the thread check the disk

    def look(self) -> None:
        """Become read-only if another process found the disk full, or the file was removed."""
        if self._trouble.is_there:
            return
        try:
            self._trouble.check_file()
            if self._ballast.short():
                self._trouble.begin_low()
                self._heed_trouble()
        except StoreRemoved:
            self._heed_trouble()

    def _finish(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
