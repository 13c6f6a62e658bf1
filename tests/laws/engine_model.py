"""The expected state of sessions after each public verb: a model in plain Python over scripted workflows.

Between two verbs everything is quiet: a session is parked, or its step waits at a gate that the model opens. So the
model knows every status before a verb. The status after the verb must be legal, and it must follow from the position
in the script and from the requests so far. Two engines share a file. They close, crash immediately, or crash at a later
write. The rules are in `tests.laws.engine_machine`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from pausepoint import Engine, Status, Workflow
from pausepoint.errors import AlreadyRunning, StoreError
from pausepoint.log.replay import EventBody, body_of
from pausepoint.model.records import Record
from pausepoint.model.sessions import Filter, Pause, SessionRow
from pausepoint.runtime.drive import Drive
from pausepoint.testing import ManualClock
from tests.support.loop import PATIENCE
from tests.support.mortal import MortalStore, crash, driven
from tests.support.scripted import Course, Desk, Visited, World

T = TypeVar("T")
Statuses = dict[str, Status]

IDS = ("ant", "bee", "cat", "dog", "eel")
S = Status
OVER = {S.COMPLETED, S.CANCELLED}
PARKED = {S.PAUSED, S.FAILED, S.WAITING, S.SLEEPING, *OVER}
STANDING = (S.CREATED, S.READY, S.FAILED, S.WAITING, S.SLEEPING)
GOES_ON = {S.RUNNING, *PARKED}
# A pause of everything does not apply to sessions that ended or failed, but it pauses them when they are reopened.
REOPENED = {status: {S.READY} for status in STANDING} | {status: {S.READY, S.PAUSED} for status in (*OVER, S.FAILED)}

LEGAL: dict[str, dict[Status, set[Status]]] = {
    # A pause of everything leaves failed sessions alone.
    "pause finish": {status: {S.PAUSED} for status in STANDING}
    | {S.RUNNING: {S.PAUSING}, S.FAILED: {S.PAUSED, S.FAILED}},
    "pause abort": {status: {S.PAUSED} for status in STANDING}
    | {S.FAILED: {S.PAUSED, S.FAILED}}
    | {S.RUNNING: {S.PAUSED, S.CANCELLED}, S.PAUSING: {S.PAUSED, S.CANCELLED}},
    "pause everything finish": {status: {S.PAUSED} for status in STANDING} | {S.FAILED: {S.FAILED}}
    | {S.RUNNING: {S.PAUSING}},
    "pause everything abort": {status: {S.PAUSED} for status in STANDING} | {S.FAILED: {S.FAILED}}
    | {S.RUNNING: {S.PAUSED, S.CANCELLED}, S.PAUSING: {S.PAUSED, S.CANCELLED}},
    "lift": {S.PAUSED: {S.PAUSED, *GOES_ON}, S.PAUSING: {S.PAUSING, S.RUNNING}},
    "resume": {S.PAUSING: {S.RUNNING}}
    | dict.fromkeys((S.CREATED, S.READY, S.FAILED, S.PAUSED, S.WAITING), GOES_ON),
    # An engine that claims a session sees earlier requests and an exhausted budget immediately.
    "steal": {S.RUNNING: {S.RUNNING, S.PAUSED, S.CANCELLED}, S.PAUSING: {S.RUNNING, S.PAUSED, S.CANCELLED}},
    "cancel": {status: {S.CANCELLED} for status in (*STANDING, S.PAUSED)},
    "open the gate": {S.RUNNING: GOES_ON, S.PAUSING: {S.PAUSED, S.CANCELLED}, S.WAITING: GOES_ON},
    "send": {S.WAITING: GOES_ON},
    "time passes": {S.SLEEPING: GOES_ON, S.WAITING: GOES_ON},
    "edit": {**REOPENED, S.PAUSED: {S.PAUSED, S.READY}},
    "rewind": {**REOPENED, S.PAUSED: {S.PAUSED, S.READY}},
    "end of a holder": {
        S.RUNNING: {S.RUNNING, S.READY, S.CREATED, S.CANCELLED}, S.PAUSING: {S.PAUSING, S.PAUSED, S.CANCELLED},
    },
    "nothing": {},
}  # fmt: skip
"""The statuses that may follow a status once everything is quiet again. A status that is not listed stays."""


def failed_cost(record: Record) -> int:
    """Return the dollars that an attempt had spent when it failed."""
    body = None if record.redacted else body_of(record)
    if not isinstance(body, EventBody) or body.type not in ("step.retried", "session.failed"):
        return 0
    return sum(effect.usd for effect in body.effects) // 1_000_000


class Clock(ManualClock):
    """A clock that only a rule advances. Short sleeps between two attempts end immediately."""

    async def sleep(self, seconds: float) -> None:
        if seconds < 0.1:
            await asyncio.sleep(0)
        else:
            await super().sleep(seconds)


def active(engine: Engine) -> dict[str, Drive]:
    """Return the sessions that an engine drives. One whose step is only kept in memory is parked."""
    return {session_id: drive for session_id, drive in driven(engine).items() if not drive.is_kept}


class EngineModel(RuleBasedStateMachine):
    """The engines, the sessions that were begun, and the checks of a state machine without its rules."""

    in_memory = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = ":memory:" if self.in_memory else str(Path(self.folder.name) / "store.db")
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self.world = World()
        self.engines: dict[int, Engine] = {}
        self.begun: dict[str, Course] = {}  # how each session began
        self.inherited: dict[str, set[tuple[int, str]]] = {}  # operations that a fork reuses
        self.edits: dict[str, dict[str, Any]] = {}
        self.sent: dict[str, list[int]] = {}
        self.messages = 0
        self.records: dict[str, list[Record]] = {}
        self.rows: dict[str, SessionRow] = {}
        self.closed: dict[str, Pause] = {}
        self.stood: set[str] = set()  # ready sessions that only a resume continues, also below a pause
        self.deaths = 0
        self.run(self.open(0))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(asyncio.wait_for(work, PATIENCE))

    async def open(self, number: int) -> None:
        store = MortalStore(self.path, clock=self.clock, synchronous="OFF", poll=0.002, ballast=0)
        workflows: list[Workflow[Any]] = [self.world.workflow, self.world.errand]
        engine = Engine(store, workflows=workflows, clock=self.clock, signals=False)
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
        """Return the engine with this number, or any other one."""
        return self.engines.get(number) or next(iter(self.engines.values()))

    def store(self, engine: Engine) -> MortalStore:
        assert isinstance(engine.store, MortalStore)
        return engine.store

    # quiet

    async def quiet(self) -> None:
        """Wait until no session is due, and each is parked or waits at a gate and has seen every request."""
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
        drives = {id(drive) for engine in self.engines.values() for drive in active(engine).values()}
        if drives != {id(ctx._visit.host) for ctx in self.world.blocked()}:
            return False
        if any(engine._service.driver.claims for engine in self.engines.values()):
            return False
        due = await self.engine(0).store.due(self.clock.now(), ["scripted", "errand"], 10)
        return not due and all([await self.is_up_to_date(engine) for engine in self.engines.values()])

    async def is_up_to_date(self, engine: Engine) -> bool:
        for session_id, drive in active(engine).items():
            row = await self.row(session_id)
            asked = (row.pause_requested, row.pause_mode, row.cancel_requested)
            flags = (drive.flags.pause_requested, drive.flags.pause_mode, drive.flags.cancel_requested)
            aborting = row.pause_requested and row.pause_mode == "abort"
            if (drive.row.fence, flags) != (row.fence, asked) or aborting:
                return False
        return True

    async def row(self, session_id: str) -> SessionRow:
        row = await self.engine(0).store.get(session_id)
        assert row is not None
        return row

    async def statuses(self) -> dict[str, Status]:
        return {session_id: (await self.row(session_id)).status for session_id in self.begun}

    def does(self, verb: str, who: Iterable[str] | None, act: Callable[[], Awaitable[Any]]) -> bool:
        """Do something to sessions (None: to all), and check that the transitions are legal and other sessions stay.

        Return False if an engine died meanwhile: then the act took effect or not.
        """

        async def doing() -> bool:
            before, deaths = await self.statuses(), self.deaths
            try:
                await act()
            except StoreError:
                assert any(self.store(engine).dead for engine in self.engines.values())
            await self.quiet()
            after = await self.statuses()
            if self.deaths == deaths:
                self.judge(verb, who, before, after)
            self.note_standing(after, before if self.deaths > deaths else who if verb in ("edit", "rewind") else ())
            return self.deaths == deaths

        return self.run(doing())

    def judge(self, verb: str, who: Iterable[str] | None, before: Statuses, after: Statuses) -> None:
        for one, status in before.items():
            legal = LEGAL[verb].get(status, {status}) if who is None or one in who else {status}
            if verb == "lift" and one in self.stood:
                legal = legal | {S.CREATED, S.READY}
            assert after[one] in legal, (verb, one, status, after[one])

    def note_standing(self, after: Statuses, reopened: Iterable[str] | None) -> None:
        """Note the sessions that are ready until a resume. A pause of everything and its lift leave them so."""
        for one, status in after.items():
            if status in (S.CREATED, S.READY) or (status is S.PAUSED and one in (reopened or ())):
                self.stood.add(one)
            elif status is not S.PAUSED:
                self.stood.discard(one)

    # the state at every quiet moment

    async def check(self) -> None:
        assert not self.world.doubled, self.world.doubled
        for engine in self.engines.values():
            listed = await engine.sessions()
            infos = [await engine.session(one.session_id).info() for one in listed]
            assert listed == infos
            assert {info.session_id for info in infos if info.workflow == "scripted"} == self.begun.keys()
            assert [info.created_at for info in listed] == sorted((info.created_at for info in infos), reverse=True)
        for session_id in self.begun:
            await self.check_session(self.engine(0), session_id)

    async def check_session(self, engine: Engine, session_id: str) -> None:
        row = await self.row(session_id)
        await self.check_log(session_id, row)
        course = self.retrace(session_id, row.seq)
        state: Any = await engine.session(session_id).state()
        assert course.same(state), (course, state)
        await self.check_messages(session_id, row, state)
        await self.check_status(row, course)
        await self.check_children(row)
        self.check_money(session_id, row)
        present = [one for one in await engine.session(session_id).checkpoints(limit=None) if not one.left_behind]
        chain = self.line(session_id, row.seq)
        assert [one.seq for one in present] == [record.seq for record in chain if record.kind == "checkpoint"]
        self.world.settled[session_id] = {(one.step, one.visit) for one in present}
        self.world.remembered[session_id] = self.remembered(session_id, row.seq)

    def line(self, session_id: str, seq: int) -> list[Record]:
        """Return a record and the records that it builds on, along the parents."""
        records, chain = self.records[session_id], []
        while seq:
            chain.append(records[seq - 1])
            seq = chain[-1].parent
        return chain[::-1]

    def retrace(self, session_id: str, seq: int) -> Course:
        """Return the position of a session at a record, from its visits and edits."""
        course = deepcopy(self.begun[session_id])
        for record in self.line(session_id, seq):
            if record.kind == "checkpoint":
                course.go(Visited(record.step, record.visit, bool(body_of(record).skipped)))
            elif record.kind == "edit":
                course.edit(self.edits[body_of(record).reason])
        return course

    def remembered(self, session_id: str, seq: int) -> set[tuple[int, str]]:
        """Return the operations of the current line, including those that rewinds reused."""
        found = set(self.inherited[session_id])
        for record in self.line(session_id, seq):
            body = body_of(record)
            if record.kind == "operation" and "[" in body.id:
                found.add((record.visit, body.id.rsplit('["', 1)[1][:-2]))
            elif record.kind == "rewind":
                kept = self.remembered(session_id, record.seq - 1) if body.reuse else set()
                found = {each for each in found if f"act#{each[0]}" != body.to}
                found |= {each for each in kept if f"act#{each[0]}" == body.to}
        return found

    async def check_messages(self, session_id: str, row: SessionRow, state: Desk) -> None:
        """Check that messages are received once and in order, and that the others are kept."""
        assert state.heard == sorted(set(state.heard))
        received = sum(
            record.kind == "operation" and body_of(record).name == "receive" for record in self.records[session_id]
        )
        mail = await self.engine(0).store.mail(row.key)
        kept = [int(bytes(signal.payload)[9:-1]) for signal in mail if signal.kind == "message"]
        assert kept == self.sent[session_id][received:]

    async def check_status(self, row: SessionRow, course: Course) -> None:
        """Check that the position in the script explains the status."""
        status, act = row.status, course.act
        if status in (S.RUNNING, S.PAUSING):
            assert act in ("wait", "work"), (status, act, self.engine(0)._service.driver.troubles)
        elif status is S.PAUSED:
            kinds = {pause.kind for pause in await self.engine(0).store.pauses(row.key)}
            assert kinds <= {"operator", "guard", "budget", "crashes"}
            assert ("operator" in kinds) == row.pause_requested
            assert "guard" not in kinds or (course.step is None and row.held_by_guard)
        elif status is S.SLEEPING:
            assert act in ("sleep", "both"), (status, act)
            assert row.wakes_at is not None
            assert row.wakes_at > self.clock.now()
        elif status is S.WAITING:
            await self.check_waiting(row, act)
        elif status is S.FAILED:
            assert act.endswith("raise"), (status, act)
        elif status is S.COMPLETED:
            assert (course.step, row.step) == (None, None)
        elif status is S.CANCELLED:
            assert row.cancel_requested
        else:
            assert status in (S.CREATED, S.READY)
            assert not row.due

    async def check_waiting(self, row: SessionRow, act: str) -> None:
        store = self.engine(0).store
        if "message" in (row.waiting or ""):
            assert act in ("receive", "both")
            assert not [signal for signal in await store.mail(row.key) if signal.kind == "message"]
        else:
            assert (row.waiting, act[:4]) == ("child", "call")
            children = await store.find(Filter(parent=row.key))
            assert [child for child in children if child.ended is None], children

    async def check_children(self, row: SessionRow) -> None:
        """Check that a request to pause or cancel reached the children."""
        for child in await self.engine(0).store.find(Filter(parent=row.key, unended=True)):
            assert child.pause_requested or not row.pause_requested
            assert child.cancel_requested or not row.cancel_requested

    def check_money(self, session_id: str, row: SessionRow) -> None:
        """Check that a session without rewinds and edits has spent what its visits and their failed attempts cost."""
        records = self.records[session_id]
        if any(record.kind in ("rewind", "edit") for record in records) or self.inherited[session_id]:
            return
        cost = self.retrace(session_id, row.seq).cost - self.begun[session_id].cost + sum(map(failed_cost, records))
        open_visit = () if row.status is S.COMPLETED else (1_000_000,)
        assert row.spent_usd - cost * 1_000_000 in (0, *open_visit), (row.spent_usd, cost)

    async def check_log(self, session_id: str, row: SessionRow) -> None:
        store = self.engine(0).store
        records, old = await store.records(row.key, 1), self.records.get(session_id, [])
        assert records[: len(old)] == old
        assert [record.seq for record in records] == list(range(1, row.seq + 1))
        before = self.rows.get(session_id, row)
        assert row.fence >= before.fence
        assert row.updated_at >= before.updated_at
        assert row.spent_usd >= before.spent_usd
        for pause in await store.pauses(row.key, open_only=False):
            if pause.closed_at is not None:
                assert self.closed.setdefault(pause.id, pause) == pause
        await store.signals(row.key, 0)
        self.records[session_id], self.rows[session_id] = records, row

    # the end

    async def end_everything(self) -> None:
        """Stop the faults, run every session until it ends, and verify the store."""
        self.world.shut = False
        for number in list(self.engines)[1:]:
            await self.engines.pop(number).close()
        self.store(self.engine(0)).spare()
        for session_id in self.begun:
            await self.end_session(session_id)
        report = await self.engine(0).verify()
        assert report.ok, report.problems

    async def end_session(self, session_id: str) -> None:
        # One resume for every scripted failure, plus some for pauses, crashes and the budget.
        for _ in range(2 * 12 + 12):
            await self.settle()
            status = (await self.row(session_id)).status
            if status in OVER:
                break
            await self.push(session_id, status)
        await self.check_session(self.engine(0), session_id)
        row = await self.row(session_id)
        assert row.status in OVER, row
        assert (row.status is S.CANCELLED) <= row.cancel_requested
        assert not self.world.doubled, self.world.doubled
        assert await self.engine(0).store.find(Filter(session_id=session_id)) == [row]

    async def settle(self) -> None:
        """Open every gate until no step waits at one."""
        await self.quiet()
        while self.world.blocked():
            for ctx in self.world.blocked():
                self.world.open(ctx.session_id)
            await self.quiet()

    async def push(self, session_id: str, status: Status) -> None:
        engine = self.engine(0)
        row = await self.row(session_id)
        if status is S.WAITING and "message" in (row.waiting or ""):
            self.messages += 1
            self.sent[session_id].append(self.messages)
            await engine.session(session_id).send(self.messages)
            return
        children = await engine.session(session_id).children()
        for child in children:
            if child.status is S.PAUSED:
                await engine.session(child.session_id).resume()
        failed_by = row.failure.type if row.failure is not None else ""
        if failed_by == "ChildFailed" and any(child.status is S.CANCELLED for child in children):
            # The step cannot resume a cancelled child. A rewind lets it call another one.
            await engine.session(session_id).rewind(f"{row.step}#{row.visit}", by="ann")
            await self.check_session(engine, session_id)
        with suppress(AlreadyRunning):  # its child may have woken it
            await engine.session(session_id).resume(budget=1000, wake=True)
