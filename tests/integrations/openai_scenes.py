"""Agents of the OpenAI Agents SDK in processes of their own, with models that follow a script.

A model answers by the number of tool outputs that it is sent, so that a new process continues where another one was.
Each call of a model or a tool adds a line to the file ``effects``. The call that a scene holds says so, and waits until
the file ``go`` exists.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    ModelResponse,
    ModelRetrySettings,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    Runner,
    Session,
    ShellTool,
    SQLiteSession,
    Usage,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from agents.items import TResponseOutputItem
from agents.mcp import MCPServerStdio
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from benchmarks import openai_agents
from pausepoint import Budget, Context, Engine, Retry, Status, Workflow, current, workflow
from pausepoint.integrations.openai_agents import PausepointSession, run
from pausepoint.model import StreamChunk
from pausepoint.testing import always_replay
from tests.support.forkserver import say

Script = dict[int, list[TResponseOutputItem]]
"""What a model answers, by the number of tool outputs in the conversation."""

set_tracing_disabled(True)


def warm_up() -> None:
    """Everything that jobs need is imported."""


@dataclass
class Facts:
    """The context of a run, which tools change. The client cannot be stored."""

    charged: list[str] = field(default_factory=list)
    via: str = ""
    client: object = None


class Place:
    """A folder with a store and the counted effects."""

    def __init__(self, folder: str, hold: str = "") -> None:
        self.folder = Path(folder)
        self.store = f"{folder}/p.db"
        self.hold = hold

    def note(self, what: str) -> None:
        with open(self.folder / "effects", "a") as file:
            file.write(what + "\n")

    async def did(self, what: str) -> None:
        """Count an effect, and wait if the test wants to do something meanwhile."""
        self.note(what)
        if what == self.hold:
            say({"holds": what})
            while not (self.folder / "go").exists():
                await asyncio.sleep(0.01)

    @property
    def effects(self) -> Counter[str]:
        return Counter((self.folder / "effects").read_text().split("\n")[:-1])


class Scripted(ScriptedModel):
    """A model of the SDK's tests whose answers depend on the conversation only."""

    def __init__(self, place: Place, name: str, script: Script, fails: int = 0) -> None:
        super().__init__()
        self.place, self.name, self.script, self.fails = place, name, script, fails

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        items = named["input"]
        outputs = 0 if isinstance(items, str) else sum(each.get("type") == "function_call_output" for each in items)
        await self.place.did(f"{self.name} {outputs}")
        if self.fails:
            self.fails -= 1
            raise ConnectionError("the line is bad")
        return ModelResponse(self.script[outputs], Usage(requests=1, input_tokens=10, output_tokens=5), None)


def clerk(place: Place) -> Agent[Any]:
    """Return an agent that other agents use as a tool."""

    @function_tool
    async def lookup(order: str) -> str:
        """Look an order up."""
        await place.did(f"lookup {order}")
        return f"{order} costs 9"

    answers: Script = {0: [function_call("lookup", {"order": "A"}, call_id="c3")], 1: [assistant_message("9 euros")]}
    return Agent(name="clerk", model=Scripted(place, "clerk", answers), tools=[lookup])


def billing(place: Place) -> Agent[Facts]:
    """Return an agent with a tool, an agent as a tool, and a tool that needs approval."""

    @function_tool
    async def charge(facts: RunContextWrapper[Facts], order: str) -> str:
        """Charge an order."""
        await place.did(f"charge {order}")
        facts.context.charged.append(order)
        return f"charged, {current().idempotency_key}"

    @function_tool(needs_approval=True)
    def refund(order: str) -> str:
        """Refund an order, in a thread."""
        return current(blocking=True).do(partial(refunded, place), order, key="refund")

    answers: Script = {
        1: [
            function_call("charge", {"order": "A"}, call_id="c1"),
            function_call("ask_clerk", {"input": "A?"}, call_id="c2"),
        ],
        3: [function_call("refund", {"order": "A"}, call_id="c4")],
        4: [assistant_message("done")],
    }
    helper = clerk(place).as_tool("ask_clerk", "Ask the clerk.")
    return Agent(name="billing", model=Scripted(place, "billing", answers), tools=[charge, refund, helper])


def refunded(place: Place, order: str) -> str:
    place.note(f"refund {order}")
    return f"refunded {order}"


