"""Drives one held session: runs its steps, commits their results, and parks the session when it has to stop.

`pausepoint.log.replay` decides which step comes next, and `pausepoint.log.ledger` writes all durable records. The
step's code runs inside the drive's own task. To make a step exit, the drive cancels that task once, at an await of the
step, and then takes the cancellation back.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import random
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Unpack

from pausepoint.artifacts.publisher import Publisher, disk_trouble
from pausepoint.clock import Clock, to_datetime
from pausepoint.codec.values import Limits
from pausepoint.definition.retry import inside_of
from pausepoint.definition.workflow import BoundStep, Check, Workflow
from pausepoint.errors import (
    FolderRefused,
    HoldLost,
    LentValueChanged,
    OversizedValue,
    StateRefused,
    StepError,
    StoreError,
    Unanswered,
    WriteRefused,
    error_text,
)
from pausepoint.log.decisions import Settled, settle
from pausepoint.log.replay import CheckpointBody, EventBody, OperationBody, WaitBody
from pausepoint.log.state import Blob, Blobs, Change, Inline
from pausepoint.log.telemetry import log_line
from pausepoint.model.chunks import Part
from pausepoint.model.commits import Facts
from pausepoint.model.ids import SessionId
from pausepoint.model.pauses import Paused
from pausepoint.model.questions import Inquiry, QuestionRow
from pausepoint.model.records import RecordKind, SignalRecord
from pausepoint.model.sessions import Ended, Failure, SessionRow
from pausepoint.name import variable
from pausepoint.runtime.blocking import BlockingContext
from pausepoint.runtime.children import Children
from pausepoint.runtime.context import Context
from pausepoint.runtime.hold import Held, OnStep
from pausepoint.runtime.inside import StepPlace, enter, place
from pausepoint.runtime.interrupts import Exited, Interrupter
from pausepoint.runtime.keep import Keeper
from pausepoint.runtime.park import Parking, end_parked
from pausepoint.runtime.pickup import begin_resumed
from pausepoint.runtime.requests import Requests
from pausepoint.runtime.streams import Sender, Streams
from pausepoint.runtime.visit import Frame, Visit
from pausepoint.stores.base import Store
from pausepoint.threads import in_thread, waiting_thread

_PACKAGE = Path(__file__).parents[1]
_ROOMS = ("codec", "definition", "engine", "log", "runtime", "stores", "threads.py")

OURS = (*(str(_PACKAGE / room) for room in _ROOMS), str(Path(concurrent.futures.__file__).parent))
"""Where the frames are that a traceback leaves out: they are the same every time."""


class Drive(Held):
    """One session while this engine holds it. It is also the ``host`` of its visits.

    Its parts share the facts of the session, as `Held`, and each may use those that are made before it.
    """

    __slots__ = (
        "children", "events", "in_code", "interrupter", "keeper", "parking", "publisher", "requests", "sender",
        "streams",
    )  # fmt: skip

    visits = Visit  # the testing package replaces these classes
    keepers = Keeper

    def __init__(
        self, store: Store, workflow: Workflow[Any], row: SessionRow, clock: Clock, limits: Limits, children: Children,
        changed: Callable[[str], None] = lambda session_id: None,
    ) -> None:  # fmt: skip
        super().__init__(store, workflow, row, clock, limits, changed)
        self.interrupter = Interrupter(self)
        self.requests = Requests(self, self.interrupter)
        self.parking = Parking(self, self.requests)
        self.keeper = self.keepers(self, self.interrupter, self.requests, self.parking)
        self.children = children
        self.events = workflow.events
        self.streams: Streams | None = None  # of live output; a rehearsal sends none
        self.sender: Sender | None = None
        self.publisher: Publisher | None = None  # only if the workflow publishes artifacts
        self.in_code = False  # whether an exception raised now comes from the step's own code

    @property
    def code_task(self) -> asyncio.Task[Any] | None:
        """The task that runs the step's own code."""
        return self.interrupter.task

    # the run

    async def run(self) -> None:
        """Drive the session until it parks. ``broken`` is set if the drive itself fails."""
        self.interrupter.task = asyncio.current_task()
        enter(None)  # a step may have started this session
        waiting_thread.set(None)
        with self.ledger.watch.session(self.workflow.version, self.resumed):
            await self._drive()

    async def _drive(self) -> None:
        try:
            await self._run()
            if self.flags.cancel_requested:
                await end_parked(self.store, self.clock, self.session_id)  # it may have failed or reached its budget
        except (StoreError, HoldLost) as error:
            self.ledger.breaks(error)
            if isinstance(error, HoldLost):
                # A replica that was promoted may lack records, and still name this engine as the holder.
                with suppress(StoreError):
                    await self.store.release(self.row.key, self.row.fence)
        except asyncio.CancelledError:
            await self.parking.release_after_error("the event loop ended")
            raise
        except BaseException as error:
            await self.parking.release_after_error(f"{type(error).__name__}: {error_text(error)}")
            self.ledger.breaks(error)
            if not isinstance(error, Exception):
                raise
        finally:
            for task in (self.requests.confirming, self.keeping):
                if task is not None:
                    task.cancel()
            if self.sender is not None:
                self.sender.close()
            if self.streams is not None:
                self.streams.notify(self.row.key)  # followers look at the session's status then
            self.changed(self.session_id)

    async def _run(self) -> None:
        if not self.picked_up or not await begin_resumed(self):
            await self.requests.read()
        if self.line.trail is not None:
            self.publisher = Publisher(self, self.line.trail, self.ledger)
            await self._repair(self.publisher)
        while self.may_continue() or not await self.parking.parked():
            if self.line.held_by_guard:
                await self._settle_again()
                continue
            assert self.line.step is not None
            await self._run_visit(self.workflow.step(self.line.step))

    async def _repair(self, publisher: Publisher) -> None:
        try:
            await publisher.repair()
        except FolderRefused as error:
            if not error.errno or self.ledger.parked:
                raise
            await self.ledger.park(disk_trouble(error))

    # one visit

    async def _announce(self, on_step: OnStep, step: BoundStep) -> None:
        try:
            await on_step(SessionId(self.session_id), step.name, self.line.visit)
        except Exception as error:  # a failing callback must not fail the session
            log_line(logging.ERROR, f"the on_step callback failed: {error_text(error)}", self.session_id)

    async def _run_visit(self, step: BoundStep) -> None:
        attempt = self.line.attempts + 1
        self.parks = None
        self.keeper.kept_for = 0.0
        while True:
            self.in_code = False
            if self.requests.lease_is_short and not await self.requests.renewed():
                return
            try:
                if self.publisher is not None and await self._reuse(step, self.publisher):
                    return
                if step.when is not None and not await self._holds(step.when):
                    await self._skip(step, f"{step.when.name} is false")
                    return
                started = self.clock.monotonic()
                blobs: Blobs = []
                watch = self.ledger.watch
                watch.enters(step.name, self.line.visit, attempt)
                if self.on_step is not None:
                    await self._announce(self.on_step, step)
                running = self._attempt(step, attempt, blobs)
                if watch.tracer is not None:
                    running = watch.visit(running, len(self.line.operations), (Exited, Paused))
                changes = await running
                refused = await self._stage(step, changes, blobs) if self.publisher is not None else None
            except Exited:
                return
            except Paused as paused:
                await self.ledger.park(paused)
                return
            except Exception as error:
                if isinstance(error, StoreError | HoldLost) and (self.broken is not None or not self.in_code):
                    raise  # an error of our own store; the step's code may raise one of another engine it uses
                if self.broken is not None or await self._unanswered(error):
                    return
                if not await self._retry(step, attempt, error):
                    return
                attempt += 1
                continue
            took = int((self.clock.monotonic() - started - self.keeper.kept_for) * 1e6)
            if took < 0:  # the two clocks may differ by a little
                took = 0
            await self._checkpoint(step, changes, blobs, took=took, attempts=attempt, refused=refused)
            return

    async def _stage(self, step: BoundStep, changes: tuple[Change, ...], blobs: Blobs) -> FolderRefused | None:
        """Write the step's files. Return the error if the disk refuses them, which is not the step's failure."""
        assert self.publisher is not None
        return await self.publisher.stage(step, changes, blobs)

    async def _skip(self, step: BoundStep, why: str) -> None:
        if self.publisher is not None:
            self.publisher.skips(step)
        await self._checkpoint(step, (), [], skipped=why)

    async def _reuse(self, step: BoundStep, publisher: Publisher) -> bool:
        """Write the step's checkpoint again if it ran before and its inputs are unchanged. Return whether it did."""
        reused = publisher.reused(step.name)
        if reused is None:
            return False
        publisher.reuses(step, reused)
        await self._checkpoint(
            step, reused.changes, [], skipped="reused: its inputs are unchanged", took=reused.published.took
        )
        visits, took, usd = self.saved
        self.saved = visits + 1, took + reused.published.took, usd + reused.published.usd
        return True

    async def _attempt(self, step: BoundStep, attempt: int, blobs: Blobs) -> tuple[Change, ...]:
        if self.budgeted is not False and (reason := await self.over_budget()):
            raise Paused("budget", reason)
        if self.access.needs_prefetch(step):
            await self.access.prefetch(step)
        try:
            lent = self.access.lend(step)
        except StateRefused as error:
            why = f"step {step.name!r} cannot read the stored state: {str(error).rstrip('.')}"
            raise Paused("definition", f"{why}. Change the type back or write a migration, then resume.") from error
        values = lent.values
        if step.session_id is not None:
            values[step.session_id] = SessionId(self.session_id)
        if self.broken is not None or (self.requests.lease_is_short and not await self.requests.renewed()):
            raise Exited  # the lease ended during the reads above
        assert self.interrupter.task is not None
        inside = StepPlace(self._open_visit, step, attempt, self.interrupter.task)
        if step.context is not None:
            visit, root = inside.opened()
            values[step.context] = Context(visit, root) if step.is_async else BlockingContext(visit, root)
        elif attempt > 1 or (self.picked_up and self.sender is None):
            self._begin_live()  # the step may not ask for its context this time
        try:
            value = await self._call(step, values, inside)
        finally:
            inside.over = True
            if self.visit is not None:
                self.visit.end()
                self.visit = None
        if lent.mutable or lent.whole is not None:
            self.access.check_unchanged(step, lent)
        try:
            changes = self.access.changes_of(step, value, blobs)
            return await self.access.validated_whole(changes, blobs) if self.workflow.shape.needs_whole else changes
        except OversizedValue as error:
            raise Paused("oversized", f"step {step.name!r}: {error}") from error
        except WriteRefused as error:
            id = f"refused:{self.fence}.{attempt}"
            self.ledger.effect(id, "write.refused", str(error), {"field": error.field}, step.agent)
            raise

    async def _holds(self, when: Check) -> bool:
        if self.access.needs_prefetch(when):
            await self.access.prefetch(when)
        return bool(self.access.evaluate(when))

    def _open_visit(self, step: BoundStep, attempt: int) -> Visit:
        """Open a visit for the step's context parameter, or when the step's code asks for its context."""
        self.visit = self.visits(self, step, self.line.visit, attempt)
        self._begin_live()
        return self.visit

    def _begin_live(self) -> None:
        """Declare void the live output of earlier attempts and runs whose results are not remembered."""
        if self.streams is not None:
            self.sender = self.sender or self.streams.sender(self.row)
            self.sender.begin(self.line)

    async def _call(self, step: BoundStep, values: dict[str, Any], inside: StepPlace) -> Any:
        """Run the step's code at the place ``inside``. Raises what `Interrupter.exit_of` returns if it must exit."""
        if inside.task.cancelling():
            self.interrupter.forget_stale_cancels()
        if step.timeout is not None:
            self.interrupter.start_timer(step.timeout)
        self.interrupter.in_step = self.in_code = True
        enter(inside)
        try:
            value = await (step.fn(**values) if step.is_async else in_thread(step.fn, **values))
        except (Exception, asyncio.CancelledError) as error:
            self.interrupter.in_step = False
            cancelled = isinstance(error, asyncio.CancelledError)
            why, _ = await self.interrupter.take_back(cancelled)
            if why is None and cancelled and self.interrupter.is_cancelled:
                raise
            if not await self.keeper.step_may_end():
                raise Exited from None
            if why is not None:
                raise self.interrupter.exit_of(step, why) from None
            if cancelled:
                raise StepError(
                    f"Step {step.name!r} cancelled its own task. To make the step fail, raise an exception instead."
                ) from error
            raise
        finally:
            if place() is inside:  # not so if this coroutine is closed in another task
                enter(None)
            self.interrupter.in_step = False
            self.interrupter.stop_timer()
        self.in_code = False
        if self.keeping is not None and not await self.keeper.step_may_end():
            raise Exited
        if self.interrupter.why is not None:
            why, unseen = await self.interrupter.take_back()
            if why is not None and not unseen:
                raise self.interrupter.exit_of(step, why)
        if self.visit is not None:
            await _finish(self.visit)
        return value

    async def _unanswered(self, error: Exception) -> bool:
        """Pause the session if the only errors are unanswered questions; a resume asks them again."""
        found = list(inside_of(error)) or [error]
        if not all(isinstance(each, Unanswered) for each in found):
            return False
        forgets = tuple(id for id, each in self.line.operations.items() if each.outcome in ("expired", "rounds"))
        await self.ledger.park(Paused("question", error_text(found[0])), forgets=forgets)
        return True

    async def _retry(self, step: BoundStep, attempt: int, error: Exception) -> bool:
        """Wait before the next attempt, or fail the session. Return whether there is another attempt in this run."""
        now = to_datetime(self.clock.now())
        delay = step.retry.delay(attempt, error, random.random, now)
        if delay is None or isinstance(error, WriteRefused | LentValueChanged):
            await self.ledger.fail(_failure(step.name, error, attempt))
            return False
        text = error_text(error)
        summary = f"{step.name}: attempt {attempt} failed, {type(error).__name__}: {text}; retry in {delay:.1f} s"
        data = {"attempt": attempt, "delay": delay, "error": text}
        await self.ledger.note("step.retried", summary, data, agent=step.agent, attempts=attempt)
        await self._rest(delay)
        return not self.must_stop

    async def _rest(self, seconds: float) -> None:
        """Wait, but return early if the session must stop."""
        sleep = asyncio.ensure_future(self.clock.sleep(seconds))
        try:
            while not self.must_stop and not sleep.done():
                self.requests.nudge.clear()
                nudged = asyncio.ensure_future(self.requests.nudge.wait())
                try:
                    await asyncio.wait([sleep, nudged], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    nudged.cancel()
        finally:
            sleep.cancel()

    # the end of a step

    async def _checkpoint(
        self, step: BoundStep, changes: tuple[Change, ...], blobs: Blobs,
        *, skipped: str = "", took: int = 0, attempts: int = 1, refused: FolderRefused | None = None,
    ) -> None:  # fmt: skip
        """Commit a visit's changes together with the next step.

        ``refused``: the disk refused the step's files. The session then pauses, and ends only after they are published.
        """
        line, ledger = self.line, self.ledger
        number = line.visit
        if blobs:
            line.state.provide(dict(blobs))
        for change in changes:
            line.state.apply(change)
        settled, failure = self._straight(step.name) or await self._settle(step.name, attempts)
        stopped = bool(settled.refused or failure)
        ends_later = settled.next is None and refused is not None and not stopped
        body = CheckpointBody(
            settled.next, changes, stopped or ends_later, skipped, settled.refused, failure, took, attempts,
            "" if step.agent == step.name else step.agent,
            ledger.take_effects() if ledger.pending else (), self.workflow.version,
        )  # fmt: skip
        ledger.progress = None
        facts: Facts = self._end_facts(settled, failure) if settled.next is None and not ends_later else {}
        if (line.waits or line.operations) and line.asks:
            facts["settles"] = True
        await ledger.commit("checkpoint", step.name, number, body, blobs, True, **facts)
        if line.state.loaded:
            line.state.forget()
        if self.publisher is not None:
            await self._publish(self.publisher, step.name, refused)
        if step.name == self.pause_after and self.may_continue():
            await self.parking.pause_after(step.name)

    async def _publish(self, publisher: Publisher, step: str, refused: FolderRefused | None) -> None:
        """Publish the files of a committed checkpoint. If the disk refuses them, pause; a resume publishes them."""
        try:
            if refused is not None:
                raise refused
            await publisher.publish(step)
        except FolderRefused as error:
            if not error.errno:
                raise
            trouble = disk_trouble(error)
            if self.ledger.parked:  # the session has ended, or a guard holds it
                raise type(error)(
                    f"Step {step!r} of session {self.session_id!r} has finished, but its files are not published."
                    f" {trouble.reason}",
                    **(error.fields | {"session_id": self.session_id}),
                ) from error
            await self.ledger.park(trouble)

    def _end_facts(self, settled: Settled, failure: Failure | None) -> Facts:
        """Return the facts to commit when no step follows: the session completed, failed, or is held by a guard."""
        if settled.refused:
            return {"open_pauses": (self.ledger.new_pause("guard", settled.refused),), "release": True}
        ended: Ended = "completed" if failure is None else "failed"
        return {"ended": ended, "failure": failure, "release": True}

    def _straight(self, step: str) -> tuple[Settled, None] | None:
        """Return the next step directly if no guard or route follows this one, as after most steps."""
        if step in self.workflow.routes or step in self.workflow.guards:
            return None
        return Settled(self.workflow.following(step)), None

    async def _settle(self, step: str, attempts: int = 1) -> tuple[Settled, Failure | None]:
        try:
            for check in self.workflow.checks(step) if self.line.state.deep else ():
                if self.access.needs_prefetch(check):
                    await self.access.prefetch(check)
            return settle(self.workflow, step, self.access.evaluate), None
        except StoreError:
            raise
        except Paused as paused:
            return Settled(None, paused.reason), None
        except Exception as error:
            return Settled(None), _failure(step, error, attempts)

    async def _settle_again(self) -> None:
        """Evaluate the guards and the route of the finished step again, after a guard held it or the route failed."""
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
            body = EventBody("guard.passed", f"{step} passed its guards", agent, moved=True, next=settled.next)
            await self.ledger.commit(
                "event", step, self.line.visit, body, ended="completed" if end else None, release=end,
                close_pauses=tuple(pause.id for pause in guards),
            )  # fmt: skip

    # for the visits

    async def remember(self, body: OperationBody | WaitBody, blobs: Blobs, **facts: Unpack[Facts]) -> None:
        """Commit an operation or a wait. If the store fails, the step is aborted even if its code catches the error."""
        assert self.line.step is not None
        kind: RecordKind = "wait" if isinstance(body, WaitBody) else "operation"
        try:
            await self.ledger.commit(kind, self.line.step, self.line.visit, body, blobs, **facts)
        except Exception:
            self.interrupter.interrupt("abort")
            raise

    async def mail(
        self, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        """Return the signals that are not consumed yet."""
        return await self.store.mail(self.row.key, limit, kind, about)

    async def note(
        self, type: str, summary: str, data: Mapping[str, Any], *, agent: str = "", part: Part | None = None,
        **facts: Unpack[Facts],
    ) -> bool:  # fmt: skip
        """Commit an event."""
        return await self.ledger.note(type, summary, data, agent=agent, part=part, **facts)

    async def question(self, id: str) -> QuestionRow | None:
        """Return a question of this session, or None if there is none with this id."""
        found = await self.store.questions(Inquiry(ids=(id,)))
        return found[0] if found and found[0].session_id == self.session_id else None

    async def take_mail(self, signal: SignalRecord, type: str, summary: str, noticed: str) -> None:
        """Consume a signal without an operation and record an event. ``noticed`` is the child that it reports on."""
        await self.ledger.note(type, summary, {"n": signal.n}, consume=(signal.n,), noticed=noticed)

    async def fetch(self, value: Inline | Blob) -> bytes:
        """Return the bytes of a remembered value."""
        if isinstance(value, Inline):
            return bytes(value.data)
        key = bytes.fromhex(value.hash)
        return (await self.store.blobs([key]))[key]

    def send_live(self, visit: Visit, frame: Frame, chunk: str | bytes, kind: str) -> None:
        """Send a chunk of live output to all followers of the session. May be called in any thread."""
        if self.sender is not None:
            self.sender.send(visit, frame, chunk, kind)

    def void_live(self, scope: str) -> None:
        """Declare void what an attempt at the operation ``scope`` has sent, because the attempt has failed."""
        if self.sender is not None:
            self.sender.void(scope, self.line)

    def show_progress(self, done: int, total: int) -> None:
        """Show progress to followers now; it is stored with the next record."""
        self.ledger.progress = (done, total)
        self.changed(self.session_id)


def _failure(step: str, error: Exception, attempts: int) -> Failure:
    try:
        trace = _trace(error)[-8_000:].encode("utf-8", "backslashreplace").decode()
    except Exception:  # the error's own __str__ may raise
        trace = ""
    return Failure(step, type(error).__name__, error_text(error) or type(error).__name__, attempts, trace)


def _trace(error: Exception) -> str:
    """Return the traceback of an error with the frames of the program only, or with all of them on request."""
    report = traceback.TracebackException.from_exception(error, compact=True)
    reports = [report] if os.environ.get(variable("TRACEBACK")) != "full" else []
    while reports:
        part = reports.pop()
        if frames := [frame for frame in part.stack if not frame.filename.startswith(OURS)]:
            part.stack = traceback.StackSummary.from_list(frames)
        reports += [each for each in (part.__cause__, part.__context__, *(part.exceptions or ())) if each is not None]
    return "".join(report.format())


async def _finish(visit: Visit) -> None:
    """Check at the end of a step what it did with its context, and commit the messages that it has received."""
    visit.calls.check_awaited()
    if visit.handover.open:
        await visit.settle_mail(None)
    if visit.misses.unclaimed:
        visit.misses.note_unused()
