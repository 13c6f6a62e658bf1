"""ClassroomSync's sources: exports and CSV files, as they are and as they should not be."""

from __future__ import annotations

import json
import shutil
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pausepoint.apps.aura import run_aura_orchestrator
from pausepoint.apps.aura.classroom_sync import check, only_student
from pausepoint.apps.aura.models import LastReport, SkillProfile, Standing
from pausepoint.apps.aura.overview import overview
from pausepoint.apps.aura.sources import open_source
from pausepoint.apps.aura.sources.cells import AmbiguousDates, Order
from pausepoint.apps.input import BadInput
from tests.apps.classroom import (
    LISBON,
    NOW,
    STUDENT,
    Resource,
    course,
    export,
    gathered,
    handed_in,
    new_since,
    put,
    small_class,
    submission,
    work,
)

TOKYO = "Asia/Tokyo"
ORDERS: tuple[Order, Order] = ("day-first", "month-first")


def botany(folder: Path, *found: Resource) -> Path:
    """One course with this work; the first piece was given to the student."""
    return export(
        folder,
        courses=[course("c1", "Botany")],
        courseWork=list(found),
        studentSubmissions=[submission(found[0]["id"])],
    )


def test_graded_open_and_untouched_work_is_told_apart(tmp_path: Path) -> None:
    late = NOW - timedelta(days=1)
    folder = export(
        tmp_path / "school",
        courses=[course("c1", "Botany")],
        courseWork=[work(name, due=NOW - timedelta(days=2)) for name in ("graded", "late", "with-teacher", "new")]
        + [work("taken-back"), work("nobody-touched")],
        studentSubmissions=[
            handed_in("graded", NOW - timedelta(days=3), 8.5),
            handed_in("late", late),
            submission("with-teacher", state="TURNED_IN"),
            submission("new"),
            submission("taken-back", state="RECLAIMED_BY_STUDENT"),
        ],
    )
    found = {each.title.removeprefix("Work "): each for each in gathered(folder).values()}
    assert [name for name, each in found.items() if each.is_open] == ["new", "taken-back", "nobody-touched"]
    assert [name for name, each in found.items() if each.is_overdue(NOW)] == ["new"]
    assert (found["graded"].score, found["graded"].late) == (0.85, False)
    assert (found["late"].late, found["late"].handed_in_at, found["late"].score) == (True, late, None)
    assert found["new"].id == "c1/new"


def test_a_due_time_is_in_utc_and_its_zeros_may_be_left_out(tmp_path: Path) -> None:
    midnight = datetime(2030, 3, 5, 0, 0, tzinfo=UTC)
    folder = botany(tmp_path, work("w1", due=midnight))
    assert json.loads((folder / "courseWork.json").read_text())["courseWork"][0]["dueTime"] == {}
    (found,) = gathered(folder, zone=TOKYO).values()
    assert found.due == midnight


@pytest.mark.parametrize(("zone", "due"), [(LISBON, "2030-03-05T23:59+00:00"), (TOKYO, "2030-03-05T14:59+00:00")])
def test_a_day_without_a_time_ends_where_the_student_lives(tmp_path: Path, zone: str, due: str) -> None:
    dated = work("w1") | {"dueDate": {"year": 2030, "month": 3, "day": 5}}
    folder = botany(tmp_path, dated, work("w2"))
    first, second = gathered(folder, zone=zone).values()
    assert first.due == datetime.fromisoformat(due)
    assert second.due is None


def test_what_is_not_the_students_is_left_out(tmp_path: Path) -> None:
    folder = export(
        tmp_path,
        courses=[course("c1", "Botany"), course("c2", "Old", courseState="ARCHIVED"), course("c3", "Not mine")],
        students=[{"courseId": "c1", "userId": STUDENT}, {"courseId": "c3", "userId": "student-2"}],
        courseWork=[
            work("mine"),
            work("draft", state="DRAFT"),
            work("for-others", assigneeMode="INDIVIDUAL_STUDENTS"),
            work("for-me", assigneeMode="INDIVIDUAL_STUDENTS"),
            work("old", "c2"),
            work("theirs", "c3"),
        ],
        studentSubmissions=[
            submission("mine", by="student-2", state="TURNED_IN", assignedGrade=1),
            submission("for-others", by="student-2"),
            submission("for-me"),
        ],
    )
    found = gathered(folder)
    assert [each.title for each in found.values()] == ["Work mine", "Work for-me"]
    assert all(each.is_open for each in found.values())  # the other student's grade is not this one's


