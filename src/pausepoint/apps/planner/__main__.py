"""``python -m pausepoint.apps.planner``: the command line. Without options it runs its sample."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import click
from pydantic import Field

from pausepoint import Engine, Outcome, program
from pausepoint.apps.input import BadInput
from pausepoint.apps.links import link_options, linked
from pausepoint.apps.pdf import reads_pdf
from pausepoint.apps.planner import output, sessions
from pausepoint.apps.planner.dates import read_date, said
from pausepoint.apps.planner.folders import as_listed, expanded
from pausepoint.apps.planner.models import WEEKDAYS, PlannerState, PlanningState, Role, Upload
from pausepoint.apps.planner.options import (
    COURSE,
    EXAM,
    FILE,
    covered_by,
    inputs_of,
    over,
    upload_of,
    with_exams,
)
from pausepoint.apps.planner.progress import Mark, standings
from pausepoint.apps.planner.sample import SAMPLE_INPUTS, WITHOUT_PDF, sample_uploads
from pausepoint.apps.planner.shown import VERDICTS, Shown
from pausepoint.apps.planner.windows import read_hours
from pausepoint.apps.planner.workflow import planner
from pausepoint.apps.words import many, one_line
from pausepoint.cli import Start, command_line
from pausepoint.engine import BlockingEngine, BlockingSession
from pausepoint.errors import UnknownSession

if TYPE_CHECKING:
    from pausepoint.server import Site

HELP = """Plan the days up to the midterms: read the material of every course, estimate its topics, make a plan.

Without --course, the planner runs on a small made-up sample. You can also add courses and files one by one: create,
course, file, then resume.
"""


def begin(
    course: Annotated[list[str] | None, Field(description=f"A course and its midterm: {COURSE}.")] = None,
    exam: Annotated[
        list[str] | None, Field(description=f"What an exam covers: {EXAM}. Default: everything. Repeatable.")
    ] = None,
    file: Annotated[
        list[str] | None, Field(description=f"A file, or a folder as a book: {FILE}. Default: for all courses.")
    ] = None,
    exercises: Annotated[
        list[str] | None, Field(description=f"Problem sheets, to be solved beside their chapters: {FILE}.")
    ] = None,
    old_exam: Annotated[
        list[str] | None, Field(description=f"Old exams, to be solved at the end. They say what matters: {FILE}.")
    ] = None,
    time_zone: Annotated[str | None, Field(description="Such as Europe/Lisbon. Default: this machine's.")] = None,
    start: Annotated[str | None, Field(description="The first day, such as 2030-02-21. Default: today.")] = None,
    max_minutes: Annotated[int | None, Field(description="The maximum minutes of work per day. Default: 240.")] = None,
    rest_day: Annotated[str | None, Field(description="A weekday without work, such as Sunday.")] = None,
    hours: Annotated[
        list[str] | None, Field(description="When you study: '16:00-20:00' or 'Mon-Fri 16:00-20:00'. Repeatable.")
    ] = None,
    busy: Annotated[list[str] | None, Field(description="A calendar (.ics) with your busy times. Repeatable.")] = None,
    empty: Annotated[bool, Field(description="Start without the sample and add courses and files later.")] = False,
) -> PlannerState:
    """Return the starting state for the given options."""
    inputs = inputs_of(course or [], time_zone, start, max_minutes, rest_day, hours or [])
    inputs |= {"courses": with_exams(inputs.get("courses", []), exam)} if exam else {}
    if not (course or file or exercises or old_exam or empty):
        if not reads_pdf():
            click.echo(f"planner: {WITHOUT_PDF}", err=True)
        return _with_busy(sessions.starting(over(SAMPLE_INPUTS, inputs), sample_uploads()), busy or [])
    known = {part.partition(":")[0] for part in course or []}
    roles: dict[Role, list[str]] = {"book": file or [], "exercises": exercises or [], "old_exam": old_exam or []}
    uploads, notes = expanded(upload_of(text, known, role) for role, texts in roles.items() for text in texts)
    _tell(notes)
    return _with_busy(sessions.starting(inputs, uploads), busy or [])


def _with_busy(state: PlannerState, busy: Sequence[str]) -> PlannerState:
    if not busy:
        return state
    return state.model_copy(update={"user_inputs": sessions.with_busy(state.user_inputs, list(map(Path, busy)))})


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        click.echo(f"planner: {note}", err=True)


def result(outcome: Outcome[PlannerState]) -> str:
    """Return the text to print at the end."""
    state = outcome.state
    shown = Shown.of(state)
    lines = [summary(state.planning_state), *(f"- {each}" for each in shown.cuts), *filter(None, [shown.enough])]
    if minutes := state.planning_state.enough_minutes:
        lines.append(f"Plan with it:  {command_line('replan', _name_of(state), '--max-minutes', str(minutes))}")
    lines += [f"Not in the exam: {each}" for each in shown.not_in_exam]
    warnings = shown.warnings
    lines += [f"Warning: {each}" for each in warnings[:5]]
    lines += [f"The plan lists {many(len(warnings) - 5, 'more warning')}."] if len(warnings) > 5 else []
    asked = sum(len(each.questions) for each in shown.self_tests.all())
    lines += [f"Test yourself: {many(asked, 'question')}, listed in the plan."] * bool(asked)
    lines += [f"Not studied: {many(len(shown.set_aside), 'part')} of the files, listed in the plan."] * bool(
        shown.set_aside
    )
    lines.append(f"Plan: {_near(Path(state.artifacts.page_path or ''))} (also as Markdown, CSV and calendar)")
    lines.append(f"Open it:  {command_line('open', _name_of(state))}")
    return "\n".join(lines)


def _name_of(state: PlannerState) -> str:
    """Return the id of a session whose plan is written: the name of its folder."""
    return Path(state.artifacts.page_path or "").parent.name


def _near(path: Path) -> Path:
    """Return a path relative to the working folder if it is in there."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def summary(planning: PlanningState) -> str:
    """Return a plan in one line, and why it was refused if it was."""
    rows, review = planning.plan_rows, planning.review
    minutes = sum(row.estimated_minutes for row in rows)
    days = len({row.date for row in rows if row.estimated_minutes})
    verdict = VERDICTS[review.result_type] if review else "not reviewed yet"
    head = (
        f"Plan {planning.plan_version}, {verdict}: {many(minutes, 'minute')} on {many(days, 'day')}, last midterm"
        f" {said(planning.last_midterm_date) if planning.last_midterm_date else 'unknown'}."
    )
    refused = review.revision_reasons if review and review.result_type == "needs_revision" else []
    more = [f"- and {len(refused) - 3} more"] if len(refused) > 3 else []
    return "\n".join([head, *(f"- {reason}" for reason in refused[:3]), *more])


