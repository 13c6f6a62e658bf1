"""A plain graph of LangGraph whose nodes leave a line for each run, and the process that drives it as a workflow."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from pausepoint import Engine
from pausepoint.integrations.langgraph import workflow
from pausepoint.integrations.langgraph.graph import SessionSaver
from pausepoint.integrations.langgraph.threads import Threads
from tests.support import forkserver
from tests.support.loop import PATIENCE


class Order(TypedDict):
    """The state of the graph. Each node of the scenes adds its name to ``done``."""

    folder: str
    done: Annotated[list[str], operator.add]


async def work(state: Order, name: str) -> dict[str, list[str]]:
    """Leave a line, and wait until the test lets the node end."""
    folder = Path(state["folder"])
    with (folder / "effects").open("a") as file:
        file.write(f"{name}\n")
    for _ in range(PATIENCE * 200):
        if (folder / f"{name}.go").exists():
            (folder / f"{name}.ended").touch()
            return {"done": [name]}
        await asyncio.sleep(0.005)
    raise TimeoutError(name)


async def search(state: Order) -> dict[str, list[str]]:
    return await work(state, "search")


async def read(state: Order) -> dict[str, list[str]]:
    return await work(state, "read")


async def left(state: Order) -> dict[str, list[str]]:
    return await work(state, "left")


async def right(state: Order) -> dict[str, list[str]]:
    return await work(state, "right")


def approve(state: Order) -> dict[str, list[str]]:
    return {"done": [f"approve {interrupt({'question': 'Send the offer?', 'items': len(state['done'])})}"]}


def price(state: Order) -> dict[str, list[str]]:
    first = interrupt("Which price?")
    return {"done": [f"price {first} {interrupt('Which currency?')}"]}


async def send(state: Order) -> dict[str, list[str]]:
    return await work(state, "send")


builder: Any = StateGraph(Order)
for each in (search, read, left, right, approve, price, send):
    builder.add_node(each)
builder.add_edge(START, "search")
builder.add_edge("search", "read")
builder.add_edge("read", "left")
builder.add_edge("read", "right")
builder.add_edge(["left", "right"], "approve")
builder.add_edge(["left", "right"], "price")
builder.add_edge(["approve", "price"], "send")

offer = workflow(builder, name="offer", hold=0)


def warm_up() -> None:
    """Import what every job needs."""


def drive(store: str, folder: str, broken: str = "") -> None:
    """Start or resume the session until the process is killed.

    ``broken``: the ``writes`` of tasks are not stored, or supersteps do not count as ``progress``.
    """
    if broken == "writes":
        Threads.put_writes = _nothing  # type: ignore[assignment, method-assign]
    if broken == "progress":
        SessionSaver.remember = _nothing  # type: ignore[assignment, method-assign]

    async def main() -> None:
        async with Engine(store, workflows=[offer]) as engine:
            await engine.start(offer, session_id="offer-1", input={"folder": folder, "done": []})
            forkserver.say({"opened": True})
            await asyncio.sleep(PATIENCE)

    asyncio.run(main())


async def _nothing(*args: Any) -> None:
    """Store nothing."""
