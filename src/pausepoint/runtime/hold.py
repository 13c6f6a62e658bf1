"""One session that this engine holds: its facts, its log, and the requests that have reached it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from types import EllipsisType
from typing import Any

from pausepoint.clock import Clock
from pausepoint.codec.values import Limits
from pausepoint.definition.workflow import Workflow
from pausepoint.log.access import StateAccess
from pausepoint.log.ledger import Ledger
from pausepoint.log.replay import Line
from pausepoint.model.budgets import Spending, reached
from pausepoint.model.commits import Flags
from pausepoint.model.ids import SessionId
from pausepoint.model.records import Record
from pausepoint.model.sessions import SessionRow
from pausepoint.runtime.visit import Visit
from pausepoint.stores.base import Store

OnStep = Callable[[SessionId, str, int], Awaitable[None]]
"""Called with session, step and visit before the step's code runs."""


class Held:
    """A held session: what the parts of its `Drive` share."""

    # An instance with more than thirty attributes gets its own dictionary, and each access is a lookup in it.
    __slots__ = (
        "accept_code", "access", "asked", "awaited", "budgeted", "changed", "clock", "fence", "flags", "keeping",
        "ledger", "limits", "line", "on_step", "parks", "pause_after", "picked_up", "questions_expire", "resumed",
        "resumed_by", "row", "saved", "session_id", "stop_reason", "store", "strict", "taken", "visit", "wake",
        "workflow",
    )  # fmt: skip

    def __init__(
        self, store: Store, workflow: Workflow[Any], row: SessionRow, clock: Clock, limits: Limits,
        changed: Callable[[str], None] = lambda session_id: None,
    ) -> None:  # fmt: skip
        self.store = store
        self.workflow = workflow
        self.row = row
        self.session_id = row.session_id
        self.clock = clock
        self.limits = limits
        self.fence = row.fence
        self.flags = Flags(row.pause_requested, row.pause_mode, row.cancel_requested, row.mail)
        self.ledger = Ledger(store, row, clock)
        self.line: Line = self.ledger.line
        self.access = StateAccess(workflow, self.line.state, store, limits)
        self.picked_up = False
        self.resumed = False
        self.taken = False  # whether this engine took it because it was ready, and nobody resumed it here
        self.resumed_by: str | None = None
        self.accept_code = False  # whether to accept changed steps before the position, and changed calls
        self.strict = False  # whether a call pauses if its result is remembered for other arguments
        self.wake = False  # whether open timers end now
        self.pause_after: str | None = None  # the step after which the session must pause
        # Whether the session or one of its parents has a budget. None: not looked up yet.
        self.budgeted = None if row.may_have_budget else False
        self.parks: tuple[str | None, int | None] | None = None  # if all branches wait: for what, until when
        self.awaited: frozenset[str] = frozenset()  # the children that branches waited for when the step exited
        self.asked: frozenset[str] = frozenset()  # the questions that branches waited for then
        self.questions_expire: timedelta | EllipsisType | None = ...
        self.on_step: OnStep | None = None
        self.saved: tuple[int, int, int] = (0, 0, 0)
        self.stop_reason = ""
        self.changed = changed  # tell those who wait for a session
        self.visit: Visit | None = None
        self.keeping: asyncio.Task[bool] | None = None  # keeps the step of the paused session in memory

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

    @property
    def must_stop(self) -> bool:
        """Whether the session must stop at its next safe point: for a pause, a cancel or a shutdown."""
        return bool(self.flags.pause_requested or self.flags.cancel_requested or self.stop_reason)

    @property
    def stopping(self) -> bool:
        """Whether the engine is shutting down, so that no new operation may start."""
        return bool(self.stop_reason)

    @property
    def is_kept(self) -> bool:
        """Whether the session is parked with its step in memory."""
        return self.keeping is not None and self.ledger.parked

    @property
    def keeps_step(self) -> bool:
        """Whether the session is parked, or about to be, with its step in memory."""
        return self.keeping is not None

    def may_continue(self) -> bool:
        """Return whether nothing prevents the next step from running."""
        return not (self.ledger.parked or self.parks is not None or self.must_stop or self.ledger.broken is not None)

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
        in_flight = 0 if self.visit is None else len(self.visit.running)
        return reached(purses, self.session_id, Spending(usd, tokens, in_flight - asking))
