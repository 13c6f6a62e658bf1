"""Durable operations run once, are remembered when they end, and are recognized when the step runs again."""

from __future__ import annotations

import asyncio
import functools
import threading
from datetime import date
from typing import Any, Literal, cast

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, MapFailed, Status, Workflow, route, step
from pausepoint.log.ledger import KEY_FRAME_EVERY
from pausepoint.testing import ManualClock
from tests.support.loop import PATIENCE, on_loop
from tests.support.pipeline import Gate
from tests.support.twice import State, Twice, run


class Found(BaseModel):
    when: date
    tags: set[str] = set()


# do


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_a_do_runs_once_and_gives_the_same_value_of_the_same_type_afterwards() -> None:
    twice = Twice()
    seen: list[Found] = []

    async def look_up(word: str, *, lang: str) -> Found:
        twice.ran.append((word, lang))
        return Found(when=date(2024, 2, 29), tags={word})

    async def body(ctx: Context) -> None:
        seen.append(await ctx.do(look_up, "otter", lang="en"))

    outcome = await twice.run(body)
    assert outcome.status is Status.COMPLETED
    assert twice.tops == 2
    assert twice.ran == [("otter", "en")]
    assert seen == [Found(when=date(2024, 2, 29), tags={"otter"})] * 2


@on_loop
async def test_what_the_first_run_sees_is_what_a_replay_will_see() -> None:
    twice = Twice()
    seen: list[Any] = []
    kept: list[list[int]] = []

    async def numbers() -> list[int]:
        kept.append([1, 2])
        return kept[0]

    async def body(ctx: Context) -> None:
        seen.append(await ctx.do(numbers))
        seen[-1].append(3)  # changes the step's own copy, not the remembered value

    await twice.run(body)
    assert kept == [[1, 2]]
    assert seen == [[1, 2, 3], [1, 2, 3]]


@on_loop
async def test_a_value_that_is_stored_as_another_type_has_that_type_at_once() -> None:
    twice = Twice()
    seen: list[object] = []

    async def weigh() -> float:
        return 3

    async def body(ctx: Context) -> None:
        seen.append(await ctx.do(weigh))

    await twice.run(body)
    assert [(value, type(value)) for value in seen] == [(3.0, float)] * 2


@on_loop
async def test_equal_calls_are_told_apart_by_their_number_and_different_ones_by_their_arguments() -> None:
    twice = Twice()

    async def roll(sides: int) -> int:
        twice.ran.append(sides)
        return len(twice.ran)

    async def body(ctx: Context) -> list[int]:
        return [await ctx.do(roll, 6), await ctx.do(roll, 6), await ctx.do(roll, 20)]

    outcome = await twice.run(body)
    assert twice.ran == [6, 6, 20]
    assert outcome.state.text == "[1, 2, 3]"


@on_loop
async def test_a_key_names_an_operation_whatever_its_arguments_are() -> None:
    twice = Twice()

    async def send(what: object) -> int:
        twice.ran.append(what)
        return len(twice.ran)

    async def body(ctx: Context) -> list[int]:
        # An object has no stored form and a lambda has no name, so only the key distinguishes the operations.
        return [
            await ctx.do(send, object(), key="first"),
            await ctx.do(send, object(), key=2),
            await ctx.do(lambda: send("third"), key="third"),
        ]

    outcome = await twice.run(body)
    assert len(twice.ran) == 3
    assert outcome.state.text == "[1, 2, 3]"


@on_loop
async def test_a_blocking_function_a_partial_and_a_method_can_be_done() -> None:
    class Client:
        def fetch(self, word: str) -> str:
            return word.upper()

    def join(left: str, right: str) -> str:
        return left + right

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        return [
            await ctx.do(str.upper, "a"),
            await ctx.do(functools.partial(join, "b"), "c"),
            await ctx.do(Client().fetch, "d"),
        ]

    assert (await run(work)).state.done == ["A", "bc", "D"]


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda ctx: ctx.do(lambda: 1), "has no name to be remembered by"),
        (lambda ctx: ctx.do(len, object()), "cannot be encoded"),
        (lambda ctx: ctx.do(len, "a", key=1.5), "key= must be a string or an integer"),
        (lambda ctx: ctx.do(len, "a", key=True), "key= must be a string or an integer"),
        (lambda ctx: ctx.map(lambda x: x, [1]), "has no name to be remembered by"),
        (lambda ctx: ctx.map(len, ["a", "b"], key=lambda item: "same"), "have the same key"),
        (lambda ctx: ctx.map(len, ["a"], concurrency=0), "at least 1"),
        (lambda ctx: ctx.map(len, ["a"], on_error="ignore"), "'raise' or 'collect'"),
    ],
)
@on_loop
async def test_an_operation_that_could_not_be_recognised_again_is_refused_before_it_runs(act: Any, said: str) -> None:
    @step
    async def work(ctx: Context) -> None:
        await act(ctx)

    outcome = await run(work)
    assert outcome.status is Status.FAILED
    assert said in outcome.failure.message


