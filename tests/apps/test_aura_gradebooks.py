"""Gradebooks as Canvas, Moodle and Google Classroom export them, in the shapes of their documentation."""

# ruff: noqa: E501 (lines of exports)
from __future__ import annotations

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from pausepoint.apps.aura.classroom_sync import check
from pausepoint.apps.aura.language import Speech, doubts_said
from pausepoint.apps.aura.sources import open_source
from pausepoint.apps.input import BadInput
from tests.apps.classroom import NOW, STUDENT, gathered, new_since, put

CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Lab 1 (12345),"Essay, ""Leaves"" (12399)",Quiz 2 (12401),Poster (12500),Labs Current Score,Final Grade
,,,,,,Manual Posting,,,,
    Points Possible,,,,,10,20,5,50,(read only),(read only)
"Kim, Anna",101,S1,akim,Biology 7b,8.5,EX,,zzz,85,B
"Ford, Ben",102,S2,bford@school.example,Biology 7b,4,11,5,,40,D
"Student, Test",199,,test,Biology 7b,,,,,,
"""
MOODLE = """"First name","Last name","ID number",Institution,Department,"Email address","Assignment: Essay (Real)","Assignment: Essay (Percentage)","Assignment: Essay (Feedback)","Quiz: Cells (Real)","Lab book (Letter)","Category total (Real)","Course total (Real)","Last downloaded from this course"
Anna,Kim,,,,anna@school.example,17.00,"85.00 %","Well done",-,B+,17.00,17.00,1901692800
Ben,Ford,,,,ben@school.example,-,-,,6.50,-,6.50,6.50,1901692800
"""
CLASSROOM = """Last Name,First Name,Email Address,Overall Grade,Homework,Roots,Stems,Seeds,Buds
Date,,,,2030-02-20,"Mar 6, 2030",3/14/2030,No due date,someday
Points,,,,10,20,,5,Ungraded
Class Average,,,71%,7,15,,4,
Kim,Anna,anna@school.example,80%,8,Missing,Turned in late,Excused,draft
Ford,Ben,ben@school.example,62%,6,,,4,
"""


def graded_work(place: Path, student: str = "anna kim") -> dict[str, tuple[object, ...]]:
    found = gathered(place, student, "UTC").values()
    return {
        each.title: (each.points, each.max_points, each.is_open, each.due and f"{each.due:%m-%d}") for each in found
    }


def said_of(place: Path, student: str = "anna kim") -> list[str]:
    source = open_source(str(place), "UTC")
    doubts = source.doubts(student)
    return [line.replace(f"{place}", place.name) for line in doubts_said(doubts, Speech("en", ZoneInfo("UTC"), NOW))]


def test_a_gradebook_of_canvas_is_read(tmp_path: Path) -> None:
    place = put(tmp_path / "2030-03-04T0801_Grades-BIO_7b.csv", CANVAS)
    assert graded_work(place) == {
        "Lab 1": (8.5, 10, False, None),
        'Essay, "Leaves"': (None, None, False, None),  # excused
        "Quiz 2": (None, None, True, None),
        "Poster": (None, None, True, None),
    }
    assert list(gathered(place, "akim")) == [f"canvas/{number}" for number in (12345, 12399, 12401, 12500)]
    source = open_source(str(place), "UTC")
    assert source.students() == ["Anna Kim", "Ben Ford"]
    assert [source.name(name) for name in ("akim", "101", "Kim, Anna", "anna kim")] == ["Anna Kim"] * 4
    assert [each.name for each in source.courses("akim")] == ["BIO_7b"]
    assert said_of(place) == [
        f"{place.name} does not say what was handed in. Work without a grade counts as not handed in.",
        f"{place.name}, line 4, 'Poster (12500)': Aura does not know the word “zzz”. The work counts as not handed in.",
    ]


def test_a_gradebook_of_moodle_is_read_and_a_percentage_gives_the_level(tmp_path: Path) -> None:
    place = put(tmp_path / "BIO7 Grades-20300304_0801-comma_separated.csv", MOODLE)
    assert graded_work(place) == {
        "Essay": (85, 100, False, None),
        "Quiz: Cells": (None, None, True, None),
        "Lab book": (None, None, False, None),
    }
    assert [each.grade for each in gathered(place, "anna@school.example").values()] == ["85.00 %", "", "B+"]
    assert graded_work(place, "Ben Ford")["Quiz: Cells"] == (6.5, None, False, None)
    (course,) = open_source(str(place), "UTC").courses("Ford, Ben")
    assert course.name == "BIO7"
    german = MOODLE.replace("17.00,", '"17,00",')
    for english, word in (
        ("First name", "Vorname"), ("Last name", "Nachname"), ("Email address", "E-Mail-Adresse"), ("(Real)", "(Punkte)"),
        ("(Percentage)", "(Prozentsatz)"), ("Assignment:", "Aufgabe:"), ("Course total", "Kurs gesamt"),
    ):  # fmt: skip
        german = german.replace(english, word)
    assert graded_work(put(tmp_path / "Bio Bewertungen-20300304.csv", german)) == graded_work(place)


@pytest.mark.parametrize("is_copied_sheet", [False, True], ids=["csv", "sheet with the dates above the headings"])
def test_a_gradebook_of_google_classroom_is_read_with_its_dates_and_points(
    tmp_path: Path, is_copied_sheet: bool
) -> None:
    head, dates, points, *others = CLASSROOM.splitlines(keepends=True)
    above = dates.replace("Date", "").replace("No due date,someday", ",") + points.replace("Points", "").replace(
        "Ungraded", ""
    )
    content = "".join([above, head, *others]) if is_copied_sheet else CLASSROOM
    place = put(tmp_path / "Biology 7b grades.csv", content)
    assert graded_work(place) == {
        "Homework": (8, 10, False, "02-20"),
        "Roots": (None, None, True, "03-06"),
        "Stems": (None, None, False, "03-14"),
        "Seeds": (None, None, False, None),
        "Buds": (None, None, True, None),
    }
    by_title = {each.title: each for each in gathered(place, "anna@school.example", "UTC").values()}
    assert (by_title["Stems"].late, by_title["Seeds"].excused, by_title["Roots"].course) == (True, True, "Biology 7b")
    expected = [
        f"{place.name}, line 2, 'Buds': Aura does not know the word “someday”. The work counts as without a due date."
    ]
    assert said_of(place) == ([] if is_copied_sheet else expected)
    assert open_source(str(place), "UTC").students() == ["Anna Kim", "Ben Ford"]


def test_students_of_one_name_in_a_gradebook_are_told_apart(tmp_path: Path) -> None:
    place = put(tmp_path / "x.csv", CLASSROOM.replace("Ford,Ben", "Kim,Anna"))
    source = open_source(str(place), "UTC")
    assert source.students() == ["anna@school.example", "ben@school.example"]
    assert source.courses("anna kim") == []
    assert graded_work(place, "ben@school.example")["Homework"][0] == 6


NEWER = {
    CANVAS: [
        ("Lab 1 (12345),", "Mosses (12600),Lab 1 (12345),"), (",Manual", ",,Manual"), ("Possible,,,,,", "Possible,,,,,9,"),
        ("7b,8.5,", "7b,,8.5,"), ("7b,4,", "7b,,4,"), (",zzz,", ",44,"),
    ],
    MOODLE: [(',"Quiz: C', ',"Assignment: Mosses (Real)","Quiz: C'), (",-,B+", ",-,9.5,B+"), ("-,,6", "-,,-,6")],
    CLASSROOM: [
        ("Grade,Homework", "Grade,Mosses,Homework"), ("Date,,,,", "Date,,,,2030-03-20,"), ("Points,,,,", "Points,,,,5,"),
        ("80%,", "80%,,"), ("62%,", "62%,,"), ("71%", "71%,"), ("8,Missing", "8,15"),
    ],
}  # fmt: skip
"""One more piece of work, in the first column, and one more grade."""


@pytest.mark.parametrize("content", [CANVAS, MOODLE, CLASSROOM], ids=["Canvas", "Moodle", "Classroom"])
def test_the_gradebooks_of_two_weeks_show_what_is_new_although_their_files_have_other_names(
    tmp_path: Path, content: str
) -> None:
    newer = content
    for old, new in NEWER[content]:
        assert old in newer
        newer = newer.replace(old, new)
    weeks = put(tmp_path / "week (1).csv", content), put(tmp_path / "other.csv", newer)
    changes = new_since(tmp_path, weeks, student="Anna Kim")
    assert changes.count("\n- ") == 2, changes
    assert "**New assignments**\n\n- **Mosses**" in changes
    assert "**New grades**\n\n- **" in changes


def test_a_table_with_a_misspelt_column_is_no_gradebook(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Did you mean 'title'"):
        check(STUDENT, [str(put(tmp_path / "x.csv", "student,course,tittle\nAnna,Latin,Test\n"))], "UTC")
