"""Many clients of a server's live stream, in one process and as cheap as possible."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from benchmarks.served import Served

TOPICS = "now,inbox"
"""What the web page of a person follows."""


class Watchers:
    """Some open streams. ``wanted`` is what each of them waits for."""

    def __init__(self, place: Served) -> None:
        self._place = place
        self._all: list[_Watcher] = []
        self._seen: list[float] = []
        self._enough = asyncio.Event()
        self.wanted = b""

    async def grow(self, count: int) -> None:
        """Open streams until there are so many, and wait until each has its first event."""
        loop = asyncio.get_running_loop()
        begun: list[asyncio.Event] = []
        while len(self._all) < count:
            watcher = _Watcher(self._place, self._see, lambda: self.wanted)
            await loop.create_connection(lambda watcher=watcher: watcher, "127.0.0.1", self._place.port)  # type: ignore[misc]
            self._all.append(watcher)
            begun.append(watcher.begun)
        for each in begun:
            async with asyncio.timeout(60):
                await each.wait()

    def _see(self) -> None:
        self._seen.append(time.perf_counter())
        if len(self._seen) >= len(self._all):
            self._enough.set()

    async def delays(self, text: str, change: Callable[[], None]) -> list[float]:
        """Make a change, and return after how many milliseconds each client saw the text, in this order."""
        self._seen.clear()
        self._enough.clear()
        self.wanted = text.encode()
        begin = time.perf_counter()
        await asyncio.to_thread(change)
        async with asyncio.timeout(60):
            await self._enough.wait()
        return [(each - begin) * 1e3 for each in self._seen]

    def close(self) -> None:
        for each in self._all:
            each.close()
        self._all.clear()


class _Watcher(asyncio.Protocol):
    """One stream. It looks for a text in what comes, and parses nothing."""

    def __init__(self, place: Served, see: Callable[[], None], wanted: Callable[[], bytes]) -> None:
        self._place = place
        self._see = see
        self._wanted = wanted
        self._last = b""
        self._found = b""
        self._transport: asyncio.Transport | None = None
        self.begun = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        lines = [f"GET /api/v1/stream?topics={TOPICS} HTTP/1.1", f"Host: 127.0.0.1:{self._place.port}"]
        lines += [f"{name}: {value}" for name, value in self._place.headers.items()]
        transport.write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, data: bytes) -> None:
        assert self._last or data.startswith(b"HTTP/1.1 200"), data
        wanted, recent = self._wanted(), self._last + data
        if b"id: " in recent:
            self.begun.set()
        if wanted and wanted != self._found and wanted in recent:
            self._found = wanted
            self._see()
        self._last = recent[-100:]

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