@pytest.mark.no_always_replay("the operation fails once only, so that a replay takes another way")
@on_loop
async def test_an_error_of_an_operation_is_the_steps_to_catch_and_is_not_remembered() -> None:
    tries: list[int] = []

    async def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("down")
        return "up"

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        try:
            await ctx.do(flaky)
        except ConnectionError as error:
            return [str(error), await ctx.do(flaky)]
        return []

    assert (await run(work)).state.done == ["down", "up"]


@on_loop
async def test_a_key_with_other_input_than_before_pauses_loudly_and_goes_on_when_it_fits_again() -> None:
    gate = Gate()
    word = "otter"

    async def look_up(what: str) -> str:
        return what

    @step(writes="text")
    async def work(ctx: Context) -> str:
        value = await ctx.do(look_up, word, key="it")
        await gate.hold()
        return value

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await gate.reached.wait()
        await session.pause(mode="abort")
        await session.outcome()
        word = "squid"
        gate.opened.set()
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.text) == (Status.PAUSED, "")
        (pause,) = outcome.pauses
        assert pause.kind == "mismatch"
        assert "is remembered with different input" in pause.reason
        word = "otter"
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.text, outcome.pauses) == (Status.COMPLETED, "otter", ())


@pytest.mark.no_always_replay("its input differs from run to run on purpose")
@on_loop
async def test_a_call_without_a_key_whose_input_changed_runs_and_is_an_event() -> None:
    twice = Twice()
    words = iter(["otter", "squid"])

    async def look_up(what: str) -> str:
        twice.ran.append(what)
        return what

    async def body(ctx: Context) -> str:
        return await ctx.do(look_up, next(words))

    outcome = await twice.run(body)
    assert (twice.ran, outcome.state.text) == (["otter", "squid"], "squid")
    missed = [event for event in twice.events if event.event_type == "operation.missed"]
    assert [event.summary for event in missed] == ["look_up runs again: 'what' differs from the remembered call"]


# concurrency


@pytest.mark.parametrize("style", ["gather", "TaskGroup"])
@on_loop
async def test_operations_side_by_side_are_each_remembered(style: str) -> None:
    twice = Twice()

    async def look_up(name: str) -> str:
        twice.ran.append(name)
        await asyncio.sleep(0.001 if name == "a" else 0)
        return name.upper()

    async def body(ctx: Context) -> list[str]:
        if style == "gather":
            return list(await asyncio.gather(*[ctx.do(look_up, name) for name in "abc"]))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.do(look_up, name)) for name in "abc"]
        return [task.result() for task in tasks]

    assert (await twice.run(body)).state.text == "['A', 'B', 'C']"
    assert sorted(twice.ran) == ["a", "b", "c"]


@on_loop
async def test_when_one_branch_of_a_gather_fails_what_the_others_had_finished_is_kept() -> None:
    twice = Twice()
    broken = [True]

    async def quick() -> str:
        twice.ran.append("quick")
        return "quick"

    async def flaky() -> str:
        twice.ran.append("flaky")
        await asyncio.sleep(0.005)
        if broken:
            broken.pop()
            raise ConnectionError
        return "flaky"

    async def body(ctx: Context) -> list[str]:
        return list(await asyncio.gather(ctx.do(quick), ctx.do(flaky)))

    @step(writes="text", retry=3)
    async def work(ctx: Context) -> str:
        return ",".join(await body(ctx))

    outcome = await run(work)
    assert outcome.state.text == "quick,flaky"
    assert twice.ran == ["quick", "flaky", "flaky"]


# idempotency keys


