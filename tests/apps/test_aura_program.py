"""Aura as a program, and its README: what a person types, and what the page says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from pausepoint.apps.aura import get_workflow_state
from pausepoint.apps.aura.__main__ import main
from pausepoint.apps.aura.daily_planner import BREAK, LONGEST, SHORTEST
from pausepoint.apps.aura.models import CurrentStep
from pausepoint.apps.aura.parent_insight import HIGH_SHARE, MANY_OVERDUE, MODERATE_SHARE
from pausepoint.apps.aura.settings import SAMPLE
from pausepoint.apps.aura.skill_mastery import DOUBT, HALF_LIFE, LATE, MISSING_WEIGHT
from pausepoint.apps.calendars import events
from tests.apps.calls import Call, calling, ran
from tests.apps.classroom import STUDENT, put, small_class
from tests.apps.readmes import check_components
from tests.cli.kit import run
from tests.docs.pages import blocks, code, rows, section
from tests.support.children import ROOT, outside_sql
from tests.support.forkserver import Child, Forks
from tests.support.held import Held

README = ROOT / "src" / "pausepoint" / "apps" / "aura" / "README.md"

call = calling(main)


@pytest.mark.long
def test_without_arguments_or_terminal_it_runs_its_sample_out_of_the_wheel_from_any_folder(
    wheel: Path, tmp_path: Path
) -> None:
    done = ran("aura", tmp_path, PYTHONPATH=str(wheel))
    assert (done.code, done.stderr) == (0, "")
    for step in ("sync", "analyze", "plan", "report"):
        assert f"Finished step: {step}" in done.stdout
    assert "Sample Student has 10 open assignments." in done.stdout
    (page,) = (tmp_path / ".pausepoint" / "aura").glob("*.html")
    assert f"{page}" in done.stdout
    again = ran("aura", tmp_path, "--json", PYTHONPATH=str(wheel))
    shown = json.loads(again.stdout)
    assert shown["status"] == "completed"
    assert shown["state"]["data"] == [str(wheel / "pausepoint" / "apps" / "aura" / "sample_data")]


@pytest.mark.long
def test_every_sunday_stores_a_schedule_and_a_worker_makes_its_reports(here: Path, call: Call) -> None:
    done = call("--every", "sunday", "--owner", "ann")
    assert done.code == 0, done.err
    assert "schedule aura-student-1: every sunday at 18:00 in Europe/Lisbon" in done.out
    assert call("--every", "sunday", "--owner", "ann").code == 0  # the same schedule
    (each,) = json.loads(call("schedule", "ls", "--json").out)["schedules"]
    assert (each["cron"], each["owner"], each["input"]["student_id"]) == ("0 18 * * sun", "ann", "student-1")
    assert each["input"].keys().isdisjoint({"now", "notes"})  # each report plans from its own start
    assert json.loads(call("ls", "--json").out)["sessions"] == []
    triggered = json.loads(call("schedule", "trigger", "aura-student-1", "--json").out)["session_id"]
    assert call("worker", "--once").code == 0
    shown = json.loads(call("show", triggered, "--json").out)
    assert (shown["status"], shown["owner"]) == ("completed", "ann")
    assert len(list((here / ".pausepoint" / "aura").glob("*.html"))) == 1
    assert "Leave out --now" in call("--every", "sunday", "--now", "2030-03-04").err
    assert call("schedule", "add", "x", "--cron", "0 7 * * *").code == 2


@pytest.mark.long
def test_the_report_lies_beside_the_store_or_where_it_is_wanted(
    here: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inside := here / "inside").mkdir()
    monkeypatch.chdir(inside)
    assert call("--store", here / "there" / "x.db").code == 0
    assert len(list((here / "there" / "aura").glob("*.md"))) == 1
    assert list(inside.iterdir()) == []
    monkeypatch.setenv("PAUSEPOINT_STORE", str(here / "there" / "x.db"))
    assert call("--reports", "wanted").code == 0
    assert len(list((inside / "wanted").glob("*.html"))) == 1
    monkeypatch.delenv("PAUSEPOINT_STORE")
    (here / "pyproject.toml").write_text('[tool.pausepoint]\nstore = "kept/x.db"\n')
    assert call().code == 0
    assert len(list((here / "kept" / "aura").glob("*.html"))) == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--student", "nobody"], "student_id: 'nobody' has no course in"),
        (["--data", "broken"], "courseWork.json, line 1, column 1: This is not valid JSON"),
        (["--data", "wrong.csv"], "wrong.csv, line 1: Column 'tittle' is unknown. Did you mean 'title'? Rename it."),
        (["--time-zone", "Mars"], "time_zone: There is no time zone 'Mars'"),
        (["--calendar", "wrong.csv"], "calendar: "),
        (["--day-start", "25:00"], "--day-start"),
    ],
)
def test_bad_input_is_refused_with_a_message_that_names_it_and_nothing_is_stored(
    here: Path, call: Call, args: list[str], said: str
) -> None:
    put(small_class(here / "broken") / "courseWork.json", "{")
    put(here / "wrong.csv", "student,course,tittle\n")
    done = call("--student", STUDENT, *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert "Traceback" not in done.err
    assert not (here / ".pausepoint").exists()


def test_without_the_libraries_for_calendars_the_sample_says_so_and_runs_and_a_calendar_is_refused(
    here: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "find_spec", lambda name: None if "ical" in name else find_spec(name))
    for args, ended, said in (
        ([], 0, "aura: The sample runs without its calendar. Install the libraries for it: pip install"),
        (["--calendar", str(SAMPLE / "calendar.ics")], 2, "needs icalendar. Install it: pip install"),
    ):
        done = call(*args)
        assert (done.code, said in done.err) == (ended, True), done.err


def test_help_names_the_options_and_the_commands(here: Path, call: Call) -> None:
    done = call("--help")
    assert done.code == 0
    options = (
        "--student",
        "--data",
        "--calendar",
        "--time-zone",
        "--language",
        "--mail-to",
        "--dates",
        "--reports",
        "--store",
        "--json",
    )
    for word in (*options, "resume", "pause"):
        assert word in done.out


@pytest.mark.long
def test_the_pausepoint_command_goes_on_with_a_session_of_the_program(here: Path, call: Call) -> None:
    assert call("--session-id", "s1", "--paused").code == 3
    done = run("resume", "s1", "--target", "pausepoint.apps.aura.workflow:aura", cwd=here)
    assert done.code == 0, done.stderr
    found = get_workflow_state("s1", store=here / ".pausepoint" / "pausepoint.db")
    assert found is not None
    assert found.current_step is CurrentStep.COMPLETED


# the README


class Reader(Held):
    """Runs the blocks of the README, each in a process of its own, in one folder."""

    job = "tests.apps.aura_watched:block"

    def __init__(self, folder: Path, forks: Forks) -> None:
        super().__init__(folder, forks)
        self.options = []

    def read(self, heading: str, number: int = 0, session_id: str = "", at: str = "") -> Child:
        source = [each.source for each in blocks(README) if each.source in section(README, heading)][number]
        given = f"session_id = {session_id!r}" if session_id else ""
        show = "if 'result' in dir(): print(result['status'].value, result['current_step'].value, session_id)"
        return self.begin(given, source, show, at=at)

    def shown(self, child: Child) -> list[str]:
        return self.ends(child, 0).split()


@pytest.fixture
def reader(tmp_path: Path, forks: Forks) -> Iterator[Reader]:
    with Reader(tmp_path, forks) as found:
        yield found


@pytest.mark.covers("S1.64")
@pytest.mark.parametrize("by_hand", [False, True], ids=["by call", "by hand in workflow_states"])
def test_the_three_uses_run_as_printed(reader: Reader, by_hand: bool) -> None:
    started = reader.read("Starting a session", at="analyze")
    store = reader.folder / ".pausepoint" / "pausepoint.db"
    ((session_id,),) = (row.values() for row in outside_sql(store, "SELECT session_id FROM workflow_states"))
    assert reader.shown(reader.read("Pausing a session", int(by_hand), session_id)) == []
    reader.release()
    assert reader.shown(started) == ["paused", "PLANNING", session_id]
    stored = get_workflow_state(session_id, store=store)
    assert stored is not None
    assert (stored.status, stored.current_step, stored.daily_plan) == ("paused", CurrentStep.PLANNING, [])
    assert reader.shown(reader.read("Resuming a session", 0, session_id)) == ["completed", "COMPLETED", session_id]
    assert sorted(reader.order) == sorted({*reader.order})
    assert len(reader.order) == 7


@pytest.mark.covers("S1.65")
def test_the_table_of_components_names_every_file_and_only_those_that_exist() -> None:
    check_components(README, "sources", "sample_data")
    purposes = " ".join(row[0] + row[2] for row in rows(section(README, "Where things are")))
    assert all(
        word in purposes for word in ("models", "store access", "orchestrator", "ClassroomSync", "ParentInsight")
    )


def test_the_readme_says_what_the_code_does() -> None:
    text = README.read_text("utf-8").replace(" %", "%")
    assert [code(row[0])[0] for row in rows(section(README, "The pipeline"))] == [each.value for each in CurrentStep]
    assert (MISSING_WEIGHT, MANY_OVERDUE) == (0.5, 3)  # "halved", "three"
    for rule in (
        f"0.5 ^ (age in days / {HALF_LIFE:g}), halved for missing work",
        f"times {LATE} if it was late",
        f"Σ weight / (Σ weight + {DOUBT:g})",
        f"in sittings of {SHORTEST} to {LONGEST} minutes with breaks of {BREAK}",
        f"if three pieces are overdue or more than {HIGH_SHARE:.0%}",
        f"more than {MODERATE_SHARE:.0%} is needed",
    ):
        assert rule in text
