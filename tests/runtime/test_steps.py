"""Steps and their checkpoints: which results are kept, and what a step may do."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel

from pausepoint import BlockingContext, Context, Engine, PausepointError, Status, Workflow, step
from pausepoint.definition import At
from pausepoint.errors import ContextClosed, LentValueChanged, StepError, StepExited
from pausepoint.testing import ManualClock
from tests.support.loop import on_loop
from tests.support.pipeline import FINISHED, STEPS, Doc, Pipeline, until


@pytest.mark.covers("S1.36", "S3.46", "S3.44")
@on_loop
async def test_each_step_begins_after_exactly_one_checkpoint_of_each_step_before_it_with_all_their_data() -> None:
    pipeline = Pipeline()
    seen: dict[str, tuple[list[str], object]] = {}
    async with Engine(":memory:") as engine:

        def look(name: str) -> Any:
            async def note() -> None:
                visits = await engine.session("memo-1").checkpoints(limit=None)
                seen[name] = ([visit.step for visit in visits], await engine.session("memo-1").state())

            return note

        pipeline.acts = {name: look(name) for name in STEPS}
        session = await engine.start(pipeline.workflow, session_id="memo-1")
        await session.outcome()
        assert seen == {name: (list(STEPS[:k]), until(name)) for k, name in enumerate(STEPS)}
        assert [visit.step for visit in await session.checkpoints(limit=None)] == list(STEPS)


@pytest.mark.covers("S4.7", "S4.111", "S1.60", "S3.58", "S3.60", "S1.55")
@pytest.mark.parametrize("name", STEPS)
@on_loop
async def test_a_step_that_fails_leaves_the_state_as_it_was_before_it_and_is_where_a_resume_goes_on(name: str) -> None:
    pipeline = Pipeline()
    pipeline.errors[name] = [RuntimeError("no paper left")]
    position = STEPS.index(name)
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow)
        outcome = await session.outcome()
        assert outcome.status is Status.FAILED
        assert outcome.state == until(name)
        assert outcome.failure is not None
        assert (outcome.failure.step, outcome.failure.type) == (name, "RuntimeError")
        assert outcome.failure.message == "no paper left"
        assert "RuntimeError: no paper left" in outcome.failure.traceback
        await session.resume()
        outcome = await session.outcome()
        assert (outcome.status, outcome.state, outcome.failure) == (Status.COMPLETED, FINISHED, None)
        assert pipeline.calls == [*STEPS[: position + 1], *STEPS[position:]]
        assert outcome.skipped_visits == position


class Words(BaseModel):
    text: str = ""


def fails(word: str) -> str:
    try:
        raise KeyError("inner")
    except KeyError as error:
        error.add_note("a note")
        raise ValueError(word) from error


@step(writes="text")
async def in_an_operation(ctx: Context) -> str:
    return await ctx.do(fails, "no", retry=1, timeout=60)


@step(writes="text")
def in_a_blocking_map(ctx: BlockingContext) -> str:
    return str(ctx.map(fails, ["no"], retry=1))


@step(writes="text")
async def in_the_call(ctx: Context) -> str:
    return str(await ctx.ask(""))


@step(writes="text")
async def by_the_engine() -> str:
    return cast("str", 3)


@pytest.mark.parametrize(
    ("broken", "frames"),
    [
        (in_an_operation, ["fails", "in_an_operation", "fails"]),
        (in_a_blocking_map, ["fails", "fails", "in_a_blocking_map"]),
        (in_the_call, ["in_the_call"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@on_loop
async def test_the_traceback_of_a_failure_has_the_frames_of_the_program_only(broken: Any, frames: list[str]) -> None:
    trace = await traceback_of(broken)
    assert re.findall(r'File "(.*)", line \d+, in (\w+)', trace) == [(__file__, name) for name in frames]
    assert ("KeyError: 'inner'\na note\n" in trace) == (broken is not in_the_call)
    assert trace.count("direct cause") == frames.count("fails") - (broken is in_an_operation)


@on_loop
async def test_all_frames_are_kept_if_none_is_the_programs_or_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "drive.py" in await traceback_of(by_the_engine)
    monkeypatch.setenv("PAUSEPOINT_TRACEBACK", "full")
    assert "drive.py" in await traceback_of(in_an_operation)


async def traceback_of(broken: Any) -> str:
    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("broken", state=Words, steps=[broken]))).outcome()
        assert outcome.failure is not None
        return outcome.failure.traceback


class Story(BaseModel):
    title: str | None = None
    words: list[str] = []
    pages: int = 1
    note: str = ""


async def run(workflow: Workflow[Any], **fields: Any) -> Any:
    async with Engine(":memory:", clock=ManualClock(auto=True)) as engine:
        session = await engine.start(workflow, **fields)
        return await session.outcome()


@pytest.mark.covers("S1.39", "S1.13")
@pytest.mark.parametrize(
    ("value", "said"),
    [("many", "pages"), (None, "pages"), (2.5, "pages"), ({"pages": 1}, "pages")],
)
@on_loop
async def test_a_result_that_the_model_refuses_fails_its_step_only_and_names_the_field(value: Any, said: str) -> None:
    @step(writes="title")
    async def name_it() -> str:
        return "Otters"

    @step(writes="pages")
    async def count() -> int:
        return value  # type: ignore[no-any-return]  # wrong on purpose

    outcome = await run(Workflow("story", state=Story, steps=[name_it, count]))
    assert outcome.status is Status.FAILED
    assert outcome.failure.step == "count"
    assert outcome.failure.type == "StateRefused"
    assert said in outcome.failure.message
    assert outcome.state == Story(title="Otters")


@on_loop
async def test_a_step_that_writes_nothing_must_return_nothing() -> None:
    @step
    async def chat() -> None:
        return "hello"  # type: ignore[return-value]  # wrong on purpose

    outcome = await run(Workflow("story", state=Story, steps=[chat]))
    assert outcome.status is Status.FAILED
    assert "writes nothing" in outcome.failure.message


@on_loop
async def test_a_step_of_several_fields_returns_a_mapping_and_may_leave_keys_out() -> None:
    @step(writes=["pages", "note"])
    async def both(pages: int) -> dict[str, Any]:
        return {"pages": pages + 1}

    @step(writes=["pages", "note"])
    async def wrong() -> dict[str, Any]:
        return ["pages"]  # type: ignore[return-value]  # wrong on purpose

    outcome = await run(Workflow("story", state=Story, steps=[both]))
    assert outcome.state == Story(pages=2)
    outcome = await run(Workflow("story", state=Story, steps=[wrong]))
    assert "returned list, but writes several fields" in outcome.failure.message


@pytest.mark.covers("S3.45")
@on_loop
async def test_what_a_step_holds_only_locally_is_gone_when_it_fails() -> None:
    seen: list[list[str]] = []

    @step(writes="words", retry=2)
    async def collect(words: list[str]) -> list[str]:
        seen.append(list(words))
        words.append("local")  # the step changed its own copy and never returned it
        if len(seen) == 1:
            raise ConnectionError
        return words

    outcome = await run(Workflow("story", state=Story, steps=[collect]))
    assert seen == [[], []]
    assert outcome.state.words == ["local"]


@on_loop
async def test_a_lent_value_that_was_changed_in_place_fails_the_step_and_is_not_retried() -> None:
    calls: list[int] = []

    @step(writes="pages", retry=3)
    async def spoil(words: list[str]) -> int:
        calls.append(1)
        words.append("mine now")
        return len(words)

    outcome = await run(Workflow("story", state=Story, steps=[spoil]), words=["a"])
    assert outcome.failure.type == LentValueChanged.__name__
    assert "words" in outcome.failure.message
    assert outcome.state == Story(words=["a"])
    assert len(calls) == 1


@on_loop
async def test_a_change_inside_the_whole_state_that_a_step_does_not_write_fails_it_too() -> None:
    @step(writes="pages")
    async def spoil(story: Story) -> int:
        story.words.append("mine now")
        return 7

    outcome = await run(Workflow("story", state=Story, steps=[spoil]), words=["a"])
    assert outcome.failure.type == LentValueChanged.__name__
    assert outcome.state == Story(words=["a"])


@on_loop
async def test_a_step_that_needs_a_value_which_is_none_pauses_naming_who_should_have_written_it() -> None:
    @step(writes="title")
    async def name_it() -> str | None:
        return None

    @step(writes="note")
    async def praise(title: str) -> str:
        return f"{title}!"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("story", state=Story, steps=[name_it, praise]))
        outcome = await session.outcome()
        assert outcome.status is Status.PAUSED
        assert [pause.kind for pause in outcome.pauses] == ["missing"]
        assert outcome.pauses[0].reason == "praise needs 'title', which is None; name_it should write it"
        await session.resume()
        again = await session.outcome()
        assert (again.status, len(again.pauses)) == (Status.PAUSED, 1)


@on_loop
async def test_when_says_whether_a_step_runs_and_the_skip_is_recorded() -> None:
    def is_long(pages: int) -> bool:
        return pages > 10

    @step(writes="note", when=is_long)
    async def shorten() -> str:
        return "shortened"

    @step(writes="title")
    async def name_it() -> str:
        return "Otters"

    workflow = Workflow("story", state=Story, steps=[shorten, name_it])
    async with Engine(":memory:") as engine:
        short = await engine.start(workflow, pages=3)
        assert (await short.outcome()).state == Story(pages=3, title="Otters")
        assert [(visit.step, visit.skipped) for visit in await short.checkpoints(limit=None)] == [
            ("shorten", "is_long is false"),
            ("name_it", ""),
        ]
        long = await engine.start(workflow, pages=30)
        assert (await long.outcome()).state == Story(pages=30, note="shortened", title="Otters")


@on_loop
async def test_a_step_reads_and_writes_a_part_of_a_nested_field() -> None:
    class Plan(BaseModel):
        title: str = ""
        days: int = 1

    class Trip(BaseModel):
        plan: Plan = Plan()

    @step(writes="plan.title")
    async def name_it(days: Annotated[int, At("plan.days")]) -> str:
        return f"{days} days"

    outcome = await run(Workflow("trip", state=Trip, steps=[name_it]), plan=Plan(days=3))
    assert outcome.state.plan == Plan(title="3 days", days=3)


@on_loop
async def test_plain_functions_run_in_threads_beside_the_loop_and_take_a_blocking_context() -> None:
    threads: list[threading.Thread] = []

    def shout(text: str) -> str:
        threads.append(threading.current_thread())
        return text.upper()

    @step(writes="title")
    def name_it(ctx: BlockingContext) -> str:
        threads.append(threading.current_thread())
        ctx.safe_point()
        ctx.progress(1, 2)
        ctx.spend(usd=0.5, tokens=7)
        return ctx.do(shout, "otters")

    outcome = await run(Workflow("story", state=Story, steps=[name_it]))
    assert outcome.state.title == "OTTERS"
    assert outcome.spent_usd == 0.5
    assert threads[0] is threads[1] is not threading.main_thread()


@on_loop
async def test_a_context_used_after_its_step_has_ended_is_refused_and_writes_nothing() -> None:
    escaped: list[Context] = []

    @step
    async def leak(ctx: Context) -> None:
        escaped.append(ctx)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("story", state=Story, steps=[leak]))
        await session.outcome()
        seen = [event async for event in session.events()]
        ctx = escaped[0]
        for late in (
            lambda: ctx.do(len, "abc"),
            lambda: ctx.map(len, ["a"]),
            lambda: ctx.safe_point(),
        ):
            with pytest.raises(ContextClosed, match="Step 'leak' has ended"):
                await late()
        with pytest.raises(ContextClosed):
            ctx.spend(usd=1)
        with pytest.raises(ContextClosed):
            ctx.progress(1, 2)
        assert [event async for event in session.events()] == seen


@on_loop
async def test_an_operation_that_outlives_its_step_is_not_remembered() -> None:
    go = asyncio.Event()
    late: list[asyncio.Task[Any]] = []

    async def slowly() -> str:
        await go.wait()
        return "too late"

    @step
    async def hasty(ctx: Context) -> None:
        late.append(asyncio.create_task(ctx.do(slowly)))
        await asyncio.sleep(0)

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("story", state=Story, steps=[hasty]))
        assert (await session.outcome()).status is Status.COMPLETED
        go.set()
        with pytest.raises(ContextClosed):
            await late[0]
        assert "operation.completed" not in [event.event_type async for event in session.events()]


@on_loop
async def test_a_blocking_context_used_after_its_step_ends_the_late_thread_with_a_signal() -> None:
    ended, caught = threading.Event(), threading.Event()
    what: list[BaseException] = []

    @step
    def leak(ctx: BlockingContext) -> None:
        def later() -> None:
            ended.wait()
            try:
                ctx.do(len, "abc")
            except BaseException as error:
                what.append(error)
            caught.set()

        threading.Thread(target=later, daemon=True).start()

    outcome = await run(Workflow("story", state=Story, steps=[leak]))
    ended.set()
    assert await asyncio.to_thread(caught.wait, 5)
    assert outcome.status is Status.COMPLETED
    assert isinstance(what[0], StepExited)


def test_the_signal_that_ends_a_step_is_no_exception_that_user_code_would_catch() -> None:
    assert not issubclass(StepExited, Exception)
    assert not issubclass(StepExited, PausepointError)


@on_loop
async def test_a_step_that_cancels_itself_fails_instead_of_taking_the_driver_down() -> None:
    @step
    async def odd() -> None:
        raise asyncio.CancelledError

    outcome = await run(Workflow("story", state=Story, steps=[odd]))
    assert outcome.status is Status.FAILED
    assert outcome.failure.type == StepError.__name__
    assert outcome.failure.message.startswith("Step 'odd' cancelled its own task.")


def test_a_step_that_ends_the_program_leaves_the_session_ready(tmp_path: Path) -> None:
    quits = [SystemExit("enough")]

    @step
    async def quit_once() -> None:
        if quits:
            raise quits.pop()

    workflow = Workflow("story", state=Story, steps=[quit_once])

    async def start() -> None:
        async with Engine(tmp_path / "h.db") as engine:
            await (await engine.start(workflow, session_id="one")).outcome()

    async def go_on() -> None:
        async with Engine(tmp_path / "h.db", workflows=[workflow]) as engine:
            assert (await engine.session("one").info()).status is Status.READY
            assert (await (await engine.session("one").resume()).outcome()).status is Status.COMPLETED

    with pytest.raises(SystemExit, match="enough"):
        asyncio.run(start())
    asyncio.run(go_on())


@on_loop
async def test_the_position_and_the_finished_visits_are_told_with_their_times() -> None:
    clock = ManualClock()

    @step
    async def slow() -> None:
        clock.advance(3)

    async with Engine(":memory:", clock=clock) as engine:
        session = await engine.start(Workflow("story", state=Doc, steps=[slow]))
        await session.outcome()
        (visit,) = await session.checkpoints(limit=None)
        assert (visit.took.total_seconds(), visit.attempts) == (3, 1)
        assert (await session.info()).step is None
