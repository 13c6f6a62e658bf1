"""One visit of a step as it runs: its remembered operations, the operations in flight, and when the step may exit.

A step exits only when nothing is in flight. An operation that must not start, because a pause was requested or the
budget is used up, is *halted*: it waits for a future that only a withdrawn pause resolves. Once everything that runs is
halted, the drive cancels the step. This way a pause works the same inside `asyncio.gather` and `TaskGroup`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from pausepoint.clock import LONGEST_NAP
from pausepoint.codec.arguments import NOT_RECORDED, Arguments
from pausepoint.codec.values import Typed, fingerprint
from pausepoint.definition.binding import refused_event
from pausepoint.definition.functions import Callee, named
from pausepoint.definition.workflow import BoundStep
from pausepoint.errors import (
    ContextClosed,
    Declined,
    EventRefused,
    OversizedValue,
    StepError,
    ValueRefused,
)
from pausepoint.log.events import operation_name
from pausepoint.log.replay import OperationBody, WaitBody
from pausepoint.log.state import Blobs, stored
from pausepoint.model.budgets import is_count as is_count
from pausepoint.model.budgets import to_micro_usd as to_micro_usd
from pausepoint.model.commits import Facts
from pausepoint.model.events import COMMITTED
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import PauseKind
from pausepoint.runtime.branches import Arrivals, Branch, Rest, Waiting
from pausepoint.runtime.branches import Wait as Wait
from pausepoint.runtime.calls import Calls
from pausepoint.runtime.frames import Frame as Frame
from pausepoint.runtime.frames import Operation as Operation
from pausepoint.runtime.handover import Handover, Receipt
from pausepoint.runtime.misses import Misses, mismatch
from pausepoint.runtime.timeouts import Timeouts
from pausepoint.threads import replaced

if TYPE_CHECKING:
    from pausepoint.runtime.drive import Drive

T = TypeVar("T")

LINGER = 5
"""The number of loop turns before a visit that only waits exits. Another branch may be about to start something."""


class Visit:
    """One attempt at a visit; see the module's docstring."""

    def __init__(self, host: Drive, step: BoundStep, number: int, attempt: int) -> None:
        self.host = host
        self.step = step
        self.number = number
        self.attempt = attempt
        self.run = f"{host.fence}.{attempt}"
        self.agent = "" if step.agent == step.name else step.agent
        self.root = Frame("", None)
        self.seen: dict[str, int] = {}
        self.generations = 0  # how many attempts at operations were replaced by another
        self.paid: set[str] | None = None  # what attempts have spent; None: no attempt has failed
        self.active = 0
        self.halted: set[asyncio.Future[None]] = set()
        self.waits = Waiting()
        self.arrivals = Arrivals(self)
        self.early: bool | None = None  # whether answers have come before their questions. None: not looked up yet
        self.takes_apart = False  # a wait that is called now is meant for a race
        self.taken: set[int] = set()
        self.handover = Handover()
        self.barred: dict[str, Declined] = {}  # operations that a person has declined
        self.nudged: set[str] = set()
        self.alarm: asyncio.Task[None] | None = None
        self.rings_at = 0
        self.lingering = False
        self.resting: asyncio.TimerHandle | None = None
        self.moves = 0
        self.tasks: set[asyncio.Task[Any]] = set()
        self.callers: dict[asyncio.Task[Any], Frame] = {}  # the calls that threads make
        self.running: dict[str, Frame] = {}
        self.policy: tuple[object, object, Any] | None = None  # the last options of an operation, and what they mean
        self.refused = False
        self.exited = False
        self.loop = asyncio.get_running_loop()
        self.rest = Rest(self.loop.time())
        self.timeouts = Timeouts(self.loop, self.running)
        self.thread = threading.get_ident()
        self.misses = Misses(self)
        self.is_strict = (host.strict if step.strict is None else step.strict) and not host.accept_code
        self.pauses_inside = step.pause == "operation"
        self.calls = Calls(host.session_id, step.name, number)

    def close(self) -> None:
        """End the visit: later calls of the context raise an error, and tasks still running are cancelled."""
        self.exited = True
        if self.alarm is not None:
            self.alarm.cancel()
        self.timeouts.close()
        self._end_rest()
        for task in self.tasks:
            task.cancel()

    def end(self) -> None:
        """Close the visit when the step's code has ended. Branches that nobody awaits must not wait forever."""
        self.calls.leave(self.host.code_task, quietly=self.exited)
        self.close()
        for news in (*self.waits, *self.halted):
            news.cancel()

    # identity

    def identify(
        self, frame: Frame, callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any], key: object, within: str = ""
    ) -> Operation:
        """Return the identity of an operation, by which a replay finds it again. ``within``: a part of the frame."""
        scope = within or frame.scope
        arguments = Arguments(named(callee, args, kwargs))
        if key is not None:
            try:
                print_ = arguments.fingerprint(callee.given, args, kwargs).hex()[:24]
            except ValueRefused:
                print_ = ""
            return self.keyed(scope, callee.name, key, print_, arguments)
        if callee.name == "<lambda>":
            raise StepError(
                f"Step {self.step.name!r} passed a lambda, which has no name to be remembered by. Pass key=, or a named"
                " function."
            )
        try:
            print_ = arguments.fingerprint(callee.given, args, kwargs).hex()[:24]
        except ValueRefused as error:
            raise StepError(
                f"Step {self.step.name!r}: the arguments of {callee.name!r} cannot be encoded. Pass key= to name the"
                f" operation. Reason: {error}"
            ) from error
        return self.unkeyed(frame, scope, callee.name, print_, arguments)

    def keyed(self, scope: str, name: str, key: object, input: str, arguments: Arguments) -> Operation:
        """Return the identity of an operation with a key. ``input`` is the fingerprint of its arguments."""
        id = f"{scope}/{name}[{key_text(key)}]"
        return Operation(id, name, input, True, arguments=self._recorded(id, arguments))

    def unkeyed(self, frame: Frame, scope: str, name: str, input: str, arguments: Arguments) -> Operation:
        """Return the identity of an operation that its arguments identify. ``input`` is their fingerprint."""
        call = int(self.nth(frame, f"{scope}/{name}").rpartition("#")[2])
        id = self.nth(frame, f"{scope}/{name}~{input}")
        digests = "" if id in self.host.line.operations else arguments.digests
        recorded = self._recorded(id, arguments)
        return Operation(id, name, input, False, nth=call, digests=digests, arguments=recorded)

    def _recorded(self, id: str, arguments: Arguments) -> msgspec.Raw:
        """Return what the log keeps of the arguments of an operation, if it is not remembered."""
        is_new = self.step.arguments and id not in self.host.line.operations
        return arguments.stored() if is_new else NOT_RECORDED

    def nth(self, frame: Frame, base: str) -> str:
        """Return ``base`` with the number of times it has occurred in this attempt.

        Each further attempt at an operation counts from 1 again, so that it finds what the operations inside remember.
        A branch that an earlier attempt left running counts for itself.
        """
        if frame.branch is not None:
            base = f"{base}@{sha256(frame.branch().encode()).hexdigest()[:12]}"
        counted = base if not frame.generation else f"{base}!{frame.generation}"
        count = self.seen[counted] = self.seen.get(counted, 0) + 1
        return f"{base}#{count}"

    def idempotency_key(self, scope: str) -> str:
        """Return a key that is stable over retries, resumes and crashes, and unique per visit, operation and item."""
        text = f"{self.host.session_id}|{self.host.line.opened}|{scope}"
        return sha256(text.encode()).hexdigest()[:32]

    # operations

    def remembered(self, operation: Operation) -> OperationBody | None:
        """Return the operation with this identity that an earlier run of this visit finished, or None."""
        found = self.host.line.operations.get(operation.id)
        if found is not None:
            self.misses.unclaimed.discard(operation.id)
        return found

    async def admit(self, operation: Operation, frame: Frame, found: OperationBody | None) -> None:
        """Return if an operation may start or be reused; otherwise halt it or raise."""
        self._check_attempt(frame)
        frame.used = True
        if found is not None:
            if operation.keyed and found.input and operation.input and found.input != operation.input:
                await self.refuse(frame, "mismatch", mismatch(self.step.name, operation))
            return
        if self.handover.open:
            await self.settle_mail(frame)
        if self.host.requests.may_have_news():  # a pause, or another engine has taken the session over
            await self.uninterrupted(self.host.requests.look())
        await self._until_it_may_start(frame)
        while self.host.budgeted is not False:
            if reason := await self.uninterrupted(self.host.over_budget()):
                await self.refuse(frame, "budget", reason)
            if not await self._until_it_may_start(frame):  # a request may have arrived meanwhile
                break  # after a wait, the budget may be another one
        if (why := self.barred.get(operation.name)) is not None:
            raise why
        if self.misses.unclaimed:
            await self.misses.check(frame, (operation,))

    async def _until_it_may_start(self, frame: Frame) -> bool:
        """Wait while an operation must not start. Return whether it had to wait."""
        waited = False
        while (halts := self._may_not_start()) or self.host.requests.lease_is_short:
            await (self.halt(frame) if halts else self.leased())
            waited = True
        return waited

    async def leased(self) -> None:
        """Return if the engine is sure to have the session for a while. Otherwise wait, or let the step be aborted."""
        if self.host.requests.lease_is_short:
            await self.uninterrupted(self.host.requests.renewed())
            self.check_open()

    def _may_not_start(self) -> bool:
        host = self.host
        return host.stopping or (host.must_stop and (self.pauses_inside or host.keeps_step))

    @property
    def in_flight(self) -> list[str]:
        """The names of the operations in flight."""
        return [operation_name(scope) for scope in list(self.running)]

    async def keep(
        self, operation: Operation, result: Typed, value: Any, started: float | None, frame: Frame,
        outcome: str = "", **facts: Unpack[Facts],
    ) -> bytes:  # fmt: skip
        """Encode a result, commit it together with ``facts``, and return the encoded form."""
        try:
            data = result.encode(value, operation.name, self.host.limits)
        except OversizedValue as error:
            await self.refuse(frame, "oversized", f"step {self.step.name!r}: {error}")
            raise
        if self.handover.open:
            await self.settle_mail(None)  # messages received inside the operation
        self.check_open()  # first, because the pending effects may be those of a later step
        blobs: Blobs = []
        took = 0 if started is None else int((self.host.clock.monotonic() - started) * 1e6)
        body = OperationBody(
            operation.id,
            operation.name,
            stored(data, blobs),
            operation.input,
            took=took,
            agent=self.agent,
            effects=self.host.ledger.take_effects(),
            outcome=outcome,
            part=operation.part,
            nth=operation.nth,
            digests=operation.digests,
            arguments=operation.arguments,
        )
        await self.host.remember(body, blobs, **facts)
        return data

    # waits

    async def open_wait(self, body: WaitBody, **facts: Unpack[Facts]) -> None:
        """Commit the record of a wait before the wait begins."""
        if self.handover.open:
            await self.settle_mail(frame=None)
        self.check_open()
        effects = self.host.ledger.take_effects()
        body = msgspec.structs.replace(body, effects=effects) if effects else body
        await self.uninterrupted(self.host.remember(body, [], **facts))

    async def wait(self, frame: Frame, *waits: Wait) -> None:
        """Wait until one of the awaited things may have arrived. The caller then checks and may wait again."""
        if self.handover.open:
            await self.settle_mail(frame)
            return  # the caller checks again: what it waits for may have arrived meanwhile
        self.check_open()
        news: asyncio.Future[None] = self.loop.create_future()
        self.waits.add(news, waits)
        self._count_halted(frame, 1)
        self.arrivals.look()
        self._set_alarm()
        self.settle()
        try:
            with replaced():
                await news
        finally:
            self.waits.remove(news)
            self._count_halted(frame, -1)
            if self.waits and self.alarm is None and not self.exited:
                self._set_alarm()
        self._check_attempt(frame)

    def recheck_waits(self, child: str = "") -> None:
        """Wake all waiting branches, or those that wait for ``child``, to check whether their wait is over.

        Do nothing if the session must stop: a pause takes effect at the wait, and signals that arrived are kept.
        """
        if not self.host.must_stop:
            self.wake(self.waits.arrived([("child", child)]) if child else self.waits.everything_arrived())

    def wake(self, branches: Sequence[Branch]) -> None:
        """Make waiting branches check whether their wait is over."""
        for news in branches:
            self.waits.remove(news)  # it counts as running from now on, although its task has not woken up yet
            if not news.done():
                news.set_result(None)

    def waits_for(self) -> tuple[str | None, int | None]:
        """Return the kinds of things that branches wait for, and the earliest due time.

        The kind ``timer`` is included only together with ``answer`` or ``message``: these may be due too, and the two
        must be distinguishable.
        """
        kinds = {wait.kind for wait in self.waits.waits}
        if "answer" not in kinds and "message" not in kinds:
            kinds.discard("timer")
        return ",".join(sorted(kinds)) or None, self.waits.first_due()

    def _set_alarm(self) -> None:
        """Watch the earliest timer while other branches work, because the visit does not exit meanwhile."""
        due = self.waits.first_due() if self.active or self._holds() else None
        if due is None or (self.alarm is not None and self.rings_at <= due):
            return
        if self.alarm is not None:
            self.alarm.cancel()
        self.rings_at = due
        self.alarm = self.loop.create_task(self._ring())

    async def _ring(self) -> None:
        while (due := self.waits.first_due()) is not None:
            self.rings_at = due
            left = (due - self.host.clock.now()) / 1e6
            if left <= 0:
                break
            await self.host.clock.sleep(min(left, LONGEST_NAP))
        self.alarm = None
        if not self.host.must_stop:
            self.wake(self.waits.due(self.host.clock.now()))

    async def mail(
        self, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        """Return the signals that are not consumed yet; see `Store.mail`."""
        return await self.uninterrupted(self.host.mail(limit, kind, about))

    async def recall(self, found: OperationBody, result: Typed) -> Any:
        """Return the result of a remembered operation."""
        return result.decode(await self.uninterrupted(self.host.fetch(found.value)), found.name)

    async def take_mail(self, signal: SignalRecord, type: str, summary: str, noticed: str = "") -> None:
        """Consume a signal without an operation and record an event that says why."""
        self.check_open()
        await self.uninterrupted(self.host.take_mail(signal, type, summary, noticed))

    def hand_over(self, receipt: Receipt) -> None:
        """Queue the receipt of a message that goes to the step now. `settle_mail` commits it."""
        self.check_open()
        self.handover.add(receipt)

    async def settle_mail(self, frame: Frame | None) -> list[str]:
        """Commit the receipts of messages that the step has received. ``frame`` is the branch that has to wait."""
        self.check_open()
        return await self.uninterrupted(self.handover.commit(self.host.remember, self.host.ledger.take_effects))

    async def refuse_mail(self, signal: SignalRecord, reason: str) -> None:
        """Consume a message that cannot be read, and record that; the wait continues."""
        await self.take_mail(signal, "message.refused", reason)

    # effects

    def note_unused(self, id: str, summary: str, n: int) -> None:
        """Add an event to the next record: a wait has ended, and no code takes its result, which came with signal n."""
        self.host.ledger.effect(f"unused:{id}", "wait.unused", summary, {"id": id, "n": n}, self.step.agent)

    def emit(self, frame: Frame, type: str, summary: str, data: dict[str, Any]) -> None:
        """Add one of the workflow's own events to the next record."""
        self.check_open()
        if refused := refused_event(type, self.host.events):
            raise EventRefused(
                f"Step {self.step.name!r} emitted {type!r}, which {refused} Then resume the session:"
                " finished operations do not run again."
            )
        if not isinstance(summary, str):
            raise EventRefused(
                f"Step {self.step.name!r}: the summary of event {type!r} must be a string, not {summary!r}. Pass data"
                " as keywords."
            )
        # Identified by content, not by order, because branches may race.
        print_ = fingerprint(summary, data).hex()[:24]
        id = self.nth(frame, f"{frame.scope}/emit:{type}~{print_}")
        self.host.ledger.effect(id, type, summary, data, self.step.agent)

    async def commit(self) -> None:
        """Store the pending effects now, and the receipts of messages; see `Context.commit`."""
        self.check_open()
        stored = f"{len(self.host.ledger.pending)} events and costs"
        if self.handover.open:
            await self.settle_mail(None)
        await self.uninterrupted(self.host.note(COMMITTED, stored, {}))

    # halting

    def check_open(self) -> None:
        """Raise `ContextClosed` if the step has ended."""
        if self.exited:
            raise ContextClosed(
                f"Step {self.step.name!r} has ended, but its context is still in use. Await every task that uses ctx"
                " before returning from the step."
            )

    def _check_attempt(self, frame: Frame) -> None:
        """Raise `ContextClosed` if the attempt at an operation that the frame belongs to has failed.

        A branch of such an attempt may still run. It must not begin anything or take a message, because the next
        attempt does the same.
        """
        if self.generations and frame.is_closed:
            raise ContextClosed(
                f"Step {self.step.name!r}: an attempt at an operation has failed, but its context is still in use."
                " Await every task that uses ctx before the operation ends."
            )

    def enter(self, frame: Frame) -> None:
        """Count a frame as in flight."""
        self.check_open()
        self.active += 1
        self.moves += 1
        self.running[frame.scope] = frame
        if self.waits and self.alarm is None:
            self._set_alarm()

    def exit(self, frame: Frame) -> None:
        """Count a frame as no longer in flight."""
        if frame.closed:
            return  # its attempt timed out, and it was counted then
        self.active -= 1
        self.moves += 1
        self._forget(frame)
        self.settle()

    def _forget(self, frame: Frame) -> None:
        del self.running[frame.scope]
        if frame.ended is not None:
            frame.ended.set()

    def drop(self, frame: Frame) -> None:
        """Close the frame of an operation inside an attempt that timed out. It no longer counts as in flight."""
        self.active -= frame.halted == 0
        frame.closed = True
        self._forget(frame)

    def replace(self, frame: Frame) -> Frame:
        """Close the frame of an operation, and return the frame that is in flight instead."""
        self.generations += 1
        fresh = frame.successor(self.generations)
        self.active += frame.halted > 0
        frame.closed = True
        self.running[frame.scope] = fresh
        return fresh

    async def uninterrupted(self, work: Awaitable[T]) -> T:
        """Await work of the engine's own. The step does not exit meanwhile, although no operation is in flight."""
        self.active += 1
        self.moves += 1
        try:
            return await work
        finally:
            self.active -= 1
            self.moves += 1
            self.settle()

    async def refuse(self, frame: Frame, kind: PauseKind, reason: str) -> None:
        """Pause the session as soon as nothing is in flight."""
        self.refused = True
        self.host.interrupter.demand_pause(kind, reason)
        await self.halt(frame)

    async def halt(self, frame: Frame) -> None:
        """Wait here until the step exits, or until the request to stop is withdrawn."""
        self.check_open()
        released: asyncio.Future[None] = self.loop.create_future()
        self.halted.add(released)
        self._count_halted(frame, 1)
        self.settle()
        try:
            with replaced():
                await released
        finally:
            self.halted.discard(released)
            self._count_halted(frame, -1)
        self._check_attempt(frame)

    def _count_halted(self, frame: Frame, change: int) -> None:
        """Update which frames are in flight: those with nothing halted inside. The step's own body never counts."""
        inner: Frame | None = frame
        while inner is not None and inner.parent is not None:
            was = inner.halted > 0
            inner.halted += change
            if was != (inner.halted > 0) and not inner.closed:
                self.active += 1 if was else -1
                self.timeouts.go(inner) if was else self.timeouts.stop(inner)
            inner = inner.parent

    def settle(self) -> None:
        """Make the step exit if everything is halted, or if the engine shuts down and nothing is in flight.

        A visit that only waits exits a few loop turns later, because another branch may be about to start something. If
        that is halted, the step is kept in memory instead.
        """
        if self.exited or self.active:
            return
        if self.handover.open and (self.waits or self.halted):
            # Otherwise the step would exit, and the messages that it has received would wake it again.
            self.tasks.add(task := self.loop.create_task(self._settle_alone()))
            task.add_done_callback(self.tasks.discard)
        elif self._holds():
            self._set_alarm()
        elif self.waits and not self.halted:
            if self.resting is not None and self.host.must_stop:
                self._end_rest()
            if not self.lingering:
                self.lingering = True
                self.loop.call_soon(self._linger, LINGER, self.moves)
        elif self.waits or self.halted or self.host.stopping:
            self.host.keeper.exit_step()

    def _holds(self) -> bool:
        """Return whether a branch continues so soon that the step does not exit, unless the session must stop."""
        if self.halted or not self.waits or self.host.must_stop:
            return False
        return bool(self.waits.holding)

    async def _settle_alone(self) -> None:
        if self.handover.open and not self.exited:
            try:
                await self.settle_mail(None)
            except Exception as error:  # no code of the step waits for this
                self.host.requests.give_up(error)

    def _end_rest(self) -> None:
        if self.resting is not None:
            self.resting.cancel()
            self.resting, self.lingering = None, False

    def _linger(self, turns: int, moves: int) -> None:
        if turns and not self.exited:
            turns = turns - 1 if moves == self.moves else LINGER
            self.loop.call_soon(self._linger, turns, self.moves)
            return
        self.lingering, self.resting = False, None
        idle = not self.active and not self.halted and not self.handover.open and not self._holds()
        if self.waits and not self.exited and idle:
            seconds = 0.0 if self.host.must_stop else self.rest.next(self.loop.time(), len(self.waits), self.moves)
            if seconds:
                self.lingering = True
                self.resting = self.loop.call_later(seconds, self._linger, 0, self.moves)
                return
            # Under a pause it is unknown whether all branches wait; the next resume finds out.
            self.host.keeper.exit_step(waits=self.host.stopping or not self.host.must_stop)
        else:
            self.settle()

    def reconsider(self) -> None:
        """React to changed requests: exit if the session must stop, otherwise continue halted operations."""
        if self.host.must_stop or self.refused:
            if not self.host.stopping:
                # To be halted in place.
                self.wake(self.waits.holding)
            self.settle()
            return
        for released in self.halted:
            if not released.done():
                released.set_result(None)
        self.halted.clear()  # they count as running from now on, although their tasks have not woken up yet
        self.recheck_waits()  # child sessions that were paused as well must be resumed


def key_text(key: object) -> str:
    """Return a ``key=`` as part of an operation's identity."""
    if not isinstance(key, str | int) or isinstance(key, bool):
        raise StepError(f"key= must be a string or an integer, not {type(key).__name__}: {key!r}.")
    return msgspec.json.encode(key).decode()
