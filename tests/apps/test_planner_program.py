"""The planner as a program, and its README: what a person types, and what the page says."""

from __future__ import annotations

import json
import re
import shlex
import webbrowser
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Self

import pytest

from pausepoint.apps.planner import (
    SessionDocument,
    cuts,
    estimation,
    excerpts,
    hours,
    intervals,
    planner,
    schedule,
    sessions,
    study,
)
from pausepoint.apps.planner import __main__ as program
from pausepoint.apps.planner import review as reviewing
from pausepoint.apps.planner import rows as rows_of
from pausepoint.apps.planner.__main__ import main
from pausepoint.apps.planner.models import DEFAULT_MINUTES, PAGES_PER_CHUNK, QUESTIONS, STEP
from pausepoint.apps.planner.sample import SAMPLE
from pausepoint.apps.planner.sessions import KINDS
from pausepoint.apps.planner.stages import ALLOWED
from pausepoint.apps.planner.workflow import coordinator, estimation_agent, ingestion_agent, intake, planning_agent
from tests.apps.calls import Call, Forked, calling, ran
from tests.apps.pdfs import make_pdf
from tests.apps.readmes import check_components
from tests.docs.pages import code, rows, section
from tests.support.children import ROOT
from tests.support.forkserver import Forks

README = ROOT / "src" / "pausepoint" / "apps" / "planner" / "README.md"

CALENDAR = """BEGIN:VCALENDAR
BEGIN:VEVENT
UID:lecture
DTSTART;TZID=Europe/Lisbon:20300204T160000
DTEND;TZID=Europe/Lisbon:20300204T173000
RRULE:FREQ=WEEKLY;BYDAY=MO,WE
END:VEVENT
END:VCALENDAR
""".replace("\n", "\r\n")

call = calling(main)


# as a process


@pytest.mark.long
def test_without_arguments_or_terminal_it_runs_its_sample_out_of_the_wheel_from_any_folder(
    wheel: Path, tmp_path: Path
) -> None:
    done = ran("planner", tmp_path, "-v", PYTHONPATH=str(wheel))
    assert (done.code, done.stderr) == (0, "")
    for step in planner.steps:
        assert f"Finished step: {step.name}" in done.stdout
    shown = re.search(r"^Plan 1, approved: .*", done.stdout, re.MULTILINE)
    assert shown is not None
    assert f"\n{shown[0]}\n" in (ROOT / "docs" / "tour.md").read_text("utf-8")
    (plan,) = (tmp_path / "planner").glob("*/study_plan.md")
    assert f"Plan: planner/{plan.parent.name}/study_plan.html (also as Markdown, CSV and calendar)\n" in done.stdout
    for topic in ("Integration by Parts", "Longitude", "Grazers and Keystone Predators"):
        assert topic in plan.read_text("utf-8")


BAD: list[tuple[list[str], str]] = [
    (["--time-zone", "Mars/Olympus"], "timezone: There is no time zone 'Mars/Olympus'"),
    (
        ["--course", "calc2:Calculus II:2030-02-30"],
        "course calc2: midterm_date: '2030-02-30' is not a date. Write it like",
    ),
    (["--course", "calc2"], "--course: 'calc2' is not a course. Write ID:NAME[:DAY]"),
    (["--course", "a:A:2030-02-21", "--course", "a:B:2030-02-22"], "courses: course_id 'a' occurs twice"),
    (["--course", "a::2030-02-21"], "course a: course_name: Give a name"),
    (["--course", "a:A", "--file", "a:nowhere.pdf"], "nowhere.pdf: No such file or directory"),
    (["--course", "a:A", "--file", "b:notes.md"], "notes.md: There is no course 'b'"),
    (["--course", "a:A", "--file", "a:locked.pdf"], "locked.pdf: The PDF is encrypted"),
    (["--course", "a:A", "--file", "damaged.pdf"], "damaged.pdf: The PDF cannot be read. It is damaged"),
    (["--course", "a:A", "--course", "b:B", "--exam", "1-3"], "--exam: '1-3' is not valid. Write [COURSE=]CHAPTERS"),
    (["--rest-day", "Funday"], "shared_constraints.preferred_rest_day: Input should be 'Monday'"),
    (["--max-minutes", "0"], "shared_constraints.max_minutes_per_day: Input should be greater"),
    (["--start", "tomorrow"], "start_date: 'tomorrow' is not a date"),
]


