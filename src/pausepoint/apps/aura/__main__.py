"""``python -m pausepoint.apps.aura``: the command line of Aura. Without options it runs its sample."""

from __future__ import annotations

import sys
from datetime import time
from pathlib import Path
from typing import Annotated, Any, Literal

import click
from pydantic import Field

from pausepoint import Engine, Outcome, program
from pausepoint.apps.aura.memory import remembering
from pausepoint.apps.aura.models import LIVE, AuraState
from pausepoint.apps.aura.settings import SAMPLE_STUDENT, WITHOUT_CALENDAR, lacks_calendar, starting
from pausepoint.apps.aura.sources.cells import AmbiguousDates
from pausepoint.apps.aura.sources.sign_in import sign_in
from pausepoint.apps.aura.workflow import aura
from pausepoint.cli import Start
from pausepoint.errors import StoreMissing

HELP = """Organise a student's week: gather assignments, assess mastery, plan the days, and write a report.

Without --data, Aura runs on a small made-up sample.
"""


def begin(
    start: Start,
    student: Annotated[
        str, Field(description="The student's id, e-mail address or name in the data.")
    ] = SAMPLE_STUDENT,
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
) -> AuraState:
    """Return the starting state for the given options."""
    if lacks_calendar({"data": data, "calendar": calendar}):
        click.echo(f"aura: {WITHOUT_CALENDAR}", err=True)
    state = _asked(
        student, data=data or None, name=name, language=language, mail_to=mail_to, calendar=calendar, dates=dates,
        time_zone=time_zone, now=now, day_start=day_start, day_end=day_end, days=days, limit=limit,
        reports=reports or start.folder / "aura",
    )  # fmt: skip
    for note in state.notes:
        click.echo(f"aura: {note}", err=True)
    try:
        with Engine(start.store, workflows=[aura], create=False, drives="none") as engine:
            return remembering(engine, state)
    except StoreMissing:
        return state


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
