"""The applications' access to a language model, over real HTTP: what it answers, costs and suffers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from pausepoint import Context, Engine, Outcome, Retry, Workflow, step
from pausepoint.apps import model
from pausepoint.apps.model import ModelUnavailable, SettingsRefused, ask, settings
from tests.support.modelserver import (
    COMPLETION_TOKENS,
    PROMPT_TOKENS,
    Act,
    Body,
    Cuts,
    ModelServer,
    Refuses,
    Says,
    Stalls,
    Status,
    model_in_use,
)

TOKENS = PROMPT_TOKENS + COMPLETION_TOKENS
GOOD = '{"mood": "calm", "points": ["one", "two"]}'
SOON = Retry(attempts=3, first=0.01, longest=0.01)


class Verdict(BaseModel):
    mood: Literal["calm", "tense"]
    points: list[str] = Field(min_length=1)


class Paper(BaseModel):
    text: str
    verdict: Verdict | None = None
    by: str = ""
    printed: str = ""


@step(writes=["verdict", "by"], retry=SOON)
async def judge(text: str, ctx: Context) -> dict[str, Any]:
    found = await ask(ctx, "Judge the text.", {"text": text}, Verdict)
    if found is None:
        return {"verdict": Verdict(mood="calm", points=[f"{len(text)} letters"]), "by": "counting"}
    return {"verdict": found, "by": "the model"}


@step(writes="printed")
async def print_(verdict: Verdict, ctx: Context) -> str:
    return f"{verdict.mood}: {len(verdict.points)}"


PAPER = Workflow("paper", state=Paper, steps=[judge, print_])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with model_in_use(monkeypatch, key="secret-key", timeout="20", price="1/10") as server:
        yield server


def judged(workflow: Workflow[Paper] = PAPER, store: Path | str = ":memory:") -> Outcome[Paper]:
    async def run() -> Outcome[Paper]:
        async with Engine(store) as engine:
            session = await engine.start(workflow, text="a quiet day", session_id="mine")
            return await session.outcome()

    return asyncio.run(run())


def resumed(store: Path) -> Outcome[Paper]:
    async def run() -> Outcome[Paper]:
        async with Engine(store, workflows=[PAPER]) as engine:
            session = await engine.resume("mine")
            return await session.outcome()

    return asyncio.run(run())


def history(store: Path, kind: str) -> list[Any]:
    async def read() -> list[Any]:
        async with Engine(store) as engine:
            return [event async for event in engine.events("mine") if event.event_type == kind]

    return asyncio.run(read())


# answers


def test_a_typed_answer_comes_back_with_what_it_cost(server: ModelServer) -> None:
    server.will(Says(GOOD))
    outcome = judged()
    assert outcome.status == "completed"
    assert outcome.state.verdict == Verdict(mood="calm", points=["one", "two"])
    assert outcome.state.by == "the model"
    assert (outcome.spent_tokens, Decimal(str(outcome.spent_usd))) == (TOKENS, Decimal("0.0003"))
    (asked,) = server.requests
    assert asked["model"] == "tiny"
    assert asked["response_format"]["json_schema"]["schema"] == Verdict.model_json_schema()
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert asked["messages"][0]["content"].startswith("Judge the text.")
    assert asked["messages"][1]["content"] == '{"text":"a quiet day"}'
    assert server.headers[0]["authorization"] == "Bearer secret-key"


def test_the_server_itself_answers_in_the_shape_that_is_asked_for(server: ModelServer) -> None:
    outcome = judged()
    assert outcome.state.verdict == Verdict(mood="calm", points=["some words"])


def test_words_around_the_answer_do_not_matter(server: ModelServer) -> None:
    server.will(Says(f"Here you are:\n```json\n{GOOD}\n```"))
    assert judged().state.by == "the model"
    assert len(server.requests) == 1


def test_without_prices_tokens_are_counted_and_no_money(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAUSEPOINT_MODEL_PRICE")
    outcome = judged()
    assert (outcome.spent_tokens, outcome.spent_usd) == (TOKENS, 0)


def test_without_a_model_nothing_is_asked_and_the_agent_computes(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAUSEPOINT_MODEL")
    outcome = judged()
    assert (outcome.status, outcome.state.by, server.requests) == ("completed", "counting", [])
    assert outcome.spent_tokens == 0


# what is remembered


def test_a_resume_does_not_pay_again(server: ModelServer, tmp_path: Path) -> None:
    @step(writes=["verdict", "by"])
    async def judge(text: str, ctx: Context) -> dict[str, Any]:
        found = await ask(ctx, "Judge the text.", {"text": text}, Verdict)
        if (tmp_path / "broken").exists():
            raise OSError("the disk is away")
        return {"verdict": found, "by": "the model"}

    (tmp_path / "broken").touch()
    store = tmp_path / "store.db"
    assert judged(Workflow("paper", state=Paper, steps=[judge, print_]), store).status == "failed"
    (tmp_path / "broken").unlink()
    outcome = resumed(store)
    assert outcome.status == "completed"
    assert (len(server.requests), outcome.spent_tokens) == (1, TOKENS)


def test_a_visit_that_began_without_a_model_ends_without_one(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @step(writes="by")
    async def twice(text: str, ctx: Context) -> str:
        found = await ask(ctx, "Judge the text.", {"text": text}, Verdict)
        if (tmp_path / "broken").exists():
            raise OSError("the disk is away")
        return "counting" if found is None else "the model"

    workflow = Workflow("paper", state=Paper, steps=[twice])
    store = tmp_path / "store.db"
    (tmp_path / "broken").touch()
    monkeypatch.delenv("PAUSEPOINT_MODEL")
    assert judged(workflow, store).status == "failed"
    monkeypatch.setenv("PAUSEPOINT_MODEL", "tiny")
    (tmp_path / "broken").unlink()

    async def run() -> Outcome[Any]:
        async with Engine(store, workflows=[workflow]) as engine:
            return await (await engine.resume("mine")).outcome()

    assert asyncio.run(run()).state.by == "counting"
    assert server.requests == []


# answers that do not fit


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        pytest.param(Says('{"mood": "calm", "poi'), "Invalid JSON", id="malformed"),
        pytest.param(Says('{"mood": "merry", "points": ["x"]}'), "mood: Input should be 'calm' or 'tense'", id="value"),
        pytest.param(Says('{"mood": "calm", "points": []}'), "points: List should have at least 1", id="too few"),
        pytest.param(Says(""), "Invalid JSON", id="nothing"),
        pytest.param(Body("<html>Bad gateway</html>"), "Invalid JSON", id="no completion"),
        pytest.param(Body('{"choices": []}'), "Field required", id="no choice"),
    ],
)
def test_an_answer_that_does_not_fit_is_shown_with_the_reason_and_asked_again(
    server: ModelServer, bad: Act, why: str
) -> None:
    server.will(bad, Says(GOOD))
    outcome = judged()
    assert (outcome.status, outcome.state.by) == ("completed", "the model")
    assert outcome.state.verdict is not None
    first, second = server.requests
    assert second["messages"][:2] == first["messages"]
    assert [message["role"] for message in second["messages"][2:]] == ["assistant", "user"]
    assert why in second["messages"][3]["content"]
    paid = 2 if isinstance(bad, Says) else 1
    assert outcome.spent_tokens == paid * TOKENS


def test_after_three_such_answers_it_is_an_error_and_a_resume_asks_anew(server: ModelServer, tmp_path: Path) -> None:
    server.will(*[Says("no JSON at all")] * 4, Says(GOOD))
    store = tmp_path / "store.db"
    outcome = judged(store=store)
    assert outcome.status == "failed"
    assert outcome.failure is not None
    assert (outcome.failure.type, outcome.failure.attempts) == ("AnswerInvalid", 1)
    assert "The model gave 3 answers that are not a valid Verdict" in outcome.failure.message
    assert (len(server.requests), outcome.spent_tokens) == (3, 3 * TOKENS)
    again = resumed(store)
    assert (again.status, len(server.requests), again.spent_tokens) == ("completed", 5, 5 * TOKENS)


# faults


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param(Status(429, {"retry-after": "0.05"}), "status 429", id="rate limit"),
        pytest.param(Status(503), "status 503", id="overloaded"),
        pytest.param(Cuts(), "Error", id="cut connection"),
    ],
)
def test_what_passes_is_tried_again_by_the_engine(
    server: ModelServer, tmp_path: Path, fault: Status | Cuts, said: str
) -> None:
    server.will(fault, Says(GOOD))
    outcome = judged(store=tmp_path / "store.db")
    assert (outcome.status, outcome.state.by, len(server.requests)) == ("completed", "the model", 2)
    assert outcome.spent_tokens == TOKENS
    (retried,) = history(tmp_path / "store.db", "step.retried")
    assert said in retried.data["error"]
    if isinstance(fault, Cuts):
        assert server.faults == 1
    if isinstance(fault, Status) and fault.headers:
        assert retried.data["delay"] == 0.05


def test_a_time_out_in_mid_answer_is_tried_again(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAUSEPOINT_MODEL_TIMEOUT", "0.5")
    server.will(Stalls(), Says(GOOD))
    outcome = judged(store=tmp_path / "store.db")
    assert (outcome.status, server.faults, outcome.spent_tokens) == ("completed", 1, TOKENS)
    (retried,) = history(tmp_path / "store.db", "step.retried")
    assert "no answer within 0.5 s (PAUSEPOINT_MODEL_TIMEOUT)" in retried.data["error"]


def test_a_service_that_stays_busy_fails_the_step_and_a_resume_goes_on(server: ModelServer, tmp_path: Path) -> None:
    server.will(*[Status(429)] * 3, Says(GOOD))
    outcome = judged(store=tmp_path / "store.db")
    assert outcome.failure is not None
    assert (outcome.failure.type, outcome.failure.attempts) == ("ModelUnavailable", 3)
    assert resumed(tmp_path / "store.db").status == "completed"


def test_a_refusal_is_an_error_of_its_own_and_is_not_tried_again(server: ModelServer) -> None:
    server.will(Refuses("I will not judge that"))
    outcome = judged()
    assert outcome.failure is not None
    assert (outcome.failure.type, outcome.failure.attempts, len(server.requests)) == ("ModelRefused", 1, 1)
    assert "tiny declines to answer: I will not judge that" in outcome.failure.message
    assert outcome.spent_tokens == TOKENS


def test_what_a_content_filter_stops_is_a_refusal(server: ModelServer) -> None:
    server.will(Says("", finish_reason="content_filter"))
    outcome = judged()
    assert outcome.failure is not None
    assert outcome.failure.type == "ModelRefused"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        pytest.param(Status(401, body="wrong key"), "status 401: wrong key. Check PAUSEPOINT_MODEL", id="key"),
        pytest.param(Status(404, body="no model tiny"), "no model tiny", id="model"),
        pytest.param(Status(429, body='{"code": "insufficient_quota"}'), "The account's quota for model", id="quota"),
    ],
)
def test_what_does_not_pass_is_not_tried_again(server: ModelServer, status: Status, said: str) -> None:
    server.will(status)
    outcome = judged()
    assert outcome.failure is not None
    assert (outcome.failure.type, outcome.failure.attempts, len(server.requests)) == ("SettingsRefused", 1, 1)
    assert said in outcome.failure.message
    assert "secret-key" not in outcome.failure.message + outcome.failure.traceback


def test_a_service_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_in_use(monkeypatch):
        pass  # it is gone, and the settings still name it
    outcome = judged()
    assert outcome.failure is not None
    assert (outcome.failure.type, outcome.failure.attempts) == ("ModelUnavailable", 3)
    assert issubclass(ModelUnavailable, ConnectionError)


# settings


def test_a_date_says_how_long_to_wait_as_a_number_does() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    waits = [model._wait(header) for header in ("7", "0.5", "-3", later, "soon", None)]
    assert waits[3] is not None
    assert 80 < waits[3] <= 90
    assert waits[:3] + waits[4:] == [7, 0.5, 0, None, None]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({}, "PAUSEPOINT_MODEL_URL is not set", id="no url"),
        pytest.param({"PAUSEPOINT_MODEL_URL": "localhost:1"}, "PAUSEPOINT_MODEL_URL is 'localhost:1'", id="no scheme"),
        pytest.param({"PAUSEPOINT_MODEL_TIMEOUT": "soon"}, "PAUSEPOINT_MODEL_TIMEOUT is 'soon'", id="time-out"),
        pytest.param({"PAUSEPOINT_MODEL_TIMEOUT": "0"}, "PAUSEPOINT_MODEL_TIMEOUT is '0'", id="no time"),
        pytest.param({"PAUSEPOINT_MODEL_PRICE": "1"}, "PAUSEPOINT_MODEL_PRICE is '1'", id="one price"),
        pytest.param({"PAUSEPOINT_MODEL_PRICE": "1/-1"}, "PAUSEPOINT_MODEL_PRICE is '1/-1'", id="negative"),
        pytest.param({"PAUSEPOINT_MODEL_PRICE": "a/b"}, "PAUSEPOINT_MODEL_PRICE is 'a/b'", id="no price"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_its_name(given: dict[str, str], said: str) -> None:
    url = {} if "URL" in said else {"PAUSEPOINT_MODEL_URL": "http://localhost:1"}
    with pytest.raises(SettingsRefused, match=said):
        settings({"PAUSEPOINT_MODEL": "tiny"} | url | given)


def test_no_model_is_no_setting_at_all() -> None:
    assert settings({}) is None
    assert settings({"PAUSEPOINT_MODEL": " ", "PAUSEPOINT_MODEL_PRICE": "nonsense"}) is None
