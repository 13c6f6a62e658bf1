"""A step that waits for many things at once: what one of them costs when it arrives does not depend on the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from pausepoint import Context, Engine, Session, Status, workflow
from pausepoint.model.questions import Inquiry
from pausepoint.model.records import SignalRecord, first_digest, seal_signal
from pausepoint.runtime.branches import LONGEST_REST, MANY, Rest, Wait, Waiting, topic_of
from pausepoint.stores.found import FoundQuestions
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore
from tests.support.status import settled

pytestmark = pytest.mark.no_always_replay("what a wait costs is counted while the step is in memory")

READS = ("get", "mail", "questions", "signals")


class CountingStore(ProxyStore):
    """Counts how often each verb is called."""

    def __init__(self) -> None:
        super().__init__(SqliteStore(":memory:"))
        self.counts: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        verb = super().__getattr__(name)
        if not name.startswith("_"):
            self.counts[name] += 1
        return verb

    def reads(self) -> int:
        """Return the number of reads since the last call."""
        reads = sum(self.counts[name] for name in READS)
        self.counts.clear()
        return reads


class Gate:
    """An operation that keeps a step in memory until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def hold(self) -> str:
        self.reached.set()
        await self.opened.wait()
        return "held"


async def until_waiting(engine: Engine, session: Session[Any], count: int) -> Any:
    """Wait until so many branches of the session's step wait, and return its visit."""
    while True:
        drive = engine._service.driver.drive(session.id)
        if drive is not None and drive.visit is not None and len(drive.visit.waits) == count:
            return drive.visit
        await asyncio.sleep(0.001)


async def reads_per_answer(questions: int) -> float:
    gate, store, answers = Gate(), CountingStore(), 5

    @workflow
    async def approvals(ctx: Context) -> int:
        asked = [ctx.ask(f"Item {n}?", int, key=n) for n in range(questions)]
        _, numbers = await asyncio.gather(ctx.do(gate.hold), asyncio.gather(*asked))
        return sum(numbers)

    async with Engine(store, workflows=[approvals]) as engine:
        session = await engine.start(approvals)
        await until_waiting(engine, session, questions)
        store.reads()
        for answered in range(1, answers + 1):
            await session.answer(1, key=answered)
            await until_waiting(engine, session, questions - answered)
        reads = store.reads()
        for n in range(questions):
            await session.answer(1, key=n)
        gate.opened.set()
        outcome = await session.outcome()
        assert (outcome.status, outcome.result) == (Status.COMPLETED, questions)
    return reads / answers


@on_loop
async def test_an_answer_reads_as_much_with_many_open_questions_as_with_few() -> None:
    few, many = await reads_per_answer(10), await reads_per_answer(100)
    assert many <= few * 1.5


async def reads_per_end(children: int) -> float:
    gate, store, ended = Gate(), CountingStore(), 5

    @workflow
    async def child(n: int, ctx: Context) -> int:
        await ctx.receive()
        return n

    @workflow
    async def parent(ctx: Context) -> int:
        calls = [ctx.call(child, key=n, n=n) for n in range(children)]
        _, numbers = await asyncio.gather(ctx.do(gate.hold), asyncio.gather(*calls))
        return sum(numbers)

    async with Engine(store, workflows=[parent, child]) as engine:
        session = await engine.start(parent)
        await until_waiting(engine, session, children)
        while len(below := await engine.sessions(parent=session.id, status="waiting")) < children:
            await asyncio.sleep(0.01)
        while any(engine._service.driver.drive(info.session_id) for info in below):
            await asyncio.sleep(0.01)
        await until_waiting(engine, session, children)  # the step has looked at each child that has stopped
        reads = store.reads()
        for number, info in enumerate(below, 1):
            await engine.session(info.session_id).send("go")
            await until_waiting(engine, session, children - number)
            if number == ended:
                reads = store.reads()
        gate.opened.set()
        assert (await session.outcome()).result == sum(range(children))
    return reads / ended


@on_loop
async def test_the_end_of_a_child_reads_as_much_with_many_children_as_with_few() -> None:
    few, many = await reads_per_end(10), await reads_per_end(60)
    assert many <= few * 1.5


@pytest.mark.long
@on_loop
async def test_answers_in_quick_succession_do_not_begin_all_waits_again_for_each() -> None:
    visits: Counter[str] = Counter()

    @workflow
    async def approvals(ctx: Context) -> int:
        visits["begun"] += 1
        return sum(await asyncio.gather(*[ctx.ask(f"Item {n}?", int, key=n) for n in range(2 * MANY)]))

    async with Engine(":memory:", workflows=[approvals]) as engine:
        session = await engine.start(approvals)
        await settled(session)
        for question in await session.questions():
            await engine.answer(question.id, 1)
        assert (await session.outcome()).status is Status.COMPLETED
    assert visits["begun"] < MANY / 4


@on_loop
async def test_a_step_that_stays_because_of_its_many_waits_pauses_at_once() -> None:
    @workflow
    async def approvals(ctx: Context) -> None:
        await asyncio.gather(*[ctx.ask(f"Item {n}?", key=n) for n in range(MANY)])

    async with Engine(":memory:", workflows=[approvals]) as engine:
        session = await engine.start(approvals)
        visit = await until_waiting(engine, session, MANY)
        visit.rest.length = 600.0
        while visit.resting is None:
            await asyncio.sleep(0)
        await session.pause()
        await settled(session, Status.PAUSED)
        await session.resume()
        visit = await until_waiting(engine, session, MANY)
        visit.rest.length = 600.0
        while visit.resting is None:
            await asyncio.sleep(0)
    # the engine has closed, although the step had a long time to stay


