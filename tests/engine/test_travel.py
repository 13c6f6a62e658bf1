"""Time travel: checkpoints, the state at any of them, what differs, edit, rewind, fork."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, model_validator

from pausepoint import Append, Context, Engine, Merge, Session, Status, Workflow, guard, migrate, route, step
from pausepoint.errors import (
    DamagedRecord,
    DefinitionError,
    HoldLost,
    InputConflict,
    Redacted,
    StateRefused,
    StoreError,
    UnknownCheckpoint,
    UnknownSession,
    VerbRefused,
)
from pausepoint.log.replay import Origin
from pausepoint.model.records import Record
from pausepoint.model.sessions import Commit
from pausepoint.model.views import Checkpoint
from pausepoint.stores.base import Store
from pausepoint.stores.sqlite import SqliteStore
from tests.support.loop import on_loop
from tests.support.pipeline import FINISHED, STEPS, Doc, Pipeline, until


class Plan(BaseModel):
    title: str = ""
    pages: int = Field(default=1, ge=1)


class Essay(BaseModel):
    topic: str
    rounds: int = 0
    wanted: int = 3
    log: Annotated[list[str], Append] = []
    notes: Annotated[dict[str, str], Merge] = {}
    plan: Plan = Plan()
    draft: str = ""
    final: str = ""


class Desk:
    """Research, then write and review in a loop, then finish; every call of a step is noted."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @step(writes=["notes", "log"])
        async def research(topic: str) -> dict[str, Any]:
            self.calls.append("research")
            return {"notes": {topic: "found"}, "log": [f"research {topic}"]}

        @step(writes=["draft", "log"])
        async def write(topic: str, rounds: int, ctx: Context) -> dict[str, Any]:
            self.calls.append(f"write#{ctx.visit}")
            ctx.spend(usd=1)
            return {"draft": f"{topic}, draft {rounds + 1}", "log": [f"write {rounds + 1}"]}

        @step(writes=["rounds", "log"])
        async def review(rounds: int, ctx: Context) -> dict[str, Any]:
            self.calls.append(f"review#{ctx.visit}")
            return {"rounds": rounds + 1, "log": [f"review {rounds + 1}"]}

        @route(after="review")
        def enough(rounds: int, wanted: int) -> Literal["write", "finish"]:
            return "write" if rounds < wanted else "finish"

        @step(writes="final")
        async def finish(draft: str) -> str:
            self.calls.append("finish")
            return draft.upper()

        self.workflow = Workflow("essay", state=Essay, steps=[research, write, review, finish], routes=[enough])

    async def done(self, engine: Engine, **fields: Any) -> Session[Essay]:
        session = await engine.start(self.workflow, session_id="one", **({"topic": "squid"} | fields))
        assert (await session.outcome()).status is Status.COMPLETED
        self.calls.clear()
        return session


WHOLE = ["research", "write#1", "review#1", "write#2", "review#2", "write#3", "review#3", "finish"]


async def again(session: Session[Any]) -> Any:
    """Resume a session and wait for its end."""
    await session.resume()
    outcome = await session.outcome()
    assert outcome.status is Status.COMPLETED, outcome
    return outcome


async def events(session: Session[Any], *types: str) -> list[Any]:
    return [event async for event in session.events() if event.event_type in types]


