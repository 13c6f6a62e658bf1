"""One held session: picking it up, checking what prevents it from running, and parking it.

In between, `pausepoint.runtime.drive` runs its steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from types import EllipsisType
from typing import Any
from uuid import uuid4

from pausepoint.clock import Clock, to_datetime
from pausepoint.codec.values import Limits
from pausepoint.definition.workflow import Workflow
from pausepoint.errors import AlreadyRunning, DamagedRecord, HoldLost, StateRefused, StoreError
from pausepoint.log.access import StateAccess
from pausepoint.log.ledger import Ledger
from pausepoint.log.replay import Line, body_of, deferred, limits_child
from pausepoint.log.telemetry import Watch
from pausepoint.log.versions import DoesNotFit, fits, upgrade
from pausepoint.model.budgets import Spending, reached
from pausepoint.model.commits import Commit, Facts, Flags, child_report
from pausepoint.model.endings import can_end, cancelled
from pausepoint.model.ids import SessionId
from pausepoint.model.pauses import Paused
from pausepoint.model.questions import reply_of
from pausepoint.model.records import Record
from pausepoint.model.sessions import Filter, Pause, QuestionChange, QuestionStatus, SessionRow
from pausepoint.stores.base import Store

CRASHES_ALLOWED = 3

_WAITS = {"message": "a message", "child": "a child session", "answer": "an answer", "timer": "a timer"}


OnStep = Callable[[SessionId, str, int], Awaitable[None]]
"""Called with session, step and visit before the step's code runs."""


