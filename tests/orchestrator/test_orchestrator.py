"""Runs of a graph: order, agents, the button, failures, and what somebody may say about tasks."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import weakref
from pathlib import Path
from typing import Any

import pytest

from pausepoint import Engine, Status
from pausepoint.errors import (
    AgentsStuck,
    AlreadyRunning,
    DefinitionError,
    InputConflict,
    RestoreRefused,
    UnknownSession,
    VerbRefused,
)
from pausepoint.orchestrator import (
    FileStateStore,
    Orchestrator,
    OrchestratorPaused,
    OrchestratorResumed,
    OrchestratorState,
    PauseResumeController,
    Phase,
    RunStateSnapshot,
    Safety,
    SessionLog,
    SessionStateStore,
    Task,
    TaskAgent,
    TaskStarted,
)
from tests.orchestrator.shop import CHAIN, Shop
from tests.support.loop import PATIENCE, on_loop
from tests.support.mortal import MortalStore, crash

PAUSED, RUNNING = OrchestratorState.PAUSED, OrchestratorState.RUNNING
ALL = {f"{task.id}/{call}": 1 for task in CHAIN for call in ("first", "second")}


@on_loop
async def test_tasks_come_after_what_they_need_and_get_its_results() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine, agents=2)
        report = await shop.run.run(CHAIN)
        assert (report.status, report.counts, report.reason) == (Status.COMPLETED, {"done": 5}, "")
        begun = shop.begun()
        assert all(begun.index(need) < begun.index(task.id) for task in CHAIN for need in task.needs)
        assert (shop.calls, shop.most_at_once) == (ALL, 2)
        assert (await engine.session("run").info()).workflow == "run"


@on_loop
async def test_no_more_than_n_agents_work_at_once_and_the_highest_priority_comes_first() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine, agents=3)
        tasks = [Task(id=f"t{n}", priority=n % 3) for n in range(9)]
        await shop.run.run(tasks)
        assert shop.most_at_once == 3
        assert set(shop.begun()[:3]) == {"t2", "t5", "t8"}


@pytest.mark.parametrize(
    ("tasks", "says"),
    [([Task(id="a", needs=["b"]), Task(id="b", needs=["a"])], "a → b → a"), ([Task(id="a", needs=["z"])], "'z'")],
)
@on_loop
async def test_a_graph_that_cannot_work_is_refused_before_anything_is_stored(tasks: list[Task], says: str) -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(DefinitionError, match=says):
            await Shop(engine).run.start(tasks)
        assert await engine.sessions() == []


@on_loop
async def test_what_cannot_be_an_orchestrator_or_a_run_is_refused() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(ValueError, match="agents must be at least 1, not 0"):
            Shop(engine, agents=0)
        shop = Shop(engine)
        with pytest.raises(DefinitionError, match="Run 'run' does not exist"):
            await shop.run.start()
        with pytest.raises(UnknownSession):
            await shop.run.pause()


@pytest.mark.covers("S5.56", "S5.57", "S5.59")
@on_loop
async def test_pause_and_resume_are_the_controllers() -> None:
    source = inspect.getsource(Orchestrator)
    assert "self.controller = PauseResumeController(" in source
    async with Engine(":memory:") as engine:
        shop = Shop(engine, agents=2)
        shop.hold("a/first", "x/first")
        await shop.run.start(CHAIN)
        await shop.reached("a/first", "x/first")
        assert isinstance(shop.run.controller, PauseResumeController)
        pausing = asyncio.ensure_future(shop.run.pause("lunch", by="ann"))
        while (await engine.session("run").info()).status is not Status.PAUSING:
            await asyncio.sleep(0.001)
        assert (shop.run.phase, shop.run.get_state()) == (Phase.PAUSING, RUNNING)
        shop.open()
        await pausing
        assert (shop.run.phase, shop.run.get_state(), shop.run.controller.get_state()) == (Phase.PAUSED, PAUSED, PAUSED)
        assert (await shop.run.report()).reason == "lunch"
        await shop.run.resume()
        assert shop.run.get_state() is RUNNING
        assert (await shop.run.outcome()).counts == {"done": 5}


@pytest.mark.covers("S5.11", "S5.37", "S5.38", "S5.40", "S5.42", "S5.18")
@on_loop
async def test_a_pause_lets_the_calls_end_begins_nothing_and_keeps_what_is_pending(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine:
        shop = Shop(engine, agents=2, snapshot_store=FileStateStore(tmp_path))
        shop.hold("a/first", "x/first")
        await shop.run.start(CHAIN)
        await shop.reached("a/first", "x/first")
        await shop.run.registry.signal_pause()
        shop.open()  # from the signal on nothing begins, whatever ends
        await shop.run.pause()
        assert shop.order == ["a/first", "x/first"]
        kept = json.loads((tmp_path / ".devs" / "state_snapshot.json").read_text())
        assert [(agent["id"], agent["task"]["id"]) for agent in kept["activeAgents"]] == [
            ("agent-1", "a"), ("agent-2", "x"),
        ]  # fmt: skip
        assert kept["activeAgents"][0]["memory"] == {"first": "used a/first"}
        assert kept["activeAgents"][0]["pendingToolCalls"] == [
            {"id": "a/2", "name": "use", "arguments": {"args": ["a/second"]}}
        ]
        assert [task["id"] for task in kept["pendingTasks"]] == ["b", "c", "y"]
        [event] = [each for each in shop.heard if isinstance(each, OrchestratorPaused)]
        assert event.active_agent_ids == ("agent-1", "agent-2")
        await shop.run.resume()
        assert (await shop.run.outcome()).counts == {"done": 5}
        assert shop.calls == ALL


@on_loop
async def test_nothing_that_a_task_is_given_or_remembers_keeps_the_button_from_working(tmp_path: Path) -> None:
    """The store has the values themselves; the snapshot of a run is for people."""
    odd = {"path": tmp_path, "bytes": b"\xff", "keys": {(1, 2): 3}, "lone": "\ud800"}

    async def work(agent: TaskAgent) -> None:
        agent.memory.update(odd | {"self": agent})
        assert agent.task.data == given
        begun.set()
        while not done:
            await agent.call(asyncio.sleep, 0)

    done, begun = list[bool](), asyncio.Event()
    given = {name: value for name, value in odd.items() if name != "lone"}  # which cannot be stored
    async with Engine(tmp_path / "hold.db") as engine:
        run = Orchestrator(engine, "run", work, agents=1, snapshot_store=FileStateStore(tmp_path))
        await run.start([Task(id="a", data=given), Task(id="b", data=given)])
        await begun.wait()
        await run.pause()
        kept = json.loads((tmp_path / ".devs" / "state_snapshot.json").read_text())
        assert kept["pendingTasks"][0]["data"]["path"] == str(tmp_path)
        [agent] = kept["activeAgents"]
        assert (agent["task"]["data"]["bytes"], agent["memory"]["lone"]) == ("/w==", r"'\ud800'")
        done.append(True)
        await run.resume()
        assert (await run.outcome()).counts == {"done": 2}


@pytest.mark.long
@pytest.mark.covers("S5.54")
@on_loop
async def test_the_registry_of_a_run_keeps_no_agent_alive_that_was_stopped() -> None:
    known: list[weakref.ref[TaskAgent]] = []

    async def work(agent: TaskAgent) -> None:
        known.append(weakref.ref(agent))
        while True:
            await agent.call(asyncio.sleep, 0)

    async with Engine(":memory:") as engine:
        run = Orchestrator(engine, "run", work, agents=2)
        await run.start([Task(id="a"), Task(id="b")])
        while len(known) < 2:
            await asyncio.sleep(0)
        await run.pause()
        gc.collect()
        assert [agent() for agent in known] == [None, None]


@pytest.mark.covers("S5.52", "S5.32", "S5.40")
@on_loop
async def test_another_process_finds_the_run_paused_and_goes_on_with_it(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine:
        shop = Shop(engine, snapshot_store=FileStateStore(tmp_path))
        shop.hold("a/first", "x/second")
        await shop.run.start(CHAIN)
        await shop.reached("a/first", "x/second")
        pausing = asyncio.ensure_future(shop.run.pause())
        await asyncio.sleep(0)
        shop.open()
        await pausing
    async with Engine(tmp_path / "hold.db") as engine:
        later = Shop(engine, snapshot_store=FileStateStore(tmp_path))
        await later.run.start(CHAIN)
        assert (later.run.get_state(), later.order) == (PAUSED, []), "a start takes no pause back"
        await later.run.resume()
        assert (await later.run.outcome()).counts == {"done": 5}
        assert shop.calls + later.calls == ALL


@pytest.mark.covers("S5.33", "S5.36")
@on_loop
async def test_a_run_paused_by_others_while_no_process_was_there_gets_its_snapshot_when_it_is_found(
    tmp_path: Path,
) -> None:
    dying = Engine(MortalStore(tmp_path / "hold.db"))
    await dying.__aenter__()
    shop = Shop(dying, agents=1)
    shop.hold("a/first")
    await shop.run.start(CHAIN)
    await shop.reached("a/first")
    await crash(dying)
    async with Engine(tmp_path / "hold.db") as engine:
        await engine.session("run").pause(reason="nobody is there", by="ann")
        later = Shop(engine, snapshot_store=FileStateStore(tmp_path))
        await later.run.start()
        kept = await FileStateStore(tmp_path).load_snapshot()
        assert kept is not None
        assert [(agent.id, agent.task and agent.task["id"]) for agent in kept.active_agents] == [("agent-1", "a")]
        await later.run.resume()
        assert (await later.run.outcome()).counts == {"done": 5}


@on_loop
async def test_a_pause_from_elsewhere_is_a_pause_like_any_other(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine, Engine(tmp_path / "hold.db", signals=False) as other:
        shop = Shop(engine, agents=1)
        shop.hold("a/first")
        await shop.run.start(CHAIN)
        await shop.reached("a/first")
        await other.pause_all(reason="fire drill", by="ben")
        await asyncio.sleep(0.05)
        shop.open()
        report = await shop.run.outcome()
        assert (report.status, report.reason, shop.run.get_state()) == (Status.PAUSED, "fire drill", PAUSED)
        [event] = [each for each in shop.heard if isinstance(each, OrchestratorPaused)]
        assert (event.reason, event.by) == ("fire drill", "ben")
        assert 0.05 <= event.stopped_in < PATIENCE, "from the moment at which the other one asked"
        assert await SessionStateStore(engine, "run").load_snapshot() is not None
        await shop.run.resume()
        assert (await shop.run.outcome()).counts == {"done": 5}
        assert shop.calls == ALL


@on_loop
async def test_an_abort_cuts_the_calls_and_the_same_ones_are_made_again(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine:
        shop = Shop(engine, agents=1)
        shop.hold("a/second")
        await shop.run.start([Task(id="a")])
        await shop.reached("a/second")
        await engine.session("run").pause(mode="abort")
        assert (await shop.run.outcome()).counts == {"begun": 1}
        shop.open()
        await shop.run.resume()
        assert (await shop.run.outcome()).counts == {"done": 1}
        assert shop.calls == {"a/first": 1, "a/second": 2}


@pytest.mark.covers("S5.14")
@on_loop
async def test_agents_that_do_not_come_to_a_boundary_are_named_with_their_tasks() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine, agents=2, idle_timeout=0.05)
        shop.hold("a/first")
        await shop.run.start([Task(id="a"), Task(id="x")])
        while (await shop.run.report()).counts.get("done") != 1:  # the other agent has come to a boundary
            await asyncio.sleep(0.001)
        with pytest.raises(AgentsStuck, match=r"agent-1 \(task a\)\. The pause is still requested"):
            await shop.run.pause()
        await shop.run.resume()  # takes it back
        shop.open()
        assert (await shop.run.outcome()).counts == {"done": 2}
        assert not [event for event in shop.heard if isinstance(event, OrchestratorPaused | OrchestratorResumed)]


@on_loop
async def test_a_failing_task_ends_nothing_but_what_needs_it_waits() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine, agents=1)
        shop.failing["a"] = "no disk"
        report = await shop.run.run(CHAIN)
        assert (report.status, report.counts) == (Status.FAILED, {"failed": 1, "pending": 2, "done": 2})
        assert report.failed == {"a": "ValueError: no disk"}
        assert "1 of 5 tasks failed: a (ValueError: no disk). Number of tasks that wait for them: 2." in report.reason
        await shop.run.start()
        again = await shop.run.outcome()
        assert (again.counts, shop.calls["a/first"]) == (report.counts, 1), "nothing is tried again by itself"
        shop.failing.clear()
        assert await shop.run.retry(by="ann") == ["a"]
        await shop.run.start()
        assert (await shop.run.outcome()).counts == {"done": 5}
        assert shop.calls == ALL | {"a/first": 2}
        assert await shop.run.retry() == []


@on_loop
async def test_a_skipped_task_counts_as_done() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine)
        shop.failing["a"] = "no"
        await shop.run.run(CHAIN)
        await shop.run.skip("a", "not needed any more", by="ann")
        report = await shop.run.report()
        assert (report.tasks[0].status, report.tasks[0].note) == ("skipped", "not needed any more")
        await shop.run.start()
        assert (await shop.run.outcome()).counts == {"skipped": 1, "done": 4}
        edits = [event async for event in engine.session("run").events() if event.event_type == "session.edited"]
        assert [(edit.data["by"], edit.data["reason"]) for edit in edits] == [("ann", "skip a: not needed any more")]


@pytest.mark.parametrize("paused", [False, True])
@on_loop
async def test_a_task_and_all_that_needs_it_can_be_done_anew(paused: bool) -> None:
    """Of a run that is done, and of one that is paused."""
    async with Engine(":memory:") as engine:
        shop = Shop(engine, agents=1)
        if paused:
            shop.hold("x/first")
        await shop.run.start(CHAIN)
        if paused:
            await shop.reached("x/first")
            pausing = asyncio.ensure_future(shop.run.pause())
            await asyncio.sleep(0)
            shop.open()
            await pausing
        await shop.run.outcome()
        assert await shop.run.redo("b", "the wind has changed", by="ann") == ["b", "c"]
        await (shop.run.resume() if paused else shop.run.start())
        assert (await shop.run.outcome()).counts == {"done": 5}
        assert shop.calls == ALL | dict.fromkeys(("b/first", "b/second", "c/first", "c/second"), 2)


@pytest.mark.long
@on_loop
async def test_many_tasks_are_redone_and_retried_in_one_act_however_many_they_are() -> None:
    ids = [f"{'long' * 15}-{number}" for number in range(300)]
    broken = True

    async def work(agent: TaskAgent) -> None:
        if broken:
            raise OSError("no disk")

    async with Engine(":memory:") as engine:
        run = Orchestrator(engine, "many", work, safety=Safety(failures_in_a_row=None, same_error=None))
        assert len((await run.run([Task(id=id) for id in ids])).failed) == 300
        broken = False
        assert await run.retry() == ids
        await run.start()
        assert (await run.outcome()).counts == {"done": 300}
        assert await run.redo(ids) == ids
        said = [
            event.summary async for event in engine.session("many").events() if event.event_type == "session.edited"
        ]
        assert [text.rpartition("-")[2] for text in said] == ["19 and 280 more)"] * 2


@on_loop
async def test_what_is_said_about_tasks_must_name_one_that_is_there_and_find_the_run_standing() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine)
        shop.hold("a/first")
        await shop.run.start(CHAIN)
        await shop.reached("a/first")
        with pytest.raises(DefinitionError, match="Run 'run' has no task 'z'"):
            await shop.run.skip("z")
        with pytest.raises(VerbRefused, match="'a' is not one of the failed tasks"):
            await shop.run.retry("a")
        with pytest.raises(VerbRefused, match="Pause it and wait"):
            await shop.run.skip("a")
        shop.open()
        await shop.run.outcome()
        with pytest.raises(InputConflict):
            await shop.run.start(CHAIN[:2])


@on_loop
async def test_an_agent_does_other_tasks_while_one_waits_for_a_person() -> None:
    async def work(agent: TaskAgent) -> Any:
        if agent.task.data == "ask":
            return await agent.ask(f"May {agent.task.id}?", bool)
        if agent.task.data == "confirm":
            return await agent.confirm(f"Really {agent.task.id}?")
        return "done"

    async with Engine(":memory:") as engine:
        run = Orchestrator(engine, "run", work, agents=1)
        tasks = [Task(id="q1", data="ask"), Task(id="q2", data="confirm"), Task(id="t1"), Task(id="t2", needs=["q1"])]
        await run.start(tasks)
        report = await run.outcome()
        assert (report.status, report.counts) == (Status.WAITING, {"begun": 2, "done": 1, "pending": 1})
        await run.bus.emit(TaskStarted("aside", "agent-9"))
        assert (await run.report()).status is Status.WAITING, "an event in its log changes nothing else"
        asked = {question.next_question: question.id for question in await engine.session("run").questions()}
        await engine.answer(asked["May q1?"], True)
        report = await run.outcome()
        assert (report.status, report.counts) == (Status.WAITING, {"begun": 1, "done": 3})
        await engine.answer(asked["Really q2?"], False)
        report = await run.outcome()
        assert (report.status, list(report.failed)) == (Status.FAILED, ["q2"]), "a no is that task's failure alone"


@on_loop
async def test_a_result_that_cannot_be_stored_is_that_tasks_failure_alone() -> None:
    async def work(agent: TaskAgent) -> Any:
        return object() if agent.task.id == "bad" else "good"

    async with Engine(":memory:") as engine:
        report = await Orchestrator(engine, "run", work).run([Task(id="bad"), Task(id="good")])
        assert report.counts == {"failed": 1, "done": 1}
        assert report.failed["bad"].startswith("ValueRefused: ")


@on_loop
async def test_what_the_bus_carries_is_in_the_history_of_the_run_and_can_be_read_from_a_cursor() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine, agents=1)
        shop.hold("a/first")
        await shop.run.start([Task(id="a"), Task(id="b", needs=["a"])])
        await shop.reached("a/first")
        pausing = asyncio.ensure_future(shop.run.pause())
        await asyncio.sleep(0)
        shop.open()
        await pausing
        await shop.run.resume()
        await shop.run.outcome()
        logged = await shop.run.bus.replay()
        assert [each.event for each in logged] == shop.heard
        assert await shop.run.bus.replay(logged[2].cursor) == logged[3:]
        names = [event.event_type async for event in engine.session("run").events()]
        assert names.count("orchestrator.paused") == names.count("orchestrator.resumed") == 1
        assert names.index("session.paused") < names.index("orchestrator.snapshot") < names.index("orchestrator.paused")


@on_loop
async def test_more_money_lets_a_run_go_on_that_ran_out_of_it() -> None:
    async def work(agent: TaskAgent) -> None:
        agent.ctx.spend(usd=1)

    async with Engine(":memory:") as engine:
        run = Orchestrator(engine, "run", work, agents=1)
        report = await run.run([Task(id=f"t{n}") for n in range(6)], budget=3)
        assert (report.status, run.get_state()) == (Status.PAUSED, PAUSED)
        await run.resume(budget=10)
        report = await run.outcome()
        assert (report.status, report.counts, report.spent_usd) == (Status.COMPLETED, {"done": 6}, 6.0)


@pytest.mark.covers("S5.36")
@on_loop
async def test_a_snapshot_that_does_not_fit_the_store_is_refused_and_the_run_stays_paused(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine:
        store = FileStateStore(tmp_path)
        shop = Shop(engine, agents=1, snapshot_store=store)
        shop.hold("a/first")
        await shop.run.start(CHAIN)
        await shop.reached("a/first")
        pausing = asyncio.ensure_future(shop.run.pause())
        await asyncio.sleep(0)
        shop.open()
        await pausing
        whole = json.loads(store.path.read_text())
        for change, says in (
            ({"sessionId": "other"}, "another run: agent 'agent-1' works in session 'other'"),
            ({"seq": 10_000}, "the store is older than the snapshot"),
        ):
            kept = json.loads(json.dumps(whole))
            kept["activeAgents"][0] |= change
            store.path.unlink()
            store.path.write_text(json.dumps(kept))
            with pytest.raises(RestoreRefused, match=says):
                await shop.run.resume()
            assert (shop.run.get_state(), (await engine.session("run").info()).status) == (PAUSED, Status.PAUSED)
        await store.save_snapshot(RunStateSnapshot(whole["pausedAt"]))
        await shop.run.resume()
        assert (await shop.run.outcome()).counts == {"done": 5}


@on_loop
async def test_how_a_run_stands_is_seen_from_another_process_too(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine, Engine(tmp_path / "hold.db", signals=False) as other:
        shop = Shop(engine, agents=2)
        shop.hold("a/first", "x/first")
        await shop.run.start(CHAIN)
        await shop.reached("a/first", "x/first")
        seen = await Shop(other).run.report()
        assert seen.status is Status.RUNNING
        assert [(task.task.id, task.agent) for task in seen.tasks if task.begun] == [("a", "agent-1"), ("x", "agent-2")]
        shop.open()
        await shop.run.outcome()


@on_loop
async def test_an_event_goes_into_the_log_of_a_session_whoever_drives_it_or_is_refused(tmp_path: Path) -> None:
    async with Engine(tmp_path / "hold.db") as engine, Engine(tmp_path / "hold.db", signals=False) as other:
        shop = Shop(engine)
        shop.hold("a/first")
        await shop.run.start([Task(id="a")])
        await shop.reached("a/first")
        await SessionLog(engine, "run").append(TaskStarted("mine", "agent-9"))
        assert TaskStarted("mine", "agent-9") in [each.event for each in await SessionLog(other, "run").read()]
        with pytest.raises(AlreadyRunning, match="is driven by"):
            await SessionLog(other, "run").append(TaskStarted("theirs", "agent-9"))
        shop.open()
        await shop.run.outcome()
        await SessionLog(other, "run").append(TaskStarted("theirs", "agent-9"))
        assert TaskStarted("theirs", "agent-9") in [each.event for each in await SessionLog(engine, "run").read()]


@on_loop
async def test_a_plan_can_be_changed_and_only_what_that_touches_is_done_anew() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine, agents=1)
        await shop.run.run(CHAIN)
        plan = [Task(id="a", priority=9), Task(id="b", needs=["a"], data="new"), *CHAIN[2:4], Task(id="z", needs=["c"])]
        with pytest.raises(InputConflict, match=r"Use replan\(tasks\)"):
            await shop.run.start(plan)
        with pytest.raises(DefinitionError, match="which is not a task"):
            await shop.run.replan([Task(id="a", needs=["nothing"])])
        assert await shop.run.replan(plan, "it grew", by="ann") == ["b", "c", "z"]
        await shop.run.start(plan)
        report = await shop.run.outcome()
        assert (report.status, report.counts) == (Status.COMPLETED, {"done": 5})
        twice = {"b/first": 2, "b/second": 2, "c/first": 2, "c/second": 2, "z/first": 1, "z/second": 1}
        assert shop.calls == ALL | twice


@on_loop
async def test_a_task_that_was_taken_out_and_comes_back_is_another_task() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine)
        await shop.run.run([Task(id="a", data=1), Task(id="b", data=1)])
        for plan in ([Task(id="b", data=1)], [Task(id="a", data=2), Task(id="b", data=1)]):
            assert await shop.run.replan(plan) == []
            await shop.run.start()
            assert (await shop.run.outcome()).counts == {"done": len(plan)}
        assert shop.calls == {"a/first": 2, "a/second": 2, "b/first": 1, "b/second": 1}


@on_loop
async def test_data_that_only_seems_the_same_is_a_change_of_the_plan() -> None:
    """1 and 1.0 are equal in Python; a tool that is called with them may tell them apart."""
    async with Engine(":memory:") as engine:
        shop = Shop(engine)
        await shop.run.run([Task(id="a", data=1)])
        assert await shop.run.replan([Task(id="a", data=1.0)]) == ["a"]
        await shop.run.start()
        assert (await shop.run.outcome()).counts == {"done": 1}


@on_loop
async def test_a_task_that_is_done_is_not_skipped_so_what_needs_it_gets_its_result() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine)
        shop.failing["b"] = "no"
        await shop.run.run([Task(id="a"), Task(id="b", needs=["a"])])
        with pytest.raises(VerbRefused, match=r"Task 'a' is done.*redo\(\)"):
            await shop.run.skip("a")