class Spy:
    """Counts what is read of a store."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = 0
        self.blobs = 0
        store: Store = engine.store
        records, blobs = store.records, store.blobs

        async def count_records(key: int, since: int, until: int | None = None) -> list[Record]:
            found = await records(key, since, until)
            self.records += len(found)
            return found

        async def count_blobs(hashes: Iterable[bytes]) -> dict[bytes, bytes]:
            found = await blobs(hashes)
            self.blobs += len(found)
            return found

        monkeypatch.setattr(store, "records", count_records)
        monkeypatch.setattr(store, "blobs", count_blobs)


class Count(BaseModel):
    target: int = 700
    n: int = 0
    items: Annotated[list[str], Append] = []
    ballast: str = ""


@step(writes=["n", "items"])
async def count(n: int) -> dict[str, Any]:
    return {"n": n + 1, "items": [f"{n + 1:0300}"]}


@route(after="count")
def count_on(n: int, target: int) -> Literal["count", None]:
    return "count" if n < target else None


COUNTING = Workflow("count", state=Count, steps=[count], routes=[count_on])


# the list


@on_loop
async def test_checkpoints_are_listed_with_what_they_wrote() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        listed = await session.checkpoints()
        assert [each.name for each in listed] == [name if "#" in name else f"{name}#1" for name in WHOLE]
        assert listed[0].fields == ("notes", "log")
        assert [each.seq for each in listed] == sorted(each.seq for each in listed)
        assert not any(each.left_behind for each in listed)


@on_loop
async def test_the_list_is_read_page_by_page_backwards() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        everything = await session.checkpoints(limit=None)
        pages: list[list[Checkpoint]] = []
        while page := await session.checkpoints(before=pages[0][0].seq if pages else None, limit=3):
            pages.insert(0, page)
        assert [len(page) for page in pages] == [2, 3, 3]
        assert [each for page in pages for each in page] == everything
        assert await session.checkpoints(limit=0) == []
        with pytest.raises(ValueError, match="limit must be"):
            await session.checkpoints(limit=-1)


@on_loop
async def test_a_page_of_a_long_session_reads_a_part_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COUNTING)
        await session.outcome()
        spy = Spy(engine, monkeypatch)
        assert [each.visit for each in await session.checkpoints(limit=5)] == [696, 697, 698, 699, 700]
        middle = await session.checkpoints(before=300, limit=5)
        assert [each.seq for each in middle] == [295, 296, 297, 298, 299]
        assert (await session.state(at=middle[-1].seq)).n == middle[-1].visit
        assert (await session.state(at="count#123")).n == 123
        assert 0 < spy.records < 2_400  # a few stretches between key frames; four times the whole log would be 2,800
        before = spy.records
        await session.checkpoints(limit=5)
        assert spy.records - before < 300


# the state at a checkpoint


@on_loop
async def test_the_state_is_known_at_every_checkpoint() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        assert (await session.state(at=1)) == Essay(topic="squid")
        first = await session.state(at="write#1")
        assert (first.draft, first.rounds, first.log) == ("squid, draft 1", 0, ["research squid", "write 1"])
        assert (await session.state(at="write")).draft == "squid, draft 3"
        for each in await session.checkpoints():
            assert await session.state(at=each.seq) == await session.state(at=each.name)
        assert await session.state(at="finish") == await session.state()


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("wriet", "did you mean 'write'"),
        ("write#7", "visited 3 times: #1 to #3"),
        ("write#0", "visited 3 times"),
        ("finish#2", "visited 1 time:"),
        (4711, r"the log has the numbers 1 to \d+; checkpoints near it: .*\(finish#1\)"),
        (0, r"checkpoints near it: \d+ \(research#1\)"),
        (-3, "there is no record -3"),
    ],
)
@on_loop
async def test_an_unknown_checkpoint_is_refused_with_what_is_near(at: int | str, said: str) -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        for verb in (session.state, session.diff):
            with pytest.raises(UnknownCheckpoint, match=said) as refused:
                await verb(at)
            assert (refused.value.at, refused.value.session_id) == (at, "one")
        with pytest.raises(UnknownCheckpoint):
            await session.rewind(at)


@pytest.mark.parametrize("at", [True, 1.5, "", ["write"]])
@on_loop
async def test_what_names_no_checkpoint_is_a_type_error(at: Any) -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        with pytest.raises(TypeError, match="by its number or by its visit"):
            await session.state(at=at)


@on_loop
async def test_a_record_that_is_no_checkpoint_cannot_be_redone() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        with pytest.raises(
            UnknownCheckpoint, match=r"record 1 is no checkpoint; checkpoints near it: 2 \(research#1\)"
        ):
            await session.rewind(1)


# what differs


@on_loop
async def test_a_diff_tells_field_by_field_what_differs() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        found = await session.diff("write#1", "review#2")
        assert [each.path for each in found] == ["rounds", "log", "draft"]
        assert (found["rounds"].before, found["rounds"].after) == (0, 2)
        assert found["log"].added == ("review 1", "write 2", "review 2")
        assert "rounds: 0 → 2" in str(found)
        assert 'log: 3 items added: ["review 1","write 2","review 2"]' in str(found)
        assert json.loads(json.dumps(found.to_json()))["changes"][0] == {
            "path": "rounds", "kind": "changed", "before": 0, "after": 2,
        }  # fmt: skip
        assert "<table" in found._repr_html_()
        assert "squid, draft 2" in found._repr_html_()


@on_loop
async def test_a_diff_is_against_now_by_default_and_empty_for_the_same() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        assert [each.path for each in await session.diff("review#3")] == ["final"]
        nothing = await session.diff("finish")
        assert (len(nothing), list(nothing)) == (0, [])
        assert "no difference" in str(nothing)
        backwards = await session.diff("finish", 1)
        assert backwards["log"].kind == "changed"
        assert backwards["notes.squid"].kind == "removed"


@on_loop
async def test_a_diff_knows_parts_and_keys() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        before = (await session.info()).session_id, (await session.checkpoints())[-1].seq
        await session.edit({"plan.title": "Arms", "notes": {"squid": "lost", "ink": "black"}, "log": []})
        found = await session.diff(before[1])
        assert str(found["plan.title"]) == 'plan.title: "" → "Arms"'
        assert str(found["notes.ink"]) == 'notes.ink: added "black"'
        assert str(found["notes.squid"]) == 'notes.squid: "found" → "lost"'
        assert found["log"].after == []


@on_loop
async def test_a_diff_reads_only_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COUNTING, ballast="x" * 100_000)
        await session.outcome()
        spy = Spy(engine, monkeypatch)
        found = await session.diff("count#600", "count#640")
        assert [each.path for each in found] == ["n", "items"]
        assert found["items"].added == tuple(f"{n:0300}" for n in range(601, 641))
        assert spy.blobs <= 1  # neither the large field nor the sealed part of the list
        far = await session.diff("count#100", "count#650")
        assert far["items"].added == tuple(f"{n:0300}" for n in range(101, 651))


# editing


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "ink", "rounds": "many"}, "rounds"),
        ({"topic": "ink", "plan.pages": 0}, "greater than or equal to 1"),
        ({"tpoic": "ink"}, "did you mean 'topic'"),
        ({"plan.titel": "ink"}, "did you mean 'plan.title'"),
        ({"plan": Plan(), "plan.title": "ink"}, "part of 'plan', which is given too"),
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
        with pytest.raises(TypeError, match="name what to change"):
            await session.edit()
        with pytest.raises(TypeError, match="topic given twice"):
            await session.edit({"topic": "ink"}, topic="ink")
        with pytest.raises(TypeError, match="by name or as a mapping"):
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
        assert (await session.state(at="finish")).topic == "squid"


@on_loop
async def test_an_edit_survives_the_process_and_large_values_are_stored_by_hash(tmp_path: Path) -> None:
    desk = Desk()
    async with Engine(tmp_path / "h.db") as engine:
        session = await desk.done(engine)
        await session.edit(draft="x" * 50_000)
    async with Engine(tmp_path / "h.db", workflows=[desk.workflow]) as engine:
        session = await engine.session("one")
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
        with pytest.raises(StateRefused, match="give 'inner' as a whole"):
            await session.edit({"inner.title": "x"})
        assert (await (await session.fork(fixed=2, paused=True)).state()).fixed == 2


class Collection(BaseModel):
    facts: list[str] = []
    least: int = 2
    source: str | None = None
    done: bool = False


@step(writes="facts")
async def collect(facts: list[str]) -> list[str]:
    return facts


@guard(after="collect")
def has_facts(facts: list[str], least: int) -> str | None:
    return None if len(facts) >= least else f"{len(facts)} of {least} facts"


@step(writes="done")
async def close(source: str) -> bool:
    return bool(source)


COLLECTING = Workflow("collection", state=Collection, steps=[collect, close], guards=[has_facts])


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
        assert await session.edit(source="a book") is Status.PAUSED  # until somebody resumes it
        assert (await again(session)).state.done is True


class Keyed(BaseModel):
    text: str = "old"
    result: str = ""


class Middle:
    """A step that stands between two operations until it is let go on."""

    def __init__(self, key: str | None) -> None:
        self.calls: list[str] = []
        self.holds = True

        async def shout(text: str) -> str:
            self.calls.append(f"shout {text}")
            return text.upper()

        @step(writes="result")
        async def work(text: str, ctx: Context) -> str:
            found = await ctx.do(shout, text, key=key)
            if self.holds:
                raise RuntimeError("in the middle")
            return found

        self.workflow = Workflow("keyed", state=Keyed, steps=[work])

    async def failed(self, engine: Engine) -> Session[Keyed]:
        session = await engine.start(self.workflow)
        assert (await session.outcome()).status is Status.FAILED
        self.holds = False
        return session


@pytest.mark.no_always_replay("a miss is told at the end of the run that met it, and that run is left")
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
        assert (outcome.state.result, outcome.state.text) == ("NEW", "new")  # the edit is part of what is redone
        assert middle.calls == ["shout old", "shout new"]


@pytest.mark.parametrize("verb", ["edit", "rewind"])
@on_loop
async def test_a_session_that_moves_while_it_is_looked_at_is_looked_at_again(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        revise, seen = engine.store.revise, list[int]()

        async def contested(commit: Commit) -> None:
            seen.append(commit.base_seq)
            if len(seen) == 1:
                monkeypatch.setattr(engine.store, "revise", revise)
                await session.edit(topic="ink", by="somebody else")
                monkeypatch.setattr(engine.store, "revise", contested)
            await revise(commit)

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
        with pytest.raises(HoldLost, match="has moved on"):
            await engine.store.revise(stale)
        assert (await session.state()).topic == "ink"


# rewinding


@pytest.mark.covers("S4.83")
@pytest.mark.parametrize("name", STEPS)
@on_loop
async def test_a_step_and_all_after_it_are_redone_and_those_before_are_not(name: str, tmp_path: Path) -> None:
    pipeline = Pipeline()
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(pipeline.workflow, session_id="one")
        await session.outcome()
        pipeline.calls.clear()
        assert await session.rewind(name) is Status.READY
        assert await session.state() == until(name)
    async with Engine(tmp_path / "h.db", workflows=[pipeline.workflow]) as engine:
        session = await engine.session("one")
        outcome = await again(session)
        assert pipeline.calls == list(STEPS[STEPS.index(name) :])
        assert outcome.state == FINISHED
        assert outcome.skipped_visits == STEPS.index(name)


@pytest.mark.parametrize("to", ["write#2", "review#1", "write", "finish"])
@on_loop
async def test_a_rewind_works_inside_a_loop(to: str) -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await desk.done(engine)
        whole = await session.state()
        await session.rewind(to)
        outcome = await again(session)
        first = "write#3" if to == "write" else to
        assert desk.calls == WHOLE[WHOLE.index(first) :]
        assert outcome.state == whole
        assert outcome.spent_usd == 3 + sum(call.startswith("write") for call in desk.calls)  # never taken back


@on_loop
async def test_nothing_is_deleted_and_the_old_line_stays_readable() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        row = await engine.store.get("one")
        assert row is not None
        before, states = await engine.store.records(row.key, 1), {}
        for each in await session.checkpoints():
            states[each.seq] = await session.state(at=each.seq)
        await session.edit(wanted=2)
        await session.rewind("review#2", by="ann", reason="enough")
        await again(session)
        assert (await engine.store.records(row.key, 1))[: len(before)] == before
        for seq, state in states.items():
            assert await session.state(at=seq) == state
        listed = await session.checkpoints()
        assert [each.name for each in listed if each.left_behind] == [*WHOLE[4:7], "finish#1"]
        present = [each.name for each in listed if not each.left_behind]
        assert present == ["research#1", *WHOLE[1:7], "finish#1"]
        assert (await session.state(at="write#3")).rounds == 2  # of the present line
        (rewound,) = await events(session, "session.rewound")
        assert rewound.data == {
            "to": "review#2", "seq": listed[3].seq, "keep": False, "by": "ann", "reason": "enough",
        }  # fmt: skip


@on_loop
async def test_the_state_at_a_rewind_is_where_it_led_to() -> None:
    async with Engine(":memory:") as engine:
        session = await Desk().done(engine)
        last = (await session.info(), (await session.checkpoints())[-1].seq)[1]
        await session.rewind("write#2")
        there = await session.state()
        assert (there.rounds, there.draft) == (1, "squid, draft 1")
        assert await session.state(at=last + 1) == there == await session.state(at=last + 2)
        await again(session)
        assert await session.state(at=last + 1) == there


@on_loop
async def test_a_rewind_to_a_line_that_was_left_behind_brings_it_back() -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await desk.done(engine)
        old = {each.name: each.seq for each in await session.checkpoints()}
        await session.rewind("research")
        await session.edit(topic="ink")
        assert (await again(session)).state.final == "INK, DRAFT 3"
        await session.rewind(old["finish#1"])
        desk.calls.clear()
        assert (await again(session)).state.final == "SQUID, DRAFT 3"
        assert desk.calls == ["finish"]
        listed = await session.checkpoints()
        present = [each.name for each in listed if not each.left_behind]
        assert present == [*(each.name for each in listed[:7]), "finish#1"]
        assert [each.seq for each in listed if not each.left_behind][:7] == list(old.values())[:7]
        assert (await session.state(at="write#2")).topic == "squid"


@on_loop
async def test_rewinds_over_many_key_frames_find_every_visit() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COUNTING)
        await session.outcome()
        for to in (650, 400, 100, 300):
            await session.rewind(f"count#{to}")
            assert (await session.state()).n == to - 1
            await again(session)
        for visit in (1, 99, 100, 101, 299, 300, 301, 512, 700):
            state = await session.state(at=f"count#{visit}")
            assert (state.n, len(state.items)) == (visit, visit)
        listed = await session.checkpoints(limit=None)
        assert Counter(each.visit for each in listed if not each.left_behind) == Counter(range(1, 701))
        assert len(listed) == 700 + 51 + 301 + 601 + 401


# what a visit remembers


class Batchwise(BaseModel):
    items: list[int] = [0, 1, 2, 3, 4, 5]
    keys: list[str] = []
    done: list[int] = []


class Fan:
    """A fan-out some items of which fail at first, and an operation beside it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.bad = {1, 4}

        async def work(item: int) -> int:
            self.calls.append(f"work {item}")
            if item in self.bad:
                raise RuntimeError(f"item {item}")
            return item * 10

        async def prepare() -> str:
            self.calls.append("prepare")
            return "ready"

        @step(writes=["done", "keys"])
        async def spread(items: list[int], keys: list[str], ctx: Context) -> dict[str, Any]:
            await ctx.do(prepare)
            ctx.spend(usd=1)
            batch = await ctx.map(work, items, on_error="collect")
            ctx.spend(usd=2)
            return {"done": sorted(batch.done.values()), "keys": [*keys, ctx.idempotency_key]}

        @step
        async def after(done: list[int]) -> None:
            self.calls.append("after")

        self.workflow = Workflow("fan", state=Batchwise, steps=[spread, after])


