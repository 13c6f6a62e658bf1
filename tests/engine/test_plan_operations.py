"""A plan shows the operations of the open visit: which results are kept, what waits, and what runs again."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel

from pausepoint import Context, Engine, Retry, Status, Workflow, step, workflow
from pausepoint.engine.plans import Plan
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop
from tests.support.status import settled

IN_AN_HOUR = Retry(2, first=3600, longest=3600, jitter=0)
LONG = "long enough to be stored outside of the log: "


class Desk:
    """A workflow that looks up facts, asks a question and writes. ``broken`` look-ups fail."""

    def __init__(self, count: int = 3) -> None:
        self.ran: list[str] = []
        self.broken: set[str] = set()

        async def look_up(fact: str) -> str:
            self.ran.append(fact)
            if fact in self.broken:
                raise OSError("no line")
            return fact.upper()

        async def compose(text: str) -> str:
            self.ran.append(text)
            return text

        @workflow
        async def brief(ctx: Context, facts: int = count) -> str:
            first = await ctx.do(look_up, "topic")
            found = await ctx.map(look_up, [f"{LONG}{n}" for n in range(facts)], retry=IN_AN_HOUR)
            tone = await ctx.ask("Formal or playful?", choices=["formal", "playful"])
            return await ctx.do(compose, f"{first} {len(found)} {tone}")

        self.brief = brief


def rows(plan: Plan) -> list[tuple[str, str, int]]:
    return [(each.operation, each.verdict, each.count) for each in plan.operations]


@on_loop
async def test_kept_results_and_the_open_question_are_listed_and_the_resume_runs_only_the_rest(tmp_path: Path) -> None:
    desk = Desk()
    async with Engine(tmp_path / "s.db") as engine:
        session = await engine.start(desk.brief, session_id="s")
        await session.outcome()
        plan = await session.plan()
    assert rows(plan) == [("look_up", "done", 1), ("look_up", "done", 3), ("ask", "waits", 1)]
    assert [each.why for each in plan.operations] == [
        "its result is kept",
        "the results of all 3 items are kept",
        "waits for an answer to 'Formal or playful?'",
    ]
    assert str(plan).splitlines()[1:] == [
        "  next      brief  interrupted; 4 operations are remembered; waits for an answer",
        "    done      look_up  its result is kept",
        "    done      look_up  the results of all 3 items are kept",
        "    waits     ask      waits for an answer to 'Formal or playful?'",
    ]
    assert json.loads(json.dumps(plan.to_json()))["operations"][1] == {
        "operation": "look_up", "verdict": "done", "why": "the results of all 3 items are kept", "count": 3,
        "step": "brief", "usd": 0.0, "tokens": 0,
    }  # fmt: skip
    assert "Formal or playful?" in plan._repr_html_()
    desk.ran.clear()
    async with Engine(tmp_path / "s.db", workflows=[desk.brief]) as engine:
        await engine.session("s").answer("formal")
        await (await engine.session("s").resume()).outcome()
        assert (await engine.session("s").plan()).operations == ()  # nothing would run again
    assert desk.ran == ["TOPIC 3 formal"]


@on_loop
async def test_what_was_answered_or_has_arrived_is_no_longer_waited_for(tmp_path: Path) -> None:
    @workflow
    async def desk(ctx: Context) -> list[str]:
        return [await ctx.ask("Formal or playful?", choices=["formal", "playful"]), await ctx.receive(str)]

    async with Engine(tmp_path / "s.db") as engine:
        await (await engine.start(desk, session_id="s")).outcome()
    async with Engine(tmp_path / "s.db", workflows=[desk], drives="none") as engine:
        await engine.session("s").answer("formal")
        plan = await engine.session("s").plan()
        assert plan["desk"].why == "what it waited for has arrived"
        assert [(each.operation, each.verdict, each.why) for each in plan.operations] == [
            ("ask", "done", "'Formal or playful?' was answered")
        ]
    async with Engine(tmp_path / "s.db", workflows=[desk]) as engine:
        await (await engine.session("s").resume()).outcome()
    async with Engine(tmp_path / "s.db", workflows=[desk], drives="none") as engine:
        assert [each.why for each in (await engine.session("s").plan()).operations] == [
            "its result is kept", "waits for a message"
        ]  # fmt: skip
        await engine.session("s").send("hello")
        assert [each.why for each in (await engine.session("s").plan()).operations] == [
            "its result is kept", "a message has arrived"
        ]  # fmt: skip


@on_loop
async def test_items_that_failed_run_again_and_a_large_map_counts_too(tmp_path: Path) -> None:
    desk, clock = Desk(400), ManualClock()
    desk.broken = {f"{LONG}7", f"{LONG}9"}
    async with Engine(tmp_path / "s.db", clock=clock) as engine:
        session = await engine.start(desk.brief)
        await settled(session, Status.SLEEPING)
        plan = await session.plan()
        assert rows(plan) == [("look_up", "done", 1), ("look_up", "done", 398), ("look_up", "will run", 2)]
        assert plan.operations[1].why == "the results of 398 of 400 items are kept"
        assert plan.operations[2].why.startswith("2 of 400 items; 2 of them after a failed attempt, OSError: no line")
        clock.advance(3600)
        await session.outcome()
        plan = await session.plan()
        assert rows(plan) == [("look_up", "done", 1), ("look_up", "done", 398), ("look_up", "will run", 2)]
        assert plan.operations[2].why == "2 of 400 items"
        desk.broken.clear()
        desk.ran.clear()
        await session.resume()
        await session.outcome()
    assert sorted(desk.ran) == [f"{LONG}7", f"{LONG}9"]


class Day(BaseModel):
    topic: str = ""


@on_loop
async def test_timers_messages_children_and_back_offs_say_what_they_wait_for() -> None:
    clock = ManualClock()

    async def fetch() -> None:
        raise OSError("no line")

    @step
    async def nap(ctx: Context) -> None:
        await ctx.sleep(7200)

    child = Workflow("child", state=Day, steps=[nap])

    async def plan_of(work: Workflow[Day], status: Status) -> Plan:
        session = await engine.start(work)
        await settled(session, status)
        return await session.plan()

    @step
    async def sleeps(ctx: Context) -> None:
        await ctx.sleep(3600)

    @step
    async def retries(ctx: Context) -> None:
        await ctx.do(fetch, retry=IN_AN_HOUR)

    @step
    async def receives(ctx: Context) -> None:
        await ctx.receive()

    @step
    async def hurries(ctx: Context) -> None:
        await ctx.receive(timeout=3600)

    @step
    async def calls(ctx: Context) -> None:
        await ctx.call(child, key="c")

    whys = {}
    async with Engine(":memory:", clock=clock) as engine:
        for each in (sleeps, retries, receives, hurries, calls):
            status = Status.SLEEPING if each in (sleeps, retries) else Status.WAITING
            (found,) = (await plan_of(Workflow(each.name, state=Day, steps=[each]), status)).operations
            whys[each.name] = (found.operation, found.verdict, found.why.partition(" child-")[0])
    until = "2023-11-14T23:13:20+00:00"
    assert whys == {
        "sleeps": ("sleep", "waits", f"waits until {until}"),
        "retries": ("fetch", "will run", f"attempt 1 failed, OSError: no line; the next one is at {until}"),
        "receives": ("receive", "waits", "waits for a message"),
        "hurries": ("receive", "waits", f"waits for a message until {until}"),
        "calls": ("call:child", "waits", whys["calls"][2]),
    }
    assert whys["calls"][2].startswith("waits for child session ")


@on_loop
async def test_a_rewind_with_reuse_shows_what_it_keeps_and_one_without_keeps_nothing() -> None:
    desk = Desk()
    async with Engine(":memory:") as engine:
        session = await engine.start(desk.brief)
        await session.outcome()
        await session.answer("formal")
        await session.outcome()
        reused = await session.plan_rewind("brief", reuse=True)
        assert rows(reused) == [
            ("look_up", "done", 1),
            ("look_up", "done", 3),
            ("ask", "done", 1),
            ("compose", "done", 1),
        ]
        undone = await session.plan_rewind("brief")
        assert {each.verdict for each in undone.operations} == {"runs again"}
        assert [(each.operation, each.count) for each in undone.operations] == [
            ("look_up", 4), ("ask", 1), ("compose", 1)
        ]  # fmt: skip


@on_loop
async def test_operations_inside_a_finished_one_are_not_listed() -> None:
    async def inner(n: int) -> int:
        return n

    async def outer(ctx: Context) -> int:
        return await ctx.do(inner, 1) + await ctx.do(inner, 2)

    @workflow
    async def nested(ctx: Context) -> int:
        total = await ctx.do(outer)
        for n in range(4):
            total += await ctx.do(inner, n)
        return total + await ctx.ask("More?", int)

    async with Engine(":memory:") as engine:
        session = await engine.start(nested)
        await session.outcome()
        plan = await session.plan()
    assert rows(plan) == [("outer", "done", 1), ("inner", "done", 4), ("ask", "waits", 1)]
    assert plan.operations[1].why == "the results of 4 operations are kept"


class Pair(BaseModel):
    first: str = ""
    second: str = ""


class Paying:
    """Two steps that pay; the second one asks after it."""

    def __init__(self) -> None:
        self.paid: list[str] = []

        @step(writes="first")
        async def one(ctx: Context) -> str:
            return await ctx.do(self.pay, "one")

        @step(writes="second")
        async def two(ctx: Context) -> str:
            await ctx.map(self.pay, ["two", "three"])
            await ctx.confirm("Well?")
            return "done"

        self.workflow = Workflow("paying", state=Pair, steps=[one, two])

    async def pay(self, what: str, ctx: Context) -> str:
        ctx.spend(usd=0.25, tokens=10)
        self.paid.append(what)
        return what


def again(plan: Plan) -> list[tuple[str, str, int, float, int]]:
    found = [each for each in plan.operations if each.verdict == "runs again"]
    return [(each.step, each.operation, each.count, each.usd, each.tokens) for each in found]


@on_loop
async def test_a_plan_lists_what_had_finished_and_runs_again_with_its_cost() -> None:
    paying = Paying()
    second = [("two", "Paying.pay", 2, 0.5, 20), ("two", "confirm", 1, 0.0, 0)]
    both = [("one", "Paying.pay", 1, 0.25, 10), *second]
    async with Engine(":memory:") as engine:
        session = await engine.start(paying.workflow, session_id="s")
        await session.outcome()
        await session.answer("no")
        assert (await session.outcome()).status is Status.FAILED
        assert again(await session.plan()) == []
        assert again(await session.plan_rewind("two")) == again(await session.plan_fork("two")) == second
        assert again(await session.plan_fork()) == second
        assert again(await session.plan_rewind("two", reuse=True)) == again(await session.plan_fork(reuse=True)) == []
        planned = await session.plan_rewind("one")
        assert again(planned) == again(await session.plan_fork("one")) == both
        assert planned.operations[0].why == "it had finished in one#1; it cost $0.25 and 10 tokens"
        assert planned.operations[1].why == "2 of them had finished in two#1; they cost $0.5 and 20 tokens"
        assert "    runs again  Paying.pay  2 of them" in str(planned)
        await session.rewind("one")
        assert await session.plan() == planned
        await session.rewind("one")  # nothing has run since
        assert again(await session.plan_edit(first="x")) == again(await session.plan()) == both
        assert len(paying.paid) == 3
        await session.resume(pause_after="one")
        await session.outcome()
        assert len(paying.paid) == 4
        assert again(await session.plan_rewind("two")) == second


@on_loop
async def test_what_a_rewind_has_kept_runs_again_after_the_next_rewind() -> None:
    paying = Paying()
    async with Engine(":memory:") as engine:
        session = await engine.start(paying.workflow, session_id="s")
        await session.outcome()
        await session.answer("no")
        await session.outcome()
        await session.rewind("two", reuse=True)
        assert again(await session.plan()) == []
        assert again(await session.plan_rewind("two")) == [
            ("two", "Paying.pay", 2, 0.5, 20),
            ("two", "confirm", 1, 0.0, 0),
        ]
