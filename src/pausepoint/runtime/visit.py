"""One visit of a step as it runs: what it remembers, what is in flight, when it may be left.

A visit is left only when nothing is in flight. An operation that may not start (a pause was
asked for, the budget is used up) *stands still*: it waits for a future that only a
withdrawn pause will resolve. Once everything that runs stands still, the driver cancels
the step. So a pause works the same inside `asyncio.gather` and `TaskGroup`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Mapping
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from pausepoint.artifacts.publisher import Desk
from pausepoint.clock import LONGEST_NAP, Clock
from pausepoint.codec.values import Limits, Typed, fingerprint
from pausepoint.definition.functions import Callee
from pausepoint.definition.workflow import BoundStep, Workflow
from pausepoint.errors import (
    ContextClosed,
    Declined,
    EventRefused,
    OversizedValue,
    StepError,
    ValueRefused,
    did_you_mean,
)
from pausepoint.log.ledger import Ledger
from pausepoint.log.replay import Effect, Line, OperationBody, WaitBody
from pausepoint.log.state import Blobs, stored
from pausepoint.model.chunks import Part
from pausepoint.model.events import ENGINE_EVENTS
from pausepoint.model.ids import SessionId
from pausepoint.model.questions import QuestionRow
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import PauseKind, SessionRow

T = TypeVar("T")

LINGER = 5
"""How many turns of the loop a visit that only waits stays: what runs beside a wait may be about to begin something."""

MOST = 2**60
"""The most tokens or micro-dollars that can be told at once."""


class Wait(NamedTuple):
    """What a branch of a visit waits for. ``due`` is for timers, ``child`` for the end of one.

    An answer to ``question`` may be due as well: then it expires, or somebody is to be reminded.
    """

    kind: Literal["timer", "message", "child", "answer"]
    due: int | None = None
    child: str = ""
    question: str = ""


class Family(Protocol):
    """The children of one session."""

    async def child(self, child_id: str) -> SessionRow | None:
        """How a child stands; None if it was never begun."""

    async def child_state(self, workflow: Workflow[Any], row: SessionRow) -> Any:
        """The state of a child."""

    async def begin_child(self, workflow: Workflow[Any], child_id: SessionId, given: Any) -> None:
        """Start a child, here, under that very id."""

    async def resume_child(self, workflow: Workflow[Any], row: SessionRow) -> None:
        """Have a child that nobody drives go on, here."""


class Host(Protocol):
    """What a visit asks of the driver of its session."""

    session_id: str
    row: SessionRow
    clock: Clock
    limits: Limits
    line: Line
    ledger: Ledger
    events: frozenset[str]
    fence: int
    desk: Desk | None
    family: Family
    resumed: bool
    budgeted: bool | None
    workflow: Workflow[Any]
    questions_expire: timedelta | None

    @property
    def wanted(self) -> bool:
        """Somebody wants the session to stop at its next safe point."""

    @property
    def stopping(self) -> bool:
        """The program ends: no new operation may start."""

    async def over_budget(self) -> str:
        """Why no more money may be spent; empty if it may."""

    def leave(self, waits: bool = False) -> None:
        """Nothing is in flight: leave the step. ``waits``: every branch of it waits, so it is known what for."""

    def demand_pause(self, kind: PauseKind, reason: str) -> None:
        """Once the step is left, pause the session with this reason."""

    async def remember(self, body: OperationBody | WaitBody, blobs: Blobs, **facts: Any) -> None:
        """Commit an operation, or that a wait was opened; ``facts`` go with it, such as what it takes in."""

    async def note(self, type: str, summary: str, data: Mapping[str, Any], **facts: Any) -> bool:
        """Commit an event. False, with nothing written, if a condition among the facts no longer holds."""

    async def question(self, id: str) -> QuestionRow | None:
        """How a question stands; None if it is not there."""

    async def mail(
        self, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        """The signals that nobody has taken in yet: see `Store.mail`."""

    async def take_mail(self, signal: SignalRecord, type: str, summary: str, noticed: str) -> None:
        """Take a signal in without an operation; an event says why. ``noticed``: the child whose failure it tells."""

    async def fetch(self, value: Any) -> bytes:
        """The bytes of a remembered value."""

    def show_progress(self, done: int, total: int) -> None:
        """Seen live; stored with the next record."""


class Operation(msgspec.Struct, frozen=True):
    """The identity of an operation: (scope, name, key), or (scope, name, input, n-th among equals).

    ``part`` is the chunk of a file that it works on.
    """

    id: str
    name: str
    input: str
    keyed: bool
    part: Part | None = None


class Frame:
    """A piece of a visit that is in flight: an operation, or a map item with operations of its own."""

    __slots__ = ("parent", "scope", "still")

    def __init__(self, scope: str, parent: Frame | None) -> None:
        self.scope = scope
        self.parent = parent
        self.still = 0


class Visit:
    """One attempt at a visit. See the module's text."""

    def __init__(self, host: Host, step: BoundStep, number: int, attempt: int) -> None:
        self.host = host
        self.step = step
        self.number = number
        self.attempt = attempt
        self.run = f"{host.fence}.{attempt}"
        self.agent = "" if step.agent == step.name else step.agent
        self.root = Frame("", None)
        self.seen: dict[str, int] = {}
        self.active = 0
        self.standing: set[asyncio.Future[None]] = set()
        self.waits: dict[asyncio.Future[None], Wait] = {}
        self.taken: set[int] = set()
        self.barred: dict[str, Declined] = {}  # operations that somebody has declined
        self.misses: list[Operation] = []
        self.nudged: set[str] = set()
        self.alarm: asyncio.Task[None] | None = None
        self.rings_at = 0
        self.lingering = False
        self.moves = 0
        self.tasks: set[asyncio.Task[Any]] = set()
        self.running: dict[str, asyncio.Event] = {}
        self.refused = False
        self.left = False
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.unclaimed = set(host.line.operations)

    def close(self) -> None:
        """The step is over: late calls get an error, late work is cancelled."""
        self.left = True
        if self.alarm is not None:
            self.alarm.cancel()
        for task in self.tasks:
            task.cancel()

    # identity

    def identify(
        self, scope: str, callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any], key: object
    ) -> Operation:
        """Name an operation so that a replay finds it again."""
        if key is not None:
            return Operation(f"{scope}/{callee.name}[{key_text(key)}]", callee.name, _input(callee, args, kwargs), True)
        if callee.name == "<lambda>":
            raise StepError(
                f"{self.step.name}: a lambda has no name to be remembered by; pass key=, or a named function"
            )
        try:
            print_ = fingerprint(*callee.given, args, kwargs).hex()[:24]
        except ValueRefused as error:
            raise StepError(
                f"{self.step.name}: the arguments of {callee.name!r} cannot be encoded ({error});"
                " pass key= to name the operation"
            ) from error
        return Operation(self.nth(f"{scope}/{callee.name}~{print_}"), callee.name, print_, False)

    def nth(self, base: str) -> str:
        """``base`` with the number of times it was met in this attempt."""
        count = self.seen[base] = self.seen.get(base, 0) + 1
        return f"{base}#{count}"

    def idempotency_key(self, scope: str) -> str:
        """Stable over retries, resumes and crashes; different for every visit, operation and map item."""
        text = f"{self.host.session_id}|{self.host.line.opened}|{scope}"
        return sha256(text.encode()).hexdigest()[:32]

    # operations

    def remembered(self, operation: Operation) -> OperationBody | None:
        """What an earlier run of this visit left under that identity."""
        found = self.host.line.operations.get(operation.id)
        if found is not None:
            self.unclaimed.discard(operation.id)
        return found

    async def admit(self, operation: Operation, frame: Frame, found: OperationBody | None) -> None:
        """Let an operation start or be reused, or stand still if that must not be."""
        if found is not None:
            if operation.keyed and found.input and operation.input and found.input != operation.input:
                await self.refuse(frame, "mismatch", mismatch(self.step.name, operation))
            return
        if self.host.stopping:
            await self.stand_still(frame)
        if self.host.budgeted is not False and (reason := await self.busily(self.host.over_budget())):
            await self.refuse(frame, "budget", reason)
        if (why := self.barred.get(operation.name)) is not None:
            raise why
        if self.unclaimed and not operation.keyed:
            self.misses.append(operation)

    def note_misses(self) -> None:
        """At the end of the step: what ran although it was remembered, with other input, that nobody claimed now."""
        for operation in self.misses:
            prefix = operation.id.rpartition("~")[0] + "~"
            if any(known.startswith(prefix) and "/" not in known[len(prefix) :] for known in self.unclaimed):
                summary = f"{operation.name} was called with other input than before; it ran"
                data = {"id": operation.id}
                self.host.ledger.effect(f"miss:{operation.id}", "operation.missed", summary, data, self.step.agent)

    async def keep(
        self, operation: Operation, result: Typed, value: Any, started: float | None, frame: Frame,
        outcome: str = "", **facts: Any,
    ) -> bytes:  # fmt: skip
        """Encode a result and commit it, with what goes with it; the encoded form comes back."""
        try:
            data = result.encode(value, operation.name, self.host.limits)
        except OversizedValue as error:
            await self.refuse(frame, "oversized", f"{self.step.name}: {error}")
            raise
        self.check_open()  # before it takes along what a later step has emitted
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
        )
        await self.host.remember(body, blobs, **facts)
        return data

    # waits

    async def open_wait(self, body: WaitBody, **facts: Any) -> None:
        """Commit that something is waited for, before anybody waits."""
        self.check_open()
        effects = self.host.ledger.take_effects()
        body = msgspec.structs.replace(body, effects=effects) if effects else body
        await self.busily(self.host.remember(body, [], **facts))

    async def wait(self, frame: Frame, wait: Wait) -> None:
        """Wait until something may have come. Whoever waits looks again then."""
        self.check_open()
        news: asyncio.Future[None] = self.loop.create_future()
        self.waits[news] = wait
        self._stand(frame, 1)
        self._set_alarm()
        self.settle()
        try:
            await news
        finally:
            self.waits.pop(news, None)
            self._stand(frame, -1)
            if self.waits and self.alarm is None and not self.left:
                self._set_alarm()

    def look_again(self, child: str = "") -> None:
        """Something came, or a time has passed: who waits (for that child, if one is given) looks whether it was that.

        Not while the session is to stop: that takes effect at a wait, and what came is kept.
        """
        if self.host.wanted:
            return
        for news in [news for news, wait in self.waits.items() if child in ("", wait.child)]:
            del self.waits[news]  # what goes on is no reason to leave, though its task has yet to notice
            if not news.done():
                news.set_result(None)

    def waits_for(self) -> tuple[str | None, int | None]:
        """The kinds of things that are waited for, and the first time that is.

        Timers are named only beside an answer: that may have a time too, which is not to be mistaken for theirs.
        """
        kinds = {wait.kind for wait in self.waits.values()}
        if "answer" not in kinds:
            kinds.discard("timer")
        return ",".join(sorted(kinds)) or None, self._first_due()

    def _first_due(self) -> int | None:
        return min((wait.due for wait in self.waits.values() if wait.due is not None), default=None)

    def _set_alarm(self) -> None:
        """While other branches work the visit stays, so a timer beside them has to ring here."""
        due = self._first_due() if self.active else None
        if due is None or (self.alarm is not None and self.rings_at <= due):
            return
        if self.alarm is not None:
            self.alarm.cancel()
        self.rings_at = due
        self.alarm = self.loop.create_task(self._ring())

    async def _ring(self) -> None:
        while (due := self._first_due()) is not None:
            self.rings_at = due
            left = (due - self.host.clock.now()) / 1e6
            if left <= 0:
                break
            await self.host.clock.sleep(min(left, LONGEST_NAP))
        self.alarm = None
        self.look_again()

    async def mail(
        self, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        """The signals that nobody has taken in yet: see `Store.mail`."""
        return await self.busily(self.host.mail(limit, kind, about))

    async def recall(self, found: OperationBody, result: Typed) -> Any:
        """What a remembered operation returned."""
        return result.decode(await self.busily(self.host.fetch(found.value)), found.name)

    async def take_mail(self, signal: SignalRecord, type: str, summary: str, noticed: str = "") -> None:
        """Take a signal in without an operation; an event says why."""
        self.check_open()
        await self.busily(self.host.take_mail(signal, type, summary, noticed))

    async def refuse_mail(self, signal: SignalRecord, reason: str) -> None:
        """A message that cannot be read is no reason to stop: it is taken in, and the history says so."""
        await self.take_mail(signal, "message.refused", reason)

    # effects

    def emit(self, scope: str, type: str, summary: str, data: dict[str, Any]) -> None:
        """An event of the workflow's own."""
        self.check_open()
        if type in ENGINE_EVENTS:
            raise EventRefused(f"{self.step.name}: {type!r} is one of the engine's own events; give yours another name")
        if type not in self.host.events:
            raise EventRefused(
                f"{self.step.name}: the workflow declares no event {type!r}; add it to Workflow(events=[…])"
                + did_you_mean(str(type), self.host.events)
            )
        if not isinstance(summary, str):
            raise EventRefused(
                f"{self.step.name}: the summary of {type!r} must be a text, not {summary!r}; give data by name"
            )
        # By content, not by order: branches may race, and each event must still be the one it was.
        print_ = fingerprint(summary, data).hex()[:24]
        self.host.ledger.effect(self.nth(f"{scope}/emit:{type}~{print_}"), type, summary, data, self.step.agent)

    def spend(self, scope: str, usd: float | Decimal, tokens: int) -> None:
        """Money and tokens that the step has used."""
        self.check_open()
        micros = to_micro_usd(usd)
        if not is_count(tokens):
            raise ValueError(f"tokens must be a whole number, not negative: {tokens!r}")
        id = self.nth(f"{scope}/spend:{micros}:{tokens}")
        self.host.ledger.pend(Effect(id, self.host.clock.now(), "spent", self.step.agent, usd=micros, tokens=tokens))

    # standing still

    def check_open(self) -> None:
        """Refuse a call after the step has ended."""
        if self.left:
            raise ContextClosed(
                f"{self.step.name}: the step has ended; await every task that uses ctx before returning from it"
            )

    def enter(self, frame: Frame) -> None:
        """Something is in flight."""
        self.check_open()
        self.active += 1
        self.moves += 1
        self.running[frame.scope] = asyncio.Event()
        if self.waits and self.alarm is None:
            self._set_alarm()

    def exit(self, frame: Frame) -> None:
        """It no longer is."""
        self.active -= 1
        self.moves += 1
        self.running.pop(frame.scope).set()
        self.settle()

    async def busily(self, work: Awaitable[T]) -> T:
        """Do something of our own: the visit is not left meanwhile, though no operation is in flight."""
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
        self.host.demand_pause(kind, reason)
        await self.stand_still(frame)

    async def stand_still(self, frame: Frame) -> None:
        """Wait here until the step is left, or until nobody wants it to stop any more."""
        self.check_open()
        still: asyncio.Future[None] = self.loop.create_future()
        self.standing.add(still)
        self._stand(frame, 1)
        self.settle()
        try:
            await still
        finally:
            self.standing.discard(still)
            self._stand(frame, -1)

    def _stand(self, frame: Frame, change: int) -> None:
        """A frame counts as in flight unless something inside it stands still; the step's own body never counts."""
        inner: Frame | None = frame
        while inner is not None and inner.parent is not None:
            was = inner.still > 0
            inner.still += change
            self.active += was - (inner.still > 0)
            inner = inner.parent

    def settle(self) -> None:
        """Leave if all that is in flight stands still, or if the program ends and nothing is.

        A visit that only waits is left a little later: another branch may be about to begin something. A pause does
        not wait for that; then it is not known whether all branches wait, and who resumes the session finds out.
        """
        if self.left or self.active:
            return
        if self.waits and not self.standing and (self.host.stopping or not self.host.wanted):
            if not self.lingering:
                self.lingering = True
                self.loop.call_soon(self._linger, LINGER, self.moves)
        elif self.waits or self.standing or self.host.stopping:
            self.host.leave()

    def _linger(self, turns: int, moves: int) -> None:
        if turns and not self.left:
            turns = turns - 1 if moves == self.moves else LINGER
            self.loop.call_soon(self._linger, turns, self.moves)
            return
        self.lingering = False
        if self.waits and not self.left and not self.active:
            self.host.leave(waits=True)
        else:
            self.settle()

    def reconsider(self) -> None:
        """The requests from outside changed."""
        if self.host.wanted or self.refused:
            self.settle()
            return
        for still in self.standing:
            if not still.done():
                still.set_result(None)
        self.standing.clear()  # what goes on is no reason to leave, though its task has yet to notice
        self.look_again()  # children that stood still as well are to go on


def is_count(value: object) -> bool:
    """Whether a value is a whole number that can be stored."""
    return isinstance(value, int) and 0 <= value <= MOST


def to_micro_usd(usd: float | Decimal) -> int:
    """Money as an integer.

    >>> to_micro_usd(0.25), to_micro_usd(Decimal("0.000001"))
    (250000, 1)
    """
    try:
        amount = Decimal(str(usd))
    except InvalidOperation:
        amount = Decimal("NaN")
    if isinstance(usd, bool) or not 0 <= (amount if amount.is_finite() else -1) <= MOST // 1_000_000:
        raise ValueError(f"money must be an amount of dollars, not negative: {usd!r}")
    return int((amount * 1_000_000).to_integral_value())


def key_text(key: object) -> str:
    """A ``key=`` as part of an identity."""
    if not isinstance(key, str | int) or isinstance(key, bool):
        raise StepError(f"key= must be a string or an integer, not {type(key).__name__}: {key!r}")
    return msgspec.json.encode(key).decode()


def _input(callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    try:
        return fingerprint(*callee.given, args, kwargs).hex()[:24]
    except ValueRefused:
        return ""


def mismatch(step: str, operation: Operation) -> str:
    """What to say of a key that names something else than before."""
    return (
        f"{step}: operation {operation.id} was remembered with other input than it is now called with;"
        " use another key= for other input, rewind the step, or resume once the input is the same again"
    )
