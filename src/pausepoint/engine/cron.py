"""The times of a cron expression in a time zone.

Times that a change of the clocks skips or repeats are as in Debian's cron. A run at a fixed time that does not exist
starts when the clocks have changed; one at a time that exists twice starts once, the first time. Expressions with ``*``
for the minute or the hour follow the clock on the wall: an hour that does not exist is left out, a repeated one counts
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pausepoint.clock import to_datetime, to_micros
from pausepoint.errors import ScheduleRefused
from pausepoint.model.ids import shortened

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

REPEATED = 3 * 3_600_000_000
"""Microseconds. No change of the clocks repeats more than this."""


def check_cron(cron: str, zone: str) -> None:
    """Raise `ScheduleRefused` if the expression or the zone is not valid, or if the expression never matches."""
    if len(str(cron).split()) != 5 or len(cron) > 200:
        raise ScheduleRefused(
            f"{shortened(cron)} is not a cron expression. Use five fields: minute, hour, day of the month, month, day"
            " of the week. '0 7 * * 1-5' is 07:00 from Monday to Friday."
        )
    next_after(cron, zone, 0)


def next_after(cron: str, zone: str, after: int) -> int:
    """Return the first time of the expression after a time."""
    for found in _times(cron, zone, after):
        if found > after:  # a repeated hour may return a time before it
            return found
    raise ScheduleRefused(f"The cron expression {cron!r} has no time in the next 50 years. Correct its day or month.")


def newest(cron: str, zone: str, first: int, now: int) -> int:
    """Return the last time of the expression from ``first`` to ``now``. ``first`` is one of its times."""
    # From beyond a repeated hour, so that its first pass is found as well.
    earlier = (at for at in _times(cron, zone, now + REPEATED, reverse=True) if at <= now)
    return max(first, next(earlier, first))


def _times(cron: str, zone: str, start: int, reverse: bool = False) -> Iterator[int]:
    from cronsim import CronSim, CronSimError  # imported here because most programs have no schedule

    try:
        times = CronSim(cron, to_datetime(start).astimezone(_zone(zone)), reverse)
    except CronSimError as exc:
        if _lacks_day(cron):
            raise ScheduleRefused(
                f"The cron expression {cron!r} never matches, because its month has no such day. Correct its day or"
                " month."
            ) from exc
        raise ScheduleRefused(
            f"{shortened(cron)} is not a cron expression ({str(exc)[:1].lower()}{str(exc)[1:]}). '0 7 * * 1-5' is"
            " 07:00 from Monday to Friday."
        ) from exc
    return (to_micros(each.astimezone(UTC)) for each in times)


def _lacks_day(cron: str) -> bool:
    """Return whether an expression that is refused would be valid with another month."""
    from cronsim import CronSim, CronSimError

    minute, hour, day, month, weekday = cron.split()
    try:
        CronSim(f"0 0 1 {month} *", datetime.now(UTC))
        CronSim(f"{minute} {hour} {day} * {weekday}", datetime.now(UTC))
    except CronSimError:
        return False
    return True


def _zone(zone: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo  # imported here because most programs have no schedule

    try:
        return ZoneInfo(zone)
    except (KeyError, ValueError, OSError, TypeError, AttributeError) as exc:
        raise ScheduleRefused(
            f"{shortened(zone)} is not a time zone that this machine knows. Use a name such as 'Europe/Berlin' or"
            " 'UTC'. If all names are unknown, install the package tzdata."
        ) from exc


def local(at: int | datetime, zone: str) -> datetime:
    """Return a time in a zone, for people."""
    return (to_datetime(at) if isinstance(at, int) else at).astimezone(_zone(zone))
