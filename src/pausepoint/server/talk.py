"""The live output of a session, read once for all clients that follow it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pausepoint.engine import history_documents
from pausepoint.errors import PausepointError
from pausepoint.server.clients import encoded

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine

SIZE = 256 * 2**10
"""The bytes of a session's live output that are kept for clients that come later."""


class Talk:
    """The live output of one session. ``tell`` gets each part of it."""

    def __init__(self, engine: Engine, session_id: str, tell: Callable[[str, bytes], None]) -> None:
        self._engine = engine
        self._session_id = session_id
        self._tell = tell
        self._last = 0
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self._news: list[bytes] = []
        self.kept: deque[bytes] = deque()  # for clients that come later

    def resume(self) -> None:
        """Read on, unless that is under way. The output of a session ends with it, and continues after a rewind."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read(), name=f"hub: output of {self._session_id}")

    def stop(self) -> None:
        """Stop reading, and pass nothing on that was read: another session may have the id now."""
        self._news.clear()
        if self._task is not None:
            self._task.cancel()

    async def _read(self) -> None:
        with suppress(PausepointError, OSError):  # the hub itself reports a store that cannot be read
            async for item in self._engine.session(self._session_id).stream(self._last, until="ended"):
                self._last = item.n
                if not self._news:
                    asyncio.get_running_loop().call_soon(self._pass_on)
                self._news.append(encoded("token", history_documents.stream_item(self._session_id, item)))

    def _pass_on(self) -> None:
        """Tell what was read without a break as one part. Else much output at a time would make all clients slow."""
        parts, self._news = self._news, []
        if not parts:  # it was stopped
            return
        self.kept.extend(parts)
        self._size += sum(map(len, parts))
        while self._size > SIZE:
            self._size -= len(self.kept.popleft())
        self._tell(self._session_id, b"".join(parts))
