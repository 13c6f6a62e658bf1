"""Drives one held session: runs its steps, commits what they leave, parks it when it has to stop.

What comes next is decided in `pausepoint.log.replay`, what is durable goes through
`pausepoint.log.ledger`. The step's code runs inside the driver's own task; leaving a step means
cancelling that task once, at an await of the step, and taking the cancellation back.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pausepoint.artifacts.publisher import Desk
from pausepoint.clock import Clock, to_datetime
from pausepoint.codec.values import Limits
from pausepoint.definition.retry import inside_of
from pausepoint.definition.workflow import BoundStep, Check, Workflow
from pausepoint.errors import (
    HoldLost,
    LentValueChanged,
    OversizedValue,
    StateRefused,
    StepError,
    StepTimeout,
    StoreError,
    Unanswered,
    WriteRefused,
    said,
)
from pausepoint.log.replay import CheckpointBody, EventBody, OperationBody, Settled, WaitBody, settle
from pausepoint.log.state import Blob, Blobs, Change, Inline
from pausepoint.model.ids import SessionId
from pausepoint.model.pauses import Paused
from pausepoint.model.questions import Inquiry, QuestionRow
from pausepoint.model.records import RecordKind, SignalRecord
from pausepoint.model.sessions import Ended, Failure, Flags, PauseKind, SessionRow
from pausepoint.runtime.context import BlockingContext, Context
from pausepoint.runtime.hold import Holding, end_parked
from pausepoint.runtime.visit import Family, Visit
from pausepoint.stores.base import Store
from pausepoint.threads import in_thread

Interrupt = Literal["leave", "abort", "timeout"]


class Left(Exception):
    """The step was left before it ended."""


class Drive(Holding):
    """One session while this engine holds it. Also the `Host` of its visits."""

    __slots__ = (
        "cancels", "changed", "demand", "desk", "events", "family", "in_code", "in_step", "interrupt", "nudge", "task",
        "visit",
    )  # fmt: skip

    visits = Visit  # the testing package runs others

    def __init__(
        self,
        store: Store,
        workflow: Workflow[Any],
        row: SessionRow,
        clock: Clock,
        limits: Limits,
        family: Family,
        changed: Callable[[str], None] = lambda session_id: None,
    ) -> None:
        super().__init__(store, workflow, row, clock, limits)
        self.family = family
        self.changed = changed
        self.events = workflow.events
        self.demand: Paused | None = None
        self.desk: Desk | None = None  # of a session that leaves artifacts
        self.visit: Visit | None = None
        self.interrupt: Interrupt | None = None
        self.cancels = 0
        self.in_step = False
        self.in_code = False  # what is raised comes from the step's own code
        self.task: asyncio.Task[None] | None = None
        self.nudge = asyncio.Event()

    # requests from outside

    @property
    def wanted(self) -> bool:
        """Somebody wants the session to stop at its next safe point."""
        return bool(self.flags.pause_requested or self.flags.cancel_requested or self.stop_reason)

    @property
    def stopping(self) -> bool:
        """The program ends: no new operation may start."""
        return bool(self.stop_reason)

    def notice(self, fence: int, flags: Flags) -> None:
        """Take note of what the watcher saw."""
        if self.ledger.parking:
            return  # it gives the hold back, and the session may be held by another drive already
        if fence != self.row.fence:
            self.ledger.breaks(_overtaken(self.session_id))
            self._interrupt("abort")
            return
        self._take(flags)

    def _committed(self, flags: Flags) -> None:
        if flags is not self.flags or flags.mail:
            self._take(flags)
        self.changed(self.session_id)

    def _take(self, flags: Flags) -> None:
        if flags.mail and self.visit is not None:
            self.visit.look_again()
        if flags == self.flags:
            self.flags = flags  # the store hands out the same ones again: from now on a glance is enough
            return
        if self.flags.pause_requested and not flags.pause_requested:
            self._goes_on_after_all()
        self.flags = flags
        self.nudge.set()
        if flags.pause_requested and flags.pause_mode == "abort":
            self._interrupt("abort")
        elif self.visit is not None:
            self.visit.reconsider()

    def stop(self, reason: str, now: bool = False) -> None:
        """End after the current operation (or at once) and leave the session ready."""
        self.stop_reason = self.stop_reason or reason
        self.nudge.set()
        if now:
            self._interrupt("abort")
        elif self.visit is not None:
            self.visit.settle()
        else:
            self._interrupt("leave")

    def leave(self, waits: bool = False) -> None:
        """Nothing is in flight. ``waits``: all that there is waits, so it is known what makes the session go on."""
        visit = self.visit
        self.parks = visit.waits_for() if visit is not None and waits else None
        self.awaited = frozenset(wait.child for wait in visit.waits.values()) if visit is not None else frozenset()
        self.asked = frozenset(wait.question for wait in visit.waits.values()) if visit is not None else frozenset()
        self._interrupt("leave")

    def demand_pause(self, kind: PauseKind, reason: str) -> None:
        """Once the step is left, pause the session with this reason."""
        self.demand = self.demand or Paused(kind, reason)

    def _interrupt(self, why: Interrupt) -> None:
        # A step may swallow a cancellation; only "abort" insists.
        if self.in_step and self.task is not None and (self.interrupt is None or why == "abort"):
            self.interrupt = self.interrupt or why
            self.cancels += 1
            if self.visit is not None:
                self.visit.close()
            self.task.cancel()

    # the run

    async def run(self) -> None:
        """Drive the session until it parks. What went wrong with the driving itself is in ``broken``."""
        self.task = asyncio.current_task()
        with self.ledger.watch.session(self.workflow.version, self.resumed):
            await self._drive()

    async def _drive(self) -> None:
        try:
            await self._run()
            if self.flags.cancel_requested:
                await end_parked(self.store, self.clock, self.session_id)  # it may have failed, or met a budget
        except (StoreError, HoldLost) as error:
            self.ledger.breaks(error)
        except asyncio.CancelledError:
            await self._let_go("the event loop ended")
            raise
        except BaseException as error:
            await self._let_go(f"{type(error).__name__}: {said(error)}")
            self.ledger.breaks(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self.changed(self.session_id)

    async def _run(self) -> None:
        if self.taken_up:
            await self._take_up()
        else:
            await self._look()
        if self.line.trail is not None:
            self.desk = Desk(self, self.line.trail, self.ledger)
            await self.desk.take_up()
        while self._goes_on() or not await self._parked():
            if self.line.leaving:
                await self._leave_again()
                continue
            assert self.line.step is not None
            await self._run_visit(self.workflow.step(self.line.step))

    # one visit

    async def _run_visit(self, step: BoundStep) -> None:
        attempt = self.line.attempts + 1
        self.parks = None
        while True:
            self.in_code = False
            try:
                if self.desk is not None and await self._is_kept(step, self.desk):
                    return
                if step.when is not None and not await self._holds(step.when):
                    await self._skip(step, f"{step.when.name} said no")
                    return
                started = self.clock.monotonic()
                blobs: Blobs = []
                watch, running = self.ledger.watch, self._attempt(step, attempt, blobs)
                watch.enters(step.name, self.line.visit, attempt)
                known = len(self.line.operations)
                changes = await (running if watch.tracer is None else watch.visit(running, known, (Left, Paused)))
                if self.desk is not None:
                    await self.desk.stage(step, changes, blobs)
            except Left:
                return
            except Paused as paused:
                await self.ledger.park(paused)
                return
            except Exception as error:
                if isinstance(error, StoreError | HoldLost) and (self.broken is not None or not self.in_code):
                    raise  # of our own store; one that the step's code raised is of another engine that it uses
                if self.broken is not None or await self._unanswered(error):
                    return
                if not await self._retry(step, attempt, error):
                    return
                attempt += 1
                continue
            took = int((self.clock.monotonic() - started) * 1e6)
            await self._checkpoint(step, changes, blobs, took=took, attempts=attempt)
            return

    async def _skip(self, step: BoundStep, why: str) -> None:
        if self.desk is not None:
            self.desk.skips(step)
        await self._checkpoint(step, (), [], skipped=why)

    async def _is_kept(self, step: BoundStep, desk: Desk) -> bool:
        """Whether the step ran before and what it read has not changed: then its checkpoint is written once more."""
        kept = desk.kept(step.name)
        if kept is None:
            return False
        desk.keeps(step, kept)
        await self._checkpoint(step, kept.changes, [], skipped="kept: what it read is as it was", took=kept.left.took)
        visits, took, usd = self.kept
        self.kept = visits + 1, took + kept.left.took, usd + kept.left.usd
        return True

    async def _attempt(self, step: BoundStep, attempt: int, blobs: Blobs) -> tuple[Change, ...]:
        if self.budgeted is not False and (reason := await self.over_budget()):
            raise Paused("budget", reason)
        if self.lending.far(step):
            await self.lending.prefetch(step)
        try:
            lent = self.lending.lend(step)
        except StateRefused as error:
            raise Paused("definition", f"{step.name} cannot read the stored state: {error}") from error
        values = lent.values
        if step.session_id is not None:
            values[step.session_id] = SessionId(self.session_id)
        if step.context is None:
            value = await self._call(step, values)
        else:
            value = await self._call_with_context(step, attempt, values, step.context)
        if lent.mutable or lent.whole is not None:
            self.lending.check_unchanged(step, lent)
        try:
            changes = self.lending.accept(step, value, blobs)
            return await self.lending.accept_whole(changes, blobs) if self.workflow.shape.needs_whole else changes
        except OversizedValue as error:
            raise Paused("oversized", f"{step.name}: {error}") from error
        except WriteRefused as error:
            id = f"refused:{self.fence}.{attempt}"
            self.ledger.effect(id, "write.refused", str(error), {"field": error.field}, step.agent)
            raise

    async def _holds(self, when: Check) -> bool:
        if self.lending.far(when):
            await self.lending.prefetch(when)
        return bool(self.lending.evaluate(when))

    async def _call_with_context(self, step: BoundStep, attempt: int, values: dict[str, Any], parameter: str) -> Any:
        self.visit = visit = self.visits(self, step, self.line.visit, attempt)
        values[parameter] = Context(visit, visit.root) if step.is_async else BlockingContext(visit, visit.root)
        try:
            value = await self._call(step, values)
            if visit.misses:
                visit.note_misses()
            return value
        finally:
            visit.close()
            self.visit = None

    async def _call(self, step: BoundStep, values: dict[str, Any]) -> Any:
        """Run the step's code. Raises what `_left` says if it was interrupted before it had ended."""
        timer = None
        if step.timeout is not None:
            timer = asyncio.get_running_loop().call_later(step.timeout, self._interrupt, "timeout")
        self.in_step = self.in_code = True
        try:
            value = await (step.fn(**values) if step.is_async else in_thread(step.fn, **values))
        except (Exception, asyncio.CancelledError) as error:
            self.in_step = False
            why, _ = await self._take_back_interrupt()
            if why is not None:
                raise self._left(step, why) from None
            if isinstance(error, asyncio.CancelledError) and not _being_cancelled(self.task):
                raise StepError(f"{step.name} cancelled itself") from error
            raise
        finally:
            self.in_step = False
            if timer is not None:
                timer.cancel()
        self.in_code = False
        if self.interrupt is not None:
            why, unseen = await self._take_back_interrupt()
            if why is not None and not unseen:
                raise self._left(step, why)
        return value

    async def _take_back_interrupt(self) -> tuple[Interrupt | None, bool]:
        """Why the step was interrupted, if it was, and whether it had ended before it could notice."""
        why, self.interrupt = self.interrupt, None
        if why is None:
            return None, False
        unseen = False
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            unseen = True
        cancels, self.cancels = self.cancels, 0
        left = [self.task.uncancel() for _ in range(cancels)] if self.task is not None else []
        if left and left[-1]:
            raise asyncio.CancelledError  # somebody else wants this task to end as well
        return why, unseen

    def _left(self, step: BoundStep, why: Interrupt) -> Exception:
        if why == "timeout":
            return StepTimeout(f"{step.name} took longer than its time-out of {step.timeout:g} s")
        demand, self.demand = self.demand, None
        return Left() if demand is None or why == "abort" else demand

    async def _unanswered(self, error: Exception) -> bool:
        """Pause if all that went wrong is that nobody answered; a resume asks anew."""
        found = list(inside_of(error)) or [error]
        if not all(isinstance(each, Unanswered) for each in found):
            return False
        forgets = tuple(id for id, each in self.line.operations.items() if each.outcome in ("expired", "rounds"))
        await self.ledger.park(Paused("question", said(found[0])), forgets=forgets)
        return True

    async def _retry(self, step: BoundStep, attempt: int, error: Exception) -> bool:
        """Wait before the next attempt, or fail the session. False if there is no next attempt in this run."""
        now = to_datetime(self.clock.now())
        delay = step.retry.delay(attempt, error, random.random, now)
        if delay is None or isinstance(error, WriteRefused | LentValueChanged):
            await self.ledger.fail(_failure(step.name, error, attempt))
            return False
        text = said(error)
        summary = f"{step.name}: attempt {attempt} failed, {type(error).__name__}: {text}; again in {delay:.1f} s"
        data = {"attempt": attempt, "delay": delay, "error": text}
        await self.ledger.note("step.retried", summary, data, agent=step.agent, attempts=attempt)
        await self._rest(delay)
        return not self.wanted

    async def _rest(self, seconds: float) -> None:
        """Wait, unless somebody wants the session to stop."""
        sleep = asyncio.ensure_future(self.clock.sleep(seconds))
        try:
            while not self.wanted and not sleep.done():
                self.nudge.clear()
                nudged = asyncio.ensure_future(self.nudge.wait())
                await asyncio.wait([sleep, nudged], return_when=asyncio.FIRST_COMPLETED)
                nudged.cancel()
        finally:
            sleep.cancel()

    # leaving a step

    async def _checkpoint(
        self, step: BoundStep, changes: tuple[Change, ...], blobs: Blobs,
        *, skipped: str = "", took: int = 0, attempts: int = 1,
    ) -> None:  # fmt: skip
        """One visit is over: commit what it changed together with where the session goes next."""
        number = self.line.visit
        if blobs:
            self.line.state.provide(dict(blobs))
        for change in changes:
            self.line.state.apply(change)
        settled, failure = self._straight(step.name) or await self._settle(step.name, attempts)
        body = CheckpointBody(
            settled.next, changes, bool(settled.refused or failure), skipped, settled.refused, failure, took, attempts,
            "" if step.agent == step.name else step.agent,
            self.ledger.take_effects() if self.ledger.pending else (), self.workflow.version,
        )  # fmt: skip
        self.ledger.progress = None
        facts = self._end_facts(settled, failure) if settled.next is None else {}
        if (self.line.waits or self.line.operations) and self.line.asks:
            facts["settles"] = True
        await self.ledger.commit("checkpoint", step.name, number, body, blobs, True, **facts)
        if self.line.state.loaded:
            self.line.state.forget()
        if self.desk is not None:
            await self.desk.publish(step.name)
        if step.name == self.until and self._goes_on():
            await self._stand_after(step.name)

    def _end_facts(self, settled: Settled, failure: Failure | None) -> dict[str, Any]:
        """The session does not go on: it is done, failed, or held back by a guard."""
        if settled.refused:
            return {"open_pauses": (self.ledger.new_pause("guard", settled.refused),), "release": True}
        ended: Ended = "completed" if failure is None else "failed"
        return {"ended": ended, "failure": failure, "release": True}

    def _straight(self, step: str) -> tuple[Settled, None] | None:
        """Most steps have neither guard nor route behind them."""
        if step in self.workflow.routes or step in self.workflow.guards:
            return None
        return Settled(self.workflow.following(step)), None

    async def _settle(self, step: str, attempts: int = 1) -> tuple[Settled, Failure | None]:
        try:
            for check in self.workflow.checks(step) if self.line.state.deep else ():
                if self.lending.far(check):
                    await self.lending.prefetch(check)
            return settle(self.workflow, step, self.lending.evaluate), None
        except StoreError:
            raise
        except Paused as paused:
            return Settled(None, paused.reason), None
        except Exception as error:
            return Settled(None), _failure(step, error, attempts)

    async def _leave_again(self) -> None:
        """A guard held the session back, or its route failed: ask again."""
        step = self.line.step
        assert step is not None
        settled, failure = await self._settle(step)
        guards = [pause for pause in await self.store.pauses(self.row.key) if pause.kind == "guard"]
        if failure is not None:
            await self.ledger.fail(failure)
        elif settled.refused:
            await self.ledger.park(Paused("guard", settled.refused), guards)
        else:
            end = settled.next is None
            agent = self.workflow.step(step).agent
            body = EventBody("guard.passed", f"{step} may be left", agent, moved=True, next=settled.next)
            await self.ledger.commit(
                "event", step, self.line.visit, body, ended="completed" if end else None, release=end,
                close_pauses=tuple(pause.id for pause in guards),
            )  # fmt: skip

    # for the visits

    async def remember(self, body: OperationBody | WaitBody, blobs: Blobs, **facts: Any) -> None:
        """Commit an operation or a wait. A store that refuses ends the step, whatever its code does with the error."""
        assert self.line.step is not None
        kind: RecordKind = "wait" if isinstance(body, WaitBody) else "operation"
        try:
            await self.ledger.commit(kind, self.line.step, self.line.visit, body, blobs, **facts)
        except Exception:
            self._interrupt("abort")
            raise

    async def mail(
        self, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        """The signals that nobody has taken in yet."""
        return await self.store.mail(self.row.key, limit, kind, about)

    async def note(self, type: str, summary: str, data: Mapping[str, Any], **facts: Any) -> bool:
        """Commit an event."""
        return await self.ledger.note(type, summary, data, **facts)

    async def question(self, id: str) -> QuestionRow | None:
        """How a question of this session stands; None if it is not there."""
        found = await self.store.questions(Inquiry(ids=(id,)))
        return found[0] if found and found[0].session_id == self.session_id else None

    async def take_mail(self, signal: SignalRecord, type: str, summary: str, noticed: str) -> None:
        """Take a signal in without an operation; an event says why. ``noticed``: the child whose failure it tells."""
        await self.ledger.note(type, summary, {"n": signal.n}, consume=(signal.n,), noticed=noticed)

    async def fetch(self, value: Inline | Blob) -> bytes:
        """The bytes of a remembered value."""
        if isinstance(value, Inline):
            return bytes(value.data)
        key = bytes.fromhex(value.hash)
        return (await self.store.blobs([key]))[key]

    def show_progress(self, done: int, total: int) -> None:
        """Seen live; stored with the next record."""
        self.ledger.progress = (done, total)
        self.changed(self.session_id)


def _being_cancelled(task: asyncio.Task[None] | None) -> bool:
    return task is not None and task.cancelling() > 0


def _overtaken(session_id: str) -> HoldLost:
    return HoldLost(
        f"another engine took over session {session_id!r}; nothing of this one's was written since",
        session_id=session_id,
    )


def _failure(step: str, error: Exception, attempts: int) -> Failure:
    try:
        trace = "".join(traceback.format_exception(error))[-8_000:].encode("utf-8", "backslashreplace").decode()
    except Exception:  # an error whose own text cannot be read
        trace = ""
    return Failure(step, type(error).__name__, said(error) or type(error).__name__, attempts, trace)
