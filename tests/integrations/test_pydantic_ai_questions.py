"""Questions of agents of pydantic-ai: approvals, and the results of deferred calls."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import Agent, ApprovalRequired, RunContext, ToolDefinition, models
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import ExternalToolset

from pausepoint import BlockingContext, Context, current, testing, workflow
from pausepoint.integrations.pydantic_ai import PausepointDurability
from tests.integrations.scripted_agent import Calls, Script, asked, texts
from tests.support.loop import on_loop


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "ALLOW_MODEL_REQUESTS", False)


def look(at: int) -> str:
    return f"seen {at}"


@on_loop
async def test_approvals_and_deferred_calls_are_questions_with_the_run_and_the_call_as_key() -> None:
    turns: list[Calls] = [[("pay", {"cents": 5}), ("pay", {"cents": 500}), ("drop", {}), ("ask_bank", {"iban": "X"})]]
    script = Script(turns)
    schema = {"type": "object", "properties": {"iban": {"type": "string"}}}
    bank = ExternalToolset[None]([ToolDefinition(name="ask_bank", parameters_json_schema=schema)], id="bank")
    agent = script.agent(toolsets=[bank])

    @agent.tool
    def pay(ctx: RunContext[None], cents: int) -> str:
        script.done.append(f"pay {cents} {ctx.tool_call_approved}")
        if cents > 100 and not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"limit": 100})
        return f"paid {cents}"

    @agent.tool_plain(requires_approval=True)
    def drop() -> str:
        script.done.append("drop")
        return "dropped"

    @workflow
    async def bill(ctx: Context) -> str:
        return (await agent.run("pay")).output

    async with testing.engine() as engine:
        session = await engine.start(bill)
        open_ = await asked(session)
        assert {key: question.next_question for key, question in open_.items()} == {
            "biller.1/pay-01": "Run pay(cents=500)?",
            "biller.1/drop-02": "Run drop()?",
            "biller.1/ask_bank-03": 'What is the result of ask_bank(iban="X")?',
        }
        given = {"tool": "pay", "arguments": {"cents": 500}, "metadata": {"limit": 100}}
        assert open_["biller.1/pay-01"].payload == given
        answers = {"pay-01": True, "drop-02": {"approved": False, "reason": "keep it"}, "ask_bank-03": {"name": "Ann"}}
        for key, answer in answers.items():
            await session.answer(answer, question=open_[f"biller.1/{key}"].id)
        assert (await session.outcome()).result == "paid 5, paid 500, keep it, {'name': 'Ann'}"
    first, *paid, again, last = script.done
    assert (first, again, last) == ("model 0", "pay 500 True", "model 1")
    assert sorted(paid) == ["pay 5 False", "pay 500 False"]  # two threads


@dataclass
class Repeating(Script):
    """A model whose calls all have the same id."""

    def reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        response = super().reply(messages, info)
        for part in response.parts:
            if isinstance(part, ToolCallPart):
                part.tool_call_id = "call"
        return response


@on_loop
async def test_a_model_that_uses_an_id_again_gets_no_earlier_answer() -> None:
    script = Repeating([[("pay", {})], [("pay", {})]])
    agent = script.agent()

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        script.done.append("pay")
        return f"payment {script.done.count('pay')}"

    @workflow
    async def bill(ctx: Context) -> str:
        return (await agent.run("pay twice")).output

    async with testing.engine() as engine:
        session = await engine.start(bill)
        assert list(await asked(session)) == ["biller.1/call"]
        await session.answer(True)
        assert list(await asked(session)) == ["biller.1/call#2"]
        assert script.done == ["model 0", "pay", "model 1"]
        await session.answer(False)
        assert (await session.outcome()).result == "payment 1, The tool call was denied."


@on_loop
async def test_an_answer_is_not_given_to_a_parallel_run_whose_call_has_the_same_id() -> None:
    paid = list[str]()

    async with testing.engine() as engine:

        async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            [prompt] = texts(messages)
            if results := texts(messages, "tool-return"):
                return ModelResponse([TextPart(results[0])])
            while prompt == "ann" and not await engine.questions():  # Bob's call asks first, and second from then on
                await asyncio.sleep(0.01)
            return ModelResponse([ToolCallPart("pay", {"to": prompt}, tool_call_id="call")])

        agent = Agent(FunctionModel(reply), name="biller", capabilities=[PausepointDurability()])

        @agent.tool_plain(requires_approval=True)
        def pay(to: str) -> str:
            paid.append(to)
            return f"paid {to}"

        @workflow
        async def bill(ctx: Context) -> list[str]:
            return [run.output for run in await asyncio.gather(agent.run("ann"), agent.run("bob"))]

        session = await engine.start(bill)
        open_ = await asked(session)
        assert list(open_) == ["biller.2/call", "biller.1/call"]
        await session.answer(True, question=open_["biller.2/call"].id)
        await session.answer({"approved": False, "reason": "not Ann"}, question=open_["biller.1/call"].id)
        assert (await session.outcome()).result == ["not Ann", "paid bob"]
    assert paid == ["bob"]


@on_loop
async def test_a_blocking_step_runs_an_agent_and_its_questions_in_threads() -> None:
    script = Script([[("look", {"at": 1}), ("pay", {}), ("pay", {})]])
    agent = script.agent()

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        script.done.append(type(current()).__name__)
        return "paid"

    agent.tool_plain(look)

    @workflow
    def bill(ctx: BlockingContext) -> str:
        return asyncio.run(agent.run("pay")).output

    async with testing.engine() as engine:
        session = await engine.start(bill)
        while open_ := await asked(session):
            for question in open_.values():
                await session.answer(True, question=question.id)
        assert (await session.outcome()).result == "seen 1, paid, paid"
    assert script.done == ["model 0", "BlockingContext", "BlockingContext", "model 1"]


@on_loop
async def test_without_questions_the_step_gets_the_requests() -> None:
    script = Script([[("look", {"at": 1})]])
    agent = script.agent(durability={"questions": False}, output_type=[str, DeferredToolRequests])
    agent.tool_plain(requires_approval=True)(look)

    @workflow
    async def bill(ctx: Context) -> str:
        first: Any = await agent.run("look")
        answers = first.output.build_results(approve_all=True)
        return str((await agent.run(message_history=first.all_messages(), deferred_tool_results=answers)).output)

    assert testing.run(bill, replay=True).result == "seen 1"
    assert script.done == ["model 0", "model 1"]