class Holding:
    """A held session without the running of its steps, which `pausepoint.runtime.drive.Drive` adds."""

    # An instance with more than thirty attributes gets its own dictionary, and each access is a lookup in it.
    __slots__ = (
        "accept_code", "access", "asked", "awaited", "budgeted", "clock", "fence", "flags", "ledger", "limits", "line",
        "on_step", "parks", "picked_up", "questions_expire", "resumed", "resumed_by", "row", "saved", "session_id",
        "stop_reason", "store", "strict", "taken", "until", "wake", "workflow",
    )  # fmt: skip

    def __init__(self, store: Store, workflow: Workflow[Any], row: SessionRow, clock: Clock, limits: Limits) -> None:
        self.store = store
        self.workflow = workflow
        self.row = row
        self.session_id = row.session_id
        self.clock = clock
        self.limits = limits
        self.fence = row.fence
        self.flags = Flags(row.pause_requested, row.pause_mode, row.cancel_requested, row.mail)
        self.ledger = Ledger(store, row, clock, self._committed)
        self.line: Line = self.ledger.line
        self.access = StateAccess(workflow, self.line.state, store, limits)
        self.picked_up = False
        self.resumed = False
        self.taken = False  # whether this engine took it because it was ready, and nobody resumed it here
        self.resumed_by: str | None = None
        self.accept_code = False  # whether to accept changed steps before the position, and changed calls
        self.strict = False  # whether a call pauses if its result is remembered for other arguments
        self.wake = False  # whether open timers end now
        self.until: str | None = None  # the step after which the session must pause
        # Whether the session or one of its parents has a budget. None: not looked up yet.
        self.budgeted = None if row.may_have_budget else False
        self.parks: tuple[str | None, int | None] | None = None  # if all branches wait: for what, until when
        self.awaited: frozenset[str] = frozenset()  # the children that branches waited for when the step exited
        self.asked: frozenset[str] = frozenset()  # the questions that branches waited for then
        self.questions_expire: timedelta | EllipsisType | None = ...
        self.on_step: OnStep | None = None
        self.saved: tuple[int, int, int] = (0, 0, 0)
        self.stop_reason = ""

    def load(self, past: Sequence[Record] | Line) -> None:
        """Load the log from its last key frame on, or take the line that it folds to."""
        self.ledger.load(past)
        self.line = self.ledger.line
        self.saved = (sum(self.line.visits.values()), self.line.took, self.line.usd)
        self.access = StateAccess(self.workflow, self.line.state, self.store, self.limits)

    @property
    def broken(self) -> BaseException | None:
        """Why this engine can no longer drive the session."""
        return self.ledger.broken

    # requests from outside

    def notice(self, fence: int, flags: Flags) -> None:
        """React to the fence and the flags that the store has for this session now."""
        raise NotImplementedError

    def _committed(self, flags: Flags) -> None:
        raise NotImplementedError

    def _apply_flags(self, flags: Flags) -> None:
        raise NotImplementedError

    def _pause_withdrawn(self) -> None:
        """React to a pause that was withdrawn before it took effect. A new budget may apply; timers were not frozen."""
        self.budgeted = None
        self.ledger.thaws = True

    async def _read_requests(self) -> None:
        """Read the requests that arrived since the session was claimed. A pause then takes effect before any step."""
        for fence, flags in (await self.store.flags([self.row.key])).values():
            self.notice(fence, flags)

    # parking

    def _may_continue(self) -> bool:
        """Return whether nothing prevents the next step from running."""
        flags = self.flags
        return not (
            self.ledger.parked
            or self.parks is not None
            or flags.pause_requested
            or flags.cancel_requested
            or self.stop_reason
            or self.ledger.broken is not None
        )

    async def _parked(self) -> bool:
        """End or park the session if a request or a wait requires it. Return whether it was parked."""
        if self.broken is not None:
            raise self.broken
        if self.ledger.parked:
            return True
        if self.flags.cancel_requested:
            return await self.ledger.note("session.cancelled", "cancelled", ended="cancelled", release=True)
        if self.flags.pause_requested:
            return await self._park_paused()
        if self.stop_reason:
            return await self.ledger.note("session.stopped", self.stop_reason, **self._parks())
        if self.parks is not None:
            return await self._park_waiting()
        return False

    def _parks(self) -> Facts:
        """Return the facts of a parked session. If all its branches wait, they tell when to wake it."""
        if self.parks is None:
            return {"release": True}
        waiting, wakes_at = self.parks
        return {"release": True, "waiting": waiting, "wakes_at": wakes_at}

    async def _park_waiting(self) -> bool:
        assert self.parks is not None
        waiting, wakes_at = self.parks
        data: dict[str, Any] = {"for": waiting.split(",") if waiting else []}
        until = "" if wakes_at is None else to_datetime(wakes_at).isoformat(timespec="seconds")
        if until:
            data["until"] = until
        things = " or ".join(_WAITS[kind] for kind in data["for"])
        limit = f", at most until {until}" if things else f"until {until}"
        summary = (f"for {things}" if things else "") + (limit if until else "")
        return await self.ledger.note(
            "session.waiting", f"waits {summary}", data, release=True, waiting=waiting, wakes_at=wakes_at,
            consume=await self._stale_mail(), questions=self._stale_questions(),
        )  # fmt: skip

    async def _stale_mail(self) -> tuple[int, ...]:
        """Return the numbers of child reports and answers that no branch waits for. They must not wake the session."""
        if not self.flags.mail:
            return ()
        reports = await self.store.mail(self.row.key, kind="child")
        of = {signal.n: child_report(signal.payload).child for signal in reports}
        # A child that has not ended was resumed since its report. When it ends again, it sends another report.
        ended = {child for child in set(of.values()) & self.awaited if await self._has_ended(child)}
        said = await self.store.mail(self.row.key, kind="answer")
        answers = {signal.n: reply_of(signal.payload).question for signal in said if not signal.redacted}
        return (
            *(n for n, child in of.items() if child not in ended),
            *(n for n, question in answers.items() if question not in self.asked),
        )

    def _stale_questions(self) -> tuple[QuestionChange, ...]:
        """Return changes that cancel this visit's questions that the step did not ask again."""
        asked = [wait.ask.id for wait in self.line.waits.values() if wait.ask is not None]
        return tuple(QuestionChange(id, QuestionStatus.CANCELLED) for id in asked if id not in self.asked)

    async def _has_ended(self, session_id: str) -> bool:
        row = await self.store.get(session_id)
        return row is not None and row.ended is not None

    async def _park_paused(self, kept: bool = False) -> bool:
        """Park the session if a pause is still requested. ``kept``: its step stays in memory."""
        pauses = [pause for pause in await self.store.pauses(self.row.key) if pause.kind == "operator"]
        if not pauses:  # the pause of everything may be requested and not stored yet
            with suppress(DamagedRecord):
                everything = await self.store.standing_pause()
                pauses = [] if everything is None else [everything]
        who = ", ".join(sorted({pause.by for pause in pauses if pause.by}))
        why = "; ".join(pause.reason for pause in pauses if pause.reason)
        summary = "paused" + (f" by {who}" if who else "") + (f": {why}" if why else "")
        data = {"kind": "operator", "by": who, "mode": self.flags.pause_mode}
        facts: Facts = {"release": True, "kept": True} if kept else self._parks()
        facts["only_if_paused"] = True
        parked = await self.ledger.note("session.paused", summary, data, **facts)
        if not parked:  # the pause was withdrawn in the meantime
            self._apply_flags(Flags(False, "finish", self.flags.cancel_requested, self.flags.mail))
        return parked

    async def _pause_after(self, step: str) -> None:
        """Pause the session as an operator would, because it was asked to run until this step."""
        now, by = self.clock.now(), self.resumed_by
        pause = Pause(str(uuid4()), "operator", f"ran until {step} as requested", by, now, self.line.step or "")
        await self.store.pause(Filter(session_id=self.session_id), pause)
        await self._read_requests()

    async def _release_after_error(self, reason: str) -> None:
        """Release the hold after an unexpected error, so that the session is not held without being driven."""
        if self.ledger.parked or self.broken is not None:
            return
        try:
            await self.ledger.note("session.stopped", reason, release=True)
        except (StoreError, HoldLost) as error:
            self.ledger.breaks(error)

    # picking up a session that ran before

    async def _begin_resumed(self) -> None:
        """Write the first record of a resumed session: what it skips and which pauses close, or why it stays paused."""
        pauses: list[Pause] = []
        if self.row.open_pauses:
            pauses = [pause for pause in await self.store.pauses(self.row.key) if pause.kind != "operator"]
        if obstacle := await self._obstacle(pauses):
            await self.ledger.park(obstacle, pauses)
            return
        idle = await self._idle()
        if not (self.resumed or self.wake or self.row.frozen or idle):
            await self._read_requests()  # it wakes on its own; nobody resumed it
            return
        visits, took, usd = self.saved
        operations = sum(1 for operation in self.line.operations.values() if not operation.total)
        data = {
            "step": self.line.step,
            "by": self.resumed_by,
            "skipped": visits,
            "operations": operations,
            "saved_seconds": took / 1e6,
            "saved_usd": usd / 1e6,
        }
        closed = tuple(pause.id for pause in pauses if pause.kind != "guard")
        by = f" by {self.resumed_by}" if self.resumed_by else ""
        summary = f"resumed{by} at {self.line.step}#{self.line.visit}{_skipped(visits, operations)}"
        await self.ledger.note(
            "session.resumed", summary, data, close_pauses=closed, closed_by=self.resumed_by,
            shift=self.row.frozen, wake=self.wake, thaw=bool(self.row.frozen), questions=self._deferred_questions(),
            idle=idle,
        )  # fmt: skip

    async def _idle(self) -> int:
        """Return how long the session was paused since its last record, if the time-out of a child depends on it."""
        if not any(map(limits_child, self.line.waits.values())):
            return 0
        pauses, now = await self.store.pauses(self.row.key, open_only=False), self.clock.now()
        # Other pauses, such as that of a budget, are closed by the record that this is for, or before it.
        open_ = [(each.created_at, now) for each in pauses if each.closed_at is None]
        since = {"operator": self.row.updated_at}
        lifted = [
            (each.created_at, each.closed_at)
            for each in pauses
            if each.closed_at is not None and each.closed_at >= since.get(each.kind, self.row.updated_at + 1)
        ]
        ended = [*open_, *lifted]
        return max(max(end for _, end in ended) - min(start for start, _ in ended), 0) if ended else 0

    def _deferred_questions(self) -> tuple[QuestionChange, ...]:
        """Return changes that postpone the expiry of questions by the time that the timers were frozen."""
        now, frozen = self.clock.now(), self.row.frozen
        asking = [wait for wait in self.line.waits.values() if wait.ask is not None and frozen]
        due = {wait.ask.id: deferred(wait, now, frozen, wake=False) for wait in asking if wait.ask is not None}
        return tuple(QuestionChange(id, expires_at=at) for id, at in due.items())

    async def _obstacle(self, pauses: list[Pause]) -> Paused | None:
        if self.row.crashes >= CRASHES_ALLOWED and not any(pause.kind == "crashes" for pause in pauses):
            return Paused("crashes", crash_report(self.row.crashes, self.line.step, self.line.visit))
        try:
            await self._upgrade()
        except DoesNotFit as wrong:
            return Paused("definition", str(wrong))
        if reason := await self.over_budget():
            return Paused("budget", reason)
        try:
            self.access.fill_new_fields()
        except StateRefused as error:
            return Paused("definition", f"{error} Then resume the session.")
        return None

    async def _upgrade(self) -> None:
        """Upgrade the session to the present definition if it differs from the one it was last driven with."""
        if fits(self.workflow, self.line):
            return
        body, blobs = await upgrade(
            self.workflow, self.line, self.store, self.limits, accept_code=self.accept_code, by=self.resumed_by
        )
        step = body.renamed.get(self.line.step or "", self.line.step or "")
        self.line.state.provide(dict(blobs))
        await self.ledger.commit("definition", step, self.line.visit, body, blobs)
        self.line.state.forget()

    # money

    async def over_budget(self, asking: int = 0) -> str:
        """Return why no more may be spent; empty if it may. Children also spend their parents' budgets.

        Operations in flight count, except those that are ``asking``.
        """
        if self.budgeted is False:
            return ""
        purses = await self.store.purses(self.row.key)
        self.budgeted = bool(purses)  # budgets change only at a start or a resume, so one lookup is enough
        effects = self.ledger.pending.values()
        usd, tokens = sum(effect.usd for effect in effects), sum(effect.tokens for effect in effects)
        return reached(purses, self.session_id, Spending(usd, tokens, self._in_flight() - asking))

    def _in_flight(self) -> int:
        """Return how many operations run now."""
        return 0


