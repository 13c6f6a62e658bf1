"""Any history of the public verbs over scripted workflows, against a model of what must come of it.

Between two verbs everything is quiet: a session stands, or waits in its step at a gate that
the model opens. So every status is known before a verb, and the one after it must be legal.
Two engines share a file; they close, crash at once, or crash at a commit to come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from holdfast import Engine, Status
from holdfast.engine import Drive
from holdfast.errors import AlreadyRunning, InputConflict, StoreError, VerbRefused
from holdfast.model import Filter, Flags, Pause, Record, SessionRow
from holdfast.outcome import SessionInfo
from holdfast.replay import Effect, Line, Settled, body_of
from holdfast.testing import ManualClock
from holdfast.visit import Visit
from tests.support.examples import examples
from tests.support.loop import PATIENCE, on_loop
from tests.support.mortal import MortalStore, crash, driven
from tests.support.scripted import ACTS, Desk, Visited, World, cost_of, path, state_after

T = TypeVar("T")

IDS = ("ant", "bee", "cat")
engines = st.sampled_from((0, 1))
modes = st.sampled_from(("finish", "abort"))
# Waiting is where most of the verbs can do something, so it comes more often.
plans = st.lists(st.sampled_from((*ACTS, "wait", "wait", "work")), min_size=2, max_size=6)
rarely = st.sampled_from((False, False, False, False, True))
HOUR, YEAR = 3600, 31_536_000
jumps = st.sampled_from((-1, 1, -HOUR, HOUR, -YEAR, YEAR, -50 * YEAR, 50 * YEAR))

S = Status
OVER = {S.COMPLETED, S.CANCELLED}
PARKED = {S.PAUSED, S.FAILED, *OVER}
LEGAL: dict[str, dict[Status, set[Status]]] = {
    "pause finish": {S.CREATED: {S.PAUSED}, S.READY: {S.PAUSED}, S.FAILED: {S.PAUSED}, S.RUNNING: {S.PAUSING}},
    "pause abort": {
        S.CREATED: {S.PAUSED}, S.READY: {S.PAUSED}, S.FAILED: {S.PAUSED},
        S.RUNNING: {S.PAUSED, S.CANCELLED}, S.PAUSING: {S.PAUSED, S.CANCELLED},
    },
    "resume": {
        S.CREATED: {S.RUNNING, *PARKED}, S.READY: {S.RUNNING, *PARKED}, S.FAILED: {S.RUNNING, *PARKED},
        S.PAUSED: {S.RUNNING, *PARKED}, S.PAUSING: {S.RUNNING},
    },
    # Who takes over sees at once what was asked meanwhile, and whether there is money left.
    "steal": {S.RUNNING: {S.RUNNING, S.PAUSED, S.CANCELLED}, S.PAUSING: {S.RUNNING, S.PAUSED, S.CANCELLED}},
    "cancel": {S.CREATED: {S.CANCELLED}, S.READY: {S.CANCELLED}, S.FAILED: {S.CANCELLED}, S.PAUSED: {S.CANCELLED}},
    "open the gate": {S.RUNNING: {S.RUNNING, *PARKED}, S.PAUSING: {S.PAUSED, S.CANCELLED}},
    "end of a holder": {
        S.RUNNING: {S.RUNNING, S.READY, S.CREATED, S.CANCELLED}, S.PAUSING: {S.PAUSING, S.PAUSED, S.CANCELLED},
    },
    "nothing": {},
}  # fmt: skip
"""Which status may follow which once everything is quiet again. Where nothing is said, it stays."""


class EngineMachine(RuleBasedStateMachine):
    in_memory = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = ":memory:" if self.in_memory else str(Path(self.folder.name) / "store.db")
        self.runner = asyncio.Runner()
        self.clock = ManualClock(auto=True)
        self.world = World()
        self.engines: dict[int, Engine] = {}
        self.plans: dict[str, list[str]] = {}
        self.visited: dict[str, list[Visited]] = {}
        self.records: dict[str, list[Record]] = {}
        self.rows: dict[str, SessionRow] = {}
        self.closed: dict[str, Pause] = {}
        self.deaths = 0
        self.run(self.open(0))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(asyncio.wait_for(work, PATIENCE))

    async def open(self, number: int) -> None:
        store = MortalStore(self.path, clock=self.clock, synchronous="OFF", poll=0.002)
        engine = Engine(store, workflows=[self.world.workflow], clock=self.clock, signals=False)
        self.engines[number] = await engine.__aenter__()

    def teardown(self) -> None:
        try:
            self.run(self.end_everything())
        finally:
            for engine in self.engines.values():
                self.run(engine.close())
            self.runner.close()
            self.folder.cleanup()

    def engine(self, number: int) -> Engine:
        """The engine asked for, or the one there is."""
        return self.engines.get(number) or next(iter(self.engines.values()))

    def store(self, engine: Engine) -> MortalStore:
        assert isinstance(engine.store, MortalStore)
        return engine.store

    # quiet

    async def quiet(self) -> None:
        """Until every session stands, or waits at a gate and knows all that was asked of it."""
        end = time.monotonic() + PATIENCE / 2
        while not await self.is_quiet():
            assert time.monotonic() < end, f"never quiet: {await self.statuses()}"
            await asyncio.sleep(0.0005)

    async def is_quiet(self) -> bool:
        for number, engine in list(self.engines.items()):
            if self.store(engine).dead:
                await crash(self.engines.pop(number))
                self.deaths += 1
        if not self.engines:
            await self.open(0)
        drives = {id(drive) for engine in self.engines.values() for drive in driven(engine).values()}
        if drives != {id(ctx._visit.host) for ctx in self.world.blocked()}:
            return False
        return all([await self.is_up_to_date(engine) for engine in self.engines.values()])

    async def is_up_to_date(self, engine: Engine) -> bool:
        for session_id, drive in driven(engine).items():
            row = await self.row(session_id)
            asked = Flags(row.pause_requested, row.pause_mode, row.cancel_requested)
            aborting = asked.pause_requested and asked.pause_mode == "abort"
            if (drive.row.fence, drive.flags) != (row.fence, asked) or aborting:
                return False
        return True

    async def row(self, session_id: str) -> SessionRow:
        row = await self.engine(0).store.get(session_id)
        assert row is not None
        return row

    async def statuses(self) -> dict[str, Status]:
        return {session_id: (await self.row(session_id)).status for session_id in self.plans}

    def does(self, verb: str, session_id: str | None, act: Callable[[], Awaitable[Any]]) -> None:
        """Do something to one session (None: to all); the transitions must be legal, and the others must not move."""

        async def doing() -> None:
            before, deaths = await self.statuses(), self.deaths
            try:
                await act()
            except StoreError:
                assert any(self.store(engine).dead for engine in self.engines.values())
            await self.quiet()
            if self.deaths == deaths:
                self.judge(verb, session_id, before, await self.statuses())

        self.run(doing())

    def judge(self, verb: str, session_id: str | None, before: dict[str, Status], after: dict[str, Status]) -> None:
        for one, status in before.items():
            legal = LEGAL[verb].get(status, {status}) if session_id in (one, None) else {status}
            assert after[one] in legal, (verb, one, status, after[one])

    # the verbs

    @precondition(lambda self: len(self.plans) < len(IDS))
    @rule(plan=plans, paused=rarely, budget=st.sampled_from((None, None, 1)), number=engines)
    def start(self, plan: list[str], paused: bool, budget: int | None, number: int) -> None:
        engine, session_id = self.engine(number), IDS[len(self.plans)]

        async def start() -> None:
            await engine.start(
                self.world.workflow, Desk(plan=plan), session_id=session_id, budget=budget, paused=paused
            )

        self.does("nothing", "", start)
        if self.run(self.engine(0).store.get(session_id)) is not None:
            self.plans[session_id] = plan
            assert not paused or self.run(self.statuses())[session_id] is S.PAUSED

    @precondition(lambda self: self.plans)
    @rule(data=st.data(), number=engines)
    def start_with_other_input(self, data: st.DataObject, number: int) -> None:
        session_id, engine = self.draw(data), self.engine(number)
        other = Desk(plan=[*self.plans[session_id], "ok"])

        async def conflict() -> None:
            with pytest.raises(InputConflict):
                await engine.start(self.world.workflow, other, session_id=session_id)

        self.does("nothing", session_id, conflict)

    def draw(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.plans)), label="session")

    @precondition(lambda self: self.plans)
    @rule(data=st.data(), number=engines, steal=st.booleans(), budget=st.sampled_from((None, None, 3)))
    def resume(self, data: st.DataObject, number: int, steal: bool, budget: int | None) -> None:
        session_id, engine = self.draw(data), self.engine(number)
        status = self.run(self.statuses())[session_id]

        async def resume() -> None:
            if status is S.CANCELLED:
                with pytest.raises(VerbRefused):
                    await engine.resume(session_id)
            elif status is S.RUNNING and not steal:
                with pytest.raises(AlreadyRunning):
                    await engine.resume(session_id, budget=budget)
            else:
                await engine.resume(session_id, steal=steal, budget=budget)

        held = status in (S.RUNNING, S.PAUSING)
        self.does("steal" if steal and held else "resume", session_id, resume)

    @precondition(lambda self: self.plans)
    @rule(data=st.data(), number=engines, mode=modes, everything=st.booleans())
    def pause(self, data: st.DataObject, number: int, mode: Any, everything: bool) -> None:
        session_id = None if everything else self.draw(data)
        engine = self.engine(number)

        async def pause() -> None:
            before = await self.statuses()
            infos = await engine.pause(session_id, everything=everything, mode=mode, by="ann", reason="lunch")
            for info in infos:
                told = {S.RUNNING: S.PAUSING, S.PAUSING: S.PAUSING}.get(before[info.session_id], S.PAUSED)
                assert info.status is (before[info.session_id] if before[info.session_id] in OVER else told)

        self.does(f"pause {mode}", session_id, pause)

    @precondition(lambda self: self.plans)
    @rule(data=st.data(), number=engines, really=rarely)
    def cancel(self, data: st.DataObject, number: int, really: bool) -> None:
        session_id, engine = self.draw(data), self.engine(number)
        if not really and self.run(self.statuses())[session_id] not in OVER:
            return  # there would soon be nothing left to do
        self.does("cancel", session_id, lambda: engine.cancel(session_id, by="ann"))

    @precondition(lambda self: self.world.blocked())
    @rule(data=st.data())
    def open_the_gate(self, data: st.DataObject) -> None:
        waiting = sorted({ctx.session_id for ctx in self.world.blocked()})
        session_id = data.draw(st.sampled_from(waiting), label="gate")

        async def open_it() -> None:
            self.world.open(session_id)

        self.does("open the gate", session_id, open_it)

    @rule(shut=st.booleans())
    def turn_the_door(self, shut: bool) -> None:
        self.world.shut = shut

    # engines and time

    def several(self) -> bool:
        return not self.in_memory

    @precondition(lambda self: self.several() and len(self.engines) < 2)
    @rule()
    def open_another(self) -> None:
        self.run(self.open(1 if 0 in self.engines else 0))

    @precondition(several)
    @rule(number=engines, kindly=st.booleans())
    def end_an_engine(self, number: int, kindly: bool) -> None:
        number = number if number in self.engines else next(iter(self.engines))

        async def end() -> None:
            engine = self.engines.pop(number)
            await (engine.close() if kindly else crash(engine))

        self.does("end of a holder", None, end)

    @precondition(several)
    @rule(number=engines, commits=st.integers(0, 6), after=st.booleans())
    def doom(self, number: int, commits: int, after: bool) -> None:
        self.store(self.engine(number)).doom(commits, after)

    @rule(seconds=jumps)
    def jump(self, seconds: int) -> None:
        self.clock.jump(seconds)

    # what holds at every quiet moment

    @invariant()
    def the_sessions_are_what_the_model_says(self) -> None:
        self.run(self.check())

    async def check(self) -> None:
        assert not self.world.doubled, self.world.doubled
        for engine in self.engines.values():
            infos = [await engine.info(session_id) for session_id in self.plans]
            listed = await engine.sessions()
            assert sorted(listed, key=by_id) == sorted(infos, key=by_id)
            assert [info.created_at for info in listed] == sorted((info.created_at for info in infos), reverse=True)
        for session_id in self.plans:
            await self.check_session(self.engine(0), session_id)

    async def check_session(self, engine: Engine, session_id: str) -> None:
        plan, row = self.plans[session_id], await self.row(session_id)
        visits = [Visited(one.step, one.visit, bool(one.skipped)) for one in await engine.checkpoints(session_id, limit=None)]
        await self.check_log(session_id, row)
        before = self.visited.get(session_id, [])
        assert visits[: len(before)] == before
        assert visits == path(plan)[: len(visits)]
        assert await engine.state(session_id) == state_after(plan, visits)
        assert row.spent_usd - cost_of(plan, visits) * 1_000_000 in (0, 1_000_000)
        if row.status is S.COMPLETED:
            assert visits == path(plan)
        self.visited[session_id] = visits
        self.world.settled.update((session_id, visit.step, visit.visit) for visit in visits)

    async def check_log(self, session_id: str, row: SessionRow) -> None:
        store = self.engine(0).store
        records, old = await store.records(row.key, 1), self.records.get(session_id, [])
        assert records[: len(old)] == old
        assert [record.seq for record in records] == list(range(1, row.seq + 1))
        before = self.rows.get(session_id, row)
        assert row.fence >= before.fence
        assert row.updated_at >= before.updated_at
        for pause in await store.pauses(row.key, open_only=False):
            if pause.closed_at is not None:
                assert self.closed.setdefault(pause.id, pause) == pause
        await store.signals(row.key, 0)
        for record in records[len(old) :]:
            if record.kind == "operation" and "[" in (name := body_of(record).id):
                self.world.remembered.add((session_id, record.visit, name.rsplit('["', 1)[1][:-2]))
        self.records[session_id], self.rows[session_id] = records, row

    # and at the end

    async def end_everything(self) -> None:
        """Once the faults stop, every session reaches its end."""
        self.world.shut = False
        for number in list(self.engines)[1:]:
            await self.engines.pop(number).close()
        self.store(self.engine(0)).doom(10**9, False)
        for session_id, plan in self.plans.items():
            await self.end_session(session_id, plan)

    async def end_session(self, session_id: str, plan: list[str]) -> None:
        # A resume for every failure that is scripted, and a few for pauses, crashes and the budget.
        for _ in range(2 * len(plan) + 6):
            status = (await self.row(session_id)).status
            if status in OVER:
                break
            if status is not S.RUNNING:
                await self.engine(0).resume(session_id, budget=1000)
            while session_id in self.engine(0).driver.runs:
                self.world.open(session_id)
                await asyncio.sleep(0)
        await self.check_session(self.engine(0), session_id)
        row = await self.row(session_id)
        assert row.status in OVER, row
        assert (row.status is S.CANCELLED) <= row.cancel_requested
        if row.status is S.COMPLETED:
            assert row.spent_usd == cost_of(plan, path(plan)) * 1_000_000
        assert not self.world.doubled, self.world.doubled
        assert await self.engine(0).store.find(Filter(session_id=session_id)) == [row]


def by_id(info: SessionInfo) -> str:
    return info.session_id


class InMemory(EngineMachine):
    in_memory = True


MACHINES = {":memory:": InMemory, "file": EngineMachine}


@pytest.mark.covers("S1.50", "S1.59", "S1.60")
@pytest.mark.parametrize("place", [":memory:", "file"])
def test_after_any_history_of_verbs_the_sessions_are_what_the_model_says(place: str) -> None:
    many = settings(max_examples=examples(40 if place == ":memory:" else 60), stateful_step_count=25)
    run_state_machine_as_test(MACHINES[place], settings=many)


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
        assert outcome.state == state_after(["wait"], path(["wait"]))


@on_loop
async def test_a_look_for_requests_that_the_store_refuses_is_left_to_the_next_commit(tmp_path: Path) -> None:
    world = World()
    store = MortalStore(tmp_path / "store.db")
    engine = await Engine(store, workflows=[world.workflow], signals=False).__aenter__()
    await engine.start(world.workflow, plan=["wait"])
    while not world.blocked():
        await asyncio.sleep(0)
    store.dead = True
    engine.driver.on_change()
    assert engine.driver.refreshing is not None
    await engine.driver.refreshing
    await crash(engine)


BROKEN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "remembered operations run again": lambda patch: patch.setattr(Visit, "remembered", lambda *_: None),
    "a replay doubles what was spent": lambda patch: patch.setattr(Line, "_fold_effects", count_only),
    "a loop is not taken": lambda patch: patch.setattr(Drive, "_settle", straight_on),
}


def count_only(line: Line, effects: Iterable[Effect]) -> None:
    line.usd += sum(effect.usd for effect in effects)


async def straight_on(drive: Drive, step: str, attempts: int = 1) -> tuple[Settled, None]:
    return Settled(drive.workflow.following(step)), None


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_engine_is_found_out(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BROKEN[fault](monkeypatch)
    quickly = settings(max_examples=200, stateful_step_count=20, phases=[Phase.generate], database=None)
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(MACHINES[":memory:"], settings=quickly)