class LateStore(ProxyStore):
    """A store in which something happens right after the step has looked for the answer to a question."""

    late: Callable[[], Coroutine[Any, Any, Any]] | None = None

    async def questions(self, query: Inquiry) -> FoundQuestions:
        found = await self._inner.questions(query)
        if query.ids and self.late is not None:
            late, self.late = self.late, None
            await late()
        return found


@on_loop
async def test_an_answer_that_arrives_while_its_branch_looks_for_it_is_not_missed() -> None:
    gate, store, ready = Gate(), LateStore(SqliteStore(":memory:")), asyncio.Event()
    said: list[str] = []

    @workflow
    async def both(ctx: Context) -> None:
        async def ask() -> None:
            await ready.wait()
            said.append(await ctx.ask("Well?", key="k"))

        await asyncio.gather(ctx.do(gate.hold), ask(), ctx.ask("And you?", key="o"))

    async with Engine(store, workflows=[both]) as engine:
        session = await engine.start(both)
        visit = await until_waiting(engine, session, 1)

        async def answer() -> None:
            await session.answer("so", key="k")
            await visit.host.requests.look()
            while visit.arrivals.reading is not None:
                await asyncio.sleep(0)

        store.late = answer
        ready.set()
        while not said:
            await asyncio.sleep(0.001)
        assert (said, len(visit.waits)) == (["so"], 1)
        await session.answer("me too", key="o")
        gate.opened.set()
        assert (await session.outcome()).status is Status.COMPLETED


@on_loop
async def test_a_timer_wakes_no_branch_whose_time_has_not_come() -> None:
    gate, clock = Gate(), ManualClock()

    @workflow
    async def sleepers(ctx: Context) -> None:
        naps = [ctx.sleep(timedelta(hours=hours)) for hours in range(1, 21)]
        await asyncio.gather(ctx.do(gate.hold), *naps)

    async with Engine(":memory:", clock=clock, workflows=[sleepers]) as engine:
        session = await engine.start(sleepers)
        visit = await until_waiting(engine, session, 20)
        before = set(visit.waits)
        clock.advance(3600)
        await until_waiting(engine, session, 19)
        assert set(visit.waits) < before
        gate.opened.set()


# the index itself


def waiting(*waits: tuple[Wait, ...]) -> tuple[Waiting, list[asyncio.Future[None]]]:
    index, branches = Waiting(), [asyncio.get_running_loop().create_future() for _ in waits]
    for branch, its_waits in zip(branches, waits, strict=True):
        index.add(branch, its_waits)
    return index, branches


@on_loop
async def test_branches_are_found_by_what_they_wait_for() -> None:
    asks, calls, races = (Wait("answer", question="q", key="k"),), (Wait("child", child="c"),), (
        Wait("message"), Wait("timer", due=5), Wait("answer", question="q"),
    )  # fmt: skip
    index, (asking, called, racing) = waiting(asks, calls, races)
    assert index.arrived([("answer", "q")]) == [asking, racing]
    assert index.arrived([("early", "k")]) == [asking]
    assert index.arrived([("child", "c"), ("message", "")]) == [called, racing]
    assert index.arrived([("answer", "other"), ("child", "other")]) == []
    index.remove(racing)
    index.remove(racing)
    assert index.arrived([("answer", "q"), ("message", "")]) == [asking]
    assert (len(index), list(index), index.first_due()) == (2, [asking, called], None)
    assert index.everything_arrived() == [asking, called]


@on_loop
async def test_branches_are_found_by_their_time() -> None:
    index, (late, soon, race, untimed) = waiting(
        (Wait("timer", due=9),), (Wait("timer", due=3, holds=True),), (Wait("message", due=7), Wait("timer", due=5)),
        (Wait("message"),),
    )  # fmt: skip
    assert (index.first_due(), index.holding) == (3, (soon,))
    assert index.due(2) == []
    assert index.due(5) == [soon, race]
    index.remove(soon)
    assert (index.first_due(), index.holding, len(index)) == (9, (), 3)
    index.remove(late)
    assert index.first_due() is None
    assert untimed in set(index)


@on_loop
async def test_what_arrived_before_a_look_is_not_missed_by_it() -> None:
    index = Waiting()
    mine, other = Wait("answer", question="q"), Wait("child", child="c")
    index.arrived([("answer", "q")])
    before = index.arrivals
    assert not index.has_missed(before, [mine])
    index.arrived([("child", "c")])
    assert not index.has_missed(before, [mine])
    assert index.has_missed(before, [mine, other])
    before = index.arrivals
    index.everything_arrived()
    assert index.has_missed(before, [mine])


def test_a_signal_without_content_may_be_about_anything() -> None:
    def signal(kind: str, payload: bytes) -> SignalRecord:
        return seal_signal(first_digest("s"), 1, 0, kind, None, 0, payload)

    assert topic_of(signal("answer", b'{"value":1,"question":"q"}')) == ("answer", "q")
    assert topic_of(signal("early", b'{"value":1,"key":"k"}')) == ("early", "k")
    assert topic_of(signal("child", b'{"child":"c","status":"failed"}')) == ("child", "c")
    assert topic_of(signal("message", b'{"value":1}')) == ("message", "")
    assert topic_of(replace(signal("answer", b"{}"), payload=b"", salt=b"")) is None
    assert topic_of(signal("answer", b"[]")) is None


def test_only_a_visit_with_many_waits_stays_and_not_for_ever() -> None:
    assert Rest(0.0).next(8.0, MANY - 1, 1) == 0.0
    rest = Rest(2.0)
    assert [rest.next(2.5, MANY, 1), rest.next(3.0, MANY, 1), rest.next(9.0, 1, 2)] == [0.5, 0.0, 0.5]
    assert Rest(0.0).next(60.0, MANY, 1) == LONGEST_REST