@pytest.mark.parametrize("keep", [False, True])
@on_loop
async def test_a_fan_out_is_redone_as_a_whole_or_only_what_failed(keep: bool, tmp_path: Path) -> None:
    fan = Fan()
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(fan.workflow, session_id="one")
        first = await session.outcome()
        assert (first.state.done, first.spent_usd) == ([0, 20, 30, 50], 3)
        await session.rewind("spread", keep=keep)
        fan.calls.clear()
        fan.bad.clear()
    async with Engine(tmp_path / "h.db", workflows=[fan.workflow]) as engine:
        session = await engine.session("one")
        outcome = await again(session)
        assert outcome.state.done == [0, 10, 20, 30, 40, 50]
        failed = ["work 1", "work 4"]
        everything = ["prepare", *(f"work {item}" for item in range(6))]
        assert sorted(fan.calls[:-1]) == (failed if keep else everything)
        assert fan.calls[-1] == "after"
        assert outcome.spent_usd == (3 if keep else 6)  # what is kept was paid for


@pytest.mark.parametrize("keep", [False, True])
@on_loop
async def test_outside_services_get_another_key_after_a_rewind(keep: bool) -> None:
    async with Engine(":memory:") as engine:
        fan = Fan()
        session = await engine.start(fan.workflow)
        first = (await session.outcome()).state.keys
        await session.rewind("spread", keep=keep)
        second = (await again(session)).state.keys
        assert len({*first, *second}) == 2


