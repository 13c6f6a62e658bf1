"""PlanningReviewerAgent, the reviewer: check whether a plan covers all work, keeps the dates and spreads the load.

The reviewer compares the plan with the inputs and the estimates. It does not know how the plan was made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import date

from pausepoint.apps.planner.models import (
    PlanningPayload,
    PlanRow,
    Review,
    TopicEstimate,
    UserInputs,
    ValidationReport,
)
from pausepoint.apps.planner.plan import MIDTERM, Calendar, Work, fair, needed_by, settled, works
from pausepoint.apps.words import many


def review(payload: PlanningPayload) -> Review:
    """Return the verdict on a plan."""
    inputs, planning = settled(payload.user_inputs, payload.start), payload.planning_state
    calendar = Calendar.of(inputs, payload.start)
    rows = planning.plan_rows
    work = works(inputs, payload.estimation_state.topic_estimates)
    missing = uncovered(rows, work, payload.estimation_state.topic_estimates, inputs)
    days = out_of_range(rows, inputs, calendar, planning.last_midterm_date)
    loads = unbalanced(rows, inputs, calendar)
    report = ValidationReport(coverage_ok=not missing, date_range_ok=not days, load_balance_ok=not loads)
    changed = [] if planning.planned_for == inputs else [_changed(planning.planned_for, inputs)]
    if not (missing or days or loads or changed):
        return Review(result_type="approved_plan", validation_report=report)
    if missing and not (days or loads or changed) and _must_be_cut(rows, work, calendar):
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
        f"the midterm of {course.course_name} is on {course.midterm_date}, not on {dates[course.course_id]}"
        for course in now.courses
        if course.course_id in dates and dates[course.course_id] != course.midterm_date
    ]
    return moved[0] if moved else "the inputs have changed since the plan was made"


# coverage


def uncovered(
    rows: Sequence[PlanRow], work: Sequence[Work], estimates: Sequence[TopicEstimate], inputs: UserInputs
) -> list[str]:
    """Return the topics that have less time before their midterm than they need."""
    planned: dict[tuple[str, str], int] = defaultdict(int)
    due = {course.course_name: course.midterm_date for course in inputs.courses}
    for row in rows:
        last = due.get(row.course)
        if last is not None and row.date < last:
            planned[row.course, row.topic] += row.estimated_minutes
    lost = [each for each in estimates if each.course_id not in {course.course_id for course in inputs.courses}]
    found = [f"{each.topic} belongs to course {each.course_id!r}, which does not exist" for each in lost]
    for each in work:
        done = planned[each.course.course_name, each.topic]
        if done < each.minutes:
            found.append(
                f"{each.course.course_name}, {each.topic}: {done} of {many(each.minutes, 'minute')} are planned before"
                f" the midterm on {each.due}"
            )
    return found


def _must_be_cut(rows: Sequence[PlanRow], work: Sequence[Work], calendar: Calendar) -> bool:
    """Return whether the plan is full: all minutes go to topics, and no more are missing than necessary."""
    planned = sum(row.estimated_minutes for row in rows)
    lacking = sum(each.minutes for each in work) - planned
    topics = {(each.course.course_name, each.topic) for each in work}
    others = any(row.estimated_minutes and (row.course, row.topic) not in topics for row in rows)
    return not others and 0 < lacking <= calendar.lacking(needed_by(work))


def _cuts(missing: Sequence[str], calendar: Calendar) -> list[str]:
    why = f"there is no more time with {many(calendar.limit, 'minute')} a day"
    rest = f" and {calendar.rest} free" if calendar.rest else ""
    return [f"cut: {each}; {why}{rest}" for each in missing]


# days


def out_of_range(rows: Sequence[PlanRow], inputs: UserInputs, calendar: Calendar, last: date | None) -> list[str]:
    """Return missing days, extra days, misplaced midterms, and work that comes too late."""
    found: list[str] = []
    there = {row.date for row in rows}
    lacking = [day for day in calendar.days if day not in there]
    beyond = sorted(there - set(calendar.days))
    if lacking:
        found.append(f"the plan has no entry for {lacking[0]}" + _and_more(lacking))
    if beyond:
        found.append(f"{beyond[0]} is not between {calendar.days[0]} and {calendar.days[-1]}" + _and_more(beyond))
    if last != inputs.last_midterm:
        found.append(f"the last midterm is on {inputs.last_midterm}, not on {last}")
    exams = {(row.course, row.date) for row in rows if row.topic == MIDTERM and not row.estimated_minutes}
    for course in inputs.courses:
        if course.midterm_date is not None and course.midterm_date >= calendar.days[0]:
            if {day for name, day in exams if name == course.course_name} != {course.midterm_date}:
                found.append(f"the midterm of {course.course_name} is not on {course.midterm_date} in the plan")
            late = [row for row in rows if row.course == course.course_name and row.date >= course.midterm_date]
            if any(row.estimated_minutes for row in late):
                found.append(f"there is work for {course.course_name} on or after its midterm, {course.midterm_date}")
    return found


def _and_more(days: Sequence[date]) -> str:
    return f" and {many(len(days) - 1, 'more day')}" if len(days) > 1 else ""


# load


def unbalanced(rows: Sequence[PlanRow], inputs: UserInputs, calendar: Calendar) -> list[str]:
    """Return days above the limit, work on the rest day, and days with more work than necessary."""
    load: dict[date, int] = defaultdict(int)
    needed: dict[date, int] = defaultdict(int)
    due = {course.course_name: course.midterm_date for course in inputs.courses}
    for row in rows:
        load[row.date] += row.estimated_minutes
        last = due.get(row.course) or calendar.days[-1]
        needed[last] += row.estimated_minutes
    found = [
        f"{day} has {many(minutes, 'minute')} of work, the limit is {calendar.limit}"
        for day, minutes in sorted(load.items())
        if minutes > calendar.limit
    ]
    found += [
        f"{day} is a {calendar.rest} and has {many(minutes, 'minute')} of work"
        for day, minutes in sorted(load.items())
        if minutes and calendar.rests(day)
    ]
    peak = max(load.values(), default=0)
    enough = fair(calendar.level(needed), calendar.limit)
    if not found and peak > enough:
        day = max(load, key=lambda each: (load[each], each))
        found.append(f"{day} has {many(peak, 'minute')} of work, but {enough} a day are enough")
    return found
