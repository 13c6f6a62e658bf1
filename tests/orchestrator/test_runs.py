"""Runs as another process reads them: from the store alone, without the code of their tasks."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.errors import UnknownSession
from pausepoint.orchestrator import (
    Orchestrator,
    Phase,
    RunReader,
    RunReport,
    Safety,
    SessionLog,
    Task,
    TaskAgent,
    TaskStarted,
    phase_of,
    runs,
)
from pausepoint.orchestrator.runs import RUN
from tests.orchestrator.shop import CHAIN, Shop
from tests.support.loop import on_loop


async def use(text: str) -> str:
    return text


async def work(agent: TaskAgent) -> str:
    await agent.call(use, agent.task.id)
    if agent.task.data == "ask":
        await agent.confirm(f"Run {agent.task.id}?")
    if agent.task.data == "fail":
        raise OSError("no disk")
    return agent.task.id


def tasks_of(report: RunReport) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {each.task.id: (each.status, each.waits_for) for each in report.tasks}


@on_loop
async def test_a_process_without_the_code_reads_tasks_agents_and_questions(tmp_path: Path) -> None:
    async with Engine(tmp_path / "x.db") as engine, Engine(tmp_path / "x.db", drives="none", signals=False) as other:
        odd = 'b/"]\\:1'  # an id that looks like the end of an operation's id
        plan = [
            Task(id="a"), Task(id=odd, data="ask", needs=["a"]), Task(id="c", needs=[odd]), Task(id="d", needs=["c"]),
            Task(id="f", data="fail", needs=["a"]), Task(id="g", needs=["f", "d"]), Task(id="s", needs=["f"]),
        ]  # fmt: skip
        run = Orchestrator(engine, "release", work, agents=2)
        await run.run(plan)
        report = await RunReader(other, "release").read()
        assert tasks_of(report) == {
            "a": ("done", ()), odd: ("begun", ()), "c": ("pending", (odd,)), "d": ("pending", ("c",)),
            "f": ("failed", ()), "g": ("pending", ("f", "d")), "s": ("pending", ("f",)),
        }  # fmt: skip
        found = {each.task.id: each for each in report.tasks}
        [question] = report.questions
        assert (found[odd].question, found["f"].note) == (question.id, "OSError: no disk")
        last = found[odd].last
        assert last is not None
        assert (last.event_type, last.summary) == ("question.asked", f"Run {odd}?")
        assert found["a"].began_at is not None
        assert found["a"].ended_at is not None
        assert found["a"].began_at < found["a"].ended_at
        assert [(each.id, each.task) for each in report.agents] == [("agent-1", None), ("agent-2", None)]
        assert (report.status, report.phase, report.counts["pending"]) == (Status.WAITING, Phase.RUNNING, 4)
        await run.skip("f", "not needed")
        assert tasks_of(await RunReader(other, "release").read())["s"] == ("pending", ())


@on_loop
async def test_what_each_agent_does_is_seen_while_it_works(tmp_path: Path) -> None:
    async with Engine(tmp_path / "x.db") as engine, Engine(tmp_path / "x.db", drives="none", signals=False) as other:
        shop = Shop(engine, agents=2)
        shop.hold("a/first", "x/second")
        await shop.run.start(CHAIN)
        await shop.reached("a/first", "x/second")
        reader = RunReader(other, "run")
        report = await reader.read()
        first, second = report.agents
        assert (first.id, first.task, first.last.event_type) == ("agent-1", "a", "task.started")
        assert (second.id, second.task, second.last.event_type) == ("agent-2", "x", "operation.completed")
        assert second.since == next(each.began_at for each in report.tasks if each.task.id == "x")
        assert len(reader.news) > 3
        assert (await reader.read(), reader.news) == (report, [])
        await other.session("run").pause(reason="lunch", by="ann")
        asked = await reader.read()
        assert (asked.phase, asked.reason, [each.event_type for each in reader.news]) == (
            Phase.PAUSING, "lunch", ["pause.requested"],
        )  # fmt: skip
        shop.open()
        await shop.run.outcome()
        paused = await reader.read()
        assert (paused.phase, [each.task for each in paused.agents]) == (Phase.PAUSED, ["a", None])
        await shop.run.resume()
        await shop.run.outcome()
        done = await reader.read()
        assert (done.phase, done.counts) == (None, {"done": 5})
        assert done == await RunReader(other, "run").read(), "the same as one read of everything"


@on_loop
async def test_an_agent_that_returns_to_its_task_after_an_answer_is_at_work_again(tmp_path: Path) -> None:
    holding = asyncio.Event()
    reached = asyncio.Event()

    async def wait(text: str) -> str:
        reached.set()
        await holding.wait()
        return text

    async def ask(agent: TaskAgent) -> None:
        if agent.task.id == "a":
            await agent.confirm("Go?")
            await agent.call(wait, "b")

    async with Engine(tmp_path / "x.db") as engine, Engine(tmp_path / "x.db", drives="none", signals=False) as other:
        run = Orchestrator(engine, "run", ask, agents=1)
        await run.run([Task(id="a"), Task(id="b")])
        reader = RunReader(other, "run")
        report = await reader.read()
        assert [(each.id, each.task) for each in report.agents] == [("agent-1", None)]
        await other.answer(report.questions[0].id, {"approved": True})
        await reached.wait()
        assert [(each.id, each.task) for each in (await reader.read()).agents] == [("agent-1", "a")]
        holding.set()
        await run.outcome()


@on_loop
async def test_a_reader_follows_tasks_that_are_done_again_and_plans_that_change(tmp_path: Path) -> None:
    async with Engine(tmp_path / "x.db") as engine, Engine(tmp_path / "x.db", drives="none", signals=False) as other:
        run = Orchestrator(engine, "run", work)
        await run.run([Task(id="a"), Task(id="b", needs=["a"])])
        reader = RunReader(other, "run")
        assert (await reader.read()).counts == {"done": 2}
        await run.redo("b")
        assert tasks_of(await reader.read()) == {"a": ("done", ()), "b": ("pending", ())}
        await run.replan([Task(id="a"), Task(id="c", needs=["a"])])
        assert tasks_of(await reader.read()) == {"a": ("done", ()), "c": ("pending", ())}
        await run.start()
        await run.outcome()
        assert (await reader.read()).counts == {"done": 2}


@on_loop
async def test_several_who_share_a_reader_see_the_same_run() -> None:
    async with Engine(":memory:") as engine:
        await Orchestrator(engine, "run", work).run([Task(id=str(number)) for number in range(20)])
        reader = RunReader(engine, "run")
        first, *others = await asyncio.gather(*(reader.read() for _ in range(5)))
        assert first.counts == {"done": 20}
        assert others == [first] * 4


@pytest.mark.long
@on_loop
async def test_a_resume_while_the_snapshot_is_being_saved_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(tmp_path / "x.db") as engine, Engine(tmp_path / "x.db", drives="none", signals=False) as other:
        shop = Shop(engine, agents=1)
        shop.hold("a/first")
        await shop.run.start(CHAIN)
        await shop.reached("a/first")
        real, saved = engine.store.revise, list[str]()

        async def resumed_before(commit: Any) -> Any:
            if not saved:
                saved.append(commit.records[0].kind)
                await other.session("run").resume(here=False)
            return await real(commit)

        monkeypatch.setattr(engine.store, "revise", resumed_before)
        await other.session("run").pause(reason="lunch")
        shop.open()
        while (await other.session("run").info()).status is not Status.COMPLETED:
            await asyncio.sleep(0.01)
        assert saved == ["event"], "the resume came between the read and the write of the snapshot"
        await shop.run.outcome()


class Plain(BaseModel):
    text: str = ""


@step
async def emits(ctx: Context) -> None:
    ctx.emit("task.started", "mine", number=1)


plain = Workflow("plain", state=Plain, steps=[emits], events=["task.started"])


@pytest.mark.parametrize("tags", [[], [RUN]])
@on_loop
async def test_a_session_that_is_no_run_is_refused_even_if_it_has_the_tag(tags: list[str]) -> None:
    async with Engine(":memory:") as engine:
        await (await engine.start(plain, session_id="mine", tags=tags)).outcome()
        with pytest.raises(UnknownSession, match="'mine' is not a run of an orchestrator"):
            await RunReader(engine, "mine").read()
        with pytest.raises(UnknownSession):
            await RunReader(engine, "nothing").read()


@on_loop
async def test_events_of_others_in_a_run_are_left_alone() -> None:
    async with Engine(":memory:") as engine:
        shop = Shop(engine)
        await shop.run.run([Task(id="a")])
        await SessionLog(engine, "run").append(TaskStarted("of another plan", "agent-9"))
        await engine.session("run").emit("task.started", "odd", {"task": ["a"]})
        report = await RunReader(engine, "run").read()
        assert (report.counts, [each.id for each in report.agents]) == ({"done": 1}, ["agent-1"])


@pytest.mark.long
@on_loop
async def test_runs_are_listed_in_pages_newest_first_and_without_other_sessions(tmp_path: Path) -> None:
    async with Engine(tmp_path / "x.db") as engine, Engine(tmp_path / "x.db", drives="none", signals=False) as other:
        await engine.start(plain, session_id="other")
        for number in range(5):
            run = Orchestrator(engine, f"run-{number}", work)
            plan = [Task(id="a"), Task(id="b", data="ask" if number == 4 else None)]
            await run.run(plan, owner="ann" if number else "bob")
        first = await runs(other, limit=3)
        assert [info.session_id for info in first] == ["run-4", "run-3", "run-2"]
        assert [info.session_id for info in await runs(other, limit=3, after=first.next)] == ["run-1", "run-0"]
        assert [info.session_id for info in await runs(other, owner="bob")] == ["run-0"]
        assert [info.session_id for info in await runs(other, status=["waiting"])] == ["run-4"]
        assert first[0].progress == (1, 2)
        assert [phase_of(info) for info in first] == [Phase.RUNNING, None, None]


@on_loop
async def test_listing_runs_reads_no_task_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Engine(":memory:") as engine:
        for number in range(3):
            await Orchestrator(engine, f"run-{number}", work).run([Task(id=str(n)) for n in range(5)])
        asked: Counter[str] = Counter()
        real = type(engine.store).__getattribute__

        def counted(store: object, name: str) -> Any:
            asked[name] += 1
            return real(store, name)

        monkeypatch.setattr(type(engine.store), "__getattribute__", counted)
        await runs(engine, limit=2)
        assert not asked.keys() & {"records", "blobs", "signals"}
        await RunReader(engine, "run-0").read()
        assert asked["records"], "the counter counts"


@on_loop
async def test_a_tag_given_as_one_string_stays_one_tag() -> None:
    async with Engine(":memory:") as engine:
        await Orchestrator(engine, "run", work).run([Task(id="a")], tags="night")
        assert set((await engine.session("run").info()).tags) == {"night", RUN}


@pytest.mark.long
@on_loop
async def test_after_a_resume_elsewhere_a_safety_stop_counts_from_zero(tmp_path: Path) -> None:
    async with Engine(tmp_path / "x.db") as engine, Engine(tmp_path / "x.db", drives="none", signals=False) as other:
        run = Orchestrator(engine, "run", work, agents=1, safety=Safety(same_error=2, failures_in_a_row=None))
        report = await run.run([Task(id=str(number), data="fail") for number in range(5)])
        assert (report.phase, report.counts["failed"]) == (Phase.PAUSED, 2)
        await other.session("run").resume(here=False, by="ann")
        while (await other.session("run").info()).status is not Status.PAUSED:
            await asyncio.sleep(0.01)
        await engine.idle("run")
        assert (await run.report()).counts["failed"] == 4


@on_loop
async def test_what_was_spent_is_known_by_task_and_by_agent_over_all_attempts(tmp_path: Path) -> None:
    async def pay(usd: float, ctx: Context) -> None:
        ctx.spend(usd=usd, tokens=10)

    async def spend(agent: TaskAgent) -> None:
        await agent.call(pay, 0.1)
        await agent.call(pay, 0.2)
        agent.ctx.spend(usd=0.05)
        if agent.task.id == "b" and not again:
            raise OSError("no disk")

    again = False
    async with Engine(tmp_path / "x.db") as engine, Engine(tmp_path / "x.db", drives="none", signals=False) as other:
        run = Orchestrator(engine, "release", spend, agents=1)
        reader = RunReader(other, "release")
        await run.run([Task(id="a"), Task(id="b"), Task(id="c", needs=["b"])])
        await reader.read()
        again = True
        await run.retry("b")
        await run.start()
        await run.outcome()
        report = await reader.read()
        assert {each.task.id: (each.spent_usd, each.spent_tokens) for each in report.tasks} == {
            "a": (0.35, 20), "b": (0.7, 40), "c": (0.35, 20),
        }  # fmt: skip
        assert [(each.id, each.spent_usd, each.spent_tokens) for each in report.agents] == [("agent-1", 1.4, 80)]
        assert report.spent_usd == 1.4
        await run.redo("a")
        assert next(each.spent_usd for each in (await reader.read()).tasks if each.task.id == "a") == 0.35
