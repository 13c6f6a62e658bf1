"""PlanningReviewerAgent, the reviewer: check whether a plan covers all work, keeps the dates and spreads the load.

The reviewer compares the plan with the inputs and the estimates. It does not know how the plan was made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import date

from pausepoint.apps.planner import intervals
from pausepoint.apps.planner.dates import said
from pausepoint.apps.planner.hours import SITTING, Calendar
from pausepoint.apps.planner.models import (
    PlanningPayload,
    PlanningState,
    PlanRow,
    Review,
    TopicEstimate,
    UserInputs,
    ValidationReport,
)
from pausepoint.apps.planner.plan import learning_minutes, settled
from pausepoint.apps.planner.rows import MIDTERM, REVIEW
from pausepoint.apps.planner.work import Work, works
from pausepoint.apps.words import many

ALWAYS_FINE = 150
"""The minutes per day that never count as too many, if the limit allows them."""

TOO_MUCH, TIGHT = 2.0, 0.7
"""A day may have twice its even share. Before a midterm that needs 70 % of the time, days may be full."""


def review(payload: PlanningPayload) -> Review:
    """Return the verdict on a plan."""
    inputs, planning = settled(payload.user_inputs, payload.start), payload.planning_state
    calendar = Calendar.of(inputs, payload.start)
    rows = planning.plan_rows
    work = works(inputs, payload.estimation_state.topic_estimates)
    short = {**uncovered(rows, work), **unreviewed(rows, work, calendar)}
    missing = [*_lost(payload.estimation_state.topic_estimates, inputs), *short.values()]
    days = out_of_range(rows, inputs, calendar, planning.last_midterm_date)
    loads = unbalanced(rows, inputs, calendar)
    report = ValidationReport(coverage_ok=not missing, date_range_ok=not days, load_balance_ok=not loads)
    changed = [] if planning.planned_for == inputs else [_changed(planning.planned_for, inputs)]
    if not (missing or days or loads or changed):
        return Review(result_type="approved_plan", validation_report=report)
    if missing and not (days or loads or changed) and _must_be_cut(planning, work, calendar, set(short)):
        return Review(
            result_type="capacity_limited_plan", revision_reasons=_cuts(missing, calendar), validation_report=report
        )
    return Review(
        result_type="needs_revision", revision_reasons=[*changed, *days, *loads, *missing], validation_report=report
    )


def _changed(before: UserInputs | None, now: UserInputs) -> str:
    """Return what has changed since the plan was made."""
    if before is None:
        return "the plan does not record its inputs"
    dates = {course.course_id: course.midterm_date for course in before.courses}
    moved = [
        f"the midterm of {course.course_name} is on {_day(course.midterm_date)}, not on {_day(dates[course.course_id])}"
        for course in now.courses
        if course.course_id in dates and dates[course.course_id] != course.midterm_date
    ]
    return moved[0] if moved else "the inputs have changed since the plan was made"


# coverage


def uncovered(rows: Sequence[PlanRow], work: Sequence[Work]) -> dict[tuple[str, str], str]:
    """Return the topics that have less time before their midterm than they need, by course id and topic."""
    planned: dict[tuple[str, str], int] = defaultdict(int)
    due = {each.course.course_name: each.due for each in work}
    for row in rows:
        if row.course in due and row.date < due[row.course]:
            for part in row.parts:
                planned[row.course, part.topic] += part.minutes
    found: dict[tuple[str, str], str] = {}
    for each in work:
        done = planned[each.course.course_name, each.topic]
        if done < each.minutes:
            found[each.course.course_id, each.topic] = (
                f"{each.course.course_name}, {each.topic}: {done} of {many(each.minutes, 'minute')} are planned before"
                f" the midterm on {said(each.due)}"
            )
    return found


def unreviewed(
    rows: Sequence[PlanRow], work: Sequence[Work], calendar: Calendar
) -> dict[tuple[str, str], str]:  # fmt: skip
    """Return the courses whose review before the midterm is missing or too short, by course id and `REVIEW`."""
    found: dict[tuple[str, str], str] = {}
    courses = {each.course.course_id: each for each in work}
    reviews = intervals.reserved(work, calendar)
    for course_id, each in courses.items():
        name, due, wanted = each.course.course_name, each.due, intervals.of_course(reviews, course_id)
        planned = sum(
            row.estimated_minutes
            for row in rows
            if (row.course, row.topic) == (name, REVIEW) and not row.parts and row.date < due
        )
        if not wanted or planned < wanted:
            needed = wanted or intervals.LEAST
            found[course_id, REVIEW] = (
                f"{name}, review: {planned} of {many(needed, 'minute')} are planned before the midterm on {said(due)}"
            )
    return found


def _lost(estimates: Sequence[TopicEstimate], inputs: UserInputs) -> list[str]:
    known = {course.course_id for course in inputs.courses}
    return [
        f"{each.topic} belongs to course {each.course_id!r}, which does not exist"
        for each in estimates
        if each.course_id not in known
    ]


def _must_be_cut(
    planning: PlanningState, work: Sequence[Work], calendar: Calendar, short: set[tuple[str, str]]
) -> bool:  # fmt: skip
    """Return whether the plan declares all its cuts, and cuts no more than necessary.

    Where a course ends, a few minutes of a day can be too short for another sitting.
    """
    if {(each.course_id, each.topic) for each in planning.cuts} != short:
        return False
    courses = {each.course.course_id for each in work}
    reviews = intervals.reserved(work, calendar)
    lacking = total = 0
    for due in sorted({each.due for each in work}):
        total += sum(each.minutes for each in work if each.due == due)
        lacking = max(lacking, total - learning_minutes(reviews, calendar, due))
    topics = [each for each in planning.cuts if each.topic != REVIEW]
    cut = sum(each.needed_minutes - each.planned_minutes for each in topics)
    return cut <= lacking + 4 * SITTING * len(courses)


def _cuts(missing: Sequence[str], calendar: Calendar) -> list[str]:
    why = f"there is no more time with {many(calendar.limit, 'minute')} a day"
    rest = f" and {calendar.rest} free" if calendar.rest else ""
    return [f"cut: {each}; {why}{rest}" for each in missing]


def _day(day: date | None) -> str:
    return said(day) if day else "no day"


# days


def out_of_range(rows: Sequence[PlanRow], inputs: UserInputs, calendar: Calendar, last: date | None) -> list[str]:
    """Return missing days, extra days, misplaced midterms, and work that comes too late."""
    found: list[str] = []
    there = {row.date for row in rows}
    lacking = [day for day in calendar.days if day not in there]
    beyond = sorted(there - set(calendar.days))
    if lacking:
        found.append(f"the plan has no entry for {said(lacking[0])}" + _and_more(lacking))
    if beyond:
        found.append(
            f"{said(beyond[0])} is not between {said(calendar.days[0])} and {said(calendar.days[-1])}"
            + _and_more(beyond)
        )
    if last != inputs.last_midterm:
        found.append(f"the last midterm is on {_day(inputs.last_midterm)}, not on {_day(last)}")
    exams = {(row.course, row.date) for row in rows if row.topic == MIDTERM and not row.estimated_minutes}
    for course in inputs.courses:
        if course.midterm_date is not None and course.midterm_date >= calendar.days[0]:
            if {day for name, day in exams if name == course.course_name} != {course.midterm_date}:
                found.append(f"the midterm of {course.course_name} is not on {said(course.midterm_date)} in the plan")
            late = [row for row in rows if row.course == course.course_name and row.date >= course.midterm_date]
            if any(row.estimated_minutes for row in late):
                found.append(
                    f"there is work for {course.course_name} on or after its midterm, {said(course.midterm_date)}"
                )
    return found


def _and_more(days: Sequence[date]) -> str:
    return f" and {many(len(days) - 1, 'more day')}" if len(days) > 1 else ""


# load


def unbalanced(rows: Sequence[PlanRow], inputs: UserInputs, calendar: Calendar) -> list[str]:
    """Return days above the limit, work on days without time for it, and days with more work than necessary."""
    load: dict[date, int] = defaultdict(int)
    for row in rows:
        load[row.date] += row.estimated_minutes
    found = [
        f"{said(day)} has {many(minutes, 'minute')} of work, {_most(day, calendar)}"
        for day, minutes in sorted(load.items())
        if minutes > calendar.capacity.get(day, calendar.limit)
    ]
    shares = _even(rows, inputs, calendar)
    for day, minutes in sorted(load.items()):
        enough = max(ALWAYS_FINE, TOO_MUCH * shares.get(day, 0))
        if not found and minutes > enough:
            found.append(f"{said(day)} has {many(minutes, 'minute')} of work, but {round(enough)} a day are enough")
    return found


def _most(day: date, calendar: Calendar) -> str:
    if calendar.rests(day):
        return f"and {calendar.rest} is the rest day"
    free = calendar.capacity.get(day, calendar.limit)
    if free < calendar.limit:
        return f"the free time is {many(free, 'minute')}"
    return f"the limit is {calendar.limit}"


def _even(rows: Sequence[PlanRow], inputs: UserInputs, calendar: Calendar) -> dict[date, float]:
    """Return the minutes of each day if every course is spread evenly, or all of them before a tight midterm.

    The day of the last review has no new matter if possible, so it does not count as time for it.
    """
    due = {course.course_name: course.midterm_date for course in inputs.courses}
    needed: dict[date, int] = defaultdict(int)
    reviewed: dict[date, date] = {}
    for row in rows:
        midterm = due.get(row.course) or calendar.days[-1]
        needed[midterm] += row.estimated_minutes
        if row.topic == REVIEW and not row.parts:
            reviewed[midterm] = row.date
    found: dict[date, float] = defaultdict(float)
    total = 0
    for last in sorted(needed):
        total += needed[last]
        room = calendar.minutes_before(reviewed.get(last, last)) or calendar.minutes_before(last)
        for day in calendar.before(last):
            share = needed[last] / room * calendar.capacity[day]
            found[day] = calendar.capacity[day] if total >= TIGHT * room else found[day] + share
    return found