def triage(place: Place) -> Agent[Facts]:
    """Return an agent with a guardrail that runs a model, which hands over to `billing`."""
    judge = Agent[Any](name="judge", model=Scripted(place, "judge", {0: [assistant_message("fine")]}))

    async def check(facts: RunContextWrapper[Facts], agent: Agent[Any], input: Any) -> GuardrailFunctionOutput:
        found = await Runner.run(judge, input)
        return GuardrailFunctionOutput(found.final_output, tripwire_triggered="bad" in str(input))

    async def on_handoff(facts: RunContextWrapper[Facts]) -> None:
        await place.did("handoff")
        facts.context.via = "triage"

    answers: Script = {0: [function_call("transfer_to_billing", {}, call_id="c0")]}
    return Agent(
        name="triage",
        model=Scripted(place, "triage", answers),
        handoffs=[handoff(billing(place), on_handoff=on_handoff)],
        input_guardrails=[InputGuardrail(check)],
    )


def bill_workflow(place: Place, remembered: bool) -> Workflow[Any, str]:
    agent = triage(place)

    @workflow(name="bill")
    async def bill(prompt: str, ctx: Context) -> str:
        facts = Facts(client=object())
        if remembered:
            result = await run(ctx, agent, prompt, key="bill", context=facts)
        else:  # without run(), nothing is remembered, and nobody is asked
            result = await Runner.run(agent, prompt, context=facts)
            return "".join(item.name or "" for item in result.interruptions)
        assert result.last_agent is agent.handoffs[0]._agent_ref()  # type: ignore[union-attr, misc]
        assert (facts.charged, facts.via) == (["A"], "triage")
        return str(result.final_output)

    return bill


def bill(folder: str, hold: str = "", remembered: bool = True) -> None:
    """Start the session ``bill``, or continue it, and say what came of it."""

    async def main() -> None:
        place = Place(folder, hold)
        work = bill_workflow(place, remembered)
        async with Engine(place.store, workflows=[work]) as engine:
            outcome = await (await engine.start(work, session_id="bill", prompt="Bill A.")).outcome()
            say({"status": outcome.status.value, "failure": str(outcome.failure), "tokens": outcome.spent_tokens})

    asyncio.run(main())


class Held(PausepointSession):
    """A session that says when it is written, before the run hears of it."""

    place: Place

    async def _change(self, *args: Any) -> None:
        await super()._change(*args)
        await self.place.did("written")


class Other(Held):
    """A session whose writes cannot be recognised."""

    async def _change(self, cleared: bool, popped: int, added: list[Any], token: str) -> None:
        await super()._change(cleared, popped, added, uuid4().hex)


def converse(folder: str, hold: str = "", recognised: bool = True) -> None:
    """Run an agent that has a conversation, and say how many items that has."""

    async def main() -> None:
        place = Place(folder, hold)
        chat = Agent[Any](name="chat", model=Scripted(place, "chat", {0: [assistant_message("hello")]}))

        @workflow
        async def talk(ctx: Context) -> int:
            session = (Held if recognised else Other)(engine, "c")
            session.place = place
            await run(ctx, chat, "Hi.", session=session)
            return len(await session.get_items())

        async with Engine(place.store, workflows=[talk]) as engine:
            say({"items": (await (await engine.start(talk, session_id="talk")).outcome()).result})

    asyncio.run(main())


def benchmark(folder: str) -> None:
    """Run the benchmark in short, and say how many figures each row has."""
    found = asyncio.run(openai_agents.measure(Path(folder), calls=2, rounds=1, items=2))
    say({name: len(figures) for name, figures in found.items()})


# scenes in one process


def alone(folder: str, scene: str) -> None:
    """Run one of the scenes below. An error ends the process with code 1."""
    asyncio.run(SCENES[scene](Place(folder)))


async def everything_once(place: Place) -> None:
    work = bill_workflow(place, remembered=True)
    async with always_replay(Engine(place.store, workflows=[work])) as engine:
        session = await engine.start(work, session_id="bill", prompt="Bill A.")
        [question] = (await session.outcome()).questions
        await session.answer(True, question=question.id)
        assert (await session.outcome()).result == "done"
    assert set(place.effects.values()) == {1}, place.effects