def test_pages_are_read_in_order_and_may_overlap(tmp_path: Path) -> None:
    small_class(tmp_path)
    (tmp_path / "courseWork.json").unlink()
    put(tmp_path / "courseWork-2.json", {"courseWork": [work("w2"), work("w3")], "nextPageToken": "x"})
    put(tmp_path / "courseWork-10.json", {"courseWork": [work("w4", title="The last word")]})
    put(tmp_path / "courseWork-1.json", {"courseWork": [work("w1"), work("w2")], "nextPageToken": "y"})
    put(tmp_path / "courseWork" / "more.json", [work("w5"), work("w4", title="Even later")])
    titles = [each.title for each in gathered(tmp_path).values()]
    assert titles == ["Work w1", "Work w2", "Work w3", "Even later", "Work w5"]


def test_a_page_that_promises_more_than_there_is_is_refused(tmp_path: Path) -> None:
    small_class(tmp_path)
    page = put(tmp_path / "courseWork.json", {"courseWork": [work("w1")], "nextPageToken": "more"})
    with pytest.raises(BadInput, match=r"courseWork\.json: Its nextPageToken announces another page") as refused:
        gathered(tmp_path)
    assert str(page) in str(refused.value)


def test_a_student_is_found_by_id_or_address_in_every_account(tmp_path: Path) -> None:
    profile = {"id": STUDENT, "emailAddress": "Student@Example.com"}
    for account in ("school", "club"):
        small_class(tmp_path / account)
        put(tmp_path / account / "userProfiles.json", {"userProfiles": [profile]})
    small_class(tmp_path / "strangers")
    put(tmp_path / "strangers" / "studentSubmissions.json", {"studentSubmissions": [submission("w1", by="student-9")]})
    for student in (STUDENT, "student@example.com"):
        done = run_aura_orchestrator(student, store=":memory:", data=tmp_path, now=NOW, reports=tmp_path / "reports")
        assert sorted((each.account, each.id) for each in done.assignments) == [
            ("club", "c1/w1"), ("club", "c1/w2"), ("school", "c1/w1 (2)"), ("school", "c1/w2 (2)")
        ]  # fmt: skip


def test_two_accounts_of_one_name_are_both_used_and_one_place_counts_once(tmp_path: Path) -> None:
    places = [small_class(tmp_path / folder / "school") for folder in ("a", "a", "b")]
    done = run_aura_orchestrator(STUDENT, store=":memory:", data=places, now=NOW, reports=tmp_path / "reports")
    assert sorted(each.id for each in done.assignments) == ["c1/w1", "c1/w1 (2)", "c1/w2", "c1/w2 (2)"]


def test_an_unknown_student_is_refused_and_the_known_ones_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"^student_id: 'student-7' has no course in .*\. Known students: student-1\.$"):
        check("student-7", [str(small_class(tmp_path))], LISBON)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("courseWork.json", '{"courseWork": [\n  {"id": "w1" !}\n]}', "courseWork.json, line 2, column 15: This is no"),
        ("courseWork.json", {"courseWork": [work("w1"), {"id": "w2"}]}, "courseWork.json: courseWork[1].courseId: "),
        ("courseWork.json", {"courseWork": [work("w1", dueDate={"month": "May"})]}, "courseWork[0].dueDate.month: "),
        ("courseWork.json", {"courseWork": [work("w1", dueDate={"year": 2030, "month": 2, "day": 30})]}, "dueDate"),
        ("courses.json", {"items": []}, 'courses.json: The page must be {"courses": […]}'),
        ("courses.json", "null", 'courses.json: The page must be {"courses": […]}'),
        ("studentSubmissions.json", {"studentSubmissions": [submission("w1", late="perhaps")]}, "[0].late: "),
        ("studentSubmissions.json", {"studentSubmissions": [submission("w1", assignedGrade=-1)]}, ".assignedGrade: "),
        ("studentSubmissions.json", {"studentSubmissions": [submission("w1", updateTime="9999-12-31T23:59:59-02:00")]},
         "[0]: updateTime: The year must be from 2 to 9998"),
        ("courseWork.json", '{"courseWork": [{"courseId": "c1", "id": "w1", "maxPoints": NaN}]}', "This is not valid"),
        ("courseWork.json", '{"courseWork": [{"courseId": "c1", "id": "w1", "maxPoints": 1e999}]}', "[0].maxPoints: "),
        ("courseWork.json", {"courseWork": [work("w1", due=datetime.max)]}, "dueDate and dueTime are invalid"),
        ("courses.json", '{"courses": [{"id": "c1", "name": "\\ud800"}]}', "column 42: This is not valid JSON"),
        pytest.param("courses.json", "[" * 100_000, "This is not valid JSON: recursion limit", id="nested too deep"),
    ],
)  # fmt: skip
def test_a_broken_export_is_refused_with_file_and_place(tmp_path: Path, file: str, content: object, said: str) -> None:
    small_class(tmp_path)
    put(tmp_path / file, content)
    with pytest.raises(BadInput) as refused:
        check(STUDENT, [str(tmp_path)], TOKYO)
    assert said in str(refused.value)


