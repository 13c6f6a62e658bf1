"""What a session starts with: settings become a state, or a refusal before anything is stored."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from pausepoint.apps.aura import classroom_sync
from pausepoint.apps.aura.free_time import free_days, reads_calendars
from pausepoint.apps.aura.models import AuraState
from pausepoint.apps.input import BadInput, known_zone, local_zone, refusal

SAMPLE = Path(__file__).parent / "sample_data"
SAMPLE_STUDENT = "student-1"
SAMPLE_SETTINGS: dict[str, Any] = {
    "data": SAMPLE,
    "time_zone": "Europe/Lisbon",
    "now": "2030-03-04T07:30",
}
"""The sample has dates of its own, so it brings the moment that they belong to."""


WITHOUT_CALENDAR = "the sample runs without its calendar, which needs: pip install 'pausepoint[apps]'"


def lacks_calendar(settings: Mapping[str, Any]) -> bool:
    """Whether the sample would run, and its calendar cannot be read: to be told, for the plan is another one then."""
    return all(settings.get(name) is None for name in ("data", "calendar")) and not reads_calendars()


def sample_settings() -> dict[str, Any]:
    """Those of the sample; with its calendar, where calendars can be read."""
    return SAMPLE_SETTINGS | ({"calendar": SAMPLE / "calendar.ics"} if reads_calendars() else {})


def starting(student_id: str, **settings: Any) -> AuraState:
    """The state of a new session. Settings are fields of `AuraState`; without ``data`` it is the sample.

    Files are read here, too, so that one that is broken is told now and not in the middle of a session.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if "data" not in given:
        given = sample_settings() | given
    try:
        state = AuraState(student_id=student_id, **_settled(given))
    except ValidationError as error:
        raise refusal(error) from None
    classroom_sync.check(state.student_id, state.data, state.time_zone)
    hours = state.day_start, state.day_end
    free_days(state.now or datetime.now(UTC), state.days, hours, state.time_zone, state.calendar)
    _check_reports(state.reports)
    return state


def _check_reports(folder: Path) -> None:
    """Refuse a place where no report could be left: found out at the end, it would be late."""
    there = next(place for place in (folder, *folder.parents) if os.path.exists(place))
    if not there.is_dir():
        raise BadInput(f"reports: {there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise BadInput(f"reports: nothing can be written to {there}")


def _settled(given: dict[str, Any]) -> dict[str, Any]:
    """One place as a list of one; a day, or a moment without a zone, as it is where the student lives."""
    unknown = given.keys() - AuraState.model_fields.keys()
    if unknown:
        raise BadInput(f"{min(unknown)}: there is no such setting; there are {', '.join(AuraState.model_fields)}")
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
        raise BadInput(f"now: {given!r} is not a moment; write 2030-03-04 or 2030-03-04T07:30") from None
    moment = found if isinstance(found, datetime) else datetime.combine(found, time.min)
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)
