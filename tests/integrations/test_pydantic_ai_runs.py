"""Runs of agents of pydantic-ai in one step: in sequence, in parallel, in tools of each other, and in attempts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, models
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pausepoint import Context, Retry, current, testing, workflow
from pausepoint.integrations import pydantic_ai as adapter
from tests.integrations.scripted_agent import Script, asked, operations, texts
from tests.support.loop import on_loop


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "ALLOW_MODEL_REQUESTS", False)


@on_loop
async def test_each_run_has_its_own_id_which_is_the_same_when_the_step_runs_again() -> None:
    script = Script([[("look", {"at": 1})]])
    agent: Any = script.agent()
    ids: list[str] = []

    def change(ctx: RunContext[dict[str, int]], at: int) -> str:
        ctx.deps["at"] = at  # a run is known by what it was given
        return f"seen {at}"

    agent.tool(change, name="look")

    @workflow
    async def bill(ctx: Context) -> str:
        first = await agent.run("look", deps={"at": 0})
        ids.append(first.run_id)
        second = await agent.run("and now?", message_history=first.all_messages())
        assert second.run_id != first.run_id
        return str(second.output) + await ctx.ask("Done?")

    async with testing.engine() as engine:
        session = await engine.start(bill)
        assert (await session.outcome()).status == "waiting"
        await session.answer("!")
        assert (await session.outcome()).result == "seen 1!"
    assert script.done == ["model 0", "model 1", "model 2"]
    assert len(ids) > 1
    assert len(set(ids)) == 1


@dataclass
class Reader:
    name: str
    roles: frozenset[str] = frozenset("xyz")


GIVEN: dict[str, list[dict[str, Any]]] = {
    "prompts": [{"user_prompt": name} for name in "ab"],
    "messages": [{"message_history": [ModelRequest([UserPromptPart(name)])]} for name in "ab"],
    "deps": [{"user_prompt": "Who am I?", "deps": Reader(name)} for name in "ab"],
    "ids": [{"user_prompt": name, "run_id": f"run {name}"} for name in "ab"],
}


def changing(script: Script, what: str) -> Any:
    """Return a workflow that starts its two runs in the other order when its step runs again."""
    agent: Any = script.agent()
    given = list(zip("ab", GIVEN[what], strict=True))

    @workflow
    async def bill(ctx: Context) -> list[str]:
        runs = {name: asyncio.ensure_future(agent.run(**options)) for name, options in given}
        given.reverse()
        await asyncio.gather(*runs.values())
        found = {name: run.result().output for name, run in sorted(runs.items())}
        assert what == "deps" or found == {"a": "a", "b": "b"}  # each run has its own result
        return list(found)

    return bill


@pytest.mark.parametrize("what", ["prompts", "messages", "deps"])
def test_runs_in_another_order_pause_the_session_instead_of_swapping_their_results(what: str) -> None:
    outcome = testing.run(changing(Script([]), what), replay=True)
    [pause] = outcome.pauses
    assert (pause.kind, outcome.failure) == ("mismatch", None)


def test_runs_that_are_known_by_their_order_alone_swap_their_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: without the digest of the prompt, a run gets the results of the other."""
    monkeypatch.setattr(adapter, "_digest", lambda *given: "")
    outcome = testing.run(changing(Script([]), "prompts"), replay=True)
    assert outcome.failure is not None
    assert "AssertionError" in repr(outcome)


def test_runs_with_ids_of_their_own_may_start_in_any_order() -> None:
    script = Script([])
    assert testing.run(changing(script, "ids"), replay=True).result == ["a", "b"]
    assert script.done == ["model 0", "model 0"]


def test_an_id_that_is_used_again_is_another_run() -> None:
    script = Script([])
    agent = script.agent()

    @workflow
    async def bill(ctx: Context) -> list[str]:
        return [(await agent.run(prompt, run_id="mine", timeout=1000)).output for prompt in "aab"]

    assert testing.run(bill, replay=True).result == ["a", "a", "b"]
    assert script.done == ["model 0"] * 3


