"""What a student does with a plan: marks work, plans what is left, keeps study hours, imports the calendar again."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import icalendar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pausepoint import Engine
from pausepoint.apps.input import BadInput
from pausepoint.apps.planner import SessionDocument, planner, sessions
from pausepoint.apps.planner.busy import read_busy
from pausepoint.apps.planner.dates import MONTHS, read_date, said
from pausepoint.apps.planner.models import PlanRow, Upload
from pausepoint.apps.planner.progress import standings
from pausepoint.apps.planner.rows import REVIEW
from pausepoint.engine import BlockingEngine
from tests.apps.planner_kit import CALC, HIST, go_on, run
from tests.support.loop import PATIENCE

SEE = "See `progress`."
FIRST = date(2030, 2, 8)
COURSES = {"courses": [CALC, HIST], "shared_constraints": {"max_minutes_per_day": 120}}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[BlockingEngine]:
    with Engine(tmp_path / "planner.db", workflows=[planner]) as found:
        yield found


def work(document: SessionDocument) -> list[PlanRow]:
    return [row for row in document.planning_state.plan_rows if row.parts]


def minutes(rows: list[PlanRow]) -> int:
    return sum(row.estimated_minutes for row in rows)


def planned(engine: BlockingEngine, **inputs: Any) -> SessionDocument:
    """Two courses without material: each is one topic of 120 minutes."""
    return run(engine, **({"uploads": []} | COURSES | inputs))


def mark(engine: BlockingEngine, *words: str, status: Any = "done", on: date = FIRST) -> SessionDocument:
    sessions.mark(engine, "s1", words, status, on, SEE)
    return go_on(engine)


# marks


@pytest.mark.long
def test_what_is_done_stays_done_and_the_next_plan_has_what_is_left(engine: BlockingEngine) -> None:
    before = planned(engine)
    first = work(before)[0]
    after = mark(engine, first.row_id)
    assert after.planning_state == before.planning_state  # a mark changes no plan
    with Path(after.artifacts.csv_path or "").open(newline="") as file:
        assert [row["row_id"] for row in csv.DictReader(file) if row["status"] == "done"] == [first.row_id]
    for path in (after.artifacts.page_path, after.artifacts.markdown_path):
        assert f"{first.course}: {first.estimated_minutes} of 140 planned minutes done" in Path(path or "").read_text()
    sessions.replan(engine, "s1", today=date(2030, 2, 12))
    replanned = go_on(engine)
    assert replanned.planning_state.plan_version == 2
    assert replanned.planning_state.plan_rows[0].date == date(2030, 2, 12)
    assert minutes(work(replanned)) == minutes(work(before)) - first.estimated_minutes
    assert first.row_id not in {row.row_id for row in work(replanned)}
    assert replanned.user_inputs.progress == after.user_inputs.progress


@pytest.mark.long
def test_a_day_a_topic_or_a_part_of_its_name_can_be_marked(engine: BlockingEngine) -> None:
    before = planned(engine)
    day = work(before)[0].date
    done = mark(engine, said(day)[4:])  # "8 Feb 2030"
    of_day = [row for row in before.planning_state.plan_rows if row.date == day]
    assert sum(each.minutes for each in done.user_inputs.progress) == minutes(of_day)
    assert {each.on for each in done.user_inputs.progress} == {FIRST}
    with pytest.raises(BadInput, match=r"already marked as done or skipped\. See `progress`\."):
        sessions.mark(engine, "s1", [day.isoformat()], "done", FIRST, SEE)
    skipped = mark(engine, "calculus", status="skipped")
    assert {each.status for each in skipped.user_inputs.progress if each.course_id == "calc2"} >= {"skipped"}
    sessions.replan(engine, "s1", start=date(2030, 2, 9))
    left = go_on(engine)
    assert {row.course for row in work(left)} <= {"History"}
    assert {row.course for row in left.planning_state.plan_rows if row.topic == REVIEW} == {"Calculus II", "History"}
    with pytest.raises(BadInput, match="Nothing of it is left"):
        sessions.mark(engine, "s1", ["Calculus II"], "done", FIRST, SEE)


def test_work_is_counted_once_however_it_is_marked(engine: BlockingEngine) -> None:
    before = planned(engine)
    rows = [row for row in before.planning_state.plan_rows if row.estimated_minutes]
    first = work(before)[0]
    mark(engine, first.row_id, first.course)
    whole = minutes([row for row in work(before) if row.course == first.course])
    found = standings(sessions.state_of(engine, "s1"), FIRST)
    assert (sum(each.done for each in found), sum(each.total for each in found)) == (whole, minutes(rows))
    last = [row for row in work(before) if row.course == first.course][-1]
    with pytest.raises(BadInput, match="already marked"):
        sessions.mark(engine, "s1", [last.row_id], "done", FIRST, SEE)


def test_a_row_whose_parts_are_done_and_skipped_is_not_late(engine: BlockingEngine, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    text = "one line of words\n" * 60
    path.write_text("".join(f"{number} Fish {number}\n\n{text}\n" for number in range(1, 4)))
    document = planned(engine, uploads=[Upload(path=path, is_shared=True)], courses=[CALC])
    row = next(row for row in work(document) if len(row.parts) > 1)
    topics = list(dict.fromkeys(part.topic for part in row.parts))
    assert len(topics) > 1
    mark(engine, topics[0])
    mark(engine, *topics[1:], status="skipped")
    (found,) = standings(sessions.state_of(engine, "s1"), date(2030, 2, 20))
    assert row.row_id not in [each.row_id for each in found.late]


def test_a_mark_can_be_removed(engine: BlockingEngine) -> None:
    before = planned(engine)
    first = work(before)[0]
    mark(engine, first.row_id)
    assert sessions.unmark(engine, "s1", [first.row_id.upper()], SEE) == 1
    assert go_on(engine).user_inputs == before.user_inputs
    with pytest.raises(BadInput, match="Nothing of it is marked"):
        sessions.unmark(engine, "s1", [first.row_id], SEE)


def numbered_book(path: Path) -> Path:
    """A book with two chapters of two sections each, and an unnumbered part of the first one."""
    text = "one line of words about what there is to learn\n" * 60
    sections = ["1 Eels\n====", "1.1 Young\n----", "Tasks\n----", "1.2 Old\n----", "2 Herrings\n====", "2.1 Food\n----"]
    path.write_text("".join(f"{heading}\n\n{text}\n\n" for heading in sections))
    return path


@pytest.mark.parametrize(
    ("word", "sections"),
    [
        ("§1.1", ["1.1 Young", "Tasks"]),
        ("1", ["1 Eels", "1.1 Young", "Tasks", "1.2 Old"]),
        ("§1.2–2.1", ["1.2 Old", "2 Herrings", "2.1 Food"]),
        ("Chapter 2", ["2 Herrings", "2.1 Food"]),
        ("calc2: §2.1", ["2.1 Food"]),
        ("fish §2.1", ["2.1 Food"]),
        ("Young", ["1.1 Young"]),
        ("herrings", ["2 Herrings", "2.1 Food"]),
    ],
)
def test_chapters_and_sections_are_marked_by_their_numbers(
    engine: BlockingEngine, tmp_path: Path, word: str, sections: list[str]
) -> None:
    planned(engine, uploads=[Upload(path=numbered_book(tmp_path / "fish.txt"), course_ids=["calc2"])], courses=[CALC])
    marked = mark(engine, word).user_inputs.progress
    assert [each.section for each in marked] == sections
    assert sessions.unmark(engine, "s1", [word], SEE) == len(sections)
    assert sessions.state_of(engine, "s1").user_inputs.progress == []


def test_a_number_that_two_courses_have_is_refused_with_both(engine: BlockingEngine, tmp_path: Path) -> None:
    planned(engine, uploads=[Upload(path=numbered_book(tmp_path / "fish.txt"), is_shared=True)])
    with pytest.raises(BadInput, match=r"§2: Several books have this number. Write 'calc2: §2' or 'hist: §2'\."):
        sessions.mark(engine, "s1", ["§2"], "done", FIRST, SEE)
    with pytest.raises(BadInput, match=r"§7: No section has this number"):
        sessions.mark(engine, "s1", ["§7"], "done", FIRST, SEE)
    assert {each.course_id for each in mark(engine, "hist: §2").user_inputs.progress} == {"hist"}


def test_planned_time_is_shown_against_time_done(engine: BlockingEngine) -> None:
    before = planned(engine)
    first = work(before)[0]
    mark(engine, first.row_id)
    found = {each.course: each for each in standings(sessions.state_of(engine, "s1"), date(2030, 2, 11))}
    past = [row for row in before.planning_state.plan_rows if row.date < date(2030, 2, 11) and row.estimated_minutes]
    assert sum(each.planned for each in found.values()) == minutes(past)
    assert found[first.course].done == first.estimated_minutes
    assert {row.row_id for each in found.values() for row in each.late} == {row.row_id for row in past} - {first.row_id}


def test_progress_counts_against_what_is_planned_and_names_what_was_cut(engine: BlockingEngine) -> None:
    """The total does not include minutes that were cut. Otherwise a finished plan would not count as finished."""
    calc = CALC | {"midterm_date": "2030-02-11"}
    before = planned(engine, courses=[calc], shared_constraints={"max_minutes_per_day": 40})
    rows = [row for row in before.planning_state.plan_rows if row.estimated_minutes]
    (cut,) = before.planning_state.cuts
    (found,) = standings(sessions.state_of(engine, "s1"), FIRST)
    lost = cut.needed_minutes - cut.planned_minutes
    assert (found.total, found.done, found.cut) == (minutes(rows), 0, lost)
    assert found.words.endswith(f"0 of {minutes(rows)} planned minutes done; {lost} minutes cut for lack of time")
    mark(engine, "Calculus II")
    mark(engine, *(row.row_id for row in rows if row.topic == REVIEW))
    (found,) = standings(sessions.state_of(engine, "s1"), FIRST)
    assert (found.total, found.done, found.cut) == (minutes(rows), minutes(rows), lost)


def test_a_topic_that_was_left_out_and_is_done_counts_in_full(engine: BlockingEngine) -> None:
    courses = [CALC | {"midterm_date": "2030-02-09"}]
    before = planned(engine, courses=courses, shared_constraints={"max_minutes_per_day": 14})
    assert [each.planned_minutes for each in before.planning_state.cuts] == [0, 0]
    mark(engine, "Calculus II")
    (found,) = standings(sessions.state_of(engine, "s1"), FIRST)
    assert (found.total, found.done, found.cut) == (120, 120, 20)  # the review is still cut


def test_the_users_estimate_and_pace_change_the_minutes(engine: BlockingEngine) -> None:
    total = minutes(work(planned(engine)))
    sessions.estimate(engine, "s1", "history", 200, SEE)
    assert minutes(work(go_on(engine))) == total + 80
    sessions.set_pace(engine, "s1", 1.5)
    document = go_on(engine)
    assert minutes(work(document)) == 120 * 1.5 + 200  # the user's own estimate is not multiplied
    sessions.set_pace(engine, "s1", 0.5, "calc2")
    document = go_on(engine)
    assert minutes(work(document)) == 120 * 1.5 * 0.5 + 200
    assert document.estimation_state.topic_estimates[0].estimated_minutes == 120  # the agent's own stay
    changes = [event for event in document.events if event.event_type == "change"]
    assert {event.agent_name for event in changes} == {"user"}


def test_a_midterm_that_has_passed_stays_in_the_past(engine: BlockingEngine) -> None:
    planned(engine)
    sessions.replan(engine, "s1", today=date(2030, 2, 22))
    document = go_on(engine)
    assert document.status == "completed"
    assert {row.course for row in document.planning_state.plan_rows} <= {"History", ""}
    with pytest.raises(BadInput, match="Nothing of it is left"):
        sessions.mark(engine, "s1", ["Calculus II"], "done", date(2030, 2, 22), SEE)
    with pytest.raises(BadInput, match="is before the first day"):
        sessions.replan(engine, "s1", midterms={"hist": date(2030, 2, 10)}, today=date(2030, 2, 22))


# the calendar


def events(document: SessionDocument) -> dict[str, Any]:
    calendar = icalendar.Calendar.from_ical(Path(document.artifacts.calendar_path or "").read_bytes())
    found = {str(event["UID"]): event for event in calendar.walk("VEVENT")}
    assert len(found) == len(calendar.walk("VEVENT"))
    return found


def text(event: Any) -> tuple[object, ...]:
    return event["DTSTART"].dt, event["DTEND"].dt, *(str(event[name]) for name in ("SUMMARY", "DESCRIPTION", "STATUS"))


def test_a_calendar_that_is_imported_again_is_updated(engine: BlockingEngine) -> None:
    before = planned(engine)
    old = events(before)
    first = work(before)[0]
    mark(engine, first.row_id)
    sessions.replan(engine, "s1", start=date(2030, 2, 11), max_minutes=45)
    after = go_on(engine)
    new = events(after)
    assert set(old) - set(new) == {f"s1-{first.row_id}@planner.pausepoint"}  # it stays in a calendar as it is
    for uid in set(old) & set(new):
        same = text(old[uid]) == text(new[uid])
        assert (int(new[uid]["SEQUENCE"]) > int(old[uid]["SEQUENCE"])) != same
    there = {f"s1-{row.row_id}@planner.pausepoint" for row in after.planning_state.plan_rows if row.row_id}
    assert {uid for uid, event in new.items() if event["STATUS"] == "CANCELLED"} == set(new) - there
    made = {event["DTSTAMP"].dt for event in new.values()}
    assert made == {after.planning_state.made_at}
    assert abs(datetime.now(UTC) - made.pop()) < timedelta(minutes=10)


@pytest.mark.long
def test_the_sequence_of_an_event_never_falls(engine: BlockingEngine) -> None:
    """Marks, their removal and new plans in every order; a row that was done may come back in a later plan."""
    document = planned(engine)
    seen: dict[str, int] = {}
    texts: dict[str, tuple[object, ...]] = {}

    def look(document: SessionDocument) -> None:
        for uid, event in events(document).items():
            number, said = int(event["SEQUENCE"]), text(event)
            assert number > seen.get(uid, -1) if said != texts.get(uid) else number >= seen[uid], (
                number,
                seen[uid],
                said,
                texts[uid],
            )
            seen[uid], texts[uid] = number, said

    look(document)
    first, second = work(document)[:2]
    for _ in range(3):
        look(mark(engine, first.row_id))
        sessions.unmark(engine, "s1", [first.row_id], SEE)
        look(go_on(engine))
    look(mark(engine, first.row_id, second.row_id))
    sessions.replan(engine, "s1", max_minutes=60)
    look(go_on(engine))
    sessions.unmark(engine, "s1", [first.row_id, second.row_id], SEE)
    look(go_on(engine))
    sessions.replan(engine, "s1", max_minutes=120)
    document = go_on(engine)
    look(document)
    assert first.row_id in {row.row_id for row in work(document)}
    with pytest.raises(BadInput, match="Name the rows or topics"):
        sessions.unmark(engine, "s1", [], SEE)


@pytest.mark.long
def test_the_commands_in_the_calendar_and_on_the_page_work_when_they_are_pasted(
    tmp_path: Path,
) -> None:
    """In any folder: the command names the Python and the store."""
    (tmp_path / "my plans").mkdir()
    with Engine(tmp_path / "my plans" / "planner.db", workflows=[planner]) as engine:
        document = planned(engine)
    page, markdown = (Path(path or "").read_text() for path in (document.artifacts.page_path,
                                                                document.artifacts.markdown_path))  # fmt: skip
    event = next(event for event in events(document).values() if int(event["X-PAUSEPOINT-MINUTES"]))
    command = str(event["DESCRIPTION"]).partition("When it is done: ")[2]
    assert command in unescape(page)
    assert f"\n    {command}\n" in markdown
    pasted = subprocess.run(command, shell=True, cwd="/", capture_output=True, text=True, timeout=PATIENCE)
    assert (pasted.returncode, "Marked as done: " in pasted.stdout) == (0, True), pasted.stderr


# hours and busy times

CALENDAR = """BEGIN:VCALENDAR
BEGIN:VEVENT
UID:lecture
DTSTART;TZID=America/Los_Angeles:20300204T161000
DTEND;TZID=America/Los_Angeles:20300204T174000
RRULE:FREQ=DAILY;COUNT=60
EXDATE;TZID=America/Los_Angeles:20300209T161000
END:VEVENT
BEGIN:VEVENT
UID:birthday
DTSTART;VALUE=DATE:20300209
TRANSP:TRANSPARENT
END:VEVENT
BEGIN:VEVENT
UID:trip
DTSTART;VALUE=DATE:20300211
DTEND;VALUE=DATE:20300213
END:VEVENT
BEGIN:VEVENT
UID:off
DTSTART:20300215T000000Z
DTEND:20300216T000000Z
STATUS:CANCELLED
END:VEVENT
BEGIN:VEVENT
UID:s1-hist-123456@planner.pausepoint
DTSTART:20300216T000000Z
DTEND:20300218T000000Z
END:VEVENT
END:VCALENDAR
""".replace("\n", "\r\n")


def test_work_is_placed_at_real_hours_around_busy_times(engine: BlockingEngine, tmp_path: Path) -> None:
    (tmp_path / "busy.ics").write_text(CALENDAR)
    hours = {day: ["16–19.00"] for day in ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")}
    planned(engine, shared_constraints={"max_minutes_per_day": 120, "study_hours": hours})
    sessions.replan(engine, "s1", busy=[tmp_path / "busy.ics"])
    document = go_on(engine)
    assert document.user_inputs.shared_constraints.study_hours["Monday"] == ["16:00-19:00"]
    assert document.status == "completed"
    assert document.user_inputs.busy_until == date(2030, 2, 26) + timedelta(days=90)
    rows = [row for row in document.planning_state.plan_rows if row.estimated_minutes]
    for row in rows:
        assert row.starts_at is not None
        assert row.date.weekday() != 6  # Sunday has no study hours
        assert row.date not in (date(2030, 2, 11), date(2030, 2, 12))
        end = datetime.combine(row.date, row.starts_at) + timedelta(minutes=row.estimated_minutes)
        assert end.time() <= time(19)
        assert row.starts_at >= (time(16) if row.date == date(2030, 2, 9) else time(17, 40))
    for one, other in pairwise(row for row in rows if row.starts_at):
        assert one.date < other.date or (one.starts_at or time()) < (other.starts_at or time())
    start = next(event["DTSTART"].dt for event in events(document).values() if str(event["TRANSP"]) == "OPAQUE")
    local = start.astimezone(ZoneInfo(document.user_inputs.timezone))
    assert (local.date(), local.time()) in {(row.date, row.starts_at) for row in rows}
    with pytest.raises(BadInput, match="the busy times are known only up to"):
        sessions.replan(engine, "s1", midterms={"hist": date(2030, 9, 1)})
    sessions.replan(engine, "s1", busy=[], hours={})
    assert go_on(engine).user_inputs.busy == []


def test_an_odd_event_is_skipped_and_the_calendar_is_used(tmp_path: Path) -> None:
    path = tmp_path / "busy.ics"
    path.write_text(CALENDAR)
    whole = read_busy([path], ZoneInfo("UTC"), FIRST, date(2030, 3, 1))
    assert (len(whole.busy), whole.skipped) == (20, 0)
    for odd in (CALENDAR.replace("DTSTART;VALUE=DATE:20300211\r\n", ""),
                CALENDAR.replace("DTSTART;VALUE=DATE:20300211", "DTSTART:when?")):  # fmt: skip
        path.write_text(odd)
        found = read_busy([path], ZoneInfo("UTC"), FIRST, date(2030, 3, 1))
        assert found.skipped == 1
        assert len(found.busy) >= 20
    path.write_text("no calendar")
    with pytest.raises(BadInput, match="is not an iCalendar file"):
        read_busy([path], ZoneInfo("UTC"), FIRST, date(2030, 3, 1))


# dates


@given(st.dates(date(2020, 1, 1), date(2040, 12, 31)))
def test_a_date_is_read_in_every_way_that_names_it(day: date) -> None:
    month = MONTHS[day.month - 1]
    ways = [
        day.isoformat(), f"{day.day}.{day.month}.{day.year}", f"{day:%d.%m.%Y}", said(day),
        f"{month[:3]} {day.day} {day.year}", f"{month} {day.day}, {day.year}", f"{day.day} {month.lower()} {day.year}",
    ]  # fmt: skip
    for way in ways:
        assert read_date(way) == day, way
    slashed = f"{day.month}/{day.day}/{day.year}"
    if day.day > 12 or day.day == day.month:
        assert read_date(slashed) == day
    else:
        with pytest.raises(ValueError, match="can be read in two ways") as refused:
            read_date(slashed)
        assert day.isoformat() in str(refused.value)


@pytest.mark.parametrize("text", ["soon", "", "2030-02-30", "31.2.2030", "32 May 2030", "13/13/2030", "Foo 3 2030"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a date\. Write it like 2030-02-21"):
        read_date(text)
