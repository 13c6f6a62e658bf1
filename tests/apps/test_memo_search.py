"""A search service and documents as sources of the memo."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from pausepoint import Status
from pausepoint.apps.memo import checks as checking
from pausepoint.apps.memo import citations as citing
from pausepoint.apps.memo import documents, research, search
from pausepoint.apps.memo import draft as writing
from pausepoint.apps.memo.settings import starting
from pausepoint.apps.memo.workflow import PATIENCE, memo
from tests.apps import memo_kit
from tests.apps.memo_kit import PAGE, Calls, Desk, searched
from tests.apps.memo_sources import MONEY, OUTLINE, SOON
from tests.support.loop import on_loop

calls = memo_kit.calls


@pytest.fixture
def _impatient() -> Iterator[None]:
    """Retries without waiting."""
    step = memo.step("research")
    msgspec.structs.force_setattr(step, "retry", SOON)
    yield
    msgspec.structs.force_setattr(step, "retry", PATIENCE)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.covers("S4.13", "S4.14", "S4.84", "S4.106")
@on_loop
async def test_with_a_key_the_web_is_searched_cited_paid_for_and_not_searched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path, "Quietwater")
    with searched(monkeypatch, [PAGE, {"title": "no page", "url": "ftp://x", "content": "y"}]) as server:
        server.script = [503]
        outcome = await desk.run(until="section_research")
        general = ["Quietwater", "Quietwater", "Quietwater funding investors", "Quietwater founders team"]
        assert server.queries[:4] == general, "the first was tried again"
        assert {*server.keys} == {"Bearer secret"}
        count = len(server.queries)
        assert outcome.spent_usd == pytest.approx(0.01 * (count - 1))
        outcome = await desk.resume()
        assert len(server.queries) == count
    assert outcome.saved_usd == pytest.approx(0.01 * (count - 1))
    memo = desk.read("4-final-draft.md")
    assert "Quietwater raised $5 million in a seed round in May 2029[^" in memo
    assert "Quietwater raises money, https://news.example/quietwater: “" in memo
    assert "[Mosswood Partners](https://mosswood.example)" in memo
    asked_for = json.loads(desk.read("1-section-research.json"))["queries"]
    assert any(query.startswith("Quietwater Team ") for query in asked_for)


@pytest.mark.parametrize("status", [401, 404])
@on_loop
async def test_a_key_that_is_refused_fails_the_agent_at_once_and_says_what_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    desk = Desk(tmp_path, "Quietwater")
    with searched(monkeypatch, []) as server:
        server.script = [status]
        outcome = await desk.run()
    assert outcome.failure is not None
    assert (outcome.status, outcome.failure.step, outcome.failure.attempts) == (Status.FAILED, "research", 1)
    assert f"status {status}" in outcome.failure.message
    assert "PAUSEPOINT_SEARCH_KEY" in outcome.failure.message


@pytest.mark.long
@pytest.mark.usefixtures("_impatient")
@pytest.mark.covers("S4.1", "S4.3")
@on_loop
async def test_a_service_that_is_gone_costs_no_finished_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    monkeypatch.setenv("PAUSEPOINT_SEARCH_KEY", "secret")
    monkeypatch.setenv("PAUSEPOINT_SEARCH_URL", "http://127.0.0.1:9")
    desk = Desk(tmp_path)
    outcome = await desk.run()
    assert (outcome.status, outcome.failure and outcome.failure.type) == (Status.FAILED, "SearchUnavailable")
    monkeypatch.delenv("PAUSEPOINT_SEARCH_KEY")
    calls.clear()
    outcome = await desk.resume()
    assert outcome.status is Status.COMPLETED
    assert "deck_analyst" not in calls


def test_what_a_document_says_means_nothing_in_the_memo(tmp_path: Path) -> None:
    """Comments, fences, citations, headings: a source is quoted, and that is all it can do."""
    text = (
        "Revenue of Acme was $4 million [@other-1] in 2029[^1]. <!-- viz: none --> Acme raised ``` $5 million.\n\n"
        "Acme raised $7 million. ## Citations and more words follow it here.\n"
    )
    (tmp_path / "note.md").write_text(text)
    (tmp_path / "odd.txt").write_text("# Acme raised revenue of $9 million.\n\n> Acme raised $8 million in revenue.\n")
    sources = [documents.read(path) for path in documents.listed(tmp_path)]
    found = research.select("Acme", OUTLINE, sources)
    job = writing.Job(
        company="Acme", investment_type="direct", memo_mode="consider", section=MONEY, findings=found["02-money"]
    )
    sections = {"01-team": "## Team\n", "02-money": writing.extracted(job)}
    memo = citing.assembled("# Acme\n", sections, OUTLINE, sources)
    assert not any(mark in citing.body_of(memo) for mark in ("<!--", "```", "other-1", "$9 million", "$8 million"))
    checked = checking.check_citations(memo, sources)
    assert (checked.cited, checked.supported, checked.dangling, checked.unused) == (
        checked.claims,
        checked.claims,
        [],
        [],
    )
    assert checked.citations == 2


def test_settings_of_the_search_are_read_from_the_environment() -> None:
    assert search.settings({}) is None
    assert search.settings({"PAUSEPOINT_SEARCH_KEY": "k"}) == search.Settings("k", "https://api.tavily.com", Decimal(0))
    for name, value in (("URL", "search.example"), ("PRICE", "free"), ("PRICE", "-1")):
        with pytest.raises(search.SearchRefused, match=f"PAUSEPOINT_SEARCH_{name} is '{value}'"):
            search.settings({"PAUSEPOINT_SEARCH_KEY": "k", f"PAUSEPOINT_SEARCH_{name}": value})


def test_a_document_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("Acme raised $3 million in 2029.")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    state = starting("Fernstone", documents=tmp_path)
    found = [research._read(path, path.name, research.ROOM) for path in documents.listed(tmp_path)]
    assert state.documents == tmp_path
    assert [(each is None, why.rpartition("/")[2]) for each, why in found] == [
        (True, "bad.txt: Byte 0 is not UTF-8. Save the text as UTF-8."), (False, "")
    ]  # fmt: skip
