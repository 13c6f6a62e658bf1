"""The stages of a session: the allowed transitions, and the conditions for leaving a stage."""

from __future__ import annotations

from datetime import date, timedelta

from pausepoint.apps.planner.dates import said
from pausepoint.apps.planner.models import (
    Course,
    FileEntry,
    FileProgress,
    IngestionState,
    PlanningState,
    Stage,
    UserInputs,
)

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
"""The stages that may follow each stage. A session may also fail in any stage: it keeps its stage, and a resume
continues there."""


FURTHEST = timedelta(days=5 * 366)
"""The maximum time until a midterm. Every day up to it is planned, so a mistyped year would take forever."""


class TransitionRefused(ValueError):
    """A transition between two stages is not allowed. Nothing was changed."""


def moved(stage: Stage, to: Stage) -> Stage:
    """Return the next stage if the transition is allowed.

    >>> moved("created", "collecting_inputs")
    'collecting_inputs'
    """
    if to not in ALLOWED[stage]:
        ways = " or ".join(map(repr, ALLOWED[stage]))
        onward = f"The next stage can only be {ways}." if ways else "This is the last stage."
        raise TransitionRefused(f"A session cannot go from {stage!r} to {to!r}. {onward}")
    return to


def inputs_missing(
    inputs: UserInputs, files: dict[str, FileEntry], planned_for: UserInputs | None = None
) -> str | None:  # fmt: skip
    """Return why the session must stay in ``collecting_inputs``, or None.

    A midterm that the last plan was made for may have passed since then.
    """
    if not inputs.courses:
        return "there is no course yet; add one with `course ID NAME --midterm DAY`"
    passed = [(course.course_id, course.midterm_date) for course in planned_for.courses] if planned_for else []
    for course in inputs.courses:
        wrong = _course_missing(inputs, course)
        if wrong and (course.midterm_date is None or (course.course_id, course.midterm_date) not in passed):
            return f"course {course.course_id} ({course.course_name}){wrong}"
    if inputs.busy_until and inputs.last_midterm and inputs.last_midterm > inputs.busy_until:
        return (
            f"the busy times are known only up to {said(inputs.busy_until)}; read the calendar again with"
            " `replan --busy FILE`"
        )
    known = {course.course_id for course in inputs.courses}
    for file in files.values():
        lost = sorted(set(file.course_ids) - known)
        if lost:
            return (
                f"file {file.filename} belongs to course {lost[0]!r}, which does not exist; add it with"
                f" `course {lost[0]} NAME --midterm DAY`"
            )
    return None


def _course_missing(inputs: UserInputs, course: Course) -> str:
    if course.midterm_date is None:
        return f" has no midterm date yet; set it with `course {course.course_id} --midterm DAY`"
    way = f"correct it with `course {course.course_id} --midterm DAY`"
    if inputs.start_date is not None and course.midterm_date < inputs.start_date:
        return f": its midterm on {said(course.midterm_date)} is before the first day, {said(inputs.start_date)}; {way}"
    if inputs.start_date is not None and course.midterm_date - inputs.start_date > FURTHEST:
        return (
            f": its midterm on {said(course.midterm_date)} is more than five years after the first day,"
            f" {said(inputs.start_date)}; {way}"
        )
    return ""


def files_missing(files: dict[str, FileEntry], ingestion: IngestionState) -> str | None:
    """Return why the session must stay in ``ingesting``, or None. Files must be complete, or partial with a warning."""
    for file_id, file in files.items():
        found = ingestion.files.get(file_id, FileProgress())
        if found.status == "complete" or (found.status == "partial" and found.warning):
            continue
        total = found.chunking.total_chunks
        why = f": {found.last_error}" if found.last_error else ""
        accept = f"or accept the file with `partial {file_id} --warning TEXT`"
        is_read = total and found.processed_chunks == total
        again = accept if is_read else f"read the rest again with `retry`, {accept}"
        return (
            f"file {file_id} ({file.filename}) is {found.status}, {found.processed_chunks} of {total} chunks were"
            f" read{why}; {again}"
        )
    return None


def every_day(first: date, last: date) -> list[date]:
    """Return all days from the first to the last, both included."""
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def days_missing(planning: PlanningState) -> str | None:
    """Return why the session must stay in ``planning``, or None. The plan must have every day."""
    last = planning.last_midterm_date
    if last is None or not planning.plan_rows:
        return "the plan is empty"
    there = {row.date for row in planning.plan_rows}
    first = planning.planned_for.start_date if planning.planned_for else None
    lacking = [day for day in every_day(first or min(there), last) if day not in there]
    if not lacking:
        return None
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return f"the plan has no entry for {said(lacking[0])}{more}; it must cover every day up to {said(last)}"
