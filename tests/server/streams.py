"""Readers of the live stream, as browsers read it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx

from pausepoint.server.hub import Hub, hub_of
from tests.server.kit import API, Served
from tests.support.loop import PATIENCE


class Events:
    """The events of a stream. An event counts once its empty line has come, and its id with it."""

    def __init__(self, last: str = "") -> None:
        self.last = last
        self.found: list[tuple[str, Any]] = []
        self._left = b""

    def feed(self, data: bytes) -> None:
        *blocks, self._left = (self._left + data).split(b"\n\n")
        for block in blocks:
            self._take(block.decode())

    def _take(self, block: str) -> None:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        self.last = fields.get("id", self.last)
        if "data" in fields:
            self.found.append((fields["event"], json.loads(fields["data"])))

    def of(self, event: str) -> list[Any]:
        return [data for name, data in self.found if name == event]

    def has(self, event: str, count: int = 1) -> bool:
        return len(self.of(event)) >= count

    def has_mark(self) -> bool:
        return bool(self.last)

    @property
    def lines(self) -> list[Any]:
        return [event for line in self.of("line") for event in line["events"]]

    def ended(self) -> bool:
        return any(each["event_type"] == "session.completed" for each in self.lines)


class Reader(Events):
    """Reads a stream over a connection."""

    def __init__(self, client: httpx.Client, topics: str, last: str = "") -> None:
        super().__init__(last)
        self.client = client
        self.topics = topics
        self.size = 0

    def read(self, until: Callable[[], bool], cut: int = 0) -> None:
        """Read until a condition is met, the stream ends, or so many bytes have come."""
        headers = {"Last-Event-ID": self.last} if self.last else {}
        self._left, self.size = b"", 0
        if until():
            return
        with self.client.stream("GET", "/stream", params={"topics": self.topics}, headers=headers) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["x-accel-buffering"] == "no"
            assert answer.headers["cache-control"] == "no-store"
            end = time.monotonic() + PATIENCE
            for chunk in answer.iter_raw():
                assert time.monotonic() < end, self.found
                chunk = chunk[: cut - self.size] if cut else chunk
                self.size += len(chunk)
                self.feed(chunk)
                if until() or (cut and self.size >= cut):
                    return


async def received(app: Any, host: str, token: str, topics: str, last: str, enough: Callable[[bytes], bool]) -> bytes:
    """Return the bytes of a stream without a connection, until they are enough or the stream ends."""
    data, left = bytearray(), asyncio.Event()

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200
        data.extend(message.get("body", b""))
        if enough(bytes(data)):
            left.set()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    headers = {"host": host, "authorization": f"Bearer {token}", "last-event-id": last}
    scope = {
        "type": "http", "method": "GET", "path": f"{API}/stream", "scheme": "http", "root_path": "",
        "query_string": f"topics={topics}".encode(), "client": ("127.0.0.1", 1),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items() if value],
    }  # fmt: skip
    async with asyncio.timeout(PATIENCE):
        await app(scope, receive, send)
    return bytes(data)


def told(event: Any) -> tuple[Any, ...]:
    return event["created_at"], event["event_type"], event["summary"], json.dumps(event["data"], sort_keys=True)


def history(client: httpx.Client, session_id: str) -> list[Any]:
    found: list[Any] = client.get(f"/sessions/{session_id}/events", params={"limit": 200}).json()["events"]
    return found


def present(server: Served) -> str:
    """Return the present mark of the hub."""

    async def mark() -> str:
        hub = hub_of(server.engine)
        await hub.use()
        return hub.mark

    return server.run(mark())


async def restarted(hub: Hub) -> None:
    """Make the hub forget everything, as another server."""
    with suppress(asyncio.CancelledError):
        await hub.close()
    await hub.use()