def test_names_are_kept_as_one_line_of_what_can_be_shown(tmp_path: Path) -> None:
    steering = "Draw\x00 a\n\x1b]0;star\u202e map 🌟 שלום"
    (found,) = gathered(botany(tmp_path, work("w1", title=steering))).values()
    assert found.title == "Draw a ]0;star map 🌟 שלום"


def test_when_work_was_graded_is_known_only_of_graded_work(tmp_path: Path) -> None:
    small_class(tmp_path)
    done = [handed_in("w1", NOW - timedelta(days=8), 8), handed_in("w2", NOW - timedelta(days=1))]
    put(tmp_path / "studentSubmissions.json", {"studentSubmissions": done})
    assert [each.graded_at for each in gathered(tmp_path).values()] == [NOW - timedelta(days=8), None]


def test_a_file_that_is_not_text_is_refused_with_the_place_of_the_byte(tmp_path: Path) -> None:
    small_class(tmp_path)
    (tmp_path / "courses.json").write_bytes(b'{"courses": \xff}')
    with pytest.raises(BadInput, match=r"courses\.json, byte 12: This is not UTF-8 text"):
        check(STUDENT, [str(tmp_path)], LISBON)


@pytest.mark.parametrize(
    ("place", "said"),
    [("nowhere", "There is no folder or file"), ("empty", "contain courses.json"), ("notes.txt", "neither")],
)
def test_a_place_without_data_is_refused(tmp_path: Path, place: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(BadInput, match=said) as refused:
        check(STUDENT, [str(tmp_path / place)], LISBON)
    assert str(refused.value).startswith("data: ")
    assert str(tmp_path / place) in str(refused.value)


CSV = """student,course,title,due,handed_in,points,max_points,late,minutes
student-1,Botany,Leaves,2030-03-01,2030-02-28T18:00,9,10,,
student-1,Botany,Roots,2030-03-05T18:00,,,,,30
student-1,Zoology,Wings,2030-02-01T12:00+09:00,yes,5,10,yes,
student-2,Botany,Leaves,2030-03-01,no,,,,
"""


def test_a_csv_file_is_read_with_its_empty_cells(tmp_path: Path) -> None:
    leaves, roots, wings = gathered(put(tmp_path / "grades.csv", CSV), zone=TOKYO).values()
    assert (leaves.id, leaves.score, leaves.late) == ("Botany/Leaves (due 2030-03-01)", 0.9, False)
    assert leaves.due == datetime(2030, 3, 1, 14, 59, tzinfo=UTC)  # the end of the day in Tokyo
    assert leaves.handed_in_at == datetime(2030, 2, 28, 9, 0, tzinfo=UTC)
    assert (roots.is_open, roots.minutes, roots.due) == (True, 30, datetime(2030, 3, 5, 9, 0, tzinfo=UTC))
    assert (wings.late, wings.handed_in, wings.due) == (True, True, datetime(2030, 2, 1, 3, 0, tzinfo=UTC))


def test_semicolons_and_a_byte_order_mark_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "grades.csv"
    path.write_text("\ufeff" + CSV.replace(",", ";"), "utf-8")
    assert len(gathered(path)) == 3


def test_a_student_is_the_same_however_the_name_is_written(tmp_path: Path) -> None:
    path = put(tmp_path / "grades.csv", CSV.replace("student-1,Botany,Roots", "Student-1,Botany,Roots"))
    assert [each.title for each in gathered(path, "STUDENT-1").values()] == ["Leaves", "Roots", "Wings"]


def test_the_ids_of_a_table_do_not_depend_on_the_name_of_the_file(tmp_path: Path) -> None:
    first, second = (gathered(put(tmp_path / name, CSV)) for name in ("march.csv", "april.csv"))
    assert (
        list(first)
        == list(second)
        == [
            "Botany/Leaves (due 2030-03-01)",
            "Botany/Roots (due 2030-03-05)",
            "Zoology/Wings (due 2030-02-01)",
        ]
    )


def test_work_with_the_same_title_is_told_apart_by_its_due_date(tmp_path: Path) -> None:
    lines = ["course,title,due", "Latin,Test,5.4.2030", "Latin,Test,5.3.2030", "Latin,Test,"]
    found = gathered(put(tmp_path / "grades.csv", "\n".join(lines)), zone="UTC")
    assert {name: each.due and each.due.month for name, each in found.items()} == {
        "Latin/Test (due 2030-04-05)": 4, "Latin/Test (due 2030-03-05)": 3, "Latin/Test": None
    }  # fmt: skip


@pytest.mark.parametrize(
    ("heading", "cell", "expected"),
    [
        ("points,max_points", "80%,20", (80, 100, "80%")),
        ("points", "12 out of 20", (12, 20, "")),
        ("Grade", "B+", (None, None, "B+")),
        ("Note", '"2,3"', (None, None, "2,3")),
        ("Note", "2-", (None, None, "2-")),
        ("Note", "sehr gut", (None, None, "sehr gut")),
        ("Mark,Out of", "17,20", (17, 20, "")),
        ("Note", "9/15", (9, 15, "")),
    ],
)
def test_a_grade_is_kept_as_the_source_writes_it(tmp_path: Path, heading: str, cell: str, expected: object) -> None:
    (found,) = gathered(put(tmp_path / "x.csv", f"course,title,{heading}\nLatin,Test,{cell}\n")).values()
    assert (found.points, found.max_points, found.grade) == expected
    assert found.is_graded
    assert not found.is_open


@pytest.mark.parametrize(
    ("content", "said"), [("\n", "is empty"), ("course,title\n", "has no lines below its headings")]
)
def test_a_table_without_work_is_refused(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(BadInput, match=rf"grades\.csv {said}(ings)?\. "):
        check(STUDENT, [str(put(tmp_path / "grades.csv", content))], LISBON)


def test_any_number_of_points_will_do(tmp_path: Path) -> None:
    leaves, *_ = gathered(put(tmp_path / "grades.csv", CSV.replace("9,10", "1000000000,2e9"))).values()
    assert leaves.score == 0.5


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("late,minutes", "late,late", "grades.csv, line 1: Column 'late' occurs twice ('late' and 'late')"),
        ("2030-03-01,2030", "9999-12-31,2030", "line 2, column 'due': '9999-12-31' is not a date or time"),
        ("title,due", "tittle,due", "grades.csv, line 1: Column 'tittle' is unknown. Did you mean 'title'? Rename it"),
        ("title,due", "due", "line 1: Column 'title' is missing"),
        ("2030-03-01,2030", "31.2.2030,2030", "line 2, column 'due': '31.2.2030' is not a date or time"),
        ("9,10", "nine,10", "line 2, column 'points': 'nine' is not a number of at least 0"),
        ("9,10", "nan,10", "line 2, column 'points': 'nan' is not a number of at least 0"),
        (",30\n", ",0\n", "line 3, column 'minutes': '0' is not a whole number of minutes above 0"),
        ("yes,5", "31.2.2030,5", "line 4, column 'handed_in': '31.2.2030' is not a status or a time"),
        ("student-1,Botany,Roots", "student-1,,Roots", "line 3, column 'course': The cell is empty"),
        ("Botany,Roots,2030-03-05T18:00", "Botany,Leaves,1.3.2030", "line 3: 'Leaves' occurs twice in Botany. Remove"),
        (",30\n", ",30,1\n", "line 3: The line has more cells than there are columns"),
    ],
)  # fmt: skip
def test_a_wrong_csv_file_is_refused_with_line_and_column(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in CSV
    path = put(tmp_path / "grades.csv", CSV.replace(old, new, 1))
    with pytest.raises(BadInput) as refused:
        check(STUDENT, [str(path)], LISBON)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(
            "Schüler;Fach;Aufgabe;Fällig am;Abgegeben;Punkte;Max. Punkte;Lehrerin\n"
            "Student-1;Biologie;Blätter;1.3.2030;ja;8,5;10;X\nStudent-1;Biologie;Wurzeln;05.03.2030 18:00;nein;;;X\n",
            [("Blätter", "2030-03-01 23:59", True, 0.85), ("Wurzeln", "2030-03-05 18:00", False, None)],
            id="German, semicolons, points and commas",
        ),
        pytest.param(
            "CLASS\tAssignment\tDue Date\tStatus\tGrade\nBotany\tLeaves\t3/14/2030\tTurned in\t17/20\n"
            "Botany\tRoots\t3/4/2030 6:30 PM\tMissing\t\n",
            [("Leaves", "2030-03-14 23:59", True, 0.85), ("Roots", "2030-03-04 18:30", False, None)],
            id="American, tabs, one date proves the order, no student",
        ),
        pytest.param(
            'course,title,due,points\nBotany,Leaves,5. März 2030,85%\nBotany,Roots,"March 6, 2030",\n\n',
            [("Leaves", "2030-03-05 23:59", False, 0.85), ("Roots", "2030-03-06 23:59", False, None)],
            id="months by name",
        ),
    ],
)
def test_tables_are_read_as_people_write_them(tmp_path: Path, content: str, expected: list[object]) -> None:
    path = tmp_path / "grades.csv"
    for encoding in ("utf-8", "cp1252"):
        path.write_bytes(content.encode(encoding))
        found = gathered(path, zone="UTC").values()
        assert [
            (each.title, f"{each.due:%Y-%m-%d %H:%M}", each.handed_in, each.score) for each in found if each.due
        ] == expected