@pytest.mark.parametrize("keep", [False, True])
@on_loop
async def test_the_open_visit_can_be_redone(keep: bool) -> None:
    async with Engine(":memory:") as engine:
        middle = Middle(None)
        session = await middle.failed(engine)
        assert await session.rewind("work", keep=keep) is Status.READY
        assert (await again(session)).state.result == "OLD"
        assert middle.calls == ["shout old"] * (1 if keep else 2)


@on_loop
async def test_a_visit_that_has_left_no_trace_is_not_the_last_one() -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await desk.done(engine)
        await session.rewind("write#2")
        await session.rewind("write")  # it stands before write#2, which has done nothing yet
        assert (await session.info()).visit == 1
        await session.rewind("write#1")
        assert (await session.info()).visit == 1
        assert (await again(session)).state.rounds == 3


@on_loop
async def test_a_visit_that_failed_and_was_edited_for_is_the_last_one() -> None:
    class Tries(BaseModel):
        n: int = 0
        good: bool = False

    @step(writes="n")
    async def attempt(n: int, good: bool) -> int:
        if n == 2 and not good:
            raise RuntimeError("not yet")
        return n + 1

    @route(after="attempt")
    def once_more(n: int) -> Literal["attempt", None]:
        return "attempt" if n < 4 else None

    async with Engine(":memory:") as engine:
        session = await engine.start(Workflow("tries", state=Tries, steps=[attempt], routes=[once_more]))
        assert (await session.outcome()).status is Status.FAILED
        await session.edit(good=True)
        await session.rewind("attempt")
        assert ((await session.info()).visit, (await session.state()).good) == (3, True)
        assert (await again(session)).state.n == 4


