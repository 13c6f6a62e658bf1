"""LangGraph: the interrupts of a graph are questions, and each gets its own answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel, field_validator

from pausepoint import Engine, Status
from pausepoint.errors import AnswerRefused
from pausepoint.integrations.langgraph import graph as graph_module
from pausepoint.integrations.langgraph import workflow
from tests.integrations.notes import Notes, answered, chain
from tests.support.loop import on_loop

pytestmark = pytest.mark.no_always_replay("the thread says what is done, so a replay does not ask for it again")


@pytest.mark.parametrize("where", ["node", "subgraph", "hidden subgraph", "subgraph of two nodes", "task"])
@on_loop
async def test_an_answer_is_given_to_its_own_interrupt_only(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "SLACK", 0)  # each superstep deletes what is not needed
    broken = [True]
    hidden: list[Any] = []

    def careful(state: Notes) -> dict[str, list[str]]:
        draft = interrupt("draft?")
        if broken:
            raise ValueError("the network is down")
        return {"notes": [f"draft {draft}, production {interrupt('production?')}"]}

    def first(state: Notes) -> dict[str, list[str]]:
        return {"notes": [f"draft {interrupt('draft?', response_schema=str)}, "]}

    def second(state: Notes) -> dict[str, list[str]]:
        if broken:
            raise ValueError("the network is down")
        return {"notes": [f"production {interrupt('production?')}"]}

    async def call(state: Notes) -> Any:
        return await hidden[0].ainvoke(state)

    @entrypoint()
    async def flow(state: Notes) -> Any:
        return await task(careful)(state)

    graph = chain(("careful", careful))
    hidden.append(graph.compile())
    two = chain(("first", first), ("second", second)).compile()
    graphs = {
        "subgraph": chain(("team", graph.compile())), "hidden subgraph": chain(("call", call)),
        "subgraph of two nodes": chain(("team", two)), "task": flow,
    }  # fmt: skip
    async with Engine(":memory:", hold=0) as engine:
        agent = workflow(graphs.get(where, graph), name="notes")
        session = await engine.start(agent, session_id="one", input={"notes": []})
        await session.outcome()
        await answered(engine, draft="yes")
        assert (await engine.session("one").info()).status is Status.FAILED
        broken.clear()
        await engine.session("one").resume()
        await session.outcome()
        await answered(engine, production="no")
        output = (await session.outcome()).state.output
        assert "".join(output["notes"]) == "draft yes, production no"


@on_loop
async def test_after_a_failure_beside_it_a_node_with_an_answer_is_asked_its_next_question() -> None:
    broken, has_answer = [True], asyncio.Event()

    async def slow(state: Notes) -> dict[str, list[str]]:
        draft = interrupt("draft?")
        has_answer.set()
        if broken:
            await asyncio.Event().wait()
        return {"notes": [f"draft {draft}, production {interrupt('production?')}"]}

    async def fail(state: Notes) -> dict[str, list[str]]:
        other = interrupt("other?")
        await has_answer.wait()
        if broken:
            raise ValueError("the network is down")
        return {"notes": [f"other {other}"]}

    graph = StateGraph(Notes).add_node("slow", slow).add_node("fail", fail)
    graph = graph.add_edge(START, "slow").add_edge(START, "fail")
    async with Engine(":memory:", hold=0) as engine:
        session = await engine.start(workflow(graph, name="notes"), session_id="one", input={"notes": []})
        await session.outcome()
        await answered(engine, draft="yes", other="maybe")
        broken.clear()
        await engine.session("one").resume()
        await session.outcome()
        await answered(engine, production="no")
        output = (await session.outcome()).state.output
        assert sorted(output["notes"]) == ["draft yes, production no", "other maybe"]


class Price(BaseModel):
    """The answer to the question below."""

    euros: int

    @field_validator("euros")
    @classmethod
    def even(cls, euros: int) -> int:
        """Refuse odd numbers, which a JSON schema does not say."""
        if euros % 2:
            raise ValueError("must be even")
        return euros


@on_loop
async def test_an_answer_that_does_not_fit_is_refused_and_bytes_are_shown_as_text() -> None:
    def ask(state: Notes) -> dict[str, list[Any]]:
        price = interrupt({"question": "price?", "photo": b"\xff"}, response_schema=Price)
        return {"notes": [price.euros, b"\xff"]}

    async with Engine(":memory:", hold=0) as engine:
        agent = workflow(chain(("ask", ask)), name="notes")
        session = await engine.start(agent, session_id="one", input={"notes": []})
        await session.outcome()
        assert (await engine.session("one").questions())[0].payload == {"question": "price?", "photo": "_w=="}
        with pytest.raises(AnswerRefused, match="is not of type 'object'"):
            await answered(engine, price="twelve")
        await answered(engine, price={"euros": 11})  # the node refuses it
        assert "must be even" in str((await session.outcome()).failure)
        await engine.session("one").resume()
        await session.outcome()
        await answered(engine, price={"euros": 12})
        assert (await session.outcome()).state.output == {"notes": [12, "_w=="]}
