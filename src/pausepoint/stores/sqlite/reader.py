"""Reads that may take long, such as a scan of all sessions, on threads of their own: the event loop is free meanwhile.

Each thread has its own connection. In WAL mode a read never waits for a writer, and a read that begins after a write
was acknowledged sees it, whichever connection wrote. The first read starts the first thread. A second thread starts
when a read arrives while the first one is busy, so that one long read does not hold up the short ones.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar

from pausepoint.name import NAME
from pausepoint.stores.sqlite import schema
from pausepoint.stores.sqlite.connection import Connection
from pausepoint.stores.sqlite.errors import edge

THREADS = 2
"""The most threads of one store. More of them would only compete for the interpreter."""

CHECK_AFTER = 50_000
"""After how many instructions of SQLite's machine a read checks whether it was abandoned: every few milliseconds."""

T = TypeVar("T")


@contextmanager
def snapshot(connection: Connection) -> Iterator[Connection]:
    """Make all statements of the ``with`` block see the same moment."""
    connection.execute("BEGIN")
    try:
        yield connection
    finally:
        connection.execute("ROLLBACK")


class InlineRead(edge):
    """Gives out the connection for reads on the loop's thread, and translates its errors."""

    __slots__ = ("connection",)

    def __init__(self, path: str, connection: Connection) -> None:
        super().__init__(path)
        self.connection = connection

    def __enter__(self) -> Connection:
        return self.connection


class _Read:
    """One read. It is ``abandoned`` when the task that waits for it was cancelled."""

    __slots__ = ("abandoned", "at_once", "future", "run")

    def __init__(self, run: Callable[[Connection], Any], at_once: bool, future: asyncio.Future[Any]) -> None:
        self.run = run
        self.at_once = at_once
        self.future = future
        self.abandoned = False

    def perform(self, connection: Connection) -> Any:
        if self.abandoned:
            return None
        # An interrupt from the loop would have no effect between two statements.
        connection.set_progress_handler(lambda: self.abandoned, CHECK_AFTER)
        try:
            with snapshot(connection) if self.at_once else nullcontext():
                return self.run(connection)
        finally:
            connection.set_progress_handler(None)  # it must not keep a large answer in memory until the next read


class Reader:
    """Runs the reads of one store. Everything here runs on the loop's thread, except `_serve`."""

    def __init__(self, place: schema.Place) -> None:
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Read | None] = queue.SimpleQueue()
        self._ends: list[asyncio.Future[None]] = []  # one for each thread, done when the thread has ended
        self._unfinished = 0

    async def do(self, run: Callable[[Connection], T], at_once: bool = False) -> T:
        """Return what ``run`` returns for a connection. If the task is cancelled, the read is interrupted.

        With ``at_once``, all its statements see the same moment. It must not keep the connection or a cursor.
        """
        read = _Read(run, at_once, self._loop.create_future())
        self._unfinished += 1
        if len(self._ends) < min(self._unfinished, THREADS):
            self._start_thread()
        self._queue.put(read)
        try:
            answer: T = await read.future
        except asyncio.CancelledError:
            read.abandoned = True
            raise
        return answer

    async def stop(self) -> None:
        """Finish the submitted reads, end the threads, and disconnect."""
        for _ in self._ends:
            self._queue.put(None)
        for end in self._ends:
            await end

    def _start_thread(self) -> None:
        end = self._loop.create_future()
        self._ends.append(end)
        name = f"{NAME}-reader-{len(self._ends)}"
        threading.Thread(target=self._serve, args=(end,), name=name, daemon=True).start()

    def _deliver(self, read: _Read, answer: Any, error: BaseException | None) -> None:
        self._unfinished -= 1
        if read.future.done():  # the waiting task was cancelled
            return
        if error is not None:
            read.future.set_exception(error)
        else:
            read.future.set_result(answer)

    def _serve(self, end: asyncio.Future[None]) -> None:
        connection: Connection | None = None
        while (read := self._queue.get()) is not None:
            answer, error = None, None
            try:
                with edge(self._place.path):
                    connection = connection or schema.connect(self._place, serialized=True)
                    answer = read.perform(connection)
            except BaseException as exc:  # no task may wait forever
                error = exc
            self._post(self._deliver, read, answer, error)
            del read, answer, error
        if connection is not None:
            schema.disconnect(connection)
        self._post(end.set_result, None)

    def _post(self, callback: Callable[..., object], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, so no task is waiting
            self._loop.call_soon_threadsafe(callback, *args)