async def declined(place: Place) -> None:
    """The reason for a no goes to the model, and the tool does not run."""
    seen: list[Any] = []

    class Listening(Scripted):
        async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
            seen[:] = named["input"] if isinstance(named["input"], list) else []
            return await super().get_response(*args, **named)

    agent = billing(place)
    script: Script = {0: [function_call("refund", {"order": "B"}, call_id="c1")], 1: [assistant_message("pity")]}
    agent.model = Listening(place, "model", script)

    @workflow
    async def ask(ctx: Context) -> str:
        return str((await run(ctx, agent, "Refund B.")).final_output)

    async with Engine(place.store, workflows=[ask]) as engine:
        session = await engine.start(ask)
        [question] = (await session.outcome()).questions
        assert question.payload == {"agent": "billing", "tool": "refund", "arguments": {"order": "B"}}
        await session.answer({"approved": False, "reason": "too expensive"}, question=question.id)
        assert (await session.outcome()).result == "pity"
    assert seen[-1]["output"] == "too expensive"
    assert place.effects == {"model 0": 1, "model 1": 1}


async def conversations(place: Place) -> None:
    """Both kinds of sessions get each item once, and the second run reads what the first has written."""
    chat = Agent[Any](name="chat", model=Scripted(place, "chat", {0: [assistant_message("hello")]}))
    kept = SQLiteSession("c", place.folder / "other.db")

    @workflow
    async def talk(ctx: Context) -> int:
        results = []
        for session in (PausepointSession(engine, "c"), kept):
            results.append(await run(ctx, chat, "Hi.", session=session))
            results.append(await run(ctx, chat, "Hi.", session=session))  # the same input is another run
        return len(results[-1].to_input_list())

    async with always_replay(Engine(place.store, workflows=[talk])) as engine:
        assert (await (await engine.start(talk)).outcome()).result == 4
        ours: Session = PausepointSession(engine, "c")
        assert await ours.get_items() == await kept.get_items()
        assert [item.get("role") for item in await ours.get_items()] == ["user", "assistant"] * 2
        await PausepointSession(engine, "c")._change(False, 0, [{"role": "user", "content": "once"}], "token")
        await PausepointSession(engine, "c")._change(False, 0, [{"role": "user", "content": "once"}], "token")
        assert len(await ours.get_items()) == 5
        assert [item.get("content") for item in await ours.get_items(1)] == ["once"]
        assert await ours.pop_item() == {"role": "user", "content": "once"}
        await ours.clear_session()
        assert (await ours.get_items(), await ours.pop_item()) == ([], None)
    kept.close()
    assert place.effects == {"chat 0": 4}


async def tripped(place: Place) -> None:
    """A guardrail ends the run. What the user said is in the conversation, as without Pausepoint."""
    agent = triage(place)

    @workflow
    async def guarded(ctx: Context) -> str:
        return str(await run(ctx, agent, "This is bad.", context=Facts(), session=PausepointSession(engine, "c")))

    async with Engine(place.store, workflows=[guarded]) as engine:
        outcome = await (await engine.start(guarded)).outcome()
        assert outcome.status is Status.FAILED
        assert "InputGuardrailTripwireTriggered" in str(outcome.failure)
        assert await PausepointSession(engine, "c").get_items() == [{"role": "user", "content": "This is bad."}]


async def unreliable(place: Place) -> None:
    """A failed model call is repeated by the engine or by the SDK, and has one number. A budget pauses the session."""
    engine_repeats = Agent[Any](name="one", model=Scripted(place, "one", {0: [assistant_message("ok")]}, fails=1))
    retries = ModelRetrySettings(max_retries=2, policy=lambda context: True, backoff={"initial_delay": 0.0})
    sdk_repeats = Agent[Any](
        name="two",
        model=Scripted(place, "two", {0: [assistant_message("ok")]}, fails=1),
        model_settings=ModelSettings(retry=retries, timeout=60),
    )

    @workflow
    async def repeats(ctx: Context) -> str:
        await run(ctx, engine_repeats, "Hi.", retry=Retry(attempts=2, first=0))
        return str((await run(ctx, sdk_repeats, "Hi.", run_config=RunConfig(tracing_disabled=True))).final_output)

    async with Engine(place.store, workflows=[repeats]) as engine:
        session = await engine.start(repeats, budget=Budget(tokens=10))
        assert (await session.outcome()).status is Status.PAUSED
        assert place.effects == {"one 0": 2}
        await session.resume(budget=Budget(tokens=100))
        outcome = await session.outcome()
        assert (outcome.result, outcome.spent_tokens) == ("ok", 30)
    assert place.effects == {"one 0": 2, "two 0": 2}


