"""How the block of a guest session hears that it must stop, wherever its code is."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter as Counted
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pausepoint import Engine, Parked, SessionEnded, Status, Workflow, current, durable
from pausepoint.errors import CallRefused, ContextClosed, HoldLost, OutsideStep, StepExited
from pausepoint.model.sessions import SessionRow
from pausepoint.stores.sqlite import SqliteStore
from tests.engine.guest import AGENT, Counter, Talk, caught
from tests.support.loop import PATIENCE, on_loop


@on_loop
async def test_except_exception_does_not_swallow_the_signal_and_a_bare_except_hears_it_again() -> None:
    heard: list[str] = []

    async def agent_that_retries() -> None:
        for _ in range(3):
            try:
                await current().do(abs, -2)
            except Exception:
                heard.append("an error")
            except BaseException as signal:  # as badly behaved code does
                heard.append(type(signal).__name__)

    async def handler() -> None:
        async with engine.visit(AGENT, session_id="t") as ctx:
            await ctx.do(abs, -1)
            await engine.session("t").pause()
            await agent_that_retries()
            heard.append("end")

    async with Engine(":memory:") as engine:
        with pytest.raises(Parked, match="paused") as left:
            await handler()
        assert heard == ["StepExited"] * 3 + ["end"]
        assert isinstance(left.value, Exception)
        assert not isinstance(StepExited(), Exception)
        assert (await engine.session("t").info()).status is Status.PAUSED


@on_loop
async def test_inside_gather_task_groups_and_orphans_the_block_is_left() -> None:
    async def gathered() -> None:
        await asyncio.gather(*(current().do(abs, -n) for n in range(3)))

    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(current().do(abs, -n))

    async def mapped() -> None:
        await current().map(abs, range(3))

    async def orphaned() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue()

        async def work() -> None:
            queue.put_nowait(await current().do(abs, -1))

        tasks.append(asyncio.create_task(work()))
        await queue.get()

    async def nested() -> None:
        async with asyncio.timeout(PATIENCE):
            await asyncio.create_task(gathered())

    async def handler(engine: Engine, id: str, code: Callable[[], Awaitable[None]]) -> None:
        async with engine.visit(AGENT, session_id=id):
            await engine.session(id).pause()
            await code()

    tasks: list[asyncio.Task[None]] = []
    async with Engine(":memory:") as engine:
        for code in (gathered, grouped, mapped, orphaned, nested):
            task = asyncio.create_task(handler(engine, code.__name__, code))
            with pytest.raises(Parked, match="paused"):
                await task
            if code not in (grouped, mapped):  # a task group of Python 3.11 leaves its own cancellation behind
                assert task.cancelling() == 0, code
            assert (await engine.session(code.__name__).info()).status is Status.PAUSED
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)


@on_loop
async def test_an_abort_ends_the_operation_in_flight() -> None:
    counter = Counter()
    async with Engine(":memory:") as engine:
        visit = await counter.stop_at(1, engine)
        await engine.session("t").pause(mode="abort")
        with pytest.raises(Parked, match="paused"):
            await visit
        assert visit.cancelling() == 0
        await engine.session("t").resume()
        counter.stops_at = None
        assert await counter.visit(engine) == 6
        assert counter.ran == [0, 1, 1, 2, 3]


@on_loop
async def test_a_request_that_is_cancelled_while_its_own_code_runs_in_a_shutdown_stays_cancelled() -> None:
    """A shutdown does not cancel the block's own code, so the cancellation is the caller's."""
    async with Engine(":memory:") as engine:
        reached = asyncio.Event()

        async def handler() -> None:
            async with engine.visit(AGENT, session_id="t"):
                reached.set()
                await asyncio.sleep(PATIENCE)

        task = asyncio.create_task(handler())
        await reached.wait()
        await engine._service.driver.stop("SIGTERM received")
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await engine.session("t").info()).status is Status.READY


@on_loop
async def test_a_request_that_is_cancelled_while_it_is_paused_stays_cancelled() -> None:
    async with Engine(":memory:") as engine:
        reached = asyncio.Event()

        async def handler() -> None:
            async with engine.visit(AGENT, session_id="t") as ctx:
                await engine.session("t").pause(mode="abort")
                reached.set()
                await ctx.do(asyncio.sleep, 60)

        task = asyncio.create_task(handler())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while engine._service.driver.runs:
            await asyncio.sleep(0)
        assert (await engine.session("t").info()).status is Status.PAUSED


@on_loop
async def test_closing_the_engine_releases_the_session_and_the_next_operation_says_so() -> None:
    heard: list[BaseException | None] = []

    async def handler() -> None:
        async with engine.visit(AGENT, session_id="t") as ctx:
            await ctx.do(abs, -1)
            await engine._service.driver.stop("shutdown")
            assert (await engine.session("t").info()).holder is None
            await asyncio.sleep(0)  # the block's own code is not cancelled
            heard.append(await caught(ctx, ctx.do(abs, -2)))

    async with Engine(":memory:", signals=False) as engine:
        with pytest.raises(Parked, match="is ready: shutdown"):
            await handler()
    assert [type(error) for error in heard] == [StepExited]


@on_loop
async def test_a_block_that_ends_after_its_session_was_released_is_parked() -> None:
    async def handler() -> None:
        async with engine.visit(AGENT, session_id="t") as ctx:
            await engine._service.driver.stop("shutdown")
            ctx.output = {"turns": 1}

    async with Engine(":memory:", signals=False) as engine:
        with pytest.raises(Parked, match="ready"):
            await handler()
        assert (await engine.session("t").info()).status is Status.READY


@pytest.mark.parametrize("operates", [True, False])
@on_loop
async def test_a_block_that_outlives_its_engine_is_parked(tmp_path: Path, operates: bool) -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    async def handler() -> None:
        async with engine.visit(AGENT, session_id="t") as ctx:
            inside.set()
            await go.wait()
            if operates:
                await ctx.do(abs, -2)

    async with Engine(tmp_path / "s.db") as engine:
        request = asyncio.create_task(handler())
        await inside.wait()
    go.set()
    with pytest.raises(Parked, match="'t' was released, because its engine was closed") as parked:
        await request
    assert (parked.value.status, parked.value.session_id) == ("ready", "t")
    async with Engine(tmp_path / "s.db") as engine:
        assert (await engine.session("t").info()).status in (Status.READY, Status.CREATED)


@on_loop
async def test_a_guest_that_was_taken_over_hears_it_and_writes_nothing(tmp_path: Path) -> None:
    async def handler() -> None:
        async with engine.visit(AGENT, session_id="t") as ctx:
            await ctx.do(abs, -1)
            taken.append(await other.claim("t", steal=True))
            for n in range(100):
                await ctx.do(abs, -n)
            raise AssertionError("it continued")

    taken: list[SessionRow] = []
    async with Engine(tmp_path / "h.db") as engine:
        other = SqliteStore(tmp_path / "h.db")
        await other.open(lambda keys: None)
        with pytest.raises(HoldLost):
            await handler()
        assert await other.get("t") == taken[0]
        await other.close()


@on_loop
async def test_after_the_block_its_context_is_closed_and_there_is_no_current_one() -> None:
    async with Engine(":memory:") as engine:
        async with engine.visit(AGENT, session_id="t") as ctx:
            assert current().session_id == "t"
        with pytest.raises(ContextClosed):
            await ctx.do(abs, -1)
        with pytest.raises(OutsideStep):
            current()
        visit = engine.visit(AGENT, session_id="u")
        async with visit:
            pass
        with pytest.raises(CallRefused, match="entered before"):
            await visit.__aenter__()


@on_loop
async def test_durable_functions_and_threads_of_the_block_belong_to_it() -> None:
    ran: list[str] = []

    @durable
    async def model(text: str) -> str:
        ran.append(text)
        return text.upper()

    @durable
    def tool(text: str) -> str:
        ran.append(text)
        return text.upper()

    async def block(engine: Engine) -> None:
        async with engine.visit(AGENT, session_id="t") as ctx:
            answer = await model("a") + await asyncio.to_thread(tool, "b")
            ctx.output = {"answer": answer + await ctx.ask("More?")}

    async with Engine(":memory:") as engine:
        with pytest.raises(Parked):
            await block(engine)
        await engine.session("t").answer("!")
        await block(engine)
        assert (await engine.session("t").state()).model_dump()["answer"] == "AB!"
    assert ran == ["a", "b"]


@on_loop
async def test_a_thread_of_the_block_hears_it_too() -> None:
    heard: list[str] = []

    def agent() -> None:
        try:
            current(blocking=True).do(abs, -1)
        except BaseException as signal:
            heard.append(type(signal).__name__)
            over.set()
            raise

    async def handler() -> None:
        async with engine.visit(AGENT, session_id="t"):
            await engine.session("t").pause()
            await asyncio.to_thread(agent)

    over = threading.Event()
    async with Engine(":memory:") as engine:
        with pytest.raises(Parked):
            await handler()
    assert over.wait(PATIENCE)
    assert heard == ["StepExited"]


@on_loop
async def test_with_a_hold_an_operation_waits_in_place_and_continues_when_it_is_resumed() -> None:
    patient = Workflow.guest("patient", state=Talk, hold=60)
    parked = asyncio.Event()

    async def handler(engine: Engine) -> str:
        async with engine.visit(patient, session_id="t") as ctx:
            await engine.session("t").pause()
            parked.set()
            return str(await ctx.do(abs, -1))

    async with Engine(":memory:") as engine:
        task = asyncio.create_task(handler(engine))
        await parked.wait()
        while (info := await engine.session("t").info()).kept_by is None:
            await asyncio.sleep(0)
        assert info.status is Status.PAUSED
        await engine.session("t").resume(by="ann")
        assert await task == "1"
        assert (await engine.session("t").info()).status is Status.COMPLETED
        events = [event.event_type async for event in engine.session("t").events()]
        assert events.count("session.resumed") == 1


# blocking code


def test_a_blocking_handler_visits_parks_and_continues() -> None:
    ran: list[int] = []

    @durable
    def tool(n: int) -> int:
        ran.append(n)
        return n

    with Engine(":memory:") as engine:

        def handler() -> None:
            with engine.visit(AGENT, session_id="t", input={"topic": "x"}) as ctx:
                total = sum(tool(n) for n in range(3))
                answer = ctx.ask(f"{ctx.state.topic}?")
                ctx.output = {"turns": total, "answer": answer}

        with pytest.raises(Parked, match=r"waiting: x\? Answer the question"):
            handler()
        assert current(None) is None
        engine.session("t").answer("fine")
        handler()
        assert engine.session("t").state() == Talk(topic="x", answer="fine", turns=3)
        with pytest.raises(ZeroDivisionError), engine.visit(AGENT, session_id="u"):
            raise ZeroDivisionError
        assert engine.session("u").info().status is Status.FAILED
    assert ran == [0, 1, 2]


@pytest.mark.parametrize("operates", [True, False])
def test_a_block_in_a_thread_that_outlives_its_engine_is_parked(tmp_path: Path, operates: bool) -> None:
    inside, go, heard = threading.Event(), threading.Event(), list[BaseException]()

    def handler() -> None:
        try:
            with engine.visit(AGENT, session_id="t") as ctx:
                inside.set()
                go.wait(PATIENCE)
                if operates:
                    ctx.do(abs, -2)
        except BaseException as error:
            heard.append(error)

    with Engine(tmp_path / "s.db") as engine:
        request = threading.Thread(target=handler)
        request.start()
        assert inside.wait(PATIENCE)
    go.set()
    request.join(PATIENCE)
    assert [(type(error), "because its engine was closed" in str(error)) for error in heard] == [(Parked, True)]


@pytest.mark.parametrize("verb", ["abort", "cancel"])
@on_loop
async def test_a_verb_that_arrives_while_the_block_is_entered_parks_it_and_cancels_no_task(verb: str) -> None:
    """At whichever turn of the loop it arrives."""
    ends = Counted[str]()

    async def handler(session_id: str) -> str:
        try:
            async with engine.visit(AGENT, session_id=session_id) as ctx:
                await ctx.do(abs, -1)
        except (Parked, SessionEnded) as error:
            return type(error).__name__
        return "completed"

    async with Engine(":memory:") as engine:
        for turns in range(30):
            session_id = f"{verb}-{turns}"
            task = asyncio.create_task(handler(session_id))
            while await engine.store.get(session_id) is None:
                await asyncio.sleep(0)
            for _ in range(turns):
                await asyncio.sleep(0)
            with suppress(SessionEnded):
                await (
                    engine.session(session_id).pause(mode="abort")
                    if verb == "abort"
                    else engine.session(session_id).cancel()
                )
            ends[await task] += 1
            assert not task.cancelling()
    assert ends["Parked"] + ends["SessionEnded"] > 3, "too late to show anything"
