"""`current` returns the context of the code that asks: in steps, operations, items, threads and tasks."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Context, Engine, OutsideStep, Status, Workflow, current, guard, step
from pausepoint.errors import ContextClosed, StepError, StepExited
from tests.support.loop import PATIENCE, on_loop
from tests.support.twice import State, Twice, run


def scope() -> str:
    """Return the place of the calling code: empty in the body of a step."""
    ctx: Any = current()
    return str(ctx._frame.scope)


def test_outside_of_a_step_it_raises_or_returns_the_default() -> None:
    with pytest.raises(OutsideStep, match=r"does not run inside a step.*current\(None\)"):
        current()
    assert current(None) is None
    assert current("nobody") == "nobody"


@on_loop
async def test_it_is_the_context_of_the_operation_not_of_the_step() -> None:
    seen: dict[str, Any] = {}

    async def inner() -> str:
        seen["inner"] = scope()
        return current().idempotency_key

    async def outer(ctx: Context) -> str:
        seen["outer"] = scope()
        assert current().idempotency_key == ctx.idempotency_key
        key = await current().do(inner)
        seen["after inner"] = scope()
        return key

    async def body(ctx: Context) -> str:
        seen["body"] = scope()
        key = await ctx.do(outer)
        assert key != ctx.idempotency_key
        seen["after"] = scope()
        return key

    twice = Twice()
    assert (await twice.run(body)).status is Status.COMPLETED
    assert seen["body"] == seen["after"] == ""
    assert seen["outer"] == seen["after inner"]
    assert seen["inner"].startswith(seen["outer"] + "/")


@on_loop
async def test_a_map_item_has_its_own_context_also_while_others_run() -> None:
    keys: dict[int, tuple[str, str]] = {}

    async def work(n: int) -> int:
        before = current().idempotency_key
        await asyncio.sleep(0)
        keys[n] = before, current().idempotency_key
        return n

    async def body(ctx: Context) -> int:
        assert await ctx.map(work, range(5), concurrency=3) == list(range(5))
        return len(keys)

    assert (await Twice().run(body)).state.text == "5"
    assert all(before == after for before, after in keys.values())
    assert len({before for before, _ in keys.values()}) == 5


@on_loop
async def test_a_blocking_operation_gets_a_blocking_context_in_its_thread() -> None:
    kinds: list[str] = []

    def blocking(n: int) -> int:
        ctx = current(blocking=True)
        kinds.append(type(ctx).__name__)
        return int(ctx.do(abs, -n))

    async def body(ctx: Context) -> int:
        return sum([await ctx.do(blocking, 1), *await ctx.map(blocking, [2, 3])])

    assert (await Twice().run(body)).state.text == "6"
    assert set(kinds) == {"BlockingContext"}


@on_loop
async def test_tasks_and_threads_of_a_step_know_its_context() -> None:
    seen: list[str] = []

    async def in_task(name: str) -> None:
        seen.append(await current().do(str.upper, name))

    def in_thread(name: str) -> None:
        seen.append(current(blocking=True).do(str.upper, name))

    async def body(ctx: Context) -> None:
        await asyncio.create_task(in_task("task"))
        async with asyncio.TaskGroup() as group:
            group.create_task(in_task("group"))
        await asyncio.gather(in_task("gathered"))
        await asyncio.to_thread(in_thread, "thread")

    outcome = await Twice().run(body)
    assert outcome.status is Status.COMPLETED
    assert set(seen) == {"TASK", "GROUP", "GATHERED", "THREAD"}


@on_loop
async def test_a_thread_that_does_not_copy_the_context_is_outside() -> None:
    found: list[object] = []

    async def body(ctx: Context) -> None:
        with ThreadPoolExecutor(1) as pool:
            found.append(pool.submit(current, None).result())

    await Twice().run(body)
    assert set(found) == {None}


@on_loop
async def test_a_step_without_a_context_parameter_has_one_too() -> None:
    ran: list[str] = []

    def count(name: str) -> str:
        ran.append(name)
        return name

    @step(writes="text", retry=2)
    async def first() -> str:
        text = await current().do(count, "async")
        if current().attempt == 1:
            raise ConnectionError
        return text

    @step(writes="text", retry=2)
    def second(text: str) -> str:
        found = current(blocking=True).do(count, "blocking")
        if current().attempt == 1:
            raise ConnectionError
        return f"{text}, {found}"

    outcome = await run(first, second)
    assert outcome.state.text == "async, blocking"
    assert ran == ["async", "blocking"]


@on_loop
async def test_a_pause_stops_a_step_without_a_parameter_before_its_next_operation() -> None:
    began, go = asyncio.Event(), asyncio.Event()
    ran: list[int] = []

    async def count(n: int) -> int:
        ran.append(n)
        began.set()
        await go.wait()
        return n

    @step(writes="text")
    async def work() -> str:
        return str(sum([await current().do(count, n) for n in range(3)]))

    async with Engine(":memory:", hold=0) as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await began.wait()
        await session.pause()
        go.set()
        assert (await session.outcome()).status is Status.PAUSED
        assert ran == [0]
        assert (await (await session.resume()).outcome()).state.text == "3"
    assert ran == [0, 1, 2]


class Order(BaseModel):
    n: int = 0


@on_loop
async def test_guards_and_callbacks_and_other_sessions_are_outside() -> None:
    seen: list[tuple[str, bool]] = []

    def look(where: str) -> None:
        seen.append((where, current(None) is None))

    @step(writes="n")
    async def child() -> int:
        seen.append(("child", current().session_id == "outer"))
        return 1

    @guard(after=child)
    def check(n: int) -> str | None:
        look("guard")
        return None

    async def announce(*_: object) -> None:
        look("on_step")

    inner = Workflow("inner", state=Order, steps=[child], guards=[check])

    @step(writes="n")
    async def parent(ctx: Context) -> int:
        session = await engine.start(inner)
        await session.outcome()
        look("parent")
        return (await ctx.call(inner)).n

    async with Engine(":memory:", on_step=announce) as engine:
        session = await engine.start(Workflow("outer", state=Order, steps=[parent]), session_id="outer")
        assert (await session.outcome()).status is Status.COMPLETED
    assert set(seen) == {("guard", True), ("on_step", True), ("child", False), ("parent", False)}


@on_loop
async def test_a_task_that_outlives_its_step_is_told_that_the_step_has_ended() -> None:
    errors: list[BaseException] = []
    over = asyncio.Event()

    async def straggle() -> None:
        await over.wait()
        try:
            await current().do(abs, -1)
        except Exception as error:
            errors.append(error)

    tasks: list[asyncio.Task[None]] = []

    @step
    async def leaves_early() -> None:
        tasks.append(asyncio.create_task(straggle()))

    await run(leaves_early)
    over.set()
    await asyncio.gather(*tasks)
    assert [type(error) for error in errors] == [ContextClosed]


@on_loop
async def test_a_thread_that_outlives_its_step_is_ended() -> None:
    ended: list[BaseException] = []
    over = threading.Event()

    def straggle() -> None:
        over.wait(PATIENCE)
        try:
            current()  # the step has never asked for its context, so it cannot be opened any more
        except BaseException as error:
            ended.append(error)

    tasks: list[asyncio.Task[None]] = []

    @step
    async def leaves_early() -> None:
        tasks.append(asyncio.create_task(asyncio.to_thread(straggle)))
        await asyncio.sleep(0)  # the thread gets a copy of the context variables

    await run(leaves_early)
    over.set()
    await asyncio.gather(*tasks)
    assert [type(error) for error in ended] == [StepExited]


@on_loop
async def test_a_blocking_context_is_refused_on_the_loops_thread() -> None:
    async def body(ctx: Context) -> None:
        assert threading.current_thread() is threading.main_thread()
        with pytest.raises(StepError, match="BlockingContext on the event loop's thread"):
            current(blocking=True)

    assert (await Twice().run(body)).status is Status.COMPLETED
