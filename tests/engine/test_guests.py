"""Guest sessions: a visit runs their code in the caller's task, and nobody else ever does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pausepoint import (
    AlreadyRunning,
    Context,
    DefinitionError,
    Engine,
    InputConflict,
    Parked,
    SessionEnded,
    StateRefused,
    Status,
    UnknownSession,
    VerbRefused,
    Workflow,
    run,
    step,
)
from pausepoint.errors import CallRefused, StepError, WriteRefused, WrongOwner
from pausepoint.model.records import Record
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.sqlite import SqliteStore
from pausepoint.testing import ManualClock
from tests.engine.guest import AGENT, Counter, Talk
from tests.support.loop import on_loop
from tests.support.mortal import MortalStore, crash

HOUR = 3600.0


# a visit


@on_loop
async def test_a_block_that_ends_completes_the_session_with_its_output() -> None:
    async with Engine(":memory:") as engine:
        options: dict[str, Any] = {"owner": "ann", "tags": "x", "by": "web"}
        async with engine.visit(AGENT, session_id="t", input={"topic": "otters"}, **options) as ctx:
            assert (ctx.session_id, ctx.step, ctx.state) == ("t", "visit", Talk(topic="otters"))
            ctx.emit("turn", "first")
            answer = await ctx.do(str.upper, ctx.state.topic)
            ctx.output = {"answer": answer}
        info = await engine.session("t").info()
        assert (info.status, info.owner, info.tags, info.guest) == (Status.COMPLETED, "ann", ("x",), True)
        assert await engine.session("t").state() == Talk(topic="otters", answer="OTTERS")
        assert [event.event_type async for event in engine.session("t").events()] == [
            "session.created", "turn", "operation.completed", "step.completed", "session.completed",
        ]  # fmt: skip


@on_loop
async def test_a_paused_visit_parks_and_the_next_one_continues_after_the_last_operation() -> None:
    counter = Counter()
    async with Engine(":memory:") as engine:
        visit = await counter.stop_at(1, engine)
        await engine.session("t").pause(reason="lunch", by="ann")
        counter.go.set()
        with pytest.raises(
            Parked, match=r"paused: lunch \(by ann\)\. Resume it with engine\.session\('t'\)\.resume\(\)"
        ) as left:
            await visit
        assert (left.value.session_id, left.value.status, left.value.reason) == ("t", "paused", "lunch (by ann)")
        with pytest.raises(Parked, match="lunch"):  # without entering the block
            await counter.visit(engine)
        assert counter.ran == [0, 1]
        await engine.session("t").resume(by="ann")
        assert (await engine.session("t").info()).status is Status.READY
        assert await counter.visit(engine) == 6
        assert counter.ran == [0, 1, 2, 3]
        assert (await engine.session("t").info()).status is Status.COMPLETED


@on_loop
async def test_input_is_checked_when_it_is_given_and_ids_when_they_are_known() -> None:
    counter = Counter()

    @step
    async def nothing() -> None: ...

    async with Engine(":memory:") as engine:
        await engine.start(Workflow("other", state=Talk, steps=[nothing]), session_id="other")
        visit = await counter.stop_at(1, engine)
        with pytest.raises(AlreadyRunning, match=r"'t' is being visited in process \d+"):
            await Counter().visit(engine)
        visit.cancel()
        await asyncio.wait([visit])
        counter.stops_at = None
        with pytest.raises(InputConflict, match="different input"):
            await counter.visit(engine, input={"topic": "else"})
        with pytest.raises(UnknownSession, match="is not a guest session"):
            await counter.visit(engine, "other")
        with pytest.raises(UnknownSession, match="belongs to workflow 'agent'"):
            async with engine.visit(Workflow.guest("another", state=Talk), session_id="t"):
                pass
        assert await counter.visit(engine, input={}, owner="bob") == 6
        with pytest.raises(
            SessionEnded, match=r"'t' is completed\. Read its result with engine\.session\('t'\)\.state\(\)"
        ):
            await counter.visit(engine)
        async with engine.visit(AGENT, owner="ann") as ctx:  # under an id of its own
            id = ctx.session_id
        assert (await engine.session(id).info()).owner == "ann"
        with pytest.raises(WrongOwner):
            await counter.visit(engine, id, owner="bob")


@on_loop
async def test_an_exception_in_the_block_fails_the_session_and_the_next_visit_tries_again() -> None:
    counter = Counter()

    async def handler() -> None:
        async with engine.visit(AGENT, session_id="t") as ctx:
            await ctx.do(counter.turn, 0)
            raise ZeroDivisionError("a bug")

    async with Engine(":memory:") as engine:
        with pytest.raises(ZeroDivisionError):
            await handler()
        info = await engine.session("t").info()
        assert info.failure is not None
        assert (info.status, info.failure.message) == (Status.FAILED, "a bug")
        assert await counter.visit(engine) == 6
        assert counter.ran == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("output", "error"),
    [({"turns": "many"}, StateRefused), ({"tunrs": 1}, WriteRefused), ({"turns": None}, StateRefused)],
)
@on_loop
async def test_output_that_does_not_fit_is_raised(output: dict[str, object], error: type[Exception]) -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(error):
            async with engine.visit(AGENT, session_id="t") as ctx:
                ctx.output = output
        assert (await engine.session("t").info()).status is Status.FAILED


@on_loop
async def test_a_forgotten_await_in_the_block_is_reported() -> None:
    async with Engine(":memory:") as engine:
        with pytest.raises(StepError, match=r"called ctx\.do\(\) and did not await it"):
            async with engine.visit(AGENT, session_id="t") as ctx:
                ctx.do(abs, -1)  # type: ignore[unused-coroutine]


@on_loop
async def test_a_cancelled_request_leaves_the_session_ready() -> None:
    counter = Counter()
    async with Engine(":memory:") as engine:
        visit = await counter.stop_at(2, engine)
        visit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await visit
        info = await engine.session("t").info()
        assert (info.status, info.failure) == (Status.READY, None)
        event = [event async for event in engine.session("t").events()][-1]
        assert (event.event_type, event.summary) == ("session.stopped", "the visit was cancelled")
        counter.stops_at = None
        assert await counter.visit(engine) == 6
        assert counter.ran == [0, 1, 2, 2, 3]


@pytest.mark.long
@on_loop
async def test_a_request_that_is_cancelled_while_it_enters_holds_nothing() -> None:
    counter, seen = Counter(), set()
    for turns in range(12):
        async with Engine(":memory:") as engine:
            visit = asyncio.create_task(counter.visit(engine))
            for _ in range(turns):
                await asyncio.sleep(0)
            visit.cancel()
            await asyncio.wait([visit])
            await engine._service.driver.idle()
            while engine._service.driver.background or engine._service.driver.runs:
                await asyncio.sleep(0)
            row = await engine.store.get("t")
            seen.add(None if row is None else row.status)
            if row is None or row.status is not Status.COMPLETED:  # otherwise the block had ended
                assert row is None or row.status in (Status.READY, Status.CREATED)
                assert await counter.visit(engine) == 6
    assert seen >= {None, Status.READY}  # it was cancelled before and after the session was stored


class Slow(SqliteStore):
    """A store whose reads can take a while, as those over a network do."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.reads: asyncio.Queue[asyncio.Event] | None = None

    async def records(self, key: int, since: int, until: int | None = None) -> list[Record]:
        if self.reads is not None:
            go = asyncio.Event()
            self.reads.put_nowait(go)
            await go.wait()
        return await super().records(key, since, until)


