"""A version's folder and its session: names, stray files, line endings, agents that take long, parts of a report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pausepoint.apps.memo import research
from pausepoint.apps.memo.__main__ import main
from pausepoint.apps.memo.progress import Following
from pausepoint.apps.memo.settings import starting
from tests.apps import memo_kit
from tests.apps.calls import calling
from tests.apps.memo_kit import ONE, Program
from tests.apps.memo_sources import source

call, program = calling(main), memo_kit.program


@pytest.mark.long
def test_a_session_is_found_by_its_company(here: Path, program: Program) -> None:
    program("Fernstone", "--until", "draft", code=3)
    assert "2-sections/04-team.md" in program("artifacts", "ls", "Fernstone")
    assert "artifact.published" in program("events", "Fernstone-v0.0.1")
    program("Fernstone", "--output", "elsewhere", "--until", "deck_analyst", code=3)
    assert re.search(r"^Session \w{12}: elsewhere/Fernstone-v0\.0\.1$", program.out, re.MULTILINE), "the name is taken"


@pytest.mark.long
def test_a_file_beside_the_sections_is_named_and_windows_line_endings_are_read(here: Path, program: Program) -> None:
    program("Fernstone")
    stray, header = here / ONE / "2-sections" / "11-more.md", here / ONE / "header.md"
    stray.write_text("## More\n\nSomething that the outline does not have.\n")
    header.write_bytes(header.read_bytes().replace(b"\n", b"\r\n").replace(b"Investment", b"Confidential"))
    team = here / ONE / "2-sections" / "04-team.md"
    team.write_bytes(team.read_bytes().replace(b"\n", b"\r\n").replace(b" is the founder", b" is a founder"))
    program("Fernstone", "--resume", "--edits", "accept")
    assert "2-sections/11-more.md is not a section of the outline, so the memo does not contain it." in program.err
    draft = (here / ONE / "4-final-draft.md").read_bytes()
    assert b"\r" not in draft
    assert b"Confidential" in draft
    assert b" is a founder" in draft


def test_an_agent_that_takes_long_is_named_again(capsys: pytest.CaptureFixture[str]) -> None:
    told = Following(None)  # type: ignore[arg-type]  # only its clock is asked
    told._begins("cite")
    for now in (100.0, 105.0, 110.5, 112.0, 121.0):
        told._tell_time(now)
    told._finished.append("cite")
    told._tell_time(200.0)
    assert capsys.readouterr().out.splitlines() == [
        "Running agent: cite", "Still running: cite (10 s)", "Still running: cite (21 s)"
    ]  # fmt: skip


def test_parts_of_an_annual_report_count_by_what_they_are_about() -> None:
    report = source(
        "r", "Revenue of Acme was $5 million.", "Revenue of $7 million may fall.", "Net revenue was $9 million."
    )
    headings = ["Item 7. Results", "Item 1A. Risk Factors", "Note 2 - Revenue"]
    passages = [each.model_copy(update={"heading": text}) for each, text in zip(report.passages, headings, strict=True)]
    filing = report.model_copy(update={"passages": passages})
    found = research.select("Acme", starting("Fernstone").outline, [filing])
    results, note = found["06-traction-milestones"]
    assert (results.source, note.source) == ("r-1", "r-3")
    assert results.score > 2 * note.score
    assert [each.source for each in found["08-risks-mitigations"]] == ["r-2"]


def test_a_sentence_that_hardly_fits_is_left_out_if_there_are_enough_better_ones() -> None:
    strong = ["Revenue of Acme was $5 million.", "Orders of $9 million were delivered."]
    weak = "In the course of these and other procedures, the auditors have read something about revenue."
    for good, count in ((strong, 2), (strong[:1], 2)):
        report = source("r", *good, weak)
        passages = [each.model_copy(update={"heading": "Note 2 - Leases"}) for each in report.passages]
        filing = report.model_copy(update={"passages": passages})
        found = research.select("Acme", starting("Fernstone").outline, [filing])["06-traction-milestones"]
        assert [each.sentence for each in found] == [*good, weak][:count]
