"""Agents of pydantic-ai in steps: each model request and tool call is an operation, and every effect is counted."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    CustomEvent,
    FunctionToolset,
    ModelRetry,
    RunContext,
    ToolDefinition,
    models,
)
from pydantic_ai.capabilities import AbstractCapability, LocalWorkspace, durable_operation
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from benchmarks.pydantic_agents import measure
from pausepoint import (
    Context,
    DefinitionError,
    Engine,
    Parked,
    Workflow,
    current,
    testing,
    workflow,
)
from pausepoint.integrations import pydantic_ai as adapter
from pausepoint.model import StreamChunk
from tests.integrations.scripted_agent import Calls, Script, asked, operations
from tests.support.loop import on_loop


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "ALLOW_MODEL_REQUESTS", False)


# parallel calls


@dataclass
class Queue(AbstractCapability[None]):
    """Lets the tool calls of the first run start in reverse order, as a limit on parallel calls may."""

    waiting: int = 3

    async def before_tool_execute(
        self, ctx: RunContext[None], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> dict[str, Any]:
        self.waiting -= 1
        for _ in range(40 * (3 - args["at"]) if self.waiting >= 0 else 0):
            await asyncio.sleep(0)
        return args


def parallel(script: Script) -> Any:
    """Return a workflow whose tool calls start in another order when its step runs again."""
    agent = script.agent(capabilities=[Queue()])

    @agent.tool_plain
    async def look(at: int) -> str:
        script.done.append(f"look {at}")
        return f"seen {at}"

    @workflow
    async def bill(prompt: str, ctx: Context) -> str:
        return (await agent.run(prompt)).output

    return bill


LOOKS: list[Calls] = [[("look", {"at": 0}), ("look", {"at": 1}), ("look", {"at": 2})]]
SEEN = "seen 0, seen 1, seen 2"


@pytest.mark.long
def test_wherever_it_crashes_an_agent_ends_as_if_it_had_not() -> None:
    tried = testing.every_crash_point(parallel(Script(LOOKS)), prompt="look around")
    assert len(tried) == 14  # before and after the writes of two requests, three calls, the start and the end


def test_the_results_of_parallel_calls_are_not_swapped_when_the_step_runs_again() -> None:
    script = Script(LOOKS)
    assert testing.run(parallel(script), prompt="look around", replay=True).result == SEEN
    assert script.done == ["model 0", "look 2", "look 0", "look 1", "model 1"]  # in another order after the first run


def test_calls_that_are_known_by_their_order_are_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: without the id of the tool call in its key, a call gets the result of another."""
    monkeypatch.setattr(adapter, "_call", lambda ctx, params: f"{ctx.run_step}/")
    script = Script(LOOKS)
    assert testing.run(parallel(script), prompt="look around", replay=True).result == "seen 2, seen 1, seen 2"


# names


