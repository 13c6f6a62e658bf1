"""Track whether the disk lets a store write, build the errors while it does not, and decide when to check again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import apsw

from pausepoint.clock import to_datetime
from pausepoint.errors import StoreError, StoreReadOnly, StoreRemoved
from pausepoint.stores.sqlite.errors import DISK, Hint, hint, is_full, translated
from pausepoint.stores.sqlite.schema import Place

FIRST_WAIT = 0.1  # seconds between checks of a failing disk; each wait is twice the previous one
LONGEST_WAIT = 5.0  # the upper limit of these waits

_UNREADABLE = Hint("the database cannot be read", "Check the system log")
_LOW = Hint("the disk is full (reported by another process)", "Free some space")
_REMOVED = Hint(
    "the database was removed or replaced while it was open",
    "Put the file back, or close this engine and open the store again",
)


class Trouble:
    """The disk trouble of one store. The store is read-only while ``is_there`` is true.

    The first check whether the trouble is over may run immediately. Later checks are spaced out, so that a full disk is
    not tried again with every commit.
    """

    def __init__(self, place: Place, now: Callable[[], int], running: Callable[[], int]) -> None:
        self._path = place.path
        self._on_disk = not place.in_memory
        self._now = now
        self._running = running
        self._hint = _LOW
        self._cause: BaseException | None = None
        self._since = 0
        self._next_look = 0.0
        self._wait = FIRST_WAIT
        self._file: tuple[int, int] | None = None
        self.is_there = False

    def met(self, exc: apsw.Error | UnicodeDecodeError) -> StoreError:
        """Return the error to raise for a failed write. If the disk is the cause, the store becomes read-only."""
        known = hint(exc) if isinstance(exc, DISK) and self._on_disk else None
        if known is None:
            return translated(exc, self._path)
        self._begin(known, exc)
        return self.refusal()

    def unknown(self, exc: apsw.Error, second: apsw.Error) -> StoreReadOnly:
        """Return the error for a failed commit whose effect cannot be checked, because the database cannot be read."""
        self._begin(hint(second) or _UNREADABLE, second)
        return StoreReadOnly(
            f"{self._path}: a commit failed ({exc}) and the database cannot be read ({second}), so it is not known"
            " whether the commit was written. Repair the disk, then resume the session.",
            path=self._path,
            full=False,
        )

    def remember_file(self) -> None:
        """Remember which file the database is, for `check_file`."""
        self._file = self._identity() if self._on_disk else None

    def check_file(self) -> None:
        """Raise `StoreRemoved` if the path is no longer the file that was opened: what is written goes nowhere."""
        if self._file is not None and self._identity() != self._file:
            self._begin(_REMOVED, None)
            raise self.refusal()

    def _identity(self) -> tuple[int, int] | None:
        try:
            file = os.stat(self._path)
        except OSError:
            return None
        return file.st_dev, file.st_ino

    def begin_low(self) -> None:
        """Become read-only because the ballast is short: another process found the disk full."""
        self._begin(_LOW, None)

    def _begin(self, hint: Hint, cause: BaseException | None) -> None:
        self._hint, self._cause = hint, cause
        if not self.is_there:
            self._since, self._next_look, self._wait = self._now(), 0.0, FIRST_WAIT
            self.is_there = True

    def is_due(self) -> bool:
        """Return whether to check the disk now. If so, schedule the next check."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)
        return True

    def wait(self) -> float:
        """Return the seconds until the next check."""
        return max(self._next_look - time.monotonic(), FIRST_WAIT)

    def is_over(self) -> None:
        """End the trouble, because a write reached the disk."""
        self.is_there, self._cause = False, None

    def __str__(self) -> str:
        since = to_datetime(self._since).isoformat(timespec="seconds")
        return f"read-only since {since}: {self._hint.happened}{self._said()}. {self._hint.way_out}."

    def _said(self) -> str:
        return f" ({self._cause})" if self._cause else ""

    def refusal(self) -> StoreReadOnly:
        """Return the error for a method that would write."""
        running = self._running()
        stay = f" Sessions running in this process ({running}) stop at their last record." if running else ""
        since = to_datetime(self._since).isoformat(timespec="seconds")
        if self._hint is _REMOVED:
            return StoreRemoved(
                f"{self._path}: {_REMOVED.happened}, noticed at {since}. Nothing is stored any more.{stay}"
                f" {_REMOVED.way_out}.",
                path=self._path,
                full=False,
            )
        error = StoreReadOnly(
            f"{self._path}: {self._hint.happened}{self._said()}. Nothing was written. The store has been read-only"
            f" since {since}. Acknowledged writes are kept, and reading works.{stay} {self._hint.way_out}. The store"
            " then becomes writable on its own, and you can resume the sessions.",
            path=self._path,
            full=self._cause is None or is_full(self._cause),
        )
        error.__cause__ = self._cause
        return error
