"""A relay in front of a Postgres server. It can cut a connection just before a COMMIT, or before the answer to it.

The relay reads the messages of the protocol, so the place of a cut is exact. It speaks no TLS: the URL of a client
needs ``sslmode=disable``.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections import Counter, deque
from pathlib import Path
from typing import Literal

from psycopg.conninfo import conninfo_to_dict

Address = str | tuple[str, int]
"""A Unix socket, or a host and a port."""

When = Literal["before", "after"]
Kind = Literal["begin", "commit", "record", "other"]
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_WRITES = re.compile(rb"\bINSERT INTO log\b", re.IGNORECASE)
"""A write that adds a record to a session: what the engine does for each operation."""


def address_of(url: str) -> Address:
    """Return the address of the server that the URL of a store names."""
    given = conninfo_to_dict(re.sub(r"[?&](schema|prepare)=\w+", "", url))
    host, port = str(given.get("host") or "127.0.0.1"), int(given.get("port") or 5432)
    return str(Path(host) / f".s.PGSQL.{port}") if host.startswith("/") else (host, port)


def kind_of(statement: bytes) -> Kind:
    first = statement.lstrip()[:6].upper()
    if first.startswith((b"BEGIN", b"COMMIT")):
        return "begin" if first.startswith(b"BEGIN") else "commit"
    return "record" if _WRITES.search(statement) else "other"


class Frames:
    """Splits a stream into messages. The first message of a client has no type."""

    def __init__(self, starts: bool) -> None:
        self._data = b""
        self._starts = starts

    def feed(self, data: bytes) -> list[bytes]:
        self._data += data
        found = []
        while len(self._data) >= (head := 4 if self._starts else 5):
            size = int.from_bytes(self._data[head - 4 : head], "big") + head - 4
            if len(self._data) < size:
                break
            found.append(self._data[:size])
            self._data, self._starts = self._data[size:], False
        return found


class _Connection:
    """A connection of a client, and the one to the server that belongs to it."""

    def __init__(self, relay: Relay, near: Stream, far: Stream) -> None:
        self.relay, self.near, self.far = relay, near, far
        self.statements: dict[bytes, Kind] = {}
        self.inside = self.wrote = False  # a transaction; one that has added records
        self.held: list[bytes] | None = None

    async def run(self) -> None:
        """Pass messages until one side ends or fails; then end the other one."""
        ways = [asyncio.ensure_future(self._to_server()), asyncio.ensure_future(self._to_client())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.cut()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def cut(self) -> None:
        for _, writer in (self.near, self.far):
            writer.transport.abort()

    async def _to_server(self) -> None:
        frames = Frames(starts=True)
        while data := await self.near[0].read(65536):
            await self.relay.open.wait()
            for frame in frames.feed(data):
                if self._commits(frame) and self.held is None and self.relay.armed:
                    if self.relay.armed[0] == "before":
                        self.relay.note("before")
                        self.cut()
                        return
                    self.held = []
                self.far[1].write(frame)
            await self.far[1].drain()

    async def _to_client(self) -> None:
        frames = Frames(starts=False)
        while data := await self.far[0].read(65536):
            await self.relay.open.wait()
            for frame in frames.feed(data):
                ready = frame[:1] == b"Z"
                if ready:
                    self.inside = frame[5:6] != b"I"
                if self.held is None:
                    self.near[1].write(frame)
                    continue
                self.held.append(frame)
                if ready and not self.inside:
                    self._answer()
            await self.near[1].drain()

    def _answer(self) -> None:
        """Keep the answer to a COMMIT from the client, unless the server refused it."""
        held, self.held = self.held or [], None
        if self.relay.armed and self.relay.armed[0] == "after" and not any(frame[:1] == b"E" for frame in held):
            self.relay.note("after")
            self.cut()
            return
        self.near[1].write(b"".join(held))

    def _commits(self, frame: bytes) -> bool:
        """Return whether a message of the client ends a transaction that adds records."""
        tag, body = frame[:1], frame[5:]
        if tag == b"P":
            name, _, text = body.partition(b"\0")
            self.statements[name] = kind_of(text)
        if tag not in (b"Q", b"B"):
            return False
        name = body.partition(b"\0")[2].partition(b"\0")[0]
        kind = kind_of(body) if tag == b"Q" else self.statements.get(name, "other")
        if kind == "begin":
            self.inside, self.wrote = True, False
        self.wrote |= kind == "record"
        return (kind == "commit" and self.wrote) or (kind == "record" and not self.inside)


class Relay:
    """Passes connections to ``upstream`` until `close`. ``cuts`` counts the cuts that took place."""

    def __init__(self, listener: socket.socket, upstream: Address) -> None:
        self.upstream = upstream
        self.cuts: Counter[When] = Counter()
        self.armed: deque[When] = deque()
        self.open = asyncio.Event()
        self.open.set()
        self._connections: set[_Connection] = set()
        self._listener = listener
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def arm(self, when: When) -> None:
        """Cut the next connection that commits, before the server gets the COMMIT or after it has answered."""
        self.armed.append(when)

    def note(self, when: When) -> None:
        self.armed.popleft()
        self.cuts[when] += 1

    def hold(self) -> None:
        """Let no byte pass until `switch`. Connections stay open, as on a network that loses all packets."""
        self._loop.call_soon_threadsafe(self.open.clear)

    def switch(self, upstream: Address) -> None:
        """Pass connections to another server from now on, and cut those to the former one."""
        self.upstream = upstream
        self._loop.call_soon_threadsafe(self.open.set)
        self._loop.call_soon_threadsafe(self.sever)

    def sever(self) -> None:
        for connection in self._connections:
            connection.cut()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._listener))
        self._loop.run_forever()
        self.sever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, *near: asyncio.StreamReader | asyncio.StreamWriter) -> None:
        reader, writer = near
        assert isinstance(reader, asyncio.StreamReader)
        assert isinstance(writer, asyncio.StreamWriter)
        try:
            far = await self._reach()
        except OSError:  # no server: the client sees a connection that ends
            writer.transport.abort()
            return
        for each in (writer, far[1]):
            if isinstance(each.get_extra_info("peername"), tuple):  # asyncio does so only for some sockets
                each.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(self, (reader, writer), far)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    async def _reach(self) -> Stream:
        if isinstance(self.upstream, str):
            return await asyncio.open_unix_connection(self.upstream)
        return await asyncio.open_connection(*self.upstream)


def listening(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Return a socket that accepts connections."""
    made = socket.create_server((host, port))
    made.setblocking(False)
    return made
