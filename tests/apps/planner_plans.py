"""Plans without a session: inputs, topics, and the cycle of planning and reviewing."""

from __future__ import annotations

from datetime import date

from pausepoint.apps.planner.models import (
    WEEKDAYS,
    EstimationState,
    PlanningPayload,
    PlanningState,
    Priority,
    Review,
    TopicEstimate,
    UserInputs,
    Weekday,
)
from pausepoint.apps.planner.plan import plan
from pausepoint.apps.planner.review import review

MONDAY = date(2030, 3, 4)


def inputs(
    limit: int | None = None, rest: Weekday | None = None, hours: list[str] | None = None, **midterms: date
) -> UserInputs:
    courses = [{"course_id": each, "course_name": each.title(), "midterm_date": day} for each, day in midterms.items()]
    limits = {"max_minutes_per_day": limit, "preferred_rest_day": rest,
              "study_hours": dict.fromkeys(WEEKDAYS, hours) if hours else {}}  # fmt: skip
    return UserInputs.model_validate({"start_date": MONDAY, "courses": courses, "shared_constraints": limits})


def topic(
    course: str, name: str, minutes: int, priority: Priority = "medium", confidence: float = 0.8
) -> TopicEstimate:
    return TopicEstimate(
        course_id=course, topic=name, estimated_minutes=minutes, priority=priority, confidence=confidence,
        source_files=[f"{course}.pdf"],
    )  # fmt: skip


def payload(given: UserInputs, topics: list[TopicEstimate], planning: PlanningState | None = None) -> PlanningPayload:
    return PlanningPayload(
        session_id="s1", user_inputs=given, estimation_state=EstimationState(topic_estimates=topics),
        planning_state=planning or PlanningState(), start=given.start_date or MONDAY,
    )  # fmt: skip


def cycle(given: UserInputs, topics: list[TopicEstimate], planning: PlanningState | None = None) -> list[PlanningState]:
    """Plan and review until a plan stands, as the workflow does."""
    found: list[PlanningState] = []
    planning = planning or PlanningState()
    while not found or review_of(found[-1]).result_type == "needs_revision":
        planning = plan(payload(given, topics, planning))
        planning = planning.model_copy(update={"review": review(payload(given, topics, planning))})
        found.append(planning)
    return found


def review_of(planning: PlanningState) -> Review:
    assert planning.review is not None
    return planning.review
