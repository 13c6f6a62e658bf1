"""Time travel combined with other verbs: diffs in both directions, interrupted rewinds, redactions in between."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from pausepoint import Append, Context, Engine, Status, Workflow, migrate, step
from pausepoint.errors import StateRefused, StoreClosed
from pausepoint.model.views import Difference
from pausepoint.testing import ManualClock
from tests.engine.case import bytes_of
from tests.support.loop import on_loop
from tests.support.mortal import MortalStore, crash


class Book(BaseModel):
    title: str = ""
    pages: Annotated[list[str], Append] = []
    marks: list[Any] = []


@step(writes="pages")
async def first() -> list[str]:
    return ["one"]


@step(writes="pages")
async def second() -> list[str]:
    return ["two" * 20_000]


@step(writes="pages")
async def third() -> list[str]:
    return ["three"]


book = Workflow("book", state=Book, steps=[first, second, third])


@on_loop
async def test_a_diff_of_a_list_shows_what_was_added_the_whole_or_the_changed_items(tmp_path: Path) -> None:
    async with Engine(tmp_path / "store.db", workflows=[book]) as engine:
        session = await engine.start(book)
        await session.outcome()
        one, two, three = "one", "two" * 20_000, "three"
        assert (await session.diff("first", "third"))["pages"].added == (two, three)
        assert list(await session.diff("third", "first")) == [Difference("pages", "changed", [one, two, three], [one])]
        old = (await session.checkpoints())[-1].seq
        await session.rewind("third")
        await session.edit(pages=[one, two, "four"])
        assert list(await session.diff(old)) == [Difference("pages.2", "changed", three, "four")]


@on_loop
async def test_a_diff_tells_numbers_apart_that_python_takes_for_equal() -> None:
    async with Engine(":memory:", workflows=[book]) as engine:
        session = await engine.start(book, paused=True, marks=[1])
        await session.edit(marks=[True])
        assert list(await session.diff(1)) == [Difference("marks", "changed", [1], [True])]
        await session.edit(marks=[1.0, 2])
        assert list(await session.diff(1)) == [Difference("marks", "changed", [1], [1.0, 2])]


# rewind


@on_loop
async def test_a_renamed_step_is_found_by_both_names_before_and_after_the_session_was_taken_up(tmp_path: Path) -> None:
    @step(name="opening", writes="pages", was="first")
    async def opening() -> list[str]:
        return ["opened"]

    newer = Workflow("book", state=Book, steps=[opening, second, third])
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[book]) as engine:
        session = await engine.start(book, session_id="b", paused=True)
        await session.resume()
        await session.outcome()
    async with Engine(path, workflows=[newer]) as engine:
        session = engine.session("b")
        for name in ("first", "opening", "opening#1"):
            assert (await session.state(at_checkpoint=name)).pages == ["one"]
        await session.rewind("third")
        await session.resume()  # from here on, the log has the new names
        await session.outcome()
        for name in ("first", "opening", "first#1"):
            assert (await session.state(at_checkpoint=name)).pages == ["one"]
        await session.rewind("opening")
        await session.resume()
        assert (await session.outcome()).state.pages[0] == "opened"


@step(writes="title")
async def doze(ctx: Context) -> str:
    await ctx.sleep(60)
    return "woke"


child = Workflow("child", state=Book, steps=[doze])


@step(writes="title")
async def ask(ctx: Context) -> str:
    return (await ctx.call(child)).title


parent = Workflow("parent", state=Book, steps=[ask])


@on_loop
async def test_a_child_of_a_rewound_session_does_not_go_on_though_the_process_dies_right_then(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MortalStore(tmp_path / "store.db", clock=clock)
    engine = await Engine(store, workflows=[parent, child], clock=clock, signals=False).__aenter__()
    session = await engine.start(parent, session_id="p")
    await engine._service.driver.runs["p"].finished()
    [called] = await session.children()
    if called.session_id in engine._service.driver.runs:
        await engine._service.driver.runs[called.session_id].finished()
    store.doom(0, after=True)
    with pytest.raises(StoreClosed):
        await session.rewind("ask", by="ann")
    await crash(engine)
    clock.advance(61)
    async with Engine(tmp_path / "store.db", workflows=[parent, child], clock=clock) as engine:
        assert (await engine.session(called.session_id).outcome()).status is Status.CANCELLED
        [asked] = [
            event
            async for event in engine.session(called.session_id).events()
            if event.event_type == "cancel.requested"
        ]
        assert asked.summary == "ann asked to cancel: p was rewound"


# redaction


@on_loop
async def test_a_field_that_the_stored_version_does_not_have_yet_is_refused_not_taken_for_redacted(
    tmp_path: Path,
) -> None:
    class Old(BaseModel):
        name: str = ""

    @step(writes="name")
    async def stop(name: str) -> str:
        raise ValueError("not yet")

    @step(name="stop", writes="title")
    async def go(title: str) -> str:
        return title

    @migrate(from_version=1)
    def renamed(state: dict[str, Any]) -> dict[str, Any]:
        return {"title": state["name"].title()}

    old = Workflow("renaming", state=Old, steps=[stop])
    new = Workflow("renaming", state=Book, steps=[go], version=2, migrations=[renamed])
    path = tmp_path / "store.db"
    async with Engine(path, workflows=[old]) as engine:
        await (await engine.start(old, session_id="r", name="Ada Lovelace")).outcome()
    async with Engine(path, workflows=[new]) as engine:
        session = engine.session("r")
        with pytest.raises(StateRefused, match=r"has no field 'title'. Use a stored name \(name\), or resume"):
            await session.redact(field="title")
        assert b"Ada Lovelace" in bytes_of(path)
        redaction = await session.redact(field="name")
        assert redaction.records == (1,)
        assert (await session.state()).title == ""
    assert b"Ada Lovelace" not in path.read_bytes()


@on_loop
async def test_a_redaction_changes_neither_the_key_of_the_open_visit_nor_what_a_rewind_means() -> None:
    keys: list[str] = []

    @step(writes="title")
    async def send(ctx: Context) -> str:
        keys.append(ctx.idempotency_key)
        if len(keys) < 2:
            raise ConnectionError("the line went dead after the service had done it")
        return "sent"

    workflow = Workflow("sending", state=Book, steps=[first, send])
    async with Engine(":memory:", workflows=[workflow]) as engine:
        session = await engine.start(workflow)
        assert (await session.outcome()).status is Status.FAILED
        await session.redact(field="pages")
        await session.resume()
        assert (await session.outcome()).status is Status.COMPLETED
        assert keys[0] == keys[1]
        assert (await session.verify()).ok

        edited = await engine.start(workflow, paused=True)
        await edited.edit(marks=[1])
        await edited.redact(field="pages")
        await edited.rewind("first")
        assert (await edited.state()).marks == [1]  # the current visit includes the edit made before it began
