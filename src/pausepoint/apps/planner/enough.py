"""How many minutes a day would be enough for everything."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from pausepoint.apps.planner import intervals
from pausepoint.apps.planner.hours import Calendar
from pausepoint.apps.planner.models import STEP, TopicEstimate, UserInputs
from pausepoint.apps.planner.schedule import arranged
from pausepoint.apps.planner.work import works

MOST = 16 * 60
"""Nobody studies for more minutes a day."""


def enough(inputs: UserInputs, estimates: Iterable[TopicEstimate], start: date) -> int | None:
    """Return the smallest daily limit with which all topics and reviews fit, or None if no limit helps."""
    listed = list(estimates)
    low, high = inputs.shared_constraints.limit // STEP, MOST // STEP
    if low >= high or not _fits(inputs, listed, start, high * STEP):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(inputs, listed, start, middle * STEP) else (middle, high)
    return high * STEP


def _fits(inputs: UserInputs, estimates: list[TopicEstimate], start: date, limit: int) -> bool:
    limits = inputs.shared_constraints.model_copy(update={"max_minutes_per_day": limit})
    given = inputs.model_copy(update={"shared_constraints": limits})
    calendar = Calendar.of(given, start)
    work = works(given, estimates)
    reviews = intervals.reserved(work, calendar)
    if not all(intervals.of_course(reviews, course_id) for course_id in {each.course.course_id for each in work}):
        return False
    return not arranged(work, reviews, calendar)[1]
