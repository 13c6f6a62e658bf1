"""Scenes in which a run of the OpenAI Agents SDK could get what belongs to another run, or lose its own."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import agents.tool
import pytest
from agents import (
    Agent,
    FunctionTool,
    GuardrailFunctionOutput,
    Handoff,
    ModelSettings,
    RunContextWrapper,
    RunHooks,
    Runner,
    RunResult,
    RunState,
    SQLiteSession,
    Tool,
    ToolOutputText,
    function_tool,
    input_guardrail,
)
from agents.items import TResponseOutputItem
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool import _FailureHandlingFunctionToolInvoker
from agents.usage import _attach_raw_usage_snapshot
from openai.types.responses import Response, ResponseCompletedEvent, ResponseOutputItemDoneEvent

from pausepoint import Context, Engine, Retry, Status, Workflow, current, workflow
from pausepoint.integrations.openai_agents import PausepointSession, run
from pausepoint.testing import always_replay
from tests.integrations.openai_scenes import Place, Scripted
from tests.runtime.kit import pass_time
from tests.support.loop import PATIENCE

if TYPE_CHECKING:
    from httpx import AsyncClient

    from pausepoint.runtime.visit import Visit


def alone(folder: str, scene: str) -> None:
    """Run one of the scenes below. An error ends the process with code 1."""
    asyncio.run(SCENES[scene](Place(folder)))


def calls(place: Place, name: str, *answers: Any, **agent: Any) -> Agent[Any]:
    """Return an agent that makes one call after the other. A text is its last answer."""
    items = [answer if isinstance(answer, list) else [answer] for answer in answers]
    return Agent(name=name, model=Scripted(place, name, dict(enumerate(items))), **agent)


def call(tool: str, id: str, **arguments: Any) -> TResponseOutputItem:
    return function_call(tool, arguments, call_id=id)


def work(name: str, *agents: Agent[Any], **options: Any) -> Workflow[Any, list[str]]:
    """Return a workflow that runs agents, asks a person, and so runs again from its start."""

    @workflow(name=name)
    async def working(ctx: Context) -> list[str]:
        found = [str((await run(ctx, agent, "Go.", **options)).final_output) for agent in agents]
        await ctx.confirm("Is this right?", key="right")
        return found

    return working


async def finished(engine: Engine, flow: Workflow[Any, Any]) -> Any:
    """Run a workflow, say yes to everything, and return its result."""
    session = await engine.start(flow)
    while (outcome := await session.outcome()).questions:
        await session.answer(True, question=outcome.questions[0].id)
    return outcome.result


async def operations(engine: Engine, session_id: str) -> list[str]:
    """Return the identities of the operations of a session."""
    events = [event async for event in engine.session(session_id).events() if event.event_type == "operation.completed"]
    return [str(event.data["id"]) for event in events]


async def answers(place: Place) -> None:
    """Two agents used as tools make calls with the same id. Each needs an answer of its own, in parallel or later."""

    @function_tool(needs_approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        place.note(f"pay {cents}")
        return f"paid {cents}"

    def payer(cents: int) -> FunctionTool:
        agent = calls(place, f"payer{cents}", call("pay", "same", cents=cents), assistant_message("ok"), tools=[pay])
        return agent.as_tool(f"ask{cents}", "Pay.")

    both = [call("ask1", "c1", input="x"), call("ask1000", "c2", input="x")]
    tools: list[Tool] = [payer(1), payer(1000)]
    model = Scripted(place, "boss", {0: both, 2: [assistant_message("done")]})
    flows = {
        "parallel": work("parallel", Agent[Any](name="boss", model=model, tools=tools)),
        "later": work("later", calls(place, "boss", *both, assistant_message("done"), tools=tools)),
    }
    async with Engine(place.store, workflows=flows.values()) as engine:
        for flow in flows.values():
            session = await engine.start(flow)
            seen = []
            while (outcome := await session.outcome()).questions:
                question = outcome.questions[0]
                seen.append(question.next_question)
                await session.answer("1000" not in question.next_question, question=question.id)
            assert seen == ["Run pay(cents=1)?", "Run pay(cents=1000)?", "Is this right?"], seen
            assert outcome.result == ["done"]
    assert (place.effects["pay 1"], place.effects["pay 1000"]) == (2, 0), place.effects


async def failed_tool(place: Place) -> None:
    """An agent used as a tool fails once, and the model reads why. This is remembered: its effects are not repeated."""

    @function_tool
    async def charge() -> str:
        """Charge."""
        place.note("charge")
        return "charged"

    clerk = calls(place, "clerk", call("charge", "n1"), assistant_message("clerk done"), tools=[charge])
    assert isinstance(clerk.model, Scripted)
    clerk.model.fails = 1
    asks = [call("ask", "c1", input="x"), call("ask", "c2", input="x"), assistant_message("done")]
    boss = calls(place, "boss", *asks, tools=[clerk.as_tool("ask", "Ask.")])
    usages = []

    @workflow
    async def twice(ctx: Context) -> None:
        usages.append((await run(ctx, boss, "Go.")).context_wrapper.usage.output_tokens)
        await ctx.confirm("Is this right?")

    async with Engine(place.store, workflows=[twice]) as engine:
        await finished(engine, twice)
    assert place.effects["charge"] == 1, place.effects
    assert place.effects["clerk 0"] == 2, "one failed"
    assert usages == [25, 25], "the usage of a remembered agent tool counts as before"


class Unlocking(Agent[Any]):
    """An agent that has one more tool than it says."""

    async def get_all_tools(self, run_context: RunContextWrapper[Any]) -> list[Tool]:
        return [*await super().get_all_tools(run_context), *self.hidden]

    @property
    def hidden(self) -> list[Tool]:
        return HIDDEN


HIDDEN: list[Tool] = []


class Summing(Scripted):
    """A model that also sums up."""

    async def get_response(self, *args: Any, **named: Any) -> Any:
        if "Sum up." in str(named["input"]):
            named["input"], self.script[99] = [{"type": "function_call_output"}] * 99, [assistant_message("sum")]
        return await super().get_response(*args, **named)


class Summary(RunHooks[Any]):
    """A hook that runs the agent that it is given."""

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        await Runner.run(agent.clone(tools=[], name="summary"), "Sum up.")


class Around(AgentRunner):
    """A runner of the user, around the one that `run` has installed."""

    def __init__(self, inner: AgentRunner) -> None:
        self.inner = inner

    async def run(self, starting_agent: Any, input: Any, **options: Any) -> RunResult:
        return await self.inner.run(starting_agent, input, **options)


async def hooks(place: Place) -> None:
    """Agents that hooks run, tools that appear late, and runners of the user do not change what is remembered."""

    @function_tool
    async def charge(turn: int) -> str:
        """Charge."""
        place.note(f"charge {turn}")
        if refund not in late.tools:
            late.tools.append(refund)
        return "charged"

    @function_tool
    async def refund() -> str:
        """Refund."""
        place.note("refund")
        return "refunded"

    HIDDEN[:] = [refund]
    turns = [call("charge", "1", turn=1), call("refund", "2"), assistant_message("done")]
    script = {number: [each] for number, each in enumerate(turns)}
    late = Agent[Any](name="late", model=Summing(place, "late", script), tools=[charge])
    hidden = Unlocking(name="hidden", model=Summing(place, "hidden", script), tools=[charge])
    flow = work("flow", late, hidden, hooks=Summary())
    before = get_default_agent_runner()
    async with always_replay(Engine(place.store, workflows=[flow])) as engine:
        assert await finished(engine, flow) == ["done", "done"]
        assert (place.effects["charge 1"], place.effects["refund"]) == (2, 2), place.effects
        assert (place.effects["late 1"], place.effects["late 2"]) == (1, 1), place.effects
        set_default_agent_runner(Around(get_default_agent_runner()))
        session = await engine.start(flow)
        await session.outcome()
        names = await operations(engine, session.id)
        # Each run has one label: two of the workflow, and one for each call of a hook.
        assert sum("agent_run" in name for name in names) == 6, names
    set_default_agent_runner(before)


async def transcripts(place: Place) -> None:
    """A run that fails and is tried again leaves one whole transcript."""
    broken = [True]

    @function_tool(failure_error_function=None)
    async def fetch() -> str:
        """Fetch."""
        if broken and broken.pop():
            raise ConnectionError("the line is bad")
        return "ok"

    agent = calls(place, "chat", call("fetch", "1"), call("fetch", "2"), assistant_message("done"), tools=[fetch])
    turns = [1]

    @workflow(name="retried", retry=Retry(attempts=2, first=0))
    async def retried(ctx: Context) -> None:
        await run(ctx, agent, "Hi.", session=PausepointSession(engine, "retried"))

    @workflow(name="resumed")
    async def resumed(ctx: Context) -> None:
        await run(ctx, agent, "Hi.", session=PausepointSession(engine, "resumed"), max_turns=turns[0])

    async with Engine(place.store, workflows=[retried, resumed]) as engine:
        assert (await (await engine.start(retried)).outcome()).status is Status.COMPLETED
        session = await engine.start(resumed)
        assert "MaxTurnsExceeded" in str((await session.outcome()).failure)
        turns[0] = 10
        await session.resume()
        assert (await session.outcome()).status is Status.COMPLETED
        for name in ("retried", "resumed"):
            items: Any = await PausepointSession(engine, name).get_items()
            kinds = [item.get("role") or item["type"] for item in items]
            assert kinds == ["user", *["function_call", "function_call_output"] * 2, "assistant"], (name, kinds)
        # A killed run had written less than the run that takes its place.
        short, whole = [{"role": "user", "content": "a"}], [{"role": "user", "content": each} for each in "ab"]
        killed = PausepointSession(engine, "killed")
        for each in (short, whole, whole):
            await killed._change(False, 0, each, "token")
        assert await killed.get_items() == whole


@dataclass
class Orders:
    done: list[str] = field(default_factory=list)
    client: AsyncClient | None = None


@dataclass(frozen=True)
class Frozen:
    done: list[str] = field(default_factory=list)


async def contexts(place: Place) -> None:
    """After a replay, a context is as parallel calls have left it, without what they have removed."""
    second = asyncio.Event()

    @function_tool
    async def order(facts: RunContextWrapper[Any], name: str) -> str:
        """Order."""
        if name == "first":
            await asyncio.wait_for(second.wait(), PATIENCE)
        context = facts.context
        if isinstance(context, dict):
            context.pop("todo", None)
            context[name] = True
        else:
            context.done.append(name)
        second.set()
        return "ok"

    both = [call("order", "1", name="first"), call("order", "2", name="second")]
    agent = Agent[Any](name="a", model=Scripted(place, "a", {0: both, 2: [assistant_message("ok")]}), tools=[order])
    made: list[Callable[[], Any]] = [Orders, Frozen, lambda: {"todo": 1}]
    seen: list[Any] = []

    @workflow
    async def flow(ctx: Context) -> None:
        for number, make in enumerate(made):
            second.clear()
            context = make()
            await run(ctx, agent, "Go.", key=number, context=context)
            seen.append(context if isinstance(context, dict) else dataclasses.asdict(context))
        await ctx.confirm("Is this right?")

    async with Engine(place.store, workflows=[flow]) as engine:
        await finished(engine, flow)
    orders = ["second", "first"]
    assert seen[0] == {"done": orders, "client": None}, seen
    assert seen[1:3] == [{"done": orders}, {"second": True, "first": True}], seen
    assert seen[3:] == seen[:3], seen


async def labels(place: Place) -> None:
    """A key names one run. A second run inside an agent tool is another run."""

    class Echo(ScriptedModel):
        async def get_response(self, *args: Any, **named: Any) -> Any:
            self.extend([[assistant_message(f"echo {named['input'][-1]['content']}")]])
            return await super().get_response(*args, **named)

    echo = Agent[Any](name="echo", model=Echo())

    async def extract(result: Any) -> str:
        return f"{result.final_output}, {(await Runner.run(echo, 'two')).final_output}"

    class Repeat(Scripted):
        async def get_response(self, *args: Any, **named: Any) -> Any:
            self.script[1] = [assistant_message(str(named["input"][-1].get("output")))]
            return await super().get_response(*args, **named)

    ask = echo.as_tool("ask", "Ask.", custom_output_extractor=extract)
    boss = Agent[Any](name="boss", model=Repeat(place, "boss", {0: [call("ask", "1", input="one")]}), tools=[ask])
    single, double = work("single", boss), work("double", echo, echo, key="same")
    async with Engine(place.store, workflows=[single, double]) as engine:
        assert await finished(engine, single) == ["echo one, echo two"]
        outcome = await (await engine.start(double)).outcome()
        assert "calls run() twice with key='same'" in str(outcome.failure), outcome


async def limits(place: Place) -> None:
    """The time of a pause does not count for a tool. A call that takes too long is remembered as such."""
    started = asyncio.Event()

    async def part(number: int) -> None:
        started.set()
        place.note(f"part {number}")

    visits: list[Visit] = []

    @function_tool(timeout=PATIENCE)
    async def slow(number: int) -> str:
        """Work slowly."""
        visits.append(current()._visit)
        if number == 2:
            place.note("too long")
            asyncio.get_running_loop().call_soon(pass_time, visits[-1], 2 * PATIENCE)
            await asyncio.Event().wait()
        await current().do(part, 1, key=1)
        while (await engine.session(session.id).info()).status is Status.RUNNING:
            await asyncio.sleep(0.01)
        await current().do(part, 2, key=2)
        return "both"

    agent = calls(
        place, "a", call("slow", "1", number=1), call("slow", "2", number=2), assistant_message("ok"), tools=[slow]
    )
    flow = work("flow", agent)
    async with Engine(place.store, workflows=[flow]) as engine:
        session = await engine.start(flow)
        await asyncio.wait_for(started.wait(), PATIENCE)
        await session.pause(wait=True)
        pass_time(visits[0], 2 * PATIENCE)  # longer than the tool may take
        assert place.effects["part 2"] == 0
        await session.resume()
        [question] = (await session.outcome()).questions
        await session.answer(True, question=question.id)
        assert (await session.outcome()).result == ["ok"]
    assert place.effects == {"a 0": 1, "part 1": 1, "part 2": 1, "a 1": 1, "too long": 1, "a 2": 1}, place.effects


async def outside(place: Place) -> None:
    """Work that leaves the step, its thread or its session is not part of the run."""
    helper = calls(place, "helper", assistant_message("h"))
    jobs: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()
    background: list[asyncio.Task[None]] = []

    async def consume() -> None:
        while True:
            job = await jobs.get()
            job.set_result(str((await Runner.run(helper, "Go.")).final_output))

    def posted() -> asyncio.Future[str]:
        job = asyncio.get_running_loop().create_future()
        jobs.put_nowait(job)
        return job

    @function_tool
    async def enqueue() -> str:
        """Give work to a task that stays."""
        background.append(asyncio.create_task(consume()))
        return await posted()

    @function_tool
    def blocking() -> str:
        """Run an agent in a loop of its own."""
        return str(asyncio.run(Runner.run(helper, "Go.")).final_output)

    @workflow
    async def child(ctx: Context) -> str:
        return str((await Runner.run(helper, "Go.")).final_output)

    @function_tool
    async def spawn() -> str:
        """Start another session."""
        return (await (await engine.start(child, session_id="child")).outcome()).result

    turns = [call("enqueue", "1"), call("blocking", "2"), call("spawn", "3"), assistant_message("ok")]
    flow = work("flow", calls(place, "a", *turns, tools=[enqueue, blocking, spawn]))
    async with Engine(place.store, workflows=[flow, child]) as engine:
        assert await asyncio.wait_for(finished(engine, flow), PATIENCE) == ["ok"]
        assert await asyncio.wait_for(posted(), PATIENCE) == "h", "the step has ended"
        assert await operations(engine, "child") == [], "the other session has no run of its own"
    background[0].cancel()


class Compacting(SQLiteSession):
    async def run_compaction(self, args: Any = None) -> None: ...


class Piecewise(ScriptedModel):
    """A model that sends its items one by one, and an empty response at the end."""

    async def stream_response(self, *args: Any, **named: Any) -> Any:
        item = assistant_message("in pieces")
        yield ResponseOutputItemDoneEvent(
            type="response.output_item.done", item=item, output_index=0, sequence_number=0
        )
        whole = Response(
            id="r", created_at=0, model="", object="response", output=[], tool_choice="auto", tools=[],
            parallel_tool_calls=True,
        )  # fmt: skip
        whole._request_id = "req_1"
        _attach_raw_usage_snapshot(whole, {"own_tokens": 3})
        yield ResponseCompletedEvent(type="response.completed", sequence_number=1, response=whole)


async def shapes(place: Place) -> None:
    """Streams in pieces and several rich outputs arrive whole. A session that a service rewrites is refused."""
    seen: list[Any] = []

    class Listening(Scripted):
        async def get_response(self, *args: Any, **named: Any) -> Any:
            seen[:] = named["input"]
            return await super().get_response(*args, **named)

    @function_tool
    async def rich() -> object:
        """Return two texts."""
        return (ToolOutputText(text="one"), ToolOutputText(text="two"))

    script = {0: [call("rich", "1")], 1: [assistant_message("ok")]}
    agent = Agent[Any](name="a", model=Listening(place, "a", script), tools=[rich])
    plain = work("plain", agent)
    facts = []

    @workflow
    async def pieces(ctx: Context) -> str:
        agent = Agent[Any](name="p", model=Piecewise(), model_settings=ModelSettings(preserve_raw_usage=True))
        result = await run(ctx, agent, "Go.", stream=True)
        await run(ctx, Agent[Any](name="asks", input_guardrails=[nested], model=Piecewise()), "Go.", stream=True)
        facts.append([(each.request_id, each.raw_usage) for each in result.raw_responses])
        await ctx.confirm("Is this right?")
        return str(result.final_output)

    @input_guardrail
    async def nested(context: Any, agent: Any, input: Any) -> GuardrailFunctionOutput:
        inner = Agent[Any](name="n", model=Piecewise(), model_settings=ModelSettings(preserve_raw_usage=True))
        result = Runner.run_streamed(inner, "Go.")
        async for _ in result.stream_events():
            pass
        facts.append([(each.request_id, each.raw_usage) for each in result.raw_responses])
        return GuardrailFunctionOutput(None, False)

    compacting = work("compacting", agent, session=Compacting("c"))
    async with Engine(place.store, workflows=[plain, pieces, compacting]) as engine:
        await finished(engine, plain)
        assert [part["text"] for part in seen[-1]["output"]] == ["one", "two"]
        assert await finished(engine, pieces) == "in pieces"
        assert facts == [[("req_1", {"own_tokens": 3})]] * 4, "of the run and the one inside it, also when remembered"
        failure = str((await (await engine.start(compacting)).outcome()).failure)
        assert "run() cannot use a Compacting" in failure, failure


async def versions(place: Place) -> None:
    """A version of the SDK without a name that the adapter uses is refused when the adapter is imported."""
    invoker: Any = _FailureHandlingFunctionToolInvoker
    kinds: list[tuple[Any, str]] = [
        (FunctionTool, "_is_agent_tool"), (Handoff, "_agent_ref"), (RunState, "_current_agent"),
    ]  # fmt: skip
    changes: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
        ("invoke_function_tool", lambda patch: patch.delattr(agents.tool, "invoke_function_tool")),
        ("__agents_bind_function_tool__", lambda patch: patch.delattr(invoker, "__agents_bind_function_tool__")),
        (invoker.__name__, lambda patch: patch.setattr(invoker, "__init__", lambda self, invoke: None)),
        *((name, partial(without_field, kind, name)) for kind, name in kinds),
    ]
    for name, change in changes:
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            refused(name)
    imported()


def without_field(kind: Any, name: str, patch: pytest.MonkeyPatch) -> None:
    patch.delitem(kind.__dataclass_fields__, name)


def imported() -> None:
    for name in [name for name in sys.modules if name.startswith("pausepoint.integrations.openai_")]:
        del sys.modules[name]
    import_module("pausepoint.integrations.openai_agents")


def refused(name: str) -> None:
    with pytest.raises(ImportError) as caught:
        imported()
    said = str(caught.value)
    assert name in said, said
    assert "needs openai-agents>=0.24,<0.25, and openai-agents 0.24.0 is installed" in said, said
    assert "pip install 'pausepoint[openai-agents]'" in said, said


SCENES = {
    scene.__name__: scene
    for scene in (answers, failed_tool, hooks, transcripts, contexts, labels, limits, outside, shapes, versions)
}
