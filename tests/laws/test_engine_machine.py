"""Sessions match the model after any history of public verbs, including time travel and removal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from pydantic import BaseModel

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.engine.time_travel import TimeTravel
from pausepoint.errors import AlreadyRunning, PausepointError, UnknownSession, VerbRefused
from pausepoint.log import timeline
from pausepoint.log.decisions import Settled
from pausepoint.log.replay import Effect, Line, body_of
from pausepoint.log.timeline import Timeline
from pausepoint.model.records import Record
from pausepoint.model.sessions import Filter, SessionRow
from pausepoint.runtime.drive import Drive
from pausepoint.runtime.visit import Visit
from pausepoint.stores.found import Found
from pausepoint.stores.sql import endings
from pausepoint.stores.sqlite.sql import PARTS, QUERIES
from pausepoint.testing import ManualClock
from tests.laws.engine_machine import EngineMachine, acts, engines, rarely
from tests.laws.engine_model import IDS, OVER, S
from tests.support.examples import run_histories
from tests.support.histories import Act, Drawn, play
from tests.support.loop import on_loop
from tests.support.mortal import MortalStore, crash
from tests.support.scripted import Course, World, course, path

tails = st.lists(acts, min_size=1, max_size=3)


class TravellingMachine(EngineMachine):
    """The engine machine with verbs that rewind, fork, redact and remove sessions."""

    def parked(self, row: SessionRow) -> bool:
        return row.status not in (S.RUNNING, S.PAUSING)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), number=engines, what=st.sampled_from(("bonus", "notes", "plan")), tail=tails)
    def edit(self, data: st.DataObject, number: int, what: str, tail: list[str]) -> None:
        session_id, engine = self.draw(data), self.engine(number)
        row = self.run(self.row(session_id))
        now = self.retrace(session_id, row.seq)
        given: dict[str, dict[str, Any]] = {
            "bonus": {"bonus": len(tail)},
            "notes": {"notes.last": tail[0]},
            "plan": {"plan": [*now.desk.plan[: now.desk.at], *tail]},
        }
        fields = given[what]
        reason = f"edit {len(self.edits)}"
        self.edits[reason] = fields

        async def edit() -> None:
            if self.parked(row):
                await engine.session(session_id).edit(fields, reason=reason, by="ann")
            else:
                with pytest.raises(VerbRefused):
                    await engine.session(session_id).edit(fields, reason=reason)

        self.does("edit" if self.parked(row) else "nothing", [session_id], edit)

    def places(self, session_id: str, row: SessionRow) -> list[int | str]:
        """Return the targets of a rewind: visits on the current line, the open visit, and every checkpoint number."""
        line = [record for record in self.line(session_id, row.seq) if record.kind == "checkpoint"]
        begun = self.begun[session_id].visits
        named = [f"{each.step}#{each.visit}" for each in line if each.visit > begun.get(each.step, 0)]
        numbers = [record.seq for record in self.records[session_id] if record.kind == "checkpoint"]
        here = [f"{row.step}#{row.visit}"] if row.step is not None and not row.held_by_guard else []
        return [*named, *here, *numbers]

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), number=engines, reuse=st.booleans())
    def rewind(self, data: st.DataObject, number: int, reuse: bool) -> None:
        session_id, engine = self.draw(data), self.engine(number)
        row = self.run(self.row(session_id))
        places = self.places(session_id, row)
        if not places:
            return
        to = data.draw(st.sampled_from(places), label="to")

        async def rewind() -> None:
            if self.parked(row):
                await engine.session(session_id).rewind(to, reuse=reuse, by="ann")
            else:
                with pytest.raises(VerbRefused):
                    await engine.session(session_id).rewind(to, reuse=reuse)

        asked = row.pause_requested
        if row.status in (S.FAILED, *OVER):  # a pause of everything stops it as soon as it is reopened
            asked = self.run(engine.standing_pause()) is not None
        if self.does("rewind" if self.parked(row) else "nothing", [session_id], rewind) and self.parked(row):
            after = self.run(self.row(session_id))
            assert after.pause_requested == asked
            assert isinstance(to, int) or to == f"{after.step}#{after.visit}"
            assert not self.run(self.running_children(row))

    async def running_children(self, row: SessionRow) -> list[SessionRow]:
        """Return the children without a request to cancel."""
        children = await self.engine(0).store.find(Filter(parent=row.key, unended=True))
        return [child for child in children if not child.cancel_requested]

    @precondition(lambda self: self.begun and self.unused(len(IDS)))
    @rule(data=st.data(), number=engines, reuse=st.booleans(), paused=st.booleans(), edited=st.booleans())
    def fork(self, data: st.DataObject, number: int, reuse: bool, paused: bool, edited: bool) -> None:
        source, engine = self.draw(data), self.engine(number)
        session_id = self.unused(len(IDS))
        row = self.run(self.row(source))
        places: list[int | str | None] = [None, *self.places(source, row)]
        at = data.draw(st.sampled_from(places), label="at")
        begun, kept = self.fork_of(source, row, at, reuse)
        edits = {"bonus": 7} if edited else {}
        begun.edit(edits)

        async def fork() -> None:
            await engine.session(source).fork(at, edits, session_id=session_id, reuse=reuse, paused=paused)

        self.does("nothing", (), fork)
        assert session_id is not None
        if self.begins(session_id, begun, paused):
            self.inherited[session_id] = kept

    def fork_of(self, source: str, row: SessionRow, at: int | str | None, reuse: bool) -> tuple[Course, Any]:
        """Return the course at which a fork begins, and the operations that it inherits."""
        seq = row.seq
        if at is not None and (row.held_by_guard or at != f"{row.step}#{row.visit}"):
            numbers = {f"{each.step}#{each.visit}": each.seq for each in self.line(source, row.seq)
                       if each.kind == "checkpoint"}  # fmt: skip
            seq = self.records[source][(at if isinstance(at, int) else numbers[at]) - 1].parent
        begun = self.retrace(source, seq)
        visit = begun.visits.get("act", 0) + 1
        begun.cost = begun.since = 0
        kept = {each for each in self.remembered(source, seq) if each[0] == visit and begun.step == "act"}
        return begun, kept | {(0, "what it has spent")} if reuse else set()

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), number=engines, really=rarely)
    def remove(self, data: st.DataObject, number: int, really: bool) -> None:
        session_id, engine = self.draw(data), self.engine(number)
        tree = self.run(self.engine(0).store.find(Filter(session_id=session_id, tree=True)))
        live = any(row.live for row in tree)
        if not (live or really):
            return  # otherwise no session would remain to test

        async def remove() -> None:
            if live:
                with pytest.raises(AlreadyRunning):
                    await engine.session(session_id).remove()
            else:
                await engine.session(session_id).remove(by="ann")

        known = self.begun.pop(session_id)
        alive = self.does("nothing", (), remove)
        while not self.does("nothing", (), lambda: self.engine(0).gc(apply=True)):
            pass  # the engine that cleans up may die, too
        if live or (not alive and self.run(self.engine(0).store.get(session_id)) is not None):
            self.begun[session_id] = known
            return
        for about in (self.records, self.rows, self.world.settled, self.world.remembered, self.world.gates):
            about.pop(session_id, None)
        self.run(self.check_removed(session_id, [row.session_id for row in tree]))

    async def check_removed(self, session_id: str, tree: list[str]) -> None:
        engine = self.engine(0)
        for each in tree:
            assert await engine.tombstones(each)
            with pytest.raises(UnknownSession):
                await engine.session(each).info()
        assert [event.event_type async for event in engine.session(session_id).events()] == ["session.removed"]

    @precondition(lambda self: self.begun)
    @rule(number=engines)
    def lift(self, number: int) -> None:
        """Lift the pause of everything. Sessions that were paused individually stay paused."""
        engine = self.engine(number)
        own = {each for each in self.begun if self.run(self.paused_by_itself(each))}
        before = self.run(self.statuses())
        if self.does("lift", [each for each in self.begun if each not in own], lambda: engine.lift_pause()):
            assert self.run(engine.standing_pause()) is None
            assert all(self.run(self.statuses())[each] is before[each] for each in own)

    async def paused_by_itself(self, session_id: str) -> bool:
        pauses = await self.engine(0).session(session_id).pauses()
        return any(pause.kind == "operator" and not pause.standing for pause in pauses)

    # reading

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), number=engines)
    def look_back(self, data: st.DataObject, number: int) -> None:
        """Check that the state at any checkpoint, on any line, equals the state when the checkpoint was made."""
        session_id, engine = self.draw(data), self.engine(number)
        numbers = [record.seq for record in self.records[session_id] if record.kind == "checkpoint"]
        if numbers:
            seq = data.draw(st.sampled_from(numbers), label="at")
            state: Any = self.run(engine.session(session_id).state(seq))
            assert self.retrace(session_id, seq).same(state)

    @rule(number=engines, apply=st.booleans())
    def prove(self, number: int, apply: bool) -> None:
        engine = self.engine(number)

        async def look() -> None:
            cleaned = await engine.gc(apply=apply)
            assert (cleaned.expired, cleaned.completed) == ([], [])
            report = await engine.verify()
            assert report.ok, report.problems

        self.does("nothing", (), look)


class InMemory(TravellingMachine):
    in_memory = True


MACHINES = {":memory:": InMemory, "file": TravellingMachine}


@pytest.mark.long
@pytest.mark.covers("S1.50", "S1.59", "S1.60")
@pytest.mark.parametrize("place", [":memory:", "file"])
def test_after_any_history_of_verbs_the_sessions_are_what_the_model_says(place: str) -> None:
    run_histories(MACHINES[place], 15, steps=25)


@on_loop
async def test_an_engine_that_overtakes_itself_leaves_the_former_step() -> None:
    world = World()
    async with Engine(":memory:", workflows=[world.workflow], clock=ManualClock(auto=True), signals=False) as engine:
        session = await engine.start(world.workflow, plan=["wait"])
        while not world.blocked():
            await asyncio.sleep(0)
        (former,) = world.blocked()
        await session.resume(steal=True)
        while [former] == world.blocked() or len(world.blocked()) != 1:
            await asyncio.sleep(0)
        world.open(session.id)
        outcome = await session.outcome()
        assert outcome.status is Status.COMPLETED
        assert course(["wait"], path(["wait"])).same(outcome.state)


def test_a_resume_reaches_a_child_that_is_about_to_pause() -> None:
    finish = {"mode": "finish", "everything": False, "freeze": False}
    play(InMemory(), [start("call and wait"), on("pause", **finish), on("resume", **RESUME)])


def test_a_session_that_was_cancelled_with_its_child_and_edited_ends_after_a_rewind() -> None:
    edit = on("edit", what="bonus", tail=["ok"])
    play(InMemory(), [start("call and wait", "ok"), on("cancel", really=True), edit])


def test_a_timer_stays_frozen_though_the_clock_was_set_back() -> None:
    play(InMemory(), [start("sleep"), ("jump", {"seconds": -3600}), on("freeze_for_a_while", seconds=10)])


def test_what_was_ready_before_a_pause_of_everything_is_ready_after_its_lift() -> None:
    everything = {"mode": "finish", "everything": True, "freeze": False}
    play(InMemory(), [start("sleep"), on("rewind", "act#1", reuse=False), on("pause", **everything), LIFT])


class Ear(BaseModel):
    heard: str = ""


@step(writes="heard")
async def hear(ctx: Context) -> str:
    return await ctx.receive(str)


@on_loop
async def test_a_message_wakes_its_session_even_before_1970() -> None:
    ear = Workflow("ear", state=Ear, steps=[hear])
    async with Engine(":memory:", workflows=[ear], clock=ManualClock(start=-1_000_000_000), signals=False) as engine:
        session = await engine.start(ear)
        await session.outcome()
        assert await session.send("hello") is not Status.WAITING


@on_loop
async def test_a_look_for_requests_that_the_store_refuses_is_left_to_the_next_commit(tmp_path: Path) -> None:
    world = World()
    store = MortalStore(tmp_path / "store.db")
    engine = await Engine(store, workflows=[world.workflow], signals=False).__aenter__()
    await engine.start(world.workflow, plan=["wait"])
    while not world.blocked():
        await asyncio.sleep(0)
    store.dead = True
    engine._service.driver.on_change()
    assert engine._service.driver.refreshing is not None
    await engine._service.driver.refreshing
    await crash(engine)


def leave_children_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(endings, "cancel_below", lambda *_: Found())


def never_due(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(QUERIES, "release", QUERIES["release"].replace(", 0, NULL)", ", NULL, NULL)"))
    patch.setitem(QUERIES, "due_later", never("due_later"))


BROKEN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "remembered operations run again": lambda patch: patch.setattr(Visit, "remembered", lambda *_: None),
    "a replay doubles what was spent": lambda patch: patch.setattr(Line, "_fold_effects", count_only),
    "a loop is not taken": lambda patch: patch.setattr(Drive, "_settle", straight_on),
    "the attempts of one visit count in the next": lambda patch: patch.setattr(Line, "_open", attempts_stay),
    "an edit is not folded in": lambda patch: patch.setattr(Line, "edit", lambda *_: None),
    "a rewind keeps nothing": lambda patch: patch.setattr(Timeline, "before", keeping_nothing),
    "a visit is redone with its own result": lambda patch: patch.setattr(Timeline, "_before_finished", after_it),
    "what a rewind left behind counts": lambda patch: patch.setattr(timeline, "_entry", on_the_line),
    "a rewind leaves the children alone": leave_children_alone,
    "a checkpoint is looked for one record too late": lambda patch: patch.setattr(Timeline, "find", one_later),
    "a message stays when it was received": lambda patch: patch.setitem(QUERIES, "consume", never("consume")),
    "time goes on while it is frozen": lambda patch: patch.setitem(QUERIES, "freeze", never("freeze")),
    "a pause does not reach the children": lambda patch: patch.setitem(PARTS, "tree", PARTS["by_session_id"]),
    "a lift continues nothing": never_due,
    "a fork stands elsewhere": lambda patch: patch.setattr(TimeTravel, "forked", at_the_end),
}

before, before_finished, find, entry = Timeline.before, Timeline._before_finished, Timeline.find, timeline._entry
open_visit, forked = Line._open, TimeTravel.forked


def count_only(line: Line, effects: Iterable[Effect]) -> None:
    line.usd += sum(effect.usd for effect in effects)


async def straight_on(drive: Drive, step: str, attempts: int = 1) -> tuple[Settled, None]:
    return Settled(drive.workflow.following(step)), None


def attempts_stay(line: Line, seq: int) -> None:
    attempts = line.attempts
    open_visit(line, seq)
    line.attempts = attempts


async def keeping_nothing(found: Timeline, to: int | str, reuse: bool) -> Any:
    return await before(found, to, False)


async def after_it(found: Timeline, seq: int, reuse: bool) -> Any:
    late = await before_finished(found, seq, reuse)
    (record,) = await found.store.records(found.row.key, seq, seq)
    for change in body_of(record).changes:
        late.line.state.apply(change)
    return late


def on_the_line(record: Record, left: Any) -> Any:
    return entry(record, ())


async def one_later(found: Timeline, at: int | str) -> int:
    return min(await find(found, at) + 3, found.row.seq)


def never(name: str) -> str:
    return QUERIES[name] + (" AND 0" if "WHERE" in QUERIES[name] else " WHERE 0")


async def at_the_end(travel: TimeTravel, *given: Any) -> Any:
    new = await forked(travel, *given)
    return msgspec.structs.replace(new, step=None)


def start(*plan: str, paused: bool = False) -> Act:
    return "start", {"plan": list(plan), "paused": paused, "budget": None, "number": 0}


def on(rule: str, *drawn: Any, **given: Any) -> Act:
    """Return a rule with drawn values. By default it draws the first session."""
    return rule, {"data": Drawn("ant", *drawn), "number": 0, **given}


ABORT = {"mode": "abort", "everything": False, "freeze": False}
RESUME = {"steal": False, "budget": None, "wake": False}
LIFT: Act = ("lift", {"number": 0})
FORK = {"reuse": False, "paused": True, "edited": False}


def histories() -> dict[str, list[Act]]:
    """Return a history for each fault that makes the fault visible."""
    back = [start("ok", "wait"), on("pause", **ABORT), on("rewind", "act#1", reuse=False)]
    return {
        "remembered operations run again": [start("work"), on("pause", **ABORT), on("resume", **RESUME)],
        "a replay doubles what was spent": [start("call and wait"), on("pause", **ABORT), on("resume", **RESUME)],
        "a loop is not taken": [start("ok", "ok")],
        "the attempts of one visit count in the next": [start("retry", "retry")],
        "an edit is not folded in": [start("ok", paused=True), on("edit", what="bonus", tail=["ok"])],
        "a rewind keeps nothing": [start("sleep"), on("rewind", "act#1", reuse=True), on("resume", **RESUME)],
        "a visit is redone with its own result": back,
        "what a rewind left behind counts": back,
        "a rewind leaves the children alone": [start("call and wait"), on("rewind", "act#1", reuse=False)],
        "a checkpoint is looked for one record too late": [start("ok", "ok"), on("look_back", 2)],
        "a message stays when it was received": [start("receive"), on("send", count=1)],
        "time goes on while it is frozen": [start("sleep"), on("freeze_for_a_while", seconds=10)],
        "a lift continues nothing": [start("wait"), on("pause", **(ABORT | {"everything": True})), LIFT],
        "a fork stands elsewhere": [start("wait"), on("fork", None, **FORK), ("prove", {"apply": False, "number": 0})],
        "a pause does not reach the children": [start("call and wait"), on("pause", **ABORT)],
    }


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_engine_is_found_out(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play(InMemory(), histories()[fault])
    BROKEN[fault](monkeypatch)
    with pytest.raises((AssertionError, PausepointError)):
        play(InMemory(), histories()[fault])
