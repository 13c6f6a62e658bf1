"""A rewind with edits is one transaction: the visit begins with the new values, or nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pausepoint import Engine, Session, Status, Workflow, step
from pausepoint.errors import SessionChanged, StateRefused, VerbRefused
from pausepoint.testing import every_crash_point
from pausepoint.testing.crashes import CrashPointFailed
from tests.engine.essay import COLLECTING, Count, Desk, again, essay_of, events
from tests.support.loop import on_loop


@on_loop
async def test_a_visit_is_redone_with_other_values_and_both_acts_are_told_with_their_author() -> None:
    desk = Desk()
    async with Engine(":memory:") as engine:
        session = await desk.done(engine)
        before = (await session.info()).seq
        edits = {"plan.title": "Ink", "notes": {"ink": "black"}}
        assert await session.rewind("write#2", edits, topic="ink", by="ann", reason="dull") is Status.READY
        records = await engine.store.records((await engine.store.get("one")).key, before + 1)  # type: ignore[union-attr]
        assert [record.kind for record in records] == ["rewind", "key", "edit"]
        told = await events(session, "session.reopened", "session.rewound", "session.edited")
        assert [event.event_type for event in told] == ["session.reopened", "session.rewound", "session.edited"]
        assert [(event.data["by"], event.data["reason"]) for event in told[1:]] == [("ann", "dull")] * 2
        assert told[-1].data["fields"] == ["plan.title", "notes", "topic"]
        state = (await again(session)).state
        assert desk.calls == ["write#2", "review#2", "write#3", "review#3", "finish"]
        assert (state.final, state.plan.title, state.notes) == ("INK, DRAFT 3", "Ink", {"ink": "black"})
        assert [each.name for each in await session.checkpoints() if each.left_behind][:1] == ["write#2"]


@on_loop
async def test_what_was_edited_for_a_visit_stays_when_that_visit_is_redone() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        await session.rewind("write#2", topic="ink")
        await again(session)
        await session.rewind("write#2")
        assert (await session.state()).topic == "ink"
        assert (await session.state(at_checkpoint="review#1")).topic == "squid"


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ({"plan.pages": 0}, "greater than or equal to 1"),
        ({"topci": "ink"}, "Did you mean 'topic'"),
        ({"plan": {}, "plan.title": "a"}, "which is changed too"),
    ],
    ids=["value", "field", "part and whole"],
)
@on_loop
async def test_edits_that_are_refused_leave_the_session_where_it_was(edits: dict[str, Any], says: str) -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        before = await session.info()
        for verb in (session.plan_rewind, session.rewind):
            with pytest.raises(StateRefused, match=says):
                await verb("write", {"topic": "ink"} | edits)
        assert await session.info() == before


@on_loop
async def test_a_rewind_based_on_a_state_that_has_moved_since_is_refused() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        seen = (await session.info()).seq
        await session.edit(topic="ink")
        with pytest.raises(
            SessionChanged, match=f"was at record {seen} and is now at {seen + 1}. Read the state again"
        ):
            await session.rewind("write", topic="kelp", based_on=seen)
        assert await session.rewind("write", topic="kelp", based_on=seen + 1) is Status.READY


@on_loop
async def test_the_plan_of_a_rewind_with_edits_is_the_plan_after_it_and_changes_nothing() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        before = await session.info()
        planned = await session.plan_rewind("write#2", topic="ink")
        assert await session.info() == before
        await session.rewind("write#2", topic="ink")
        assert planned == await session.plan()


@on_loop
async def test_a_place_of_an_older_version_is_not_edited_and_a_fork_is_named_instead(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        await (await engine.start(essay_of(1), session_id="one")).outcome()
    async with Engine(tmp_path / "h.db", workflows=[essay_of(2)]) as engine:
        session = engine.session("one")
        with pytest.raises(VerbRefused, match=r"version 1 .* version 2\. Fork it at that visit"):
            await session.rewind("old_write", subject="ink")
        assert (await session.info()).status is Status.COMPLETED


@on_loop
async def test_large_values_that_a_rewind_sets_are_there_in_another_process(tmp_path: Path) -> None:
    @step(writes="n")
    async def count(n: int) -> int:
        return n + 1

    workflow = Workflow("count", state=Count, steps=[count])
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(workflow, session_id="one")
        await session.outcome()
        await session.rewind("count", ballast="b" * 200_000, n=7)
    async with Engine(tmp_path / "h.db", workflows=[workflow]) as engine:
        session = engine.session("one")
        state = (await again(session)).state
        assert (state.n, len(state.ballast)) == (8, 200_000)
        assert (await session.verify()).ok


def test_a_field_that_the_model_gained_since_can_be_edited_in_a_rewind(tmp_path: Path) -> None:
    class Old(BaseModel):
        n: int = 0

    class New(Old):
        by: str = "nobody"

    @step(writes="n")
    def count(n: int) -> int:
        return n + 1

    with Engine(tmp_path / "h.db") as engine:
        engine.start(Workflow("count", state=Old, steps=[count]), session_id="one").outcome()
    with Engine(tmp_path / "h.db", workflows=[Workflow("count", state=New, steps=[count])]) as engine:
        engine.session("one").rewind("count", {"by": "ann"}, by="bob")
        assert engine.session("one").resume().outcome().state == New(n=1, by="ann")


# all or nothing


async def in_one_act(session: Session[Any]) -> None:
    await session.rewind("write#2", topic="ink")


async def in_two_acts(session: Session[Any]) -> None:
    await session.rewind("write#2")
    await session.edit(topic="ink")


def redone(act: Any) -> Any:
    """Return a player that performs an act once: after a crash, only if it has not taken effect."""

    async def play(session: Session[Any]) -> None:
        await session.outcome()
        if not await events(session, "session.rewound"):
            await act(session)
            await session.resume()

    return play


@pytest.mark.long
def test_a_crash_at_any_write_leaves_the_rewind_with_its_edits_or_neither() -> None:
    points = every_crash_point(Desk().workflow, play=redone(in_one_act), topic="squid", wanted=2)
    assert len(points) > 10
    with pytest.raises(CrashPointFailed, match="topic is 'squid', not 'ink'"):  # a crash in between is really tried
        every_crash_point(Desk().workflow, play=redone(in_two_acts), topic="squid", wanted=2)


# after a step


@on_loop
async def test_a_session_that_a_guard_holds_says_that_it_stands_behind_its_step() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COLLECTING, source="a book")
        assert (await session.outcome()).status is Status.PAUSED
        info = await session.info()
        assert (info.step, info.held_by_guard) == ("collect", True)
        assert "after collect#1" in info._repr_html_()
        assert (await session.plan()).obstacles == ("guard: 0 of 2 facts (after collect)",)
        await session.rewind("collect", facts=["one", "two"])
        info = await session.info()
        assert (info.step, info.held_by_guard, info.status) == ("collect", False, Status.READY)
        assert (await again(session)).state.done is True
        assert ((await session.info()).step, (await session.info()).held_by_guard) == (None, False)
