"""DailyPlanner and the free time that it fills: calendars, time zones, order, limits, and what did not fit."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pausepoint.apps.aura.daily_planner import BREAK, LONGEST, Plan, advice, effort, plan
from pausepoint.apps.aura.free_time import Day, Slot, free_week, odd_events
from pausepoint.apps.aura.language import Speech
from pausepoint.apps.aura.models import Assignment, SkillProfile, SubjectMastery
from pausepoint.apps.calendars.events import Skipped
from pausepoint.apps.input import BadInput
from tests.apps.classroom import NOW

HOURS = time(15), time(20)
SPEECH = Speech("en", ZoneInfo("UTC"), NOW)
PROFILE = SkillProfile(
    subjects=[
        SubjectMastery(subject="Weak", mastery=0.2, confidence=0.9),
        SubjectMastery(subject="Strong", mastery=0.9, confidence=0.9),
    ]
)


def work(number: int = 1, days: float | None = 2, course: str = "Strong", **more: Any) -> Assignment:
    due = None if days is None else NOW + timedelta(days=days)
    return Assignment(id=f"{number}", account="a", course=course, title=f"Work {number}", due=due, **more)


def days(count: int = 7, *, zone: str = "UTC", calendar: Path | None = None, now: datetime = NOW) -> list[Day]:
    return free_week(now, count, HOURS, zone, calendar).days


def planned(*found: Assignment, limit: int = 120, free: list[Day] | None = None) -> Plan:
    return plan(found, PROFILE, days() if free is None else free, limit, SPEECH)


def calendar(path: Path, *events: str) -> Path:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:test"]
    for number, event in enumerate(events):
        lines += ["BEGIN:VEVENT", f"UID:{number}", "DTSTAMP:20300101T000000Z", *event.split(), "END:VEVENT"]
    path.write_text("\r\n".join([*lines, "END:VCALENDAR", ""]), newline="")
    return path


def hours(day: Day, zone: str = "UTC") -> list[str]:
    local = ZoneInfo(zone)
    return [f"{slot.start.astimezone(local):%H:%M}-{slot.end.astimezone(local):%H:%M}" for slot in day.free]


# free time


def test_recurring_events_exceptions_and_moved_ones_take_time(tmp_path: Path) -> None:
    weekly = "DTSTART:20300107T160000Z DTEND:20300107T170000Z RRULE:FREQ=DAILY EXDATE:20300305T160000Z"
    path = calendar(tmp_path / "c.ics", weekly)
    moved = (
        "UID:0 RECURRENCE-ID:20300306T160000Z DTSTAMP:20300101T000000Z DTSTART:20300306T190000Z DTEND:20300306T200000Z"
    )
    event = "\n".join(["BEGIN:VEVENT", *moved.split(), "END:VEVENT", "END:VCALENDAR"])
    path.write_text(path.read_text().replace("END:VCALENDAR", event))
    assert [hours(day) for day in days(3, calendar=path)] == [
        ["15:00-16:00", "17:00-20:00"],
        ["15:00-20:00"],
        ["15:00-19:00"],
    ]


def test_days_transparent_cancelled_and_endless_events_are_taken_as_the_calendar_means_them(tmp_path: Path) -> None:
    path = calendar(
        tmp_path / "c.ics",
        "DTSTART;VALUE=DATE:20300304",  # a whole day
        "DTSTART;VALUE=DATE:20300305 TRANSP:TRANSPARENT",
        "DTSTART:20300305T150000Z DTEND:20300305T160000Z STATUS:CANCELLED",
        "DTSTART:20300306T150000Z",  # a moment takes no time
        "DTSTART:20300306T180000Z DURATION:PT30M",
    )
    assert [hours(day) for day in days(3, calendar=path)] == [[], ["15:00-20:00"], ["15:00-18:00", "18:30-20:00"]]


def test_times_without_a_zone_and_in_other_zones_are_where_they_belong(tmp_path: Path) -> None:
    path = calendar(
        tmp_path / "c.ics",
        "DTSTART:20300305T160000 DTEND:20300305T170000",
        "DTSTART;TZID=Europe/Lisbon:20300306T070000 DTEND;TZID=Europe/Lisbon:20300306T080000",
    )
    found = days(3, zone="Asia/Tokyo", calendar=path)
    assert [hours(day, "Asia/Tokyo") for day in found[1:]] == [
        ["15:00-16:00", "17:00-20:00"],
        ["15:00-16:00", "17:00-20:00"],
    ]


def test_the_day_is_that_of_the_students_zone_and_what_is_past_is_not_free() -> None:
    found = days(1, zone="Asia/Tokyo", now=datetime(2030, 3, 4, 7, 30, tzinfo=UTC))  # 16:30 there
    assert hours(found[0], "Asia/Tokyo") == ["16:30-20:00"]
    assert days(1, zone="Pacific/Honolulu", now=datetime(2030, 3, 4, 7, 30, tzinfo=UTC))[0].start == datetime(
        2030, 3, 3, 10, 0, tzinfo=UTC
    )


def test_where_clocks_are_turned_no_hour_is_counted_twice_or_invented() -> None:
    spring, autumn = datetime(2030, 3, 31, tzinfo=UTC), datetime(2030, 10, 27, tzinfo=UTC)
    night = time(0), time(4)
    lengths = [free_week(now, 1, night, "Europe/Lisbon", None).days[0].free[0].minutes for now in (spring, autumn)]
    assert lengths[0] == 180
    assert lengths[1] == 240  # its first hour was over when it began: midnight in UTC is one o'clock there


@pytest.mark.parametrize(
    ("content", "said"),
    [("hello", "is not an iCalendar file. Export the calendar again as .ics."), (None, "cannot be read: No such file")],
)
def test_a_file_that_is_no_calendar_is_refused_by_its_name(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "week.ics"
    if content is not None:
        path.write_text(content, newline="")
    with pytest.raises(BadInput) as refused:
        days(calendar=path)
    assert str(refused.value).startswith(f"calendar: {path}")
    assert said in str(refused.value)


def test_odd_events_are_named_in_plain_words_and_many_are_counted() -> None:
    odd = [
        Skipped("skipped_bad_start", "Swim", None, "soon"),
        Skipped("first_only", "", NOW.date()),
        *[Skipped("skipped_no_start", "Choir")] * 10,
    ]
    said = odd_events(odd, SPEECH)
    assert said[:2] == [
        "Calendar: The event “Swim” was left out: its start “soon” is not a date.",
        "Calendar: The event “without a title” (Mon 4 Mar) repeats in a way that Aura does not understand. Only its"
        " first date counts.",
    ]
    assert said[-1] == "Calendar: 2 more events were left out."
    german = odd_events(odd, Speech("de", ZoneInfo("UTC"), NOW))
    assert german[0] == "Kalender: Der Termin „Swim“ wurde ausgelassen: Sein Anfang „soon“ ist kein Datum."


def test_a_day_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^day_end: The day ends at 15:00 but starts at 20:00"):
        free_week(NOW, 1, (time(20), time(15)), "UTC", None)


# the plan


def test_what_is_due_first_comes_first_and_of_one_day_what_is_needed_more() -> None:
    found = planned(work(1, 3), work(2, 1), work(3, 3.1, "Weak"), work(4, None), limit=600)
    assert list(dict.fromkeys(item.assignment_id for item in found.items)) == ["2", "3", "1", "4"]
    assert found.items[0].why == "due Tue 5 Mar, 08:00"
    assert found.items[-1].why.startswith("no due date")


def test_what_is_done_is_not_planned() -> None:
    assert planned(work(1, handed_in=True), work(2, points=3.0)) == Plan([], [], planned().load)


def test_overdue_work_is_planned_after_what_is_due_within_two_days_and_old_work_is_left_to_the_teacher() -> None:
    found = planned(work(1, -1), work(2, 1), work(3, 5), work(4, -20), limit=600)
    assert [item.assignment_id for item in found.items] == ["2", "1", "3"]
    assert found.items[1].why.startswith("overdue since Sun 3 Mar")
    assert [(each.assignment_id, each.why) for each in found.unplanned] == [
        ("4", "not planned any more: ask the teacher whether it still counts")
    ]


def test_work_that_is_due_in_these_days_comes_before_overdue_work_that_cannot_be_saved() -> None:
    found = planned(
        work(1, -5, minutes=120), work(2, -3, minutes=150), work(3, 4.3, minutes=200), work(4, 30), limit=50
    )
    assert list(dict.fromkeys(item.assignment_id for item in found.items)) == ["3", "2"]
    assert [each.assignment_id for each in found.unplanned] == ["1", "4"]
    assert "cannot be finished" not in " ".join(advice(found, SPEECH))


def test_overdue_work_that_can_be_saved_waits_if_other_work_would_become_late() -> None:
    saved, friday = work(1, -1, minutes=60), work(2, 4.3, minutes=180)
    assert [item.assignment_id for item in planned(saved, friday, limit=120).items][:2] == ["1", "1"]
    full = planned(saved, work(2, 4.3, minutes=200), limit=50)
    assert sum(item.minutes for item in full.items if item.assignment_id == "2") == 200


def test_long_work_is_cut_into_sittings_with_breaks() -> None:
    found = planned(work(minutes=110))
    assert [(f"{item.start:%H:%M}", item.minutes) for item in found.items] == [
        ("15:00", 50),
        ("16:00", 45),
        ("16:55", 15),
    ]


def test_the_limit_of_a_day_moves_work_to_the_next() -> None:
    found = planned(work(1, 6, minutes=100), work(2, 6, minutes=100), limit=120)
    by_day = {day.start: day.planned for day in found.load}
    assert list(by_day.values())[:2] == [120, 80]
    assert all(day.planned <= 120 for day in found.load)


def test_what_does_not_fit_is_said_with_the_reason() -> None:
    tomorrow = days(2, now=NOW)
    narrow = [
        Day(tomorrow[0].start, (Slot(tomorrow[0].free[0].start, tomorrow[0].free[0].start + timedelta(minutes=30)),))
    ]
    (first,) = planned(work(1, 0.5, minutes=60), free=narrow).unplanned
    assert first.why == "it takes 1 h, and only 30 min are free before it is due (Mon 4 Mar, 20:00)"
    assert first.minutes == 30  # the other half has its place
    (second,) = planned(work(1, 0.5, minutes=60), work(2, 0.5, minutes=50), limit=60, free=tomorrow[:1]).unplanned
    assert second.why.startswith("the free time and the daily limit of 1 h are used up before it is due")
    (third,) = planned(work(1, None, minutes=400), free=narrow).unplanned
    assert third.why == "it takes 6 h 40 min, and only 30 min are free in the planned day"
    (fourth,) = planned(work(1, 0.01, minutes=30)).unplanned
    assert fourth.why == "it takes 30 min, and only 0 min are free before it is due (Mon 4 Mar, 08:14)"


def test_what_is_due_after_the_planned_days_is_not_said_to_come_too_late() -> None:
    found = planned(work(1, 60, minutes=3000), limit=120)
    assert [each.why for each in found.unplanned] == ["it takes 50 h, and only 35 h are free in the 7 planned days"]
    full = planned(work(1, 8, minutes=840), work(2, 60, minutes=100))
    assert full.unplanned[-1].why == "the free time and the daily limit of 2 h are used up in the 7 planned days"
    for each in (found, full):
        assert not any("cannot be finished in time" in line for line in advice(each, SPEECH))


def test_how_long_work_takes_follows_from_its_kind_and_the_need() -> None:
    assert effort(work(minutes=33), 0.9) == 33
    assert [effort(work(), need) for need in (0.0, 0.5, 1.0)] == [35, 45, 60]
    assert effort(work(kind="MULTIPLE_CHOICE_QUESTION"), 0.5) == 10


def test_advice_follows_from_the_plan() -> None:
    found = planned(work(1, 0.5, minutes=120), work(2, 0.5, minutes=300), work(3, -30))
    assert advice(found, SPEECH) == [
        "Start with Work 1 (Strong) on Mon 4 Mar, 15:00 (due Mon 4 Mar, 20:00).",
        "1 assignment cannot be finished in time in these hours. More time in the afternoon, or a word with the"
        " teacher, helps.",
        "1 assignment has been overdue for more than two weeks: ask the teacher whether it still counts.",
        "Fully booked: Mon 4 Mar.",
    ]
    assert advice(planned(), SPEECH) == ["There is no open work. Enjoy the week."]


@st.composite
def loads(draw: st.DrawFn) -> list[Assignment]:
    return [
        work(
            number, draw(st.none() | st.floats(-20, 10)), draw(st.sampled_from(["Weak", "Strong", "Unknown"])),
            minutes=draw(st.none() | st.integers(1, 300)),
        )
        for number in range(draw(st.integers(0, 12)))
    ]  # fmt: skip


NEEDS = {each.subject: each.need for each in PROFILE.subjects} | {"Unknown": 0.5}

busy = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 280), st.integers(1, 120)), max_size=8)


@pytest.mark.long
@given(loads(), busy, st.integers(15, 300))
def test_any_plan_keeps_its_promises(found: list[Assignment], taken: list[tuple[int, int, int]], limit: int) -> None:
    free = []
    for number, day in enumerate(days(5)):
        slots = list(day.free)
        for on, start, length in taken:
            begin = day.free[0].start + timedelta(minutes=start)
            if on == number:
                slots = [rest for slot in slots for rest in _without(slot, begin, begin + timedelta(minutes=length))]
        free.append(Day(day.start, tuple(slots)))
    result = planned(*found, limit=limit, free=free)
    by_id = {each.id: each for each in found}
    whole = {each.id: effort(each, NEEDS[each.course]) for each in found}
    for item in result.items:
        assert 0 < item.minutes <= LONGEST
        assert any(slot.start <= item.start and item.end <= slot.end for day in free for slot in day.free)
        due = by_id[item.assignment_id].due
        assert due is None or due < NOW or item.end <= due
    for before, after in zip(result.items, result.items[1:], strict=False):
        assert before.end <= after.start
        same = any(slot.start <= before.start and after.end <= slot.end for day in free for slot in day.free)
        assert not same or after.start - before.end >= timedelta(minutes=BREAK)
    assert all(day.planned <= min(limit, day.free) for day in result.load)
    for each in found:  # every minute is in the plan or accounted for
        in_plan = sum(item.minutes for item in result.items if item.assignment_id == each.id)
        left = sum(other.minutes for other in result.unplanned if other.assignment_id == each.id)
        assert in_plan + left == whole[each.id]


def _without(slot: Slot, start: datetime, end: datetime) -> list[Slot]:
    kept = [Slot(slot.start, min(slot.end, start)), Slot(max(slot.start, end), slot.end)]
    return [each for each in kept if each.start < each.end]
