"""PlanningReviewerAgent, the planner: distribute topics over days.

The plan has every day up to the last midterm. A course keeps the order of its book, and several courses share the
days. Spaced reviews before each midterm are placed first.

There are two strategies. The first plan has everything that is left. If the time is too short for that, the second
plan cuts topics by priority and lists the cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pausepoint.apps.planner import intervals
from pausepoint.apps.planner.cuts import cut
from pausepoint.apps.planner.enough import enough
from pausepoint.apps.planner.hours import Calendar
from pausepoint.apps.planner.models import Cut, PlanningPayload, PlanningState, Strategy, UserInputs
from pausepoint.apps.planner.rows import REVIEW, as_rows, continued
from pausepoint.apps.planner.schedule import Days, arranged
from pausepoint.apps.planner.work import Work, works

STRATEGIES: tuple[Strategy, ...] = ("with_review", "with_cuts")


def settled(inputs: UserInputs, start: date) -> UserInputs:
    """Return the inputs with an explicit first day, as a plan keeps them."""
    return inputs.model_copy(update={"start_date": start})


def plan(payload: PlanningPayload) -> PlanningState:
    """Return the next version of the plan."""
    inputs, before = settled(payload.user_inputs, payload.start), payload.planning_state
    strategy = next_strategy(before, inputs)
    calendar = Calendar.of(inputs, payload.start)
    work = works(inputs, payload.estimation_state.topic_estimates)
    reviews = intervals.reserved(work, calendar)
    if strategy == "with_cuts":
        work, days = _cut_to_fit(work, reviews, calendar)
    else:
        days, _ = arranged(work, reviews, calendar)
    rows, withdrawn, added = continued(as_rows(days, work, inputs, calendar), before, inputs)
    is_cut = strategy == "with_cuts"
    return PlanningState(
        plan_version=before.plan_version + 1, last_midterm_date=inputs.last_midterm, plan_rows=rows, review=None,
        strategy=strategy, planned_for=inputs, withdrawn=withdrawn, added=added, made_at=payload.now,
        cuts=[*_cuts(work), *_missing_reviews(work, reviews)] if is_cut else [],
        enough_minutes=enough(inputs, payload.estimation_state.topic_estimates, payload.start) if is_cut else None,
    )  # fmt: skip


def next_strategy(before: PlanningState, inputs: UserInputs) -> Strategy:
    """Return the first strategy for new inputs, or the next one if the last plan for these inputs was refused."""
    refused = before.review is not None and before.review.result_type == "needs_revision"
    if not refused or before.planned_for != inputs or before.strategy not in STRATEGIES:
        return STRATEGIES[0]
    after = STRATEGIES.index(before.strategy) + 1
    if after == len(STRATEGIES):
        reasons = "; ".join(before.review.revision_reasons if before.review else [])
        raise RuntimeError(
            f"Plan {before.plan_version} was refused, and there is no other strategy. Change the dates or limits with"
            f" `replan`. Reasons: {reasons}"
        )
    return STRATEGIES[after]


def _cut_to_fit(
    work: Sequence[Work], reviews: intervals.Reviews, calendar: Calendar
) -> tuple[list[Work], Days]:  # fmt: skip
    """Cut as little as possible: what the minutes require, and the few that are wasted where a sitting ends."""
    room = {due: learning_minutes(reviews, calendar, due) for due in {each.due for each in work}}
    extra: dict[date, int] = {}
    while True:
        kept = cut(work, room, extra)
        days, late = arranged(kept, reviews, calendar)
        if not late:
            return kept, days
        for due, minutes in late.items():
            extra[due] = extra.get(due, 0) + minutes


def learning_minutes(reviews: intervals.Reviews, calendar: Calendar, due: date) -> int:
    """Return the minutes before a midterm that no review takes."""
    return calendar.minutes_before(due) - sum(sum(reviews[day].values()) for day in calendar.before(due))


def _cuts(work: Sequence[Work]) -> list[Cut]:
    return [
        Cut(course_id=each.course.course_id, topic=each.topic, needed_minutes=each.minutes,
            planned_minutes=each.planned)
        for each in work
        if each.planned < each.minutes
    ]  # fmt: skip


def _missing_reviews(work: Sequence[Work], reviews: intervals.Reviews) -> list[Cut]:
    return [
        Cut(course_id=course_id, topic=REVIEW, needed_minutes=intervals.LEAST, planned_minutes=0)
        for course_id in dict.fromkeys(each.course.course_id for each in work)
        if not intervals.of_course(reviews, course_id)
    ]