@on_loop
async def test_a_second_request_does_not_steal_a_session_that_the_first_is_about_to_enter() -> None:
    counter, store = Counter(), Slow()
    async with Engine(store) as engine:
        visit = await counter.stop_at(2, engine)
        visit.cancel()
        await asyncio.wait([visit])
        counter.stops_at, store.reads = None, asyncio.Queue()
        first = asyncio.create_task(counter.visit(engine))
        go, store.reads = await store.reads.get(), None
        with pytest.raises(AlreadyRunning):
            await counter.visit(engine)
        go.set()
        assert await first == 6
        assert (await engine.session("t").info()).fence == 2


class Late(SqliteStore):
    """A store in which something happens after the next read of a session."""

    meanwhile: Awaitable[object] | None = None

    async def get(self, session_id: str, *, sure: bool = False) -> SessionRow | None:
        row = await super().get(session_id, sure=sure)
        if self.meanwhile is not None:
            work, self.meanwhile = self.meanwhile, None
            await work
        return row


@on_loop
async def test_a_visit_that_another_process_is_just_ahead_of_says_that_the_session_is_visited(tmp_path: Path) -> None:
    counter, store = Counter(), Late(tmp_path / "s.db")
    async with Engine(tmp_path / "s.db") as first, Engine(store) as second:
        visit = await counter.stop_at(2, first)
        visit.cancel()
        await asyncio.wait([visit])
        store.meanwhile = counter.stop_at(3, first)
        with pytest.raises(AlreadyRunning) as refused:
            await counter.visit(second)
        counter.go.set()
        await first._service.driver.idle()
        assert "is being visited in process" in str(refused.value)
        assert (await first.session("t").info()).status is Status.COMPLETED


