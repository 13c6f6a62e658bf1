"""Format times in the student's time zone, with the day of the week."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo


def day_of(moment: datetime, zone: ZoneInfo) -> str:
    """Return the day.

    >>> from datetime import UTC
    >>> day_of(datetime(2030, 3, 4, 23, 30, tzinfo=UTC), ZoneInfo("Asia/Tokyo"))
    'Tue 5 Mar 2030'
    """
    local = moment.astimezone(zone)
    return f"{local:%a} {local.day} {local:%b %Y}"


def time_of(moment: datetime, zone: ZoneInfo) -> str:
    """Return the time of day."""
    return f"{moment.astimezone(zone):%H:%M}"


def said(moment: datetime, zone: ZoneInfo) -> str:
    """Return the day and time."""
    return f"{day_of(moment, zone)}, {time_of(moment, zone)}"