@pytest.mark.parametrize("first", ["run", "create"])
@pytest.mark.parametrize(("args", "said"), BAD)
def test_bad_input_is_refused_with_a_message_that_names_it_and_nothing_is_stored(
    here: Path, call: Call, first: str, args: list[str], said: str
) -> None:
    make_pdf(here / "locked.pdf", [["text"]], encrypted=True)
    (here / "damaged.pdf").write_bytes(b"%PDF-1.7 and then nothing")
    (here / "notes.md").write_text("# Notes")
    done = call(first, *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert not (here / ".pausepoint").exists()


# step by step


def test_the_beginning_of_an_id_and_the_id_of_an_ended_session_end_no_other_session(here: Path, call: Call) -> None:
    for name in ("spring", "spring2027"):
        assert call("create", "--session-id", name).code == 3
    assert call("end", "spring").code == 0
    for typed in ("spring", "spring20"):
        assert call("end", typed).code == 4
    assert call("document", "spring2027").document["status"] == "created"


@pytest.mark.long
def test_a_session_is_made_filled_run_replanned_saved_and_ended_step_by_step(here: Path, call: Call) -> None:
    assert call("create", "--session-id", "spring", "--start", "2030-02-04", "--max-minutes", "40").code == 3
    assert call("document", "spring").document["status"] == "created"
    assert call("course", "spring", "calc2", "Calculus II").code == 0
    added = call("file", "spring", SAMPLE / "calculus.md", "--course", "calc2")
    assert (added.code, "(calculus.md) was added." in added.out) == (0, True)
    assert "resume spring" in added.out
    again = call("file", "spring", SAMPLE / "calculus.md", "--course", "calc2")
    assert "is already in the session" in again.out
    held = call("resume", "spring")
    assert held.code == 3
    assert "course calc2 (Calculus II) has no midterm date yet" in held.err
    assert re.search(r"What helps: .* course spring calc2 --midterm DAY$", held.err, re.MULTILINE)
    assert " edit spring" not in held.err
    done = call("course", "spring", "calc2", "--midterm", "2030-02-12", "--run")
    assert (done.code, "Plan 1, approved: " in done.out) == (0, True)
    moved = call("replan", "spring", "--midterm", "calc2=2030-02-14", "--rest-day", "sunday")
    assert (moved.code, "Plan 2, approved: " in moved.out) == (0, True)
    marked = call("done", "spring", "Power Series")
    assert (marked.code, "Marked as done: " in marked.out, "Plan 2, approved" in marked.out) == (0, True, True)
    assert re.match(r"Calculus II: 5 of 95 planned minutes done", call("progress", "spring").out)
    assert len(re.findall(r"^Plan \d, approved", call("plans", "spring").out, re.MULTILINE)) == 2
    saved = call("save", "spring", here / "first", "--version", "1")
    assert saved.code == 0
    assert "Version 1, Mon 4 Feb 2030 to Tue 12 Feb 2030" in (here / "first" / "study_plan.md").read_text()
    assert call("save", "spring", here / "now").code == 0
    assert "Version 2, Mon 4 Feb 2030 to Thu 14 Feb 2030" in (here / "now" / "study_plan.md").read_text()
    assert sorted(path.suffix for path in (here / "now").iterdir()) == [".csv", ".html", ".ics", ".md"]
    ended = call("end", "spring", "--reason", "the term is over")
    assert (ended.code, "the term is over" in ended.out) == (0, True)
    assert not (here / ".pausepoint" / "pausepoint.db.sessions" / "spring").exists()
    assert not (here / "planner").exists()
    assert call("document", "spring").code == 4


@pytest.mark.long
def test_a_student_with_one_plan_names_no_session_and_sees_no_steps(
    here: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def open_browser(address: str) -> bool:
        shown.append(address)
        return len(shown) == 1

    monkeypatch.setattr(webbrowser, "open", open_browser)
    assert "There is no store at" in call("open").err
    assert call("create", "--session-id", "spring", "--start", "2030-02-04").code == 3
    assert "Session spring has no plan yet. `" in call("open").err
    call("course", "spring", "calc2", "Calculus II", "--midterm", "2030-02-14")
    call("file", "spring", SAMPLE / "calculus.md", "--course", "calc2")
    made = call("resume", "spring")
    assert "\nPlan: planner/spring/study_plan.html (also as Markdown, CSV and calendar)\n" in made.out
    assert (made.out.count("\n"), "step" in made.out) == (4, False)
    assert "Running step: finish" in call("done", "-v", "§2").out
    marks = call("document", "--json").last_document["user_inputs"]["progress"]
    assert {mark["topic"] for mark in marks} == {"Integration by Parts"}
    assert re.match(r"\d+ marks? removed", call("done", "spring", "--undo", "§2").out)
    assert call("document", "--json").last_document["user_inputs"]["progress"] == []
    assert (call("done", "sprin", "§2").code, call("skip", "sprin").code) == (4, 4)  # the beginning of an id
    page = here / "planner" / "spring" / "study_plan.html"
    assert call("open").out == "Plan: planner/spring/study_plan.html\n"
    assert "No browser could be started. Open this file: " in call("open", "spring").out
    assert shown == [page.as_uri()] * 2
    page.unlink()
    assert "There is no such file. Write it again: " in call("open").err
    call("create", "--session-id", "autumn")
    assert "There are 2 sessions: autumn, spring. Name one." in call("open").err
    assert "§1" in call("done", "§1").err
    (here / "planner" / "spring" / "my notes.md").write_text("mine")
    assert call("end", "spring").code == 0
    assert [path.name for path in (here / "planner").rglob("*.*")] == ["my notes.md"]


@pytest.mark.long
def test_every_command_has_help_and_json_and_errors_in_json(here: Path, call: Call, forks: Forks) -> None:
    documented = [code(row[0])[0] for row in rows(section(README, "Commands"))]
    assert documented == list(main.commands)
    for name in documented:
        shown = call(name, "--help")
        assert (shown.code, "Usage: " in shown.out) == (0, True)
    forked = Forked("planner", here, forks)
    created = forked("create", "--session-id", "s1", "--course", "a:A:2031-01-01", "--start", "2030-12-30", "--json")
    assert (created.code, json.loads(created.stdout)["status"]) == (3, "paused")
    run = forked("course", "s1", "b", "B", "--midterm", "2031-01-02", "--run", "--json")
    assert (run.code, json.loads(run.stdout)["status"]) == (0, "completed")
    document = forked("document", "s1", "--json")
    assert SessionDocument.model_validate_json(document.stdout).status == "completed"
    wrong = forked("partial", "s1", "book.pdf", "--warning", "x", "--json")
    assert (wrong.code, wrong.stdout) == (2, "")
    assert json.loads(wrong.stderr) == {"error": "file book.pdf: There is no such file.", "exit_code": 2}


@pytest.mark.parametrize(
    ("args", "exit_code", "said"),
    [
        (["replan", "s1"], 2, "session s1: Nothing changes"),
        (["replan", "s1", "--midterm", "a=soon"], 2, "--midterm: 'soon' is not a date. Write it like 2030-02-21"),
        (["replan", "s1", "--midterm", "z=2031-02-02"], 2, "There is no course 'z'"),
        (["replan", "s1", "--exam", "z=1-3"], 2, "--exam: 'z=1-3' is not valid. Write [COURSE=]CHAPTERS, such as"),
        (["replan", "s1", "--exam", "a="], 2, "--exam: 'a=' is not valid."),
        (["replan", "s1", "--rest-day", "Funday"], 2, "--rest-day: 'Funday' is not a weekday. Write Monday"),
        (["replan", "s1", "--start", "2031-02-30"], 2, "'2031-02-30' is not a date. Write it like 2030-02-21"),
        (["replan", "s1", "--start", "3/4/2031"], 2, "'3/4/2031' can be read in two ways. Write 2031-04-03 (Thu 3 Apr"),
        (["replan", "s1", "--hours", "Foo 16:00-20:00"], 2, "--hours: 'Foo 16:00-20:00' is not valid. Write it like"),
        (["replan", "s1", "--hours", "20:00-16:00"], 2, "must begin before it ends, on the same day"),
        (["replan", "s1", "--busy", "notes.md"], 2, "notes.md is not an iCalendar file"),
        (["done", "s1"], 2, "The plan has no work on "),
        (["skip", "s1", "calculus"], 2, "calculus: No row, day, topic or section has this name"),
        (["estimate", "s1", "A", "90"], 2, "A: No row, day, topic or section has this name"),
        (["pace", "s1", "9"], 2, "shared_constraints.pace: Input should be less than or equal to 5"),
        (["pace", "s1", "2", "--course", "z"], 2, "There is no course 'z'"),
        (["skip", "s1"], 2, "Name what you skip"),
        (["course", "s1", "b"], 2, "course b: There is no such course yet. Add a name"),
        (["file", "s1", "nowhere.pdf", "--shared"], 2, "nowhere.pdf: No such file or directory"),
        (["file", "s1", "notes.md"], 2, "notes.md: The file has no course. Name its courses, or mark it as shared"),
        (["retry", "s1"], 2, "session s1: All files are complete"),
        (["save", "s1", "out", "--version", "7"], 2, "session s1: There is no plan 7. It has no plans yet"),
        (["document", "s2"], 4, "s2"),
        (["plan-s", "s1"], 2, "no command 'plan-s'. Did you mean 'plans'?"),
    ],
)  # fmt: skip
def test_a_wrong_command_says_what_is_wrong_and_changes_nothing(
    here: Path, call: Call, args: list[str], exit_code: int, said: str
) -> None:
    (here / "notes.md").write_text("# Notes\n\nwith some words")
    assert call("create", "--session-id", "s1", "--course", "a:A:2031-01-01", "--start", "2030-12-30").code == 3
    before = call("document", "s1").out
    done = call(*args)
    assert (done.code, done.out) == (exit_code, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert call("document", "s1").out == before


@pytest.mark.long
def test_an_exam_that_covers_what_there_is_not_holds_the_session_and_is_refused_later(here: Path, call: Call) -> None:
    calc = [
        "--course",
        "calc2:Calculus II:2030-02-12",
        "--start",
        "2030-02-04",
        "--file",
        f"calc2:{SAMPLE / 'calculus.md'}",
    ]
    held = call("--session-id", "s1", *calc, "--exam", "chapters 7-9")
    assert held.code == 3
    assert "the exam covers “chapters 7-9”, which its files do not have (they have chapters 1 to 6)" in held.err
    assert re.search(r"What helps: .* replan s1 --exam", held.err)
    done = call("replan", "s1", "--exam", "up to chapter 4")
    assert (done.code, "Not in the exam: Calculus II: 2 topics: Sequences and Series; Power Series." in done.out) == (
        0,
        True,
    )
    before = call("document").out
    refused = call("replan", "s1", "--exam", "calc2=Witchcraft")
    assert (refused.code, "the exam covers “Witchcraft”" in refused.err) == (2, True)
    assert call("document").out == before
    page = (here / "planner" / "s1" / "study_plan.html").read_text()
    assert "Calculus II (up to chapter 4)" in page
    assert "<h2>Not in the exam</h2>" in page
    again = call("replan", "--exam", "all", "--midterm", "calc2=2030-02-08", "--max-minutes", "20")
    assert re.search(r"^With \d+ minutes a day instead of 20, everything fits\.$", again.out, re.MULTILINE)
    minutes = re.search(r"Plan with it: .* replan s1 --max-minutes (\d+)$", again.out, re.MULTILINE)
    assert minutes is not None
    assert "approved" in call("replan", "s1", "--max-minutes", minutes[1]).out


def test_without_a_store_nothing_is_made(here: Path, call: Call) -> None:
    done = call("document", "s1")
    assert done.code == 4
    assert "There is no store at" in done.err
    assert list(here.iterdir()) == []


# the README


def kind_of(schema: dict[str, Any], node: dict[str, Any], path: str, found: dict[str, str]) -> str:
    """What the README calls the type of a key; the keys below it are entered into ``found``."""
    node = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    if "anyOf" in node:
        return f"{kind_of(schema, node['anyOf'][0], path, found)} or null"
    if "enum" in node:
        return "one of " + ", ".join(f"`{each}`" for each in node["enum"])
    if "const" in node:
        return f"`{node['const']}`"
    if "properties" in node:
        for name, inner in node["properties"].items():
            place = f"{path}.{name}" if path else name
            found[place] = ""
            found[place] = kind_of(schema, inner, place, found)
        return "object"
    if node["type"] == "object":
        return f"mapping of {kind_of(schema, node['additionalProperties'], f'{path}.<file_id>', found)}"
    if node["type"] == "array":
        return f"list of {kind_of(schema, node['items'], f'{path}[]', found)}"
    texts = {"date": "date", "date-time": "timestamp", "time": "time", None: "string"}
    return texts[node.get("format")] if node["type"] == "string" else str(node["type"])


@pytest.mark.covers("S3.97")
def test_every_key_of_the_state_is_documented_with_its_type() -> None:
    schema = SessionDocument.model_json_schema()
    found: dict[str, str] = {}
    kind_of(schema, schema, "", found)
    found = {key: kind for key, kind in found.items() if not key.startswith("planning_state.planned_for.")}
    documented = {code(row[0])[0]: row[1] for row in rows(section(README, "The state"))}
    assert documented == found
    told = section(README, "The state").partition("`events[].event_type`")[2].partition("\n")[0]
    assert set(code(told)) == set(KINDS.values())


@pytest.mark.covers("S3.99")
def test_the_stages_their_transitions_and_their_guards_are_documented() -> None:
    tables = section(README, "Stages").partition("| guard |")
    stages = {code(row[0])[0]: tuple(code(row[2])) for row in rows(tables[0])}
    assert stages == {stage: to for stage, to in ALLOWED.items() if stage != "failed"}
    assert [code(row[0])[0] for row in rows(f"| guard |{tables[2]}")] == [
        each.name for some in planner.guards.values() for each in some
    ]


@pytest.mark.covers("S3.100")
def test_who_reads_and_writes_what_is_documented() -> None:
    table = rows(section(README, "What each agent reads and writes"))
    documented = {row[0]: (code(row[1]), code(row[2])) for row in table}
    scopes = (coordinator, intake, ingestion_agent, estimation_agent, planning_agent)
    assert documented == {scope.name: (list(scope.reads), list(scope.writes)) for scope in scopes}


def test_the_readme_says_what_the_code_does() -> None:
    text = README.read_text("utf-8").replace(" %", "%").replace("\n  ", " ")
    for rule in (
        f"words / {estimation.WORDS_PER_MINUTE},",
        f"times {estimation.AGAIN} for going over it again. Add {estimation.MINUTES_PER_TASK} minutes for each",
        f"takes {estimation.MINUTES_PER_PAGE} minutes a page, times {estimation.AGAIN}. Minutes are in steps of"
        f" {STEP}. Without any material: {estimation.WITHOUT_MATERIAL}.",
        f"every topic, {excerpts.LONGEST_EXCERPT:,} characters at a time",
        f"{QUESTIONS} questions | at most {study.LONGEST_QUESTION} characters",
        f"up to {study.MOST_TOPICS} topics of a file and {study.MOST_WINDOWS * excerpts.LONGEST_EXCERPT:,} characters",
        f"`high` for a topic that at least {estimation.OFTEN:.0%} of the old exams ask about",
        f"fewer than {estimation.SHORT_TEXT} words",
        f"Estimates below {estimation.UNSURE} are flagged",
        f"{intervals.SHARE:.0%} of the course, from {intervals.LEAST} to {intervals.MOST} minutes, on the days"
        f" {intervals.DAYS_BEFORE[0]}, {intervals.DAYS_BEFORE[1]} and {intervals.DAYS_BEFORE[2]} before a midterm",
        f"at most {intervals.PART_OF_TIME:.0%} of the time before a midterm",
        f"or {schedule.COMFORT} minutes in all if that is more",
        f"at most {schedule.LONGEST} minutes, or {schedule.STRETCHED} to finish a course or to fill a free time,"
        f" and at least {hours.SITTING}:",
        "Low priority keeps {:.0%} of its time, medium {:.0%} and high {:.0%}.".format(
            *(each[1] for each in cuts.TIERS)
        ),
        f"with less than {rows_of.SKIM:.0%} of its time is to be skimmed",
        f"Up to {reviewing.ALWAYS_FINE} minutes are always fine, and days before a midterm that needs"
        f" {reviewing.TIGHT:.0%} of the time",
        f"The default limit is {DEFAULT_MINUTES} minutes",
        f"{PAGES_PER_CHUNK} pages at a time",
        f"null: {DEFAULT_MINUTES}",
        *(f"{value} for" for value in estimation.CONFIDENCE.values()),
    ):
        assert rule in text, rule


def test_the_table_of_components_names_every_file_and_only_those_that_exist() -> None:
    check_components(README, "sample_data", "phone", "conversion.lua")


class ThatMonth(datetime):
    """Two weeks before the midterms of the README: a plan of four years takes long to make."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls(2030, 2, 8, 9, tzinfo=tz)


@pytest.mark.long
def test_the_commands_of_the_readme_run(here: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (program, sessions):
        monkeypatch.setattr(module, "datetime", ThatMonth)
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    chapters = [("The first chapter", 0), ("The second chapter", 1), ("The last chapter", 2)]
    make_pdf(here / "textbook.pdf", [["Some words on a page of a book"] * 60] * 3, chapters)
    (here / "timetable.ics").write_text(CALENDAR)
    shown = re.findall(
        r"^ *\$ python -m pausepoint\.apps\.planner(.*?)(?:\s+#.*)?$", README.read_text("utf-8"), re.MULTILINE
    )
    assert len(shown) == 20
    for line in shown:
        if line == " serve":  # it runs until it is stopped: test_planner_site runs it
            continue
        done = call(*(word.replace("~", str(here)) for word in shlex.split(line)))
        assert done.code == (3 if " create " in line else 0), (line, done.err)
