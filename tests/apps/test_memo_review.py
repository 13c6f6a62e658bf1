"""A memo that a reviewer rejects, and edits of sections whose agents run again: as a program."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pausepoint.apps.memo import AGENTS
from pausepoint.apps.memo.__main__ import main
from pausepoint.apps.memo.merges import merged
from tests.apps import memo_kit
from tests.apps.calls import calling
from tests.apps.memo_kit import ONE, Calls, Program
from tests.apps.memo_sources import says, short
from tests.support.modelserver import Says, model_in_use

call, calls, program = calling(main), memo_kit.calls, memo_kit.program

QUIET = "output/Quietwater-v0.0.1"


def answered(program: Program, *answers: str) -> None:
    """Answer the questions of the memo, one after the other. Each but the last leads to the next one."""
    for number, answer in enumerate(answers):
        if number:
            program("Quietwater", "--resume", code=3)
        (question,) = re.findall(r"^Answer: .* answer (\S+) ", program.err, re.MULTILINE)
        program("answer", question, answer)


# review


@pytest.mark.long
@pytest.mark.covers("S4.67", "S4.69")
def test_a_rejected_memo_goes_back_to_the_agent_that_the_reviewer_names_and_is_not_complete(
    here: Path, program: Program, calls: Calls
) -> None:
    program("Quietwater", code=3)
    answered(program, "reject", "The team is missing.", "section_research")
    calls.taken()
    said = program("Quietwater", "--resume", code=3)
    assert "✓ Resuming from checkpoint: finalize\n" in said
    assert "✓ Resuming from checkpoint: section_research\n" in said
    assert (calls.taken()[1:], "Memo complete" in said) == (["section_research", *AGENTS[4:12]], False)
    assert "Human review" in said, "the new memo is reviewed again; no section had other inputs, so none was written"
    answered(program, "approve")
    assert "✓ Memo complete" in program("Quietwater", "--resume")
    found = json.loads((here / QUIET / "state.json").read_text())["review"]
    assert (found["verdict"], found["reason"]) == ("approved", "")


@pytest.mark.long
def test_a_reviewer_can_end_a_memo_and_it_stays_rejected(here: Path, program: Program, calls: Calls) -> None:
    program("Quietwater", code=3)
    answered(program, "reject", "Not for us.", "none")
    assert "✗ Memo rejected: Not for us.\n" in program("Quietwater", "--resume", code=1)
    found = json.loads((here / QUIET / "state.json").read_text())["review"]
    assert (found["verdict"], found["reason"], found["agent"]) == ("rejected", "Not for us.", "")
    calls.taken()
    assert program("Quietwater", "--resume", code=1) == "✗ Memo rejected: Not for us.\n"
    assert calls.taken() == []
    program("Quietwater", "--from", "cite", code=3)
    assert program.ran()[:4] == [*AGENTS[8:12]]


def test_a_budget_pauses_the_memo_and_a_larger_one_lets_it_go_on(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    with model_in_use(monkeypatch, price="1000/1000") as server:
        server.will(Says('{"quotations": []}'), says("Revenue was $4.2 million in 2029.", "annual-report-2"))
        program("Fernstone", "--outline", short(here), "--budget", "0.05", code=3)
        assert "budget" in program.err
        assert re.search(r"^Resume: .* --budget USD$", program.err, re.MULTILINE)
        program("Fernstone", "--resume", "--budget", "5")
    assert "Spent: $0.24" in program.out


# edits

MARKET, RESEARCH = f"{ONE}/2-sections/03-market-context.md", f"{ONE}/1-research.json"
MINE = "Fernstone is raising $12 million, and that is why we wait."


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.long
@pytest.mark.covers("S4.97")
@pytest.mark.parametrize("accepted", ["before", "at once"])
def test_a_paragraph_of_a_person_survives_when_its_section_is_written_again(
    here: Path, program: Program, accepted: str
) -> None:
    """Accepted long before the agents run again, or edited together with the file that makes them run."""
    program("Fernstone")
    path = here / MARKET
    path.write_text(f"{path.read_text().rstrip()}\n\n{MINE}\n")
    if accepted == "before":
        program("Fernstone", "--resume", "--edits", "accept", "--by", "ada", code=3)
    edit(here / RESEARCH, "The main competitors of Fernstone", "The market rivals of Fernstone")
    program("Fernstone", "--resume", code=6)
    assert "enrich_visualizations writes 2-sections/03-market-context.md again; your paragraphs stay" in program.err
    assert "was replaced" not in program("Fernstone", "--resume", "--edits", "accept", code=3)
    text = path.read_text()
    assert MINE in text
    assert "The market rivals of" in text, "and what the agents write now is there as well"
    assert MINE.split(",")[0] in (here / ONE / "4-final-draft.md").read_text()
    program("Fernstone", "--from", "draft", code=3)
    assert MINE in path.read_text()
    program("Fernstone", "--from", "draft", "--edits", "discard")
    assert MINE not in path.read_text()


MERGES = [
    ("A.\n\nB.\n", "A.\n\nB.\n\nMine.\n", "A.\n\nNew B.\n", "A.\n\nNew B.\n\nMine.\n", False),
    ("A.\n\nB.\n", "Mine.\n\nA.\n\nB.\n", "A.\n\nB.\n\nC.\n", "Mine.\n\nA.\n\nB.\n\nC.\n", False),
    ("A.\n\nB.\n", "A.\n", "A.\n\nB.\n\nC.\n", "A.\n\nC.\n", False),
    ("A.\n\nB.\n", "A.\n\nMine.\n", "A.\n\nNew.\n", "A.\n\nMine.\n", True),
    ("A [@x-1].\n", "A [@x-1].\n\nMine.\n", "[A](https://a.example) [@x-1].\n",
     "[A](https://a.example) [@x-1].\n\nMine.\n", False),
    ("A.\n\nB.\n", "A.\r\n\r\nMine.\r\n\r\nB.\r\n", "A.\n\nB.\n", "A.\n\nMine.\n\nB.\n", False),
    ("A.\n", "Mine.\n", "Mine.\n", "Mine.\n", False),
]  # fmt: skip


@pytest.mark.parametrize(("base", "mine", "new", "text", "clash"), MERGES)
def test_texts_are_merged_by_paragraphs_and_where_both_changed_the_person_wins(
    base: str, mine: str, new: str, text: str, clash: bool
) -> None:
    assert merged(base, mine, new) == (text, clash)
    assert merged(base, mine, text)[0] == text, "merging twice changes nothing"


# only what has changed


@pytest.mark.long
@pytest.mark.covers("S4.25")
def test_only_the_sections_whose_inputs_have_changed_are_written_again(
    here: Path, program: Program, calls: Calls
) -> None:
    program("Fernstone")
    calls.clear()
    edit(here / RESEARCH, "The main competitors of Fernstone", "The market rivals of Fernstone")
    program("Fernstone", "--resume", "--edits", "accept")
    assert calls.sections() == ["03-market-context"]
    program("Fernstone", "--from", "draft")
    assert len(calls.sections()) == 10, "a redone draft reuses no section, whatever was reused before"
    program("Fernstone", "--resume", "--mode", "justify")
    assert len(calls.sections()) == 10, "the mode is an input of every section"
