"""Rates: how many operations may start in a span of time."""

from __future__ import annotations

from datetime import timedelta
from math import isfinite

import msgspec


class Rate(msgspec.Struct, frozen=True):
    """A limit for ``ctx.map``: at most ``count`` attempts start in any span of ``per``, a timedelta or seconds.

    The limit applies to one call of ``map``. Retries count. After a restart or a resume, the count starts again.

    >>> Rate(10, per=timedelta(seconds=1)).seconds
    1.0
    """

    count: int
    per: timedelta | float = 1.0

    def __post_init__(self) -> None:
        if type(self.count) is not int or self.count < 1:
            raise ValueError(f"The count of a Rate is {self.count!r}. It must be a whole number of 1 or more.")
        seconds: object = self.per.total_seconds() if isinstance(self.per, timedelta) else self.per
        if type(seconds) not in (int, float) or not isfinite(self.seconds) or self.seconds <= 0:
            raise ValueError(f"The per of a Rate is {self.per!r}. It must be a timedelta or seconds, above zero.")

    @property
    def seconds(self) -> float:
        """The span in seconds."""
        return self.per.total_seconds() if isinstance(self.per, timedelta) else float(self.per)
