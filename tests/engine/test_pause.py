"""Pausing: from anywhere, at any time, with who and why; and where it takes effect."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import BlockingContext, Context, Engine, Session, Status, Workflow, step
from holdfast.errors import StepLeft, UnknownSession
from holdfast.model import Commit
from holdfast.stores.sqlite import SqliteStore
from tests.support.children import outside_sql, run_child
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore
from tests.support.pipeline import FINISHED, STEPS, Gate, Pipeline, until


@pytest.mark.covers("S1.41", "S1.42", "S1.44", "S1.45", "S1.46", "S1.5", "S1.57", "S1.56", "S1.54", "S1.55")
@pytest.mark.parametrize("name", STEPS[:-1])
@on_loop
async def test_a_pause_during_a_step_lets_it_end_keeps_it_and_starts_no_other(name: str) -> None:
    pipeline = Pipeline()
    gate = pipeline.hold(name)
    following = STEPS[STEPS.index(name) + 1]
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        await gate.reached.wait()
        assert await session.pause() is Status.PAUSING
        gate.opened.set()
        outcome = await session.outcome()
        assert outcome.session_id == session.id
        assert (outcome.status, outcome.state) == (Status.PAUSED, until(following))
        assert pipeline.calls == list(STEPS[: STEPS.index(following)])
        info = await session.info()
        assert (info.status, info.step) == (Status.PAUSED, following)  # status is not position
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state) == (Status.COMPLETED, FINISHED)
        assert pipeline.calls == list(STEPS)
        assert (await session.info()).pause_requested is False


@pytest.mark.covers("S1.43")
@on_loop
async def test_a_session_can_be_started_paused_and_runs_nothing_until_it_is_resumed() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, paused=True, reason="not before Monday", by="ann")
        outcome = await session.outcome()
        assert (outcome.status, outcome.state, pipeline.calls) == (Status.PAUSED, until("outline"), [])
        assert [(pause.by, pause.reason) for pause in outcome.pauses] == [("ann", "not before Monday")]
        await session.resume()
        assert (await session.outcome()).state == FINISHED


@pytest.mark.covers("S1.47", "S1.21", "S1.20")
@pytest.mark.parametrize("how", ["api", "by hand"])
@on_loop
async def test_another_process_can_pause_a_run_and_no_checkpoint_overwrites_that(how: str, tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    pipeline = Pipeline()
    gate = pipeline.hold("draft")
    look = "SELECT * FROM sessions"
    async with Engine(path) as engine:
        session = await engine.start(pipeline.workflow, session_id="memo-1")
        await gate.reached.wait()
        before = await asyncio.to_thread(outside_sql, path, look)
        if how == "api":
            program = 'async with Engine(args[0]) as engine: print((await engine.pause("memo-1", by="eve"))[0].status)'
            assert await asyncio.to_thread(run_child, program, path) == "pausing"
        else:
            sql = "UPDATE workflow_states SET pause_requested = 1 WHERE session_id = 'memo-1'"
            await asyncio.to_thread(outside_sql, path, sql)
        after = await asyncio.to_thread(outside_sql, path, look)
        if how == "by hand":
            assert after == [before[0] | {"pause_requested": 1}]
        gate.opened.set()  # the step's checkpoint comes after the request
        outcome = await session.outcome()
        assert (outcome.status, outcome.state) == (Status.PAUSED, until("verdict"))
        assert [pause.by for pause in outcome.pauses] == ["eve" if how == "api" else None]
        assert pipeline.calls == ["outline", "draft"]
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.state, outcome.pauses) == (FINISHED, ())


@on_loop
async def test_a_pause_from_another_process_is_seen_at_a_safe_point_without_a_commit_in_between(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    rounds: list[int] = []
    begun = asyncio.Event()

    @step
    async def long(ctx: Context) -> None:
        begun.set()
        while True:
            rounds.append(len(rounds))
            await ctx.safe_point()
            await asyncio.sleep(0.005)

    async with Engine(path) as engine:
        session = await engine.start(Workflow("long", state=State, steps=[long]))
        await begun.wait()
        await asyncio.to_thread(outside_sql, path, "UPDATE workflow_states SET pause_requested = 1")
        assert (await session.outcome()).status is Status.PAUSED


class State(BaseModel):
    done: list[str] = []
    text: str = ""


@on_loop
async def test_who_paused_and_why_is_told_by_the_pauses_the_outcome_and_the_history() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("outline")
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        await gate.reached.wait()
        await session.pause("lunch", by="ann")
        (pause,) = await session.pauses()
        assert (pause.kind, pause.by, pause.reason, pause.step) == ("operator", "ann", "lunch", "outline")
        gate.opened.set()
        assert (await session.outcome()).pauses == (pause,)
        told = {event.event_type: event.summary async for event in session.events()}
        assert told["pause.requested"] == "ann asked to pause: lunch"
        assert told["session.paused"] == "paused by ann: lunch"


@pytest.mark.covers("S1.50")
@on_loop
async def test_pausing_twice_is_no_error_and_changes_nothing() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, paused=True, by="ann", reason="first")
        before = (await session.info(), await session.pauses(), [event async for event in session.events()])
        assert await session.pause("second", by="bob") is Status.PAUSED
        assert before == (await session.info(), await session.pauses(), [event async for event in session.events()])


@pytest.mark.covers("S1.49")
@on_loop
async def test_pausing_an_unknown_session_is_a_clear_error() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(UnknownSession, match="no session 'nobody'"):
            await engine.pause("nobody")


@pytest.mark.covers("S1.51")
@on_loop
async def test_a_pause_after_the_last_step_has_begun_ends_completed_and_says_so() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("report")
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        await gate.reached.wait()
        assert await session.pause("too late") is Status.PAUSING
        gate.opened.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state) == (Status.COMPLETED, FINISHED)
        assert await session.pause("even later") is Status.COMPLETED
        assert (await engine.pause(session.id))[0].status is Status.COMPLETED


@on_loop
async def test_a_resume_while_pausing_takes_the_pause_back() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("draft")
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        await gate.reached.wait()
        await session.pause("lunch", by="ann")
        await session.resume(by="bob")
        assert await session.status() is Status.RUNNING
        gate.opened.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state, outcome.pauses) == (Status.COMPLETED, FINISHED, ())
        types = [event.event_type async for event in session.events()]
        assert "session.paused" not in types
        assert pipeline.calls == list(STEPS)


# many at once


@on_loop
async def test_sessions_are_paused_by_workflow_tag_and_owner_and_all_at_once() -> None:
    pipeline, other = Pipeline(), Workflow("other", state=State, steps=[wait_for_ever])
    pipeline.hold("outline")
    async with Engine(":memory:") as engine:
        a = await engine.start(pipeline.workflow, owner="ann", tags=["red"])
        b = await engine.start(pipeline.workflow, owner="bob", tags=["red", "blue"])
        c = await engine.start(other, owner="ann")

        async def hit(**query: Any) -> set[str]:
            rows = await engine.pause(mode="abort", **query)
            assert {row.status for row in rows} <= {Status.PAUSING}
            for session in (a, b, c):
                if session.id in {row.session_id for row in rows}:
                    assert (await session.outcome()).status is Status.PAUSED
                    await session.resume()
            return {row.session_id for row in rows}

        assert await hit(workflow="pipeline") == {a.id, b.id}
        assert await hit(workflow="other") == {c.id}
        assert await hit(tag="blue") == {b.id}
        assert await hit(tag="red") == {a.id, b.id}
        assert await hit(owner="ann") == {a.id, c.id}
        assert await hit(owner="ann", workflow="other") == {c.id}
        assert await hit(tag="green") == set()
        assert await hit(everything=True) == {a.id, b.id, c.id}


@step
async def wait_for_ever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("query", [{}, {"everything": True, "tag": "x"}, {"everything": True, "session_id": "x"}])
@on_loop
async def test_a_pause_of_everything_must_be_said_and_said_alone(query: dict[str, Any]) -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(ValueError, match="everything=True alone"):
            await engine.pause(**query)


@on_loop
async def test_an_unknown_mode_is_refused() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Pipeline().workflow, paused=True)
        with pytest.raises(ValueError, match="'finish' or 'abort'"):
            await session.pause(mode="now")  # type: ignore[arg-type]  # wrong on purpose


# abort


@on_loop
async def test_abort_cancels_the_step_at_once_and_it_runs_again_on_resume() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("draft")
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        await gate.reached.wait()
        assert await session.pause("stop!", mode="abort") is Status.PAUSING
        outcome = await session.outcome()  # the gate is still closed
        assert (outcome.status, outcome.state) == (Status.PAUSED, until("draft"))
        gate.opened.set()
        await session.resume()
        assert (await session.outcome()).state == FINISHED
        assert pipeline.calls == ["outline", "draft", "draft", "verdict", "report"]


@on_loop
async def test_abort_overrides_a_pause_that_lets_the_step_end() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("draft")
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        await gate.reached.wait()
        await session.pause()
        await asyncio.sleep(0)
        assert await session.status() is Status.PAUSING
        await session.pause(mode="abort")
        assert (await session.outcome()).status is Status.PAUSED
        assert [pause.mode for pause in await session.pauses()] == ["abort"]


@on_loop
async def test_a_plain_function_that_is_aborted_is_ended_at_its_next_call_and_its_late_result_is_discarded() -> None:
    go, over = threading.Event(), threading.Event()
    begun = asyncio.Event()
    ends: list[BaseException] = []
    loop = asyncio.get_running_loop()

    @step(writes="text")
    def slow(ctx: BlockingContext) -> str:
        if ends:
            return "second run"
        loop.call_soon_threadsafe(begun.set)
        go.wait(5)
        try:
            ctx.safe_point()
        except BaseException as error:
            ends.append(error)
            raise
        finally:
            over.set()
        return "first run"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("slow", state=State, steps=[slow]))
        await begun.wait()
        await session.pause(mode="abort")
        outcome = await session.outcome()  # the thread still stands
        assert (outcome.status, outcome.state) == (Status.PAUSED, State())
        go.set()
        await asyncio.to_thread(over.wait, 5)
        assert isinstance(ends[0], StepLeft)
        await session.resume()
        assert (await session.outcome()).state == State(text="second run")


@on_loop
async def test_a_plain_function_that_returns_after_its_abort_has_its_result_discarded() -> None:
    go, over = threading.Event(), threading.Event()
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    runs: list[int] = []

    @step(writes="text")
    def slow() -> str:
        runs.append(1)
        mine = len(runs)
        loop.call_soon_threadsafe(begun.set)
        if mine == 1:
            go.wait(5)
            over.set()
        return f"run {mine}"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("slow", state=State, steps=[slow]))
        await begun.wait()
        await session.pause(mode="abort")
        await session.outcome()
        await session.resume()
        assert (await session.outcome()).state.text == "run 2"
        go.set()
        await asyncio.to_thread(over.wait, 5)
        await asyncio.sleep(0.01)
        assert (await session.state()).text == "run 2"


# inside a step


async def held(session: Session[Any], gate: Gate, **how: Any) -> None:
    await gate.reached.wait()
    await session.pause(**how)


@on_loop
async def test_a_pause_never_takes_effect_in_the_middle_of_a_do() -> None:
    gate = Gate()
    ran: list[str] = []

    async def first() -> str:
        ran.append("first")
        await gate.hold()
        ran.append("first ended")
        return "one"

    async def second() -> str:
        ran.append("second")
        return "two"

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        return [await ctx.do(first), await ctx.do(second)]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work, finish]))
        await held(session, gate)
        await asyncio.sleep(0.01)
        assert await session.status() is Status.PAUSING
        gate.opened.set()
        outcome = await session.outcome()
        assert ran == ["first", "first ended", "second"]  # `finish` ends the step, there is no safe point in it
        assert (outcome.status, outcome.state.done) == (Status.PAUSED, ["one", "two"])


@step(writes="text")
async def finish(done: list[str]) -> str:
    return ",".join(done)


@pytest.mark.covers("S3.80")
@pytest.mark.parametrize("concurrency", [1, 2])
@on_loop
async def test_a_pause_takes_effect_before_the_next_item_of_a_map_and_no_finished_item_runs_again(
    concurrency: int,
) -> None:
    gate = Gate()
    ran: list[str] = []

    async def chunk(name: str) -> str:
        ran.append(name)
        if name in "cd":
            await gate.hold()
        return name.upper()

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        return await ctx.map(chunk, list("abcdef"), concurrency=concurrency)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await gate.reached.wait()
        while len(ran) < 2 + concurrency:
            await asyncio.sleep(0)
        await session.pause()
        gate.opened.set()
        outcome = await session.outcome()
        assert outcome.status is Status.PAUSED
        assert ran == list("abcd")[: 2 + concurrency]
        await session.resume()
        assert (await session.outcome()).state.done == list("ABCDEF")
        assert ran == list("abcdef")


@on_loop
async def test_a_pause_takes_effect_at_a_safe_point_and_what_was_remembered_is_not_done_again() -> None:
    gate = Gate()
    ran: list[str] = []

    async def note(what: str) -> str:
        ran.append(what)
        return what

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        ran.append("top")
        first = await ctx.do(note, "one")
        await gate.hold()
        await ctx.safe_point()
        return [first, await ctx.do(note, "two")]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await held(session, gate)
        gate.opened.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state, ran) == (Status.PAUSED, State(), ["top", "one"])
        await session.resume()
        assert (await session.outcome()).state.done == ["one", "two"]
        assert ran == ["top", "one", "top", "two"]


@pytest.mark.parametrize("style", ["gather", "TaskGroup"])
@on_loop
async def test_a_pause_inside_concurrent_branches_waits_for_what_is_in_flight_and_leaves_the_rest(style: str) -> None:
    gate = Gate()
    ran: list[str] = []

    async def slow(name: str) -> str:
        ran.append(name)
        await gate.hold()
        return name

    async def quick(name: str) -> str:
        ran.append(name)
        return name

    async def branch(ctx: Context, name: str) -> str:
        await gate.reached.wait()
        await asyncio.sleep(0.005)
        await ctx.safe_point()
        return await ctx.do(quick, name)

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        if style == "gather":
            return list(await asyncio.gather(ctx.do(slow, "slow"), branch(ctx, "a"), branch(ctx, "b")))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in (ctx.do(slow, "slow"), branch(ctx, "a"), branch(ctx, "b"))]
        return [task.result() for task in tasks]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await held(session, gate)
        await asyncio.sleep(0.03)
        assert await session.status() is Status.PAUSING  # an operation is in flight
        assert ran == ["slow"]
        gate.opened.set()
        assert (await session.outcome()).status is Status.PAUSED
        assert ran == ["slow"]
        await session.resume()
        assert (await session.outcome()).state.done == ["slow", "a", "b"]
        assert sorted(ran) == ["a", "b", "slow"]


@pytest.mark.parametrize("style", ["gather", "TaskGroup"])
@on_loop
async def test_a_pause_that_is_withdrawn_while_a_branch_stands_still_lets_it_go_on(style: str) -> None:
    gate = Gate()
    tops: list[str] = []

    async def slow() -> str:
        await gate.hold()
        return "slow"

    async def branch(ctx: Context) -> str:
        await gate.reached.wait()
        while not standing.is_set():
            await asyncio.sleep(0.001)
        await ctx.safe_point()
        return "branch"

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        tops.append("top")
        if style == "gather":
            return list(await asyncio.gather(ctx.do(slow), branch(ctx)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.do(slow)), group.create_task(branch(ctx))]
        return [task.result() for task in tasks]

    standing = asyncio.Event()
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await held(session, gate)
        standing.set()
        await asyncio.sleep(0.02)  # the branch reaches its safe point and stands still
        await session.resume()
        gate.opened.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.done) == (Status.COMPLETED, ["slow", "branch"])
        assert tops == ["top"]  # it went on, it was not begun again


@on_loop
async def test_what_a_step_emitted_is_not_lost_when_its_pause_is_withdrawn_at_the_last_moment() -> None:
    gate = Gate()

    class Late(ProxyStore):
        async def commit(self, commit: Commit) -> Any:
            if commit.only_if_paused:
                await self.unpause("one", "bob", 0)
            return await super().commit(commit)

    @step
    async def work(ctx: Context) -> None:
        ctx.emit("note", "once")
        ctx.spend(usd=0.25)
        await gate.hold()
        await ctx.safe_point()

    workflow = Workflow("work", state=State, steps=[work], events=["note"])
    async with Engine(Late(SqliteStore(":memory:"))) as engine:
        session = await engine.start(workflow, session_id="one")
        await held(session, gate)
        gate.opened.set()
        outcome = await session.outcome()
        assert outcome.status is Status.COMPLETED
        types = [event.event_type async for event in session.events()]
        assert (types.count("note"), types.count("spent"), outcome.spent_usd) == (1, 1, 0.25)
        assert "session.paused" not in types


@pytest.mark.parametrize("mode", ["finish", "abort"])
@on_loop
async def test_an_except_exception_in_a_step_cannot_swallow_a_pause(mode: Any) -> None:
    gate = Gate()
    swallowed: list[BaseException] = []

    @step(writes="text")
    async def stubborn(ctx: Context) -> str:
        try:
            await gate.hold()
            await ctx.safe_point()
        except Exception as error:
            swallowed.append(error)
        return "done"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[stubborn]))
        await held(session, gate, mode=mode)
        if mode == "finish":
            gate.opened.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state, swallowed) == (Status.PAUSED, State(), [])


@on_loop
async def test_even_a_bare_except_cannot_make_a_step_that_is_being_left_commit() -> None:
    gate = Gate()

    @step(writes="text")
    async def stubborn(ctx: Context) -> str:
        try:
            await gate.hold()
        except BaseException:  # what nobody should write
            pass
        return "committed"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[stubborn]))
        await held(session, gate, mode="abort")
        outcome = await session.outcome()
        assert (outcome.status, outcome.state) == (Status.PAUSED, State())


@pytest.mark.covers("S1.58", "S4.108")
@on_loop
async def test_several_pauses_and_resumes_in_one_run_lose_and_repeat_nothing(tmp_path: Path) -> None:
    pipeline = Pipeline()
    for name in STEPS[:-1]:
        async with Engine(tmp_path / "h.db", workflows=[pipeline.workflow]) as engine:
            gate = pipeline.gates[name] = Gate()
            session = await engine.start(pipeline.workflow, session_id="memo-1")
            await gate.reached.wait()
            await session.pause(by=name)
            gate.opened.set()
            assert (await session.outcome()).status is Status.PAUSED
    async with Engine(tmp_path / "h.db", workflows=[pipeline.workflow]) as engine:
        session = await engine.resume("memo-1")
        assert (await session.outcome()).state == FINISHED
    assert pipeline.calls == list(STEPS)


@pytest.mark.covers("S1.6")
@on_loop
async def test_steps_are_compared_by_position_not_by_the_text_of_their_names() -> None:
    ran: list[str] = []

    def named(name: str) -> Any:
        @step(name=name)
        async def run() -> None:
            ran.append(name)

        return run

    names = ["SYNCING", "ANALYZING", "PLANNING", "REPORTING"]  # as text, ANALYZING would come first
    workflow = Workflow("aura", state=State, steps=[named(name) for name in names])
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow, paused=True)
        for number in range(4):
            await session.resume()
            await asyncio.sleep(0)
            while len(ran) == number:
                await asyncio.sleep(0)
            await session.pause()
            await session.outcome()
        assert await session.status() is Status.COMPLETED
        assert ran == names
        assert [workflow.position(name) for name in names] == [0, 1, 2, 3]
