"""When events of a calendar take place, as RFC 5545 has it: each case is a few lines of a calendar file."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from pausepoint.apps.aura.free_time import busy_slots
from pausepoint.apps.input import BadInput

LISBON = ZoneInfo("Europe/Lisbon")
"""Clocks are turned there on 31 March 2030, at one o'clock."""

TOKYO_FOUR = "DTSTART;TZID=Asia/Tokyo:20300304T160000 DTEND;TZID=Asia/Tokyo:20300304T170000"
AT_FOUR = "DTSTART;TZID=Europe/Lisbon:20300304T160000 DTEND;TZID=Europe/Lisbon:20300304T170000"


def busy(folder: Path, *events: str, first: str = "2030-03-04", days: int = 7) -> list[str]:
    """The slots of a calendar, as a person there reads them. An event is its lines, with blanks between them."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:test"]
    for event in events:
        lines += ["BEGIN:VEVENT", "DTSTAMP:20300101T000000Z", *event.split(), "END:VEVENT"]
    path = folder / "c.ics"
    path.write_text("\r\n".join([*lines, "END:VCALENDAR", ""]), newline="")
    begin = date.fromisoformat(first)
    return [
        f"{said(slot.start)} {said(slot.end)}"
        for slot in busy_slots(path, begin, begin + timedelta(days=days - 1), LISBON)
    ]


def said(moment: datetime) -> str:
    local = moment.astimezone(LISBON)
    return f"{local:%d.}{local.hour}" + (f":{local:%M}" if local.minute else "")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param("RRULE:FREQ=DAILY;COUNT=2", ["04.16 04.17", "05.16 05.17"], id="so many times"),
        pytest.param("RRULE:FREQ=WEEKLY;BYDAY=MO,TH", ["04.16 04.17", "07.16 07.17"], id="days of the week"),
        pytest.param("RRULE:FREQ=DAILY;UNTIL=20300305T160000Z", ["04.16 04.17", "05.16 05.17"], id="to the last"),
        pytest.param("RRULE:FREQ=DAILY;UNTIL=20300305T155959Z", ["04.16 04.17"], id="a second less"),
        pytest.param("RRULE:FREQ=DAILY;UNTIL=20300305", ["04.16 04.17", "05.16 05.17"], id="to the end of a day"),
        pytest.param("RRULE:FREQ=MONTHLY;BYDAY=-1FR", ["04.16 04.17"], id="the start counts, whatever the rule"),
        pytest.param("RDATE:20300306T090000Z,20300307T100000Z", ["04.16 04.17", "06.9 06.10", "07.10 07.11"],
                     id="dates"),
        pytest.param(
            "RDATE;VALUE=PERIOD:20300306T090000Z/PT3H,20300307T090000Z/20300307T093000Z",
            ["04.16 04.17", "06.9 06.12", "07.9 07.9:30"],
            id="dates of another length",
        ),
        pytest.param(
            "RRULE:FREQ=DAILY;COUNT=4 EXDATE:20300305T160000Z EXDATE;TZID=Asia/Tokyo:20300307T010000",
            ["04.16 04.17", "07.16 07.17"],
            id="exceptions in any zone",
        ),
        pytest.param("RRULE:FREQ=DAILY;COUNT=2 EXDATE;VALUE=DATE:20300304", ["05.16 05.17"], id="a day's exception"),
        pytest.param("RRULE:FREQ=DAILY;COUNT=3 RDATE:20300305T160000Z EXDATE:20300304T160000Z",
                     ["05.16 05.17", "06.16 06.17"], id="no time twice"),
    ],
)  # fmt: skip
def test_rules_dates_and_exceptions_together_say_when(tmp_path: Path, event: str, expected: list[str]) -> None:
    assert busy(tmp_path, f"UID:1 {AT_FOUR} {event}") == expected


def test_a_rule_is_counted_on_the_events_own_clock(tmp_path: Path) -> None:
    both = [f"UID:1 {AT_FOUR} RRULE:FREQ=DAILY", f"UID:2 {TOKYO_FOUR} RRULE:FREQ=DAILY"]
    assert busy(tmp_path, *both, first="2030-03-30", days=2) == [
        "30.7 30.8",
        "30.16 30.17",
        "31.8 31.9",  # there clocks stay as they are
        "31.16 31.17",
    ]


def test_what_has_no_zone_is_meant_where_the_student_lives(tmp_path: Path) -> None:
    floating = "UID:1 DTSTART:20300329T160000 DTEND:20300329T170000 RRULE:FREQ=DAILY;UNTIL=20300331T160000"
    assert busy(tmp_path, floating, first="2030-03-29") == ["29.16 29.17", "30.16 30.17", "31.16 31.17"]


def test_whole_days_are_as_long_as_they_are_and_an_hour_is_an_hour(tmp_path: Path) -> None:
    camp = "UID:1 DTSTART;VALUE=DATE:20300330 DTEND;VALUE=DATE:20300401 EXDATE;VALUE=DATE:20300406 RRULE:FREQ=WEEKLY"
    night = "UID:2 DTSTART;TZID=Europe/Lisbon:20300329T200000 DURATION:PT8H RRULE:FREQ=DAILY;COUNT=2"
    assert busy(tmp_path, camp, night, first="2030-03-29", days=10) == ["29.20 30.4", "30.0 01.0", "30.20 31.5"]


def test_one_time_of_many_is_moved_shortened_or_called_off(tmp_path: Path) -> None:
    changes = [
        "RECURRENCE-ID:20300305T160000Z DTSTART:20300310T090000Z DTEND:20300310T091500Z",
        "RECURRENCE-ID;TZID=Asia/Tokyo:20300307T010000 DTSTART:20300306T160000Z STATUS:CANCELLED",
        "RECURRENCE-ID;VALUE=DATE:20300307 DTSTART:20300307T180000Z DURATION:PT1H",
    ]
    found = busy(tmp_path, *(f"UID:1 {each}" for each in changes), f"UID:1 {AT_FOUR} RRULE:FREQ=DAILY;COUNT=5")
    assert found == ["04.16 04.17", "07.18 07.19", "08.16 08.17", "10.9 10.9:15"]


def test_a_change_from_some_time_on_moves_all_that_follow(tmp_path: Path) -> None:
    series = f"UID:1 {AT_FOUR} RRULE:FREQ=DAILY;COUNT=6"
    later = "UID:1 RECURRENCE-ID;RANGE=THISANDFUTURE:20300306T160000Z DTSTART:20300306T183000Z DURATION:PT30M"
    again = "UID:1 RECURRENCE-ID;RANGE=THISANDFUTURE:20300308T160000Z DTSTART:20300308T080000Z DURATION:PT30M"
    assert busy(tmp_path, series, again, later) == [
        "04.16 04.17", "05.16 05.17", "06.18:30 06.19", "07.18:30 07.19", "08.8 08.8:30", "09.8 09.8:30",
    ]  # fmt: skip


def test_a_change_of_what_the_file_does_not_hold_stands_alone(tmp_path: Path) -> None:
    assert busy(tmp_path, "UID:1 RECURRENCE-ID:20300305T160000Z DTSTART:20300306T160000Z DURATION:PT1H") == [
        "06.16 06.17"
    ]


def test_of_two_versions_of_an_event_the_newer_counts_and_events_without_an_id_all_do(tmp_path: Path) -> None:
    old, new = f"UID:1 SEQUENCE:1 {AT_FOUR}", "UID:1 SEQUENCE:2 DTSTART:20300305T100000Z DURATION:PT1H"
    assert busy(tmp_path, new, old) == busy(tmp_path, old, new) == ["05.10 05.11"]
    assert busy(tmp_path, AT_FOUR, "DTSTART:20300305T100000Z DURATION:PT1H") == ["04.16 04.17", "05.10 05.11"]


def test_what_began_before_and_still_lasts_takes_time_and_what_is_over_does_not(tmp_path: Path) -> None:
    trip = "UID:1 DTSTART:20300301T120000Z DTEND:20300304T120000Z"
    assert busy(tmp_path, trip) == ["01.12 04.12"]
    assert busy(tmp_path, trip, first="2030-03-05") == []


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("DTSTART:20300101T000000Z RRULE:FREQ=SECONDLY", "more than 100,000 times"),
        ("DTSTART:20300101T000000Z RRULE:FREQ=DAILY;INTERVAL=0", "interval 0"),
        ("DTSTART:20300101T000000Z DTEND;VALUE=DATE:20300102", "times cannot be computed"),
        ("DTSTART:20300101T000000Z RRULE:FREQ=DAILY;SKIP=OMIT;RSCALE=CHINESE", "times cannot be computed"),
    ],
)
def test_an_event_that_cannot_be_placed_is_refused_with_the_file(tmp_path: Path, rule: str, why: str) -> None:
    with pytest.raises(BadInput, match=rf"calendar: {tmp_path}.*{why}"):
        busy(tmp_path, f"UID:1 {rule}")
