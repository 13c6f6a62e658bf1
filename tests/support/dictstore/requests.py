"""Requests from outside: pause, resume, cancel, messages, and the signals that record them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from pausepoint.errors import (
    DamagedRecord,
    SessionEnded,
)
from pausepoint.model import questions
from pausepoint.model.records import SignalRecord, first_digest, signal_intact
from pausepoint.model.sessions import (
    Filter,
    Pause,
    SessionRow,
    needs_driving,
)
from pausepoint.stores.base import Found
from tests.support.dictstore.base import Base
from tests.support.dictstore.data import Kept, is_open_request, is_part_of_all, over


class Requests(Base):
    """Requests from outside: pause, resume, cancel, messages, and the signals that record them."""

    async def pause(self, query: Filter, pause: Pause) -> Found:
        self._check()
        if query.session_id is not None:
            self._named(query.session_id)
        if pause.standing:
            known = self.data.standing or replace(pause, id=str(uuid4()))
            raised = "abort" if "abort" in (known.mode, pause.mode) else "finish"
            self.data.standing = replace(known, mode=raised, freeze=known.freeze or pause.freeze)
        found = self._matching(query)
        for kept in found:
            if not over(kept.row):
                self._ask(kept, pause)
        self._tell()
        return Found(self._seen(kept) for kept in found)

    def _ask(self, kept: Kept, pause: Pause) -> None:
        asked = any(is_open_request(each) and each.standing <= pause.standing for each in kept.pauses)
        raised = pause.mode == "abort" and kept.row.pause_mode == "finish"
        freezes = pause.freeze and not any(is_open_request(each) and each.freeze for each in kept.pauses)
        if asked and not raised and not freezes:
            return
        if raised:
            kept.pauses = [replace(each, mode="abort") if is_open_request(each) else each for each in kept.pauses]
        if freezes or not asked:
            step = kept.row.step or ""
            kept.pauses.append(replace(pause, id=str(uuid4()), kind="operator", step=step, closed_at=None))
        data: dict[str, Any] = {"reason": pause.reason, "mode": pause.mode}
        data |= {"freeze": True} if pause.freeze else {}
        self._signal(kept, "pause", pause.by, pause.created_at, msgspec.json.encode(data))
        self._set(kept, pause_requested=True, pause_mode="abort" if raised else kept.row.pause_mode)

    def _pause_above(self, parent: int | None, at: int) -> Pause | None:
        if parent is None:
            return None if self.data.standing is None else replace(self.data.standing, created_at=at)
        found = [each for each in self._by(parent).pauses if is_open_request(each)]
        return next((each for each in found if not each.standing), found[0] if found else None)

    async def standing_pause(self) -> Pause | None:
        self._check()
        return self.data.standing

    async def lift(self, by: str | None, at: int) -> Found:
        self._check()
        self.data.standing = None
        found = [kept for kept in self._known() if any(map(is_part_of_all, kept.pauses))]
        for kept in found:
            self._lift(kept, by, at)
        self._tell()
        return Found(self._seen(kept) for kept in found)

    def _lift(self, kept: Kept, by: str | None, at: int) -> None:
        before = [each.created_at for each in kept.pauses if is_open_request(each) and each.freeze]
        kept.pauses = [
            replace(each, closed_at=at, closed_by=by) if is_part_of_all(each) else each for each in kept.pauses
        ]
        after = [each.created_at for each in kept.pauses if is_open_request(each) and each.freeze]
        frozen = max(min(after, default=at) - min(before), 0) if before else 0
        self._set(kept, frozen=kept.row.frozen + frozen)
        if not any(map(is_open_request, kept.pauses)):
            self._signal(kept, "resume", by, at, b"{}")
            self._set(kept, pause_requested=False, pause_mode="finish")
        if needs_driving(self._seen(kept)):
            self._set(kept, wakes_at=0)

    async def unpause(
        self, session_id: str, by: str | None, at: int, budget_usd: int | None = None, wake: bool = False
    ) -> SessionRow:
        self._check()
        top = self._named(session_id)
        for kept in self._tree(session_id):
            budget = {} if budget_usd is None or kept is not top else {"budget_usd": budget_usd}
            if not kept.row.pause_requested and not budget:
                continue
            since = [each.created_at for each in kept.pauses if is_open_request(each) and each.freeze]
            frozen = max(at - min(since), 0) if since else 0
            kept.pauses = [
                replace(each, closed_at=at, closed_by=by) if is_open_request(each) else each for each in kept.pauses
            ]
            self._signal(kept, "resume", by, at, msgspec.json.encode(budget))
            frozen += kept.row.frozen
            self._set(kept, pause_requested=False, pause_mode="finish", frozen=frozen, **budget)
            if (wake or kept.row.kept_by) and needs_driving(self._seen(kept)):
                self._set(kept, wakes_at=0)
        self._tell()
        return self._seen(top)

    async def cancel(self, session_id: str, by: str | None, reason: str, at: int) -> Found:
        self._check()
        top = self._named(session_id)
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

    async def send(self, session_id: str, by: str | None, at: int, payload: bytes) -> SessionRow:
        self._check()
        kept = self._named(session_id)
        if over(kept.row):
            raise SessionEnded(f"{session_id} has ended", session_id=session_id, status=str(kept.row.ended))
        self._deliver(kept, self._signal(kept, "message", by, at, payload), "message")
        self._tell()
        return self._seen(kept)

    async def pauses(self, key: int, open_only: bool = True) -> list[Pause]:
        self._check()
        return [pause for pause in self._by(key).pauses if pause.closed_at is None or not open_only]

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
