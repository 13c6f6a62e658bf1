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
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import apsw

from pausepoint.errors import PausepointError, StoreReadOnly, StoreRemoved
from pausepoint.model.commits import Commit, Flags
from pausepoint.name import NAME
from pausepoint.stores.sql import sessions
from pausepoint.stores.sqlite import schema
from pausepoint.stores.sqlite.ballast import Ballast
from pausepoint.stores.sqlite.connection import Connection
from pausepoint.stores.sqlite.engines import OwnEngine
from pausepoint.stores.sqlite.errors import LOCK_PATIENCE
from pausepoint.stores.sqlite.sql import QUERIES
from pausepoint.stores.sqlite.transactions import Transactions
from pausepoint.stores.sqlite.trouble import Trouble
from pausepoint.stores.sqlite.work import Brief, Work
from pausepoint.stores.suspension import SUSPENSION

logger = logging.getLogger(NAME)

CHEAP = 400e-6  # seconds; if commits take longer on average, they go to the thread
TICK = 2e-3  # seconds; how long a single session may commit before other tasks on the loop get a turn
NOTE_BYTES = 64 * 2**10  # the largest final note about a session that may use the ballast

T = TypeVar("T")


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
