"""Edits of the state: what is refused, what is recorded, and what follows from an edit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, model_validator

from pausepoint import Append, Engine, Status, Workflow, guard, route, step
from pausepoint.errors import HoldLost, StateRefused
from pausepoint.model.commits import Commit
from pausepoint.stores.found import Found
from tests.engine.essay import COLLECTING, Collection, Desk, Middle, Plan, again, close, collect, events
from tests.support.loop import on_loop


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "ink", "rounds": "many"}, "rounds"),
        ({"topic": "ink", "plan.pages": 0}, "greater than or equal to 1"),
        ({"tpoic": "ink"}, "Did you mean 'topic'"),
        ({"plan.titel": "ink"}, "Did you mean 'plan.title'"),
        ({"plan": Plan(), "plan.title": "ink"}, "part of 'plan', which is changed too"),
        ({"topic": "ink", "log": "text"}, "log"),
    ],
)
@on_loop
async def test_an_edit_that_is_wrong_anywhere_changes_nothing(given: dict[str, Any], said: str) -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        before = await session.info(), await session.state(), len(await events(session, "session.edited"))
        with pytest.raises(StateRefused, match=said):
            await session.edit(given)
        assert (await session.info(), await session.state(), len(await events(session, "session.edited"))) == before


@on_loop
async def test_an_edit_names_what_it_changes() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        with pytest.raises(TypeError, match="needs changes"):
            await session.edit()
        with pytest.raises(TypeError, match="topic is given twice"):
            await session.edit({"topic": "ink"}, topic="ink")
        with pytest.raises(TypeError, match="must be a mapping or keywords"):
            await session.edit(["topic"])  # type: ignore[arg-type]  # what is refused


@on_loop
async def test_an_edit_is_a_record_with_its_author_and_reason() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        await session.edit({"plan.title": "Ink"}, topic="ink", log=["anew"], by="ann", reason="better")
        state = await session.state()
        assert (state.plan.title, state.topic, state.log) == ("Ink", "ink", ["anew"])
        (edited,) = await events(session, "session.edited")
        assert (edited.agent_name, edited.data) == (
            "ann", {"fields": ["plan.title", "topic", "log"], "by": "ann", "reason": "better"},
        )  # fmt: skip
        assert (await session.state(at_checkpoint="finish")).topic == "squid"


@on_loop
async def test_an_edit_survives_the_process_and_large_values_are_stored_by_hash(tmp_path: Path) -> None:
    desk = Desk()
    async with Engine(tmp_path / "h.db") as engine:
        session = await desk.done(engine)
        await session.edit(draft="x" * 50_000)
    async with Engine(tmp_path / "h.db", workflows=[desk.workflow]) as engine:
        session = engine.session("one")
        assert (await session.state()).draft == "x" * 50_000
        await session.rewind("finish")
        assert (await again(session)).state.final == "SQUID, DRAFT 3"


@on_loop
async def test_a_completed_session_that_is_edited_decides_its_way_out_anew() -> None:
    class Talk(BaseModel):
        turns: Annotated[list[str], Append] = []
        over: bool = True

    @step(writes=["turns", "over"])
    async def turn(turns: list[str]) -> dict[str, Any]:
        return {"turns": [f"turn {len(turns) + 1}"], "over": True}

    @route(after="turn")
    def on(over: bool) -> Literal["turn", None]:
        return None if over else "turn"

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("talk", state=Talk, steps=[turn], routes=[on]))
        await session.outcome()
        assert await session.edit(over=False) is Status.READY
        assert (await again(session)).state.turns == ["turn 1", "turn 2"]
        copy = await session.fork(over=False)
        assert (await copy.outcome()).state.turns == ["turn 1", "turn 2", "turn 3"]


class Range(BaseModel):
    low: int = 0
    high: int = 10
    width: int = 10
    fixed: int = Field(default=1, frozen=True)
    inner: Plan | None = None

    @model_validator(mode="after")
    def ordered(self) -> Range:
        if self.low > self.high:
            raise ValueError("low must not be above high")
        self.__dict__["width"] = self.high - self.low
        return self


@step(writes="low")
async def lower(low: int) -> int:
    return low


@on_loop
async def test_an_edit_passes_the_validators_of_the_whole_model() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("range", state=Range, steps=[lower]), paused=True)
        with pytest.raises(StateRefused, match="low must not be above high"):
            await session.edit(low=11)
        assert (await session.state()).low == 0
        await session.edit(low=11, high=15)
        state = await session.state()
        assert (state.low, state.high, state.width) == (11, 15, 4)


@on_loop
async def test_an_edit_leaves_alone_what_the_model_forbids_to_change() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("range", state=Range, steps=[lower]), paused=True)
        with pytest.raises(StateRefused, match="'fixed' is frozen"):
            await session.edit(fixed=2)
        with pytest.raises(StateRefused, match="Pass 'inner' as a whole"):
            await session.edit({"inner.title": "x"})
        assert (await (await session.fork(fixed=2, paused=True)).state()).fixed == 2


@on_loop
async def test_a_guard_is_asked_again_on_an_edit() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COLLECTING, source="a book")
        assert (await session.outcome()).status is Status.PAUSED
        assert await session.edit(facts=["one"]) is Status.PAUSED
        assert [pause.reason for pause in await session.pauses()] == ["1 of 2 facts"]
        assert await session.edit(source="two books") is Status.PAUSED
        assert [pause.reason for pause in await session.pauses()] == ["1 of 2 facts"]
        assert await session.edit(facts=["one", "two"], by="ann") is Status.READY
        assert await session.pauses() == []
        assert (await again(session)).state.done is True


@on_loop
async def test_a_guard_that_cannot_be_asked_leaves_the_pause() -> None:
    @guard(after="collect")
    def sourced(source: str, least: int) -> str | None:
        if least < 0:
            raise RuntimeError("that makes no sense")
        return "not enough" if len(source) < least else None

    workflow = Workflow("collection", state=Collection, steps=[collect, close], guards=[sourced])
    async with Engine(":memory:") as engine:
        session = await engine.start(workflow, source="a")
        await session.outcome()
        assert await session.edit(least=-1) is Status.PAUSED
        assert [pause.reason for pause in await session.pauses()] == ["not enough"]
        assert await session.edit(source=None) is Status.PAUSED
        assert ["sourced needs 'source'" in pause.reason for pause in await session.pauses()] == [True]


@on_loop
async def test_an_operators_pause_outlasts_the_guard() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COLLECTING, source="a book")
        await session.outcome()
        await session.pause("lunch", by="ann")
        assert await session.edit(least=0) is Status.PAUSED
        assert [pause.kind for pause in await session.pauses()] == ["operator"]


@on_loop
async def test_what_a_step_missed_is_given_by_an_edit() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COLLECTING, least=0)
        (pause,) = (await session.outcome()).pauses
        assert pause.kind == "missing"
        assert await session.edit(source="a book") is Status.PAUSED  # stays paused until it is resumed
        assert (await again(session)).state.done is True


@pytest.mark.no_always_replay("a mismatch is reported at the end of the run, and this run is exited")
@on_loop
async def test_an_edit_in_the_middle_of_a_visit_keeps_what_it_remembers() -> None:
    async with Engine(":memory:") as engine:
        middle = Middle(None)
        session = await middle.failed(engine)
        await session.edit(text="new")
        assert (await again(session)).state.result == "NEW"
        assert middle.calls == ["shout old", "shout new"]
        assert len(await events(session, "operation.missed")) == 1
    async with Engine(":memory:") as engine:
        middle = Middle(None)
        session = await middle.failed(engine)
        await session.edit(result="x")
        await again(session)
        assert middle.calls == ["shout old"]


@on_loop
async def test_a_keyed_operation_whose_input_was_edited_pauses_loudly_and_a_rewind_is_the_way_out() -> None:
    async with Engine(":memory:") as engine:
        middle = Middle("only")
        session = await middle.failed(engine)
        await session.edit(text="new")
        await session.resume()
        (pause,) = (await session.outcome()).pauses
        assert (pause.kind, "rewind" in pause.reason) == ("mismatch", True)
        assert await session.rewind("work") is Status.READY
        outcome = await again(session)
        assert (outcome.state.result, outcome.state.text) == ("NEW", "new")  # the step runs again with the edit
        assert middle.calls == ["shout old", "shout new"]


@pytest.mark.parametrize("verb", ["edit", "rewind"])
@on_loop
async def test_a_session_that_moves_while_it_is_looked_at_is_looked_at_again(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        revise, seen = engine.store.revise, list[int]()

        async def contested(commit: Commit) -> Found:
            seen.append(commit.base_seq)
            if len(seen) == 1:
                monkeypatch.setattr(engine.store, "revise", revise)
                await session.edit(topic="ink", by="somebody else")
                monkeypatch.setattr(engine.store, "revise", contested)
            return await revise(commit)

        monkeypatch.setattr(engine.store, "revise", contested)
        if verb == "edit":
            await session.edit(draft="mine", by="ann")
        else:
            await session.rewind("finish", by="ann")
        assert len(seen) == 2
        assert seen[0] < seen[1]
        state = await session.state()
        expected = {"edit": ("ink", "mine"), "rewind": ("squid", "squid, draft 3")}
        assert (state.topic, state.draft) == expected[verb]


@on_loop
async def test_the_store_refuses_to_revise_what_has_moved_on() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        row = await engine.store.get("one")
        assert row is not None
        (last,) = await engine.store.records(row.key, row.seq, row.seq)
        await session.edit(topic="ink")
        stale = Commit(row.key, row.fence, row.seq, (last,), 0, row.key_frame, None, 0, release=True)
        with pytest.raises(HoldLost, match="has changed since it was read"):
            await engine.store.revise(stale)
        assert (await session.state()).topic == "ink"
