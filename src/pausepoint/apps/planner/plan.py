"""PlanningReviewerAgent, the planner: distribute topics over days.

The plan has every day up to the last midterm. Work for the nearest midterm comes first; within a course, the most
important topics come first. No day has more work than necessary to finish everything in time (or an hour, if that is
more). No day exceeds the limit, and the rest day has no work. The last working days before a midterm are for review.

There are two strategies. The first plan includes review. If the time is too short for that, the second plan omits the
review and, if necessary, cuts the least important topics.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import get_args

from pausepoint.apps.planner.models import (
    Course,
    PlanningPayload,
    PlanningState,
    PlanRow,
    Priority,
    Strategy,
    TopicEstimate,
    UserInputs,
    Weekday,
)
from pausepoint.apps.planner.stages import every_day

COMFORT = 60
"""The minutes per day that are always acceptable."""

STEP, SITTING = 5, 15
REVIEW_SHARE, REVIEW_LEAST, REVIEW_MOST = 0.15, 20, 120
REVIEW, MIDTERM, REST, BUFFER = "Review before the midterm", "Midterm", "Rest", "Buffer"
ORDER: dict[Priority, int] = {"high": 0, "medium": 1, "low": 2}
WEEKDAYS: tuple[Weekday, ...] = get_args(Weekday)


@dataclass(frozen=True)
class Work:
    """A topic or a review, with its minutes. It must be finished before the midterm of its course."""

    course: Course
    topic: str
    minutes: int
    priority: Priority
    confidence: float
    sources: tuple[str, ...] = ()

    @property
    def due(self) -> date:
        """The day of the midterm."""
        assert self.course.midterm_date is not None
        return self.course.midterm_date


@dataclass(frozen=True)
class Calendar:
    """The days of a plan."""

    days: list[date]
    limit: int
    rest: Weekday | None

    @classmethod
    def of(cls, inputs: UserInputs, start: date) -> Calendar:
        """Return the calendar from the first day to the last midterm, at least one day."""
        last = max(inputs.last_midterm or start, start)
        constraints = inputs.shared_constraints
        return cls(every_day(start, last), constraints.limit, constraints.preferred_rest_day)

    def rests(self, day: date) -> bool:
        """Return whether a day is the rest day."""
        return WEEKDAYS[day.weekday()] == self.rest

    def before(self, due: date, since: date | None = None) -> list[date]:
        """Return the working days before a midterm."""
        return [day for day in self.days if (since or self.days[0]) <= day < due and not self.rests(day)]

    def level(self, needed: dict[date, int]) -> int:
        """Return the minutes per day that are necessary to finish in time, given the minutes by due day.

        The result is exact, not only a bound: with that much work every day, in the order of due days, all is done.
        """
        found, total = 0, 0
        for due in sorted(needed):
            total += needed[due]
            days = len(self.before(due))
            found = max(found, math.ceil(total / days) if days else (self.limit + 1 if total else 0))
        return found

    def lacking(self, needed: dict[date, int]) -> int:
        """Return how many minutes cannot be finished in time in any order."""
        found, total = 0, 0
        for due in sorted(needed):
            total += needed[due]
            found = max(found, total - self.limit * len(self.before(due)))
        return found


def settled(inputs: UserInputs, start: date) -> UserInputs:
    """Return the inputs with an explicit first day, as a plan keeps them."""
    return inputs.model_copy(update={"start_date": start})


def plan(payload: PlanningPayload) -> PlanningState:
    """Return the next version of the plan."""
    inputs, before = settled(payload.user_inputs, payload.start), payload.planning_state
    strategy = next_strategy(before, inputs)
    calendar = Calendar.of(inputs, payload.start)
    work = works(inputs, payload.estimation_state.topic_estimates)
    if strategy == "without_review":
        work = cut(work, calendar)
    reviews = review_works(work) if strategy == "with_review" else []
    rows = as_rows(scheduled(work, reviews, calendar), inputs, calendar)
    return PlanningState(
        plan_version=before.plan_version + 1, last_midterm_date=inputs.last_midterm, plan_rows=rows, review=None,
        strategy=strategy, planned_for=inputs,
    )  # fmt: skip


def next_strategy(before: PlanningState, inputs: UserInputs) -> Strategy:
    """Return the first strategy for new inputs, or the next one if the last plan for these inputs was refused."""
    refused = before.review is not None and before.review.result_type == "needs_revision"
    if not refused or before.planned_for != inputs:
        return "with_review"
    strategies: tuple[Strategy, ...] = get_args(Strategy)
    after = strategies.index(before.strategy) + 1
    if after == len(strategies):
        reasons = "; ".join(before.review.revision_reasons if before.review else [])
        raise RuntimeError(
            f"Plan {before.plan_version} was refused, and there is no other strategy. Change the dates or limits with"
            f" `replan`. Reasons: {reasons}"
        )
    return strategies[after]


def works(inputs: UserInputs, estimates: Iterable[TopicEstimate]) -> list[Work]:
    """Return the work, nearest midterm first, then by priority."""
    courses = {course.course_id: course for course in inputs.courses}
    found = [
        Work(courses[each.course_id], _own(each.topic), each.estimated_minutes, each.priority, each.confidence,
             tuple(each.source_files))
        for each in estimates
        if each.course_id in courses and courses[each.course_id].midterm_date is not None
    ]  # fmt: skip
    return sorted(found, key=lambda work: (work.due, inputs.courses.index(work.course), ORDER[work.priority]))


def _own(topic: str) -> str:
    """Rename a topic that has the name of a plan row, so that their minutes are not mixed up."""
    return f"{topic} (topic)" if topic in (REVIEW, MIDTERM, REST, BUFFER) else topic


def review_works(work: Sequence[Work]) -> list[Work]:
    """Return a review for every course, sized by its amount of work."""
    totals: dict[str, int] = defaultdict(int)
    for each in work:
        totals[each.course.course_id] += each.minutes
    courses = {each.course.course_id: each.course for each in work}
    sources = {
        course_id: tuple(dict.fromkeys(name for each in work if each.course is course for name in each.sources))
        for course_id, course in courses.items()
    }
    return [
        Work(course, REVIEW, _review_minutes(totals[course_id]), "high", 1.0, sources[course_id])
        for course_id, course in courses.items()
    ]


def _review_minutes(total: int) -> int:
    return min(max(_up(total * REVIEW_SHARE), REVIEW_LEAST), REVIEW_MOST)


def _up(minutes: float) -> int:
    return math.ceil(minutes / STEP) * STEP


def cut(work: Sequence[Work], calendar: Calendar) -> list[Work]:
    """Cut work until it fits: lowest priority first, then lowest confidence, and no more than necessary."""
    minutes = [each.minutes for each in work]
    least = sorted(range(len(work)), key=lambda n: (-ORDER[work[n].priority], work[n].confidence, -n))
    for due in sorted({each.due for each in work}):
        ahead = [number for number in least if work[number].due <= due]
        over = sum(minutes[number] for number in ahead) - calendar.limit * len(calendar.before(due))
        for number in ahead:
            taken = min(minutes[number], max(over, 0))
            minutes[number] -= taken
            over -= taken
    return [replace(each, minutes=left) for each, left in zip(work, minutes, strict=True) if left]


Days = dict[date, list[tuple[Work, int]]]


def needed_by(work: Iterable[Work]) -> dict[date, int]:
    """Return the minutes by due day."""
    found: dict[date, int] = defaultdict(int)
    for each in work:
        found[each.due] += each.minutes
    return dict(found)


def fair(level: int, limit: int) -> int:
    """Return the maximum for a day if ``level`` is sufficient: rounded up, and at least `COMFORT`."""
    return min(max(_up(level), COMFORT), limit)


def scheduled(work: Sequence[Work], reviews: Sequence[Work], calendar: Calendar) -> Days:
    """Assign work to days. Work that does not fit is omitted."""
    most = fair(calendar.level(needed_by([*work, *reviews])), calendar.limit)
    placed = _reviewed(reviews, calendar, most)
    left = [each.minutes for each in work]
    for day in calendar.days:
        if any(left) and not calendar.rests(day):
            needed, wanted = _target(day, work, left, placed, calendar, most)
            reserved = sum(minutes for _, minutes in placed[day])
            placed[day] = [*_taken(day, work, left, needed - reserved, wanted - reserved), *placed[day]]
    return placed


def _taken(day: date, work: Sequence[Work], left: list[int], needed: int, wanted: int) -> list[tuple[Work, int]]:
    """Return the work of a day: as much as needed, and more if that makes a worthwhile sitting."""
    taken: list[tuple[Work, int]] = []
    for number, each in enumerate(work):
        spent = min(left[number], wanted) if day < each.due else 0
        if needed <= 0 and spent < left[number] and min(spent, left[number] - spent) < SITTING:
            spent = 0
        if spent > 0:
            taken.append((each, spent))
            left[number] -= spent
            needed -= spent
            wanted -= spent
    return taken


def _reviewed(reviews: Sequence[Work], calendar: Calendar, most: int) -> Days:
    """Place reviews as late as possible. The last midterm goes first, so that early days stay free."""
    placed: Days = {day: [] for day in calendar.days}
    for each in sorted(reviews, key=lambda work: work.due, reverse=True):
        minutes = each.minutes
        for day in reversed(calendar.before(each.due)):
            spent = min(minutes, most - sum(taken for _, taken in placed[day]))
            if spent > 0:
                placed[day].append((each, spent))
                minutes -= spent
    return placed


def _target(
    day: date, work: Sequence[Work], left: Sequence[int], placed: Days, calendar: Calendar, most: int
) -> tuple[int, int]:  # fmt: skip
    """Return the minutes that a day needs so that no later day needs more, and the minutes that it should have."""
    needed: dict[date, int] = defaultdict(int)
    for each, minutes in zip(work, left, strict=True):
        if each.due > day:
            needed[each.due] += minutes
    level, total = 0, 0
    for due in sorted(needed):
        total += needed[due]
        days = calendar.before(due, day)
        reserved = sum(minutes for each in days for _, minutes in placed[each])
        level = max(level, math.ceil((total + reserved) / len(days)) if days else 0)
    return min(_up(level), most), min(fair(level, calendar.limit), most)


# rows


def as_rows(days: Days, inputs: UserInputs, calendar: Calendar) -> list[PlanRow]:
    """Return the plan, day by day. A day without work has a row, too."""
    rows: list[PlanRow] = []
    parts = _parts(days)
    for day in calendar.days:
        work = [_row(day, each, minutes, *parts[day, each.course.course_id, each.topic]) for each, minutes in days[day]]
        exams = [_idle(day, MIDTERM, "Midterm exam", course) for course in inputs.courses if course.midterm_date == day]
        if calendar.rests(day):
            rows += [*exams, _idle(day, REST, "Rest day: no work")]
        else:
            rows += [*work, *exams] or [_idle(day, BUFFER, "Free: for work that took longer than planned")]
    return rows


def _parts(days: Days) -> dict[tuple[date, str, str], tuple[int, int]]:
    """Return the part number and the number of parts for each piece of work on a day."""
    where: dict[tuple[str, str], list[date]] = defaultdict(list)
    for day, work in days.items():
        for each, _ in work:
            where[each.course.course_id, each.topic].append(day)
    return {(day, *key): (number, len(listed)) for key, listed in where.items() for number, day in enumerate(listed, 1)}


def _row(day: date, work: Work, minutes: int, part: int, parts: int) -> PlanRow:
    name = work.course.course_name
    if work.topic == REVIEW:
        task = f"Review {name} for the midterm on {work.due}"
    elif part == parts:
        task = f"Learn {work.topic}, then practise and test yourself"
    else:
        task = f"Learn {work.topic}"
    told = f" (part {part} of {parts})" if parts > 1 else ""
    return PlanRow(
        date=day, course=name, topic=work.topic, task_description=task + told, estimated_minutes=minutes,
        priority=work.priority, source_files=list(work.sources),
    )  # fmt: skip


def _idle(day: date, topic: str, task: str, course: Course | None = None) -> PlanRow:
    """Return a row without work."""
    return PlanRow(
        date=day, course=course.course_name if course else "", topic=topic, task_description=task,
        estimated_minutes=0, priority="high" if course else "low",
    )  # fmt: skip
