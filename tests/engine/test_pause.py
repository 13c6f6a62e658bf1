"""Pausing a session from anywhere and at any time, with a name and a reason, and where the pause takes effect."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, Status, Workflow, step
from pausepoint.errors import StepExited, UnknownSession
from pausepoint.model.views import Listing
from tests.support.children import outside_sql, run_child
from tests.support.loop import PATIENCE, on_loop
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
        assert (await session.pause())[0].status is Status.PAUSING
        gate.opened.set()
        outcome = await session.outcome()
        assert outcome.session_id == session.id
        assert (outcome.status, outcome.state) == (Status.PAUSED, until(following))
        assert pipeline.calls == list(STEPS[: STEPS.index(following)])
        info = await session.info()
        assert (info.status, info.step) == (Status.PAUSED, following)  # status and position are two things
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


@pytest.mark.covers("S1.41", "S1.43")
@on_loop
async def test_a_pause_between_the_start_and_the_first_step_runs_no_step() -> None:
    pipeline = Pipeline()
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        await session.pause("wait", by="ann")
        outcome = await session.outcome()
        assert (outcome.status, outcome.state, pipeline.calls) == (Status.PAUSED, until("outline"), [])
        await session.resume()
        assert (await session.outcome()).state == FINISHED


@pytest.mark.covers("S1.47", "S1.48", "S1.21", "S1.20")
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
            program = 'async with Engine(args[0]) as it: print((await it.session("memo-1").pause(by="eve"))[0].status)'
            assert await asyncio.to_thread(run_child, program, path) == "pausing"
        else:
            sql = "UPDATE workflow_states SET pause_requested = 1 WHERE session_id = 'memo-1'"
            await asyncio.to_thread(outside_sql, path, sql)
        after = await asyncio.to_thread(outside_sql, path, look)
        if how == "by hand":
            moved = ("seq", "head", "tail", "digest", "updated_at", "moved_sum")  # it records that it is pausing
            assert after == [before[0] | {name: after[0][name] for name in moved} | {"pause_requested": 1}]
        gate.opened.set()  # the step's checkpoint follows the request
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
        (stopped,) = (await session.outcome()).pauses
        assert stopped.took_effect_at is not None
        assert stopped.took_effect_at >= stopped.created_at
        assert replace(stopped, took_effect_at=None) == pause
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
        assert (await session.pause("second", by="bob"))[0].status is Status.PAUSED
        assert before == (await session.info(), await session.pauses(), [event async for event in session.events()])


@pytest.mark.covers("S1.49")
@on_loop
async def test_pausing_an_unknown_session_is_a_clear_error() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(UnknownSession, match="no session 'nobody'"):
            await engine.session("nobody").pause()


@pytest.mark.covers("S1.51")
@on_loop
async def test_a_pause_after_the_last_step_has_begun_ends_completed_and_says_so() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("report")
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        await gate.reached.wait()
        assert (await session.pause("too late"))[0].status is Status.PAUSING
        gate.opened.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state) == (Status.COMPLETED, FINISHED)
        assert (outcome.pauses, (await session.info()).pause_requested) == ((), False)  # no request remains
        assert (await session.pause("even later"))[0].status is Status.COMPLETED
        assert (await engine.session(session.id).pause())[0].status is Status.COMPLETED


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


# many sessions


@on_loop
async def test_sessions_are_paused_by_workflow_tag_and_owner_and_all_at_once() -> None:
    pipeline, other = Pipeline(), Workflow("other", state=State, steps=[wait_for_ever])
    pipeline.hold("outline")
    async with Engine(":memory:") as engine:
        a = await engine.start(pipeline.workflow, owner="ann", tags=["red"])
        b = await engine.start(pipeline.workflow, owner="bob", tags=["red", "blue"])
        c = await engine.start(other, owner="ann")

        async def hit(**query: Any) -> set[str]:
            found: Any = await (engine.select(**query).pause(mode="abort") if query else engine.pause_all(mode="abort"))
            rows = found if isinstance(found, Listing) else found.done
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
        assert await hit() == {a.id, b.id, c.id}


@step
async def wait_for_ever() -> None:
    await asyncio.Event().wait()


@on_loop
async def test_a_pause_of_everything_has_a_verb_of_its_own() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(ValueError, match=r"To pause everything, use pause_all\(\)"):
            engine.select()


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
        assert (await session.pause("stop!", mode="abort"))[0].status is Status.PAUSING
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
        go.wait(PATIENCE)
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
        outcome = await session.outcome()  # the thread still waits
        assert (outcome.status, outcome.state) == (Status.PAUSED, State())
        go.set()
        await asyncio.to_thread(over.wait, 5)
        assert isinstance(ends[0], StepExited)
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
            go.wait(PATIENCE)
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
        session = await engine.session("memo-1").resume()
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

    names = ["SYNCING", "ANALYZING", "PLANNING", "REPORTING"]  # sorted as text, ANALYZING would come first
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
