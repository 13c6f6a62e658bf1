"""SkillMastery: the formula by example, and what holds for any work."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pausepoint.apps.aura.models import Assignment
from pausepoint.apps.aura.skill_mastery import analyze
from tests.apps.classroom import NOW


def one(number: int = 0, course: str = "Botany", days: float | None = 0, **more: Any) -> Assignment:
    """Work that was due so many days ago."""
    due = None if days is None else NOW - timedelta(days=days)
    return Assignment(id=f"a/{course}/{number}", account="a", course=course, title=f"Work {number}", due=due, **more)


def graded(share: float, number: int = 0, **more: Any) -> Assignment:
    return one(number, handed_in=True, points=10 * share, max_points=10, **more)


def mastery(*work: Assignment) -> float | None:
    (subject,) = analyze(work, NOW).subjects
    return subject.mastery


def test_recent_work_weighs_more() -> None:
    assert mastery(graded(1.0), graded(0.5, 1, days=30)) == pytest.approx((1 + 0.5 * 0.5) / 1.5)
    assert mastery(graded(0.5), graded(1.0, 1, days=30)) == pytest.approx((0.5 + 0.5) / 1.5)


def test_late_work_counts_nine_tenths_and_missing_work_nothing_at_half_weight() -> None:
    assert mastery(graded(1.0, late=True)) == pytest.approx(0.9)
    assert mastery(graded(1.0), one(1, days=0.001)) == pytest.approx(1 / 1.5, abs=1e-4)


def test_missing_work_alone_is_no_mastery_of_zero_percent() -> None:
    found = analyze([one(days=3), graded(0.8, 1, course="Zoology")], NOW)
    botany, zoology = found.subjects
    assert (botany.mastery, botany.missing, botany.need) == (None, 1, 0.5)
    assert found.level("Botany") is None
    assert found.overall == zoology.mastery == pytest.approx(0.8)


def test_missing_work_is_missing_and_not_late_even_where_the_api_calls_it_so() -> None:
    (subject,) = analyze(
        [one(days=1, late=True), graded(1.0, 1, late=True), one(2, handed_in=True, late=True)], NOW
    ).subjects
    assert (subject.late, subject.missing) == (2, 1)


def test_confidence_grows_with_evidence() -> None:
    found = [analyze([graded(0.7, number) for number in range(count)], NOW).subjects for count in (1, 2, 8)]
    assert [subject.confidence for (subject,) in found] == pytest.approx([1 / 3, 2 / 4, 8 / 10])


def test_what_cannot_be_judged_says_nothing() -> None:
    not_due, ungraded = one(days=-1), one(1, handed_in=True)
    no_points = [one(2, handed_in=True, points=3, max_points=most) for most in (0, -10)]
    (subject,) = analyze([not_due, ungraded, *no_points], NOW).subjects
    assert (subject.mastery, subject.confidence, subject.graded, subject.need) == (None, 0.0, 0, 0.5)
    assert analyze([], NOW).overall is None


def test_work_without_any_date_counts_as_thirty_days_old() -> None:
    assert mastery(graded(1.0), graded(0.0, 1, days=None)) == pytest.approx(1 / 1.5)


def test_extra_points_count_as_all_of_them() -> None:
    assert mastery(graded(1.3)) == 1.0


def test_courses_of_one_name_are_one_subject() -> None:
    found = analyze([graded(1.0, course="Botany"), graded(0.0, 1, course=" botany")], NOW)
    assert [(each.graded, each.mastery) for each in found.subjects] == [(2, 0.5)]
    assert found.level("BOTANY") == found.subjects[0].mastery


@pytest.mark.parametrize(
    ("shares", "trend"),
    [
        ([0.2, 0.4, 0.6, 0.8], "rising"),
        ([0.8, 0.6, 0.4, 0.2], "falling"),
        ([0.5] * 4, "steady"),
        ([0.1, 0.5, 0.9], None),
    ],
)
def test_a_trend_compares_later_with_earlier_work(shares: list[float], trend: str | None) -> None:
    work = [graded(share, number, days=40 - 10 * number) for number, share in enumerate(shares)]
    (subject,) = analyze(work, NOW).subjects
    assert subject.trend == trend
    assert [each.score for each in subject.history] == pytest.approx(shares)


moments = st.datetimes(datetime(2027, 1, 1), datetime(2031, 1, 1)).map(lambda moment: moment.replace(tzinfo=NOW.tzinfo))
points = st.none() | st.floats(0, 200)


@st.composite
def works(draw: st.DrawFn) -> list[Assignment]:
    count = draw(st.integers(0, 12))
    return [
        Assignment(
            id=str(number), account="a", course=draw(st.sampled_from(["Botany", "Zoology"])), title="x",
            due=draw(st.none() | moments), handed_in=draw(st.booleans()), late=draw(st.booleans()), points=draw(points),
            max_points=draw(points),
        )
        for number in range(count)
    ]  # fmt: skip


@pytest.mark.long
@given(works(), st.randoms(use_true_random=False))
def test_any_work_gives_shares_and_its_order_does_not_matter(work: list[Assignment], random: Any) -> None:
    found = analyze(work, NOW)
    shuffled = random.sample(work, len(work))
    again = analyze(shuffled, NOW)
    for each, other in zip(found.subjects, again.subjects, strict=True):
        assert each.mastery is None or 0 <= each.mastery <= 1
        assert 0 <= each.confidence < 1
        assert 0 <= each.need <= 1
        assert other.mastery == pytest.approx(each.mastery)
        assert other.confidence == pytest.approx(each.confidence)
    assert {each.subject for each in found.subjects} == {each.course for each in work}


@pytest.mark.long
@given(works(), st.floats(0, 60))
def test_more_evidence_never_lowers_confidence_and_full_marks_never_lower_mastery(
    work: list[Assignment], days: float
) -> None:
    before, after = analyze(work, NOW), analyze([*work, graded(1.0, 99, days=days)], NOW)
    known = {each.subject: each for each in before.subjects}
    (botany,) = [each for each in after.subjects if each.subject == "Botany"]
    if "Botany" in known:
        assert botany.confidence >= known["Botany"].confidence
        assert botany.mastery is not None
        assert botany.mastery >= (known["Botany"].mastery or 0.0) - 1e-9


@given(st.floats(0, 1), st.floats(0, 400))
def test_being_late_never_helps(share: float, days: float) -> None:
    others = [graded(0.6, 1)]
    punctual, late = mastery(graded(share, days=days), *others), mastery(graded(share, days=days, late=True), *others)
    assert punctual is not None
    assert late is not None
    assert late <= punctual + 1e-9
