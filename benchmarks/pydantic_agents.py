"""What `PausepointDurability` costs: ``python -m benchmarks.pydantic_agents``.

An agent of pydantic-ai makes one tool call per request. It runs without the capability, with one that stores nothing
(the cost of pydantic-ai's own machinery for durable runs), and with `PausepointDurability`. Then the same number of
operations runs without an agent. All are measured in turn, in one process. The model is a function, so the time is that
of pydantic-ai and Pausepoint alone.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pausepoint import Context, Engine, workflow
from pausepoint.integrations.pydantic_ai import Body, Operations, PausepointDurability

NO_LIMIT = UsageLimits(request_limit=None)


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool until the number of the prompt is reached."""
    prompt, done = messages[0].parts[0], len(messages) // 2
    if done < int(str(getattr(prompt, "content", ""))):
        return ModelResponse([ToolCallPart("look", {"at": done}, tool_call_id=f"call {done}")])
    return ModelResponse([TextPart("done")])


class Nothing(Operations):
    """Runs operations without storing them."""

    async def execute(self, *, body: Body, **facts: Any) -> object:
        return await body()


class Unstored(PausepointDurability[None]):
    """The capability, without operations."""

    def get_durable_operation_backend(self) -> Operations:
        found = super().get_durable_operation_backend()
        found.__class__ = Nothing
        return found


plain = Agent(FunctionModel(script), name="plain")
unstored = Agent(FunctionModel(script), name="unstored", capabilities=[Unstored()])
durable = Agent(FunctionModel(script), name="durable", capabilities=[PausepointDurability()])


@plain.tool_plain(name="look")
@unstored.tool_plain(name="look")
@durable.tool_plain(name="look")
async def look(at: int) -> str:
    return f"seen {at}"


@workflow
async def unstored_run(calls: int, ctx: Context) -> str:
    return (await unstored.run(str(calls), usage_limits=NO_LIMIT)).output


@workflow
async def agent_run(calls: int, ctx: Context) -> str:
    return (await durable.run(str(calls), usage_limits=NO_LIMIT)).output


@workflow
async def operations_only(calls: int, ctx: Context) -> str:
    for number in range(2 * calls + 1):
        await ctx.do(look, number)
    return "done"


KINDS = {
    "alone": "the agent without the capability",
    "unstored": "with a capability that stores nothing",
    "agent": "with PausepointDurability",
    "operations": "as many ctx.do without an agent",
}


async def measure(folder: Path, calls: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return the microseconds for each request or call, of each round: by the clock, and of the processor."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in KINDS}
    async with Engine(folder / "agents.db", signals=False) as engine:

        async def run(kind: str) -> None:
            if kind == "alone":
                await plain.run(str(calls), usage_limits=NO_LIMIT)
                return
            what = {"unstored": unstored_run, "agent": agent_run, "operations": operations_only}[kind]
            outcome = await (await engine.start(what, calls=calls)).outcome()
            assert outcome.result == "done"

        for each in range(rounds + 1):
            for kind, times in found.items():
                clock, processor = time.perf_counter(), time.process_time()
                await run(kind)
                spent = time.perf_counter() - clock, time.process_time() - processor
                if each:  # the first round imports and prepares
                    times.append((spent[0] * 1e6 / (2 * calls + 1), spent[1] * 1e6 / (2 * calls + 1)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.pydantic_agents", description=__doc__)
    parser.add_argument("--calls", type=int, default=50, help="how many tool calls the agent makes (default: 50)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on the disk to measure")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        found = asyncio.run(measure(Path(folder), options.calls, options.rounds))
    print("| µs for each request or call | by the clock | processor time | lowest–highest |\n|---|---|---|---|")
    for kind, times in found.items():
        clock, processor = sorted(each[0] for each in times), sorted(each[1] for each in times)
        middle = f"{median(clock):,.0f} | {median(processor):,.0f} | {processor[0]:,.0f}–{processor[-1]:,.0f}"
        print(f"| {KINDS[kind]} | {middle} |")


if __name__ == "__main__":
    main()
