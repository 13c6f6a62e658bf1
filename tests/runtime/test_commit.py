"""``ctx.commit`` stores events and spending at once, and is progress against the limit of crashes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from pausepoint import BlockingContext, Context, Engine, Status, Workflow, step
from pausepoint.testing import ManualClock
from tests.support.chat import history
from tests.support.loop import PATIENCE, on_loop
from tests.support.mortal import MortalStore, crash
from tests.support.twice import State


@on_loop
async def test_events_and_spending_are_stored_before_the_step_continues() -> None:
    seen: list[tuple[list[str], float, int]] = []

    @step(writes="text")
    async def work(ctx: Context) -> str:
        ctx.emit("note", "one", n=1)
        ctx.spend(usd=0.25, tokens=7)
        await ctx.commit()
        info = await engine.session(ctx.session_id).info()
        notes = [event.summary async for event in engine.session(ctx.session_id).events() if event.event_type == "note"]
        seen.append((notes, info.spent_usd, info.spent_tokens))
        return "done"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work], events=["note"]))
        assert (await session.outcome()).status is Status.COMPLETED
        assert (await session.info()).spent_usd == 0.25
    assert seen == [(["one"], 0.25, 7)]


@on_loop
async def test_a_blocking_step_commits_too_and_a_retry_does_not_repeat_it() -> None:
    committed, go = threading.Event(), threading.Event()

    @step(writes="text", retry=2)
    def work(ctx: BlockingContext) -> str:
        ctx.emit("note", "one")
        ctx.commit()
        committed.set()
        go.wait(PATIENCE)
        if ctx.attempt == 1:
            raise ConnectionError
        return "done"

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work], events=["note"]))
        assert await asyncio.to_thread(committed.wait, PATIENCE)
        assert (await history(session)).count("note") == 1  # while the step still runs
        go.set()
        assert (await session.outcome()).status is Status.COMPLETED
        assert (await history(session)).count("note") == 1


@on_loop
async def test_spending_that_is_committed_counts_for_the_next_operation() -> None:
    ran: list[int] = []

    @step(writes="text")
    async def work(ctx: Context) -> str:
        for n in range(5):
            ctx.spend(usd=0.01)
            await ctx.commit()
            await ctx.do(ran.append, n)
        return "done"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]), budget=0.02)
        outcome = await session.outcome()
        assert (outcome.status, outcome.pauses[0].kind) == (Status.PAUSED, "budget")
        assert ((await session.info()).spent_usd, ran) == (0.02, [0])


@pytest.mark.parametrize("commits", [True, False])
@on_loop
async def test_a_received_message_is_stored_too(commits: bool) -> None:
    @step(writes="text", retry=2)
    async def work(ctx: Context) -> str:
        got = await ctx.receive()
        if commits:
            await ctx.commit()
        left.append(len(await engine.store.mail((await engine._service.row(ctx.session_id)).key)))
        if ctx.attempt == 1:
            raise ConnectionError("down")
        return got

    left: list[int] = []
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await session.send("hello")
        assert (await session.outcome()).state.text == "hello"
        assert left == ([0, 0] if commits else [1, 1])


class Graph:
    """A step that keeps its progress itself, as a graph does in its own tables. The process dies after each node."""

    def __init__(self, path: Path, commits: str) -> None:
        self.path, self.commits = path, commits
        self.nodes = 0
        self.stuck = asyncio.Event()

        @step(writes="text")
        async def graph(ctx: Context) -> str:
            ctx.emit("note", "started")
            if self.nodes < 6:
                self.nodes += 1
                await self.commit(ctx)
                self.stuck.set()
                await asyncio.Event().wait()
            return f"{self.nodes} nodes"

        self.workflow = Workflow("graphs", state=State, steps=[graph], events=["note"])

    async def commit(self, ctx: Context) -> None:
        if self.commits == "events":
            ctx.emit("note", f"node {self.nodes}")
        if self.commits != "never":
            await ctx.commit()

    async def kill_until_it_ends(self) -> tuple[Status, str]:
        """Kill the engine whenever a node has run. Return how the session stopped."""
        while True:
            self.stuck.clear()
            engine = await Engine(MortalStore(self.path), workflows=[self.workflow], signals=False).__aenter__()
            session = await engine.start(self.workflow, session_id="g")
            stopped = asyncio.ensure_future(session.outcome())
            await asyncio.wait(
                [stopped, stuck := asyncio.ensure_future(self.stuck.wait())], return_when=asyncio.FIRST_COMPLETED
            )
            stuck.cancel()
            if not self.stuck.is_set():
                outcome = await stopped
                await engine.close()
                return outcome.status, outcome.state.text
            stopped.cancel()
            await crash(engine)


@pytest.mark.covers("S3.85")
@pytest.mark.parametrize("commits", ["events", "bare"])
@on_loop
async def test_kills_with_commits_between_do_not_pause_the_session(tmp_path: Path, commits: str) -> None:
    graph = Graph(tmp_path / "h.db", commits)
    assert await graph.kill_until_it_ends() == (Status.COMPLETED, "6 nodes")
    async with Engine(tmp_path / "h.db") as engine:
        notes = [event.summary async for event in engine.session("g").events() if event.event_type == "note"]
    nodes = [f"node {n}" for n in range(1, 7)] if commits == "events" else []
    assert notes == ["started", *nodes]


@on_loop
async def test_without_commits_the_same_kills_pause_it(tmp_path: Path) -> None:
    graph = Graph(tmp_path / "h.db", "never")
    status, _ = await graph.kill_until_it_ends()
    assert (status, graph.nodes) == (Status.PAUSED, 3)
