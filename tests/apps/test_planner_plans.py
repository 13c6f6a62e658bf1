"""Plans: every one honours its days and limits or says why not; the reviewer's checks see what was broken."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pausepoint.apps.planner.hours import SITTING, Calendar
from pausepoint.apps.planner.models import (
    DEFAULT_MINUTES,
    WEEKDAYS,
    Busy,
    PlanningState,
    PlanRow,
    Priority,
    Progress,
    ResultType,
    Review,
    SectionEstimate,
    TopicEstimate,
    UserInputs,
    ValidationReport,
    Weekday,
)
from pausepoint.apps.planner.plan import plan
from pausepoint.apps.planner.review import review, unbalanced
from pausepoint.apps.planner.rows import BUFFER, MIDTERM, REST, REVIEW
from tests.apps.planner_plans import MONDAY, cycle, inputs, payload, review_of, topic


def load(rows: list[PlanRow]) -> dict[date, int]:
    found: dict[date, int] = defaultdict(int)
    for row in rows:
        found[row.date] += row.estimated_minutes
    return found


# properties

DAYS = st.integers(0, 45).map(lambda number: MONDAY + timedelta(days=number))


@st.composite
def tasks(draw: st.DrawFn) -> tuple[UserInputs, list[TopicEstimate]]:
    """Some courses with topics, dates and limits: of all kinds, also impossible ones."""
    names = ["alpha", "beta", "gamma", "delta"][: draw(st.integers(1, 4))]
    given = inputs(
        draw(st.none() | st.integers(1, 300)),
        draw(st.none() | st.sampled_from(get_args(Weekday))),
        draw(st.sampled_from([None, ["8:00-10:00", "12:00-12:20", "18:00-18:50"]])),
        **{name: draw(DAYS) for name in names},
    )
    minutes = st.integers(1, 200).map(lambda number: number * 5) | st.integers(1, 600)
    topics = [
        topic(name, f"{name} {number}", draw(minutes), draw(st.sampled_from(get_args(Priority))), 0.5)
        for name in names
        for number in range(draw(st.integers(1, 5)))
    ]
    return given, topics


@pytest.mark.covers("S3.17", "S3.39")
@given(tasks())
def test_every_plan_honours_its_constraints_or_says_why_not(task: tuple[UserInputs, list[TopicEstimate]]) -> None:
    given, topics = task
    versions = cycle(given, topics)
    last = versions[-1]
    found = review_of(last)
    assert [each.plan_version for each in versions] == list(range(1, len(versions) + 1))
    assert len(versions) <= 2
    for each in versions:  # also one that was refused: it lacked something, and broke nothing
        check_days(given, each)
        check_order(topics, each)
        check_last_days(given, each)
    check_verdict(given, topics, last, found)


def check_days(given: UserInputs, planning: PlanningState) -> None:
    """Counted here anew: not a line of this is the reviewer's."""
    rows, limits = planning.plan_rows, given.shared_constraints
    end = max(course.midterm_date for course in given.courses if course.midterm_date)
    assert planning.last_midterm_date == end
    assert sorted({row.date for row in rows}) == [MONDAY + timedelta(days=n) for n in range((end - MONDAY).days + 1)]
    assert [row.date for row in rows] == sorted(row.date for row in rows)
    due = {course.course_name: course.midterm_date for course in given.courses}
    for row in rows:
        if row.estimated_minutes:
            midterm = due[row.course]
            assert midterm is not None
            assert row.date < midterm
            assert row.estimated_minutes >= SITTING
            assert WEEKDAYS[row.date.weekday()] != limits.preferred_rest_day
    for minutes in load(rows).values():
        assert minutes <= (limits.max_minutes_per_day or DEFAULT_MINUTES)
    ids = [row.row_id for row in rows if row.row_id]
    assert len(set(ids)) == len(ids)


def check_order(topics: list[TopicEstimate], planning: PlanningState) -> None:
    """The parts of a course are in the order of the book, and none is planned twice."""
    for course in {each.course_id for each in topics}:
        book = [each.topic for each in topics if each.course_id == course]
        parts = [part for row in planning.plan_rows if row.course == course.title() for part in row.parts]
        places = [(book.index(part.topic), part.first) for part in parts]
        assert places == sorted(places)
        assert all(one.last == other.first for one, other in pairwise(parts) if one.topic == other.topic)


