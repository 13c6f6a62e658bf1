"""The plan as iCalendar. A later plan has the same events, so importing it again updates a calendar.

An event's UID depends on the session and on the course, topic and section where the row begins. Its sequence number
rises when the row changes, and never falls. Rows that a later plan does not have are cancelled, unless they are done or
skipped: those stay in a calendar as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from pausepoint.apps.planner.models import PlanningState, PlanRow, UserInputs

DOMAIN = "@planner.pausepoint"
PRIORITY = {"high": 1, "medium": 5, "low": 9}


def as_calendar(
    planning: PlanningState, inputs: UserInputs, statuses: Mapping[str, str], session_id: str, made: datetime,
    marking: Callable[[str], str],
) -> str:  # fmt: skip
    """Return the work and the midterms of a plan. Days without work have no event.

    ``marking`` returns the command that marks a row as done, given its id.
    """
    zone = ZoneInfo(inputs.timezone)
    stamp = planning.made_at or made
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Pausepoint//Study planner//EN", "CALSCALE:GREGORIAN",
             "METHOD:PUBLISH", "X-WR-CALNAME:Study plan"]  # fmt: skip
    for row in planning.plan_rows:
        if row.row_id:
            when_done = f"\nWhen it is done: {marking(row.row_id)}" if row.estimated_minutes else ""
            lines += _event(row, session_id, stamp, zone, statuses.get(row.row_id, "planned"), when_done)
    for row in planning.withdrawn:
        if statuses.get(row.row_id, "planned") == "planned":
            lines += _event(row, session_id, stamp, zone, "withdrawn")
    lines.append("END:VCALENDAR")
    return "".join(f"{_folded(line)}\r\n" for line in lines)


def _event(
    row: PlanRow, session_id: str, stamp: datetime, zone: ZoneInfo, status: str, when_done: str = ""
) -> list[str]:  # fmt: skip
    minutes = f" ({row.estimated_minutes} min)" if row.estimated_minutes else ""
    mark = {"done": "✓ ", "skipped": "– "}.get(status, "")
    sources = f"\nFrom {'; '.join(row.source_files)}" if row.source_files else ""
    return [
        "BEGIN:VEVENT",
        f"UID:{_escaped(f'{session_id}-{row.row_id}{DOMAIN}')}",
        # a mark changes the text of an event, so it counts as a change
        f"SEQUENCE:{2 * row.sequence + (status in ('done', 'skipped'))}",
        f"DTSTAMP:{_utc(stamp)}",
        *_times(row, zone),
        f"SUMMARY:{_escaped(f'{mark}{row.course}: {row.topic}{minutes}')}",
        f"DESCRIPTION:{_escaped(row.task_description + sources + when_done)}",
        f"CATEGORIES:{_escaped(row.course)}",
        f"PRIORITY:{PRIORITY[row.priority]}",
        f"STATUS:{'CANCELLED' if status == 'withdrawn' else 'CONFIRMED'}",
        f"TRANSP:{'OPAQUE' if row.starts_at else 'TRANSPARENT'}",
        f"X-PAUSEPOINT-TOPIC:{_escaped(row.topic)}",
        f"X-PAUSEPOINT-MINUTES:{row.estimated_minutes}",
        "END:VEVENT",
    ]


def _times(row: PlanRow, zone: ZoneInfo) -> Sequence[str]:
    if row.starts_at is None:
        return (
            f"DTSTART;VALUE=DATE:{row.date:%Y%m%d}",
            f"DTEND;VALUE=DATE:{row.date + timedelta(days=1):%Y%m%d}",
        )
    start = datetime.combine(row.date, row.starts_at, zone)
    end = start.astimezone(UTC) + timedelta(minutes=row.estimated_minutes)
    return f"DTSTART:{_utc(start)}", f"DTEND:{_utc(end)}"


def _utc(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _escaped(text: str) -> str:
    for sign in "\\;,":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", "\\n")


def _folded(line: str) -> str:
    """Fold a line to at most 75 bytes, never in the middle of a character.

    >>> _folded("x" * 80).split("\\r\\n ")[1]
    'xxxxx'
    """
    pieces: list[str] = []
    piece = ""
    for sign in line:
        if len((piece + sign).encode()) > (75 if not pieces else 74):
            pieces.append(piece)
            piece = ""
        piece += sign
    return "\r\n ".join([*pieces, piece])
