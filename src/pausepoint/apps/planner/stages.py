"""The stages of a session: which may follow which, and what keeps a session in one."""

from __future__ import annotations

from datetime import date, timedelta

from pausepoint.apps.planner.models import FileEntry, FileProgress, IngestionState, PlanningState, Stage, UserInputs

ALLOWED: dict[Stage, tuple[Stage, ...]] = {
    "created": ("collecting_inputs",),
    "collecting_inputs": ("ingesting",),
    "ingesting": ("estimating",),
    "estimating": ("planning",),
    "planning": ("reviewing",),
    "reviewing": ("planning", "completed"),
    "completed": (),
    "failed": (),
}
"""Where a stage may lead. Any may also lead to ``failed``, which is no stage of its own: the session has failed there,
keeps its stage, and a resume goes on in it."""


FURTHEST = timedelta(days=5 * 366)
"""How far ahead a midterm may be. Every day up to it is planned, so a year that was mistyped would take for ever."""


class TransitionRefused(ValueError):
    """A stage may not follow another one. Nothing was changed."""


def moved(stage: Stage, to: Stage) -> Stage:
    """The next stage, if it may follow.

    >>> moved("created", "collecting_inputs")
    'collecting_inputs'
    """
    if to not in ALLOWED[stage]:
        ways = " or ".join(map(repr, ALLOWED[stage]))
        onward = f"it goes to {ways} or fails" if ways else "nothing follows that"
        raise TransitionRefused(f"a session does not go from {stage!r} to {to!r}; {onward}")
    return to


def inputs_missing(inputs: UserInputs, files: dict[str, FileEntry]) -> str | None:
    """Why ``collecting_inputs`` may not be left."""
    if not inputs.courses:
        return "there is no course yet; add one"
    for course in inputs.courses:
        if course.midterm_date is None:
            return f"course {course.course_id} ({course.course_name}) has no midterm date yet"
        if inputs.start_date is not None and course.midterm_date < inputs.start_date:
            return (
                f"course {course.course_id} ({course.course_name}): its midterm on {course.midterm_date} lies before"
                f" the first day, {inputs.start_date}"
            )
        if inputs.start_date is not None and course.midterm_date - inputs.start_date > FURTHEST:
            return (
                f"course {course.course_id} ({course.course_name}): its midterm on {course.midterm_date} is more than"
                f" five years after the first day, {inputs.start_date}; look at the year"
            )
    known = {course.course_id for course in inputs.courses}
    for file in files.values():
        lost = sorted(set(file.course_ids) - known)
        if lost:
            return f"file {file.filename} belongs to course {lost[0]!r}, which there is not; add that course"
    return None


def files_missing(files: dict[str, FileEntry], ingestion: IngestionState) -> str | None:
    """Why ``ingesting`` may not be left: a file that is neither complete nor marked as partial, with a warning."""
    for file_id, file in files.items():
        found = ingestion.files.get(file_id, FileProgress())
        if found.status == "complete" or (found.status == "partial" and found.warning):
            continue
        total = found.chunking.total_chunks
        why = f": {found.last_error}" if found.last_error else ""
        return (
            f"file {file_id} ({file.filename}) is {found.status}, {found.processed_chunks} of {total} chunks were"
            f" read{why}; try the rest again with `retry`, or let a part do with `partial`"
        )
    return None


def every_day(first: date, last: date) -> list[date]:
    """All days of a stretch, both ends included."""
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def days_missing(planning: PlanningState) -> str | None:
    """Why ``planning`` may not be left: a day that the plan says nothing about."""
    last = planning.last_midterm_date
    if last is None or not planning.plan_rows:
        return "the plan is empty"
    there = {row.date for row in planning.plan_rows}
    first = planning.planned_for.start_date if planning.planned_for else None
    lacking = [day for day in every_day(first or min(there), last) if day not in there]
    if not lacking:
        return None
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return f"the plan says nothing about {lacking[0]}{more}; it has to cover every day up to {last}"