def site(start: Start) -> Site:
    """Return the page that shows plans on a phone."""
    from pausepoint.apps.planner.site import PhonePlan

    return PhonePlan().site()


main = program(planner, begin=begin, result=result, help=HELP, quiet=True, site=site)


def _id(engine: BlockingEngine, text: str | None, *, reads: bool = False) -> str:
    """Return the session id for an id; for a command that only reads, also for the beginning of one.

    Without an id, it is the only session of the store.
    """
    if text is None:
        return _only(engine)
    found = engine.find(text, exact=not reads)
    if found.workflow != planner.name:
        raise BadInput(
            f"Session {found.session_id} belongs to workflow {found.workflow}, not to {planner.name}. Check the id."
        )
    return str(found.session_id)


def _only(engine: BlockingEngine) -> str:
    ids = [str(info.session_id) for info in engine.sessions(workflow=planner.name, level="root")]
    if len(ids) != 1:
        have = f"There are {len(ids)} sessions: {', '.join(sorted(ids)[:5])}." if ids else "There is no session yet."
        way = "Name one." if ids else f"Make a plan first: `{command_line('--help')}` says how."
        raise BadInput(f"{have} {way}")
    return ids[0]


def _id_and_words(engine: BlockingEngine, words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the session that the first word names, and the other words. It may be left out if there is only one."""
    if words:
        try:
            return _id(engine, words[0]), list(words[1:])
        except UnknownSession as error:
            if error.near is not None or len(engine.sessions(workflow=planner.name, level="root")) != 1:
                raise
    return _only(engine), list(words)


def _changed(engine: BlockingEngine, session_id: str, told: str, run: bool) -> Any:
    """Report the change. Resume the session if ``run`` is set."""
    if run:
        click.echo(told)
        session: BlockingSession[Any] = engine.session(session_id)
        return session
    return f"{told}\nResume:  {command_line('resume', session_id)}", _shown(engine, session_id)


def _shown(engine: BlockingEngine, session_id: str) -> dict[str, Any]:
    return sessions.document(engine, session_id).model_dump(mode="json")


run_option = click.option("--run", is_flag=True, help="Resume the session here and show its progress.")


class Day(click.ParamType[date]):
    """A day, as people write it."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        """Return the day, or refuse text that is not a valid date."""
        try:
            return value if isinstance(value, date) else read_date(value, date.today())
        except ValueError as error:
            self.fail(str(error), param, ctx)


day = Day()


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[--FIELD VALUE]...")
def create(options: tuple[str, ...]) -> Any:
    """Create a session that waits for its courses and files. The options are those of `run`."""
    return main(["run", "--paused", "--empty", *options], standalone_mode=False)


@main.verb()
@click.argument("session")
@click.argument("course_id")
@click.argument("name", required=False)
@click.option("--midterm", type=day, metavar="DAY", help="The day of its midterm, such as 2030-02-21.")
@click.option("--exam", metavar="CHAPTERS", help="What its exam covers, such as 'chapters 1-6, 9', or all.")
@run_option
def course(
    engine: BlockingEngine, session: str, course_id: str, name: str | None, midterm: date | None, exam: str | None,
    run: bool,
) -> Any:  # fmt: skip
    """Add a course, or change its name, its midterm or what its exam covers."""
    session_id = _id(engine, session)
    covered = None if exam is None else covered_by([f"{course_id}={exam}"], [course_id])[course_id]
    given = {"course_id": course_id, "course_name": name, "midterm_date": midterm, "exam": covered}
    found = sessions.add_course(engine, session_id, given)
    told = f"Session {session_id} has {many(len(found.courses), 'course')}."
    return _changed(engine, session_id, told, run)


@main.verb()
@click.argument("session")
@click.argument("paths", type=Path, nargs=-1, required=True, metavar="PATH...")
@click.option("--course", "course_ids", multiple=True, metavar="ID", help="A course of the file. Repeatable.")
@click.option("--shared", is_flag=True, help="The file is for all courses.")
@click.option("--book", default="", metavar="NAME", help="The files are the chapters of one book.")
@click.option("--title", default="", metavar="TEXT", help="How the plan names the file. Default: the title in it.")
@click.option("--role", type=click.Choice(["book", "exercises", "old-exam"]), help="What it is for. Default: book.")
@click.option("--chapter", default="", metavar="TEXT", help="The chapter of exercises. Default: found by their words.")
@run_option
def file(
    engine: BlockingEngine, session: str, paths: tuple[Path, ...], course_ids: tuple[str, ...], shared: bool, book: str,
    title: str, role: str | None, chapter: str, run: bool,
) -> Any:  # fmt: skip
    """Add files or a folder, or change their courses, title or role: PDF, text, Markdown, DOCX, PPTX, EPUB, HTML."""
    session_id = _id(engine, session)
    listed = as_listed(paths)
    if title and (len(listed) > 1 or listed[0].is_dir()):
        raise click.UsageError("--title names one file. Use --book to name several files, or the name of the folder.")
    if chapter and role != "exercises":
        raise BadInput("--chapter says where exercises belong. Pass it with --role exercises.")
    given = [
        Upload.model_validate({
            "path": path, "course_ids": list(course_ids), "is_shared": shared, "book": book, "title": one_line(title),
            "role": role and role.replace("-", "_"), "chapter": one_line(chapter),
        })
        for path in listed
    ]  # fmt: skip
    state = sessions.state_of(engine, session_id)
    uploads, notes = expanded(given, [*state.file_registry.values(), *state.uploads])
    _tell(notes)
    added = sessions.add_files(engine, session_id, uploads)
    told = [f"{each.file_id} ({each.entry.filename}) {'is already in the session' if each.reused else 'was added'}."
            for each in added]  # fmt: skip
    return _changed(engine, session_id, "\n".join(told), run)


@main.verb()
@click.argument("session")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@run_option
def remove(engine: BlockingEngine, session: str, files: tuple[str, ...], run: bool) -> Any:
    """Remove files or books. A FILE is a name or an id. What is done stays marked."""
    session_id = _id(engine, session)
    removed = sessions.remove_files(engine, session_id, files)
    return _changed(engine, session_id, f"Removed {many(len(removed), 'file')}: {', '.join(removed)}.", run)


@main.verb()
@click.argument("session")
@click.argument("file")
@click.argument("path", type=Path)
@run_option
def replace(engine: BlockingEngine, session: str, file: str, path: Path, run: bool) -> Any:
    """Replace a FILE, or a book, by the file or folder at PATH. Marks stay where the topics stay."""
    session_id = _id(engine, session)
    added, notes = sessions.replace_file(engine, session_id, file, path)
    _tell(notes)
    fresh = [each.entry.filename for each in added if not each.reused]
    told = f"{file} was replaced: {', '.join(fresh) if fresh else 'nothing is new'}."
    return _changed(engine, session_id, told, run)


@main.verb()
@click.argument("session", required=False)
@click.option(
    "--midterm", "midterms", multiple=True, metavar="COURSE=DAY", help="The new date of a midterm. Repeatable."
)
@click.option("--exam", "exam", multiple=True, metavar="[COURSE=]CHAPTERS", help="What an exam covers, or all.")
@click.option("--max-minutes", type=int, metavar="N", help="The new daily limit.")
@click.option("--rest-day", metavar="DAY", help="The new rest day, or none.")
@click.option("--start", type=day, metavar="DAY", help="The first day. Default: today, once the plan has begun.")
@click.option("--hours", multiple=True, metavar="TIMES", help="When you study, as for run, or none. Repeatable.")
@click.option("--busy", multiple=True, metavar="FILE", help="A calendar with your busy times, or none. Repeatable.")
@click.option("--later", is_flag=True, help="Change the inputs, but do not make the plan now.")
def replan(
    engine: BlockingEngine, session: str | None, midterms: tuple[str, ...], exam: tuple[str, ...],
    max_minutes: int | None, rest_day: str | None, start: date | None, hours: tuple[str, ...], busy: tuple[str, ...],
    later: bool,
) -> Any:  # fmt: skip
    """Plan what is left, from today on. Dates and limits can change."""
    session_id = _id(engine, session)
    course_ids = [course.course_id for course in sessions.state_of(engine, session_id).user_inputs.courses]
    calendars = None if not busy else [Path(each) for each in busy if each != "none"]
    sessions.replan(
        engine, session_id, midterms=dict(map(_moved, midterms)), covered=covered_by(exam, course_ids),
        max_minutes=max_minutes,
        rest_day=None if rest_day is None else _weekday(rest_day), start=start,
        hours=read_hours(hours) if hours else None, busy=calendars, today=_today(engine, session_id),
    )  # fmt: skip
    return _changed(engine, session_id, f"Session {session_id} makes a new plan.", not later)


def _moved(text: str) -> tuple[str, date]:
    course_id, equals, given = text.partition("=")
    if not equals:
        raise BadInput(f"--midterm: {text!r} is not valid. Write COURSE=DAY, such as {course_id}=2030-02-21.")
    try:
        return course_id, read_date(given, date.today())
    except ValueError as error:
        raise BadInput(f"--midterm: {error}") from None


def _weekday(text: str) -> str:
    if text.capitalize() not in (*WEEKDAYS, "None"):
        raise BadInput(f"--rest-day: {text!r} is not a weekday. Write {', '.join(WEEKDAYS)} or none.")
    return "none" if text.lower() == "none" else text.capitalize()


def _today(engine: BlockingEngine, session_id: str) -> date:
    """Return the current day in the student's time zone."""
    zone = sessions.state_of(engine, session_id).user_inputs.timezone
    return datetime.now(UTC).astimezone(ZoneInfo(zone)).date()


def _see(session_id: str) -> str:
    return f"See `{command_line('progress', session_id)}`."


on_option = click.option("--on", type=day, metavar="DAY", help="The day that counts as today. Default: today.")


@main.verb()
@click.argument("words", nargs=-1, metavar="[SESSION] [WHAT]...")
@click.option("--undo", is_flag=True, help="Remove the marks of these rows or topics.")
@on_option
def done(engine: BlockingEngine, words: tuple[str, ...], undo: bool, on: date | None) -> Any:
    """Mark work as done: WHAT is the id of a row, a day, a topic, or §8. Default: today's work."""
    session_id, what = _id_and_words(engine, words)
    if undo:
        count = sessions.unmark(engine, session_id, what, _see(session_id))
        return _changed(engine, session_id, f"{many(count, 'mark')} removed.", True)
    return _mark(engine, session_id, what, "done", on)


@main.verb()
@click.argument("words", nargs=-1, required=True, metavar="[SESSION] WHAT...")
@on_option
def skip(engine: BlockingEngine, words: tuple[str, ...], on: date | None) -> Any:
    """Mark work that you leave out: WHAT is the id of a row, a day, a topic, or §8. Later plans do not have it."""
    session_id, what = _id_and_words(engine, words)
    if not what:
        raise BadInput(f"Name what you skip: a row, a day, a topic or a section. {_see(session_id)}")
    return _mark(engine, session_id, what, "skipped", on)


def _mark(engine: BlockingEngine, session_id: str, what: Sequence[str], status: Mark, on: date | None) -> Any:
    today = on or _today(engine, session_id)
    found = sessions.mark(engine, session_id, what or [today.isoformat()], status, today, _see(session_id))
    told = f"Marked as {status}: {many(sum(each.minutes for each in found), 'minute')} of the plan."
    return _changed(engine, session_id, told, True)


@main.verb()
@click.argument("session")
@click.argument("topic")
@click.argument("minutes", type=int)
@click.option("--later", is_flag=True, help="Do not make the plan now.")
def estimate(engine: BlockingEngine, session: str, topic: str, minutes: int, later: bool) -> Any:
    """Set your own estimate of a whole TOPIC in MINUTES, and make a new plan."""
    session_id = _id(engine, session)
    found = sessions.estimate(engine, session_id, topic, minutes, _see(session_id))
    told = f"{found.topic}: {many(minutes, 'minute')} instead of {found.estimated_minutes}."
    return _changed(engine, session_id, told, not later)


@main.verb()
@click.argument("session")
@click.argument("factor", type=float)
@click.option("--course", "course_id", metavar="ID", help="Only for this course.")
@click.option("--later", is_flag=True, help="Do not make the plan now.")
def pace(engine: BlockingEngine, session: str, factor: float, course_id: str | None, later: bool) -> Any:
    """Set your pace and make a new plan: with a FACTOR of 1.5 you need half as much time again as estimated."""
    session_id = _id(engine, session)
    sessions.set_pace(engine, session_id, factor, course_id)
    return _changed(engine, session_id, f"The pace is {factor:g} for {course_id or 'all courses'}.", not later)


@main.verb("open")
@click.argument("session", required=False)
def open_page(engine: BlockingEngine, session: str | None) -> Any:
    """Show the plan in the browser."""
    session_id = _id(engine, session, reads=True)
    written = sessions.state_of(engine, session_id).artifacts.page_path
    if written is None:
        way = command_line("show", session_id)
        raise BadInput(f"Session {session_id} has no plan yet. `{way}` says what it waits for.")
    page = Path(written)
    if not page.is_file():
        raise BadInput(f"{page}: There is no such file. Write it again: {command_line('save', session_id, 'FOLDER')}")
    is_shown = webbrowser.open(page.as_uri())
    told = f"Plan: {_near(page)}" if is_shown else f"No browser could be started. Open this file: {page}"
    return told, {"session_id": session_id, "page": str(page), "opened": is_shown}


@main.verb()
@click.argument("session", required=False)
@link_options
def link(start: Start, session: str | None, days: float, url: str, revoke: bool) -> Any:
    """Print a link with which a phone shows the plan and marks what is done, while `serve` runs.

    Everybody who has the link can do so, until it ends or is revoked.
    """
    from pausepoint.apps.planner.site import NAME

    with Engine(start.store, workflows=[planner], create=False, drives="none") as engine:
        session_id = _id(engine, session)
    return linked(start, NAME, session_id, "session_id", days=days, url=url, revoke=revoke)


@main.verb()
@click.argument("session", required=False)
@on_option
def progress(engine: BlockingEngine, session: str | None, on: date | None) -> Any:
    """Show what is done against what was planned, and the next rows with their ids."""
    session_id = _id(engine, session, reads=True)
    state, today = sessions.state_of(engine, session_id), on or _today(engine, session_id)
    shown = Shown.of(state)
    found = standings(state, today)
    lines = [f"{each.words}. Planned before {said(today)}: {many(each.planned, 'minute')}." for each in found]
    rows = [row for row in state.planning_state.plan_rows if row.estimated_minutes and shown.status(row) == "planned"]
    late = [row for each in found for row in each.late]
    lines += [f"Not done:  {_row_line(row)}" for row in late[:10]]
    lines += [f"Next:      {_row_line(row)}" for row in [row for row in rows if row.date >= today][:10]]
    if late:
        lines.append(f"Plan what is left:  {command_line('replan', session_id)}")
    listed = {each.course: {"total": each.total, "done": each.done, "skipped": each.skipped, "planned": each.planned,
                            "cut": each.cut, "late": [row.row_id for row in each.late]} for each in found}  # fmt: skip
    return "\n".join(lines) or "There is no course yet.", listed


def _row_line(row: Any) -> str:
    at = f"{row.starts_at:%H:%M} " if row.starts_at else ""
    return f"{said(row.date)} {at}{row.course}: {row.task_description}, {row.estimated_minutes} min ({row.row_id})"


@main.verb()
@click.argument("session")
@click.argument("file")
@click.option("--warning", required=True, metavar="TEXT", help="What is missing. Shown with the plan.")
@run_option
def partial(engine: BlockingEngine, session: str, file: str, warning: str, run: bool) -> Any:
    """Accept a FILE that was read only in part, with a warning."""
    session_id = _id(engine, session)
    file_id = sessions.mark_partial(engine, session_id, file, warning)
    return _changed(engine, session_id, f"{file_id} is marked partial.", run)


@main.verb()
@click.argument("session")
def retry(engine: BlockingEngine, session: str) -> Any:
    """Read the missing parts of files again, or ask a language model again that failed, and resume."""
    session_id = _id(engine, session)
    files = sessions.retry(engine, session_id)
    what = f"reads the missing parts of {many(len(files), 'file')}" if files else "asks the language model"
    told = f"Session {session_id} {what} again."
    return _changed(engine, session_id, told, True)


@main.verb()
@click.argument("session", required=False)
def document(engine: BlockingEngine, session: str | None) -> Any:
    """Print the session's state as one JSON document."""
    found = _shown(engine, _id(engine, session, reads=True))
    return json.dumps(found, indent=2, ensure_ascii=False), found


@main.verb()
@click.argument("session", required=False)
def plans(engine: BlockingEngine, session: str | None) -> Any:
    """List all versions of the plan."""
    found = sessions.plans(engine, _id(engine, session, reads=True))
    listed = {str(version): each.model_dump(mode="json") for version, each in found.items()}
    return "\n".join(summary(each) for each in found.values()) or "There is no plan yet.", listed


@main.verb()
@click.argument("session")
@click.argument("folder", type=Path)
@click.option("--version", type=int, metavar="N", help="An earlier version of the plan.")
def save(engine: BlockingEngine, session: str, folder: Path, version: int | None) -> Any:
    """Write the plan into a FOLDER: a web page, Markdown, CSV and iCalendar."""
    session_id = _id(engine, session, reads=True)
    planning = sessions.plan_of(engine, session_id, version)
    state, made = sessions.state_of(engine, session_id), engine.session(session_id).info().created_at
    folder.mkdir(parents=True, exist_ok=True)
    outputs = engine.session(session_id).files.outputs
    written = output.write(folder.absolute(), Shown.of(state, planning), session_id, made, outputs)
    return "\n".join(map(str, written.model_dump().values())), written


@main.verb()
@click.argument("session")
@click.option("--reason", default="", metavar="TEXT", help="The reason, kept in the history.")
def end(engine: BlockingEngine, session: str, reason: str) -> Any:
    """End a session: delete its files and plans, then the session."""
    session_id = _id(engine, session)
    outputs = engine.session(session_id).files.outputs
    engine.session(session_id).remove(by="the user", reason=reason)
    output.remove(outputs)
    last = [event.summary for event in engine.session(session_id).events()][-1]
    return f"Session {session_id}: {last}.", {"session_id": session_id, "last_event": last}


if __name__ == "__main__":
    main()
