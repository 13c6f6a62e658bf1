"""The applications' access to a language model, over real HTTP: what it answers, costs and suffers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from pausepoint import Context, Engine, Outcome, Retry, Workflow, step
from pausepoint import Status as SessionStatus
from pausepoint.apps.model import ModelUnavailable, SettingsRefused, ask, settings
from tests.support.loop import PATIENCE
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
from tests.support.servers import serving

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
            session = await engine.session("mine").resume()
            return await session.outcome()

    return asyncio.run(run())


def history(store: Path, kind: str) -> list[Any]:
    async def read() -> list[Any]:
        async with Engine(store) as engine:
            return [event async for event in engine.session("mine").events() if event.event_type == kind]

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
    assert asked["response_format"]["json_schema"]["schema"]["required"] == ["mood", "points"]
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


def test_a_provider_of_pydantic_ai_is_asked_and_its_price_is_known(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("URL", "KEY", "PRICE"):
        monkeypatch.delenv(f"PAUSEPOINT_MODEL_{name}")
    monkeypatch.setenv("PAUSEPOINT_MODEL", "openai-chat:gpt-4o-mini")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    outcome = judged()
    assert (outcome.status, outcome.state.by, outcome.spent_tokens) == ("completed", "the model", TOKENS)
    assert outcome.spent_usd == pytest.approx(PROMPT_TOKENS * 0.15e-6 + COMPLETION_TOKENS * 0.60e-6)
    assert server.requests[0]["model"] == "gpt-4o-mini"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("nosuch:tiny", "PAUSEPOINT_MODEL is 'nosuch:tiny', which cannot be used: Unknown", id="provider"),
        pytest.param("openai-chat:tiny", "OPENAI_API_KEY", id="key"),
        pytest.param("groq:tiny", "pydantic-ai-slim[groq]", id="package"),
    ],
)
def test_a_provider_that_cannot_be_used_fails_the_step_and_says_what_is_missing(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.delenv("PAUSEPOINT_MODEL_URL")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "groq", None)
    monkeypatch.setenv("PAUSEPOINT_MODEL", name)
    outcome = judged()
    assert outcome.failure is not None
    assert (outcome.failure.type, outcome.failure.attempts, server.requests) == ("SettingsRefused", 1, [])
    assert said in outcome.failure.message


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
            return await (await engine.session("mine").resume()).outcome()

    assert asyncio.run(run()).state.by == "counting"
    assert server.requests == []


def test_old_results_of_tools_and_long_texts_are_left_out_of_a_request() -> None:
    from pydantic_ai import messages  # not above, because it takes seconds

    from pausepoint.apps.model.history import shortened

    def turn(number: int) -> list[Any]:
        call: Any = messages.ToolCallPart("read", {}, tool_call_id=f"{number}")
        result = messages.ToolReturnPart("read", "b" * 30_000, f"{number}")
        return [messages.ModelResponse([messages.TextPart("a" * 5_000), call]), messages.ModelRequest([result])]

    prompt = messages.ModelRequest([messages.UserPromptPart("c" * 200_000)])
    turns = [each for number in range(5) for each in turn(number)]
    parts: list[Any] = [part for message in shortened([prompt, *turns]) for part in message.parts]
    contents = [len(part.content) for part in parts if part.part_kind != "tool-call"]
    assert contents == [200_000, 4_000, 8, 4_000, 8, *[4_000, 30_000] * 3]
    assert shortened(turns[:2])[-1] == turns[1]


# answers that do not fit


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        pytest.param(Says('{"mood": "calm", "poi'), "Invalid JSON", id="malformed"),
        pytest.param(Says('{"mood": "merry", "points": ["x"]}'), "Input should be 'calm' or 'tense'", id="value"),
        pytest.param(Says('{"mood": "calm", "points": []}'), "List should have at least 1", id="too few"),
        pytest.param(Says(""), "Please return text", id="nothing"),
        pytest.param(Body("<html>Bad gateway</html>"), "Invalid JSON", id="no completion"),
        pytest.param(Body('{"choices": []}'), "Invalid JSON", id="no choice"),
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
    if bad != Says(""):
        assert second["messages"][2]["role"] == "assistant"
    assert why in second["messages"][-1]["content"]
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param(Status(429, {"retry-after": "1"}), "status 429", id="rate limit"),
        pytest.param(Status(503), "status 503", id="overloaded"),
        pytest.param(Cuts(), "Error", id="cut connection"),
        pytest.param(Stalls(), "no answer within 0.5 s (PAUSEPOINT_MODEL_TIMEOUT)", id="silence"),
    ],
)
def test_what_passes_is_tried_again_until_it_has_passed(
    server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Act, said: str
) -> None:
    if isinstance(fault, Stalls):
        monkeypatch.setenv("PAUSEPOINT_MODEL_TIMEOUT", "0.5")
    takes_a_second = isinstance(fault, Stalls) or (isinstance(fault, Status) and fault.headers)
    server.will(*[fault] * (1 if takes_a_second else 5), Says(GOOD))
    outcome = judged(store=tmp_path / "store.db")
    assert (outcome.status, outcome.state.by, outcome.spent_tokens) == ("completed", "the model", TOKENS)
    retried = history(tmp_path / "store.db", "operation.retried")
    assert len(retried) == len(server.requests) - 1
    assert all(said in each.data["error"] for each in retried)
    assert f"The model tiny at {server.url} cannot be reached" in retried[0].summary
    if isinstance(fault, Status) and fault.headers:
        assert retried[0].data["delay"] == 1


def test_an_outage_parks_the_session_which_resumes_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service goes away and returns at the same address. Nobody resumes the session."""
    with model_in_use(monkeypatch) as server:
        port = server.server_address[1]
    monkeypatch.setattr("pausepoint.runtime.attempts.HOLD", 0)  # as for a wait of more than a minute

    async def run() -> Outcome[Paper]:
        async with Engine(tmp_path / "store.db") as engine:
            session = await engine.start(PAPER, text="a quiet day", session_id="mine")
            async for info in engine.session("mine").watch():
                if info.status is SessionStatus.SLEEPING:
                    break
            for retrying in await engine.session("mine").retries():
                assert f"The model tiny at {server.url} cannot be reached: " in retrying.error
            with serving(ModelServer(port)):
                return await asyncio.wait_for(session.outcome(), PATIENCE)

    outcome = asyncio.run(run())
    assert (outcome.status, outcome.state.by, outcome.spent_tokens) == ("completed", "the model", TOKENS)


