"""A webhook on loopback: it keeps every message that it gets, and can refuse messages or keep their senders waiting."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.loop import PATIENCE


class Webhook:
    """The server. ``refuses``: messages with this text get the status 503."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.refuses: str | None = None
        self.answers = threading.Event()  # while it is clear, senders wait for the answer to a message that was kept
        self.answers.set()
        self._change = threading.Condition()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status = 503 if hook._take(message) else 200
                hook.answers.wait(PATIENCE)
                self.send_response(status)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # the sender was killed

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def _take(self, message: dict[str, Any]) -> bool:
        with self._change:
            refused = self.refuses is not None and self.refuses in message["message"]
            if refused:
                self.refused.append(message["message"])
            else:
                self.got.append(message)
            self._change.notify_all()
        return refused

    def url(self, path: str = "", user: str = "") -> str:
        """Return the address for apprise, which waits long enough for a busy machine."""
        return f"json://{user}127.0.0.1:{self.port}/{path}?rto={PATIENCE}&cto={PATIENCE}"

    @property
    def texts(self) -> list[str]:
        """The first line of each message: the question."""
        return [each["message"].splitlines()[0].removeprefix("> ") for each in self.got]

    def until(self, count: int, refused: int = 0) -> None:
        """Wait until so many messages have come, and so many were refused."""
        with self._change:
            enough = self._change.wait_for(lambda: len(self.got) >= count and len(self.refused) >= refused, PATIENCE)
        assert enough, f"{len(self.got)} of {count} messages came, and {len(self.refused)} of {refused} were refused"

    async def has(self, count: int, refused: int = 0) -> None:
        """Wait like `until`, on a loop."""
        end = time.monotonic() + PATIENCE
        while len(self.got) < count or len(self.refused) < refused:
            assert time.monotonic() < end, f"{len(self.got)} of {count} messages came"
            await asyncio.sleep(0.01)

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Run a webhook until the block ends."""
    hook = Webhook()
    try:
        yield hook
    finally:
        hook.close()
