"""Threads that have a connection of their own, so that the event loop never waits for the database."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import psycopg

from pausepoint.name import NAME
from pausepoint.stores.postgres import schema
from pausepoint.stores.postgres.connection import Connection
from pausepoint.stores.postgres.engines import OwnEngine
from pausepoint.stores.postgres.errors import LOST, PATIENCE, edge
from pausepoint.stores.postgres.place import Place
from pausepoint.stores.postgres.schema import Use
from pausepoint.threads import acceptable

T = TypeVar("T")
WorkT = TypeVar("WorkT")


class Link:
    """A connection that is made when it is needed, and again after it was lost.

    ``first`` is a connection that exists already. ``failure`` is the error of the last attempt to connect, unless it
    succeeded.
    """

    def __init__(
        self, place: Place, reached: Callable[[], None], use: Use, first: Connection | None = None
    ) -> None:  # fmt: skip
        self._place, self._use = place, use
        self._reached = reached
        self._connection = first
        if first is not None:
            first.reached = reached
        self.failure: psycopg.Error | None = None

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            try:
                self._connection = schema.connect(self._place, self._use)
            except psycopg.Error as exc:
                self.failure = exc
                raise
            self.failure = None
            self._connection.reached = self._reached
        return self._connection

    def rollback(self) -> None:
        """End a transaction that failed. A connection that cannot do so is dropped."""
        if self._connection is not None:
            try:
                self._connection.rollback()
            except psycopg.Error:
                self.drop()

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.raw.close()


class Thread(Generic[WorkT]):
    """A thread that serves a queue of work. ``serve`` gets all work that waits, in order."""

    def __init__(self, name: str, serve: Callable[[list[WorkT]], None], end: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[WorkT | None] = queue.SimpleQueue()
        self._ended = self._loop.create_future()
        self._serve, self._end = serve, end
        threading.Thread(target=self._run, name=f"{NAME}-{name}", daemon=True).start()

    def put(self, work: WorkT) -> None:
        self._queue.put(work)

    async def stop(self) -> None:
        """Finish the submitted work, and disconnect."""
        self._queue.put(None)
        await asyncio.shield(self._ended)

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, so no task is waiting
            self._loop.call_soon_threadsafe(callback, *args)

    def _run(self) -> None:
        more = True
        while more:
            batch = []
            work = self._queue.get()
            while work is not None:
                batch.append(work)
                try:
                    work = self._queue.get_nowait()
                except queue.Empty:
                    break
            more = work is not None
            if batch:
                self._serve(batch)
        self._end()
        self.post(deliver, self._ended, None, None)


class _Read:
    __slots__ = ("at_once", "future", "run", "until")

    def __init__(self, run: Callable[[Connection], Any], at_once: bool, future: asyncio.Future[Any]) -> None:
        self.run, self.at_once, self.future = run, at_once, future
        self.until = time.monotonic() + PATIENCE


class Reader:
    """Runs reads. With ``at_once``, all statements of a read see the same moment."""

    def __init__(self, place: Place, engine: OwnEngine, reached: Callable[[], None]) -> None:
        self._place, self._engine = place, engine
        self._link = Link(place, reached, schema.READS)
        self._thread: Thread[_Read] = Thread("reader", self._serve, self._link.drop)

    async def do(self, run: Callable[[Connection], T], at_once: bool = True) -> T:
        read = _Read(run, at_once, asyncio.get_running_loop().create_future())
        self._thread.put(read)
        answer: T = await read.future
        return answer

    def warm(self) -> None:
        """Connect, and let the server load what most reads need, before the first of them comes."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.add_done_callback(asyncio.Future.exception)  # the next read reports it
        read = _Read(lambda connection: connection.execute(connection.queries["warm"]).get, True, future)
        read.until = 0.0  # it is tried once
        self._thread.put(read)

    async def stop(self) -> None:
        await self._thread.stop()

    def _serve(self, batch: list[_Read]) -> None:
        for read in batch:
            if read.future.cancelled():
                continue
            answer, error = None, None
            try:
                with edge(self._place.shown):
                    answer = self._perform(read)
            except BaseException as exc:  # no task may wait forever
                error = exc
            self._thread.post(deliver, read.future, answer, error)

    def _perform(self, read: _Read) -> Any:
        if self._link.failure is not None and time.monotonic() > read.until:
            raise self._link.failure  # it has waited long enough for reads before it
        while True:
            try:
                connection = self._link.connection
                self._engine.look(connection)
                connection.begin(reads=read.at_once)
                answer = read.run(connection)
                connection.commit()
                return answer
            except LOST:
                self._link.drop()
                self._engine.lost_connection()
                if time.monotonic() > read.until or read.future.cancelled():
                    raise
                time.sleep(0.1)
            except BaseException:
                self._link.rollback()
                raise


def deliver(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    """Give a task what it waits for, unless it was cancelled."""
    if future.done():
        return
    if error is not None:
        future.set_exception(acceptable(error))
    else:
        future.set_result(answer)