@pytest.mark.parametrize("language", ["en", "de"])
def test_an_unknown_word_is_a_warning_that_names_file_line_and_word(tmp_path: Path, language: str) -> None:
    said = {
        "en": "grades.csv, line 4: Aura does not know the word “maybe”. The work counts as graded.",
        "de": "grades.csv, line 4: Aura kennt das Wort „maybe“ nicht. Die Arbeit zählt als bewertet.",
    }
    content = CSV.replace("yes,5", "maybe,5").replace("10,,\nstudent-1,B", "10,perhaps,\nstudent-1,B")
    path = put(tmp_path / "grades.csv", content.replace("no,,,,", "blessed,,,,"))
    done = run_aura_orchestrator(
        STUDENT, store=":memory:", data=path, now=NOW, reports=tmp_path, time_zone="UTC", language=language
    )
    assert done.status == "completed"
    assert len(done.notes) == 2  # the other student's word is not this one's
    assert "line 2" in done.notes[0]
    assert "perhaps" in done.notes[0]
    assert done.notes[1].endswith(said[language])
    assert done.report is not None
    for note in done.notes:
        assert note.partition(" ")[2] in done.report.markdown.read_text("utf-8")


def test_excused_work_is_neither_to_be_done_nor_missing_and_the_report_says_it(tmp_path: Path) -> None:
    head = "course,title,due,status,points,max_points\n"
    week = [
        put(tmp_path / f"{number}.csv", f"{head}Latin,Test,2030-03-01,{status},,\nLatin,Essay,2030-02-01,yes,9,10\n")
        for number, status in enumerate(["missing", "excused"])
    ]
    changes = new_since(tmp_path, week, student="Anna")
    assert "**Excused**\n\n- **Test**: Latin\n" in changes
    done = run_aura_orchestrator("Anna", store=":memory:", data=week[1], now=NOW, reports=tmp_path, time_zone="UTC")
    assert done.skill_profile is not None
    assert [(each.missing, each.mastery) for each in done.skill_profile.subjects] == [(0, 0.9)]
    assert done.daily_plan == []


