"""Validation beyond the written field: the model's own validators, whole states, large values and new fields."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pytest
from pydantic import BaseModel, model_validator

from pausepoint import Context, Engine, Status, Workflow, guard, route, step
from pausepoint.definition import At
from tests.support.loop import PATIENCE, on_loop
from tests.support.pipeline import Pipeline

LARGE = "x" * 40_000


class Budget(BaseModel):
    parts: list[int] = []
    limit: int = 10
    total: int = 0

    @model_validator(mode="after")
    def add_up(self) -> Self:
        if sum(self.parts) > self.limit:
            raise ValueError(f"{sum(self.parts)} is more than {self.limit}")
        self.total = sum(self.parts)
        return self


def spending(*parts: int) -> Workflow[Budget]:
    @step(writes="parts")
    async def spend() -> list[int]:
        return list(parts)

    return Workflow("spending", state=Budget, steps=[spend])


@on_loop
async def test_what_the_models_own_validator_changes_is_stored_too() -> None:
    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(spending(3, 4))).outcome()
        assert (outcome.status, outcome.state.parts, outcome.state.total) == (Status.COMPLETED, [3, 4], 7)


@pytest.mark.covers("S1.13", "S1.39")
@on_loop
async def test_a_state_that_the_models_own_validator_refuses_fails_the_step_and_changes_nothing() -> None:
    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(spending(8, 9))).outcome()
        assert outcome.status is Status.FAILED
        assert outcome.failure is not None
        assert "17 is more than 10" in outcome.failure.message
        assert outcome.state == Budget()


class Doc(BaseModel):
    text: str = ""
    size: int = 0
    verdict: str | None = None


@on_loop
async def test_guards_routes_and_whens_may_read_large_values_and_the_whole_state() -> None:
    @step(writes="text")
    async def load() -> str:
        return LARGE

    @guard(after=load)
    def long_enough(doc: Doc) -> str | None:
        return None if len(doc.text) == len(LARGE) else "too short"

    @step(writes="size", when=lambda text: len(text) > 10)
    async def measure(doc: Doc) -> int:
        return len(doc.text)

    workflow = Workflow("large", state=Doc, steps=[load, measure], guards=[long_enough])
    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(workflow)).outcome()
        assert (outcome.status, outcome.state.size) == (Status.COMPLETED, len(LARGE))


@on_loop
async def test_a_route_that_needs_what_nobody_has_written_pauses_and_goes_on_once_it_is_there(tmp_path: Path) -> None:
    @step
    async def look() -> None: ...

    @route(after=look)
    def by_verdict(verdict: str) -> Literal["look", None]:
        return None if verdict else "look"

    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(Workflow("routed", state=Doc, steps=[look], routes=[by_verdict]))
        outcome = await session.outcome()
        assert outcome.status is Status.PAUSED
        assert "by_verdict needs 'verdict', which is None" in outcome.pauses[0].reason


@on_loop
async def test_a_route_that_fails_fails_the_session_in_place_and_is_asked_again_on_resume() -> None:
    ran: list[str] = []
    answers: list[Any] = [ZeroDivisionError("one"), ZeroDivisionError("two"), None]

    @step
    async def work() -> None:
        ran.append("work")

    @route(after=work)
    def moody() -> Literal["work", None]:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return None

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("moody", state=Doc, steps=[work], routes=[moody]))
        for said in ("one", "two"):
            outcome = await session.outcome()
            assert outcome.status is Status.FAILED
            assert outcome.failure is not None
            assert outcome.failure.message == said
            await session.resume()
        assert (await session.outcome()).status is Status.COMPLETED
        assert ran == ["work"]  # its checkpoint was never lost


class Box(BaseModel):
    name: str = "box"


class Crate(BaseModel):
    box: Box = Box()
    seen: str = ""


class YoungBox(BaseModel):
    name: str = "box"
    label: str = "none yet"


class YoungCrate(BaseModel):
    box: YoungBox = YoungBox()
    seen: str = ""


@on_loop
async def test_a_part_that_is_younger_than_the_stored_value_has_its_default(tmp_path: Path) -> None:
    @step(writes="seen")
    async def read(label: Annotated[str, At("box.label")]) -> str:
        return label

    @step(writes="seen", name="read")
    async def before() -> str:
        return ""

    path = tmp_path / "h.db"
    async with Engine(path) as engine:
        await engine.start(Workflow("crate", state=Crate, steps=[before]), session_id="c", paused=True)
    async with Engine(path, workflows=[Workflow("crate", state=YoungCrate, steps=[read])]) as engine:
        outcome = await (await engine.session("c").resume()).outcome()
        assert (outcome.status, outcome.state.seen) == (Status.COMPLETED, "none yet")


@on_loop
async def test_a_lent_value_that_was_made_unstorable_in_place_fails_the_step() -> None:
    class Notes(BaseModel):
        notes: list[Any] = ["a"]

    @step
    async def spoil(notes: list[Any]) -> None:
        notes.append(object())

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("notes", state=Notes, steps=[spoil]))).outcome()
        assert outcome.failure is not None
        assert outcome.failure.type == "LentValueChanged"
        assert outcome.state.notes == ["a"]


@pytest.mark.long
@on_loop
async def test_a_large_result_of_an_operation_is_remembered_too(tmp_path: Path) -> None:
    ran: list[str] = []

    async def fetch() -> str:
        ran.append("fetch")
        return LARGE

    @step(writes="text", retry=2)
    async def load(ctx: Context) -> str:
        text = await ctx.do(fetch)
        if ctx.attempt == 1:
            raise ConnectionError("again")
        return text

    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(Workflow("large", state=Doc, steps=[load]))
        assert (await session.outcome()).state.text == LARGE
        assert ran == ["fetch"]


@on_loop
async def test_starting_an_existing_session_paused_asks_it_to_stand_still() -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("draft")
    async with Engine(":memory:") as engine:
        session = await engine.start(pipeline.workflow, session_id="s")
        await gate.reached.wait()
        again = await engine.start(pipeline.workflow, session_id="s", paused=True, reason="twice", by="ann")
        gate.opened.set()
        outcome = await again.outcome()
        assert (outcome.status, outcome.pauses[0].reason) == (Status.PAUSED, "twice")
        assert session.id == again.id


def test_an_engine_in_a_thread_leaves_the_programs_signal_handlers_alone() -> None:
    pipeline = Pipeline()
    ended: list[Status] = []

    async def main() -> None:
        async with Engine(":memory:") as engine:
            ended.append((await (await engine.start(pipeline.workflow)).outcome()).status)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    thread.join(PATIENCE)
    assert ended == [Status.COMPLETED]


def test_an_interrupted_program_ends_with_keyboard_interrupt_and_its_session_is_ready(tmp_path: Path) -> None:
    pipeline = Pipeline()
    gate = pipeline.hold("draft")

    async def main() -> None:
        async with Engine(tmp_path / "h.db") as engine:
            session = await engine.start(pipeline.workflow, session_id="s")
            await gate.reached.wait()
            signal.raise_signal(signal.SIGINT)
            await session.outcome()
            await asyncio.Event().wait()  # the rest of the program, which is cancelled

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert signal.getsignal(signal.SIGINT) is before

    async def look() -> Status:
        async with Engine(tmp_path / "h.db", workflows=[pipeline.workflow]) as engine:
            return (await engine.session("s").info()).status

    assert asyncio.run(look()) is Status.READY


@on_loop
async def test_a_blocking_function_that_raises_stop_iteration_is_an_error_like_any_other() -> None:
    @step
    async def work(ctx: Context) -> None:
        await ctx.do(next, iter(()), key="empty")

    async with Engine(":memory:") as engine:
        outcome = await (await engine.start(Workflow("stop", state=Doc, steps=[work]))).outcome()
        assert outcome.failure is not None
        assert "StopIteration" in outcome.failure.message
