"""What the page about the orchestrator says, how well its heart is covered, and that its tests are counted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import pausepoint.orchestrator
from pausepoint.orchestrator import AgentState, OrchestratorState, RunStateSnapshot, TaskState, ToolCall
from pausepoint.orchestrator.bus import KINDS
from pausepoint.orchestrator.snapshot import DEFAULT_PATH
from tests.docs.pages import DOCS, ROOT, code, rows, section
from tests.support.children import LEAN
from tests.support.loop import PATIENCE

PAGE = DOCS / "orchestrator.md"


@pytest.mark.covers("S5.65")
def test_the_page_draws_the_two_states_and_the_ways_between_them() -> None:
    drawn = re.search(r"```mermaid\nstateDiagram-v2\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert drawn
    running, paused = OrchestratorState.RUNNING.value, OrchestratorState.PAUSED.value
    assert f"{running} --> {paused}: pause" in drawn[1]
    assert f"{paused} --> {running}: resume" in drawn[1]


@pytest.mark.covers("S5.66", "S5.67")
@pytest.mark.parametrize(
    ("heading", "acts"),
    [("Pausing", ["Signal", "Await idle", "Snapshot", "Event"]), ("Resuming", ["Load", "Restore", "Signal", "Event"])],
)
def test_the_page_tells_both_sequences_in_their_order(heading: str, acts: list[str]) -> None:
    assert re.findall(r"^\d\. \*\*(.+?)\*\*", section(PAGE, heading), re.MULTILINE) == acts


@pytest.mark.covers("S5.68")
def test_the_page_names_every_key_of_a_snapshot() -> None:
    told = set(code(section(PAGE, "The snapshot")))
    for part in (RunStateSnapshot, AgentState, TaskState, ToolCall):
        assert set(part.__struct_encode_fields__) <= told


@pytest.mark.covers("S5.69")
def test_the_page_says_where_the_file_is_and_how_it_is_written() -> None:
    text = section(PAGE, "The file")
    assert DEFAULT_PATH.as_posix() in text
    assert re.search(r"temporary file.*fsync.*renames.*replaces the former", text, re.DOTALL)


def test_the_page_names_every_event_with_its_fields() -> None:
    told = {code(row[0])[0]: code(row[2]) for row in rows(section(PAGE, "Events"))}
    assert told == {kind.type: list(kind.__struct_encode_fields__) for kind in KINDS}


def test_every_public_name_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8") + (DOCS / "gate.md").read_text("utf-8")
    aside = {"BusEvent", "EventLog", "Logged", "MemoryLog", "Phase", "RunReport", "TaskState", "TaskStatus", "ToolCall"}
    named = set(re.findall(r"\w+", text))
    assert sorted(set(pausepoint.orchestrator.__all__) - named - aside) == []
    assert sorted(pausepoint.orchestrator.__all__) == pausepoint.orchestrator.__all__


def test_every_component_is_where_the_page_says() -> None:
    for _, here, where in rows(section(PAGE, "Components")):
        text = (ROOT / code(where)[0]).read_text("utf-8")
        for name in code(here):
            assert re.search(rf"^(class|async def|def) {name}\b", text, re.MULTILINE), f"{name} is not in {where}"


SETTINGS = """
[run]
branch = true
source_pkgs = pausepoint.orchestrator
data_file = {folder}/data
[report]
exclude_also =
  if TYPE_CHECKING:
"""


@pytest.mark.covers("S5.60", "S5.62", "S5.63", "S5.64")
def test_controller_and_file_store_are_covered_and_no_test_of_theirs_fails(tmp_path: Path) -> None:
    """In a process of its own, so that what other tests reach does not count."""
    settings, xml, counts = tmp_path / "settings", tmp_path / "tests.xml", tmp_path / "tests.json"
    settings.write_text(SETTINGS.format(folder=tmp_path))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "PYTEST_"))}
    tests = [f"tests/orchestrator/test_{name}.py" for name in ("controller", "snapshot")]
    reports = ["--junitxml", str(xml), "--counts", str(counts)]
    measured = [sys.executable, "-m", "coverage"]
    subprocess.run(
        [*measured, "run", f"--rcfile={settings}", "-m", "pytest", "-q", "-p", "no:xdist", *tests, *reports],
        cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE,
    )  # fmt: skip
    [suite] = ElementTree.parse(xml).getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    counted = json.loads(counts.read_text())
    assert counted["numFailedTests"] == 0
    assert counted["numTotalTests"] == int(suite.get("tests", "0")) > 35
    found = subprocess.run(
        [*measured, "json", f"--rcfile={settings}", "-q", "-o", "-"],
        cwd=ROOT, env=environment, check=True, capture_output=True, timeout=PATIENCE,
    )  # fmt: skip
    files = {Path(name).name: each["summary"] for name, each in json.loads(found.stdout)["files"].items()}
    for name in ("controller.py", "snapshot.py"):
        assert files[name]["covered_branches"] >= 0.95 * files[name]["num_branches"] > 0, name


@pytest.mark.long
def test_a_test_that_fails_is_counted(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 0\n@pytest.mark.skip\ndef test_c(): pass\n"
        "@pytest.fixture\ndef bad():\n    yield\n    assert 0\ndef test_d(bad): pass\n"
    )
    (tmp_path / "test_broken.py").write_text("import nothing_of_that_name\n")
    counts = tmp_path / "deep" / "tests.json"
    plugins = [*LEAN, "-p", "no:xdist", "-p", "tests.counting"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--counts", str(counts)]
    where = ["--rootdir", str(tmp_path), "-c", os.devnull, "--continue-on-collection-errors", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([*command, *where], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    assert json.loads(counts.read_text()) == {
        "numTotalTests": 5, "numPassedTests": 1, "numFailedTests": 3, "numSkippedTests": 1,
    }  # fmt: skip