def _skipped(visits: int, operations: int) -> str:
    """Return what a resume does not run again, as the end of a sentence.

    >>> _skipped(0, 0), _skipped(1, 0), _skipped(2, 4)
    ('', ', 1 visit skipped', ', 2 visits and 4 operations skipped')
    """
    counts = {"visit": visits, "operation": operations}
    parts = [f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items() if count]
    return f", {' and '.join(parts)} skipped" if parts else ""


def crash_report(crashes: int, step: str | None, visit: int) -> str:
    """Return why a session whose processes keep dying is paused."""
    return (
        f"{crashes} processes died at {step}#{visit} without making progress; check what the step does there, then"
        " resume"
    )


async def end_parked(store: Store, clock: Clock, session_id: str) -> None:
    """End a session that was cancelled while its engine was about to park it. It may have ended already."""
    while True:
        row = await store.get(session_id)
        if row is None or not can_end(row):
            return
        commit = cancelled(row, clock.now())
        with suppress(AlreadyRunning, HoldLost):  # it has changed since it was read
            await store.revise(commit)
            _report(row, commit)


def report_ended(rows: Iterable[SessionRow]) -> None:
    """Report the sessions that a store has ended with a request to cancel them."""
    for row in rows:
        if row.ended == "cancelled":
            _report(row, cancelled(row, row.updated_at))


def _report(row: SessionRow, commit: Commit) -> None:
    Watch(row.session_id, row.workflow).committed(commit, body_of(commit.records[0]))
