"""Runs a trial on real engines over one SQLite file, and compares what happened with the reference interpreter.

The engines run on one event loop. A process that is killed is an engine whose store dies: it writes nothing more, its
hold is released, and its steps never continue. The conductor acts as people and operators do: it answers questions,
sends messages, lets time pass, resumes sessions, and causes the faults at their points.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import msgspec

from pausepoint import Context, Engine, Status
from pausepoint.errors import AlreadyRunning, QuestionClosed, StoreError, VerbRefused
from pausepoint.log.replay import EventBody, OperationBody, body_of
from pausepoint.log.state import Inline
from pausepoint.model.sessions import Filter, SessionRow
from tests.faults.interpreter.faults import Fault, Trial
from tests.faults.interpreter.program import NAP, may_fail, waits
from tests.faults.interpreter.reference import Expected, answer, message
from tests.faults.interpreter.world import Page, WitnessedStore, World
from tests.laws.engine_model import Clock
from tests.support.folders import scratch
from tests.support.loop import PATIENCE
from tests.support.mortal import crash

T = TypeVar("T")
OVER = (Status.COMPLETED, Status.CANCELLED)
EVERYTHING = ""
"""The name of the pause of everything among the roots."""


@dataclass
class Report:
    """What a trial did, and what was wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Conductor:
    """One trial: its engines, its sessions, and what happens to them."""

    def __init__(self, trial: Trial, path: Path, seed: str, patience: float) -> None:
        self.trial = trial
        self.path = path
        self.random = Random(f"{seed} conducted")
        self.world = World(trial.children, self.at_point)
        self.workflows = [self.world.workflow(program) for program in trial.roots]
        self.roots = [f"s{number}" for number in range(len(trial.roots))]
        self.clock = Clock()
        self.engines: list[Engine] = []
        self.faults = list(trial.faults)
        self.reached: list[tuple[Fault, Engine, str, asyncio.Event]] = []
        self.busy = False
        self.report = Report()
        self.patience = patience
        self.ends_at = time.monotonic() + patience

    # engines

    async def open(self) -> Engine:
        store = WitnessedStore(self.path, clock=self.clock, synchronous="OFF", poll=0.002, ballast=0)
        store.world = self.world
        workflows = [*self.workflows, *self.world.children]
        engine = Engine(store, workflows=workflows, clock=self.clock, signals=False, hold=self.trial.hold)
        await engine.__aenter__()
        self.engines.append(engine)
        return engine

    def is_dead(self, engine: Engine) -> bool:
        return isinstance(engine.store, WitnessedStore) and engine.store.dead

    async def bury_the_dead(self) -> None:
        """End the engines whose store has died, as soon as that happens."""
        while True:
            for engine in [each for each in self.engines if self.is_dead(each)]:
                self.engines.remove(engine)
                self.report.counts["crashes"] += 1
                self.report.counts["crashes of a keeper"] += any(
                    run.is_kept for run in engine._service.driver.runs.values()
                )
                await crash(engine)
            await asyncio.sleep(0.001)

    async def engine(self, other_than: Engine | None = None) -> Engine:
        """Return an engine that is alive, if possible not this one. Open one if none is left."""
        alive = [engine for engine in self.engines if not self.is_dead(engine) and engine._service.is_open]
        others = [engine for engine in alive if engine is not other_than]
        if not alive or (other_than is not None and not others):
            return await self.open()
        return self.random.choice(others or alive)

    async def verb(self, engine: Engine, act: Callable[[Engine], Awaitable[T]]) -> T | None:
        """Call a verb. Return None if the process died meanwhile."""
        try:
            return await act(engine)
        except (StoreError, OSError):  # a dead store has closed its files
            if not self.is_dead(engine):
                raise
            return None

    # the points of the programs

    def at_point(self, ctx: Context) -> asyncio.Event | None:
        """Start the fault that is due, and return what the operation must wait for."""
        if not self.faults or self.world.points < self.faults[0].at:
            return None
        store = ctx._visit.host.ledger.store
        engine = next((each for each in self.engines if each.store is store), None)
        if engine is None:
            return None  # the engine is being closed
        assert isinstance(store, WitnessedStore)
        fault = self.faults.pop(0)
        if fault.kind == "crash":
            store.die()
            return None
        if fault.kind == "doom":
            store.doom(fault.writes, fault.after)
            return None
        released = asyncio.Event()
        self.reached.append((fault, engine, str(ctx.session_id), released))
        # While the conductor waits for a session to stop, an operation must not wait for the conductor.
        return None if fault.early or self.busy else released

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let no operation wait for the conductor inside this block."""
        self.busy = True
        for *_, released in self.reached:
            released.set()
        try:
            yield
        finally:
            self.busy = False

    # the run

    async def run(self) -> Report:
        for _ in range(self.trial.engines):
            await self.open()
        undertaker = asyncio.ensure_future(self.bury_the_dead())
        try:
            await self.conduct()
            await self.check()
        finally:
            undertaker.cancel()
            with self.working():
                await self.end()
            with suppress(asyncio.CancelledError):
                await undertaker
        return self.report

    async def end(self) -> None:
        for engine in self.engines:
            await (crash(engine) if self.is_dead(engine) else engine.close())

    async def conduct(self) -> None:
        started: set[str] = set()
        while True:
            await self.start(started)
            if self.reached:
                await self.cause(*self.reached.pop(0))
            elif await self.push():
                return
            await asyncio.sleep(0.001)
            if time.monotonic() > self.ends_at:
                raise TimeoutError(f"not finished after {self.patience} s: {_brief(await self.rows())}")

    async def start(self, started: set[str]) -> None:
        """Start the sessions that are not started yet, because the process that should have done it has died."""
        for number, root in enumerate(self.roots):
            workflow, page = self.workflows[number], Page(path=root, total=number + 1)
            if root in started:
                continue
            with suppress(AlreadyRunning):  # it was stored by a process that died, and another one drives it
                begun = await self.verb(
                    await self.engine(),
                    lambda engine: engine.start(workflow, page, session_id=root),  # noqa: B023  # called at once
                )
                started |= set() if begun is None else {root}

    async def rows(self) -> list[SessionRow]:
        found = await self.verb(await self.engine(), lambda engine: engine.store.find(Filter()))
        return list(found or ())

    async def tree(self, root: str) -> list[SessionRow]:
        return [row for row in await self.rows() if root in (EVERYTHING, row.session_id.partition(".")[0])]

    async def push(self) -> bool:
        """Do what people do: answer, send, let time pass, and resume what no process drives. Return if all is done."""
        standing = await self.verb(await self.engine(), lambda engine: engine.standing_pause())
        if standing is not None:  # the process that paused everything has died
            await self.verb(await self.engine(), lambda engine: engine.lift_pause())
        rows = await self.rows()
        for root in self.roots:
            tree = [row for row in rows if row.session_id.partition(".")[0] == root]
            if self.stands_still(root, tree):
                await self.resume(root, await self.engine())
        await self.help(rows)
        found = {row.session_id: row.status for row in rows if row.session_id in self.roots}
        return len(found) == len(self.roots) and all(status in OVER for status in found.values())

    def stands_still(self, root: str, tree: list[SessionRow]) -> bool:
        """Return whether nothing but a resume can continue the session."""
        top = next((row for row in tree if row.session_id == root), None)
        if top is None or top.status in OVER or top.live:
            return False
        if top.status in (Status.WAITING, Status.SLEEPING):
            return top.awaits_child and any(self.is_left(row) for row in tree) and not any(row.live for row in tree)
        return self.is_left(top) or top.status is Status.FAILED

    def is_left(self, row: SessionRow) -> bool:
        return row.status is Status.PAUSED or (row.status in (Status.CREATED, Status.READY) and not row.due)

    async def help(self, rows: list[SessionRow]) -> None:
        """Answer the questions, send the messages and end the sleep that sessions wait for."""
        engine = await self.engine()
        for question in await self.verb(engine, lambda engine: engine.questions()) or ():
            value = answer(question.next_question)
            with suppress(QuestionClosed):  # its branch was cancelled after the questions were listed
                await self.verb(engine, lambda engine: engine.answer(question.id, value))  # noqa: B023  # called at once
                self.report.counts["answers"] += 1
        for row in rows:
            if row.waiting == "message":
                await self.send(row.session_id, engine)
        if any(row.status is Status.SLEEPING for row in rows) or not any(row.live for row in rows):
            self.clock.advance(NAP)

    async def send(self, session_id: str, engine: Engine) -> None:
        """Send the next message, unless the session has not received the last one yet.

        A message to a session with an open question would be its answer, so the session must wait for this message.
        """
        row = await self.verb(engine, lambda engine: engine.store.get(session_id))
        if row is None or row.waiting != "message" or row.ended is not None or row.live:
            return
        signals = await self.verb(engine, lambda engine: engine.store.signals(row.key, 0))
        mail = await self.verb(engine, lambda engine: engine.store.mail(row.key))
        if signals is None or mail is None or any(signal.kind == "message" for signal in mail):
            return
        number = 1 + sum(signal.kind == "message" for signal in signals)
        await self.verb(engine, lambda engine: engine.session(session_id).send(message(number)))
        self.report.counts["messages"] += 1

    async def resume(self, root: str, engine: Engine, **how: Any) -> None:
        self.world.paused.discard(root)
        with suppress(AlreadyRunning):  # it continues already
            await self.verb(engine, lambda engine: engine.session(root).resume(by="ann", **how))

    # the faults

    async def cause(self, fault: Fault, engine: Engine, session_id: str, released: asyncio.Event) -> None:
        root = session_id.partition(".")[0]
        if self.is_dead(engine) or not engine._service.is_open:
            engine = await self.engine()
        try:
            if fault.kind == "close":
                released.set()
                await self.close(engine)
            elif fault.kind == "steal":
                await self.steal(root, await self.engine(other_than=engine))
            else:
                await self.pause(fault, EVERYTHING if fault.kind == "everything" else root, engine, released)
        finally:
            released.set()

    async def close(self, engine: Engine) -> None:
        with self.working():
            if engine not in self.engines or self.is_dead(engine):
                return  # it has died in the meantime
            self.engines.remove(engine)
            assert isinstance(engine.store, WitnessedStore)
            engine.store.spare()
            self.report.counts["closes"] += 1
            await engine.close()

    async def steal(self, root: str, engine: Engine) -> None:
        self.report.counts["steals"] += 1
        with suppress(VerbRefused):
            await self.resume(root, engine, steal=True)

    async def pause(self, fault: Fault, root: str, engine: Engine, released: asyncio.Event) -> None:
        before = self.world.let_go
        asking = await self.engine(other_than=engine) if fault.asked_elsewhere else engine
        pausing = asyncio.ensure_future(self.verb(asking, lambda engine: self.ask_to_pause(engine, root, fault)))
        if fault.wait:
            with self.working():
                while not pausing.done() and not await self.is_requested(root):
                    await asyncio.sleep(0.001)
                released.set()
                await pausing
        else:
            await pausing
            released.set()
        self.report.counts["pauses of everything" if root == EVERYTHING else "pauses"] += 1
        if pausing.result() is None:
            return  # its process has died
        if fault.then != "withdraw":
            with self.working():
                await self.while_paused(fault, root, before)
        await self.withdraw(fault, root, await self.engine(other_than=engine if fault.resumed_elsewhere else None))

    async def ask_to_pause(self, engine: Engine, root: str, fault: Fault) -> bool:
        pause = engine.pause_all if root == EVERYTHING else engine.session(root).pause
        limit: dict[str, Any] = {"timeout": self.patience} if fault.wait else {}
        found = await pause(mode=fault.mode, freeze=fault.freeze, wait=fault.wait, by="bob", **limit)
        if found.working:
            self.report.wrong.append(f"did not stop within {self.patience} s: {found.working}")
        elif fault.wait:
            self.world.paused |= {root} if root != EVERYTHING else set(self.roots)
            self.report.counts["pauses awaited"] += 1
        return True

    async def is_requested(self, root: str) -> bool:
        return any(row.pause_requested for row in await self.tree(root))

    async def while_paused(self, fault: Fault, root: str, before: int) -> None:
        """Wait until everything has stopped. Nothing may begin from then on, whatever happens meanwhile."""
        rows = await self.stopped(root)
        self.world.paused |= {row.session_id for row in rows if row.parent_id is None and row.status is Status.PAUSED}
        await self.meddle(fault, root, [row for row in rows if row.kept_by is not None], before)
        for _ in range(fault.lasts):
            await self.help(await self.rows())
            await asyncio.sleep(0.002)

    async def stopped(self, root: str) -> list[SessionRow]:
        while True:
            rows = await self.tree(root)
            if not any(row.live for row in rows):
                return rows
            await asyncio.sleep(0.001)
            if time.monotonic() > self.ends_at:
                raise TimeoutError(f"{root or 'everything'} has not stopped: {_brief(rows)}")

    async def meddle(self, fault: Fault, root: str, kept: list[SessionRow], before: int) -> None:
        """Do something with steps that are held in place."""
        keepers = [each for each in self.engines if any(row.kept_by == each.store.number for row in kept)]
        other = await self.engine()
        match fault.then:
            case "outlast" if self.trial.hold < 1:
                while any(row.kept_by is not None for row in await self.tree(root)):
                    await asyncio.sleep(0.002)
                self.report.counts["holds that expired"] += self.world.let_go - before
            case "crash":
                for keeper in keepers:
                    assert isinstance(keeper.store, WitnessedStore)
                    keeper.store.die()
            case "close":
                for keeper in keepers:
                    await self.close(keeper)
            case "change":
                for row in kept:
                    with suppress(AlreadyRunning):
                        await self.verb(other, lambda engine: engine.session(row.session_id).emit("noted"))  # noqa: B023  # called at once
                    self.report.counts["holds taken over"] += 1
            case "abort" | "pause again":
                mode: Any = "abort" if fault.then == "abort" else "finish"
                for each in self.roots if root == EVERYTHING else [root]:
                    await self.verb(other, lambda engine: engine.session(each).pause(mode=mode))  # noqa: B023  # called at once

    async def withdraw(self, fault: Fault, root: str, engine: Engine) -> None:
        if root == EVERYTHING:
            self.world.paused.clear()
            await self.verb(engine, lambda engine: engine.lift_pause(by="ann"))
            self.report.counts["lifts"] += 1
        else:
            await self.resume(root, engine, here=fault.here)
            self.report.counts["resumes"] += 1

    # the verdict

    async def check(self) -> None:
        """Compare the store and the world with the reference interpreter."""
        engine, world = await self.engine(), self.world
        if isinstance(engine.store, WitnessedStore):
            engine.store.spare()
        found, spent = await self.found(engine)
        expected = self.trial.expected()
        for name in ("states", "operations"):
            want: Counter[Any] = sum((getattr(each, name) for each in expected), Counter())
            self.compare(name, want, getattr(found, name))
        cents = [each.cents for each in expected]
        if spent != cents:
            self.report.wrong.append(f"spent {spent} cents instead of {cents}")
        self.report.wrong += [f"ran again although it was committed: {key}" for key in world.doubled]
        self.report.wrong += [f"began while it was paused: {what}" for what in world.intruders]
        if self.trial.gentle:
            self.check_boxes(expected)
        report = await engine.verify()
        self.report.wrong += [f"damaged: {problem}" for problem in report.problems]
        counts = self.report.counts
        counts["programs"] += 1
        counts["sessions"] += sum(found.states.values())
        counts["operations"] += sum(found.operations.values())
        counts["held in place"] += world.held
        counts["begun after a steal"] += world.zombies
        counts["doubled"] += len(world.doubled)
        counts["begun while paused"] += len(world.intruders)

    def compare(self, name: str, expected: Counter[Any], found: Counter[Any]) -> None:
        missing, extra = expected - found, found - expected
        if missing or extra:
            self.report.wrong.append(f"{name}: expected {_some(missing)}, found {_some(extra)}")

    async def found(self, engine: Engine) -> tuple[Expected, list[int]]:
        """Return the states and operations that the store has, and the cents that each root has spent."""
        found, spent = Expected(), dict.fromkeys(self.roots, 0)
        stored: Counter[tuple[int, str, int, str]] = Counter()
        for row in await engine.store.find(Filter()):
            state: Any = await engine.session(row.session_id).state()
            found.states[state.path, state.total, tuple(state.log)] += 1
            if row.session_id in spent:
                spent[row.session_id] = row.spent_usd // 10_000
            if row.status is not Status.COMPLETED:
                self.report.wrong.append(f"{row.session_id} is {row.status}: {row.failure}")
            for record in await engine.store.records(row.key, 1):
                body = body_of(record)
                if isinstance(body, OperationBody):
                    stored[row.key, record.step, record.visit, body.id] += 1
                    if not body.total:
                        place = (state.path, record.step, record.visit)
                        found.operations[place, body.name, _number(body)] += 1
                elif isinstance(body, EventBody) and body.type == "session.resumed":
                    self.report.counts["continued in place"] += b'"in_place":true' in bytes(body.data)
        lost = self.world.committed - stored
        self.report.counts["lost"] += lost.total()
        if lost:
            self.report.wrong.append(f"committed, and no longer in the store: {_some(lost)}")
        twice = Counter({key: count for key, count in stored.items() if count > 1})
        self.report.counts["doubled"] += len(twice)
        if twice:
            self.report.wrong.append(f"committed twice: {_some(twice)}")
        return found, list(spent.values())

    def check_boxes(self, expected: list[Expected]) -> None:
        """Check that each resource was opened once, and saw all its operations, in steps that never start again."""
        programs = {f"s{number}": program for number, program in enumerate(self.trial.roots)}
        steady = {
            (path, f"step{index}")
            for path, program in programs.items()
            for index, spec in enumerate(program.steps)
            if not (may_fail(spec.body) or waits(spec.body))
        }
        want: Counter[Any] = sum((each.boxes for each in expected), Counter())
        kept = [
            Counter({key: n for key, n in some.items() if key[0][:2] in steady}) for some in (want, self.world.boxes)
        ]
        self.report.counts["boxes"] += kept[0].total()
        self.compare("boxes", *kept)


def _number(body: OperationBody) -> int | None:
    value = msgspec.json.decode(body.value.data) if isinstance(body.value, Inline) else None
    return value if isinstance(value, int) else None


def _brief(rows: list[SessionRow]) -> str:
    names = ("session_id", "status", "step", "visit", "waiting", "wakes_at", "due", "live", "kept_by", "mail")
    return "; ".join(", ".join(f"{name} {getattr(row, name)}" for name in names) for row in rows)


def _some(counter: Counter[Any]) -> str:
    found = [f"{key} x {count}" if count > 1 else f"{key}" for key, count in sorted(counter.items(), key=str)]
    return ", ".join(found[:6]) + (f" and {len(found) - 6} more" if len(found) > 6 else "") or "nothing"


def run(trial: Trial, seed: str = "", patience: float = PATIENCE) -> Report:
    """Run a trial in a store of its own, and return what happened. A trial that raises or hangs is wrong."""
    with scratch() as folder:
        conductor = Conductor(trial, folder / "store.db", seed, patience)
        try:
            asyncio.run(asyncio.wait_for(conductor.run(), 1.5 * patience))
        except Exception as error:
            conductor.report.wrong.append(f"{type(error).__name__}: {error}")
        return conductor.report
