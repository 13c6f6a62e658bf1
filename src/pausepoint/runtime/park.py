"""Parks a held session: it ends, is paused, waits, or is left to another engine."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from pausepoint.clock import Clock, to_datetime
from pausepoint.errors import AlreadyRunning, DamagedRecord, HoldLost, StoreError
from pausepoint.log.replay import body_of
from pausepoint.log.telemetry import Watch
from pausepoint.model.commits import Commit, Facts, Flags, child_report
from pausepoint.model.endings import can_end, cancelled
from pausepoint.model.questions import reply_of
from pausepoint.model.sessions import Filter, Pause, QuestionChange, QuestionStatus, SessionRow
from pausepoint.runtime.hold import Held
from pausepoint.runtime.requests import Requests
from pausepoint.stores.base import Store

_WAITS = {"message": "a message", "child": "a child session", "answer": "an answer", "timer": "a timer"}


class Parking:
    """Parks a held session when it must stop."""

    __slots__ = ("held", "requests")

    def __init__(self, held: Held, requests: Requests) -> None:
        self.held = held
        self.requests = requests

    async def parked(self) -> bool:
        """End or park the session if a request or a wait requires it. Return whether it was parked."""
        held = self.held
        if held.broken is not None:
            raise held.broken
        if held.ledger.parked:
            return True
        if held.flags.cancel_requested:
            return await held.ledger.note("session.cancelled", "cancelled", ended="cancelled", release=True)
        if held.flags.pause_requested:
            return await self.park_paused()
        if held.stop_reason:
            return await held.ledger.note("session.stopped", held.stop_reason, **self._parks())
        if held.parks is not None:
            return await self._park_waiting()
        return False

    def _parks(self) -> Facts:
        """Return the facts of a parked session. If all its branches wait, they tell when to wake it."""
        if self.held.parks is None:
            return {"release": True}
        waiting, wakes_at = self.held.parks
        return {"release": True, "waiting": waiting, "wakes_at": wakes_at}

    async def _park_waiting(self) -> bool:
        assert self.held.parks is not None
        waiting, wakes_at = self.held.parks
        data: dict[str, Any] = {"for": waiting.split(",") if waiting else []}
        until = "" if wakes_at is None else to_datetime(wakes_at).isoformat(timespec="seconds")
        if until:
            data["until"] = until
        things = " or ".join(_WAITS[kind] for kind in data["for"])
        limit = f", at most until {until}" if things else f"until {until}"
        summary = (f"for {things}" if things else "") + (limit if until else "")
        return await self.held.ledger.note(
            "session.waiting", f"waits {summary}", data, release=True, waiting=waiting, wakes_at=wakes_at,
            consume=await self._stale_mail(), questions=self._stale_questions(),
        )  # fmt: skip

    async def _stale_mail(self) -> tuple[int, ...]:
        """Return the numbers of child reports and answers that no branch waits for. They must not wake the session."""
        held = self.held
        if not held.flags.mail:
            return ()
        reports = await held.store.mail(held.row.key, kind="child")
        of = {signal.n: child_report(signal.payload).child for signal in reports}
        # A child that has not ended was resumed since its report. When it ends again, it sends another report.
        ended = {child for child in set(of.values()) & held.awaited if await self._has_ended(child)}
        said = await held.store.mail(held.row.key, kind="answer")
        answers = {signal.n: reply_of(signal.payload).question for signal in said if not signal.redacted}
        return (
            *(n for n, child in of.items() if child not in ended),
            *(n for n, question in answers.items() if question not in held.asked),
        )

    def _stale_questions(self) -> tuple[QuestionChange, ...]:
        """Return changes that cancel this visit's questions that the step did not ask again."""
        asked = [wait.ask.id for wait in self.held.line.waits.values() if wait.ask is not None]
        return tuple(QuestionChange(id, QuestionStatus.CANCELLED) for id in asked if id not in self.held.asked)

    async def _has_ended(self, session_id: str) -> bool:
        row = await self.held.store.get(session_id)
        return row is not None and row.ended is not None

    async def park_paused(self, kept: bool = False) -> bool:
        """Park the session if a pause is still requested. ``kept``: its step stays in memory."""
        held = self.held
        pauses = [pause for pause in await held.store.pauses(held.row.key) if pause.kind == "operator"]
        if not pauses:  # the pause of everything may be requested and not stored yet
            with suppress(DamagedRecord):
                everything = await held.store.standing_pause()
                pauses = [] if everything is None else [everything]
        who = ", ".join(sorted({pause.by for pause in pauses if pause.by}))
        why = "; ".join(pause.reason for pause in pauses if pause.reason)
        summary = "paused" + (f" by {who}" if who else "") + (f": {why}" if why else "")
        data = {"kind": "operator", "by": who, "mode": held.flags.pause_mode}
        facts: Facts = {"release": True, "kept": True} if kept else self._parks()
        facts["only_if_paused"] = True
        parked = await held.ledger.note("session.paused", summary, data, **facts)
        if not parked:  # the pause was withdrawn in the meantime
            self.requests.apply_flags(Flags(False, "finish", held.flags.cancel_requested, held.flags.mail))
        return parked

    async def pause_after(self, step: str) -> None:
        """Pause the session as an operator would, because it was asked to run until this step."""
        held = self.held
        now, by = held.clock.now(), held.resumed_by
        pause = Pause(str(uuid4()), "operator", f"ran until {step} as requested", by, now, held.line.step or "")
        await held.store.pause(Filter(session_id=held.session_id), pause)
        await self.requests.read()

    async def release_after_error(self, reason: str) -> None:
        """Release the hold after an unexpected error, so that the session is not held without being driven."""
        held = self.held
        if held.ledger.parked or held.broken is not None:
            return
        try:
            await held.ledger.note("session.stopped", reason, release=True)
        except (StoreError, HoldLost) as error:
            held.ledger.breaks(error)


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
