"""The memo resumed from its folder, as a program: edits, lost and damaged files, folders of other hands and code."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Workflow, migrate
from pausepoint.apps.memo import AGENTS, MemoState, workflow
from pausepoint.apps.memo import folders as resuming
from pausepoint.apps.memo import program as driving
from pausepoint.apps.memo.__main__ import main
from tests.apps import memo_kit
from tests.apps.calls import calling
from tests.apps.memo_kit import ONE, Calls, Program

call, calls, program = calling(main), memo_kit.calls, memo_kit.program


# edits


@pytest.mark.long
@pytest.mark.parametrize("options", [["--from", "fact_check"], ["--mode", "justify"]])
def test_a_call_that_waits_for_a_decision_or_is_refused_has_changed_nothing(
    here: Path, program: Program, options: list[str]
) -> None:
    program("Fernstone")
    header = here / ONE / "header.md"
    written = header.read_text()
    header.write_text(written.replace("Investment", "Confidential"))
    edited = everything(here / ONE)
    if options[0] == "--from":
        for more in ([], ["--until", "validate"]):
            program("Fernstone", *options, *more, code=6)
            same = " ".join(["Fernstone --resume --version v0.0.1 --from fact_check", *more])
            assert re.search(rf"^Nothing was changed\. .* the command with .* {same}$", program.err, re.MULTILINE)
    program("Fernstone", "--resume", *options, "--until", "deck_analyst", code=2)
    assert everything(here / ONE) == edited
    header.write_text(written)
    assert program("Fernstone", "--resume") == f"✓ Memo already complete: {ONE}/4-final-draft.md\n"


DAMAGED = {
    "0-deck-analysis.json": ["deck_analyst", "finalize"],
    "1-research.json": ["research", "section_research", "draft", *AGENTS[5:]],
}


@pytest.mark.long
@pytest.mark.covers("S4.75", "S4.85", "S4.88", "S4.96")
@pytest.mark.parametrize("path", DAMAGED)
def test_a_lost_artifact_is_made_again_and_a_damaged_one_is_asked_about(
    here: Path, program: Program, calls: Calls, path: str
) -> None:
    program("Fernstone")
    file = here / ONE / path
    whole = file.read_bytes()
    calls.clear()
    file.unlink()
    assert program("Fernstone", "--resume").startswith(f"✓ Resuming from checkpoint: {DAMAGED[path][0]}\n")
    again = [agent for agent in DAMAGED[path] if agent != "draft"]  # no section has other inputs, so none is written
    assert (calls.taken(), program.ran(), file.read_bytes()) == (again, DAMAGED[path], whole)
    for damaged in (whole[:200], bytes([whole[0] ^ 1]) + whole[1:]):
        file.write_bytes(damaged)
        program("Fernstone", "--resume", code=6)
        assert re.match(rf"{path} is invalid: line \d+, column \d+: ", program.err)
        assert file.read_bytes() == damaged
        program("Fernstone", "--resume", "--edits", "discard")
        assert (calls, file.read_bytes()) == ([], whole)


@pytest.mark.long
def test_what_a_store_has_never_seen_cannot_be_put_back_and_the_ways_out_are_named(
    here: Path, program: Program
) -> None:
    program("Fernstone")
    shutil.rmtree(here / ".pausepoint")
    header = here / ONE / "header.md"
    whole = header.read_text()
    header.write_text(whole.replace("Investment", "Confidential"))
    program("Fernstone", "--resume", "--edits", "discard", code=2)
    assert program.err.endswith("On the command line, that is --edits accept, or --from draft.\n")
    program("Fernstone", "--from", "draft")
    assert (program.ran(), header.read_text()) == ([*AGENTS[3:]], whole)


@pytest.mark.long
@pytest.mark.parametrize(
    ("lost", "again"),
    [
        ("header.md", ["enrich_trademark", *AGENTS[8:]]),
        ("2-sections/03-market-context.md", ["draft", *AGENTS[5:]]),
        ("3-validation.json", [*AGENTS[9:]]),
    ],
)
def test_with_the_store_gone_a_lost_file_is_made_anew_by_all_that_have_written_it(
    here: Path, program: Program, lost: str, again: list[str]
) -> None:
    """What an agent wrote over is in the store alone, so one that did cannot be had on its own."""
    program("Fernstone")
    before = {path: data for path, data in everything(here / ONE).items() if ".pausepoint" not in path.parts}
    shutil.rmtree(here / ".pausepoint")
    (here / ONE / lost).unlink()
    program("Fernstone", "--resume")
    assert program.ran() == again
    after = {path: data for path, data in everything(here / ONE).items() if ".pausepoint" not in path.parts}
    assert after == before


@pytest.mark.long
@pytest.mark.parametrize(("agent", "first"), [("enrich_trademark", "draft"), ("validate", "validate_citations")])
def test_with_the_store_gone_an_agent_that_wrote_over_what_it_read_is_redone_from_the_first_one_only(
    here: Path, program: Program, agent: str, first: str
) -> None:
    program("Fernstone")
    before = everything(here / ONE)
    shutil.rmtree(here / ".pausepoint")
    for _ in range(2):  # to refuse it changes nothing
        program("Fernstone", "--from", agent, code=2)
        assert program.err.startswith(f"memo: {agent} cannot be redone alone: ")
        assert program.err.endswith(f" is missing. Write it again with --from {first}.\n")
        assert (program.ran(), everything(here / ONE)) == ([], before)
    program("Fernstone", "--from", first)
    assert program.ran() == [*AGENTS[AGENTS.index(first) :]]


@pytest.mark.long
def test_discarded_edits_are_put_back_and_nothing_is_said_to_run(here: Path, program: Program) -> None:
    program("Fernstone")
    before = everything(here / ONE)
    for name in ("header.md", "state.json"):
        path = here / ONE / name
        path.write_text(path.read_text().replace("Fernstone", "Other"))
        assert "Resuming from checkpoint" not in program("Fernstone", "--resume", "--edits", "discard")
        assert program.ran() == []
        assert {path: data for path, data in everything(here / ONE).items() if "bin" not in path.parts} == before


@pytest.mark.long
@pytest.mark.covers("S4.96", "S4.97")
def test_an_edit_that_others_have_read_needs_a_decision_and_shows_what_it_costs(here: Path, program: Program) -> None:
    program("Fernstone")
    path = here / ONE / "header.md"
    path.write_text(path.read_text().replace("Investment", "Confidential"))
    program("Fernstone", "--resume", code=6)
    assert re.search(
        r"^header\.md is edited: its content differs from the record\n  cite \(\d", program.err, re.MULTILINE
    )
    assert "Repeat the command with --edits accept or --edits discard" in program.err
    program("Fernstone", "--resume", "--edits", "accept", "--by", "ada")
    assert program.ran() == [*AGENTS[8:]]
    broken = here / ONE / "1-research.json"
    broken.write_text(broken.read_text().replace('"sources"', '"sources', 1))
    program("Fernstone", "--resume", code=6)
    assert re.search(r"1-research\.json is invalid: line \d+, column \d+: ", program.err)
    program("Fernstone", "--resume", "--edits", "discard")
    assert program.ran() == []


# folders of other hands


@pytest.mark.long
@pytest.mark.covers("S4.41", "S4.76")
def test_files_that_do_not_add_up_are_refused_unless_they_are_accepted(here: Path, program: Program) -> None:
    program("Fernstone")
    for path in (here / ONE / ".pausepoint").rglob("*"):
        if path.is_file():
            path.unlink()
    (here / ONE / "1-section-research.json").unlink()
    program("Fernstone", "--resume", code=2)
    assert (
        "is inconsistent: the artifacts of draft are there, but section_research before it is not done" in program.err
    )
    assert "--incomplete accept" in program.err
    program("Fernstone", "--resume", "--incomplete", "accept")
    assert program.ran() == [*AGENTS[2:]]


@pytest.mark.long
@pytest.mark.covers("S4.41")
def test_late_files_without_any_beginning_are_named_before_the_memo_begins_anew(here: Path, program: Program) -> None:
    program("Fernstone")
    shutil.rmtree(here / ONE / ".pausepoint")
    for path in ("0-deck-analysis.json", "1-research.json", "1-section-research.json"):
        (here / ONE / path).unlink()
    before = everything(here / ONE)
    assert program("Fernstone", "--resume").startswith("⚠️  No checkpoints found, starting from scratch...\n")
    assert f"⚠️  {ONE}: the artifacts of cite are there, but " in program.err
    assert (program.ran(), everything(here / ONE)) == ([*AGENTS], before)


@pytest.mark.long
def test_a_folder_without_records_goes_on_where_its_files_end_and_a_lost_deck_analysis_is_made_again(
    here: Path, program: Program
) -> None:
    program("Fernstone", "--until", "cite", code=3)
    shutil.rmtree(here / ONE / ".pausepoint")
    shutil.rmtree(here / ".pausepoint")
    said = program("Fernstone", "--resume")
    assert said.startswith("✓ Resuming from checkpoint: validate_citations\n")
    assert program.ran() == [*AGENTS[9:]]
    shutil.rmtree(here / ONE / ".pausepoint")
    (here / ONE / "0-deck-analysis.json").unlink()
    said = program("Fernstone", "--resume")
    assert said.startswith("✓ Resuming from checkpoint: deck_analyst\n")
    assert program.ran() == ["deck_analyst", "finalize"]


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def with_code(monkeypatch: pytest.MonkeyPatch, version: int, *migrations: Any) -> None:
    """Have the program be that of another version."""
    steps = [getattr(workflow, name) for name in AGENTS]
    other = Workflow("memo", state=MemoState, steps=steps, version=version, migrations=migrations)
    for module in (driving, resuming):
        monkeypatch.setattr(module, "memo", other)


@migrate(from_version=1)
def fails(state: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no field 'thesis' to be found")


@migrate(from_version=1)
def renames(state: dict[str, Any]) -> dict[str, Any]:
    return state | {"company_name": "FERNSTONE"}


@pytest.mark.covers("S4.93")
@pytest.mark.parametrize("store", ["the same store", "another store"])
def test_where_a_migration_fails_the_folder_stays_and_a_new_one_begins_announced(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    program("Fernstone", "--until", "draft", code=3)
    if store == "another store":
        shutil.rmtree(here / ".pausepoint")
    with_code(monkeypatch, 2, fails)
    before = everything(here / ONE)
    said = program("Fernstone", "--resume")
    assert "no field 'thesis' to be found" in said.splitlines()[0]
    assert said.splitlines()[1] == f"⚠️  Starting from scratch in a new folder; {ONE} is not changed..."
    assert program.ran() == [*AGENTS]
    assert "✓ Memo complete: output/Fernstone-v0.0.2/4-final-draft.md" in said
    assert everything(here / ONE) == before


@pytest.mark.long
@pytest.mark.covers("S4.58")
@pytest.mark.parametrize("store", ["the same store", "another store"])
def test_a_memo_that_is_complete_needs_no_migration(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    program("Fernstone")
    if store == "another store":
        shutil.rmtree(here / ".pausepoint")
    with_code(monkeypatch, 2, fails)
    assert program("Fernstone", "--resume") == f"✓ Memo already complete: {ONE}/4-final-draft.md\n"


@pytest.mark.long
@pytest.mark.covers("S4.92")
@pytest.mark.parametrize("store", ["the same store", "another store"])
def test_where_a_migration_succeeds_the_memo_goes_on(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    program("Fernstone", "--until", "draft", code=3)
    if store == "another store":
        shutil.rmtree(here / ".pausepoint")
    with_code(monkeypatch, 2, renames)
    assert program("Fernstone", "--resume").startswith("✓ Resuming from checkpoint: enrich_trademark\n")
    assert program.ran() == [*AGENTS[4:]]
    assert json.loads((here / ONE / "state.json").read_text())["company_name"] == "FERNSTONE"


@pytest.mark.long
@pytest.mark.covers("S4.94")
def test_a_folder_of_newer_code_is_refused_by_name_stays_and_a_new_one_begins(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as newer:
        with_code(newer, 2, renames)
        program("Fernstone", "--until", "research", code=3)
    before = everything(here / ONE)
    said = program("Fernstone", "--resume")
    assert re.match(r"⚠️  .*/Fernstone-v0\.0\.1 was written by version 2 of 'memo', but this code is version 1", said)
    assert f"; {ONE} is not changed..." in said
    assert "✓ Memo complete: output/Fernstone-v0.0.2/4-final-draft.md" in said
    assert everything(here / ONE) == before


@pytest.mark.long
@pytest.mark.parametrize(("note", "said"), [("session", "session.json is damaged"), ("done/research", "research.json")])
def test_a_folder_with_a_damaged_record_is_refused_and_nothing_is_begun_in_its_place(
    here: Path, program: Program, note: str, said: str
) -> None:
    program("Fernstone", "--until", "draft", code=3)
    (here / ONE / ".pausepoint" / f"{note}.json").write_text("{")
    before = everything(here / ONE)
    program("Fernstone", "--resume", code=5)
    assert said in program.err
    assert everything(here / ONE) == before
    assert [path.name for path in (here / "output").iterdir()] == ["Fernstone-v0.0.1"]