def test_a_date_with_two_readings_is_a_question_and_the_answer_is_an_option(tmp_path: Path) -> None:
    path = put(tmp_path / "grades.csv", "course,title,due\nBotany,Leaves,3/4/2030\n")
    with pytest.raises(AmbiguousDates, match=r"line 2, column 'due': '3/4/2030' has two readings\..*--dates day-first"):
        check(STUDENT, [str(path)], LISBON)
    days = [
        source.assignments(source.courses(STUDENT)[0])[0].due
        for order in ORDERS
        for source in (open_source(str(path), "UTC", order),)
    ]
    assert [f"{day:%d.%m.}" for day in days if day] == ["03.04.", "04.03."]


def test_dates_that_prove_both_orders_are_refused_with_both_places(tmp_path: Path) -> None:
    path = put(tmp_path / "grades.csv", "course,title,due\nBotany,Leaves,3/14/2030\nBotany,Roots,14/3/2030\n")
    with pytest.raises(BadInput, match=r"line 2.*'3/14/2030' and '14/3/2030' \(.*line 3.*different order"):
        check(STUDENT, [str(path)], LISBON)


# Google Takeout


def takeout_class(*posts: Resource, name: str = "Botany") -> Resource:
    return {"version": 1, "name": name, "section": "7b", "posts": [{"creationTime": "2030-01-01T08:00:00Z"}, *posts]}


