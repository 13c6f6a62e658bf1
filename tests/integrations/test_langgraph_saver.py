"""`PausepointSaver`: LangGraph's conformance suite, values that grow, and what it refuses to load."""

from __future__ import annotations

import asyncio
import operator
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from benchmarks import langgraph
from benchmarks.langgraph import Work, measured, missed, with_saver
from pausepoint import Engine
from pausepoint.errors import CallRefused, StoreClosed
from pausepoint.integrations.langgraph import PausepointSaver, values
from pausepoint.integrations.langgraph.threads import Found, StoredCheckpoint, Threads
from pausepoint.integrations.langgraph.values import DEEPEST
from pausepoint.model.drawers import LARGEST
from pausepoint.runtime.drawers import Drawer
from tests.peers.conformance import conformance
from tests.support.loop import PATIENCE, on_loop


@pytest.mark.long
@on_loop
async def test_it_passes_the_conformance_suite(tmp_path: Path) -> None:
    assert await conformance(tmp_path / "threads.db") == (81, [])


class Chat(TypedDict):
    """The state of a graph that adds one message at a time."""

    turns: int
    messages: Annotated[list[Any], operator.add]


def say(state: Chat) -> dict[str, Any]:
    return {"turns": state["turns"] + 1, "messages": [{"text": f"{state['turns']:0200}"}]}


def chat(saver: PausepointSaver) -> Any:
    builder: Any = StateGraph(Chat)
    builder.add_node("say", say)
    builder.add_edge(START, "say")
    builder.add_conditional_edges("say", lambda state: "say" if state["turns"] % 100 else "__end__")
    return builder.compile(checkpointer=saver)


THREAD: Any = {"configurable": {"thread_id": "ann/1"}, "recursion_limit": 200}


def stored(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.iterdir() if not each.name.endswith("-ballast"))


@pytest.mark.long
def test_a_growing_list_is_stored_as_what_was_added_and_every_version_can_be_read(tmp_path: Path) -> None:
    with PausepointSaver(tmp_path / "threads.db") as saver:
        chat(saver).invoke({"turns": 0, "messages": []}, THREAD)
    with PausepointSaver(tmp_path / "threads.db") as saver:  # as another process: nothing is known about the versions
        graph = chat(saver)
        assert graph.invoke({"turns": 100}, THREAD)["turns"] == 200
        history = [each.values["messages"] for each in graph.get_state_history(THREAD)]
        assert sorted({len(each) for each in history}) == [*range(201)]
        assert all([int(item["text"]) for item in each] == [*range(len(each))] for each in history)
        latest = graph.get_state(THREAD).values["messages"]
        saver.prune(["ann/1"])
        assert graph.get_state(THREAD).values["messages"] == latest
        assert [len(each.values["messages"]) for each in graph.get_state_history(THREAD)] == [200]
    assert DEEPEST * 3 < 200, "some versions are stored as a whole again"
    assert stored(tmp_path) < 200 * 200 * 200 // 2 // 5, "a fifth of what all versions take"


def test_an_item_changed_in_place_is_stored_as_it_is_now(tmp_path: Path) -> None:
    with PausepointSaver(tmp_path / "threads.db") as saver:
        items: list[dict[str, int]] = [{"n": 1}]
        items_of = "猫" * 150  # as a part of a key, this is too long
        config: Any = {"configurable": {"thread_id": "猫" * 150, "checkpoint_ns": ""}}
        version = None
        for _ in range(3):
            items.append({"n": len(items)})
            items[0]["n"] += 1
            version = saver.get_next_version(version, None)
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"], checkpoint["channel_versions"] = {items_of: items}, {items_of: version}
            saver.put(config, checkpoint, {}, {items_of: version})
            found = saver.get_tuple(config)
            assert found is not None
            assert found.checkpoint["channel_values"][items_of] == items


@pytest.mark.long
def test_a_thread_with_large_values_is_copied_and_listed_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    complete = Threads.complete

    async def counting(self: Threads, checkpoint: StoredCheckpoint) -> Found:
        read.append(checkpoint.id)
        return await complete(self, checkpoint)

    monkeypatch.setattr(Threads, "complete", counting)
    with PausepointSaver(tmp_path / "threads.db") as saver:
        config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
        for number in range(3):  # more than a drawer takes in one call
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"photo": bytes([number]) * (LARGEST // 3 + 1)}
            checkpoint["channel_versions"] = {"photo": f"v{number}"}
            config = saver.put(config, checkpoint, {}, checkpoint["channel_versions"])
        saver.copy_thread("one", "two")
        listed = saver.list({"configurable": {"thread_id": "two"}})
        assert next(listed).checkpoint["channel_values"]["photo"][:1] == b"\2"
        assert len(read) == 1
        assert [each.checkpoint["channel_values"]["photo"][0] for each in listed] == [1, 0]


def test_prune_reads_only_the_values_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    with PausepointSaver(":memory:") as saver:
        config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
        for number in range(4):
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"photo": bytes([number]) * 100_000}
            checkpoint["channel_versions"] = {"photo": f"v{number}"}
            config = saver.put(config, checkpoint, {}, checkpoint["channel_versions"])
        for verb in (Drawer.get_all, Drawer.values):
            monkeypatch.setattr(Drawer, verb.__name__, weighing(verb, sizes))
        saver.prune(["one"])
        assert 100_000 < sum(sizes) < 110_000
        (left,) = saver.list({"configurable": {"thread_id": "one"}})
        assert left.checkpoint["channel_values"]["photo"][:1] == b"\3"


