"""LangGraph with its SQLite checkpointer, ``durability="sync"``, and delta channels for lists and large fields.

A session is a thread of a graph, a step is a superstep. The saver for plain functions is used everywhere, also with
threads for many sessions at once: it is faster here than the one for asyncio.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

from benchmarks.peers.contender import Contender, Job, Sample, main, message, reply, settle, stored, text

FILE = "langgraph.db"
MOST = 10_000_000


def join(state: Any, writes: Sequence[Any]) -> Any:
    """Add all items of the writes to a list, as the reducer of a delta channel."""
    return [*state, *[item for write in writes for item in write]]


def last(state: Any, writes: Sequence[Any]) -> Any:
    """Keep the last write."""
    return writes[-1] if writes else state


class Page(TypedDict):
    """The fields of all graphs here; a graph uses some of them."""

    n: int
    text: str
    items: Annotated[list[str], DeltaChannel(join)]
    ballast: Annotated[str, DeltaChannel(last)]


class Spread(TypedDict):
    """The state of a map: the results of the items."""

    count: int
    results: Annotated[list[str], DeltaChannel(join)]


class LangGraph(Contender):
    """Graphs of LangGraph."""

    name = "langgraph"
    packages = ("langgraph", "langgraph-checkpoint-sqlite")

    def lone(self, job: Job) -> Sample:
        return _lone(job, lambda n: {"text": text(n)}, {"n": 0})

    def growing(self, job: Job) -> Sample:
        return _lone(job, lambda n: {"items": [text(n)]}, {"n": 0})

    def beside(self, job: Job) -> Sample:
        first = {"n": 0, "ballast": text(0, job.size["ballast"])}
        return _lone(job, lambda n: {"text": text(n, 100)}, first)

    def crowd(self, job: Job) -> Sample:
        return _crowd(job)

    def resume_prepare(self, job: Job) -> Sample:
        def stop(n: int) -> dict[str, Any]:
            if n == job.steps:
                os._exit(0)
            return {"text": text(n)}

        graph = _looping(job, stop, lambda n: True)
        graph.compile(checkpointer=_saver(job)).invoke({"n": 0}, _config(), durability="sync")
        raise AssertionError("the process should have ended")

    def resume(self, job: Job) -> Sample:
        begin = time.perf_counter()
        found: list[float] = []

        def stop(n: int) -> dict[str, Any]:
            found.append(time.perf_counter())
            return {"text": text(n)}

        graph = _looping(job, stop, lambda n: False).compile(checkpointer=_saver(job))
        state = graph.invoke(None, _config(), durability="sync")
        assert state["n"] == job.steps + 1
        return Sample(found[0] - begin)

    def questions(self, job: Job) -> Sample:
        def ask(state: Page) -> dict[str, Any]:
            answer = interrupt({"question": "Formal or playful?", "choices": ["formal", "playful"]})
            return {"text": answer}

        builder: Any = StateGraph(Page)
        builder.add_node("ask", ask)
        builder.add_edge(START, "ask")
        graph = builder.compile(checkpointer=_saver(job))
        n = 0
        while n < job.sessions and job.in_time:
            assert "__interrupt__" in graph.invoke({"n": n}, _config(f"session-{n}"), durability="sync")
            n += 1
        settle(job.folder / FILE)
        return Sample(count=n, bytes=stored(job.folder))

    def map(self, job: Job) -> Sample:
        builder: Any = StateGraph(Spread)
        builder.add_node("item", lambda given: {"results": [text(given["n"], 100)]})
        sends = [Send("item", {"n": n}) for n in range(job.size["items"])]
        builder.add_conditional_edges(START, lambda state: sends, ["item"])
        graph = builder.compile(checkpointer=_saver(job))
        begin = time.perf_counter()
        state = graph.invoke({"count": 0}, _config(), durability="sync")
        assert len(state["results"]) == job.size["items"]
        return Sample(time.perf_counter() - begin, job.size["items"])

    def chat_prepare(self, job: Job) -> Sample:
        graph = _chat(job)
        for n in range(job.size["turns"]):
            graph.invoke({"items": [message(n)]}, _config(), durability="sync")
        return Sample()

    def chat(self, job: Job) -> Sample:
        begin = time.perf_counter()
        graph = _chat(job)
        for n in range(job.size["warm"]):
            graph.invoke({"items": [message(n)]}, _config(), durability="sync")
        if job.size["warm"]:
            begin = time.perf_counter()
        for n in range(job.size["turns"]):
            graph.invoke({"items": [message(n)]}, _config(), durability="sync")
        return Sample(time.perf_counter() - begin, job.size["turns"], notes={"total": time.time() - job.spawned})

    def listing_prepare(self, job: Job) -> Sample:
        saver = _saver(job)
        saver.conn.execute("PRAGMA synchronous = OFF")  # only to fill the store faster
        builder: Any = StateGraph(Page)
        builder.add_node("once", lambda state: {"text": "done"})
        builder.add_edge(START, "once")
        graph = builder.compile(checkpointer=saver)
        done = 0
        while job.in_time and done < job.sessions:
            graph.invoke({"n": done}, _config(f"session-{done}"), durability="exit")
            done += 1
        return Sample(count=done)

    def listing(self, job: Job) -> Sample:
        """Read the newest 50 checkpoints of all threads, which is what the saver can list."""
        saver = _saver(job)
        begin = time.perf_counter()
        for _ in range(job.size["reads"]):
            assert len(list(saver.list(None, limit=50))) == 50
        return Sample(time.perf_counter() - begin, job.size["reads"])


def _saver(job: Job) -> SqliteSaver:
    saver = SqliteSaver(sqlite3.connect(job.folder / FILE, check_same_thread=False))
    saver.setup()  # sets WAL; synchronous is FULL by default
    return saver


def _config(thread: str = "one") -> Any:
    return {"configurable": {"thread_id": thread}, "recursion_limit": MOST}


def _looping(job: Job, work: Any, more: Any) -> Any:
    def node(state: Page) -> dict[str, Any]:
        job.begins(state["n"])
        return {"n": state["n"] + 1, **work(state["n"])}

    builder: Any = StateGraph(Page)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_conditional_edges("node", lambda state: "node" if more(state["n"]) else END)
    return builder


def _lone(job: Job, work: Any, first: dict[str, Any]) -> Sample:
    graph = _looping(job, work, job.more).compile(checkpointer=_saver(job))
    graph.invoke(first, _config(), durability="sync")
    return job.per_step()


def _crowd(job: Job, threads: int = 8) -> Sample:
    def node(state: Page) -> dict[str, Any]:
        return {"n": state["n"] + 1, "text": text(state["n"])}

    builder: Any = StateGraph(Page)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_conditional_edges("node", lambda state: "node" if job.more(state["n"]) else END)
    graph = builder.compile(checkpointer=_saver(job))

    def one(n: int) -> int:
        return int(graph.invoke({"n": 0}, _config(f"session-{n}"), durability="sync")["n"])

    job.mark()
    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(one, range(job.sessions)))
    return job.took(done)


def _chat(job: Job) -> Any:
    def answer(state: Page) -> dict[str, Any]:
        return {"items": [reply(len(state["items"][-20:]))]}

    builder: Any = StateGraph(Page)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=_saver(job))


if __name__ == "__main__":
    main(LangGraph())