def takeout_post(title: str, due: str | None = None, **submission: object) -> Resource:
    profile = {"emailAddress": "student@example.com", "name": {"fullName": "Sample Student"}}
    done = {"student": {"profile": profile}, **submission}
    work = {"title": title, "maxPoints": 10, "submissions": [done]} | ({"dueTime": due} if due else {})
    return {"publicationTime": "2030-01-01T08:00:00Z", "courseWork": work}


@pytest.mark.parametrize("student", ["student@example.com", "sample student"])
@pytest.mark.parametrize("zipped", [False, True], ids=["unpacked", "zip"])
def test_a_takeout_is_read_zipped_or_unpacked_by_address_or_name(tmp_path: Path, student: str, zipped: bool) -> None:
    found = takeout_class(
        takeout_post("Leaves", "2030-03-01T18:00:00Z", state="RETURNED", assignedGrade=8, late=True),
        takeout_post("Roots", "2030-03-05T18:00:00Z", state="CREATED"),
        takeout_post("Roots", state="TURNED_IN"),
    )
    folder = tmp_path / "takeout"
    put(folder / "Takeout" / "Classroom" / "Botany" / "Botany.json", found)
    put(folder / "Takeout" / "Classroom" / "Chess" / "Chess.json", takeout_class(name="Chess"))
    put(folder / "Takeout" / "Classroom" / "settings.json", {"theme": "dark"})
    put(folder / "Takeout" / "Other product" / "log.json", "one line\nanother line\n")
    place = Path(shutil.make_archive(str(tmp_path / "t"), "zip", folder)) if zipped else folder
    source = open_source(str(place), "UTC")
    assert source.name(student) == "Sample Student"
    assert [each.name for each in source.courses(student)] == ["Botany", "Chess"]
    leaves, roots, again = gathered(place, student).values()
    assert (leaves.title, leaves.score, leaves.late, leaves.handed_in) == ("Leaves", 0.8, True, True)
    assert (roots.is_open, roots.due) == (True, datetime(2030, 3, 5, 18, tzinfo=UTC))
    assert (again.handed_in, again.due, again.id) == (True, None, "Botany 7b/Roots")