@on_loop
async def test_the_names_and_keys_of_operations_do_not_change() -> None:
    """Stored sessions contain them. A session that is paused finds its results by them after an upgrade."""
    script = Script([[("look", {"at": 1}), ("find", {"at": 2})], [("look", {"at": 3})]])
    found = FunctionToolset[None](id="found")
    found.add_function(lambda at: f"found {at}", name="find")

    async def handle(ctx: RunContext[None], events: AsyncIterable[Any]) -> None:
        async for _ in events:
            pass

    async def check(ctx: RunContext[None], at: int) -> None: ...

    others = {"models": {"lab/fast": FunctionModel(script.reply)}}
    plain = script.agent(toolsets=[DynamicToolset(lambda ctx: found, id="more")], durability=others)
    streaming = script.agent("shown", durability={"event_stream_handler": handle})
    for agent in (plain, streaming):
        agent.tool_plain(args_validator=check)(look)

    @workflow
    async def bill(ctx: Context) -> None:
        await plain.run("look", timeout=1000)
        script.turns[:] = [[("look", {"at": 4})]]
        await streaming.run("look", run_id="mine")
        script.turns.clear()
        await plain.run("look", model="lab/fast")

    async with testing.engine() as engine:
        session = await engine.start(bill)
        assert (await session.outcome()).status == "completed"
        names = await operations(session)
    expected = [
        '/biller__run_start_time["1"]',
        '/biller__dynamic_toolset__more.get_tools["1/1/"]',
        '/biller__model.request["1/1/"]',
        '/biller__function_toolset__<agent>.validate_args["1/1/look-00"]',
        '/biller__function_toolset__<agent>.call_tool:look["1/1/look-00"]',
        '/biller__dynamic_toolset__more.call_tool:find["1/1/find-01"]',
        '/biller__dynamic_toolset__more.get_tools["1/2/"]',
        '/biller__model.request["1/2/"]',
        '/biller__function_toolset__<agent>.validate_args["1/2/look-10"]',
        '/biller__function_toolset__<agent>.call_tool:look["1/2/look-10"]',
        '/biller__dynamic_toolset__more.get_tools["1/3/"]',
        '/biller__model.request["1/3/"]',
        '/shown__model.request["id:mine/1/"]',
        '/shown__function_toolset__<agent>.validate_args["id:mine/1/look-00"]',
        '/shown__event_stream_handler["id:mine/1/function_tool_call/look-00"]',
        '/shown__function_toolset__<agent>.call_tool:look["id:mine/1/look-00"]',
        '/shown__event_stream_handler["id:mine/1/function_tool_result/look-00"]',
        '/shown__model.request["id:mine/2/"]',
        '/biller__dynamic_toolset__more.get_tools["2/1/"]',
        '/biller__model.request["2/1/"]',
    ]
    assert sorted(names) == sorted(expected)  # two tools run at the same time


def look(at: int) -> str:
    return f"seen {at}"


@on_loop
async def test_a_release_with_another_model_and_a_handler_of_events_repeats_no_request() -> None:
    script = Script([[("look", {"at": 1})]])

    async def handle(ctx: RunContext[None], events: AsyncIterable[Any]) -> None:
        async for _ in events:
            pass

    agents = [script.agent(), script.agent(durability={"event_stream_handler": handle, "models": {"new": TestModel()}})]
    for agent in agents:
        agent.tool_plain(look)

    @workflow
    async def bill(ctx: Context) -> str:
        first = await agents[0].run("look", model=None if len(agents) == 2 else "new")
        return first.output + await ctx.ask("Done?")

    async with testing.engine() as engine:
        session = await engine.start(bill)
        assert await asked(session)
        del agents[0]
        await session.answer("!")
        assert (await session.outcome()).result == "seen 1!"
    assert script.done == ["model 0", "model 1"]


@dataclass
class Hook(AbstractCapability[None]):
    """Runs operations of its own before the run starts, and reads from the workspace before each request."""

    id: str = "hook"
    done: list[str] = field(default_factory=list)
    got: list[Any] = field(default_factory=list)

    @durable_operation(name="fetch")
    async def fetch(self, ctx: RunContext[None], what: str) -> str:
        self.done.append(f"fetch {what}")
        return f"value of {what}"

    async def wrap_run(self, ctx: RunContext[None], *, handler: Any) -> Any:
        self.got.append([await self.fetch(ctx, "a"), await self.fetch(ctx, "b")])
        return await handler()

    async def before_model_request(self, ctx: RunContext[None], request_context: Any) -> Any:
        self.got.append([await ctx.workspace.read_bytes(name) for name in "ab"])
        return request_context


