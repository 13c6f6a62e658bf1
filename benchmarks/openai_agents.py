"""What `run` and `PausepointSession` cost: ``python -m benchmarks.openai_agents``.

An agent of the OpenAI Agents SDK makes one tool call per request. It runs alone, with the SDK's own ``SQLiteSession``
that keeps its history, and with `run` in a step of a session. Then both kinds of sessions keep items without an agent.
All are measured in turn, in one process. The model answers at once. Figures are for each request or tool call, and for
each call of ``add_items``.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from agents import Agent, ModelResponse, Runner, Session, SQLiteSession, Usage, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from pausepoint import Context, Engine, workflow
from pausepoint.integrations.openai_agents import PausepointSession, run


class Asking(ScriptedModel):
    """Calls the tool until the number of the prompt is reached."""

    async def get_response(self, *args: Any, **request: Any) -> ModelResponse:
        items = request["input"]
        last = max((n for n, item in enumerate(items) if item.get("role") == "user"), default=0)
        done = sum(item.get("type") == "function_call_output" for item in items[last:])
        more = done < int(items[last]["content"])
        answer: Any = function_call("look", {"at": done}, call_id=f"call {done}") if more else assistant_message("done")
        return ModelResponse([answer], Usage(), None)


@function_tool
async def look(at: int) -> str:
    """Look."""
    return f"seen {at}"


agent = Agent[Any](name="bench", model=Asking(), tools=[look])


@workflow
async def agent_run(calls: int, ctx: Context) -> str:
    return str((await run(ctx, agent, str(calls), max_turns=None)).final_output)


class Cost(NamedTuple):
    """Microseconds for each request or call, or for each pair of items: on the clock, and of all processors."""

    wall: float
    cpu: float


async def measure(folder: Path, calls: int, rounds: int, items: int = 200) -> dict[str, list[Cost]]:
    """Return the costs of each round."""
    async with Engine(folder / "agents.db", signals=False) as engine:

        async def alone() -> None:
            await Runner.run(agent, str(calls), max_turns=None)

        async def sqlite() -> None:
            session = SQLiteSession(uuid4().hex, folder / "sdk.db")
            await Runner.run(agent, str(calls), max_turns=None, session=session)
            session.close()

        async def step() -> None:
            assert (await (await engine.start(agent_run, calls=calls)).outcome()).result == "done"

        async def kept(session: Session) -> None:
            for number in range(items):
                await session.add_items([{"role": "user", "content": f"{number}"}, {"role": "user", "content": "?"}])

        async def sqlite_items() -> None:
            session = SQLiteSession(uuid4().hex, folder / "sdk.db")
            await kept(session)
            session.close()

        async def our_items() -> None:
            await kept(PausepointSession(engine, uuid4().hex))

        kinds: dict[str, tuple[Callable[[], Awaitable[None]], int]] = {
            "alone": (alone, 2 * calls + 1),
            "sqlite": (sqlite, 2 * calls + 1),
            "step": (step, 2 * calls + 1),
            "sqlite items": (sqlite_items, items),
            "our items": (our_items, items),
        }
        found: dict[str, list[Cost]] = {name: [] for name in kinds}
        for each in range(rounds + 1):
            for name, (work, amount) in kinds.items():
                began, used = time.perf_counter(), time.process_time()
                await work()
                took = Cost(time.perf_counter() - began, time.process_time() - used)
                if each:  # the first round imports and prepares
                    found[name].append(Cost(*(seconds * 1e6 / amount for seconds in took)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.openai_agents", description=__doc__)
    parser.add_argument("--calls", type=int, default=50, help="how many tool calls the agent makes (default: 50)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dir", type=Path, default=Path(), help="a folder on the disk to measure")
    options = parser.parse_args()
    set_tracing_disabled(True)
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        found = asyncio.run(measure(Path(folder), options.calls, options.rounds))
    for name, about in (
        ("alone", "Runner.run, nothing is kept"),
        ("sqlite", "Runner.run with SQLiteSession"),
        ("step", "run() in a step of a session"),
        ("sqlite items", "SQLiteSession.add_items, two items"),
        ("our items", "PausepointSession.add_items, two items"),
    ):
        low, *_, high = sorted(cost.wall for cost in found[name])
        wall, cpu = (statistics.median(values) for values in zip(*found[name], strict=True))
        print(f"{about:38} {wall:7,.0f} µs ({low:,.0f}–{high:,.0f}), processor {cpu:6,.0f} µs")


if __name__ == "__main__":
    main()