def test_a_takeout_with_the_names_of_the_api_is_understood(tmp_path: Path) -> None:
    done = {"userId": 7, "state": "RETURNED", "grade": {"pointsEarned": "8"}, "late": None, "updateTime": None}
    odd = {"userId": 7, "state": "TURNED_IN", "grade": "excellent"}
    due = {"dueDate": {"year": 2030, "month": 3, "day": 5}, "dueTime": {"hours": 18}}
    works: list[Resource] = [
        {"id": 1, "title": "Leaves", "maxPoints": 10, "studentSubmissions": [done], **due},
        {"id": 2, "title": "Roots", "maxPoints": None, "submissions": [odd]},
    ]
    found = {"id": 5, "name": "Botany", "description": None, "posts": [{"courseWork": each} for each in works]}
    put(tmp_path / "Archive" / "Kurse" / "Botany.json", found)
    leaves, roots = gathered(Path(shutil.make_archive(str(tmp_path / "t"), "zip", tmp_path / "Archive")), "7").values()
    assert (leaves.id, leaves.score, leaves.due) == ("5/1", 0.8, datetime(2030, 3, 5, 18, tzinfo=UTC))
    assert (roots.handed_in, roots.is_graded) == (True, False)


def test_in_a_teachers_takeout_only_the_students_own_work_counts(tmp_path: Path) -> None:
    post = takeout_post("Leaves", state="TURNED_IN")
    post["courseWork"]["submissions"].append({"student": {"profile": {"emailAddress": "b@example.com"}}})
    put(tmp_path / "Classroom" / "Botany.json", takeout_class(post))
    put(tmp_path / "Classroom" / "Art.json", takeout_class(takeout_post("Collage"), name="Art"))
    assert open_source(str(tmp_path), "UTC").students() == ["b@example.com", "student@example.com"]
    (theirs,) = gathered(tmp_path, "b@example.com").values()
    assert (theirs.course, theirs.is_open) == ("Botany", True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"theme": "dark"}, "contains no class of Google Classroom. Order a Takeout with"),
        ("{", "Botany.json: This is not valid JSON"),
        (takeout_class({"courseWork": {"maxPoints": -1}}), "Botany.json[0].posts[1].courseWork.maxPoints: "),
    ],
)
def test_a_takeout_that_cannot_be_used_is_refused_with_the_place(tmp_path: Path, content: object, said: str) -> None:
    put(tmp_path / "Classroom" / "Botany.json", content)
    with pytest.raises(BadInput) as refused:
        check(STUDENT, [str(tmp_path)], LISBON)
    assert said in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "Takeout" / "Classroom" / "Botany.json", takeout_class(takeout_post("Leaves")))
    place = Path(shutil.make_archive(str(tmp_path / "t"), "zip", tmp_path / "Takeout"))
    with zipfile.ZipFile(place) as archive:
        packed = archive.getinfo("Classroom/Botany.json")
    content = bytearray(place.read_bytes())
    begin = packed.header_offset + 30 + len(packed.filename)
    content[begin : begin + packed.compress_size] = b"\xff" * packed.compress_size
    place.write_bytes(content)
    with pytest.raises(BadInput, match=r"^data: .* is not a whole \.zip file\. Download it again\.$"):
        check(STUDENT, [str(place)], LISBON)


def test_an_export_names_each_student_once_and_knows_ids_addresses_and_names(tmp_path: Path) -> None:
    one = {"id": STUDENT, "emailAddress": "student@example.com", "name": {"fullName": "Sample Student"}}
    small_class(tmp_path)
    put(tmp_path / "userProfiles.json", {"userProfiles": [one]})
    assert only_student([str(tmp_path)]) == "student@example.com"
    source = open_source(str(tmp_path), "UTC")
    assert source.courses("sample student") == source.courses("student@example.com") == source.courses(STUDENT) != []
    put(tmp_path / "userProfiles.json", {"userProfiles": [one, one | {"id": "student-2", "emailAddress": ""}]})
    assert open_source(str(tmp_path), "UTC").courses("sample student") == []  # two students have the name


def test_the_only_student_of_the_data_is_found(tmp_path: Path) -> None:
    one, several = "student,course,title\nAnna,Latin,Test\n", "student,course,title\nAnna,Latin,Test\nBen,Latin,Test\n"
    assert only_student([str(put(tmp_path / "one.csv", one))]) == "Anna"
    with pytest.raises(BadInput, match=r"^student_id: .*names several students\. .*one of them: Anna, Ben\.$"):
        only_student([str(put(tmp_path / "two.csv", several))])
    with pytest.raises(BadInput, match=r"^student_id: .*does not say whose work it is\. Pass --student"):
        only_student([str(put(tmp_path / "none.csv", "course,title\nLatin,Test\n"))])


