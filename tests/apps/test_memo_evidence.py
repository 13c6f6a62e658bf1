"""Research with a model: it plans searches, reads all documents in windows, and quotes sentences for the sections."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pausepoint.apps.memo import evidence
from pausepoint.apps.memo.__main__ import main
from pausepoint.apps.memo.models import Quotation, Remark
from pausepoint.apps.memo.settings import SAMPLE
from tests.apps import memo_kit
from tests.apps.calls import calling
from tests.apps.memo_kit import ONE, PAGE, Desk, Program, searched
from tests.apps.memo_sources import short, source
from tests.support.loop import on_loop
from tests.support.modelserver import Says, model_in_use

call, program = calling(main), memo_kit.program

STAFF = "At the end of 2029 Fernstone had 63 employees, of whom 14 are engineers and 31 work in the plant."
ORDERS = "Orders worth $7.5 million were signed by December 2029"


def test_a_model_reads_every_passage_once_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "WINDOW", 50)
    sources = [source("a", "x" * 30, "y" * 30, "z" * 10), source("b", "w" * 80, "v")]
    found = list(evidence.windows([passage for each in sources for passage in each.passages]))
    assert [[*part] for part, _ in found] == [["a-1"], ["a-2", "a-3"], ["b-1"], ["b-2"]]


@pytest.mark.long
@on_loop
async def test_the_sentences_that_a_model_quotes_are_the_findings_if_their_passages_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quoted = [
        ("1-money", "annual-report-2", f"{ORDERS}, which is a backlog of about 21 months.", 2),
        ("1-money", "annual-report-2", "revenue grew from $1.9 million in 2028 to $4.2 million in 2029", 5),
        ("1-money", "annual-report-2", "Revenue grew from $1.9 million in 2028 to $9.9 million in 2029.", 5),
        ("1-money", "gone-7", "Revenue grew.", 5), ("other", "risks-4", "As a mitigation, …", 5),
    ]  # fmt: skip
    keys = ("section", "key", "sentence", "importance")
    desk = Desk(tmp_path, outline=short(tmp_path))
    with model_in_use(monkeypatch) as server:
        server.will(Says(json.dumps({"quotations": [dict(zip(keys, each, strict=True)) for each in quoted]})))
        remarks = [Remark(agent="section_research", reason="The orders are missing.")]
        outcome = await desk.run("section_research", desk.state().model_copy(update={"remarks": remarks}))
        assert len(server.requests) == 1
        assert "The orders are missing." in server.requests[0]["messages"][-1]["content"]
        assert "A fire in the plant would stop deliveries" in server.requests[0]["messages"][-1]["content"]
    found = outcome.state.section_research.findings["1-money"]
    assert [(each.sentence[:12], each.source) for each in found] == [
        ("Revenue grew", "annual-report-2"), ("Orders worth", "annual-report-2")
    ]  # fmt: skip
    assert "$4.2 million" in found[0].sentence, "as the passage has it"


@pytest.mark.long
@on_loop
async def test_a_model_plans_searches_only_if_there_is_a_search_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path, "Quietwater", outline=short(tmp_path))
    with model_in_use(monkeypatch) as server, searched(monkeypatch, [PAGE]) as searches:
        server.will(Says(json.dumps({"queries": ["Quietwater lawsuits", " ", "Quietwater"]})))
        await desk.run(until="research")
    assert searches.queries[-1] == "Quietwater lawsuits"
    assert searches.queries.count("Quietwater") == 1


@pytest.mark.long
@pytest.mark.covers("S4.25")
def test_a_model_reads_only_the_windows_whose_passages_have_changed(
    here: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "WINDOW", 600)
    monkeypatch.setattr(evidence, "AT_ONCE", 1)
    papers, old, new = here / "papers", "The main competitors of Fernstone", "The many, many rivals of Fernstone"
    shutil.copytree(SAMPLE / "Fernstone" / "documents", papers)
    quoted = {"section": "1-money", "key": "team-3", "sentence": STAFF, "importance": 5}

    def asked(*options: str | Path) -> list[str]:
        """The windows that the model is asked to read by a call of the program."""
        server.requests.clear()
        program("Fernstone", *options, "--until", "section_research", code=3)
        (finding, *_) = json.loads((here / ONE / "1-section-research.json").read_text())["findings"]["1-money"]
        assert finding["sentence"] == STAFF
        keys.append(finding["source"])
        jobs = [json.loads(each["messages"][-1]["content"]) for each in server.requests]
        return [" ".join(job["passages"].values()) for job in jobs]

    keys: list[str] = []
    with model_in_use(monkeypatch) as server:
        answers = [Says(json.dumps({"quotations": those})) for those in ([], [], [], [], [], [quoted], [], [])]
        server.will(*answers)
        assert len(asked("--outline", short(here), "--documents", papers)) == len(answers)
        for path in (here / ONE / "1-research.json", papers / "market-study.txt"):
            path.write_text(path.read_text().replace(old, new))
        (window,) = asked("--resume", "--edits", "accept")
        assert new in window
        (papers / "team.md").write_text(f"A first paragraph.\n\n{(papers / 'team.md').read_text()}")
        assert asked("--from", "research") == ["A first paragraph."]
        server.will(*answers[:5], Says(answers[5].text.replace("team-3", "team-4")))
        assert len(asked("--from", "section_research")) > 5, "what a user redoes is read again"
    assert keys == ["team-3", "team-3", "team-4", "team-4"]


def test_a_row_of_a_table_is_quoted_with_its_columns_and_each_sentence_is_in_one_section() -> None:
    table = "| In millions | 2029 | 2028 |\n|---|---|---|\n| Revenue | $46,309 | |\n| Costs | 7 | 8 |"
    known = {each.key: each for each in source("r", table, "Acme sells panels.").passages}
    given = [
        Quotation(section="02-money", key="r-1", sentence="Revenue | $46,309", importance=4),
        Quotation(section="02-money", key="r-1", sentence="Revenue | $46,310", importance=5),
        Quotation(section="01-team", key="r-2", sentence="Acme sells panels.", importance=2),
        Quotation(section="02-money", key="r-2", sentence="Acme sells panels.", importance=3),
    ]
    found = evidence.chosen(given, ["01-team", "02-money"], known)
    assert {name: [each.sentence for each in those] for name, those in found.items()} == {
        "02-money": ["Revenue by year (In millions), Revenue: 2029: $46,309.", "Acme sells panels."]
    }