@on_loop
async def test_operations_of_a_capability_and_a_workspace_are_not_mixed_up(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    script, hook = Script([]), Hook()
    agent = script.agent(capabilities=[LocalWorkspace(tmp_path), hook])

    @workflow
    async def bill(ctx: Context) -> str:
        return (await agent.run("go")).output

    async with testing.engine(replay=True) as engine:
        session = await engine.start(bill)
        assert (await session.outcome()).result == "go"
        names = await operations(session)
    assert [each for each in hook.got if each not in (["value of a", "value of b"], [b"a", b"b"])] == []
    assert (hook.done, script.done) == (["fetch a", "fetch b"], ["model 0"])
    assert names == [
        '/biller__capability__workspace.call["1/0//ensure"]',
        '/biller__capability__hook.fetch["1/0/"]',
        '/biller__capability__hook.fetch["1/0/#2"]',
        '/biller__capability__workspace.call["1/0//read_bytes a"]',
        '/biller__capability__workspace.call["1/0//read_bytes b"]',
        '/biller__model.request["1/1/"]',
    ]


# toolsets


def test_outside_of_a_step_the_agent_is_an_ordinary_one() -> None:
    script = Script([[("look", {"at": 1})]])
    agent = script.agent(output_type=[str, DeferredToolRequests])
    agent.tool_plain(requires_approval=True)(look)
    assert isinstance(asyncio.run(agent.run("look")).output, DeferredToolRequests)


def test_a_toolset_that_is_passed_to_a_run_is_refused() -> None:
    """Its calls would be no operations, so they would run again with the step."""
    agent = Script([]).agent()

    @workflow
    async def bill(ctx: Context) -> str:
        with pytest.raises(UserError, match="toolset"):
            await agent.run("look", toolsets=[FunctionToolset([look])])
        with pytest.raises(DefinitionError, match="toolset Own would be no operations"):
            await agent.run("look", toolsets=[Own(Script([]))])
        return "refused"

    assert testing.run(bill).result == "refused"


@dataclass
class Own(AbstractToolset[None]):
    """A toolset that calls its tools itself."""

    script: Script

    @property
    def id(self) -> str:
        return "own"

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        definition = ToolDefinition(name="charge", parameters_json_schema={"type": "object", "properties": {}})
        checks = SchemaValidator(core_schema.any_schema())
        return {"charge": ToolsetTool(toolset=self, tool_def=definition, max_retries=1, args_validator=checks)}

    async def call_tool(self, name: str, tool_args: Any, ctx: RunContext[None], tool: ToolsetTool[None]) -> str:
        self.script.done.append(name)
        return "charged"


def test_calls_of_an_own_toolset_are_operations_if_it_is_in_a_dynamic_one() -> None:
    script = Script([[("charge", {})]])
    bare, wrapped = script.agent(toolsets=[Own(script)]), DynamicToolset[None](lambda ctx: Own(script), id="own")
    agent = script.agent("charger", toolsets=[wrapped])

    @workflow
    async def bill(ctx: Context) -> str:
        with pytest.raises(DefinitionError, match=r"Pass DynamicToolset\(lambda ctx: Own"):
            await bare.run("charge")
        return (await agent.run("charge")).output

    assert testing.run(bill, replay=True).result == "charged"
    assert script.done == ["model 0", "charge", "model 1"]


# options


def test_a_tool_has_its_own_options() -> None:
    script = Script([[("flaky", {}), ("plain", {}), ("picky", {})]])
    agent = script.agent(durability={"tool": {"timeout": 60}})

    @agent.tool_plain(metadata={"pausepoint": {"retry": 3}})
    async def flaky() -> str:
        script.done.append("flaky")
        if script.done.count("flaky") < 3:
            raise OSError("busy")
        return "third"

    @agent.tool_plain(metadata={"pausepoint": False})
    def plain() -> str:
        script.done.append("plain")
        return "no operation"

    @agent.tool_plain
    def picky() -> str:
        script.done.append("picky")
        raise ModelRetry("again, please")

    @workflow
    async def bill(ctx: Context) -> str:
        return (await agent.run("go")).output

    assert testing.run(bill, replay=True).result == "third, no operation, again, please"
    assert [script.done.count(name) for name in ("model 0", "flaky", "picky", "model 1")] == [1, 3, 1, 1]
    assert script.done.count("plain") > 1  # it ran again with the step


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(DefinitionError, match="model must be a dict with the keys retry and timeout, not"):
        Script([]).agent(durability={"model": {"retries": 3}})
    script = Script([[("look", {"at": 1})]])
    agent = script.agent()
    agent.tool_plain(metadata={"pausepoint": True})(look)

    @workflow
    async def bill(ctx: Context) -> str:
        return (await agent.run("go")).output

    assert "Tool 'look': metadata['pausepoint'] must be a dict" in repr(testing.run(bill))


def test_a_run_spends_its_tokens_and_its_price_once(caplog: pytest.LogCaptureFixture) -> None:
    script = Script([[("look", {"at": 1})]])
    prices = [Decimal("0.25")]
    agent = script.agent(durability={"price": lambda response: prices.pop()})
    agent.tool_plain(look)

    @workflow
    async def bill(ctx: Context) -> tuple[int, int]:
        usage = (await agent.run("look")).usage
        return usage.input_tokens + usage.output_tokens, usage.requests

    outcome = testing.run(bill, replay=True)
    assert outcome.result == (outcome.spent_tokens, 2)
    assert outcome.spent_usd == 0.25
    assert script.done == ["model 0", "model 1"]  # a response without a price is paid, too
    assert "The price of a response of function:reply:stream is unknown" in caplog.text


@on_loop
async def test_the_handler_of_events_sends_live_output_and_gets_each_event_once() -> None:
    script, seen = Script([[("look", {"at": 1}), ("look", {"at": 2})]]), list[str]()

    async def handle(ctx: RunContext[None], events: AsyncIterable[Any]) -> None:
        async for event in events:
            if event.event_kind.startswith("function_tool"):
                seen.append(f"{event.event_kind} {event.part.tool_call_id}")
            elif event.event_kind == "part_start" and isinstance(event.part, TextPart):
                current().stream(event.part.content)

    agent = script.agent(durability={"event_stream_handler": handle})
    agent.tool_plain(look)

    @workflow
    async def bill(ctx: Context) -> str:
        return (await agent.run("look")).output

    async with testing.engine(replay=True) as engine:
        session = await engine.start(bill)
        outcome = await session.outcome()
        live = [item.data async for item in session.stream(follow=False) if isinstance(item, StreamChunk)]
    assert outcome.result == "seen 1, seen 2"
    assert live == ["seen 1, seen 2"]
    kinds = ("function_tool_call", "function_tool_result")
    assert sorted(seen) == [f"{kind} look-0{n}" for kind in kinds for n in (0, 1)]


@dataclass(kw_only=True)
class Progress(CustomEvent):
    of: str


@on_loop
async def test_an_event_of_a_tool_is_not_taken_for_that_of_another() -> None:
    script, seen = Script([[("quick", {}), ("slow", {})]]), list[str]()

    async def handle(ctx: RunContext[None], events: AsyncIterable[Any]) -> None:
        async for event in events:
            if isinstance(event, Progress):
                seen.append(event.of)

    agent = script.agent(durability={"event_stream_handler": handle})

    @agent.tool
    async def quick(ctx: RunContext[None]) -> str:
        await ctx.emit(Progress(of="quick"))
        return "quick"

    @agent.tool
    async def slow(ctx: RunContext[None]) -> str:
        await current().ask("Go on?")  # the process of the first event ends here
        await ctx.emit(Progress(of="slow"))
        return "slow"

    @workflow
    async def bill(ctx: Context) -> str:
        return (await agent.run("go")).output

    async with testing.engine() as engine:
        session = await engine.start(bill)
        assert await asked(session)
        await session.answer("yes")
        assert (await session.outcome()).result == "quick, slow"
    assert seen == ["quick", "slow"]


# guests


@on_loop
async def test_a_guest_session_runs_an_agent_in_its_own_program() -> None:
    class Bill(BaseModel):
        text: str = ""

    script, bills = Script([[("look", {"at": 1})]]), Workflow.guest("bills", state=Bill)
    agent = script.agent()
    agent.tool_plain(requires_approval=True)(look)

    async def handle_request(engine: Engine) -> None:
        async with engine.visit(bills, session_id="b-1", input={}) as ctx:
            ctx.output = {"text": (await agent.run("look")).output}

    async with testing.engine() as engine:
        with pytest.raises(Parked, match="Run look"):
            await handle_request(engine)
        await engine.session("b-1").answer(True)
        await handle_request(engine)
        assert await engine.session("b-1").state() == Bill(text="seen 1")
    assert script.done == ["model 0", "model 1"]


@pytest.mark.long
def test_the_extra_is_named_if_it_is_missing() -> None:
    program = "import sys; sys.modules['pydantic_ai'] = None; from pausepoint.integrations import PausepointDurability"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert re.search(r"ImportError: .*pip install 'pausepoint\[pydantic-ai\]'", done.stderr)


@on_loop
async def test_the_benchmark_runs(tmp_path: Path) -> None:
    found = await measure(tmp_path, calls=2, rounds=1)
    assert [len(times) for times in found.values()] == [1, 1, 1, 1]