@pytest.mark.no_always_replay("counts the runs of the step's body")
@on_loop
async def test_the_idempotency_key_is_stable_over_attempts_and_resumes_and_another_for_every_scope() -> None:
    keys: dict[str, list[str]] = {}
    gate = Gate()

    def note(where: str, ctx: Context) -> None:
        keys.setdefault(where, []).append(ctx.idempotency_key)

    async def pay(name: str, ctx: Context) -> str:
        note(f"item {name}", ctx)
        return name

    async def charge(ctx: Context) -> str:
        note("do", ctx)
        raise ConnectionError

    @step(retry=2)
    async def work(ctx: Context) -> None:
        note("step", ctx)
        await ctx.map(pay, ["a", "b"])
        try:
            await ctx.do(charge)
        except ConnectionError:
            if ctx.attempt == 1:
                raise
        await gate.hold()

    @step
    async def other(ctx: Context) -> None:
        note("other step", ctx)

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        workflow = Workflow("work", state=State, steps=[work, other])
        session = await engine.start(workflow)
        await gate.reached.wait()
        await session.pause(mode="abort")
        await session.outcome()
        gate.opened.set()
        await session.resume()
        await session.outcome()
        once = {where: set(found) for where, found in keys.items()}
        assert all(len(found) == 1 for found in once.values())
        assert (len(keys["step"]), len(keys["do"])) == (3, 3)  # one attempt failed, one was aborted and runs again
        assert len(set.union(*once.values())) == 5
        await (await engine.start(workflow)).outcome()
        assert len(set(keys["step"])) == 2  # another session has another key


@on_loop
async def test_a_step_counts_from_1_again_when_it_runs_again_and_each_operation_for_itself() -> None:
    async def inside(ctx: Context) -> int:
        return ctx.nth("run")

    def blocking(ctx: BlockingContext) -> list[int]:
        counts = [ctx.nth("run"), ctx.nth("run")]
        for branch in "aab":
            ctx.branch_by(lambda branch=branch: branch)  # type: ignore[misc]
            counts.append(ctx.nth("run"))
        return counts

    @step(writes="text", retry=3)
    async def work(ctx: Context) -> str:
        counts = [ctx.nth("run"), ctx.nth("other"), ctx.nth("run"), await ctx.do(inside), *await ctx.do(blocking)]
        if ctx.attempt < 3:
            raise ConnectionError
        return str(counts)

    assert (await run(work)).state.text == "[1, 1, 2, 1, 1, 2, 1, 2, 1]"


@pytest.mark.no_always_replay("runs hundreds of operations")
@on_loop
async def test_the_idempotency_key_stays_the_same_in_a_visit_with_many_operations() -> None:
    keys: list[str] = []

    async def count(n: int) -> int:
        return n

    @step(writes="done")
    async def work(ctx: Context) -> list[str]:
        keys.append(ctx.idempotency_key)
        for n in range(KEY_FRAME_EVERY + 10):
            await ctx.do(count, n)
        keys.append(ctx.idempotency_key)
        return []

    async with Engine(":memory:") as engine:
        await (await engine.start(Workflow("many", state=State, steps=[work]))).outcome()
    assert len(keys) == 2
    assert keys[0] == keys[1]


@on_loop
async def test_a_loop_has_another_idempotency_key_and_an_empty_memory_in_each_visit() -> None:
    keys: list[str] = []
    ran: list[int] = []

    async def act() -> str:
        ran.append(len(ran))
        return str(len(ran))

    @step(writes="done")
    async def again(done: list[str], ctx: Context) -> list[str]:
        keys.append(ctx.idempotency_key)
        assert ctx.visit == len(done) + 1
        return [*done, await ctx.do(act)]

    @route(after="again")
    def more(done: list[str]) -> Literal["again"] | None:
        return "again" if len(done) < 3 else None

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[again], routes=[more]))
        assert (await session.outcome()).state.done == ["1", "2", "3"]
    assert len(set(keys)) == 3


# plain functions