@on_loop
async def test_what_was_redacted_does_not_hide_what_came_later() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COUNTING, target=5, ballast="secret")
        await session.outcome()
        await session.redact(field="ballast", value="hidden")
        await session.edit(target=8)
        await again(session)
        assert (await session.state(at="count#7")).n == 7
        assert await session.rewind("count#7") is Status.READY
        for verb in (session.state, session.diff, session.rewind):
            with pytest.raises((Redacted, UnknownCheckpoint), match="redacted"):
                await verb("count#2")
        assert len(await session.checkpoints()) == 8
        last = (await session.checkpoints())[-1]
        await session.redact(seq=last.seq)
        hidden = (await session.checkpoints())[-1]
        assert (hidden.name, hidden.redacted, hidden.fields) == (last.name, True, ())


@on_loop
async def test_a_kept_journal_survives_another_rewind_and_a_fork() -> None:
    async with Engine(":memory:") as engine:
        fan = Fan()
        session = await engine.start(fan.workflow)
        await session.outcome()
        await session.rewind("spread", keep=True)
        await session.rewind("spread", keep=True)
        copy = await session.fork(keep=True, paused=True)
        fan.bad.clear()
        for each in (session, copy):
            fan.calls.clear()
            assert (await again(each)).state.done == [0, 10, 20, 30, 40, 50]
            assert sorted(fan.calls) == ["after", "work 1", "work 4"]


