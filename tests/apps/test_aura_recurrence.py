"""When events of a calendar take place, as RFC 5545 has it: each case is a few lines of a calendar file."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pausepoint.apps.aura.free_time import busy_slots
from pausepoint.apps.calendars import events, recurrence
from pausepoint.apps.calendars.events import Skipped

LISBON = ZoneInfo("Europe/Lisbon")
"""Clocks are turned there on 31 March 2030, at one o'clock."""

TOKYO_FOUR = "DTSTART;TZID=Asia/Tokyo:20300304T160000 DTEND;TZID=Asia/Tokyo:20300304T170000"
AT_FOUR = "DTSTART;TZID=Europe/Lisbon:20300304T160000 DTEND;TZID=Europe/Lisbon:20300304T170000"


def busy(folder: Path, *events: str, first: str = "2030-03-04", days: int = 7) -> list[str]:
    """The slots of a calendar, as a person there reads them. An event is its lines, with blanks between them."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:test"]
    for event in events:
        each = re.split(r" (?=[A-Z-]+[:;]|ORGANIZER)", event)
        lines += ["BEGIN:VEVENT", "DTSTAMP:20300101T000000Z", *each, "END:VEVENT"]
    path = folder / "c.ics"
    path.write_text("\r\n".join([*lines, "END:VCALENDAR", ""]), newline="")
    return slots(folder, first, days)


def slots(folder: Path, first: str = "2030-03-04", days: int = 7) -> list[str]:
    begin = date.fromisoformat(first)
    found, _ = busy_slots(folder / "c.ics", begin, begin + timedelta(days=days - 1), LISBON)
    return [f"{said(slot.start)} {said(slot.end)}" for slot in found]


def odd(folder: Path) -> list[Skipped]:
    """What the same calendar has that does not count."""
    return busy_slots(folder / "c.ics", date(2030, 3, 4), date(2030, 3, 10), LISBON)[1]


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


@pytest.mark.long
@pytest.mark.parametrize(
    ("lines", "reason", "busy_at"),
    [
        ("DTSTART:20300101T000000Z RRULE:FREQ=SECONDLY", "skipped_too_often", []),
        ("RRULE:FREQ=DAILY", "skipped_no_start", []),
        ("DTSTART:soon", "skipped_bad_start", []),
        ("DTSTART:20300304T160000Z DTEND:20300304T150000Z", "skipped_odd", []),
        ("DTSTART:20300304T160000Z DTEND:late", "skipped_odd", []),
        ("DTSTART:PT1H", "skipped_odd", []),
        ("DTSTART:20300304T160000Z/PT1H", "skipped_odd", []),
        ("DTSTART:20300304T160000Z DTSTART:20300305T160000Z DTEND:20300304T150000Z", "skipped_odd", []),
        (f"{AT_FOUR} RRULE:FREQ=DAILY;INTERVAL=0", "first_only", ["04.16 04.17"]),
        (f"{AT_FOUR} RRULE:D1 #3", "first_only", ["04.16 04.17"]),
        (f"{AT_FOUR} RRULE:FREQ=DAILY;SKIP=OMIT;RSCALE=CHINESE", "first_only", ["04.16 04.17"]),
        (f"{AT_FOUR} RRULE:FREQ=DAILY;COUNT=1 EXDATE:never", "some_dates", ["04.16 04.17"]),
    ],
)
def test_an_odd_event_is_left_out_by_name_and_the_others_count(
    tmp_path: Path, lines: str, reason: str, busy_at: list[str]
) -> None:
    other = "UID:2 DTSTART:20300305T100000Z DURATION:PT1H"
    assert busy(tmp_path, f"UID:1 SUMMARY:Swim {lines}", other) == [*busy_at, "05.10 05.11"]
    ((said, name, *_),) = odd(tmp_path)
    assert (said, name) == (reason, "Swim")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param("DTSTART:20300304T160000Z DTEND:20300304T170000Z DURATION:PT5H", "04.16 04.17", id="two ends"),
        pytest.param("DTSTART:20300304T160000Z DTEND;VALUE=DATE:20300305", "04.16 05.0", id="a day ends a time"),
        pytest.param("DTSTART;VALUE=DATE:20300304 DTEND:20300304T120000Z", "04.0 04.12", id="a time ends a day"),
        pytest.param("DTSTART;VALUE=DATE:20300304 DTEND;VALUE=DATE:20300304", "04.0 05.0", id="ends as it starts"),
        pytest.param("DTSTART;VALUE=DATE:20300304 DURATION:PT2H", "04.0 04.2", id="a part of a day"),
        pytest.param(f"{AT_FOUR} GEO:nowhere CREATED:never ORGANIZER", "04.16 04.17", id="wrong in other lines"),
        pytest.param(f"{AT_FOUR} RRULE:FREQ=DAILY\\;COUNT=1", "04.16 04.17", id="an escaped rule"),
    ],
)
def test_slips_of_other_programs_are_understood(tmp_path: Path, lines: str, expected: str) -> None:
    assert busy(tmp_path, f"UID:1 {lines}") == [expected]
    assert odd(tmp_path) == []


def test_a_file_of_several_calendars_or_of_bare_events_in_an_old_encoding_is_read(tmp_path: Path) -> None:
    event = f"BEGIN:VEVENT\nSUMMARY:Café\n{AT_FOUR.replace(' ', chr(10))}\nEND:VEVENT\n"
    for text in (event, f"BEGIN:VCALENDAR\n{event}END:VCALENDAR\n" * 2):
        (tmp_path / "c.ics").write_bytes(text.encode("cp1252"))
        assert set(slots(tmp_path)) == {"04.16 04.17"}
        assert odd(tmp_path) == []


def test_thousands_of_old_events_are_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    real = events.Block.parsed

    def watched(block: events.Block) -> Any:
        parsed.append(block.key)
        return real(block)

    monkeypatch.setattr(events.Block, "parsed", watched)
    old = [f"UID:{number} DTSTART:20290304T160000Z DTEND:20290304T170000Z"
           for number in range(2000)]  # fmt: skip
    assert busy(tmp_path, *old, f"UID:now {AT_FOUR}") == ["04.16 04.17"]
    assert parsed == ["now"]


@pytest.mark.long
@pytest.mark.parametrize(
    "rule",
    [
        "HOURLY;INTERVAL=5",
        "DAILY;INTERVAL=3",
        "WEEKLY;INTERVAL=3;BYDAY=MO,TH",
        "MINUTELY;INTERVAL=7",
        "YEARLY;BYMONTH=3;BYDAY=MO,TU",
    ],
)
def test_leaping_over_old_occurrences_changes_nothing(
    tmp_path: Path, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = f"UID:1 DTSTART:20290604T161500Z DURATION:PT30M RRULE:FREQ={rule}"
    leaped = busy(tmp_path, event)
    monkeypatch.setattr(recurrence._Series, "_leap", lambda series, parts, since: series.start)
    monkeypatch.setattr(recurrence, "MOST", 10**6)
    assert busy(tmp_path, event) == leaped != []