@on_loop
async def test_a_plain_step_has_the_same_operations_and_remembers_them_too() -> None:
    ran: list[str] = []

    def fetch(name: str) -> str:
        ran.append(name)
        return name.upper()

    @step(writes="done", retry=2)
    def work(ctx: BlockingContext) -> list[str]:
        assert ctx.step == "work"
        assert ctx.visit == 1
        one = ctx.do(fetch, "a")
        more: list[str] = ctx.map(fetch, ["b", "c"], concurrency=2)
        ctx.emit("note", "half way", done=1)
        ctx.progress(1, 2)
        ctx.safe_point()
        if ctx.attempt == 1:
            raise ConnectionError
        return [one, *more, ctx.idempotency_key[:0]]

    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work], events=["note"]))
        outcome = await session.outcome()
        assert outcome.state.done == ["A", "B", "C", ""]
        assert sorted(ran) == ["a", "b", "c"]
        assert [event.event_type async for event in session.events()].count("note") == 1


@on_loop
async def test_a_plain_step_is_told_that_it_cannot_do_an_async_function() -> None:
    async def fetch() -> str:
        return ""

    @step
    def work(ctx: BlockingContext) -> None:
        ctx.do(cast(Any, fetch))

    outcome = await run(work)
    assert "is a def step and cannot run the async function" in outcome.failure.message


@on_loop
async def test_an_error_inside_a_plain_steps_map_is_raised_in_the_step() -> None:
    def fetch(name: str) -> str:
        raise ConnectionError("down")

    @step(writes="text")
    def work(ctx: BlockingContext) -> str:
        try:
            ctx.map(fetch, ["a"])
        except MapFailed as error:
            return str(len(error.failed))
        return "not raised"

    assert (await run(work)).state.text == "1"


@on_loop
async def test_a_pause_between_the_items_of_a_plain_steps_map_keeps_what_was_done() -> None:
    ran: list[str] = []
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    go = threading.Event()

    def fetch(name: str) -> str:
        ran.append(name)
        loop.call_soon_threadsafe(begun.set)
        go.wait(PATIENCE)
        return name.upper()

    @step(writes="done")
    def work(ctx: BlockingContext) -> Any:
        return ctx.map(fetch, list("abc"), concurrency=1)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("work", state=State, steps=[work]))
        await begun.wait()
        await session.pause()
        go.set()
        assert (await session.outcome()).status is Status.PAUSED
        assert ran == ["a"]
        await session.resume()
        assert (await session.outcome()).state.done == list("ABC")
        assert ran == list("abc")


@on_loop
async def test_an_operation_that_ends_late_does_not_take_along_what_the_next_step_emitted() -> None:
    go = asyncio.Event()
    late: list[asyncio.Task[Any]] = []

    async def slowly() -> str:
        await go.wait()
        return "too late"

    @step
    async def hasty(ctx: Context) -> None:
        late.append(asyncio.create_task(ctx.do(slowly)))
        await asyncio.sleep(0)

    @step
    async def after(ctx: Context) -> None:
        ctx.spend(usd=0.5)
        go.set()
        await asyncio.gather(*late, return_exceptions=True)

    outcome = await run(hasty, after)
    assert outcome.spent_usd == 0.5


# annotations


@on_loop
async def test_a_result_may_be_of_a_type_that_was_made_beside_its_function() -> None:
    class Local(BaseModel):
        number: int

    async def make() -> Local:
        return Local(number=1)

    twice = Twice()
    seen: list[Any] = []

    async def body(ctx: Context) -> None:
        seen.append(await ctx.do(make))

    assert (await twice.run(body)).status is Status.COMPLETED
    assert seen == [Local(number=1)] * 2


def unknown_result() -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    return ""


def unknown_context(ctx: nowhere.Context) -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


def unknown_parameter(word: Nowhere, ctx: Context) -> str:  # type: ignore[name-defined]  # noqa: F821
    return f"{word}: {type(ctx).__name__}"


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (unknown_result, "Function 'unknown_result': the annotation of the result uses 'Nowhere'"),
        (unknown_context, "Function 'unknown_context': the annotation of parameter 'ctx' uses 'nowhere'"),
    ],
)
@on_loop
async def test_an_annotation_that_says_how_to_use_a_function_must_be_known(fn: Any, what: str) -> None:
    @step
    async def work(ctx: Context) -> None:
        await ctx.do(fn)

    outcome = await run(work)
    assert outcome.failure.message.startswith(f"{what}, which is not defined in its module. Import it outside of")


@on_loop
async def test_other_annotations_of_a_function_need_not_be_known() -> None:
    @step(writes="text")
    async def work(ctx: Context) -> str:
        return await ctx.do(unknown_parameter, "otter")

    assert (await run(work)).state.text == "otter: BlockingContext"