@on_loop
async def test_a_key_for_outside_services_is_the_same_after_a_crash_behind_a_key_frame(tmp_path: Path) -> None:
    keys: list[str] = []

    @step(writes="n")
    async def tick(n: int, ctx: Context) -> int:
        if n == 600:
            keys.append(ctx.idempotency_key)
            await ctx.safe_point()
            if len(keys) == 1:
                raise RuntimeError("here")
        return n + 1

    @route(after="tick")
    def tick_on(n: int) -> Literal["tick", None]:
        return "tick" if n < 602 else None

    workflow = Workflow("tick", state=Count, steps=[tick], routes=[tick_on])
    for start in range(600 - 260, 600):  # wherever the key frames fall, one of these sessions has one just there
        keys.clear()
        async with Engine(":memory:") as engine:
            session = await engine.start(workflow, n=start)
            await session.outcome()
            row = await engine.store.get(session.id)
            assert row is not None
            if row.key_frame + 1 != row.seq:
                continue
            await again(session)
            assert keys == [keys[0]] * 2
            return
    raise AssertionError("no session had a key frame right before its failure")


@on_loop
async def test_pauses_of_the_place_are_closed_and_those_of_the_session_stay() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COLLECTING, source="a book")
        await session.outcome()
        await session.pause("lunch", by="ann")
        assert {pause.kind for pause in await session.pauses()} == {"operator", "guard"}
        assert await session.rewind("collect") is Status.PAUSED
        assert [pause.kind for pause in await session.pauses()] == ["operator"]


@on_loop
async def test_a_budget_stays_used_up_after_a_rewind() -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await engine.start(desk.workflow, topic="squid", budget=1.5)
        assert [pause.kind for pause in (await session.outcome()).pauses] == ["budget"]
        assert await session.rewind("research") is Status.PAUSED
        assert [pause.kind for pause in await session.pauses()] == ["budget"]
        await session.resume(budget=100)
        outcome = await session.outcome()
        assert (outcome.status, outcome.spent_usd) == (Status.COMPLETED, 5)


@on_loop
async def test_children_that_have_not_ended_are_cancelled_by_a_rewind() -> None:
    class Wait(BaseModel):
        heard: str = ""

    @step(writes="heard")
    async def listen(ctx: Context) -> str:
        return await ctx.receive()

    listening = Workflow("listening", state=Wait, steps=[listen])

    @step(writes="heard")
    async def ask_child(ctx: Context) -> str:
        return (await ctx.call(listening)).heard

    async with Engine(":memory:", workflows=[listening]) as engine:
        session = await engine.start(Workflow("asking", state=Wait, steps=[ask_child]))
        await session.outcome()
        (first,) = await session.children()
        assert first.status is Status.WAITING
        await session.rewind("ask_child")
        assert [child.status for child in await session.children()] == [Status.CANCELLED]
        await session.resume()
        await session.outcome()
        second = next(child for child in await session.children() if child.status is Status.WAITING)
        assert second.session_id != first.session_id
        await (await engine.session(second.session_id)).send("hello")
        outcome = await session.outcome()
        assert (outcome.status, outcome.state.heard) == (Status.COMPLETED, "hello")


# forking


@on_loop
async def test_a_fork_goes_its_own_way() -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await desk.done(engine)
        before = await session.info(), await session.state()
        copy = await session.fork(at="write#2", session_id="two", topic="ink", by="ann")
        outcome = await copy.outcome()
        assert outcome.state.final == "INK, DRAFT 3"
        assert desk.calls == WHOLE[3:]
        assert (outcome.spent_usd, outcome.skipped_visits) == (2, 3)
        assert (await session.info(), await session.state()) == before
        listed = {each.name: each.seq for each in await session.checkpoints()}
        origin = await copy.origin()
        assert origin == Origin("one", listed["review#1"], "write#2", ("topic",))
        assert await session.origin() is None
        (forked,) = await events(copy, "session.forked")
        assert forked.data == {"from": "one", "seq": listed["review#1"], "at": "write#2", "fields": ["topic"]}
        with pytest.raises(UnknownCheckpoint, match="older than this fork"):
            await copy.state(at="write#1")


@on_loop
async def test_a_fork_inherits_what_is_not_given() -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await engine.start(desk.workflow, topic="squid", owner="ann", tags=["a"], budget=50)
        await session.outcome()
        copy = await (await session.fork(at="finish", paused=True, reason="wait", by="bob")).info()
        assert (copy.owner, copy.tags, copy.budget_usd, copy.status) == ("ann", ("a",), 50, Status.PAUSED)
        other = await session.fork("finish", owner="bob", tags="b", budget=5, paused=True)
        info = await other.info()
        assert (info.owner, info.tags, info.budget_usd) == ("bob", ("b",), 5)
        with pytest.raises(StateRefused, match="topic"):
            await session.fork(edits={"topic": 1})