@on_loop
async def test_a_session_that_this_engine_holds_without_driving_it_can_be_visited() -> None:
    async with Engine(":memory:") as engine:
        visit = await (counter := Counter()).stop_at(2, engine)
        visit.cancel()
        await asyncio.wait([visit])
        await engine.store.claim("t")  # as after a disk that was full when the session had to be released
        counter.stops_at = None
        assert await counter.visit(engine) == 6


# nobody else drives it


@on_loop
async def test_no_waker_picks_up_a_guest_whatever_arrives(tmp_path: Path) -> None:
    @step(writes="answer")
    async def wake_up(ctx: Context) -> str:
        return await ctx.receive()

    other = Workflow("other", state=Talk, steps=[wake_up])
    waits: dict[str, Callable[[Context], Awaitable[object]]] = {
        "asks": lambda ctx: ctx.ask("Well?", expires=None),
        "listens": lambda ctx: ctx.receive(),
        "sleeps": lambda ctx: ctx.sleep(HOUR),
    }

    async def block(id: str) -> None:
        async with engine.visit(AGENT, session_id=id) as ctx:
            ctx.output = {"answer": str(await waits[id](ctx))}

    clock = ManualClock()
    async with Engine(tmp_path / "h.db", clock=clock) as engine:
        for id in waits:
            with pytest.raises(Parked):
                await block(id)
        fences = {info.session_id: info.fence for info in await engine.sessions()}
        await engine.session("asks").answer("yes")
        await engine.session("listens").send("hello")
        clock.advance(2 * HOUR)
        # This one is picked up by the same waker, so the waker has looked at the others too.
        waiting = await engine.start(other)
        await waiting.send("go")
        assert (await waiting.outcome()).status is Status.COMPLETED
        assert await engine.take_ready() == []
        for id, fence in fences.items():
            info = await engine.session(id).info()
            assert (info.status, info.fence, info.holder) == (Status.READY, fence, None), id
            assert (await engine.session(id).outcome()).status is Status.READY  # without waiting for anybody
        for id in waits:
            await block(id)
        assert [(await engine.session(id).state()).model_dump()["answer"] for id in waits] == ["yes", "hello", "None"]


@on_loop
async def test_verbs_that_would_drive_a_guest_are_refused() -> None:
    counter = Counter()

    @step
    async def parent(ctx: Context) -> None:
        await ctx.call(AGENT)

    async with Engine(":memory:") as engine:
        visit = await counter.stop_at(1, engine)
        visit.cancel()
        await asyncio.wait([visit])
        before = await engine.session("t").info()
        with pytest.raises(VerbRefused, match=r"'t' is a guest: its code runs in another program.*next engine\.visit"):
            await engine.session("t").take_up()
        with pytest.raises(VerbRefused, match="takes only by, budget and wake for it, not steal or pause_after"):
            await engine.session("t").resume(steal=True, pause_after="visit")
        for work in (engine.start(AGENT), engine.session("new", AGENT).send("hello", start={})):
            with pytest.raises(CallRefused, match=r"'agent' is a guest.*async with engine\.visit"):
                await work
        outcome = await (await engine.start(Workflow("parent", state=Talk, steps=[parent]))).outcome()
        assert outcome.failure is not None
        assert "workflow 'agent' is a guest" in outcome.failure.message
        assert await engine.session("t").info() == before
        with pytest.raises(CallRefused, match="has steps of its own, so it cannot be visited"):
            async with engine.visit(Workflow("parent2", state=Talk, steps=[parent])):
                pass


def test_a_script_cannot_run_a_guest() -> None:
    with pytest.raises(CallRefused, match="is a guest"):
        run(AGENT, store=":memory:")


@on_loop
async def test_the_definition_of_a_guest_is_checked() -> None:
    with pytest.raises(DefinitionError):
        Workflow.guest("agent", state=dict)  # type: ignore[type-var]
    assert AGENT.outline == ("visit",)
    assert AGENT.is_guest


# verbs


