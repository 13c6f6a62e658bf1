"""Requests from outside: pause, resume, cancel, messages, and the signals that record them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from pausepoint.errors import (
    DamagedRecord,
    SessionEnded,
)
from pausepoint.model import questions
from pausepoint.model.budgets import NO_BUDGET, Allowance
from pausepoint.model.everything import Round, frozen_since
from pausepoint.model.records import SignalRecord, first_digest, signal_intact
from pausepoint.model.sessions import (
    Filter,
    Pause,
    SessionRow,
    Stopping,
    can_be_handed_over,
    can_be_tried_again,
    needs_driving,
)
from pausepoint.stores.found import Found
from tests.support.dictstore.base import Base
from tests.support.dictstore.data import Kept, is_open_request, noted, over, own_freeze


class Requests(Base):
    """Requests from outside: pause, resume, cancel, messages, and the signals that record them."""

    async def pause(self, query: Filter, pause: Pause) -> Found:
        self._check()
        if query.session_id is not None:
            self._named(query.session_id)
        if pause.standing:
            self._stand(pause)
            self._tell()
            return Found()
        found = self._matching(query)[: query.limit]
        for kept in found:
            if not over(kept.row) and self._takes(kept):
                self._ask(kept, pause)
        self._tell(*(kept.row.key for kept in found))
        return Found(self._seen(kept) for kept in found)

    def _takes(self, kept: Kept) -> bool:
        """Return whether a verb treats a session."""
        return True

    def _stand(self, pause: Pause) -> None:
        before, rounds = self.data.standing, self.data.rounds
        known = before or replace(pause, id=str(uuid4()))
        raised = "abort" if "abort" in (known.mode, pause.mode) else "finish"
        known = self.data.standing = replace(known, mode=raised, freeze=known.freeze or pause.freeze)
        last = rounds[-1].round if rounds else 0
        if known == before and not any(kept.exempt == last for kept in self._known()):
            return
        epoch = last + 1 if before is None else rounds[-1].epoch
        driven = [each for each in self._known() if each.row.holder in self.data.engines and each.row.ended is None]
        asked = sum(each.exempt >= (last if before is not None else 0) for each in driven)
        self.data.asked[epoch] = self.data.asked.get(epoch, 0) + asked
        rounds.append(Round(last + 1, epoch, pause.created_at, known.freeze))

    def _note(
        self, kept: Kept, at: int | None = None, after: int | None = None, took_effect_at: int | None = None
    ) -> None:
        """Write the session's record of the pause of everything, if that stops it and it has none."""
        stands, rounds = self.data.standing, self.data.rounds
        if stands is None or not self._stopped(kept) or rounds[-1].epoch in noted(kept):
            return
        epoch = rounds[-1].epoch
        since = min(each.at for each in rounds if each.epoch == epoch and each.round > kept.exempt)
        at = since if at is None else at
        record = replace(
            stands, id=str(uuid4()), step=kept.row.step or "", created_at=at, took_effect_at=took_effect_at
        )
        kept.pauses.append(record)
        kept.epochs[record.id] = epoch
        self._signal(kept, "pause", record.by, at, msgspec.json.encode(_request_of(record)), after)
        if kept.row.wakes_at is None and kept.row.waiting is None and kept.row.ended is None:
            self._set(kept, wakes_at=0)

    def _settle_lifted(self, kept: Kept) -> None:
        """Count what lifted pauses of everything froze, and close the session's records of them."""
        if kept.exempt >= self._last_lifted():
            return
        lifts = {each.epoch: each for each in self.data.rounds if each.lifted_at is not None}
        self._set(kept, frozen=self._seen(kept).frozen)
        kept.exempt = self._last_lifted()
        for n, each in enumerate(kept.pauses):
            lift = lifts.get(kept.epochs.get(each.id, 0)) if is_open_request(each) else None
            if lift is not None and lift.lifted_at is not None:
                kept.pauses[n] = replace(each, closed_at=lift.lifted_at, closed_by=lift.lifted_by)
                self._signal(kept, "resume", lift.lifted_by, lift.lifted_at, b"{}")

    def _ask(self, kept: Kept, pause: Pause) -> None:
        asked = any(is_open_request(each) and not each.standing for each in kept.pauses)
        raised = pause.mode == "abort" and kept.row.pause_mode == "finish"
        freezes = pause.freeze and own_freeze(kept) is None
        if asked and not raised and not freezes:
            return
        if raised:
            kept.pauses = [
                replace(each, mode="abort") if is_open_request(each) and not each.standing else each
                for each in kept.pauses
            ]
        if freezes or not asked:
            step = kept.row.step or ""
            kept.pauses.append(replace(pause, id=str(uuid4()), kind="operator", step=step, closed_at=None))
        self._signal(kept, "pause", pause.by, pause.created_at, msgspec.json.encode(_request_of(pause)))
        self._set(kept, pause_requested=True, pause_mode="abort" if raised else kept.row.pause_mode)

    def _pause_above(self, parent: int | None) -> Pause | None:
        above = [] if parent is None else self._by(parent).pauses
        return next((each for each in above if is_open_request(each) and not each.standing), None)

    def _exempt_like(self, parent: int | None) -> int:
        return max(self._last_lifted(), 0 if parent is None else self._by(parent).exempt)

    async def standing_pause(self) -> Pause | None:
        self._check()
        return self.data.standing

    async def stopping(self) -> Stopping:
        self._check()
        if self.data.standing is None:
            return Stopping()
        epoch = self.data.rounds[-1].epoch
        records = [
            each for kept in self._known() for each in kept.pauses if each.standing and kept.epochs[each.id] == epoch
        ]
        took = [each.took_effect_at - each.created_at for each in records if each.took_effect_at is not None]
        return Stopping(self.data.asked.get(epoch, 0), max(took, default=None))

    async def lift(self, by: str | None, at: int) -> bool:
        self._check()
        lifted, self.data.standing = self.data.standing is not None, None
        self.data.rounds[:] = [
            replace(each, lifted_at=at, lifted_by=by) if each.lifted_at is None else each for each in self.data.rounds
        ]
        self._tell()
        return lifted

    async def unpause(
        self, session_id: str, by: str | None, at: int, budget: Allowance = NO_BUDGET, wake: bool = False,
        exempt: bool = True,
    ) -> SessionRow:  # fmt: skip
        self._check()
        top = self._named(session_id)
        treats = self._takes(top) and (exempt or self.data.standing is None)
        for kept in self._tree(session_id) if treats else ():
            limits = budget.given() if kept is top else {}
            asked = self._seen(kept).pause_requested
            since = None
            if asked:
                self._settle_lifted(kept)
                since = self._frozen_since(kept)
            if self.data.standing is not None and not over(kept.row):
                kept.exempt = self.data.rounds[-1].round
            if asked:
                frozen = kept.row.frozen + (0 if since is None else max(at - since, 0))
                kept.pauses = [
                    replace(each, closed_at=at, closed_by=by) if is_open_request(each) else each for each in kept.pauses
                ]
                self._set(kept, pause_requested=False, pause_mode="finish", frozen=frozen)
                if kept.row.wakes_at == 0 and kept.row.waiting is None:
                    self._set(kept, wakes_at=None)
            tries_again = wake and can_be_tried_again(self._seen(kept)) and self._close_reasons(kept, by, at)
            hands_over = wake and kept is top and can_be_handed_over(self._seen(kept))
            if not (asked or limits or hands_over or tries_again):
                continue
            self._signal(kept, "resume", by, at, msgspec.json.encode(limits))
            self._set(kept, **limits, **({"ended": None} if hands_over else {}))
            if (wake or kept.row.kept_by) and needs_driving(self._seen(kept)):
                self._set(kept, wakes_at=0)
        self._tell()
        return self._seen(top)

    def _close_reasons(self, kept: Kept, by: str | None, at: int) -> bool:
        found = [each for each in kept.pauses if each.kind != "operator" and each.closed_at is None]
        kept.pauses = [replace(each, closed_at=at, closed_by=by) if each in found else each for each in kept.pauses]
        if found:
            self._set(kept, crashes=0)
        return bool(found)

    async def cancel(self, session_id: str, by: str | None, reason: str, at: int) -> Found:
        self._check()
        top = self._named(session_id)
        if not self._takes(top):
            return Found([self._seen(top)])
        found = [top, *self._below(top)]
        self._cancel(found, by, reason, at)
        self._tell()
        return Found(self._seen(kept) for kept in found)

    def _below(self, top: Kept) -> list[Kept]:
        return [kept for kept in self._tree(top.row.session_id) if kept is not top and not over(kept.row)]

    def _cancel(self, found: list[Kept], by: str | None, reason: str, at: int) -> None:
        for kept in found:
            if not over(kept.row) and not kept.row.cancel_requested:
                self._signal(kept, "cancel", by, at, msgspec.json.encode({"reason": reason}))
                self._set(kept, cancel_requested=True)
            self._end(kept, at)

    async def send(self, session_id: str, by: str | None, at: int, payload: bytes) -> SessionRow:
        self._check()
        kept = self._named(session_id)
        if over(kept.row):
            raise SessionEnded(f"{session_id} has ended", session_id=session_id, status=str(kept.row.ended))
        self._deliver(kept, self._signal(kept, "message", by, at, payload), "message")
        self._tell(kept.row.key)
        return self._seen(kept)

    def _frozen_since(self, kept: Kept) -> int | None:
        rounds = self.data.rounds if kept.row.ended is None else ()
        return frozen_since(rounds, kept.exempt, own_freeze(kept), noted(kept))

    async def pauses(self, key: int, open_only: bool = True) -> list[Pause]:
        self._check()
        kept, stands, rounds = self._by(key), self.data.standing, self.data.rounds
        lifts = {each.epoch: each for each in rounds if each.lifted_at is not None}
        found = []
        for each in kept.pauses:
            if each.standing and each.closed_at is None:
                lift = lifts.get(kept.epochs[each.id])
                if lift is not None:
                    each = replace(each, closed_at=lift.lifted_at, closed_by=lift.lifted_by)
                elif stands is not None:
                    each = replace(each, mode=stands.mode)
            found.append(each)
        if stands is not None and self._stopped(kept) and rounds[-1].epoch not in noted(kept):
            since = min(each.at for each in rounds if each.lifted_at is None and each.round > kept.exempt)
            later = [n for n, each in enumerate(found) if each.created_at > since]
            found.insert(later[0] if later else len(found), replace(stands, created_at=since))
        return [pause for pause in found if pause.closed_at is None or not open_only]

    async def first_pauses(self, keys: Sequence[int]) -> dict[int, Pause]:
        self._check()
        known = [kept.row.key for kept in self._known() if kept.row.key in keys]
        found = {key: await self.pauses(key) for key in known}
        return {key: pauses[0] for key, pauses in found.items() if pauses}

    async def signals(self, key: int, after: int, until: int | None = None) -> list[SignalRecord]:
        self._check()
        kept = self._by(key)
        previous = first_digest(kept.row.session_id)
        for signal in kept.signals:
            if not signal_intact(signal, previous):
                raise DamagedRecord(f"signal {signal.n} does not match its digest", n=signal.n)
            previous = signal.digest
        return [signal for signal in kept.signals if after < signal.n <= (until or signal.n)]

    async def mail(
        self, key: int, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        self._check()
        kept = self._by(key)
        found = [kept.signals[n - 1] for n in sorted(kept.inbox)]
        found = [each for each in found if kind in (None, each.kind)]
        return [each for each in found if about in (None, questions.about(each.kind, each.payload))][:limit]


def _request_of(pause: Pause) -> dict[str, Any]:
    return {"reason": pause.reason, "mode": pause.mode} | ({"freeze": True} if pause.freeze else {})
