"""One thread that keeps the lease of an engine, and looks for changes.

It looks for changes every second. A notification of another engine is only a hint: it names the sessions that the
other engine has changed, so that this one need not look at all of its own.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pausepoint.name import NAME
from pausepoint.stores.base import OnChange
from pausepoint.stores.postgres import charges
from pausepoint.stores.postgres.about import clock_skew
from pausepoint.stores.postgres.connection import Connection
from pausepoint.stores.postgres.engines import BEAT, OwnEngine, boot_time
from pausepoint.stores.postgres.errors import LOST
from pausepoint.stores.postgres.notices import keys_of
from pausepoint.stores.postgres.place import Place
from pausepoint.stores.postgres.schema import LEASED
from pausepoint.stores.postgres.threads import Link

logger = logging.getLogger(NAME)

MOST_SKEW = 1.0
"""Seconds by which the clocks of this machine and of the server may differ without a warning."""


class Watch:
    """Watches a store until `stop`. ``on_change`` is called on the loop."""

    def __init__(
        self, place: Place, engine: OwnEngine, begin_again: Callable[[int, Callable[[], None]], None], channel: str,
        poll: float, on_change: OnChange,
    ) -> None:  # fmt: skip
        self._begin_again = begin_again
        self._place, self._engine, self._channel, self._poll = place, engine, channel, poll
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._link = Link(place, lambda: None, LEASED)
        self._stop = threading.Event()
        self._bell, self._rings = socket.socketpair()  # a byte in `_rings` ends a wait for notifications
        self._listens = self._fails = False
        self._told: set[int] = set()  # the sessions that notifications name
        self._anything = True  # anything may have changed
        self._look_at = 0.0
        self._seen: Any = None
        self._beat_at = boot_time() + BEAT
        self._lost = 0
        self._is_skewed: bool | None = None  # not known yet
        self.news = False
        self._thread = threading.Thread(target=self._run, name=f"{NAME}-watch", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._stop.set()
        self._ring()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._wait()
                self._look()
                self._fails = False
            except Exception as exc:  # without this thread, the lease ends
                self._report(exc)
                self._link.drop()
                self._engine.lost_connection()
                self._listens = False
                self._anything = True  # a notification may be lost
                self._stop.wait(min(self._poll, 0.5))
        self._link.drop()
        self._bell.close()
        self._rings.close()

    def _ring(self) -> None:
        """Let the thread look at once whether it has to do something. May be called in any thread."""
        with suppress(OSError):  # the thread has ended
            self._bell.send(b"!")

    def _report(self, exc: Exception) -> None:
        """Log the first error of an outage."""
        fails, self._fails = self._fails, True
        if fails:
            return
        if isinstance(exc, LOST):
            logger.warning("%s: the watch lost its connection (%s) and connects again", self._place.shown, exc)
        else:
            logger.error("%s: the watch failed and begins again", self._place.shown, exc_info=exc)

    def _wait(self) -> None:
        """Wait for a notification of another engine, but not longer than until the next look or beat."""
        connection = self._link.connection
        seconds = max(min(self._look_at, self._beat_at) - boot_time(), 0.0)
        if not self._place.prepare:
            self._stop.wait(seconds)
            return
        if not self._listens:
            connection.raw.execute(f'LISTEN "{self._channel}"')
            self._listens = True
        end = time.monotonic() + seconds
        while not self._stop.is_set() and (left := end - time.monotonic()) > 0:
            found = list(connection.raw.notifies(timeout=0))
            notices = [each for each in found if each.pid != self._engine.backend]
            for notice in notices:
                keys = keys_of(notice.payload)
                self._anything = self._anything or keys is None
                self._told |= keys or set()
            if notices:
                self.news = True
                return
            if self._anything:
                return  # this engine has another lease
            if found:
                continue
            waits = select.poll()
            for readable in (connection.raw, self._rings):
                waits.register(readable, select.POLLIN)
            if any(number == self._rings.fileno() for number, _ in waits.poll(left * 1000)):
                self._rings.recv(64)

    def _look(self) -> None:
        connection = self._link.connection
        self._engine.look(connection)
        beats = boot_time() >= self._beat_at
        if beats:
            self._beat(connection)
        elif self._is_skewed is None:
            self._compare_clocks(connection)
        anything, self._anything = self._anything, False
        told, self._told = self._told, set()
        if anything or boot_time() >= self._look_at:
            connection.begin(reads=True)
            found = connection.execute(connection.queries["news"]).get
            connection.commit()
            anything, self._seen = anything or found != self._seen, found
            self._look_at = boot_time() + self._poll
        if anything or told:
            self.news = False
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._on_change, None if anything else frozenset(told))
        if beats:
            charges.fold(connection)

    def _beat(self, connection: Connection) -> None:
        """Renew the lease."""
        lost = self._engine.beat(connection)
        if lost is not None:
            self._lose(lost)
        self._compare_clocks(connection)
        self._beat_at = boot_time() + BEAT

    def _compare_clocks(self, connection: Connection) -> None:
        """Warn if the clock of this machine and that of the server begin to differ by more than `MOST_SKEW`."""
        before, sent = time.perf_counter(), time.time()
        there = connection.execute(connection.queries["clock"]).get
        seconds = clock_skew(sent, time.perf_counter() - before, there) / 1e6
        was, self._is_skewed = self._is_skewed, abs(seconds) > MOST_SKEW
        if self._is_skewed and not was:
            logger.warning(
                "%s: the clock of the server is %.1f s %s that of this machine. Timers and schedules of engines on"
                " several machines fire early or late. Keep the clocks in step, for example with NTP.",
                self._place.shown, abs(seconds), "ahead of" if seconds > 0 else "behind",
            )  # fmt: skip

    def _lose(self, number: int) -> None:
        """Become another engine, after the commits that are on their way under the former number."""
        if number == self._lost:
            return  # the writer is at it
        self._lost = number
        logger.warning("%s: this engine lost its lease; its sessions stop at their last record", self._place.shown)
        self._begin_again(number, self._wake)

    def _wake(self) -> None:
        if self._engine.number == self._lost:
            self._lost = 0  # the writer could not get another lease; the next beat asks it again
        self._anything = self.news = True
        self._ring()