@on_loop
async def test_a_fork_under_a_known_id_goes_on_or_conflicts() -> None:
    async with Engine(":memory:") as engine:
        desk = Desk()
        session = await desk.done(engine)
        copy = await session.fork(at="finish", session_id="two", topic="ink", paused=True)
        same = await session.fork(at="finish", session_id="two", topic="ink")
        assert (await same.outcome()).status is Status.COMPLETED
        assert copy.id == same.id
        assert desk.calls == ["finish"]
        with pytest.raises(InputConflict):
            await session.fork(at="finish", session_id="two", topic="other")
        with pytest.raises(UnknownSession):
            await engine.fork("nobody")


@on_loop
async def test_a_fork_shares_large_values_and_outlives_the_session_it_comes_from() -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(COUNTING, target=600, ballast="x" * 100_000, session_id="one")
        await session.outcome()
        copy = await session.fork(at="count#500", paused=True)
        await engine.remove("one")
        await engine.gc(apply=True)
        state = await copy.state()
        assert (state.n, len(state.items), len(state.ballast)) == (499, 499, 100_000)
        assert (await again(copy)).state.n == 600


@on_loop
async def test_a_fork_whose_large_values_were_swept_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Engine(":memory:", workflows=[COUNTING]) as engine:
        session = await engine.start(COUNTING, target=3, ballast="x" * 100_000, session_id="one")
        await session.outcome()
        create = engine.store.create

        def swept(before: Callable[[], Any]) -> Callable[[Any], Any]:
            async def late(new: Any) -> Any:
                monkeypatch.setattr(engine.store, "create", create)
                await before()
                return await create(new)

            return late

        async def sweep() -> None:
            await engine.store._do(lambda db: db.execute("DELETE FROM blobs"))  # type: ignore[attr-defined]  # a fault

        monkeypatch.setattr(engine.store, "create", swept(sweep))
        with pytest.raises(DamagedRecord, match="is no longer there; nothing was written"):
            await session.fork(session_id="two")
        with pytest.raises(UnknownSession):
            await engine.session("two")

        async def remove() -> None:
            await engine.remove("one")
            await engine.gc(apply=True)

        monkeypatch.setattr(engine.store, "create", swept(remove))
        with pytest.raises(UnknownSession, match="'one'"):
            await session.fork(session_id="two")


def essay_of(version: int, **options: Any) -> Workflow[Any]:
    class Old(BaseModel):
        topic: str = "squid"
        text: str = ""

    class New(BaseModel):
        subject: str
        text: str = ""

    @step(writes="text")
    async def old_write(topic: str) -> str:
        return f"old {topic}"

    @step(writes="text", was="old_write")
    async def new_write(subject: str) -> str:
        return f"new {subject}"

    @step
    async def check(text: str) -> None:
        assert text

    @migrate(from_version=1)
    def renamed(state: dict[str, Any]) -> dict[str, Any]:
        return {"subject": state["topic"], "text": state["text"]}

    if version == 1:
        return Workflow("essay", state=Old, steps=[old_write, check])
    return Workflow("essay", state=New, version=2, migrations=[renamed], steps=[new_write, check], **options)


