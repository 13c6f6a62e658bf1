"""Measure what a superstep of LangGraph costs: with checkpoint-sqlite, with `PausepointSaver`, and as a workflow.

``python -m benchmarks.langgraph`` prints a table, ``--check`` also fails if a limit is missed. All savers run in turn,
in the same process, with ``durability="sync"``. Disk is what is left when all files are closed. Loading the last state
is the fastest of some loads, because other programs on the machine only make it slower.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import operator
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from pausepoint import Engine, Status
from pausepoint.integrations.langgraph import PausepointSaver, workflow

DISK, LOAD = 0.2, 3.0
"""The limits: the part of checkpoint-sqlite's disk for a growing state, and the milliseconds to load 400 KiB."""

LOADS = 50
"""How often the last state is loaded."""


class State(TypedDict):
    """The state of the graph: ``log`` grows, ``text`` is written again, ``ballast`` does not change."""

    left: int
    size: int
    length: int
    log: Annotated[list[str], operator.add]
    text: str
    ballast: str


class Work(NamedTuple):
    """A workload: how many supersteps, and how many characters each one adds, never changes, and writes again."""

    name: str
    steps: int
    adds: int
    ballast: int
    rewrites: int = 0

    @property
    def input(self) -> dict[str, Any]:
        """The input of the graph."""
        return {
            "left": self.steps, "size": self.adds, "length": self.rewrites, "log": [], "text": "",
            "ballast": "x" * self.ballast,
        }  # fmt: skip


WORKS = (
    Work("tiny", 300, 10, 0), Work("growing", 400, 1024, 0), Work("ballast", 100, 10, 1_000_000),
    Work("rewritten", 100, 10, 0, 200_000),
)  # fmt: skip


class Cost(NamedTuple):
    """What a workload cost with a saver."""

    saver: str
    work: str
    step_us: float
    disk_mb: float
    load_ms: float | None = None


def grow(state: State) -> dict[str, Any]:
    """Add to the state, as the node of the graph."""
    left, text = state["left"], {"text": f"{state['left']:0{state['length']}}"} if state["length"] else {}
    return {"left": left - 1, "log": [f"{left:0{state['size']}}"], **text}


def graph() -> Any:
    """Return the graph: one node that runs until nothing is left."""
    builder: Any = StateGraph(State)
    builder.add_node("grow", grow)
    builder.add_edge(START, "grow")
    builder.add_conditional_edges("grow", lambda state: "grow" if state["left"] else "__end__")
    return builder


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """Open the saver of checkpoint-sqlite."""
    async with AsyncSqliteSaver.from_conn_string(str(folder / "sqlite.db")) as saver:
        yield saver


@asynccontextmanager
async def ours(folder: Path) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """Open our saver, in this event loop."""
    async with Engine(folder / "ours.db", drives="none", signals=False) as engine:
        yield PausepointSaver(engine)


async def with_saver(name: str, work: Work, folder: Path) -> Cost:
    """Run a workload with a saver, then load its last state in a new one."""
    opened = {"checkpoint-sqlite": sqlite, "PausepointSaver": ours}[name]
    config: Any = {"configurable": {"thread_id": "one"}, "recursion_limit": work.steps + 10}
    async with opened(folder) as saver:
        compiled = graph().compile(checkpointer=saver)
        began = time.perf_counter()
        result = await compiled.ainvoke(work.input, config, durability="sync")
        took = time.perf_counter() - began
    assert len(result["log"]) == work.steps
    async with opened(folder) as saver:
        loads: list[float] = []
        found = None
        for _ in range(LOADS):
            began = time.perf_counter()
            found = await saver.aget_tuple(config)
            loads.append(time.perf_counter() - began)
        assert found is not None
        assert len(found.checkpoint["channel_values"]["log"]) == work.steps
    return Cost(name, work.name, took / work.steps * 1e6, size_mb(folder), min(loads) * 1e3)


async def as_workflow(work: Work, folder: Path) -> Cost:
    """Run a workload as a workflow."""
    agent = workflow(graph(), name="agent", config={"recursion_limit": work.steps + 10})
    async with Engine(folder / "workflow.db", signals=False) as engine:
        began = time.perf_counter()
        outcome = await (await engine.start(agent, input=work.input)).outcome()
        took = time.perf_counter() - began
    assert outcome.status is Status.COMPLETED
    return Cost("workflow()", work.name, took / work.steps * 1e6, size_mb(folder))


def size_mb(folder: Path) -> float:
    """Return what the files of a saver take. The reserve that our store keeps for a full disk is left out."""
    files = [each for each in folder.iterdir() if not each.name.endswith("-ballast")]
    return sum(each.stat().st_size for each in files) / 1e6


def measured(work: Work, rounds: int, folder: Path) -> list[Cost]:
    """Return the median costs of a workload with all savers, measured in turn."""
    found: dict[str, list[Cost]] = {}
    for _ in range(rounds):
        for name in ("checkpoint-sqlite", "PausepointSaver", "workflow()"):
            with tempfile.TemporaryDirectory(dir=folder) as place:
                running = (
                    as_workflow(work, Path(place)) if name == "workflow()" else with_saver(name, work, Path(place))
                )
                found.setdefault(name, []).append(asyncio.run(running))
    return [
        Cost(name, work.name, _median(each.step_us for each in some), _median(each.disk_mb for each in some),
             None if some[0].load_ms is None else _median(each.load_ms or 0.0 for each in some))
        for name, some in found.items()
    ]  # fmt: skip


def _median(values: Any) -> float:
    return float(statistics.median(values))


def missed(costs: Sequence[Cost]) -> list[str]:
    """Return the limits that are missed."""
    by = {(each.saver, each.work): each for each in costs}
    mine, peer = by["PausepointSaver", "growing"], by["checkpoint-sqlite", "growing"]
    problems = []
    if mine.disk_mb > peer.disk_mb * DISK:
        problems.append(f"A growing state takes {mine.disk_mb / peer.disk_mb:.2f} of checkpoint-sqlite; limit {DISK}.")
    if (mine.load_ms or 0) > LOAD:
        problems.append(f"Loading the growing state takes {mine.load_ms:.1f} ms; limit {LOAD}.")
    return problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the costs. Return 1 if --check was given and a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.langgraph", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="where to put the files; by default the temporary folder")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="fail if a limit is missed")
    options = parser.parse_args(arguments)
    costs = [
        each for work in WORKS for each in measured(work, options.rounds, options.dir or Path(tempfile.gettempdir()))
    ]
    if options.json:
        print(json.dumps([each._asdict() for each in costs]))
    else:
        print("| workload | saver | µs per superstep | disk, MB | load, ms |\n|---|---|---|---|---|")
        for each in costs:
            load = "" if each.load_ms is None else f"{each.load_ms:.1f}"
            print(f"| {each.work} | {each.saver} | {each.step_us:,.0f} | {each.disk_mb:.1f} | {load} |")
    problems = missed(costs)
    for line in problems:
        print(line)
    return int(options.check and bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