def test_a_caller_may_give_up_on_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    @step(writes="by")
    async def hasty(text: str, ctx: Context) -> str:
        try:
            await ask(ctx, "Judge the text.", {"text": text}, Verdict, retry=SOON)
        except ModelUnavailable as error:
            return str(error)
        raise AssertionError

    with model_in_use(monkeypatch):
        pass  # it is gone, and the settings still name it
    outcome = judged(Workflow("paper", state=Paper, steps=[hasty]))
    assert "cannot be reached: " in outcome.state.by


@pytest.mark.parametrize("lacks", [{"json_schema"}, {"json_schema", "json_object"}])
def test_a_service_without_schemas_is_asked_for_a_json_object_from_then_on(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, lacks: set[str]
) -> None:
    server.lacks = lacks
    server.will(Says(GOOD), Says(GOOD))
    assert [judged().state.by for _ in range(2)] == ["the model"] * 2
    kinds = [asked.get("response_format", {}).get("type") for asked in server.requests]
    assert kinds == ["json_schema", *(["json_object"] * 2 if len(lacks) == 1 else ["json_object", None, None])]
    assert '"mood"' in server.requests[-1]["messages"][0]["content"], "the instructions have the schema"


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
        pytest.param(Status(307, {"location": "http://127.0.0.1:1/"}), "does not accept the request", id="redirect"),
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


# settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({}, "PAUSEPOINT_MODEL_URL is not set", id="no url"),
        pytest.param({"PAUSEPOINT_MODEL": "openai:"}, "names no provider", id="no name"),
        pytest.param({"PAUSEPOINT_MODEL_URL": "localhost:1"}, "PAUSEPOINT_MODEL_URL is 'localhost:1'", id="no scheme"),
        pytest.param({"PAUSEPOINT_MODEL_TIMEOUT": "soon"}, "PAUSEPOINT_MODEL_TIMEOUT is 'soon'", id="time-out"),
        pytest.param({"PAUSEPOINT_MODEL_TIMEOUT": "0"}, "PAUSEPOINT_MODEL_TIMEOUT is '0'", id="no time"),
        pytest.param({"PAUSEPOINT_MODEL_PRICE": "1"}, "PAUSEPOINT_MODEL_PRICE is '1'", id="one price"),
        pytest.param({"PAUSEPOINT_MODEL_PRICE": "1/-1"}, "PAUSEPOINT_MODEL_PRICE is '1/-1'", id="negative"),
        pytest.param({"PAUSEPOINT_MODEL_PRICE": "a/b"}, "PAUSEPOINT_MODEL_PRICE is 'a/b'", id="no price"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_its_name(given: dict[str, str], said: str) -> None:
    url = {} if "URL" in said or "provider" in said else {"PAUSEPOINT_MODEL_URL": "http://localhost:1"}
    with pytest.raises(SettingsRefused, match=said):
        settings({"PAUSEPOINT_MODEL": "tiny"} | url | given)


def test_no_model_is_no_setting_at_all() -> None:
    assert settings({}) is None
    assert settings({"PAUSEPOINT_MODEL": " ", "PAUSEPOINT_MODEL_PRICE": "nonsense"}) is None