def check_last_days(given: UserInputs, planning: PlanningState) -> None:
    """On the day of its last review, a course has no new matter after the review."""
    for course in given.courses:
        last = max(((row.date, row.starts_at) for row in reviews(planning, course.course_name)), default=None)
        rows = [row for row in planning.plan_rows if row.course == course.course_name and row.parts]
        assert last is None or all((row.date, row.starts_at) < last for row in rows if row.date == last[0])


def check_verdict(given: UserInputs, topics: list[TopicEstimate], last: PlanningState, found: Review) -> None:
    names = {course.course_id: course.course_name for course in given.courses}
    planned: dict[tuple[str, str], int] = defaultdict(int)
    for row in last.plan_rows:
        for part in row.parts:
            planned[row.course, part.topic] += part.minutes
    needed = {(names[each.course_id], each.topic): -(-each.estimated_minutes // 5) * 5 for each in topics}
    short = {key for key, minutes in needed.items() if planned[key] < minutes}
    assert all(planned[key] <= minutes for key, minutes in needed.items())
    unreviewed = {name for name in names.values() if not reviews(last, name)}
    report = found.validation_report
    assert (report.date_range_ok, report.load_balance_ok) == (True, True)
    assert report.coverage_ok == (not short and not unreviewed)
    if short or unreviewed:
        assert found.result_type == "capacity_limited_plan"
        assert len(found.revision_reasons) == len(short) + len(unreviewed)
        for course, name in [*short, *((name, "review") for name in unreviewed)]:
            assert any(f"{course}, {name}: " in reason for reason in found.revision_reasons)
    else:
        assert (found.result_type, found.revision_reasons) == ("approved_plan", [])
    for name in unreviewed:  # only a course without time for two sittings has no review
        due = next(course.midterm_date for course in given.courses if course.course_name == name)
        assert due is not None
        assert free_before(given, last, due) < 2 * SITTING


def reviews(planning: PlanningState, course: str) -> list[PlanRow]:
    return [row for row in planning.plan_rows if (row.course, row.topic, row.parts) == (course, REVIEW, [])]


def free_before(given: UserInputs, planning: PlanningState, due: date) -> int:
    """The minutes before a midterm that no other review takes."""
    room = Calendar.of(given, MONDAY).minutes_before(due)
    return room - sum(
        row.estimated_minutes for row in planning.plan_rows if row.topic == REVIEW and not row.parts and row.date < due
    )


@pytest.mark.long
@given(tasks())
def test_a_plan_is_the_same_whenever_it_is_made(task: tuple[UserInputs, list[TopicEstimate]]) -> None:
    given, topics = task
    assert cycle(given, topics) == cycle(given.model_copy(deep=True), [each.model_copy() for each in topics])


# examples

OLD = {
    "date", "course", "topic", "task_description", "estimated_minutes", "priority", "source_files", "status",
}  # fmt: skip


def section(number: str, minutes: int, page: int, last: int) -> SectionEstimate:
    return SectionEstimate(
        section=f"{number} Part {number}", number=number, title=f"Part {number}", filename="book.pdf", first_page=page,
        last_page=last, minutes=minutes,
    )  # fmt: skip


def book(course: str, *lengths: int) -> TopicEstimate:
    """A chapter with sections of these lengths, each on ten pages."""
    sections = [
        section(f"6.{number}", minutes, 10 * number, 10 * number + 9) for number, minutes in enumerate(lengths, 1)
    ]
    return topic(course, "Chapter 6", sum(lengths)).model_copy(update={"sections": sections})


def studied(found: PlanningState) -> list[tuple[str, int]]:
    return [(row.task_description, row.estimated_minutes) for row in found.plan_rows if row.parts]


def test_the_order_of_the_book_is_kept_and_not_that_of_priority() -> None:
    given = inputs(240, alpha=date(2030, 3, 12))
    names: list[tuple[str, Priority]] = [("1", "low"), ("2", "high"), ("3", "medium"), ("4", "high")]
    (found,) = cycle(given, [topic("alpha", name, 60, priority) for name, priority in names])
    assert [row.topic for row in found.plan_rows if row.parts] == ["1", "2", "3", "4"]


def test_a_row_names_the_sections_and_pages_and_ends_where_a_section_ends() -> None:
    given = inputs(60, alpha=date(2030, 3, 9))
    (found,) = cycle(given, [book("alpha", 5, 20, 20, 5, 5, 20, 15)])
    assert studied(found) == [
        ("Study book §6.1–6.5 (“Part 6.1” to “Part 6.5”), pp. 10–59", 55),
        ("Study book §6.6–6.7 (“Part 6.6” to “Part 6.7”), pp. 60–79; then practise and test yourself", 35),
    ]


def test_a_long_section_is_split_and_each_row_says_which_part_it_is() -> None:
    given = inputs(60, alpha=date(2030, 3, 9))
    (found,) = cycle(given, [book("alpha", 150)])
    assert studied(found) == [
        ("Study book §6.1 Part 6.1, the first 40 %, pp. 10–13", 60),
        ("Study book §6.1 Part 6.1, from 40 % to 80 %, pp. 14–17", 60),
        ("Study book §6.1 Part 6.1, the last 20 %, pp. 18–19; then practise and test yourself", 30),
    ]


def test_a_part_that_is_done_before_an_earlier_one_leaves_the_earlier_one() -> None:
    """The first and the last part of the section are left, not the part after as much as was done."""
    done = Progress(course_id="alpha", topic="Chapter 6", section="6.1 Part 6.1", first=400, last=800, status="done",
                    on=MONDAY, minutes=60)  # fmt: skip
    given = inputs(60, alpha=date(2030, 3, 9)).model_copy(update={"progress": [done]})
    (found,) = cycle(given, [book("alpha", 150)])
    assert studied(found) == [
        ("Study book §6.1 Part 6.1, the first 40 %, pp. 10–13", 60),
        ("Study book §6.1 Part 6.1, the last 20 %, pp. 18–19; then practise and test yourself", 30),
    ]
    short = inputs(60, alpha=date(2030, 3, 9)).model_copy(update={"progress": [done]})
    (found,) = cycle(short, [book("alpha", 75)])
    assert [row for row, _ in studied(found)] == [
        "Study book §6.1 Part 6.1, the first 40 % and the last 20 %, pp. 10–19; then practise and test yourself"
    ]


def test_crumbs_share_a_row() -> None:
    given = inputs(60, alpha=date(2030, 3, 9))
    (found,) = cycle(given, [topic("alpha", name, 5) for name in "ABCDE"])
    assert [(row.topic, row.estimated_minutes) for row in found.plan_rows if row.parts] == [("A + B + C + D + E", 25)]
    (alone,) = cycle(given, [topic("alpha", "A", 5)])
    assert [row.estimated_minutes for row in alone.plan_rows if row.parts] == [SITTING]


def test_courses_share_the_days() -> None:
    given = inputs(240, alpha=date(2030, 3, 18), beta=date(2030, 3, 25))
    (found,) = cycle(given, [topic(name, f"{name} {n}", 60) for name in ("alpha", "beta") for n in range(10)])
    worked = {day: {row.course for row in found.plan_rows if row.date == day and row.parts} for day in load_days(found)}
    before = [courses for day, courses in worked.items() if day < date(2030, 3, 17)]
    assert len([courses for courses in before if courses == {"Alpha", "Beta"}]) >= len(before) - 4
    assert {"Beta"} in worked.values()


def load_days(found: PlanningState) -> list[date]:
    return sorted({row.date for row in found.plan_rows if row.parts})


def test_reviews_are_spaced_and_the_last_is_on_the_last_working_day() -> None:
    given = inputs(240, "Sunday", alpha=date(2030, 3, 18), beta=date(2030, 3, 25))
    (found,) = cycle(given, [topic("alpha", "A", 600), topic("beta", "B", 60)])
    dates = {name: [(row.date, row.estimated_minutes) for row in reviews(found, name)] for name in ("Alpha", "Beta")}
    assert dates == {
        "Alpha": [(date(2030, 3, 11), 20), (date(2030, 3, 15), 20), (date(2030, 3, 16), 50)],  # the 17th is a Sunday
        "Beta": [(date(2030, 3, 23), 20)],
    }


def test_the_day_before_a_midterm_ends_with_its_review_and_has_new_matter_only_if_nothing_else_fits() -> None:
    """Before, the review came first on that day, and the last chapter of the book after it."""
    eve = date(2030, 3, 8)
    given = inputs(120, alpha=date(2030, 3, 9), beta=date(2030, 3, 20))
    (found,) = cycle(given, [book("alpha", *[50] * 8), topic("beta", "B", 300)])
    last_day = [row for row in found.plan_rows if row.date == eve]
    assert {row.course for row in last_day if row.parts} <= {"Beta"}
    assert (last_day[-1].course, last_day[-1].topic) == ("Alpha", REVIEW)
    (tight,) = cycle(inputs(120, alpha=date(2030, 3, 9)), [book("alpha", *[50] * 10)])
    assert {minutes for day, minutes in load(tight.plan_rows).items() if day < eve} <= {120, 100}  # as good as full
    last_day = [row for row in tight.plan_rows if row.date == eve]
    assert [bool(row.parts) for row in last_day] == [True, False]


def test_the_last_review_fills_the_end_of_a_day_that_is_interrupted() -> None:
    """The last free time is too short for the whole review, so the review begins in the one before."""
    given = inputs(240, None, ["8:00-10:00", "18:00-18:30"], alpha=date(2030, 3, 8))
    found = cycle(given, [topic("alpha", "A", 900)])[-1]
    last_day = [row for row in found.plan_rows if row.date == date(2030, 3, 7)]
    assert [(bool(row.parts), row.estimated_minutes) for row in last_day[-2:]] == [(False, 30), (False, 30)]
    assert any(row.parts for row in last_day)


def test_a_plan_that_begins_later_has_fewer_reviews_and_still_the_last_one() -> None:
    given = inputs(240, alpha=date(2030, 3, 18))
    counts = {}
    for start in (date(2030, 3, 4), date(2030, 3, 12), date(2030, 3, 16), date(2030, 3, 17)):
        task = payload(given.model_copy(update={"start_date": start}), [topic("alpha", "A", 600)])
        counts[start.day] = [row.date.day for row in reviews(plan(task), "Alpha")]
    assert counts == {4: [11, 15, 17], 12: [15, 17], 16: [17], 17: [17]}


def test_a_plan_of_an_earlier_version_is_reviewed_and_planned_again() -> None:
    """Its rows have no ids, parts or times, and its strategy is no longer used."""
    old = GOOD.model_copy(
        update={
            "strategy": "without_review",
            "plan_rows": [PlanRow.model_validate(row.model_dump(include=OLD)) for row in GOOD.plan_rows],
        }
    )
    found = review(payload(GIVEN, TOPICS, old))
    assert found.result_type == "needs_revision"
    again = cycle(GIVEN, TOPICS, old.model_copy(update={"review": found}))[-1]
    assert (again.strategy, again.withdrawn) == ("with_review", [])
    assert again.plan_rows == GOOD.plan_rows


@pytest.mark.covers("S3.66")
def test_a_day_without_work_is_a_rest_or_a_buffer_row() -> None:
    (found,) = cycle(inputs(240, "Sunday", alpha=date(2030, 3, 15)), [topic("alpha", "A", 60)])
    idle = {row.date: row.topic for row in found.plan_rows if not row.estimated_minutes}
    assert idle[date(2030, 3, 10)] == REST
    assert idle[date(2030, 3, 15)] == MIDTERM
    assert idle[date(2030, 3, 6)] == BUFFER
    worked = {row.date for row in found.plan_rows if row.estimated_minutes}
    assert worked == {MONDAY, date(2030, 3, 14)}
    assert set(idle) | worked == {MONDAY + timedelta(days=number) for number in range(12)}
    whole_day = Busy(start=datetime(2030, 3, 6, tzinfo=UTC), end=datetime(2030, 3, 7, tzinfo=UTC))
    away = inputs(240, "Sunday", alpha=date(2030, 3, 15)).model_copy(update={"busy": [whole_day]})
    (found,) = cycle(away, [topic("alpha", "A", 60)])
    said = {row.date: row.task_description for row in found.plan_rows}
    assert said[date(2030, 3, 6)] == "No time for study on this day"
    assert said[date(2030, 3, 7)].startswith("Free")
    (sunday,) = cycle(inputs(240, "Sunday", alpha=date(2030, 3, 17)), [topic("alpha", "A", 60)])
    assert [row.topic for row in sunday.plan_rows if row.date == date(2030, 3, 17)] == [MIDTERM]


def test_no_day_is_heavier_than_it_has_to_be() -> None:
    given = inputs(480, alpha=date(2030, 3, 14))
    (found,) = cycle(given, [topic("alpha", f"A{n}", 100) for n in range(10)])
    assert max(load(found.plan_rows).values()) <= 130  # 1,060 minutes on nine days; the last has only the review
    (easy,) = cycle(given, [topic("alpha", "A", 50)])
    assert max(load(easy.plan_rows).values()) <= 60


def test_a_plan_that_is_too_long_is_revised_with_cuts_and_the_review_stays() -> None:
    given = inputs(60, alpha=date(2030, 3, 8))
    comfortable = cycle(given, [topic("alpha", "A", 180)])
    minor, major = topic("alpha", "minor", 100, "low"), topic("alpha", "major", 200, "high")
    impossible = cycle(given, [minor, major])
    assert [each.strategy for each in comfortable] == ["with_review"]
    assert [each.strategy for each in impossible] == ["with_review", "with_cuts"]
    assert [review_of(each).result_type for each in impossible] == ["needs_revision", "capacity_limited_plan"]
    assert [review_of(each).revision_reasons for each in impossible] == [
        ["Alpha, major: 95 of 200 minutes are planned before the midterm on Fri 8 Mar 2030"],
        ["cut: Alpha, minor: 35 of 100 minutes are planned before the midterm on Fri 8 Mar 2030; there is no more time"
         " with 60 minutes a day",
         "cut: Alpha, major: 160 of 200 minutes are planned before the midterm on Fri 8 Mar 2030; there is no more time"
         " with 60 minutes a day"],
    ]  # fmt: skip
    for each in impossible:
        assert sum(row.estimated_minutes for row in reviews(each, "Alpha")) == 45


def test_what_matters_least_is_cut_most_whichever_course_it_belongs_to() -> None:
    given = inputs(60, alpha=date(2030, 3, 6), beta=date(2030, 3, 8))
    minor, major = topic("alpha", "minor", 100, "low"), topic("beta", "major", 150, "high")
    found = cycle(given, [minor, major])[-1]
    assert [reason.partition(" are planned")[0] for reason in review_of(found).revision_reasons] == [
        "cut: Alpha, minor: 50 of 100 minutes",
        "cut: Beta, major: 130 of 150 minutes",
    ]


def test_core_chapters_are_shortened_alike_before_any_of_them_is_dropped() -> None:
    given = inputs(60, alpha=date(2030, 3, 14))
    core = [topic("alpha", f"core {n}", 180, "high") for n in range(4)]
    found = cycle(given, [topic("alpha", "trivia", 30, "low"), *core])[-1]
    planned = {each.topic: each.planned_minutes for each in found.cuts}
    assert planned.pop("trivia") == 10
    assert set(planned.values()) <= {110, 115, 120}
    assert len(planned) == 4
    assert all(row.task_description.startswith("Skim") for row in found.plan_rows if row.parts)


def test_the_end_of_a_book_is_left_out_before_its_short_first_chapter() -> None:
    given = inputs(60, alpha=date(2030, 3, 14))
    rest = [topic("alpha", f"chapter {n}", 180) for n in range(2, 9)]
    found = cycle(given, [topic("alpha", "basics", 30), *rest])[-1]
    planned = {each.topic: each.planned_minutes for each in found.cuts}
    assert planned["basics"] == 15
    assert (planned["chapter 2"], planned["chapter 8"]) == (90, 0)


def test_what_no_old_exam_asks_is_left_out_before_the_end_of_the_book() -> None:
    given = inputs(60, alpha=date(2030, 3, 9))
    rare = topic("alpha", "rare", 300, "low")
    asked = [topic("alpha", f"chapter {n}", 120, "high" if n == 5 else "medium") for n in range(2, 6)]
    planned = {each.topic: each.planned_minutes for each in cycle(given, [rare, *asked])[-1].cuts}
    assert planned["rare"] == 0
    assert planned["chapter 5"] > planned["chapter 2"] > 0


def test_a_midterm_on_the_first_day_leaves_no_time_and_says_so() -> None:
    found = cycle(inputs(60, alpha=MONDAY), [topic("alpha", "A", 30)])[-1]
    assert review_of(found).result_type == "capacity_limited_plan"
    assert [(row.date, row.topic) for row in found.plan_rows] == [(MONDAY, MIDTERM)]


@pytest.mark.covers("S3.33", "S3.35")
def test_the_last_midterm_is_the_latest_of_all() -> None:
    given = inputs(None, alpha=date(2030, 3, 20), beta=date(2030, 3, 25), gamma=date(2030, 3, 9))
    (found,) = cycle(given, [topic(name, name, 60) for name in ("alpha", "beta", "gamma")])
    assert (found.plan_version, found.last_midterm_date) == (1, date(2030, 3, 25))
    assert found.plan_rows[-1].date == date(2030, 3, 25)


@pytest.mark.covers("S3.34")
def test_a_row_has_the_keys_of_the_document() -> None:
    (found,) = cycle(inputs(None, alpha=date(2030, 3, 9)), [topic("alpha", "A", 60)])
    row = found.plan_rows[0].model_dump(mode="json")
    assert row.pop("row_id").startswith("alpha-")
    assert row == {
        "date": "2030-03-04", "course": "Alpha", "topic": "A",
        "task_description": "Study A; then practise and test yourself",
        "estimated_minutes": 60, "priority": "medium", "source_files": ["alpha.pdf"], "status": "planned",
        "starts_at": "16:00:00", "sequence": 0,
        "parts": [{"topic": "A", "section": "", "first": 0, "last": 1000, "minutes": 60}],
    }  # fmt: skip


@pytest.mark.parametrize("name", [REVIEW, MIDTERM, REST, "=1+1", "日本", "Review"])
def test_a_topic_may_have_any_name(name: str) -> None:
    given = inputs(30, alpha=date(2030, 3, 8))
    assert review_of(cycle(given, [topic("alpha", name, 60)])[-1]).validation_report.coverage_ok
    cut = cycle(given, [topic("alpha", name, 600)])[-1]
    assert review_of(cut).result_type == "capacity_limited_plan"


def test_a_chapter_that_is_called_review_is_not_taken_for_thereview_of() -> None:
    given = inputs(90, alpha=date(2030, 3, 6))
    found = cycle(given, [topic("alpha", REVIEW, 60), topic("alpha", "A", 75)])[-1]
    assert sum(row.estimated_minutes for row in reviews(found, "Alpha")) == 25
    assert sum(row.estimated_minutes for row in found.plan_rows if row.topic == REVIEW and row.parts) == 60


# the reviewer

GIVEN = inputs(120, "Sunday", alpha=date(2030, 3, 14), beta=date(2030, 3, 18))
TOPICS = [topic("alpha", "A", 200), topic("alpha", "B", 100), topic("beta", "C", 200)]
(GOOD,) = cycle(GIVEN, TOPICS)


def judged(rows: list[PlanRow], **changes: Any) -> Review:
    broken = GOOD.model_copy(update={"plan_rows": rows, "review": None} | changes)
    return review(payload(GIVEN, TOPICS, broken))


def free(day: date) -> PlanRow:
    return GOOD.plan_rows[-1].model_copy(update={"date": day, "topic": BUFFER, "course": ""})


def without(topic: str) -> list[PlanRow]:
    idle = {"topic": BUFFER, "estimated_minutes": 0, "course": "", "parts": []}
    return [row.model_copy(update=idle) if row.topic == topic else row for row in GOOD.plan_rows]


def moved(topic: str, to: date) -> list[PlanRow]:
    """All the work on a topic on one day, and its days still in the plan."""
    work = [row.model_copy(update={"date": to}) for row in GOOD.plan_rows if row.topic == topic]
    return sorted([*without(topic), *work], key=lambda row: row.date)


@pytest.mark.covers("S3.36", "S3.38")
@pytest.mark.parametrize(
    ("rows", "broken", "said"),
    [
        (without("B"), "coverage_ok", "Alpha, B: 0 of 100 minutes are planned before the midterm on Thu 14 Mar 2030"),
        ([row for row in GOOD.plan_rows if row.date != date(2030, 3, 17)], "date_range_ok",
         "the plan has no entry for Sun 17 Mar 2030"),
        ([row for row in GOOD.plan_rows if row.topic != MIDTERM or row.course != "Alpha"], "date_range_ok",
         "the midterm of Alpha is not on Thu 14 Mar 2030 in the plan"),
        ([*GOOD.plan_rows, free(date(2030, 3, 19))], "date_range_ok",
         "Tue 19 Mar 2030 is not between Mon 4 Mar 2030 and Mon 18 Mar 2030"),
        (moved("B", date(2030, 3, 8)), "load_balance_ok", "Fri 8 Mar 2030 has "),
        (moved("B", date(2030, 3, 10)), "load_balance_ok",
         "Sun 10 Mar 2030 has 100 minutes of work, and Sunday is the rest day"),
    ],
)  # fmt: skip
def test_a_plan_that_breaks_one_check_fails_that_one_only(rows: list[PlanRow], broken: str, said: str) -> None:
    found = judged(rows)
    report = found.validation_report.model_dump()
    if broken == "date_range_ok" and "midterm of Alpha" in said:  # without its row the 14th has to be somewhere
        rows.append(free(date(2030, 3, 14)))
        report = judged(rows).validation_report.model_dump()
    assert {name for name, ok in report.items() if not ok} == {broken}
    assert found.result_type == "needs_revision"
    assert any(reason.startswith(said) for reason in found.revision_reasons), found.revision_reasons


def test_a_minute_above_the_limit_is_too_much() -> None:
    given = inputs(60, alpha=date(2030, 3, 6))
    full = cycle(given, [topic("alpha", "A", 120)])[-1]
    assert set(load(full.plan_rows).values()) == {0, 60}
    assert unbalanced(full.plan_rows, given, Calendar.of(given, MONDAY)) == []
    more = [row.model_copy(update={"estimated_minutes": 61}) if row.date == MONDAY else row for row in full.plan_rows]
    assert unbalanced(more, given, Calendar.of(given, MONDAY)) == [
        "Mon 4 Mar 2030 has 61 minutes of work, the limit is 60"
    ]  # fmt: skip


def test_work_after_its_midterm_counts_for_nothing() -> None:
    found = judged(moved("B", date(2030, 3, 15)))
    assert not found.validation_report.coverage_ok
    assert not found.validation_report.date_range_ok
    assert "there is work for Alpha on or after its midterm, Thu 14 Mar 2030" in found.revision_reasons


def test_a_plan_that_cuts_more_than_it_must_is_refused() -> None:
    given = inputs(60, alpha=date(2030, 3, 8))
    topics = [topic("alpha", "A", 300)]
    cut = cycle(given, topics)[-1]
    assert review_of(cut).result_type == "capacity_limited_plan"
    less = [row.model_copy(update={"estimated_minutes": max(row.estimated_minutes - 5, 0)}) for row in cut.plan_rows]
    lazy = cut.model_copy(update={"plan_rows": less})
    assert review(payload(given, topics, lazy)).result_type == "needs_revision"


@pytest.mark.covers("S3.37")
def test_the_verdict_is_one_of_three() -> None:
    assert set(get_args(ResultType)) == {"approved_plan", "capacity_limited_plan", "needs_revision"}
    report = ValidationReport(coverage_ok=True, date_range_ok=True, load_balance_ok=True)
    with pytest.raises(ValidationError):
        Review(result_type="fine", validation_report=report)  # type: ignore[arg-type]


def test_a_changed_date_or_limit_is_seen_and_planned_from_the_first_strategy() -> None:
    tight = cycle(inputs(60, alpha=date(2030, 3, 8)), [topic("alpha", "A", 240)])[-1]
    later = inputs(60, alpha=date(2030, 3, 12))
    found = review(payload(later, [topic("alpha", "A", 240)], tight))
    assert found.result_type == "needs_revision"
    assert found.revision_reasons[0] == "the midterm of Alpha is on Tue 12 Mar 2030, not on Fri 8 Mar 2030"
    seen = tight.model_copy(update={"review": found})
    again = plan(payload(later, [topic("alpha", "A", 240)], seen))
    assert (again.plan_version, again.strategy) == (tight.plan_version + 1, "with_review")


def test_a_refusal_of_the_last_strategy_is_an_error_and_not_a_loop() -> None:
    stuck = GOOD.model_copy(update={"strategy": "with_cuts", "review": judged(without("B"))})
    with pytest.raises(
        RuntimeError, match=r"^Plan 1 was refused, and there is no other strategy\. .* Reasons: Alpha, B: 0 of"
    ):
        plan(payload(GIVEN, TOPICS, stuck))
