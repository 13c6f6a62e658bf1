"""`ctx.first` returns the wait that ended first and commits no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, Session, Status, Workflow, step
from pausepoint.errors import Declined, QuestionClosed, QuestionExpired, StepError, StoreUnavailable
from pausepoint.model.questions import Inquiry
from pausepoint.model.records import SignalRecord
from pausepoint.runtime import First
from pausepoint.stores.found import FoundQuestions
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock, every_crash_point
from tests.support.chat import Mail, history
from tests.support.loop import on_loop
from tests.support.otherstores import ProxyStore
from tests.support.status import settled


def racing(
    race: Callable[[Context], Coroutine[Any, Any, First[Any]]], rest: int = 0, name: str = "race"
) -> Workflow[Mail]:
    """Make a workflow that runs a race and then receives ``rest`` messages."""

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        name, value = await race(ctx)
        return [name, value, *[await ctx.receive() for _ in range(rest)]]

    return Workflow(name, state=Mail, steps=[listen])


async def got(session: Session[Any]) -> list[Any]:
    while await session.status() not in (Status.COMPLETED, Status.FAILED):
        await asyncio.sleep(0.001)
    outcome = await session.outcome()
    assert outcome.failure is None
    return outcome.state.got  # type: ignore[no-any-return]


def reply_or_late(ctx: Context) -> Coroutine[Any, Any, First[Any]]:
    return ctx.first(reply=ctx.receive(), late=ctx.sleep(60))


@on_loop
async def test_the_message_wins_before_the_time_and_the_time_before_the_message() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        early = await engine.start(racing(reply_or_late))
        await settled(early)
        assert (await early.info()).waiting == ("message",)
        assert (await early.info()).wakes_at == clock.time + timedelta(seconds=60)
        await early.send("hello")
        assert await got(early) == ["reply", "hello"]
        late = await engine.start(racing(reply_or_late, rest=1, name="late"))
        await settled(late)
        clock.advance(60)
        while "operation.completed" not in await history(late):
            await asyncio.sleep(0.001)
        await late.send("too late")
        assert await got(late) == ["late", None, "too late"]


@on_loop
async def test_waits_without_a_name_have_their_position() -> None:
    async with Engine(":memory:") as engine:
        race = racing(lambda ctx: ctx.first(ctx.sleep(3600), ctx.receive(int)))
        session = await engine.start(race, paused=True)
        await session.send(7)
        await session.resume()
        assert await got(session) == [1, 7]


@pytest.mark.parametrize("order", [("reply", "answer"), ("answer", "reply")])
@on_loop
async def test_a_message_that_loses_stays_in_the_mailbox(order: tuple[str, ...]) -> None:
    def asked(ctx: Context) -> Coroutine[Any, Any, First[Any]]:
        waits: dict[str, Coroutine[Any, Any, Any]] = {"answer": ctx.ask("Well?"), "reply": ctx.receive()}
        return ctx.first(**{name: waits[name] for name in order})

    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        race = racing(asked, rest=1)
        session = await engine.start(race)
        await settled(session)
        await session.pause(wait=True)
        for text in ("hello", "again"):
            await engine.store.send(session.id, None, 1, b'{"value":"%b"}' % text.encode())
        await session.answer("yes")
        await session.resume()
        assert await got(session) == ["answer", "yes", "hello"]  # both were there: the answer comes first
        assert "wait.unused" not in await history(session)


@on_loop
async def test_a_message_goes_to_the_wait_whose_type_it_fits_and_is_refused_if_it_fits_none() -> None:
    def race(ctx: Context) -> Coroutine[Any, Any, First[Any]]:
        return ctx.first(count=ctx.receive(int), order=ctx.receive(dict[str, int]))

    async with Engine(":memory:") as engine:
        session = await engine.start(racing(race))
        await settled(session)
        await session.send("neither")
        while "message.refused" not in await history(session):
            await asyncio.sleep(0.001)
        await session.send({"soup": 2})
        assert await got(session) == ["order", {"soup": 2}]
        assert (await history(session)).count("message.refused") == 1


@on_loop
async def test_a_question_that_loses_is_closed_with_the_winner() -> None:
    clock = ManualClock()
    async with Engine(":memory:", clock=clock) as engine:
        race = racing(lambda ctx: ctx.first(answer=ctx.ask("Well?"), late=ctx.sleep(60)), rest=1)
        session = await engine.start(race)
        await settled(session)
        [question] = await session.questions()
        clock.advance(60)
        while "operation.completed" not in await history(session):
            await asyncio.sleep(0.001)
        assert await session.questions() == []
        assert (await engine.question(question.id)).status.value == "CANCELLED"
        with pytest.raises(QuestionClosed):
            await engine.answer(question.id, "too late")
        await session.send("next")
        assert await got(session) == ["late", None, "next"]


class LateStore(ProxyStore):
    """A store in which an answer arrives right after the step has looked for it."""

    late: Callable[[], Coroutine[Any, Any, Any]] | None = None

    async def mail(
        self, key: int, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        found = await self._inner.mail(key, limit, kind, about)
        if self.late is not None and any(signal.kind == "message" for signal in found):
            late, self.late = self.late, None
            await late()
        return found


class SickStore(ProxyStore):
    """A store that at some time cannot read questions any more."""

    is_sick = False
    reads = 0

    async def questions(self, query: Inquiry) -> FoundQuestions:
        self.reads += self.is_sick
        if self.is_sick:
            raise StoreUnavailable("The disk is gone.")
        return await self._inner.questions(query)


@pytest.mark.no_always_replay("the store fails at one moment of the first run")
@on_loop
async def test_a_store_that_fails_when_a_winner_is_recorded_ends_the_run_and_is_not_asked_forever() -> None:
    store = SickStore(SqliteStore(":memory:"))

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        async def talk() -> None:
            await ctx.first(ctx.ask("Well?"), ctx.receive())
            store.is_sick = True
            ctx._visit.settle()  # as a pause does
            await asyncio.Event().wait()

        await asyncio.gather(ctx.sleep(3600), talk())
        return []

    async with Engine(store) as engine:
        session = await engine.start(Workflow("race", state=Mail, steps=[listen]))
        await settled(session)
        await engine.store.send(session.id, None, 1, b'{"value":"hello"}')
        while not store.is_sick:
            await asyncio.sleep(0.001)
        try:
            with pytest.raises(StoreUnavailable, match="The disk is gone"):
                await session.outcome()
        finally:
            store.is_sick = False
        assert store.reads == 1


@pytest.mark.no_always_replay("the answer arrives at one moment of the first run")
@on_loop
async def test_an_answer_that_nobody_takes_any_more_is_an_event() -> None:
    store = LateStore(SqliteStore(":memory:"))
    async with Engine(store) as engine:
        race = racing(lambda ctx: ctx.first(answer=ctx.ask("Well?"), reply=ctx.receive()), rest=1)
        session = await engine.start(race)
        await settled(session)
        [question] = await session.questions()
        store.late = lambda: engine.answer(question.id, "yes", by="ann")
        await engine.store.send(session.id, None, 1, b'{"value":"hello"}')
        while "wait.unused" not in await history(session):
            await asyncio.sleep(0.001)
        [event] = [event async for event in session.events() if event.event_type == "wait.unused"]
        assert "ask~" in event.data["id"]
        assert "'Well?'" in event.summary
        assert (await engine.question(question.id)).status.value == "CANCELLED"
        await settled(session)
        await session.send("next")
        assert await got(session) == ["reply", "hello", "next"]


@on_loop
async def test_a_child_can_win_and_lose() -> None:
    class Part(BaseModel):
        n: int = 0

    gate = asyncio.Event()

    @step(writes="n")
    async def work() -> int:
        await gate.wait()
        return 7

    part = Workflow("part", state=Part, steps=[work])

    async def race(ctx: Context) -> First[Any]:
        name, value = await ctx.first(part=ctx.call(part), reply=ctx.receive())
        return First(name, value.n if isinstance(value, Part) else value)

    async with Engine(":memory:") as engine:
        loses = await engine.start(workflow := racing(race))
        await settled(loses)
        await loses.send("enough")
        assert await got(loses) == ["reply", "enough"]
        wins = await engine.start(workflow)
        await settled(wins)
        gate.set()
        assert await got(wins) == ["part", 7]
        [child] = await loses.children()
        assert (await engine.session(child.session_id).outcome()).status is Status.COMPLETED


@on_loop
async def test_the_errors_of_a_question_are_raised_and_remembered() -> None:
    clock = ManualClock()

    async def race(ctx: Context) -> First[Any]:
        try:
            return await ctx.first(ctx.ask("Well?", expires=timedelta(seconds=5)), ctx.receive())
        except QuestionExpired:
            return First("expired", await ctx.receive())

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(racing(race))
        await settled(session)
        clock.advance(5)
        while "question.expired" not in await history(session):
            await asyncio.sleep(0.001)
        await settled(session)
        await engine.store.send(session.id, None, 1, b'{"value":"hello"}')
        assert await got(session) == ["expired", "hello"]


@on_loop
async def test_after_a_no_in_a_race_the_act_cannot_run() -> None:
    ran: list[bool] = []

    def pay() -> None:
        ran.append(True)

    async def race(ctx: Context) -> First[Any]:
        try:
            await ctx.first(ctx.confirm("Pay?", act=pay), ctx.sleep(3600))
        except Declined:
            with pytest.raises(Declined):
                await ctx.do(pay)
        return First("declined", None)

    async with Engine(":memory:") as engine:
        session = await engine.start(racing(race))
        await settled(session)
        await session.answer(False)
        assert (await got(session), ran) == (["declined", None], [])


@on_loop
async def test_the_winner_stays_the_winner_in_every_later_run(tmp_path: Path) -> None:
    clock = ManualClock()
    race = racing(reply_or_late, rest=2)
    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        session = await engine.start(race, session_id="one")
        await settled(session)
        clock.advance(60)
        while "operation.completed" not in await history(session):
            await asyncio.sleep(0.001)
        await settled(session)
        await session.send("1")
        await settled(session)
    async with Engine(tmp_path / "h.db", clock=clock, workflows=[race]) as engine:
        session = engine.session("one")
        await session.send("2")
        assert await got(session) == ["late", None, "1", "2"]


@on_loop
async def test_races_in_several_branches_share_the_mailbox() -> None:
    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        won = await asyncio.gather(*[ctx.first(ctx.receive(), ctx.sleep(3600)) for _ in range(3)])
        return [first.value for first in won]

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("race", state=Mail, steps=[listen]))
        for n in range(3):
            await settled(session)
            await session.send(f"{n}")
        assert sorted(await got(session)) == ["0", "1", "2"]


@pytest.mark.no_always_replay("counts the turns of the loop")
@on_loop
async def test_a_race_that_is_cancelled_at_any_turn_loses_no_message() -> None:
    cancelled: list[int] = []

    @step(writes="got")
    async def listen(wanted: int, ctx: Context) -> list[Any]:
        race = asyncio.create_task(reply_or_late(ctx))
        for _ in range(wanted):
            await asyncio.sleep(0)
        race.cancel()
        try:
            return [(await race).value]
        except asyncio.CancelledError:
            cancelled.append(wanted)
        return [await ctx.receive()]

    workflow = Workflow("race", state=Mail, steps=[listen])
    async with Engine(":memory:") as engine:
        for turn in range(12):
            session = await engine.start(workflow, wanted=turn, paused=True)
            await session.send("hello")
            await session.resume()
            assert await got(session) == ["hello"], turn
    assert 0 < len(cancelled) < 12


@on_loop
async def test_only_calls_of_waits_can_race() -> None:
    async def other() -> None: ...

    async def run(make: Callable[[Context], Any]) -> str:
        async with Engine(":memory:") as engine:
            outcome = await (await engine.start(racing(make))).outcome()
            assert outcome.failure is not None
            return outcome.failure.message

    work = other()
    assert "not <coroutine object" in await run(lambda ctx: ctx.first(work))
    work.close()
    assert "takes calls of ctx.receive, sleep" in await run(lambda ctx: ctx.first(7))  # type: ignore[arg-type]
    assert "at least one wait" in await run(lambda ctx: ctx.first())


@on_loop
async def test_a_wait_that_has_begun_or_belongs_to_another_step_cannot_race() -> None:
    kept: list[Context] = []

    @step
    async def before(ctx: Context) -> None:
        kept.append(ctx)

    @step(writes="got")
    async def listen(ctx: Context) -> list[Any]:
        call = ctx.receive()
        waiting = asyncio.create_task(call)
        await asyncio.sleep(0)
        for begun in (call, waiting):
            with pytest.raises(StepError, match="that were not awaited, not <"):
                await ctx.first(begun)  # type: ignore[arg-type]
        foreign = kept[0].receive()
        with pytest.raises(StepError, match="a wait of another step"):
            await ctx.first(foreign)
        foreign.close()
        return [await waiting]  # the wait has lost nothing

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("race", state=Mail, steps=[before, listen]), paused=True)
        await session.send("hello")
        await session.resume()
        assert await got(session) == ["hello"]


@pytest.mark.long
def test_a_crash_at_any_write_of_a_race_delivers_every_message_once() -> None:
    async def play(session: Session[Any]) -> None:
        for text in ("1", "2"):
            await session.send(text, key=text)

    def compare(state: Mail) -> None:
        assert state.got == ["reply", "1", "2"]

    race = racing(lambda ctx: ctx.first(reply=ctx.receive(), late=ctx.sleep(3600)), rest=1)
    assert len(every_crash_point(race, play=play, compare=compare)) > 4
