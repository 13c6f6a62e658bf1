"""Whether the disk lets a store write; what is said while it does not, and when to look again."""

from __future__ import annotations

import time
from collections.abc import Callable

import apsw

from pausepoint.clock import to_datetime
from pausepoint.errors import StoreError, StoreReadOnly
from pausepoint.stores.sqlite.errors import DISK, Hint, hint, is_full, translated
from pausepoint.stores.sqlite.schema import Place

FIRST_WAIT = 0.1  # seconds between looks at a disk that refused; each wait is twice the one before, …
LONGEST_WAIT = 5.0  # … up to this

_UNREADABLE = Hint("the database cannot be read", "Look at the system's log")
_LOW = Hint("the disk is full (another process met it)", "Free some space on it")


class Trouble:
    """What one store has met. It is read-only as long as ``is_there``.

    The first look at whether it is over may be at once; after that there is a wait between two of them, so that a full
    disk is not asked again with every commit.
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
        self.is_there = False

    def met(self, exc: apsw.Error | UnicodeDecodeError) -> StoreError:
        """The error to raise for what was met in a write. If it is the disk, the store is read-only from now on."""
        known = hint(exc) if isinstance(exc, DISK) and self._on_disk else None
        if known is None:
            return translated(exc, self._path)
        self._begin(known, exc)
        return self.refusal()

    def unknown(self, exc: apsw.Error, second: apsw.Error) -> StoreReadOnly:
        """The error for a commit that failed and cannot be looked up."""
        self._begin(hint(second) or _UNREADABLE, second)
        return StoreReadOnly(
            f"{self._path}: a commit failed ({exc}) and the database cannot be read ({second});"
            " whether it was written shows when it can be. Repair the disk, then resume the session",
            path=self._path,
            full=False,
        )

    def begin_low(self) -> None:
        """Somebody else met a full disk: the ballast is short."""
        self._begin(_LOW, None)

    def _begin(self, hint: Hint, cause: BaseException | None) -> None:
        self._hint, self._cause = hint, cause
        if not self.is_there:
            self._since, self._next_look, self._wait = self._now(), 0.0, FIRST_WAIT
            self.is_there = True

    def is_due(self) -> bool:
        """Whether to look again now; if so, the next look is later."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + self._wait
        self._wait = min(2 * self._wait, LONGEST_WAIT)
        return True

    def wait(self) -> float:
        """Seconds until the next look."""
        return max(self._next_look - time.monotonic(), FIRST_WAIT)

    def is_over(self) -> None:
        """Something was written, and synced."""
        self.is_there, self._cause = False, None

    def __str__(self) -> str:
        since = to_datetime(self._since).isoformat(timespec="seconds")
        return f"read-only since {since}: {self._hint.happened}{self._said()}. {self._hint.way_out}"

    def _said(self) -> str:
        return f" ({self._cause})" if self._cause else ""

    def refusal(self) -> StoreReadOnly:
        """The error for a verb that would write."""
        running = self._running()
        stay = f", what runs here ({running}) stays where its last record says" if running else ""
        since = to_datetime(self._since).isoformat(timespec="seconds")
        error = StoreReadOnly(
            f"{self._path}: {self._hint.happened}; nothing was written{self._said()}. Read-only since {since}: what was"
            f" acknowledged is kept, reading works{stay}. {self._hint.way_out}; the store becomes"
            " writable by itself, then resume what was running",
            path=self._path,
            full=self._cause is None or is_full(self._cause),
        )
        error.__cause__ = self._cause
        return error
