"""The pause of everything while it is requested in the flag file and is not stored yet.

A process that is suspended in the middle of a write keeps the database locked. A pause of everything must not wait
until it goes on. So the request is written into the flag file first. Every engine of the store then reads its
sessions as asked to pause, and its next transaction stores the request before it does anything else.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import apsw
from msgspec.structs import replace

from pausepoint.errors import StoreUnavailable
from pausepoint.model.commits import Flags
from pausepoint.model.sessions import Pause, PauseMode
from pausepoint.name import NAME
from pausepoint.stores.pause_flag import PauseFlag, Version
from pausepoint.stores.sql import standing
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sqlite.sql import QUERIES
from pausepoint.stores.text import of_pause
from pausepoint.threads import in_thread

logger = logging.getLogger(NAME)

NOTICE = 2.0
"""Seconds after which a request that cannot be stored says why."""

T = TypeVar("T")


def applied(asked: Pause | None, flags: Flags) -> Flags:
    """Return the flags of a session as a request that is not stored yet changes them."""
    if asked is None:
        return flags
    mode: PauseMode = "abort" if "abort" in (flags.pause_mode, asked.mode) else "finish"
    return replace(flags, pause_requested=True, pause_mode=mode)


class EverythingRequest:
    """The request of one store. A store in memory has no flag file."""

    def __init__(self, path: str, in_memory: bool) -> None:
        self.path = path
        self.flag = None if in_memory else PauseFlag(Path(f"{path}-paused"))

    def version(self) -> Version:
        return None if self.flag is None else self.flag.version()

    def pending(self, connection: Connection) -> Pause | None:
        """Return the request that is not stored, as far as the connection sees; None if there is none."""
        if self.flag is None or (asked := self.flag.request()) is None:
            return None
        if connection.execute(QUERIES["is_requested"], (asked.created_at,)).get:
            self.flag.fulfil(asked)
            return None
        return asked

    def store(self, connection: Connection, is_alive: Callable[[int], bool]) -> None:
        """Store the request at the beginning of a transaction."""
        if (asked := self.pending(connection)) is not None:
            standing.start(connection, of_pause(asked), is_alive)

    async def insist(self, pause: Pause, stands: bool, act: Callable[[], Awaitable[T]]) -> T:
        """Request a pause in the flag file, then store it with ``act``, however long the database is locked.

        A pause that ``stands`` already has its file. What was requested stays so if the caller is cancelled meanwhile.
        """
        if self.flag is None:
            return await act()
        while True:
            if not stands and self.flag.request() is None:
                with suppress(OSError):  # the engine says so once the pause is stored
                    await in_thread(self.flag.ask, pause)
            notice = asyncio.get_running_loop().call_later(NOTICE, self._say, self.flag)
            try:
                return await act()
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, apsw.BusyError):
                    self._withdraw(self.flag, pause)
                    raise
            finally:
                notice.cancel()

    def _withdraw(self, flag: PauseFlag, pause: Pause) -> None:
        """Remove the request, because the caller gets an error. A pause that another caller asked for stays."""
        if (asked := flag.request()) is not None and asked.id == pause.id:
            with suppress(OSError):
                flag.remove()

    def _say(self, flag: PauseFlag) -> None:
        """Log what keeps the pause from being stored, in a thread: finding out takes some milliseconds."""
        threading.Thread(target=self._warn, args=(flag,), name=f"{NAME}-blockers", daemon=True).start()

    def _warn(self, flag: PauseFlag) -> None:
        from pausepoint.stores.sqlite import blockers  # only a locked database needs it

        meanwhile = f" Its flag file {flag.path} is written: no engine and no gate begins anything new."
        logger.warning(
            "%s: the pause of everything is not stored yet, because the database is locked.%s %s. Then the pause is"
            " stored.", self.path, "" if flag.version() is None else meanwhile, blockers.way_out(self.path),
        )  # fmt: skip
