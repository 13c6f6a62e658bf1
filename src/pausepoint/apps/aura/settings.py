"""Turn settings into the starting state of a session, or refuse them before anything is stored."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from pausepoint.apps.aura import classroom_sync
from pausepoint.apps.aura.free_time import free_week, odd_events
from pausepoint.apps.aura.language import Speech, doubts_said
from pausepoint.apps.aura.models import AuraState
from pausepoint.apps.calendars.events import reads_calendars
from pausepoint.apps.input import BadInput, known_zone, local_zone, refusal
from pausepoint.apps.words import one_line

SAMPLE = Path(__file__).parent / "sample_data"
SAMPLE_STUDENT = "student-1"
SAMPLE_SETTINGS: dict[str, Any] = {
    "data": SAMPLE,
    "time_zone": "Europe/Lisbon",
    "now": "2030-03-04T07:30",
}
"""The sample has fixed dates, so it also fixes the time from which to plan."""


WITHOUT_CALENDAR = "The sample runs without its calendar. Install the libraries for it: pip install 'pausepoint[apps]'"


def lacks_calendar(settings: Mapping[str, Any]) -> bool:
    """Return whether the sample runs without its calendar, which changes the plan and is worth a warning."""
    return all(settings.get(name) is None for name in ("data", "calendar")) and not reads_calendars()


def sample_settings() -> dict[str, Any]:
    """Return the settings of the sample, with its calendar if calendars can be read."""
    return SAMPLE_SETTINGS | ({"calendar": SAMPLE / "calendar.ics"} if reads_calendars() else {})


def starting(student_id: str, **settings: Any) -> AuraState:
    """Return the state of a new session. Settings are fields of `AuraState`; without ``data``, the sample is used.

    Files are read here as well, so that a broken file is refused now and not in the middle of a session.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if "data" not in given:
        given = sample_settings() | given
    try:
        state = AuraState(student_id=student_id, **_settled(given))
    except ValidationError as error:
        raise refusal(error) from None
    checked = classroom_sync.check(state.student_id, state.data, state.time_zone, state.dates)
    _check_reports(state.reports)
    speech = Speech(state.language, ZoneInfo(state.time_zone), state.now or datetime.now(UTC))
    notes = [*doubts_said(checked.doubts, speech), *calendar_notes(state)]
    return state.model_copy(update={"name": state.name or one_line(checked.name), "notes": notes})


def calendar_notes(state: AuraState) -> list[str]:
    """Return what there is to say about odd events, or refuse a file that is not a calendar."""
    hours, now = (state.day_start, state.day_end), state.now or datetime.now(UTC)
    week = free_week(now, state.days, hours, state.time_zone, state.calendar)
    return odd_events(week.skipped, Speech(state.language, ZoneInfo(state.time_zone), now))


def _check_reports(folder: Path) -> None:
    """Refuse a folder that cannot take the report, before the work starts."""
    there = next(place for place in (folder, *folder.parents) if os.path.exists(place))
    if not there.is_dir():
        raise BadInput(f"reports: {there} is not a folder. Name a folder instead.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise BadInput(f"reports: The folder {there} is not writable. Name another folder.")


def _settled(given: dict[str, Any]) -> dict[str, Any]:
    """Normalise settings: one place becomes a list, and a time without a zone is in the student's time zone."""
    unknown = given.keys() - AuraState.model_fields.keys()
    if unknown:
        raise BadInput(f"{min(unknown)}: There is no such setting. Settings: {', '.join(AuraState.model_fields)}.")
    data = given["data"]
    settled = given | {"data": [str(place) for place in ([data] if isinstance(data, str | Path) else data)]}
    if "now" in given:
        settled["now"] = _moment(given["now"], given.get("time_zone") or local_zone())
    return settled


def _moment(given: date | datetime | str, time_zone: str) -> datetime:
    try:
        zone = ZoneInfo(known_zone(time_zone))
    except ValueError as error:
        raise BadInput(f"time_zone: {error}") from None
    try:
        found = given if isinstance(given, date) else datetime.fromisoformat(given)
    except ValueError:
        raise BadInput(f"now: {given!r} is not a date or time. Write 2030-03-04 or 2030-03-04T07:30.") from None
    moment = found if isinstance(found, datetime) else datetime.combine(found, time.min)
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)
