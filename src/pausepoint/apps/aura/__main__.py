"""``python -m pausepoint.apps.aura``: the command line of Aura. Without options it runs its sample."""

from __future__ import annotations

from datetime import time
from pathlib import Path
from typing import Annotated

import click
from pydantic import Field

from pausepoint import Outcome, program
from pausepoint.apps.aura.models import AuraState
from pausepoint.apps.aura.settings import SAMPLE_STUDENT, WITHOUT_CALENDAR, lacks_calendar, starting
from pausepoint.apps.aura.workflow import aura
from pausepoint.cli import Start

HELP = """Organise a student's week: gather assignments, assess mastery, plan the days, and write a report.

Without --data, Aura runs on a small made-up sample.
"""


def begin(
    start: Start,
    student: Annotated[str, Field(description="The student's id or e-mail address in the data.")] = SAMPLE_STUDENT,
    data: Annotated[
        list[str] | None, Field(description="A folder with an export, a .csv file, or classroom:TOKEN.json.")
    ] = None,
    calendar: Annotated[Path | None, Field(description="An iCalendar file. Its events are busy time.")] = None,
    time_zone: Annotated[str | None, Field(description="Such as Europe/Lisbon. Default: this machine's.")] = None,
    now: Annotated[str | None, Field(description="Plan from this day or time. Default: the session's start.")] = None,
    day_start: Annotated[time | None, Field(description="No work before this time of day. Default: 15:00.")] = None,
    day_end: Annotated[time | None, Field(description="No work after this time of day. Default: 20:00.")] = None,
    days: Annotated[int | None, Field(description="The number of days to plan. Default: 7.")] = None,
    limit: Annotated[int | None, Field(description="The maximum minutes of work per day. Default: 120.")] = None,
    reports: Annotated[
        Path | None, Field(description="The folder for the report. Default: aura/ next to the store.")
    ] = None,
) -> AuraState:
    """Return the starting state for the given options."""
    if lacks_calendar({"data": data, "calendar": calendar}):
        click.echo(f"aura: {WITHOUT_CALENDAR}", err=True)
    return starting(
        student, data=data or None, calendar=calendar, time_zone=time_zone, now=now, day_start=day_start,
        day_end=day_end, days=days, limit=limit, reports=reports or start.folder / "aura",
    )  # fmt: skip


def result(outcome: Outcome[AuraState]) -> str:
    """Return the text to print at the end."""
    state = outcome.state
    assert state.report is not None
    lines = [
        *state.report.summary,
        f"Stress: {state.report.stress} ({state.report.stress_because}).",
        *state.advice,
        f"Report: {state.report.markdown}",
        f"        {state.report.html}",
    ]
    return "\n".join(lines)


main = program(aura, begin=begin, result=result, help=HELP)

if __name__ == "__main__":
    main()