@on_loop
async def test_a_fork_onto_a_newer_definition_is_migrated(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        await (await engine.start(essay_of(1), session_id="one")).outcome()
    async with Engine(tmp_path / "h.db", workflows=[essay_of(2)]) as engine:
        session = await engine.session("one")
        copy = await session.fork(at="old_write", subject="ink")
        outcome = await copy.outcome()
        assert (outcome.status, outcome.state.text) == (Status.COMPLETED, "new ink")
        assert ((await copy.info()).version, (await session.info()).version) == (2, 1)
        with pytest.raises(VerbRefused, match=r"version 1 .* version 2"):
            await session.edit(subject="ink")
        await session.rewind("old_write")
        assert (await again(session)).state.text == "new squid"


@on_loop
async def test_a_fork_onto_a_definition_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        pipeline = Pipeline()
        await (await engine.start(pipeline.workflow, session_id="one")).outcome()
    shorter = Workflow("pipeline", state=Doc, steps=[each for each in _steps() if each.name != "draft"])
    async with Engine(tmp_path / "h.db", workflows=[shorter]) as engine:
        session = await engine.session("one")
        with pytest.raises(DefinitionError, match=r"cannot be forked onto this definition: .*'draft'"):
            await session.fork()
        copy = await session.fork(at="outline")
        assert (await copy.outcome()).status is Status.COMPLETED


def _steps() -> list[Any]:
    return Pipeline()._steps({})


@on_loop
async def test_a_rewind_to_before_a_migration_is_migrated_again(tmp_path: Path) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        session = await engine.start(essay_of(1), session_id="one")
        await session.outcome()
        await session.rewind("check")
    async with Engine(tmp_path / "h.db", workflows=[essay_of(2)]) as engine:
        session = await engine.session("one")
        assert (await again(session)).state.text == "old squid"
        first = (await session.checkpoints())[0]
        assert (first.step, first.version) == ("old_write", 1)
        await session.rewind(first.seq)
        assert (await session.info()).version == 1
        assert (await again(session)).state.text == "new squid"
        assert (await session.info()).version == 2
        across = {each.path: each.kind for each in await session.diff(1)}
        assert across == {"topic": "removed", "text": "changed", "subject": "added"}


def test_stored_values_that_json_lacks_are_shown_as_they_are_stored() -> None:
    from pausepoint.log.diff import compare

    before, after = ({"$datetime": datetime(2024, 2, day).isoformat()} for day in (1, 2))
    (found,) = compare("when", before, after)
    assert (found.path, found.kind, found.after) == ("when", "changed", {"$datetime": "2024-02-02T00:00:00"})
    assert list(compare("n", 1, 1)) == []
    assert [each.kind for each in compare("n", 1, True)] == ["changed"]


@pytest.mark.parametrize("verb", ["edit", "rewind", "both"])
@on_loop
async def test_an_edit_or_a_rewind_takes_effect_as_a_whole_or_not_at_all(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(tmp_path / "h.db") as engine:
        session = await Desk().done(engine)
        assert isinstance(engine.store, SqliteStore)
        before, fired = await engine.store.get("one"), list[Commit]()

        async def act() -> Status:
            edits = {} if verb == "rewind" else {"topic": "ink"}
            return await (session.edit(edits) if verb == "edit" else session.rewind("write", edits))

        def breaks(connection: apsw.Connection, commit: Commit) -> None:
            fired.append(commit)  # the session is claimed by now, in the same transaction
            raise apsw.SQLError("broken in the middle")

        with monkeypatch.context() as patch:
            patch.setattr(engine.store._writes, "move", breaks)
            with pytest.raises(StoreError):
                await act()
        assert len(fired) == 1
        assert await engine.store.get("one") == before
        assert await act() is Status.READY


# any order of all of it


class Tagged(BaseModel):
    tag: str = "a"
    n: int = 0
    items: Annotated[list[str], Append] = []


@step(writes=["n", "items"])
async def stamp(tag: str, n: int) -> dict[str, Any]:
    return {"n": n + 1, "items": [f"{tag}{n + 1}"]}


@route(after="stamp")
def stamp_on(n: int) -> Literal["stamp", None]:
    return "stamp" if n < 5 else None


STAMPING = Workflow("stamping", state=Tagged, steps=[stamp], routes=[stamp_on])


class Chronicle:
    """What should be so: the checkpoints of the present line, and what each that ever was has left."""

    def __init__(self) -> None:
        self.known: dict[int, list[str]] = {}
        self.lines: dict[int, list[int]] = {}
        self.line: list[int] = []
        self.tags: dict[int, str] = {}

    def ran(self, listed: list[Checkpoint], tag: str) -> None:
        for each in listed:
            if each.seq not in self.known:
                before = self.known[self.line[-1]] if self.line else []
                self.known[each.seq] = [*before, f"{tag}{each.visit}"]
                self.lines[each.seq], self.tags[each.seq] = list(self.line), tag
                self.line.append(each.seq)

    async def check(self, session: Session[Tagged]) -> None:
        listed = await session.checkpoints(limit=None)
        assert [each.seq for each in listed if not each.left_behind] == self.line
        for visit, seq in enumerate(self.line, 1):
            assert (await session.state(at=f"stamp#{visit}")).items == self.known[seq]
        for seq, items in self.known.items():
            assert (await session.state(at=seq)).items == items


ACTS = st.lists(st.tuples(st.integers(0, 99), st.sampled_from(["", "b", "c"]), st.booleans()), max_size=6)


@settings(max_examples=25)
@given(acts=ACTS)
@on_loop
async def test_whatever_is_rewound_and_edited_every_line_stays_as_it_was(acts: list[tuple[int, str, bool]]) -> None:
    async with Engine(":memory:") as engine:
        session = await engine.start(STAMPING)
        await session.outcome()
        chronicle, tag = Chronicle(), "a"
        chronicle.ran(await session.checkpoints(), tag)
        for pick, new_tag, goes_on in acts:
            target = sorted(chronicle.known)[pick % len(chronicle.known)]
            await session.rewind(target)
            chronicle.line, tag = list(chronicle.lines[target]), chronicle.tags[target]
            if new_tag:
                await session.edit(tag=new_tag)
                tag = new_tag
            if goes_on:
                await again(session)
                chronicle.ran(await session.checkpoints(limit=None), tag)
            await chronicle.check(session)
