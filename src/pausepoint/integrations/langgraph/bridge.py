"""The event loop that a saver's engine runs on, and calls into it from any thread and any other loop."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from pausepoint import Engine
from pausepoint.errors import CallRefused, StoreClosed
from pausepoint.integrations.langgraph.threads import Threads

T = TypeVar("T")
Work = Callable[[Threads], Coroutine[Any, Any, T]]

DRAWER = "langgraph"
"""The drawer of the store that has the threads of savers."""


class Bridge:
    """Runs work on threads in the event loop of their engine: one that is open, or one of its own in a thread."""

    def __init__(self, store: str | Path | Engine | Threads) -> None:
        self._lock = threading.Lock()
        self._store = store
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: Threads | None = None
        self._thread: threading.Thread | None = None
        self._end: Future[None] = Future()
        self._calls: set[asyncio.Task[Any]] = set()
        if isinstance(store, Engine):
            self._threads, self._loop = Threads(store.drawer(DRAWER)), store.loop
        elif isinstance(store, Threads):
            self._threads, self._loop = store, asyncio.get_running_loop()
        elif not isinstance(store, str | Path):
            raise TypeError(
                f"A saver takes the URL or the path of a store, or an Engine opened with `async with`, not"
                f" {type(store).__name__}. In blocking code, pass the URL."
            )

    def call(self, work: Work[T]) -> T:
        """Run work and wait for it, in a thread that has no event loop or another one."""
        loop, _ = self._opened()
        if _running() is loop:
            raise CallRefused(
                "A blocking method of the saver was called on the event loop of its engine, where it would wait for"
                " itself forever. Use the async methods of the graph: ainvoke, astream, aget_state."
            )
        return self._submit(work).result()

    async def acall(self, work: Work[T]) -> T:
        """Run work, from any event loop."""
        if self._loop is None:
            await asyncio.to_thread(self._opened)  # opening a store takes time, and others use this loop
        loop, threads = self._opened()
        if _running() is loop:
            return await work(threads)
        return await asyncio.wrap_future(self._submit(work))

    def close(self) -> None:
        """Close the engine, if it is the saver's own; then calls that run raise `StoreClosed`. Safe to call twice."""
        atexit.unregister(self.close)
        with self._lock:
            thread, self._thread = self._thread, None
            if not self._end.done():
                self._end.set_result(None)
        if thread is not None and self._pid == os.getpid():
            thread.join()

    def _opened(self) -> tuple[asyncio.AbstractEventLoop, Threads]:
        with self._lock:
            return self._found()

    def _found(self) -> tuple[asyncio.AbstractEventLoop, Threads]:
        if self._end.done():
            raise StoreClosed("The saver is closed. Make another one.")
        if self._loop is None or self._threads is None:
            self._pid = os.getpid()  # a server may make the saver before it forks
            self._loop, self._threads = self._open()
        if self._pid != os.getpid():
            raise StoreClosed("This saver was opened by another process. Make a new one after fork().")
        return self._loop, self._threads

    def _submit(self, work: Work[T]) -> Future[T]:
        """Run work on another thread's loop. The lock orders this and `close`: what is submitted begins before it."""
        with self._lock:
            loop, threads = self._found()
            if not loop.is_running():
                raise StoreClosed(
                    "The event loop in which the saver's engine was opened does not run. Keep it running while graphs"
                    " use the saver, or pass the URL of the store instead of the engine."
                )
            return asyncio.run_coroutine_threadsafe(self._run(work, threads), loop)

    async def _run(self, work: Work[T], threads: Threads) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await work(threads)
        except asyncio.CancelledError:
            if not self._end.done() and getattr(self._store, "is_open", True):
                raise
            raise StoreClosed(
                "The saver was closed during this call. A write may have been stored or not. Close the saver when no"
                " graph uses it any more. Run the graph again with another one."
            ) from None
        finally:
            self._calls.discard(task)

    def _open(self) -> tuple[asyncio.AbstractEventLoop, Threads]:
        ready: Future[tuple[asyncio.AbstractEventLoop, Threads]] = Future()
        # A daemon: a saver that is not closed must not keep the program from ending, and is closed then.
        atexit.register(self.close)
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="pausepoint saver", daemon=True)
        self._thread.start()
        return ready.result()

    def _serve(self, ready: Future[tuple[asyncio.AbstractEventLoop, Threads]]) -> None:
        async def serve() -> None:
            assert isinstance(self._store, str | Path)
            async with Engine(self._store, signals=False, drives="none") as engine:
                ready.set_result((asyncio.get_running_loop(), Threads(engine.drawer(DRAWER))))
                await asyncio.wrap_future(self._end)
                for call in self._calls:
                    call.cancel()
                if self._calls:
                    await asyncio.wait(set(self._calls))

        try:
            asyncio.run(serve())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
