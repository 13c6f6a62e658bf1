"""Retries: how long to wait before the next attempt, and when to give up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from math import isfinite, log

import msgspec

from pausepoint.errors import MapFailed


class Retry(msgspec.Struct, frozen=True):
    """A retry policy with exponential backoff.

    The first wait is ``first`` seconds. Each further wait is ``factor`` times as long, up to ``longest``. ``jitter``
    varies each wait by up to this share in both directions, so that many sessions do not retry at the same moment.
    ``on`` lists the errors that are retried. An error can set ``retry_after`` to ask for a longer wait, and
    ``retryable = False`` to prevent a retry. A `MapFailed` or an ``ExceptionGroup`` is retried if each error in it
    would be, after the longest of their waits.

    >>> Retry(attempts=5, jitter=0).delay(3, OSError(), lambda: 0.5, datetime(2024, 1, 1))
    4.0
    """

    attempts: int = 3
    first: float = 1.0
    factor: float = 2.0
    longest: float = 60.0
    jitter: float = 0.5
    on: tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        _check_attempts(self.attempts)
        for name, least, most in (("first", 0, None), ("factor", 1, None), ("longest", 0, None), ("jitter", 0, 1)):
            _check_number(name, getattr(self, name), least, most)
        _check_errors(self.on)

    def delay(self, attempt: int, error: BaseException, random: Callable[[], float], now: datetime) -> float | None:
        """Return the seconds to wait after attempt number ``attempt`` (from 1) raised ``error``; None means give up.

        ``random`` returns numbers from 0 up to 1. ``now`` must be an aware time.
        """
        if attempt >= self.attempts or not self._may_help(error):
            return None
        wait = self._backoff(attempt) * (1 + self.jitter * (2 * random() - 1))
        return max([wait, *(retry_after(each, now) or 0.0 for each in (error, *inside_of(error)))])

    def _may_help(self, error: BaseException) -> bool:
        """Return whether a retry can help. One error that a retry cannot fix is enough to give up."""
        inside = list(inside_of(error))
        if any(getattr(each, "retryable", True) is False for each in (error, *inside)):
            return False
        return isinstance(error, self.on) or (bool(inside) and all(isinstance(each, self.on) for each in inside))

    def _backoff(self, attempt: int) -> float:
        if self.first == 0 or self.longest == 0:
            return 0.0
        # Logarithms are compared because the power itself may overflow a float.
        if log(self.first) + (attempt - 1) * log(self.factor) >= log(self.longest):
            return float(self.longest)
        return float(self.first * self.factor ** (attempt - 1))


def inside_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the single errors in a group or a `MapFailed`, at any depth; nothing for a plain error."""
    groups: tuple[BaseException, ...] = ()
    if isinstance(error, BaseExceptionGroup):
        groups = error.exceptions
    elif isinstance(error, MapFailed):
        groups = error.errors
    for each in groups:
        yield from list(inside_of(each)) or [each]


def retry_after(error: BaseException, now: datetime) -> float | None:
    """Return the wait that an error asks for, in seconds from ``now``; None if it has no valid ``retry_after``.

    >>> error = OSError()
    >>> error.retry_after = "30"
    >>> retry_after(error, datetime(2024, 1, 1))
    30.0
    """
    asked = getattr(error, "retry_after", None)
    if isinstance(asked, timedelta):
        return max(0.0, asked.total_seconds())
    if isinstance(asked, datetime):
        # A time without a zone is ambiguous.
        return None if asked.tzinfo is None else max(0.0, (asked - now).total_seconds())
    if isinstance(asked, bool) or not isinstance(asked, int | float | str):
        return None
    try:
        seconds = float(asked)
    except (ValueError, OverflowError):
        return None
    return max(0.0, seconds) if isfinite(seconds) else None


# The checks take objects, because callers without a type checker may pass anything.


def _check_attempts(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"attempts is {value!r}. It must be a whole number of 1 or more (1 means no retry).")


def _check_number(name: str, value: object, least: float, most: float | None) -> None:
    limit = f"at least {least}" if most is None else f"from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(f"{name} is {value!r}. It must be a number, {limit}.")
    if value < least or (most is not None and value > most):
        raise ValueError(f"{name} is {value!r}. It must be {limit}.")


def _check_errors(value: object) -> None:
    errors = value if isinstance(value, tuple) else (None,)
    if not all(isinstance(error, type) and issubclass(error, BaseException) for error in errors):
        raise ValueError(f"on is {value!r}. It must be a tuple of exception classes, such as (TimeoutError,).")
