"""Aura as a program, and its README: what a person types, and what the page says."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from holdfast.apps.aura import get_workflow_state
from holdfast.apps.aura.daily_planner import BREAK, LONGEST, SHORTEST
from holdfast.apps.aura.models import CurrentStep
from holdfast.apps.aura.parent_insight import HIGH_SHARE, MANY_OVERDUE, MODERATE_SHARE
from holdfast.apps.aura.skill_mastery import DOUBT, HALF_LIFE, LATE, MISSING_WEIGHT
from holdfast.apps.aura.starting import SAMPLE
from tests.apps.classroom import STUDENT, put, small_class
from tests.docs.pages import blocks, code, rows, section
from tests.support.children import ROOT

README = ROOT / "src" / "holdfast" / "apps" / "aura" / "README.md"
PATIENCE = 50


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "AURA_"))}
    return kept | more


def aura(cwd: Path, *args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "holdfast.apps.aura", *map(str, args)]
    return subprocess.run(
        words,
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as somebody gets it: out of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_without_arguments_or_terminal_it_runs_its_sample_out_of_the_wheel_from_any_folder(
    wheel: Path, tmp_path: Path
) -> None:
    done = aura(tmp_path, PYTHONPATH=str(wheel))
    assert (done.returncode, done.stderr) == (0, "")
    for step in ("sync", "analyze", "plan", "report"):
        assert f"Finished agent: {step}" in done.stdout
    assert "20 assignments in 4 courses" in done.stdout
    (page,) = (tmp_path / ".holdfast" / "aura").glob("*.html")
    assert f"{page}" in done.stdout
    again = aura(tmp_path, "--json", PYTHONPATH=str(wheel))
    shown = json.loads(again.stdout)
    assert shown["status"] == "completed"
    assert shown["state"]["data"] == [str(wheel / "holdfast" / "apps" / "aura" / "sample_data")]


def test_the_report_lies_beside_the_store_or_where_it_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    assert aura(tmp_path / "here", "--store", tmp_path / "there" / "x.db").returncode == 0
    assert len(list((tmp_path / "there" / "aura").glob("*.md"))) == 1
    assert list((tmp_path / "here").iterdir()) == []
    done = aura(tmp_path / "here", "--reports", "wanted", HOLDFAST_STORE=str(tmp_path / "there" / "x.db"))
    assert done.returncode == 0
    assert len(list((tmp_path / "here" / "wanted").glob("*.html"))) == 1
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\nstore = "kept/x.db"\n')
    assert aura(tmp_path / "here").returncode == 0
    assert len(list((tmp_path / "kept" / "aura").glob("*.html"))) == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--student", "nobody"], "student_id: 'nobody' has no course in"),
        (["--data", "broken"], "courseWork.json, line 1, column 1: this is no JSON"),
        (["--data", "wrong.csv"], "wrong.csv, line 1: there is no column 'tittle'; did you mean 'title'?"),
        (["--time-zone", "Mars"], "time_zone: there is no time zone 'Mars'"),
        (["--calendar", "wrong.csv"], "calendar: "),
        (["--day-start", "25:00"], "--day-start"),
    ],
)
def test_bad_input_is_refused_with_a_message_that_names_it_and_nothing_is_stored(
    tmp_path: Path, args: list[str], said: str
) -> None:
    put(small_class(tmp_path / "broken") / "courseWork.json", "{")
    put(tmp_path / "wrong.csv", "student,course,tittle\n")
    done = aura(tmp_path, "--student", STUDENT, *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / ".holdfast").exists()


def test_without_the_libraries_for_calendars_the_sample_says_so_and_runs_and_a_calendar_is_refused(
    tmp_path: Path,
) -> None:
    block = "import sys, importlib.util as u; real = u.find_spec\n"
    block += "u.find_spec = lambda name, *more: None if 'ical' in name else real(name, *more)\n"
    block += "from holdfast.apps.aura.__main__ import main; main(sys.argv[1:])"
    for args, ended, said in (
        ([], 0, "aura: the sample runs without its calendar, which needs: pip install 'holdfast[apps]'"),
        (["--calendar", str(SAMPLE / "calendar.ics")], 2, "needs more: pip install 'holdfast[apps]'"),
    ):
        words = [sys.executable, "-c", block, *args]
        done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode, said in done.stderr) == (ended, True), done.stderr


def test_help_names_the_options_and_the_commands(tmp_path: Path) -> None:
    done = aura(tmp_path, "--help")
    assert done.returncode == 0
    for word in (
        "--student",
        "--data",
        "--calendar",
        "--time-zone",
        "--reports",
        "--store",
        "--json",
        "resume",
        "pause",
    ):
        assert word in done.stdout


def test_the_holdfast_command_goes_on_with_a_session_of_the_program(tmp_path: Path) -> None:
    assert aura(tmp_path, "--session-id", "s1", "--paused").returncode == 3
    words = [sys.executable, "-m", "holdfast", "resume", "s1", "--target", "holdfast.apps.aura.workflow:aura"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    found = get_workflow_state("s1", store=tmp_path / ".holdfast" / "holdfast.db")
    assert found is not None
    assert found.current_step is CurrentStep.COMPLETED


# the README


class Reader:
    """Runs the blocks of the README, each in a process of its own, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls.txt"
        for pipe in ("reached", "gate"):
            os.mkfifo(folder / pipe)
        self.reached = os.open(folder / "reached", os.O_RDWR)
        self.gate = os.open(folder / "gate", os.O_RDWR)

    def begin(self, heading: str, number: int = 0, session_id: str = "", hold: str = "") -> subprocess.Popen[str]:
        (source,) = [each.source for each in blocks(README) if each.source in section(README, heading)][
            number : number + 1
        ]
        given = f"session_id = {session_id!r}\n" if session_id else ""
        watch = "from tests.apps.aura_watched import watch_all\nwatch_all()\n"
        show = "\nif 'result' in dir(): print(result['status'].value, result['current_step'].value, session_id)"
        env = environment(
            PYTHONPATH=str(ROOT), HELD_CALLS=str(self.calls), HELD_AT=hold,
            HELD_REACHED=str(self.folder / "reached"), HELD_GATE=str(self.folder / "gate"),
        )  # fmt: skip
        return subprocess.Popen(
            [sys.executable, "-c", watch + given + source + show], cwd=self.folder, env=env, text=True,
            stdout=subprocess.PIPE,
        )  # fmt: skip

    def ends(self, child: subprocess.Popen[str]) -> list[str]:
        with child:
            said, _ = child.communicate(timeout=PATIENCE)
        assert child.returncode == 0
        return said.split()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    found = Reader(tmp_path)
    yield found
    os.close(found.reached)
    os.close(found.gate)