def weighing(verb: Any, sizes: list[int]) -> Any:
    """Return a verb of a drawer that also notes how many bytes it has read."""

    async def read(*given: Any, **options: Any) -> Any:
        found = await verb(*given, **options)
        sizes.extend(len(each.data) for each in found.values())
        return found

    return read


@dataclass
class Point:
    """A type of a user."""

    x: int


def test_only_types_that_are_allowed_are_loaded(tmp_path: Path) -> None:
    config: Any = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
    for allow, wanted in (((), {"x": 1}), ((Point,), Point(1))):
        with PausepointSaver(tmp_path / "threads.db", allow=allow) as saver:
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"], checkpoint["channel_versions"] = {"at": Point(1)}, {"at": f"v{len(allow)}"}
            saver.put(config, checkpoint, {}, checkpoint["channel_versions"])
            found = saver.get_tuple(config)
            assert found is not None
            assert found.checkpoint["channel_values"]["at"] == wanted


@on_loop
async def test_one_saver_serves_blocking_and_async_graphs_until_it_is_closed(tmp_path: Path) -> None:
    saver = PausepointSaver(tmp_path / "threads.db")
    await asyncio.to_thread(chat(saver).invoke, {"turns": 98, "messages": []}, THREAD)
    state = await chat(saver).aget_state(THREAD)
    assert state.values["turns"] == 100
    saver.close()
    with pytest.raises(StoreClosed, match="The saver is closed"):
        await saver.aget_tuple(THREAD)
    async with Engine(tmp_path / "threads.db") as engine:  # with the engine of a program, in its own event loop
        shared = PausepointSaver(engine)
        found = await shared.aget_tuple(THREAD)
        assert found is not None
        assert found.checkpoint["channel_values"]["turns"] == 100
        assert await asyncio.to_thread(shared.get_tuple, THREAD) == found
        with pytest.raises(TypeError, match="In blocking code, pass the URL"):
            PausepointSaver(object())  # type: ignore[arg-type]
        with pytest.raises(CallRefused, match="async methods of the graph"):
            shared.get_tuple(THREAD)
        await shared.adelete_thread("ann/1")
        assert await engine.drawer("langgraph").values() == {}


@on_loop
async def test_a_saver_can_be_made_and_used_on_another_event_loop_than_that_of_its_engine(tmp_path: Path) -> None:
    async def elsewhere() -> int:
        saver = PausepointSaver(engine)
        return int((await chat(saver).ainvoke({"turns": 98, "messages": []}, THREAD))["turns"])

    async with Engine(tmp_path / "threads.db") as engine:
        assert await asyncio.to_thread(asyncio.run, elsewhere()) == 100
        saver = await asyncio.to_thread(PausepointSaver, engine)  # where no event loop runs
        assert (await chat(saver).aget_state(THREAD)).values["turns"] == 100


def test_a_saver_whose_engine_has_a_stopped_event_loop_says_so() -> None:
    loop, engine = asyncio.new_event_loop(), Engine(":memory:", signals=False)
    try:
        loop.run_until_complete(engine.__aenter__())
        with pytest.raises(StoreClosed, match=r"does not run\. Keep it running"):
            PausepointSaver(engine).get_tuple(THREAD)
        loop.run_until_complete(engine.close())
    finally:
        loop.close()


@on_loop
async def test_closing_a_saver_during_calls_ends_them_with_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Semaphore(0)

    async def endless(*given: Any) -> None:
        begun.release()
        await asyncio.Event().wait()

    monkeypatch.setattr(Threads, "get", endless)
    saver = PausepointSaver(tmp_path / "threads.db")
    calls = [
        asyncio.create_task(asyncio.to_thread(saver.get_tuple, THREAD)),
        asyncio.ensure_future(saver.aget_tuple(THREAD)),
    ]
    for _ in calls:
        assert await asyncio.to_thread(begun.acquire, timeout=PATIENCE)
    await asyncio.to_thread(saver.close)
    for call in calls:
        with pytest.raises(StoreClosed, match="was closed during this call"):
            await asyncio.wait_for(call, PATIENCE)


@pytest.mark.long
def test_the_benchmark_measures_all_savers_and_checks_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(langgraph, "LOADS", 2)
    work = Work("growing", 30, 16384, 0)
    costs = [each._replace(load_ms=1.0) for each in measured(work, 1, tmp_path)]  # the machine may be busy
    assert [each.saver for each in costs] == ["checkpoint-sqlite", "PausepointSaver", "workflow()"]
    assert missed(costs) == []
    assert missed([each._replace(load_ms=9.0) for each in costs]) == [
        "Loading the growing state takes 9.0 ms; limit 3.0."
    ]
    monkeypatch.setattr(values, "DEEPEST", 0)  # every version is stored as a whole
    broken = asyncio.run(with_saver("PausepointSaver", work, tmp_path))
    assert missed([costs[0], broken._replace(load_ms=1.0)])[0].startswith("A growing state takes 1.")
