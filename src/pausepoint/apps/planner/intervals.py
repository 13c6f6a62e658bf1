"""Spaced reviews before each midterm. They are placed before any topic, so no topic can displace them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from pausepoint.apps.planner.hours import SITTING, Calendar
from pausepoint.apps.planner.models import STEP, Course
from pausepoint.apps.planner.work import Work, up

SHARE, LEAST, MOST = 0.15, 20, 120
"""A course is reviewed for 15 % of its time, from 20 to 120 minutes."""

PART_OF_TIME = 0.3
"""Reviews take at most this share of the time before a midterm, and one sitting even if that is more."""

DAYS_BEFORE = (1, 3, 7)
"""The days before a midterm on which its reviews are, the last one first."""

MOST_A_DAY = 120


Reviews = dict[date, dict[str, int]]
"""The minutes of review by day and course id."""


def reserved(work: Sequence[Work], calendar: Calendar) -> Reviews:
    """Return the reviews of all courses. The first midterm goes first: it has the fewest days.

    A course with time for less than two sittings has no review.
    """
    totals: dict[str, int] = defaultdict(int)
    courses: dict[str, Course] = {}
    for each in work:
        totals[each.course.course_id] += each.full
        courses[each.course.course_id] = each.course
    found: Reviews = {day: {} for day in calendar.days}
    for course_id, course in sorted(courses.items(), key=lambda item: item[1].midterm_date or date.max):
        minutes = _minutes(totals[course_id], course, found, calendar)
        for before, size in zip(DAYS_BEFORE, sizes(minutes), strict=False):
            if before == DAYS_BEFORE[0] or _target(course, before) >= calendar.days[0]:
                _reserve(found, course, before, size, calendar)
    return found


def of_course(reviews: Reviews, course_id: str, before: date = date.max) -> int:
    """Return the minutes of review of a course, all or those before a day."""
    return sum(minutes.get(course_id, 0) for day, minutes in reviews.items() if day < before)


def last_of(reviews: Reviews, course: Course) -> date | None:
    """Return the day of the last review of a course, or None if it has none."""
    return max((day for day, minutes in reviews.items() if course.course_id in minutes), default=None)


def _minutes(total: int, course: Course, reviews: Reviews, calendar: Calendar) -> int:
    assert course.midterm_date is not None
    days = calendar.before(course.midterm_date)
    room = sum(calendar.capacity[day] for day in days)
    taken = sum(sum(reviews[day].values()) for day in days)
    share = int((room * PART_OF_TIME - taken) // STEP * STEP)
    return min(review_minutes(total), max(share, SITTING)) if room - taken >= 2 * SITTING else 0


def review_minutes(total: int) -> int:
    """Return the minutes of review for a course that takes ``total`` minutes.

    >>> review_minutes(60), review_minutes(400), review_minutes(3000)
    (20, 60, 120)
    """
    return min(max(up(total * SHARE), LEAST), MOST)


def sizes(minutes: int) -> list[int]:
    """Divide the minutes of review: the last review takes half of them.

    >>> sizes(20), sizes(45), sizes(120)
    ([20], [25, 20], [60, 30, 30])
    """
    count = min(max(minutes // LEAST, 1), len(DAYS_BEFORE))
    others = [max(minutes // (2 * (count - 1)) // STEP * STEP, SITTING)] * (count - 1) if count > 1 else []
    return [minutes - sum(others), *others]


def _reserve(found: Reviews, course: Course, before: int, size: int, calendar: Calendar) -> None:
    """Reserve a review as near as possible to its day, in pieces that are no shorter than a sitting."""
    for day in _nearest(course, before, calendar):
        block = max(each.minutes for each in calendar.blocks[day])
        room = min(block, MOST_A_DAY) - sum(found[day].values())
        piece = min(size, room)
        if piece >= SITTING:
            found[day][course.course_id] = found[day].get(course.course_id, 0) + piece
            size -= piece


def _nearest(course: Course, before: int, calendar: Calendar) -> Iterator[date]:
    """Yield the days for a review: its own, then earlier ones, then later ones. The first day has nothing to review."""
    assert course.midterm_date is not None
    target = _target(course, before)
    days = calendar.before(course.midterm_date)
    earlier = [day for day in reversed(days) if day <= target]
    later = [day for day in days if day > target]
    ordered = [*earlier, *later] if not earlier or earlier[0] != days[0] else [*later, *earlier]
    yield from sorted(ordered, key=lambda day: day == days[0])


def _target(course: Course, before: int) -> date:
    assert course.midterm_date is not None
    return course.midterm_date - timedelta(days=before)
