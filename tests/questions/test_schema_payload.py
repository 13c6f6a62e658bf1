"""Questions with structured context (``payload=``), and with a JSON schema instead of a type (``schema=``)."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, BeforeValidator

from pausepoint import BlockingContext, Engine, Status, Workflow, step
from pausepoint.engine import documents
from pausepoint.errors import AnswerRefused
from pausepoint.integrations import to_ag_ui, to_langchain, to_mcp
from pausepoint.model.json_schema import objection
from tests.questions.kit import Address, Talk, ended, held, one_step, waits
from tests.support.loop import on_loop

ORDER = {
    "type": "object",
    "properties": {
        "item": {"type": "string", "minLength": 1},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "to": {"$ref": "#/$defs/place"},
    },
    "required": ["item"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "required": ["street"]}},
}


class Call(BaseModel):
    tool: str
    args: dict[str, Any] = {}


# payload


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"tool": "refund", "args": {"amount": 7}}, {"tool": "refund", "args": {"amount": 7}}),
        (Call(tool="refund", args={"ids": [1, 2]}), {"tool": "refund", "args": {"ids": [1, 2]}}),
        (["a", 1, None], ["a", 1, None]),
        ("text", "text"),
        (0, 0),
    ],
)
@on_loop
async def test_a_payload_is_shown_wherever_the_question_is(given: Any, shown: Any) -> None:
    async with held(one := one_step(lambda ctx: ctx.ask("Well?", payload=given))) as (engine, _):
        session = await engine.start(one)
        question = await waits(session)
        assert question.payload == shown
        assert documents.QuestionDocument.of(question, answer="").payload == shown
        assert to_ag_ui(question)["metadata"]["pausepoint"]["payload"] == shown
        [action] = to_langchain(question)["action_requests"]
        assert action["args"] == (shown if isinstance(shown, dict) else {"payload": shown})
        text, _, about = to_mcp(question)["message"].partition("\n\n")
        assert (text, json.loads(about)) == ("Well?", shown)
        await session.answer("yes")
        assert await ended(session) == "yes"


@on_loop
async def test_a_question_without_a_payload_shows_none() -> None:
    async with held(one := one_step(lambda ctx: ctx.confirm("Pay?"))) as (engine, _):
        question = await waits(await engine.start(one))
        assert question.payload is None
        assert "payload" not in to_ag_ui(question)["metadata"]["pausepoint"]
        assert (to_langchain(question)["action_requests"][0]["args"], to_mcp(question)["message"]) == ({}, "Pay?")


@on_loop
async def test_the_payload_of_a_confirmation_stays_over_the_rounds_and_is_part_of_what_was_seen() -> None:
    async with held(one := one_step(lambda ctx: ctx.confirm("Pay?", payload={"amount": 7}))) as (engine, _):
        session = await engine.start(one)
        first = await waits(session)
        await session.send("perhaps")
        second = await waits(session)
        assert (second.payload, second.current_round) == ({"amount": 7}, 2)
        assert first.digest != second.digest
        await session.answer(True, seen=second.digest)
        assert await ended(session) is True


@on_loop
async def test_a_payload_that_cannot_be_stored_fails_the_step() -> None:
    async with held(one := one_step(lambda ctx: ctx.ask("Well?", payload=object()))) as (engine, _):
        outcome = await (await engine.start(one)).outcome()
        assert outcome.failure is not None
        assert "payload" in outcome.failure.message


# schema


@on_loop
async def test_an_answer_that_fits_the_schema_is_returned_as_plain_json() -> None:
    async with held(one := one_step(lambda ctx: ctx.ask("What?", schema=ORDER))) as (engine, _):
        session = await engine.start(one)
        question = await waits(session)
        assert question.answer_schema == ORDER
        await session.answer({"item": "tea", "count": 2, "to": {"street": "Quay"}})
        assert await ended(session) == {"item": "tea", "count": 2, "to": {"street": "Quay"}}


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"item": "tea", "count": 0}, "count: 0 is less than the minimum of 1"),
        ({"item": "", "count": 10}, "count: 10 is greater than the maximum of 9; item: '' should be non-empty"),
        ({"item": "tea", "to": {}}, "to: 'street' is a required property"),
        ({"item": "tea", "size": 1}, "Additional properties are not allowed ('size' was unexpected)"),
        ("tea, please", "'tea, please' is not of type 'object'"),
    ],
)
@on_loop
async def test_an_answer_that_does_not_fit_is_asked_for_again_with_the_complaint(answer: Any, complaint: str) -> None:
    async with held(one := one_step(lambda ctx: ctx.ask("What?", schema=ORDER))) as (engine, _):
        session = await engine.start(one)
        await waits(session)
        await session.send(answer)
        question = await waits(session)
        assert (question.complaint, question.current_round) == (complaint, 2)
        await session.send('{"item": "tea"}')  # people type JSON
        assert await ended(session) == {"item": "tea"}


@on_loop
async def test_an_answer_of_another_type_is_refused_at_once() -> None:
    async with held(one := one_step(lambda ctx: ctx.ask("What?", schema=ORDER))) as (engine, _):
        session = await engine.start(one)
        question = await waits(session)
        with pytest.raises(AnswerRefused, match="must be of type object"):
            await engine.answer(question.id, 7)
        with pytest.raises(AnswerRefused, match="'item' is missing"):
            await engine.answer(question.id, {})


@pytest.mark.parametrize(
    ("schema", "said", "value"),
    [
        ({"type": "integer"}, "7", 7),
        ({"type": "integer"}, 7, 7),
        ({"type": "string"}, "7", "7"),
        ({"type": "boolean"}, "true", True),
        ({"enum": ["formal", "playful"]}, " Formal", "formal"),
        ({"type": "array", "items": {"type": "number"}}, "[1, 2.5]", [1, 2.5]),
        ({}, "anything", "anything"),
    ],
)
@on_loop
async def test_text_is_read_as_the_schema_says(schema: dict[str, Any], said: Any, value: Any) -> None:
    async with held(one := one_step(lambda ctx: ctx.ask("What?", schema=schema))) as (engine, _):
        session = await engine.start(one)
        await waits(session)
        await session.answer(said)
        assert await ended(session) == value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": {"type": "intger"}}, "schema= is not a valid JSON schema"),
        ({"schema": {"type": "integer"}, "default": "x", "on_expiry": "default"}, "default of the question 'What?'"),
        ({"schema": {"type": "integer"}, "choices": [1]}, "has several types of answers"),
    ],
)
@on_loop
async def test_what_cannot_work_is_refused_when_the_question_is_asked(options: dict[str, Any], message: str) -> None:
    async with held(one := one_step(lambda ctx: ctx.ask("What?", **options))) as (engine, _):
        outcome = await (await engine.start(one)).outcome()
        assert outcome.failure is not None
        assert message in outcome.failure.message


@on_loop
async def test_a_schema_loads_nothing_from_elsewhere() -> None:
    schema = {"$ref": "http://127.0.0.1:9/schema.json"}
    async with held(one := one_step(lambda ctx: ctx.ask("What?", schema=schema))) as (engine, _):
        session = await engine.start(one)
        await waits(session)
        await session.answer("yes")
        outcome = await session.outcome()
        assert (outcome.status, outcome.failure is not None) == (Status.FAILED, True)
        assert outcome.failure is not None
        assert "which is not part of it. Add it to $defs." in outcome.failure.message


@on_loop
async def test_without_the_extra_the_step_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema.validators", None)
    async with held(one := one_step(lambda ctx: ctx.ask("What?", schema=ORDER))) as (engine, _):
        outcome = await (await engine.start(one)).outcome()
        assert outcome.failure is not None
        assert "Install pausepoint[schema]" in outcome.failure.message


@on_loop
async def test_a_def_step_can_use_both() -> None:
    @step(writes="said")
    def only(ctx: BlockingContext) -> Any:
        return ctx.ask("What?", schema=Address.model_json_schema(), payload={"for": "ann"})

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("one", state=Talk, steps=[only]))
        assert (await waits(session)).payload == {"for": "ann"}
        await session.answer({"street": "Quay", "number": 7})
        assert await ended(session) == {"street": "Quay", "number": 7}


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        ({"schema": {"type": "integer", "minimum": 3}}, ["x", "2", 2, "2.5", "null", [3]], "3"),
        (
            {"schema": ORDER},
            ["tea", '{"item": ""}', {"item": "tea", "count": 10}, {"item": "tea", "to": {}}],
            {"item": "a"},
        ),
        ({"type": int}, ["x", "", "1.5", 1.5, "nan", '"x"', "[1]"], " 1_000 "),
        ({"type": float}, ["x", "{}", "one"], "1e3"),
        ({"type": bool}, ["perhaps", 2, "2", "oui"], "Yes"),
    ],
)
@on_loop
async def test_an_answer_is_judged_by_all_of_its_schema_before_the_step_has_it(
    kind: dict[str, Any], wrong: list[Any], right: Any
) -> None:
    types = [kind["type"]] if "type" in kind else []
    options = {name: value for name, value in kind.items() if name != "type"}
    async with held(one := one_step(lambda ctx: ctx.ask("How many?", *types, rounds=1, **options))) as (engine, _):
        session = await engine.start(one)
        question = await waits(session)
        for value in wrong:
            with pytest.raises(AnswerRefused) as refused:
                await engine.answer(question.id, value)
            assert refused.value.reason
            assert "Correct the answer, then send it again." in str(refused.value)
        assert await waits(session) == question, "no round is spent"
        await session.answer(right)
        await ended(session)


@on_loop
async def test_an_answer_that_a_validator_of_the_step_reads_is_left_to_the_step() -> None:
    roman = Annotated[int, BeforeValidator(lambda given: {"XIV": 14}.get(given, given))]
    async with held(one := one_step(lambda ctx: ctx.ask("How many?", roman))) as (engine, _):
        session = await engine.start(one)
        await waits(session)
        await session.answer("XIV")
        assert await ended(session) == 14


@on_loop
async def test_without_jsonschema_the_step_judges_an_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with held(one := one_step(lambda ctx: ctx.ask("What?", schema=ORDER))) as (engine, _):
        session = await engine.start(one)
        question = await waits(session)
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "jsonschema.exceptions", None)
            assert objection(question.answer_schema, {"item": ""}, "schema") == ""
        assert "cannot check the answer, so only the step does" in caplog.text
        assert objection(question.answer_schema, {"item": ""}, "schema")
