"""Schedules: when sessions of a workflow start on their own.

Nothing here does I/O. Times are microseconds since 1970 (UTC).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec

from pausepoint.errors import ScheduleRefused
from pausepoint.model.ids import SessionId, shortened
from pausepoint.model.sessions import SessionRow

Overlap = Literal["skip", "queue", "allow"]
"""What a run does if the previous session of its schedule has not ended: leave out, wait, or start as well."""

CatchUp = Literal["newest", "all", "none"]
"""Which runs start late, if no engine was there at their time: the newest, all of them, or none."""

LATE_AFTER = timedelta(minutes=1) // timedelta(microseconds=1)
"""A run that starts later than this counts as missed."""

LARGEST_INPUT = 64 * 1024
"""The most bytes of a schedule's input. Pass the name of a file, or an id, instead of large content."""

FIRST_DELAY, LONGEST_DELAY = 60_000_000, 3_600_000_000
"""Microseconds until a run that could not start is tried again. The delay doubles with every failure."""

_LEGAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_RUN = re.compile(r".+@\d{8}T\d{6}(_\d{6})?Z")


class Schedule(msgspec.Struct, frozen=True):
    """The stored facts about one schedule.

    ``input`` are the given fields of the workflow in their stored form, as one JSON object. ``next_at`` is the next
    run. ``triggered_at`` asks for a run as soon as an engine looks. ``last_at`` and ``last_session`` are about the
    latest run. ``skipped`` counts how often runs were left out, because the previous session had not ended; several
    that were left out at once count as one. ``queue``, ``priority`` and ``lane`` are those of each session; None means
    those of the workflow, and the owner as the lane.
    """

    name: str
    workflow: str
    cron: str
    zone: str
    overlap: Overlap
    catch_up: CatchUp
    input: bytes
    owner: str | None
    tags: tuple[str, ...]
    created_at: int
    by: str | None
    next_at: int
    triggered_at: int | None = None
    triggered_by: str | None = None
    paused_at: int | None = None
    paused_by: str | None = None
    last_at: int | None = None
    last_session: str | None = None
    skipped: int = 0
    queue: str | None = None
    priority: int | None = None
    lane: str | None = None

    def is_due(self, now: int) -> bool:
        """Return whether an engine must look at the schedule now."""
        return self.triggered_at is not None or (self.paused_at is None and self.next_at <= now)


class Unfit(NamedTuple):
    """A due schedule that could not start a session, how often that failed, and when it is tried again."""

    schedule: Schedule
    failures: int
    again_at: int

    @classmethod
    def after(cls, before: Unfit | None, schedule: Schedule, now: int) -> Unfit:
        """Return the state after one more failure. The delay starts again if the schedule has changed."""
        failures = before.failures + 1 if before is not None and before.schedule == schedule else 1
        return cls(schedule, failures, now + min(FIRST_DELAY * 2 ** min(failures - 1, 20), LONGEST_DELAY))


class Fired(NamedTuple):
    """What `Store.set_schedule` did. Without ``written``, the schedule has changed since it was read."""

    written: bool
    row: SessionRow | None = None


class ScheduleInfo(msgspec.Struct, frozen=True):
    """A schedule, as front ends show it. ``input`` are the given fields as plain JSON data.

    ``next_at`` is the time of the next run; None while the schedule is paused. ``triggered_at`` is set from a
    `trigger` until an engine has started the session. ``skipped`` counts how often runs were left out, because
    the previous session had not ended; several that were left out at once count as one. ``queue``, ``priority`` and
    ``lane`` are None unless the schedule sets them.
    """

    name: str
    workflow: str
    cron: str
    zone: str
    overlap: Overlap
    catch_up: CatchUp
    input: dict[str, Any]
    owner: str | None
    tags: tuple[str, ...]
    created_at: datetime
    by: str | None
    next_at: datetime | None
    triggered_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    last_at: datetime | None
    last_session_id: str | None
    skipped: int
    queue: str | None = None
    priority: int | None = None
    lane: str | None = None


def check_schedule_name(name: object) -> str:
    """Return a valid name of a schedule, or raise `ScheduleRefused`. It is the beginning of session ids.

    >>> check_schedule_name("nightly")
    'nightly'
    >>> check_schedule_name("a@b")
    Traceback (most recent call last):
    ...
    pausepoint.errors.ScheduleRefused: 'a@b' is not a valid name of a schedule. Use 1 to 64 letters, digits or . _ + -,\
 starting with a letter or digit, without '..'.
    """
    if not isinstance(name, str) or _LEGAL.fullmatch(name) is None or ".." in name:
        raise ScheduleRefused(
            f"{shortened(name)} is not a valid name of a schedule. Use 1 to 64 letters, digits or . _ + -,"
            " starting with a letter or digit, without '..'.",
            name=str(name)[:64],
        )
    return name


def run_id(name: str, at: int, *, triggered: bool = False) -> SessionId:
    """Return the id of the session of a run. The same run always has the same id, so it cannot start twice.

    A triggered run is named to the microsecond, because there may be several in one second.

    >>> run_id("nightly", 1_794_711_600_000_000)
    'nightly@20261115T030000Z'
    >>> run_id("nightly", 1_794_711_600_000_042, triggered=True)
    'nightly@20261115T030000_000042Z'
    """
    seconds, rest = divmod(at, 1_000_000)
    stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y%m%dT%H%M%S}"
    return SessionId(f"{name}@{stamp}_{rest:06}Z" if triggered else f"{name}@{stamp}Z")


def is_run_id(session_id: str) -> bool:
    """Return whether a session has the id of a run.

    >>> is_run_id("nightly@20261115T030000Z"), is_run_id("nightly@20261115T030000_000042Z"), is_run_id("nightly@mine")
    (True, True, False)
    """
    return _RUN.fullmatch(session_id) is not None
