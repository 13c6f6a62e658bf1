"""Aura with a language model, over real HTTP: it finds the words, the facts stay those that were computed."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest

from pausepoint import Engine
from pausepoint.apps.aura import WorkflowState, aura, run_aura_orchestrator
from pausepoint.apps.aura.prose import COMPUTED
from pausepoint.apps.aura.settings import starting
from pausepoint.apps.model import EXCHANGES
from tests.support.modelserver import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    Act,
    Cuts,
    ModelServer,
    Refuses,
    Says,
    Status,
)

STUDENT = "student@example.com"
WORDS = {"advice": ["Begin with the planets."], "summary": ["A busy week.", "There are 10 open assignments."]}


def says(purpose: str) -> Says:
    return Says(json.dumps({"sentences": WORDS[purpose]}))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "aura.db"


def facts_of(state: WorkflowState) -> object:
    return state.model_dump(include={"assignments", "skill_profile", "daily_plan", "unplanned", "load"})


@pytest.mark.long
def test_the_model_writes_the_words_and_the_facts_stay_as_they_were_computed(server: ModelServer, store: Path) -> None:
    server.will(says("advice"), says("summary"))
    done = run_aura_orchestrator(STUDENT, store=store)
    assert done.report is not None
    assert (done.advice, done.report.summary) == (WORDS["advice"], WORDS["summary"])
    markdown = done.report.markdown.read_text()
    assert "A busy week." in markdown
    assert "Begin with the planets." in markdown
    assert "**Mathematics**: level 43%" in markdown
    told = json.loads(server.requests[1]["messages"][1]["content"])["findings"]
    assert told[0] == "Sample Student has 10 open assignments."
    assert "Write in English." in server.requests[1]["messages"][0]["content"]
    with Engine(store, workflows=[aura]) as engine:
        assert engine.session(done.session_id).info().spent_tokens == 2 * (PROMPT_TOKENS + COMPLETION_TOKENS)


def test_without_a_model_the_same_facts_are_told_in_plain_words(
    store: Path, tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.will(says("advice"), says("summary"))
    with_model = run_aura_orchestrator(STUDENT, store=store)
    monkeypatch.delenv("PAUSEPOINT_MODEL")
    without = run_aura_orchestrator(STUDENT, store=tmp_path / "other.db")
    assert facts_of(with_model) == facts_of(without)
    assert without.report is not None
    assert without.report.summary[0] == "Sample Student has 10 open assignments."
    assert without.notes == []
    assert len(server.requests) == 2


def test_an_answer_with_an_invented_number_is_asked_for_again(server: ModelServer, store: Path) -> None:
    server.will(Says('{"sentences": ["You have 99 things to do at 18:45."]}'), says("advice"), says("summary"))
    done = run_aura_orchestrator(STUDENT, store=store)
    assert done.advice == WORDS["advice"]
    assert "these numbers are not among the findings: 18:45, 99" in server.requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Status(429, {"retry-after": "600"}), "status 429"),
        (Cuts(), "cannot be reached"),
        (Status(401), "status 401"),
        (Refuses("not about children"), "declines to answer: not about children"),
        (Says("no JSON"), "answers that are not a valid Prose"),
    ],
    ids=["busy", "cut", "refused", "declined", "nonsense"],
)
def test_trouble_with_the_model_costs_its_words_and_nothing_else(
    server: ModelServer, store: Path, fault: Act, why: str
) -> None:
    server.will(says("advice"), *[fault] * EXCHANGES)
    done = run_aura_orchestrator(STUDENT, store=store)
    assert (done.status, done.advice) == ("completed", WORDS["advice"])
    assert done.report is not None
    assert done.report.summary[0] == "Sample Student has 10 open assignments."
    (note,) = done.notes
    assert note.startswith("The language model gave no usable words, so the computed sentences are used.")
    assert why in note
    assert note in unescape(done.report.html.read_text("utf-8"))
    with Engine(store) as engine:
        events = list(engine.session(done.session_id).events())
    (said,) = [event.summary for event in events if event.event_type == COMPUTED]
    assert said.startswith("The summary uses the computed words:")
    assert "operation.retried" not in [event.event_type for event in events]


def test_a_resume_does_not_pay_for_an_answer_again(server: ModelServer, store: Path, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    state = starting(STUDENT, reports=reports)
    reports.write_text("in the way: no folder can be made")
    server.will(says("advice"), says("summary"))
    with Engine(store, workflows=[aura]) as engine:
        engine.start(aura, state, session_id="s1", owner=STUDENT).outcome()
        assert engine.session("s1").info().status == "failed"
    reports.unlink()
    done = run_aura_orchestrator(STUDENT, "s1", store=store)
    assert done.report is not None
    assert (done.status, done.report.summary, len(server.requests)) == ("completed", WORDS["summary"], 2)
