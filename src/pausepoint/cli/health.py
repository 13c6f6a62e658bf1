"""The health of a worker over HTTP: ``/healthz``, ``/readyz`` and ``/metrics``, for a container platform or Prometheus.

It answers GET requests only, has no sessions in it, and reads nothing but the first line of a request.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from pausepoint.cli.exits import USAGE, Refused

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine

STALE = 30.0
"""Seconds without a search for sessions after which a worker counts as stuck."""

PATIENCE = 5.0
"""Seconds that a client has to send its request."""


class Health:
    """What a worker tells about itself."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.taken = 0
        self.looked = time.monotonic()
        self.engine: Engine | None = None

    def look(self, taken: int) -> None:
        """Note a search for sessions."""
        self.looked = time.monotonic()
        self.taken += taken

    def problem(self) -> str:
        """Return why the worker is not healthy; empty if it is."""
        age = time.monotonic() - self.looked
        if age > STALE and not (self.engine and self.engine.ending):
            return f"the worker has not looked for sessions for {age:.0f} s"
        return ""

    def obstacle(self) -> str:
        """Return why the worker takes no sessions; empty if it does."""
        if self.engine is None or self.engine.ending:
            return "the worker is stopping" if self.engine else "the worker is starting"
        return self.problem() or (self.engine.trouble or "")

    def metrics(self) -> str:
        """Return the figures in the text format of Prometheus."""
        figures = {
            "running gauge Sessions that this worker drives now.": len(self.engine.running) if self.engine else 0,
            "concurrency gauge The most sessions that it takes.": self.concurrency,
            "taken_total counter Sessions that it has picked up.": self.taken,
            "ready gauge 1 while it takes sessions.": int(not self.obstacle()),
            "last_look_seconds gauge The time since its last search.": round(time.monotonic() - self.looked, 3),
        }
        lines = []
        for about, value in figures.items():
            name, kind, text = about.split(" ", 2)
            name = f"pausepoint_worker_{name}"
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"

    def answer(self, line: bytes) -> tuple[str, str]:
        """Return status and text for the first line of a request."""
        method, _, path = line.decode("latin-1").partition(" ")
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "Use GET."
        match path.partition(" ")[0].partition("?")[0]:
            case "/metrics":
                return "200 OK", self.metrics()
            case "/healthz":
                why = self.problem()
            case "/readyz":
                why = self.obstacle()
            case _:
                return "404 Not Found", "There are /healthz, /readyz and /metrics."
        return ("503 Service Unavailable", why) if why else ("200 OK", "ok")


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``127.0.0.1:8099`` or ``[::1]:8099``."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise Refused(f"{text!r} is not an address for --health. Write HOST:PORT, such as 127.0.0.1:8099.", USAGE)
    return host.strip("[]"), int(port)


@asynccontextmanager
async def served(health: Health, address: str) -> AsyncIterator[str]:
    """Serve the health at an address for the duration of the block. Yield where it is served."""
    host, port = parse_address(address)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, TimeoutError):  # a client that breaks off, or sends no line
            async with asyncio.timeout(PATIENCE):
                line = await reader.readline()
                status, text = health.answer(line)
                body = b"" if line.startswith(b"HEAD") else text.encode()
                head = (
                    f"HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"
                    f"content-length: {len(text.encode())}\r\nconnection: close\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(talk, host, port)
    except OSError as exc:
        why = os.strerror(exc.errno) if exc.errno and exc.errno > 0 else str(exc)  # a name that is unknown has none
        raise Refused(
            f"--health cannot use {address}: {why}. Choose another address, or port 0 for any free one.", USAGE
        ) from exc
    async with server:
        name, number = server.sockets[0].getsockname()[:2]
        yield f"http://{f'[{name}]' if ':' in name else name}:{number}"