@on_loop
async def test_another_attempt_does_not_repeat_a_call_that_the_first_one_left_running() -> None:
    paid, starts, b_asks, again = list[str](), list[str](), asyncio.Event(), asyncio.Event()

    async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        [prompt] = texts(messages)
        if prompt == "a" and len(starts) == 1:
            await b_asks.wait()
            raise OSError("busy")
        if prompt == "a":
            again.set()
        elif len(messages) == 1:
            b_asks.set()
            await again.wait()
            return ModelResponse([ToolCallPart("pay", {}, tool_call_id="p")])
        return ModelResponse([TextPart(prompt)])

    agent = Agent(FunctionModel(reply), name="biller", capabilities=[adapter.PausepointDurability()])

    @agent.tool_plain
    async def pay() -> str:
        paid.append("paid")
        return "paid"

    async def both() -> str:
        starts.append("start")
        await asyncio.gather(agent.run("a"), agent.run("b"))
        return await current().ask("Done?")

    @workflow
    async def bill(ctx: Context) -> str:
        return await ctx.do(both, retry=Retry(attempts=2, first=0))

    async with testing.engine() as engine:
        session = await engine.start(bill)
        assert (await session.outcome()).status == "waiting"
        await session.answer("yes")
        assert (await session.outcome()).result == "yes"
    assert (len(starts), paid) == (3, ["paid"])  # two attempts, and a resume


@on_loop
async def test_runs_of_two_sessions_may_have_the_same_id() -> None:
    script, here = Script([[("meet", {})]]), asyncio.Barrier(2)
    agent = script.agent()

    @agent.tool_plain
    async def meet() -> str:
        await here.wait()  # so that both runs are in progress
        return "met"

    @workflow
    async def bill(ctx: Context) -> str:
        return (await agent.run("meet", run_id="mine")).output

    async with testing.engine() as engine:
        sessions = [await engine.start(bill, session_id=name) for name in ("a", "b")]
        assert [(await session.outcome()).result for session in sessions] == ["met", "met"]
        first, second = [await operations(session) for session in sessions]
    assert first == second
    assert first[-1] == '/biller__model.request["id:mine/2/"]'


def test_an_agent_in_a_tool_of_another_agent_is_remembered_call_by_call() -> None:
    inner = Script([[("look", {"at": 1})]])
    outer = Script([[("delegate", {}), ("delegate", {})]], inner.done)
    below, above = inner.agent("below"), outer.agent("above")

    @below.tool_plain(name="look")
    def leaf(at: int) -> str:
        inner.done.append("leaf")
        return f"seen {at}"

    @above.tool_plain
    async def delegate() -> str:
        return (await below.run("look")).output

    @workflow
    async def bill(ctx: Context) -> str:
        return (await above.run("delegate")).output

    assert testing.run(bill, replay=True).result == "seen 1, seen 1"
    assert sorted(inner.done) == ["leaf"] * 2 + ["model 0"] * 3 + ["model 1"] * 3


@on_loop
async def test_a_fork_reuses_what_a_run_has_and_asks_no_other_model_of_a_fallback() -> None:
    script, down = Script([[("pay", {})]]), list[str]()

    def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        down.append("down")
        raise ModelHTTPError(503, "first")

    model = FallbackModel(FunctionModel(fail), FunctionModel(script.reply))
    agent = Agent(model, name="biller", capabilities=[adapter.PausepointDurability()])

    @agent.tool_plain(requires_approval=True)
    def pay() -> str:
        script.done.append("pay")
        return "paid"

    @workflow
    async def bill(ctx: Context) -> str:
        return (await agent.run("pay")).output + await ctx.ask("Done?")

    async with testing.engine() as engine:
        session = await engine.start(bill)
        assert list(await asked(session)) == ["biller.1/pay-00"]
        await session.answer(True)
        assert list(await asked(session)) == [""]
        fork = await session.fork(reuse=True)
        assert list(await asked(fork)) == [""]
        await fork.answer("!")
        assert (await fork.outcome()).result == "paid!"
    assert (script.done, down) == (["model 0", "pay", "model 1"], ["down", "down"])
