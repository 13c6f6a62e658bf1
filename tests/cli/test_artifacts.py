"""`pausepoint artifacts`, `resume --edits accept` and what they say, as a shell sees it."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from pathlib import Path

import pytest

from tests.cli.kit import Done, plain, run
from tests.cli.zoo import here

CODE = """
from pydantic import BaseModel
from pausepoint import Artifact, Workflow, step

class Memo(BaseModel):
    company: str
    research: list[str] = []
    header: str = ""
    memo: str = ""

def called(name: str) -> None:
    with open("calls", "a") as file:
        file.write(name + " ")

@step(writes="research", publishes=Artifact("1-research.json", min_bytes=5))
async def research(company: str) -> list[str]:
    called("research")
    return [f"{company} grows ferns"]

@step(writes="header", publishes=Artifact("header.md", min_bytes=5))
async def header(company: str) -> str:
    called("header")
    return f"# {company}"

@step(writes="memo", publishes=Artifact("memo.md", min_bytes=5))
async def finalize(research: list[str]) -> str:
    called("finalize")
    return f"Memo: {research[0]}."

memo = Workflow("memo", state=Memo, steps=[research, header, finalize])
"""


class Project:
    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "memo.py").write_text(textwrap.dedent(CODE))
        (path / "pyproject.toml").write_text('[tool.pausepoint.workflows]\nmemo = "memo.py:memo"\n')
        done = self("run", "memo", "--company", "Fern", "--session-id", "fern", "--folder", "output/Fern-v0.0.1")
        assert done.code == 0, done
        assert self.calls() == ["research", "header", "finalize"]

    def __call__(self, *words: str) -> Done:
        return here(self.path, *words)

    def calls(self) -> list[str]:
        found = (self.path / "calls").read_text().split()
        (self.path / "calls").write_text("")
        return found

    def file(self, name: str) -> Path:
        return self.path / "output" / "Fern-v0.0.1" / name


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_shell_sees_how_artifacts_stand(project: Project) -> None:
    assert project("artifacts", "verify", "fern").code == 0
    project.file("1-research.json").write_text('["Fern grows moss"]')
    project.file("header.md").unlink()
    shown = project("artifacts", "ls", "fern").stdout
    assert [line.split()[:3] for line in shown.splitlines()[1:]] == [
        ["edited", "1-research.json", "research"], ["missing", "header.md", "header"], ["stale", "memo.md", "finalize"],
    ]  # fmt: skip
    assert project("artifacts", "verify", "fern").code == 1
    document = json.loads(project("artifacts", "ls", "fern", "--json").stdout)
    assert [each["state"] for each in document["artifacts"]] == ["edited", "missing", "stale"]
    assert "upstream changed" in project("why", "fern", "finalize").stdout
    plan = project("plan", "fern").stdout
    assert "1-research.json is edited" in plan
    assert "artifact missing: header.md" in plan
    assert "Runs again: header (" in plan
    assert "Artifacts: 1 edited, 1 missing, 1 stale" in plan
    assert "memo.md is stale: finalize runs again" in project("why", "fern", "finalize").stdout
    reason = json.loads(project("why", "fern", "header", "--json").stdout)
    assert [(each["path"], each["state"]) for each in reason["artifacts"]] == [("header.md", "missing")]


@pytest.mark.covers("S4.97")
def test_without_a_terminal_a_decision_that_is_needed_is_exit_code_6_and_nothing_changes(project: Project) -> None:
    project.file("1-research.json").write_text('["Fern grows moss"]')
    done = run("resume", "fern", cwd=project.path)
    assert (done.code, project.calls()) == (6, [])
    assert "--edits accept or --edits discard" in done.stderr
    assert "finalize (" in done.stderr, "what redoing costs"
    assert project.file("1-research.json").read_text() == '["Fern grows moss"]'
    accepted = project("resume", "fern", "--edits", "accept", "--by", "ada")
    assert (accepted.code, project.calls()) == (0, ["finalize"])
    assert "already complete" not in accepted.stdout
    assert project.file("memo.md").read_text() == "Memo: Fern grows moss."
    again = project("resume", "fern")
    assert (again.code, project.calls(), "already complete" in again.stdout) == (0, [], True)


def test_discarded_edits_are_put_back(project: Project) -> None:
    project.file("memo.md").write_text("Memo: something else.")
    project.file("1-research.json").write_text("[broken")
    done = project("resume", "fern")
    assert done.code == 6
    assert "line 1, column 2" in done.stderr
    assert "--rerun STEP" in done.stderr
    assert project("resume", "fern", "--edits", "discard").code == 0
    assert project.file("1-research.json").read_text().split() == ["[", '"Fern', "grows", 'ferns"', "]"]
    assert project.calls() == []


def test_at_a_terminal_it_is_asked(project: Project) -> None:
    project.file("1-research.json").write_text('["Fern grows moss"]')
    code, out, _ = run("resume", "fern", cwd=project.path, tty=True, typed="accept\n")
    assert "What should happen to the edits?" in plain(out)
    assert (code, project.calls()) == (0, ["finalize"])


def test_single_files_are_taken_in_or_put_back(project: Project) -> None:
    project.file("1-research.json").write_text('["Fern grows moss"]')
    project.file("header.md").write_text("# Moss")
    put_back = project("artifacts", "restore", "fern", "header.md", "--by", "ada", "--reason", "a typo")
    assert "Restored: header.md" in put_back.stdout
    assert "restored by ada: header.md (a typo)" in project("events", "fern").stdout
    assert project.file("header.md").read_text() == "# Fern"
    taken = project("artifacts", "adopt", "fern", "--by", "ada", "--json")
    document = json.loads(taken.stdout)
    assert (document["changed"], [each["step"] for each in document["stale"]]) == (["1-research.json"], ["finalize"])
    assert project("artifacts", "adopt", "fern", "hedaer.md").code == 5
    assert project("artifacts", "ls", "fern", "header.md").code == 2
    assert project.calls() == []
    assert project("resume", "fern", "--rerun", "header").code == 0
    assert project.calls() == ["header", "finalize"]


def test_what_was_taken_in_is_said_with_what_it_costs(project: Project) -> None:
    project.file("1-research.json").write_text('["Fern grows moss"]')
    done = project("artifacts", "adopt", "fern")
    assert done.stdout.startswith("Adopted: 1-research.json\n")
    assert "stale: finalize (" in done.stdout
    assert "Run the stale steps again:  pausepoint resume fern" in done.stderr
    assert "Adopted: nothing" in project("artifacts", "adopt", "fern").stdout


@pytest.mark.long
def test_accepted_edits_that_a_step_would_replace_are_listed_and_need_a_decision(project: Project) -> None:
    project.file("memo.md").write_text("Memo: by hand, and long enough.")
    assert project("resume", "fern", "--by", "ada").code == 0
    project.file("1-research.json").write_text('["Fern grows moss"]')
    said = "finalize replaces memo.md, edited by ada (kept as .pausepoint/edits/"
    assert said in " ".join(project("plan", "fern").stdout.split())
    [listed] = json.loads(project("plan", "fern", "--json").stdout)["replaces"]
    assert (listed["path"], listed["step"], listed["by"], listed["accepted"]) == ("memo.md", "finalize", "ada", True)
    done = project("resume", "fern")
    assert (done.code, said in " ".join(done.stderr.split())) == (6, True)
    assert project("artifacts", "adopt", "fern").code == 0
    done = project("resume", "fern")
    assert (done.code, project.calls()) == (6, [])
    assert "would replace 1 accepted edit: memo.md. Nothing was changed." in " ".join(done.stderr.split())
    assert project("resume", "fern", "--edits", "accept").code == 0
    assert project.calls() == ["finalize"]
    kept = project.file(".pausepoint/edits") / listed["kept"].rpartition("/")[2]
    project.file("memo.md").write_bytes(kept.read_bytes())
    assert project("artifacts", "adopt", "fern").stdout.startswith("Adopted: memo.md")


@pytest.mark.long
def test_the_command_that_writes_missing_files_again_works_as_it_is_printed(project: Project) -> None:
    project.file("memo.md").write_text("Memo: by hand, and long enough.")
    assert project("resume", "fern", "--by", "ada").code == 0
    project.file("1-research.json").unlink()
    refused = project("resume", "fern")
    assert (refused.code, "would replace 1 accepted edit: memo.md" in refused.stderr) == (6, True)
    [way] = re.findall(r"write the missing files again: `pausepoint ([^`]+)`", refused.stderr)
    assert project(*shlex.split(way)).stdout == "Restored: 1-research.json\n"
    assert (project("resume", "fern").code, project.calls()) == (0, [])


@pytest.mark.long
@pytest.mark.parametrize("words", ["show fern", "plan fern", "resume fern", "artifacts ls fern"])
def test_a_folder_that_is_gone_is_named_with_a_command_that_helps(project: Project, words: str) -> None:
    project.file("").rename(project.path / "away")
    store = ("--store", ".pausepoint/pausepoint.db")
    done = run(*words.split(), *store, cwd=project.path)
    said = done.stdout + done.stderr
    assert ("is missing or empty" in said, "restore()" in said) == (True, False)
    [way] = re.findall(r"write its files again with `pausepoint ([^`]+)`", said)
    assert project(*shlex.split(way)).stdout == "Restored: 1-research.json, header.md, memo.md\n"
    assert shlex.split(way)[-2:] == [*store]


@pytest.mark.long
@pytest.mark.covers("S4.86")
def test_show_and_plan_name_a_text_that_is_too_short(project: Project) -> None:
    project.file("memo.md").write_text("x")
    assert "Artifact memo.md is edited: it differs from the record; it has 1 byte" in project("show", "fern").stdout
    assert "memo.md is invalid: it has 1 byte; a file below 5 bytes" in project("plan", "fern").stdout
    document = json.loads(project("show", "fern", "--json").stdout)
    assert [each["state"] for each in document["artifacts"]] == ["valid", "valid", "edited"]
    code = project.path / "memo.py"
    code.write_text(code.read_text().replace('Artifact("memo.md", min_bytes=5)', 'Artifact("memo.md", min_bytes=1)'))
    assert run("artifacts", "adopt", "fern", cwd=project.path).stdout.startswith("Adopted: memo.md")


@pytest.mark.long
def test_what_nobody_is_asked_about_is_said(project: Project) -> None:
    project.file("memo.md").write_text("Memo: by hand.")
    done = project("resume", "fern")
    assert (done.code, project.calls()) == (0, [])
    assert "Adopting memo.md: its content differs from the record" in done.stderr
    project.file("header.md").write_text("# by hand")
    done = project("resume", "fern", "--rerun", "header")
    assert "Adopting header.md" not in done.stderr
    assert "header.md was not written by this session; moved to" in done.stdout
    assert project.calls() == ["header"]


@pytest.mark.long
def test_a_resume_warns_of_code_that_has_changed_and_keeps_what_it_left(project: Project) -> None:
    code = project.path / "memo.py"
    code.write_text(code.read_text().replace('return f"# {company}"', 'return f"# The {company}"'))
    plan = json.loads(run("plan", "fern", "--json", cwd=project.path).stdout)
    assert plan["changed"] == ["header"]
    assert "its code has changed" in plan["steps"][1]["why"]
    done = run("resume", "fern", cwd=project.path)
    assert (done.code, project.calls()) == (0, [])
    assert done.stderr.splitlines() == [
        "The code of header has changed, but its artifacts are kept. To run it again:  --rerun header"
    ]
    again = run("resume", "fern", "--rerun", "header", cwd=project.path)
    assert (again.code, project.calls(), "has changed" in again.stderr) == (0, ["header"], False)
    assert project.file("header.md").read_text() == "# The Fern"


def test_a_workflow_that_leaves_artifacts_is_not_run_without_a_folder(project: Project) -> None:
    done = project("run", "memo", "--company", "Moss")
    assert done.code == 5
    assert "needs a folder" in done.stderr


def test_going_back_and_running_again_are_decided_about_before_anything_is_changed(project: Project) -> None:
    project.file("1-research.json").write_text("[broken")
    for words in (["--from", "finalize"], ["--from", "finalize", "--edits", "accept"], ["--rerun", "header"]):
        done = project("resume", "fern", *words)
        assert (done.code, "Nothing was changed" in done.stderr) == (6, True), words
    assert json.loads(project("show", "fern", "--json").stdout)["status"] == "completed"
    assert project("resume", "fern", "--from", "finalize", "--edits", "discard").code == 0
    assert project.calls() == ["finalize"]


def test_a_plan_knows_what_is_to_run_again(project: Project) -> None:
    shown = project("resume", "fern", "--dry-run", "--rerun", "research").stdout
    assert "Runs again: research (" in shown
    assert "finalize (" in shown
    assert project("resume", "fern", "--rerun", "research", "--pause-after", "research").code == 3
    assert project.calls() == ["research"]
    project("resume", "fern")
    project.calls()
    shown = project("resume", "fern", "--dry-run", "--from", "finalize", "--rerun", "header").stdout
    assert "next      header" in shown
    assert "will run  finalize" in shown
    assert project("resume", "fern", "--from", "finalize", "--rerun", "header").code == 0
    assert project.calls() == ["header", "finalize"]


def test_a_fork_has_its_artifacts_in_a_folder_of_its_own(project: Project) -> None:
    fork = ["fork", "fern", "--at-step", "header", "--run", "--session-id"]
    assert project(*fork, "oak", "--folder", "output/oak").code == 0
    assert project.calls() == ["header", "finalize"]
    assert (project.path / "output" / "oak" / "memo.md").exists()
    refused = project(*fork, "elm", "--folder", "output/oak")
    assert (refused.code, "belongs to session 'oak'" in refused.stderr) == (5, True)


def test_an_import_asks_for_a_folder_and_the_named_way_out_works(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    project = Project(tmp_path / "here")
    assert project("export", "fern", "fern.jsonl").code == 0
    other = ("--store", "sqlite:///other.db")
    refused = project("import", "fern.jsonl", *other)
    assert refused.code == 2
    assert "needs a folder on this machine" in refused.stderr
    assert "Pass --folder" in refused.stderr
    [way] = re.findall(r"`pausepoint ([^`]+)`", refused.stderr)
    assert project("import", "fern.jsonl", "--folder", "mine", *other).code == 0
    assert project(*shlex.split(way)).code == 0
    assert (project.path / "mine" / "memo.md").read_text() == "Memo: Fern grows ferns."
    assert project("artifacts", "verify", "fern", *other).code == 0
