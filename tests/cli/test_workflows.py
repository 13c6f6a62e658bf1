"""`workflows`: what the store knows about workflows whose code is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli import documents
from tests.cli.kit import plain, run
from tests.cli.samples import STORE, execute
from tests.cli.zoo import fill


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and no project, so that no code is known."""
    folder, elsewhere = tmp_path_factory.mktemp("zoo"), tmp_path_factory.mktemp("elsewhere")
    fill(folder, "octopus", "call")
    (folder / STORE).parent.rename(elsewhere / Path(STORE).parent)
    return elsewhere


def test_workflows_are_listed_without_their_code(zoo: Path) -> None:
    done = run("workflows", cwd=zoo)
    assert (done.code, done.stderr) == (0, "")
    head, *rows = [line.split() for line in done.stdout.splitlines()]
    assert head == ["WORKFLOW", "VERSION", "SESSIONS", "STEPS"]
    assert [row[:2] for row in rows if row[0] == "brief"] == [["brief", "1"]]
    asked = run("workflows", "--json", cwd=zoo)
    documents.check("workflows", asked.stdout)
    (brief,) = [each for each in json.loads(asked.stdout)["workflows"] if each["name"] == "brief"]
    assert brief["sessions"] == 3, "with a child"
    assert brief["steps"][0] == "research"


def test_a_workflow_is_shown_with_its_steps_and_fields(zoo: Path) -> None:
    done = run("workflows", "brief", cwd=zoo, tty=True, size=(200, 40))
    lines = plain(done.stdout).splitlines()
    assert (done.code, lines[0].startswith("brief, version 1, ")) == (0, True)
    (research,) = [line for line in lines if line.startswith("research ")]
    assert "topic" in research
    assert any(line.strip().startswith("topic  string") for line in lines)
    assert run("workflows", "brief", "--mermaid", cwd=zoo).stdout.startswith("flowchart TD\n")
    asked = run("workflows", "brief", "--json", cwd=zoo)
    documents.check("workflows", asked.stdout)
    assert json.loads(asked.stdout)["state"]["properties"]["topic"]["type"] == "string"


def test_mistakes_are_named(zoo: Path, tmp_path: Path) -> None:
    done = run("workflows", "breif", cwd=zoo)
    assert (done.code, done.stdout) == (4, "")
    assert "Did you mean 'brief'?" in done.stderr
    done = run("workflows", "--mermaid", cwd=zoo)
    assert (done.code, done.stderr.count("\n")) == (2, 1)
    assert run("workflows", cwd=tmp_path).code == 4, "there is no store"


def test_a_workflow_that_was_never_described_is_listed_with_its_sessions(tmp_path: Path) -> None:
    fill(tmp_path, "octopus")
    execute(tmp_path / STORE, "DELETE FROM descriptions")
    (row,) = [line for line in run("workflows", cwd=tmp_path).stdout.splitlines() if line.startswith("brief ")]
    assert row.split(maxsplit=2) == ["brief", "1", "(not described yet)"]