@on_loop
async def test_edit_rewind_and_fork_work_and_run_nothing() -> None:
    counter = Counter()
    async with Engine(":memory:") as engine:
        assert await counter.visit(engine) == 6
        await engine.session("t").rewind("visit", reuse=True)
        await engine.session("t").edit(topic="edited")
        assert (await engine.session("t").info()).status is Status.READY
        async with engine.visit(AGENT, session_id="t") as ctx:
            assert ctx.state.topic == "edited"
            await counter.loop(ctx)
        assert counter.ran == [0, 1, 2, 3]
        fork = await engine.session("t").fork("visit", session_id="u")
        info = await fork.info()
        assert (info.status, info.guest, info.holder) == (Status.CREATED, True, None)
        assert await counter.visit(engine, "u") == 6
        assert len(counter.ran) == 8
        plan = await engine.session("u").plan()
        assert [each.step for each in plan] == ["visit"]


@on_loop
async def test_a_pause_of_everything_stops_guests_and_new_visits() -> None:
    counter = Counter()
    async with Engine(":memory:") as engine:
        visit = await counter.stop_at(1, engine)
        await engine.pause_all(reason="fire", by="ann")
        counter.go.set()
        with pytest.raises(Parked, match="fire"):
            await visit
        for id in ("t", "new"):
            with pytest.raises(Parked, match="paused: fire"):
                await counter.visit(engine, id)
        assert counter.ran == [0, 1]
        await engine.lift_pause(by="ann")
        assert [info.status for info in await engine.sessions()] == [Status.READY] * 2
        assert await counter.visit(engine) == 6
        assert await Counter().visit(engine, "new") == 6


@on_loop
async def test_a_budget_parks_a_guest_and_a_resume_with_more_continues_it() -> None:
    async def block(engine: Engine) -> None:
        async with engine.visit(AGENT, session_id="t", budget=0.02) as ctx:
            for n in range(4):
                await ctx.do(str, n)
                ctx.spend(usd=0.01)

    async with Engine(":memory:") as engine:
        for _ in range(2):
            with pytest.raises(Parked, match=r"\$0\.0200 of the \$0\.0200 budget is spent") as parked:
                await block(engine)
            assert "Resume it with engine.session('t').resume(budget=…), then" in str(parked.value)
        await engine.session("t").resume(by="ann")
        with pytest.raises(Parked, match="budget is spent"):  # it is tested again
            await block(engine)
        await engine.session("t").resume(budget=0.1)
        assert await engine.session("t").pauses() == []
        await block(engine)
        info = await engine.session("t").info()
        assert (info.status, round(info.spent_usd, 2)) == (Status.COMPLETED, 0.04)


@on_loop
async def test_cancel_ends_the_block_and_the_session() -> None:
    counter = Counter()
    async with Engine(":memory:") as engine:
        visit = await counter.stop_at(1, engine)
        await engine.session("t").cancel(reason="no longer needed")
        counter.go.set()
        with pytest.raises(Parked, match=r"'t' is cancelled\. It cannot continue"):
            await visit
        with pytest.raises(SessionEnded):
            await counter.visit(engine)
        with pytest.raises(VerbRefused):
            await engine.session("t").resume()


@on_loop
async def test_a_child_of_a_guest_is_driven_and_the_next_visit_gets_its_result() -> None:
    release = asyncio.Event()

    @step(writes="answer")
    async def child(ctx: Context) -> str:
        await ctx.do(release.wait)
        return "from below"

    below = Workflow("below", state=Talk, steps=[child])

    async def block(engine: Engine) -> None:
        async with engine.visit(AGENT, session_id="t") as ctx:
            ctx.output = {"answer": (await ctx.call(below)).answer}

    async with Engine(":memory:") as engine:
        with pytest.raises(Parked, match="waiting: for a child"):
            await block(engine)
        release.set()
        (info,) = await engine.session("t").children()
        assert (await engine.session(info.session_id).outcome()).status is Status.COMPLETED
        await block(engine)
        assert (await engine.session("t").state()).model_dump()["answer"] == "from below"


@pytest.mark.long
@on_loop
async def test_crashes_pause_a_guest_and_only_a_resume_lets_it_try_again(tmp_path: Path) -> None:
    counter = Counter()
    for _ in range(3):
        engine = await Engine(MortalStore(tmp_path / "h.db"), signals=False).__aenter__()
        visit = await counter.stop_at(1, engine)
        await crash(engine)
        await asyncio.gather(visit, return_exceptions=True)
    counter.stops_at = None
    async with Engine(tmp_path / "h.db") as engine:
        for _ in range(2):
            with pytest.raises(Parked, match="3 processes died at visit#1"):
                await counter.visit(engine)
        await engine.session("t").resume(by="ann")
        assert await engine.session("t").pauses() == []
        assert await counter.visit(engine) == 6
    assert counter.ran == [0, 1, 1, 1, 1, 2, 3]