class Caching(ScriptedModel):
    """A model whose prompts are cached, as those of OpenAI are."""

    def _supports_default_prompt_cache_key(self) -> bool:
        return True


async def streamed(place: Place) -> None:
    """The words of the model reach those who follow the session."""
    usage = Usage(requests=1, input_tokens=7, output_tokens=2, total_tokens=9)
    model = Caching([ModelStep([assistant_message("many words")], usage=usage)])
    agent = Agent[Any](name="talker", model=model)

    @workflow
    async def talk(ctx: Context) -> str:
        return str((await run(ctx, agent, "Hi.", stream=True)).final_output)

    async with Engine(place.store, workflows=[talk]) as engine:
        session = await engine.start(talk)
        chunks = [item.data async for item in session.stream() if isinstance(item, StreamChunk)]
        outcome = await session.outcome()
        assert ("".join(map(str, chunks)), outcome.result, outcome.spent_tokens) == ("many words", "many words", 9)
    [call] = model.calls
    assert "prompt_cache_key" in (call.model_settings.extra_args or {}), "the SDK sees what the model can do"


SERVER = """
from mcp.server import MCPServer

server = MCPServer("shop")


@server.tool()
def price(order: str) -> str:
    with open("effects", "a") as file:
        file.write(f"price {order}\\n")
    return f"{order} costs 9"


server.run("stdio")
"""


async def mcp_server(place: Place) -> None:
    """The tools of a real MCP server are called once."""
    (place.folder / "server.py").write_text(SERVER)
    program: Any = {"command": sys.executable, "args": ["server.py"], "cwd": str(place.folder)}
    script: Script = {0: [function_call("price", {"order": "A"}, call_id="c1")], 1: [assistant_message("ok")]}
    async with MCPServerStdio(params=program) as server:
        agent = Agent[Any](name="shopper", model=Scripted(place, "shopper", script), mcp_servers=[server])

        @workflow
        async def shop(ctx: Context) -> str:
            return str((await run(ctx, agent, "Hi.")).final_output)

        async with always_replay(Engine(place.store, workflows=[shop])) as engine:
            assert (await (await engine.start(shop)).outcome()).result == "ok"
    assert place.effects == {"shopper 0": 1, "price A": 1, "shopper 1": 1}


async def unsupported(place: Place) -> None:
    """A tool whose results cannot be remembered is refused by name. Other runs of the SDK are as they were.

    It is refused before the first model call, also if a handoff or an agent used as a tool leads to it, unless that is
    decided later.
    """
    shell = Agent[Any](name="sh", tools=[ShellTool(executor=lambda request: "")], model=ScriptedModel())
    back = Agent[Any](name="back", handoffs=[shell])
    back.handoffs.append(back)
    asked = [
        shell, Agent[Any](name="one", handoffs=[back]), Agent[Any](name="two", handoffs=[handoff(back)]),
        Agent[Any](name="three", tools=[back.as_tool("ask", "Ask.")]),
    ]  # fmt: skip
    model = Scripted(place, "later", {0: [assistant_message("ok")]})
    later = Agent[Any](name="later", model=model, handoffs=[handoff(shell, is_enabled=lambda *_: False)])

    @workflow
    async def refused(number: int, ctx: Context) -> str:
        return str((await run(ctx, [*asked, later][number], "Hi.")).final_output)

    async with Engine(place.store, workflows=[refused]) as engine:
        for number, agent in enumerate(asked):
            agent.model = Scripted(place, agent.name, {})
            outcome = await (await engine.start(refused, number=number)).outcome()
            assert "Agent 'sh': ShellTool runs on this machine" in str(outcome.failure)
        assert (await (await engine.start(refused, number=4)).outcome()).result == "ok"
    assert place.effects == {"later 0": 1}, place.effects
    plain = Agent[Any](name="plain", model=ScriptedModel([[assistant_message("ok")]]))
    assert (await Runner.run(plain, "Hi.")).final_output == "ok"


SCENES = {
    scene.__name__: scene
    for scene in (everything_once, declined, conversations, tripped, unreliable, streamed, mcp_server, unsupported)
}