@pytest.mark.covers("S1.64")
@pytest.mark.parametrize("by_hand", [False, True], ids=["by call", "by hand in workflow_states"])
def test_the_three_uses_run_as_printed(reader: Reader, by_hand: bool) -> None:
    started = reader.begin("Starting a session", hold="analyze")
    assert select.select([reader.reached], [], [], PATIENCE)[0]
    store = reader.folder / ".holdfast" / "holdfast.db"
    look = f"import sqlite3; print(*sqlite3.connect({str(store)!r}).execute('SELECT session_id FROM workflow_states'))"
    shown = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    (session_id,) = re.findall(r"'(.+)'", shown)
    assert reader.ends(reader.begin("Pausing a session", int(by_hand), session_id)) == []
    os.write(reader.gate, b"x")
    assert reader.ends(started) == ["paused", "PLANNING", session_id]
    stored = get_workflow_state(session_id, store=store)
    assert stored is not None
    assert (stored.status, stored.current_step, stored.daily_plan) == ("paused", CurrentStep.PLANNING, [])
    assert reader.ends(reader.begin("Resuming a session", 0, session_id)) == ["completed", "COMPLETED", session_id]
    calls = reader.calls.read_text().splitlines()
    assert sorted(calls) == sorted({*calls})
    assert len(calls) == 7


@pytest.mark.covers("S1.65")
def test_the_table_of_components_names_every_file_and_only_those_that_exist() -> None:
    named = [path for row in rows(section(README, "Where things are")) for path in code(row[1])]
    assert [path for path in named if not (ROOT / path).exists()] == []
    package = README.parent
    files = {path.name for path in package.iterdir() if path.suffix == ".py"} - {"__init__.py"}
    assert {Path(path).name for path in named} == files | {"sources", "sample_data"}
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
