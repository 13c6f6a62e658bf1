"""Research with a model: it plans searches, reads all documents in windows, and quotes sentences for the sections."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pausepoint.apps.memo import evidence
from tests.apps.memo_kit import PAGE, Desk, searched
from tests.apps.memo_sources import short, source
from tests.support.loop import on_loop
from tests.support.modelserver import Says, model_in_use

ORDERS = "Orders worth $7.5 million were signed by December 2029"


def test_a_model_reads_every_passage_once_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "WINDOW", 50)
    sources = [source("a", "x" * 30, "y" * 30, "z" * 10), source("b", "w" * 80, "v")]
    found = list(evidence.windows(sources))
    assert [list(part) for part in found] == [["a-1"], ["a-2", "a-3"], ["b-1"], ["b-2"]]


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
        outcome = await desk.run(until="section_research")
        assert len(server.requests) == 1
        assert "A fire in the plant would stop deliveries" in server.requests[0]["messages"][-1]["content"]
    found = outcome.state.section_research.findings["1-money"]
    assert [(each.sentence[:12], each.source) for each in found] == [
        ("Revenue grew", "annual-report-2"), ("Orders worth", "annual-report-2")
    ]  # fmt: skip
    assert "$4.2 million" in found[0].sentence, "as the passage has it"


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


def test_a_row_of_a_table_is_quoted_with_its_columns_and_each_sentence_is_in_one_section() -> None:
    table = "| In millions | 2029 | 2028 |\n|---|---|---|\n| Revenue | $46,309 | |\n| Costs | 7 | 8 |"
    known = {each.key: each for each in source("r", table, "Acme sells panels.").passages}
    given = [
        evidence.Quotation(section="02-money", key="r-1", sentence="Revenue | $46,309", importance=4),
        evidence.Quotation(section="02-money", key="r-1", sentence="Revenue | $46,310", importance=5),
        evidence.Quotation(section="01-team", key="r-2", sentence="Acme sells panels.", importance=2),
        evidence.Quotation(section="02-money", key="r-2", sentence="Acme sells panels.", importance=3),
    ]
    found = evidence.chosen(given, ["01-team", "02-money"], known)
    assert {name: [each.sentence for each in those] for name, those in found.items()} == {
        "02-money": ["Revenue by year (In millions), Revenue: 2029: $46,309.", "Acme sells panels."]
    }