def test_two_children_with_one_id_are_not_compared_and_another_file_name_changes_nothing(tmp_path: Path) -> None:
    store, reports = tmp_path / "aura.db", tmp_path / "reports"
    lines = "course,title,due,points\nLatin,Test,2.3.2030,80%\n"

    def run(file: str, name: str, days: int) -> LastReport | None:
        path, now = put(tmp_path / file, lines), NOW + timedelta(days=days)
        done = run_aura_orchestrator("me", store=store, data=path, name=name, now=now, time_zone="UTC", reports=reports)
        assert done.report is not None
        assert "New grades" not in done.report.markdown.read_text("utf-8")
        return done.previous

    assert run("one.csv", "Anna", 0) is None
    assert run("one.csv", "Ben", 7) is None
    previous = run("two.csv", "Anna", 7)
    assert previous is not None
    assert previous.work == {"Latin/Test (due 2030-03-02)": "graded"}


# the exports of two weeks


def test_the_takeouts_of_two_weeks_show_what_is_new_although_their_files_have_other_names(tmp_path: Path) -> None:
    old = [
        takeout_post("Test", "2030-02-20T18:00:00Z", state="RETURNED", assignedGrade=8),
        takeout_post("Leaves", "2030-03-06T18:00:00Z", state="CREATED"),
        takeout_post("Reading", state="CREATED"),
    ]
    newer = [  # the newest post comes first
        takeout_post("Test", "2030-03-20T18:00:00Z", state="CREATED"),
        old[0],
        takeout_post("Leaves", "2030-03-13T18:00:00Z", state="CREATED"),  # a week more
        old[2],
    ]
    weeks = []
    for name, posts in (("first", old), ("second", newer)):
        folder = tmp_path / name / "Takeout" / "Classroom"
        put(folder / f"Botany-{name}" / f"{name}.json", takeout_class(*posts))
        put(folder / f"Chess-{name}" / f"{name}.json", takeout_class(takeout_post("Openings"), name="Chess"))
        weeks.append(Path(shutil.make_archive(str(tmp_path / f"takeout-{name}"), "zip", tmp_path / name)))
    changes = new_since(tmp_path, weeks)
    assert changes.count("\n- ") == 1, changes
    assert "**New assignments**\n\n- **Test**: Botany · due Wed 20 Mar, 18:00" in changes


def test_the_tables_of_two_weeks_show_what_is_new_although_a_line_is_gone_and_another_came_first(
    tmp_path: Path,
) -> None:
    head = "course,title,due,points,max_points\n"
    old = [
        "Latin,Vocabulary,2030-02-01,9,10", "Latin,Vocabulary,2030-02-08,8,10", "Latin,Vocabulary,2030-03-08,,10",
        "Art,Collage,,,10",
    ]  # fmt: skip
    newer = ["Latin,Vocabulary,2030-03-15,,10", "Latin,Vocabulary,2030-03-08,7,10", old[1], old[3]]
    weeks = [put(tmp_path / f"{name}.csv", head + "\n".join(lines)) for name, lines in (("a", old), ("b", newer))]
    changes = new_since(tmp_path, weeks, student="Anna")
    assert changes.count("\n- ") == 2, changes
    assert "**New grades**\n\n- **Vocabulary**: Latin · 7 of 10" in changes
    assert "**New assignments**\n\n- **Vocabulary**: Latin · due Fri 15 Mar" in changes


def test_the_reports_of_an_earlier_version_and_a_moved_due_date_make_no_work_new(tmp_path: Path) -> None:
    work = {"Latin/Test": Standing.GRADED, "Latin/Essay (due 2030-03-05)": Standing.OPEN}
    work |= {"Latin/Verbs (due 2030-03-01)": Standing.GRADED}
    previous = LastReport(session_id="s0", as_of=NOW, work=work, profile=SkillProfile(subjects=[]))
    lines = ["Latin,Test,2030-03-01,8", "Latin,Essay,2030-03-12,", "Latin,Verbs,2030-03-11,"]
    path = put(tmp_path / "x.csv", "\n".join(["course,title,due,points", *lines]))
    (change,) = overview(list(gathered(path).values()), previous, NOW).changes
    assert (change.kind, [each.title for each in change.work]) == ("new_work", ["Verbs"])
