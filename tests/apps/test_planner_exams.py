"""What an exam covers, and how many minutes a day would be enough."""

from __future__ import annotations

from datetime import date

import pytest

from pausepoint.apps.planner.models import SectionEstimate, TopicEstimate
from tests.apps.planner_plans import MONDAY, cycle, inputs, topic


def test_a_plan_with_cuts_says_how_many_minutes_a_day_are_enough() -> None:
    """As many, and not fewer: with them nothing is cut, and with five fewer something is."""
    for limit, midterm, topics in (
        (60, date(2030, 3, 8), [topic("alpha", "A", 300)]),
        (30, date(2030, 3, 20), [topic("alpha", f"A{n}", 95) for n in range(9)]),
    ):
        minutes = cycle(inputs(limit, alpha=midterm), topics)[-1].enough_minutes
        assert minutes is not None
        plenty, less = (cycle(inputs(each, alpha=midterm), topics)[-1] for each in (minutes, minutes - 5))
        assert (plenty.cuts, plenty.enough_minutes) == ([], None)
        assert (bool(less.cuts), less.enough_minutes) == (True, minutes)


def test_no_number_of_minutes_is_enough_if_the_study_hours_are_too_short() -> None:
    given = inputs(60, hours=["16:00-17:00"], alpha=date(2030, 3, 8))
    found = cycle(given, [topic("alpha", "A", 300)])[-1]
    assert (bool(found.cuts), found.enough_minutes) == (True, None)
    assert cycle(inputs(60, alpha=MONDAY), [topic("alpha", "A", 30)])[-1].enough_minutes is None


def numbered(course: str, *chapters: int) -> list[TopicEstimate]:
    """Chapters of two sections each, of 30 minutes."""
    return [
        TopicEstimate(
            course_id=course, topic=f"Chapter {number}", estimated_minutes=60, priority="medium", confidence=0.8,
            sections=[
                SectionEstimate(section=f"{number}.{part} Part", number=f"{number}.{part}", title="Part", minutes=30)
                for part in (1, 2)
            ],
        )
        for number in chapters
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("exam", "sections"),
    [
        ("chapters 2–3", ["2.1", "2.2", "3.1", "3.2"]),
        ("1, 4", ["1.1", "1.2", "4.1", "4.2"]),
        ("§1.2-2.1 and chapter 4", ["1.2", "2.1", "4.1", "4.2"]),
        ("up to chapter 2", ["1.1", "1.2", "2.1", "2.2"]),
        ("chapter 3", ["3.1", "3.2"]),
        ("", ["1.1", "1.2", "2.1", "2.2", "3.1", "3.2", "4.1", "4.2"]),
    ],
)
def test_an_exam_limits_its_course_and_no_other(exam: str, sections: list[str]) -> None:
    given = inputs(120, alpha=date(2030, 3, 20), beta=date(2030, 3, 20))
    courses = [given.courses[0].model_copy(update={"exam": exam}), given.courses[1]]
    (found,) = cycle(
        given.model_copy(update={"courses": courses}), [*numbered("alpha", 1, 2, 3, 4), topic("beta", "B", 60)]
    )
    parts = [part.section[:3] for row in found.plan_rows if row.course == "Alpha" for part in row.parts]
    assert list(dict.fromkeys(parts)) == sections
    assert found.review is not None
    assert found.review.result_type == "approved_plan"
    assert any(row.course == "Beta" and row.parts for row in found.plan_rows)


def test_an_exam_counts_the_topics_of_a_course_without_numbers() -> None:
    given = inputs(120, alpha=date(2030, 3, 20))
    topics = [topic("alpha", name, 60) for name in ("Eels", "Food", "Herrings")]
    for exam, names in (("chapters 1-2", ["Eels", "Food"]), ("Herrings, food", ["Food", "Herrings"])):
        courses = [given.courses[0].model_copy(update={"exam": exam})]
        (found,) = cycle(given.model_copy(update={"courses": courses}), topics)
        assert list(dict.fromkeys(part.topic for row in found.plan_rows for part in row.parts)) == names
