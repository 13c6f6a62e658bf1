"""``python -m pausepoint.apps.aura``: the command line of Aura. Without options it runs its sample."""

from __future__ import annotations

import re
import sys
from datetime import time
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import click
from pydantic import Field

from pausepoint import Engine, Outcome, program
from pausepoint.apps.aura.classroom_sync import only_student
from pausepoint.apps.aura.memory import remembering
from pausepoint.apps.aura.models import LIVE, AuraState
from pausepoint.apps.aura.settings import SAMPLE_STUDENT, WITHOUT_CALENDAR, lacks_calendar, starting
from pausepoint.apps.aura.sources.cells import AmbiguousDates
from pausepoint.apps.aura.sources.sign_in import sign_in
from pausepoint.apps.aura.workflow import aura
from pausepoint.apps.input import BadInput
from pausepoint.cli import Start
from pausepoint.errors import StoreMissing

Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

HELP = """Organise a student's week: gather assignments, assess mastery, plan the days, and write a report.

Without --data, Aura runs on a small made-up sample.
"""


def begin(
    start: Start,
    student: Annotated[
        str | None,
        Field(description="The student's id, e-mail address or name in the data. Default: the only one in it."),
    ] = None,
    data: Annotated[
        list[str] | None,
        Field(description="A Takeout (.zip), a folder with an export, a .csv file, or classroom:TOKEN.json."),
    ] = None,
    name: Annotated[str | None, Field(description="The student's name in the report. Default: as in the data.")] = None,
    language: Annotated[Literal["en", "de"] | None, Field(description="The language of the report.")] = None,
    mail_to: Annotated[str | None, Field(description="The address that the e-mail file is for.")] = None,
    calendar: Annotated[Path | None, Field(description="An iCalendar file. Its events are busy time.")] = None,
    dates: Annotated[
        Literal["day-first", "month-first"] | None, Field(description="How to read 3/4/2030 in a .csv file.")
    ] = None,
    time_zone: Annotated[str | None, Field(description="Such as Europe/Lisbon. Default: this machine's.")] = None,
    now: Annotated[str | None, Field(description="Plan from this day or time. Default: the session's start.")] = None,
    day_start: Annotated[time | None, Field(description="No work before this time of day. Default: 15:00.")] = None,
    day_end: Annotated[time | None, Field(description="No work after this time of day. Default: 20:00.")] = None,
    days: Annotated[int | None, Field(description="The number of days to plan. Default: 7.")] = None,
    limit: Annotated[int | None, Field(description="The maximum minutes of work per day. Default: 120.")] = None,
    reports: Annotated[
        Path | None, Field(description="The folder for the report. Default: aura/ next to the store.")
    ] = None,
    every: Annotated[
        Day | None, Field(description="Make a report every week on this day, at 18:00, instead of one now.")
    ] = None,
) -> AuraState:
    """Return the starting state for the given options."""
    if every is not None and now is not None:
        raise BadInput("now: With --every, each report plans from the time at which it is made. Leave out --now.")
    if lacks_calendar({"data": data, "calendar": calendar}):
        click.echo(f"aura: {WITHOUT_CALENDAR}", err=True)
    if student is None:
        student = only_student(data) if data else SAMPLE_STUDENT
    state = _asked(
        student, data=data or None, name=name, language=language, mail_to=mail_to, calendar=calendar, dates=dates,
        time_zone=time_zone, now=now, day_start=day_start, day_end=day_end, days=days, limit=limit,
        reports=reports or start.folder / "aura",
    )  # fmt: skip
    for note in state.notes:
        click.echo(f"aura: {note}", err=True)
    if every is not None:
        schedule(start, state, every)
        raise click.exceptions.Exit(0)
    try:
        with Engine(start.store, workflows=[aura], create=False, drives="none") as engine:
            return remembering(engine, state)
    except StoreMissing:
        return state


def schedule(start: Start, state: AuraState, day: Day) -> None:
    """Store the schedule of a weekly report, and say what starts it."""
    name = f"aura-{state.student_id}"
    if (plain := re.sub(r"[^A-Za-z0-9_+-]+", "-", name)[:55]) != name:  # other students may have the same plain name
        name = f"{plain}-{sha256(name.encode()).hexdigest()[:8]}"
    # Each report plans from its own start. The sample has a fixed day, and notes are about the calendar of today.
    wanted = AuraState(**{field: getattr(state, field) for field in state.model_fields_set - {"now", "notes"}})
    with Engine(start.store, workflows=[aura], drives="none") as engine:
        cron = f"0 18 * * {day[:3]}"
        made = engine.schedule(name, aura, wanted, cron=cron, zone=state.time_zone, owner=start.owner)
    when = f"{made.next_at.astimezone(ZoneInfo(made.zone)):%Y-%m-%d %H:%M}" if made.next_at else "when it is resumed"
    click.echo(f"Stored schedule {name}: every {day} at 18:00 in {made.zone}. Next report: {when}.")
    click.echo(f"Reports are made while this runs:  {start.command('worker')}", err=True)
    click.echo(f"List, pause or remove it:  {start.command('schedule', 'ls')}", err=True)


def _asked(student: str, **settings: Any) -> AuraState:
    """Return the starting state. At a terminal, ask for the order of day and month if the dates leave it open."""
    try:
        return starting(student, **settings)
    except AmbiguousDates as error:
        if not sys.stdin.isatty():
            raise
        click.echo(f"aura: {error}", err=True)
        wanted = click.prompt("Which comes first in these dates?", type=click.Choice(["day-first", "month-first"]))
        return starting(student, **settings | {"dates": wanted})


def result(outcome: Outcome[AuraState]) -> str:
    """Return the text to print at the end."""
    state = outcome.state
    assert state.report is not None
    files = [state.report.html, state.report.mail, state.report.markdown]
    lines = [
        *state.report.summary,
        state.report.stress_because,
        *state.advice,
        *state.notes,
        *(f"{'Report: ' if not number else '        '}{path}" for number, path in enumerate(filter(None, files))),
    ]
    return "\n".join(lines)


main = program(aura, begin=begin, result=result, help=HELP)


@main.verb(name="sign-in")
@click.option("--client", type=click.Path(path_type=Path), required=True, help="The file of your OAuth client.")
@click.option("--token", type=click.Path(path_type=Path), required=True, help="The file to write the token to.")
def _sign_in(start: Start, client: Path, token: Path) -> tuple[str, dict[str, str]]:
    """Sign in to Google Classroom in a browser, and keep the token."""
    place = f"{LIVE}{sign_in(client, token.absolute())}"
    again = start.command("--student", "me", "--data", place)
    return f"Signed in. Make a report: {again}", {"data": place}


if __name__ == "__main__":
    main()
