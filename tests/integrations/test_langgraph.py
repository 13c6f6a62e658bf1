"""LangGraph: an unchanged graph under the pause button, and the saver for graphs outside of sessions."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

from pausepoint import DefinitionError, Engine, Status, durable
from pausepoint.integrations.langgraph import graph as graph_module
from pausepoint.integrations.langgraph import workflow
from pausepoint.model.streams import StreamChunk
from tests.integrations import graphs
from tests.integrations.graphs import offer
from tests.integrations.notes import Counted, Notes, answered, chain
from tests.support.children import environment
from tests.support.forkserver import Child, ForkServer
from tests.support.loop import PATIENCE, on_loop
from tests.support.waits import async_until

pytestmark = pytest.mark.no_always_replay("the thread says what is done, so a replay does not ask for it again")


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with ForkServer(graphs.__name__) as found:
        yield found


class Scene:
    """A session of the graph that other processes drive."""

    def __init__(self, forks: ForkServer, folder: Path, engine: Engine) -> None:
        self.forks, self.folder, self.engine = forks, folder, engine

    async def driver(self, **options: Any) -> Child:
        options |= {"store": str(self.folder / "offers.db"), "folder": str(self.folder)}
        child = self.forks.start(f"{graphs.__name__}:drive", **options)
        await asyncio.to_thread(child.hear)
        return child

    def go(self, *nodes: str) -> None:
        """Let nodes end."""
        for node in nodes:
            (self.folder / f"{node}.go").touch()

    def effects(self) -> Counter[str]:
        path = self.folder / "effects"
        return Counter(path.read_text().split() if path.exists() else [])

    async def runs(self, **wanted: int) -> None:
        """Wait until nodes have begun so often."""

        async def begun() -> bool:
            return self.effects() >= Counter(wanted)

        await async_until(begun)

    async def reaches(self, status: Status) -> None:
        async def reached() -> bool:
            return (await self.engine.session("offer-1").info()).status is status

        await async_until(reached)

    async def has_written(self, count: int) -> None:
        """Wait until the writes of so many tasks that follow the last checkpoint are stored."""

        async def written() -> bool:
            drawer = self.engine.drawer("langgraph", session="offer-1")
            (head,) = await drawer.values("c/", last=1)
            return len(await drawer.values(f"w{head[1:]}/")) == count

        await async_until(written)

    async def kill_in(self, node: str, **options: Any) -> None:
        """Kill a process while a node runs."""
        before = self.effects()[node]
        driver = await self.driver(**options)
        await self.runs(**{node: before + 1})
        await self.killed(driver)

    async def killed(self, child: Child) -> None:
        child.signal(signal.SIGKILL)
        assert await asyncio.to_thread(child.wait) == -signal.SIGKILL

    async def answer(self, **answers: Any) -> None:
        """Answer the open questions, by the last word of their text."""
        await self.reaches(Status.WAITING)
        asked = {
            each.next_question.rstrip("?").split()[-1]: each
            for each in await self.engine.session("offer-1").questions()
        }
        assert asked.keys() == answers.keys()
        for word, value in answers.items():
            await self.engine.answer(asked[word].id, value, by="ann")


@pytest.mark.long
@on_loop
async def test_a_graph_is_paused_killed_and_asked_and_no_node_that_ended_runs_again(
    forks: ForkServer, tmp_path: Path
) -> None:
    async with Engine(tmp_path / "offers.db", workflows=[offer], drives="none") as engine:
        scene = Scene(forks, tmp_path, engine)
        await scene.kill_in("search")
        driver = await scene.driver()
        await scene.runs(search=2)
        await engine.session("offer-1").pause(reason="lunch")  # in this process, while a node runs in the other
        scene.go("search")
        await scene.reaches(Status.PAUSED)
        assert scene.effects() == {"search": 2}

        await engine.session("offer-1").resume(here=False)
        await scene.runs(read=1)
        await scene.killed(driver)
        scene.go("read", "left")
        driver = await scene.driver()
        await scene.runs(left=1, right=1)
        await scene.has_written(1)
        await scene.killed(driver)  # the third, but each superstep is progress

        await scene.driver()
        await scene.runs(right=2)
        scene.go("right")
        await scene.reaches(Status.WAITING)
        asked = {each.next_question: each.payload for each in await engine.session("offer-1").questions()}
        assert asked == {"Send the offer?": {"question": "Send the offer?", "items": 4}, "Which price?": "Which price?"}
        await scene.answer(offer="yes", price=12)  # by id: each node gets its own answer
        await scene.answer(currency="EUR")
        await scene.runs(send=1)
        planned = [
            each.operation for each in (await engine.session("offer-1").plan()).operations if each.verdict == "done"
        ]
        assert planned == ["thread", "search", "read", "left, right", "ask", "approve, price"]
        scene.go("send")
        await scene.reaches(Status.COMPLETED)
        output = (await engine.session("offer-1").state()).model_dump()["output"]
        assert output["done"] == ["search", "read", "left", "right", "approve yes", "price 12 EUR", "send"]
        assert scene.effects() == {"search": 2, "read": 2, "left": 1, "right": 2, "send": 1}


@pytest.mark.long
@on_loop
async def test_without_the_writes_of_tasks_a_node_that_ended_runs_again(forks: ForkServer, tmp_path: Path) -> None:
    async with Engine(tmp_path / "offers.db", workflows=[offer], drives="none") as engine:
        scene = Scene(forks, tmp_path, engine)
        scene.go("search", "read", "left")
        await scene.kill_in("right", broken="writes")
        await scene.kill_in("right", broken="writes")
        assert scene.effects()["left"] == 2


@pytest.mark.long
@on_loop
async def test_without_an_operation_for_each_superstep_three_kills_pause_the_session(
    forks: ForkServer, tmp_path: Path
) -> None:
    async with Engine(tmp_path / "offers.db", workflows=[offer], drives="none") as engine:
        scene = Scene(forks, tmp_path, engine)
        for node in ("search", "read", "right"):
            await scene.kill_in(node, broken="progress")
            scene.go(node)
        await scene.driver(broken="progress")
        await scene.reaches(Status.PAUSED)
        assert [each.kind for each in await engine.session("offer-1").pauses()] == ["crashes"]


@on_loop
async def test_a_fork_continues_in_a_copy_of_the_thread() -> None:
    counted = Counted()
    graph = chain(("draft", counted.node("draft")), ("ask", counted.asking("ask")), ("end", counted.node("end")))
    async with Engine(":memory:", hold=0) as engine:
        await (await engine.start(workflow(graph, name="notes"), session_id="one", input={"notes": []})).outcome()
        await engine.session("one").pause()
        await (await engine.session("one").fork(session_id="two", reuse=True)).outcome()
        await engine.session("one").resume()
        for session, answer in (("two", "no"), ("one", "yes")):
            (question,) = await engine.session(session).questions()
            await engine.answer(question.id, answer)
            outcome = await engine.session(session).outcome()
            assert outcome.state.output == {"notes": ["draft", f"ask {answer}", "end"]}
        assert counted.runs == {"draft": 1, "ask": 2, "end": 2}


class Draft(TypedDict):
    """The state of a graph that writes a text again and again."""

    round: int
    text: str


@pytest.mark.long
@on_loop
async def test_a_thread_has_what_is_needed_to_continue_and_not_all_supersteps() -> None:
    def write(state: Draft) -> dict[str, Any]:
        return {"round": state["round"] + 1, "text": f"{state['round']:0100000}"}

    def ask(state: Draft) -> dict[str, Any]:
        return {"text": f"{interrupt('ask?')} {state['text'][-2:]}"}

    builder: Any = StateGraph
    inner = builder(Draft).add_sequence([("look", write), ("inner", write)]).add_edge(START, "look").compile()
    graph = builder(Draft).add_sequence([("write", write), ("team", inner)]).add_node("ask", ask)
    graph.add_edge(START, "write")
    graph.add_conditional_edges("team", lambda state: "write" if state["round"] < 30 else "ask")
    agent = workflow(graph, name="drafts", config={"recursion_limit": 100})
    async with Engine(":memory:", hold=0) as engine:
        session = await engine.start(agent, session_id="one", input={"round": 0, "text": ""})
        await session.outcome()
        await engine.session("one").pause()
        await (await engine.session("one").fork(session_id="two", reuse=True)).outcome()
        await engine.session("one").resume()
        for id, answer in (("two", "no"), ("one", "yes")):
            (drawer,) = await engine.drawers(id)
            assert 100_000 < drawer.bytes < graph_module.SLACK + 500_000, "of 7 MB that were stored"
            (question,) = await engine.session(id).questions()
            await engine.answer(question.id, answer)
            outcome = await engine.session(id).outcome()
            assert outcome.state.output == {"round": 30, "text": f"{answer} 29"}
            assert len(await engine.drawer("langgraph", session=id).keys("c/")) == 1
            assert (await engine.drawers(id))[0].bytes < 5_000
        await engine.session("one").rewind(to="graph")
        await engine.session("one").resume()
        await session.outcome()
        await answered(engine, ask="again")
        assert (await session.outcome()).state.output == {"round": 30, "text": "again 29"}


@on_loop
async def test_a_session_whose_thread_was_redacted_fails_instead_of_starting_again() -> None:
    counted = Counted()
    graph = chain(("draft", counted.node("draft")), ("ask", counted.asking("ask")))
    async with Engine(":memory:", hold=0) as engine:
        session = await engine.start(workflow(graph, name="notes"), session_id="one", input={"notes": []})
        await session.outcome()
        await engine.session("one").pause()
        await engine.session("one").redact(drawer="langgraph")
        await engine.session("one").resume()
        (question,) = await engine.session("one").questions()
        await engine.answer(question.id, "yes")
        outcome = await session.outcome()
        assert outcome.status is Status.FAILED
        assert "no longer in its drawer 'langgraph'" in str(outcome.failure)
        assert counted.runs == {"draft": 1}


@on_loop
async def test_after_a_failure_only_the_failed_node_runs_again_and_a_rewind_starts_the_graph_again() -> None:
    counted, broken = Counted(), [True]

    def fail(state: Notes) -> dict[str, list[str]]:
        counted.runs["fail"] += 1
        if broken:
            raise ValueError("the disk is full")
        return {"notes": ["mended"]}

    graph = chain(("draft", counted.node("draft")), ("fail", fail), ("end", counted.node("end")))
    notes = workflow(graph, name="notes")
    async with Engine(":memory:") as engine:
        session = await engine.start(notes, session_id="one", input={"notes": []})
        assert (await session.outcome()).status is Status.FAILED
        broken.clear()
        await engine.session("one").resume()
        assert (await session.outcome()).state.output == {"notes": ["draft", "mended", "end"]}
        assert counted.runs == {"draft": 1, "fail": 2, "end": 1}
        await engine.session("one").rewind(to="graph")
        await engine.session("one").resume()
        assert (await session.outcome()).state.output == {"notes": ["draft", "mended", "end"]}
        assert counted.runs == {"draft": 2, "fail": 3, "end": 2}


@on_loop
async def test_the_supersteps_of_subgraphs_and_sends_are_operations() -> None:
    counted = Counted()
    inner = chain(("look", counted.node("look")), ("inner", counted.asking("inner"))).compile()
    graph = chain(("plan", counted.node("plan")), ("team", inner), ("end", counted.node("end")))
    graph.add_node("worker", counted.node("worker"))
    graph.add_conditional_edges("end", lambda state: [Send("worker", state)] * 3)
    async with Engine(":memory:", hold=0) as engine:
        session = await engine.start(workflow(graph, name="notes"), session_id="one", input={"notes": []})
        await session.outcome()
        (question,) = await engine.session("one").questions()
        assert question.next_question == "inner?"
        await engine.answer(question.id, {"approved": True})
        outcome = await session.outcome()
        assert outcome.state.output["notes"][-3:] == ["worker"] * 3
        assert counted.runs == {"plan": 1, "look": 1, "inner": 1, "end": 1, "worker": 3}
        done = [each.summary async for each in session.events(follow=False) if each.event_type == "operation.completed"]
        assert done == ["thread", "plan", "team: look", "ask", "team: inner", "team", "end", "worker", "graph"]


@on_loop
async def test_a_pause_takes_effect_inside_a_subgraph_that_runs_alone() -> None:
    counted, begun, go = Counted(), asyncio.Event(), asyncio.Event()

    async def look(state: Notes) -> dict[str, list[str]]:
        counted.runs["look"] += 1
        begun.set()
        await go.wait()
        return {"notes": ["look"]}

    inner = chain(("look", look), ("inner", counted.node("inner"))).compile()
    graph = chain(("plan", counted.node("plan")), ("team", inner), ("end", counted.node("end")))
    async with Engine(":memory:", hold=0) as engine:
        session = await engine.start(workflow(graph, name="notes"), session_id="one", input={"notes": []})
        await begun.wait()
        await engine.session("one").pause()
        go.set()
        assert (await session.outcome()).status is Status.PAUSED
        assert counted.runs == {"plan": 1, "look": 1}
        await engine.session("one").resume()
        assert (await session.outcome()).status is Status.COMPLETED
        assert counted.runs == {"plan": 1, "look": 1, "inner": 1, "end": 1}


@on_loop
async def test_an_entrypoint_is_a_graph_too() -> None:
    counted = Counted()

    @task
    def double(number: int) -> int:
        counted.runs["double"] += 1
        return 2 * number

    @entrypoint()
    async def sum_up(numbers: list[int]) -> dict[str, Any]:
        doubled = await asyncio.gather(*(double(each) for each in numbers))
        return {"sum": sum(doubled), "said": interrupt("Enough?")}

    async with Engine(":memory:") as engine:
        session = await engine.start(workflow(sum_up, name="sums"), session_id="one", input=[1, 2, 3])
        await session.outcome()
        (question,) = await engine.session("one").questions()
        await engine.answer(question.id, "yes")
        assert (await session.outcome()).state.output == {"sum": 12, "said": "yes"}
        assert counted.runs == {"double": 3}


@on_loop
async def test_the_text_of_chat_models_is_streamed_to_followers() -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("a squid has three hearts")]))

    async def answer(state: Notes) -> dict[str, list[str]]:
        return {"notes": [str((await model.ainvoke("squid?")).content)]}

    graph = chain(("answer", answer), ("ask", Counted().asking("ask")))
    async with Engine(":memory:") as engine:
        agent = workflow(graph, name="notes", stream=True)
        session = await engine.start(agent, session_id="one", input={"notes": []})
        heard = [each.data async for each in session.stream() if isinstance(each, StreamChunk)]
        assert "".join(map(str, heard)) == "a squid has three hearts"
        assert len(heard) > 3
        done = [each.summary async for each in session.events(follow=False) if each.event_type == "operation.completed"]
        assert done == ["thread", "answer"]


@on_loop
async def test_calls_of_durable_functions_without_a_key_belong_to_their_node() -> None:
    given: list[int] = []

    @durable
    def ticket() -> int:
        given.append(len(given) + 1)
        return given[-1]

    def first(state: Notes) -> dict[str, list[str]]:
        return {"notes": [f"first {ticket()}"]}

    def second(state: Notes) -> dict[str, list[str]]:
        number = ticket()
        return {"notes": [f"second {number} {interrupt('go on?')} {ticket()}"]}

    graph = chain(("first", first), ("second", second))
    async with Engine(":memory:", hold=0) as engine:
        session = await engine.start(workflow(graph, name="notes"), session_id="one", input={"notes": []})
        await session.outcome()
        await answered(engine, go="yes")
        assert (await session.outcome()).state.output == {"notes": ["first 1", "second 2 yes 3"]}
        assert given == [1, 2, 3]
        assert not [each async for each in session.events(follow=False) if each.event_type == "operation.missed"]


@pytest.mark.parametrize("nested", [False, True])
@on_loop
async def test_a_graph_without_the_node_that_waits_is_refused(nested: bool, tmp_path: Path) -> None:
    counted = Counted()

    def notes(node: str) -> Any:
        graph = chain(("draft", counted.node("draft")), (node, counted.asking("ask")), ("end", counted.node("end")))
        return workflow(chain(("team", graph.compile())) if nested else graph, name="notes")

    async with Engine(tmp_path / "notes.db", hold=0) as engine:
        await (await engine.start(notes("approve"), session_id="one", input={"notes": []})).outcome()
    async with Engine(tmp_path / "notes.db", workflows=[notes("review")], hold=0) as engine:
        await answered(engine, ask="yes")
        failure = (await engine.session("one").info()).failure
        assert "has to continue in 'approve', which the graph no longer has" in str(failure)
    async with Engine(tmp_path / "notes.db", workflows=[notes("approve")], hold=0) as engine:
        await engine.session("one").resume()
        await engine.session("one").outcome()
        assert counted.runs == {"draft": 1, "ask": 1, "end": 1}


@dataclass
class Point:
    """A type that no schema mentions."""

    x: int


@on_loop
async def test_a_graph_does_not_continue_with_a_dict_in_the_place_of_a_type(tmp_path: Path) -> None:
    def stamp(state: Notes) -> dict[str, list[Any]]:
        return {"notes": [Point(3)]}

    def ask(state: Notes) -> dict[str, list[Any]]:
        (point,) = state["notes"]
        return {"notes": [interrupt(point), point.x]}  # type: ignore[attr-defined]

    graph = chain(("stamp", stamp), ("ask", ask))
    async with Engine(tmp_path / "notes.db", hold=0) as engine:
        await (await engine.start(workflow(graph, name="notes"), session_id="one", input={"notes": []})).outcome()
        await answered(engine, Node="yes")
        assert "has a value of tests.integrations.test_langgraph.Point in channel 'notes'" in str(
            (await engine.session("one").info()).failure
        )
    agent = workflow(graph, name="notes", allow=[Point])
    async with Engine(tmp_path / "notes.db", workflows=[agent], hold=0) as engine:
        await engine.session("one").resume()
        outcome = await engine.session("one").outcome()
        assert outcome.state.model_dump()["output"] == {"notes": [{"x": 3}, "yes", 3]}


@on_loop
async def test_a_breakpoint_of_a_subgraph_that_a_node_calls_fails_the_session() -> None:
    counted = Counted()
    inner = chain(("look", counted.node("look")), ("pay", counted.node("pay"))).compile(interrupt_before=["pay"])
    hidden = [inner]

    async def call(state: Notes) -> Any:
        return await hidden[0].ainvoke(state)

    async with Engine(":memory:", hold=0) as engine:
        agent = workflow(chain(("call", call)), name="notes")
        session = await engine.start(agent, session_id="one", input={"notes": []})
        assert "stopped in 'call' and asks nothing" in str((await session.outcome()).failure)
        assert counted.runs == {"look": 1}


def test_graphs_that_cannot_be_workflows_are_refused() -> None:
    counted = Counted()
    graph = chain(("a", counted.node("a")), ("b", counted.node("b")))
    with pytest.raises(DefinitionError, match="interrupt_before or interrupt_after"):
        workflow(graph.compile(interrupt_before=["b"]), name="notes")
    outer = chain(("team", graph.compile(interrupt_after=["a"])))
    with pytest.raises(DefinitionError, match="the subgraph 'team' was compiled with interrupt_before or"):
        workflow(outer, name="notes")
    outer = chain(("team", graph.compile(checkpointer=InMemorySaver())))
    with pytest.raises(DefinitionError, match="the subgraph 'team' was compiled with a checkpointer of its own"):
        workflow(outer, name="notes")
    workflow(graph.compile(checkpointer=InMemorySaver()), name="notes")


def test_without_the_extra_the_import_says_how_to_install_it() -> None:
    text = "import sys; sys.modules['langgraph'] = None; import pausepoint.integrations.langgraph"
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=environment(), timeout=PATIENCE
    )
    assert "Install it with pip install 'pausepoint[langgraph]'." in done.stderr
