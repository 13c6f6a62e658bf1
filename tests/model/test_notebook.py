"""How a notebook shows a session, an outcome and a handle: as readable tables without active content."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Engine, Outcome, Session, Status, Workflow, step
from pausepoint.engine import BlockingEngine
from pausepoint.model.ids import SessionId
from pausepoint.model.notebook import LONGEST, MOST_ROWS, facts, table
from tests.support.loop import on_loop

EVIL = "<script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;"
ALLOWED = {"table", "caption", "thead", "tbody", "tr", "th", "td"}


class Page(HTMLParser):
    """Parses a page like a browser, and refuses elements that could run code or load files."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.captions: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        assert {name for name, _ in attributes} <= {"style"}
        assert not any("url" in (value or "") or "expression" in (value or "") for _, value in attributes)
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "caption":
            self.captions.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        else:
            assert self.open[-1] == "caption"
            self.captions[-1] += data

    @property
    def facts(self) -> dict[str, str]:
        return {row[0]: row[1] for row in self.rows if len(row) == 2}


def shown(thing: Any) -> Page:
    return Page(thing._repr_html_())


class Unreadable:
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_whatever_a_table_shows_stays_text() -> None:
    page = Page(table([EVIL, "value"], [[EVIL, 1], [EVIL, None]], EVIL))
    assert page.captions == [EVIL]
    assert page.rows == [[EVIL, "value"], [EVIL, "1"], [EVIL, "–"]]


def test_long_values_and_long_tables_are_cut_and_say_so() -> None:
    page = Page(table(["n", "text"], ([n, "x" * 10_000] for n in range(1_000_000))))
    assert len(page.rows) == 1 + MOST_ROWS + 1
    assert page.rows[1] == ["0", "x" * LONGEST + "…"]
    assert page.rows[-1] == [f"… only the first {MOST_ROWS} rows are shown"]


def test_an_entity_is_never_cut_in_two() -> None:
    assert Page(table([], [["<" * 10_000]])).rows == [["<" * LONGEST + "…"]]


def test_a_value_that_cannot_be_shown_does_not_hide_the_others() -> None:
    page = Page(table([], [[Unreadable(), "fine"], ["bad \udcff", "good"]]))
    assert page.rows == [["(Unreadable cannot be shown: RuntimeError)", "fine"], ["bad \\udcff", "good"]]


def test_facts_leave_out_what_is_empty_but_not_what_is_nought() -> None:
    assert Page(facts({"a": None, "b": "", "c": 0, "d": "x"})).facts == {"c": "0", "d": "x"}


def test_tables_take_their_colours_from_the_page() -> None:
    text = table(["a"], [["b"]], "c")
    assert "background" not in text
    assert "color" not in text.replace("currentColor", "")


# the objects that people display


class Note(BaseModel):
    text: str = EVIL
    words: int | None = None


@step(writes="words")
def count(text: str, ctx: BlockingContext) -> int:
    ctx.spend(usd=0.25, tokens=40)
    if text == "fail":
        raise ValueError(EVIL)
    return len(text)


note = Workflow("note", state=Note, steps=[count])


@pytest.fixture
def engine() -> Iterator[BlockingEngine]:
    with Engine(":memory:", workflows=[note]) as engine:
        yield engine


def test_an_outcome_shows_how_the_session_stands_and_its_state(engine: BlockingEngine) -> None:
    page = shown(engine.start(note, session_id="one").outcome())
    assert page.captions == ["Session one", "State"]
    assert page.facts | {"spent": ""} == {
        "status": "completed", "spent": "", "tokens": "40", "field": "value", "text": EVIL, "words": str(len(EVIL)),
    }  # fmt: skip
    assert page.facts["spent"] == "0.25 USD"


def test_an_outcome_shows_every_pause_and_what_failed(engine: BlockingEngine) -> None:
    page = shown(engine.start(note, paused=True, reason=EVIL, by=EVIL).outcome())
    assert page.rows[1:3] == [["pause", "reason", "by"], ["operator", EVIL, EVIL]]
    assert page.facts["words"] == "–"
    page = shown(engine.start(note, text="fail").outcome())
    assert page.facts["failure"] == f"ValueError in count: {EVIL}"


@on_loop
async def test_an_outcome_whose_state_is_refused_says_why() -> None:
    class Other(BaseModel):
        text: int

    @step(writes="text")
    def double(text: int) -> int:
        return 2 * text

    async with Engine(":memory:", workflows=[note]) as engine:
        await engine.start(note, session_id="one", paused=True)
        engine.workflows["note"] = Workflow("note", state=Other, steps=[double])
        page = shown(await engine.session("one").outcome())
    assert page.captions[-1] == "State"
    assert "text" in page.facts["refused"]


def test_what_is_known_about_a_session_is_shown(engine: BlockingEngine) -> None:
    session = engine.start(note, session_id="one", owner=EVIL, tags=["a", EVIL], budget=2)
    session.outcome()
    page = shown(session.info())
    assert page.captions == ["Session one"]
    assert page.facts["status"] == "completed"
    assert page.facts["workflow"] == "note, version 1"
    assert (page.facts["owner"], page.facts["tags"]) == (EVIL, f"a, {EVIL}")
    assert (page.facts["spent"], page.facts["tokens"]) == ("0.25 of 2 USD", "40")
    assert page.facts["created"].endswith(" UTC")
    engine.start(note, session_id="two", paused=True)
    page = shown(engine.session("two").info())
    assert (page.facts["requested"], page.facts["step"]) == ("pause", "count#1")


def test_a_handle_shows_its_id_and_looks_at_nothing(engine: BlockingEngine) -> None:
    session = engine.start(note, session_id="one")
    session.outcome()
    engine.close()
    assert shown(session).facts == {"id": "one"}
    assert shown(session).captions == ["Session"]


@on_loop
async def test_a_handle_of_the_async_engine_shows_the_same() -> None:
    async with Engine(":memory:") as engine:
        session: Session[Note] = await engine.start(note, session_id="one")
        await session.outcome()
    assert shown(session).facts == {"id": "one"}


def test_an_outcome_shows_what_a_resume_saved() -> None:
    nothing = Outcome(SessionId("x"), Status.READY, (), None, 3, timedelta(seconds=2), 0.5, 0.0, 0, Note(text=""))
    page = shown(nothing)
    assert (page.facts["skipped"], page.facts["saved"]) == ("3 visits, 0:00:02", "0.5 USD")
