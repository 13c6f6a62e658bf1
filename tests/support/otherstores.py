"""Stores that are not the SQLite one: a proxy that can refuse, and a second store made of dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from holdfast.errors import AlreadyRunning, HoldLost, SessionEnded, UnknownSession
from holdfast.model import Commit, Filter, Flags, NewSession, Pause, Record, SessionRow, SignalRecord
from holdfast.store import Store


class ProxyStore:
    """Hands every verb of the protocol, and nothing else, to another store; ``before_commit`` may raise instead."""

    def __init__(self, inner: Store, before_commit: Callable[[Commit], None] = lambda commit: None) -> None:
        self._inner = inner
        self.before_commit = before_commit
        self.used: set[str] = set()

    async def commit(self, commit: Commit) -> Flags | None:
        self.used.add("commit")
        self.before_commit(commit)
        return await self._inner.commit(commit)

    def __getattr__(self, name: str) -> Any:
        if name not in Store.__dict__:
            raise AttributeError(f"{name} is not a verb of the Store protocol")
        self.used.add(name)
        return getattr(self._inner, name)


@dataclass
class _Kept:
    row: SessionRow
    records: list[Record]
    pauses: list[Pause] = field(default_factory=list)
    signals: list[SignalRecord] = field(default_factory=list)


class DictStore:
    """A `holdfast.store.Store` in plain dictionaries: one engine, one process, no file.

    It shares no code with the SQLite store. ``kept`` outlives the store, so another one can be opened on it.
    """

    def __init__(self, kept: dict[str, _Kept] | None = None) -> None:
        self.kept: dict[str, _Kept] = {} if kept is None else kept
        self.large: dict[bytes, bytes] = {}

    @property
    def number(self) -> int:
        return 1

    @property
    def trouble(self) -> str | None:
        return None

    async def open(self, on_change: Callable[[], None]) -> None:
        self.on_change = on_change

    async def close(self) -> None:
        for kept in self.kept.values():
            kept.row = replace(kept.row, holder=None, live=False)

    async def create(self, new: NewSession) -> SessionRow | None:
        if new.session_id in self.kept:
            return None
        last = new.records[-1]
        row = SessionRow(
            key=len(self.kept) + 1, session_id=new.session_id, workflow=new.workflow, version=new.version,
            owner=new.owner, tags=new.tags, input_digest=new.input_digest, created_at=new.created_at,
            updated_at=new.created_at, seq=last.seq, key_frame=1, digest=last.digest, step=new.step, visit=new.visit,
            leaving=False, ended=None, failure=None, pause_requested=False, pause_mode="finish",
            cancel_requested=False, holder=1 if new.claim else None, fence=int(new.claim), live=new.claim,
            waiting=None, wakes_at=None, crashes=0, spent_usd=0, spent_tokens=0, budget_usd=new.budget_usd,
            open_pauses=0, progress=None,
        )  # fmt: skip
        self.large.update(new.blobs)
        kept = self.kept[new.session_id] = _Kept(row, list(new.records))
        if new.pause is not None:
            self._ask(kept, new.pause)
        return kept.row

    async def get(self, session_id: str) -> SessionRow | None:
        return self.kept[session_id].row if session_id in self.kept else None

    async def find(self, query: Filter) -> list[SessionRow]:
        wanted = {"session_id": query.session_id, "workflow": query.workflow, "owner": query.owner}
        rows = [kept.row for kept in self.kept.values()]
        rows = [row for row in rows if all(v is None or getattr(row, k) == v for k, v in wanted.items())]
        rows = [row for row in rows if query.tag is None or query.tag in row.tags]
        return sorted(rows, key=lambda row: row.created_at, reverse=True)[: query.limit]

    async def records(self, key: int, since: int, until: int | None = None) -> list[Record]:
        return [each for each in self._by(key).records if since <= each.seq <= (until or each.seq)]

    async def blobs(self, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
        return {each: self.large[each] for each in hashes}

    async def claim(self, session_id: str, steal: bool = False) -> SessionRow:
        kept = self._known(session_id)
        if kept.row.ended in ("completed", "cancelled"):
            raise SessionEnded(f"{session_id} has ended", session_id=session_id, status=kept.row.ended)
        if kept.row.live and not steal:
            raise AlreadyRunning(f"{session_id} is driven", session_id=session_id, holder=self.describe_holder(1))
        return self._set(kept, holder=1, live=True, fence=kept.row.fence + 1, ended=None)

    async def commit(self, commit: Commit) -> Flags | None:
        kept = self._by(commit.key)
        row = kept.row
        if (row.seq, row.fence, row.live) != (commit.base_seq, commit.fence, True):
            raise HoldLost(f"{row.session_id} is no longer held here", session_id=row.session_id)
        if commit.only_if_paused and not row.pause_requested:
            return None
        kept.records += commit.records
        self.large.update(commit.blobs)
        closed = {"closed_at": commit.updated_at, "closed_by": commit.closed_by}
        kept.pauses += commit.open_pauses
        over = commit.ended in ("completed", "cancelled")
        kept.pauses = [
            replace(each, **closed) if each.closed_at is None and (over or each.id in commit.close_pauses) else each
            for each in kept.pauses
        ]
        held: dict[str, Any] = {"holder": None, "live": False} if commit.release else {}
        if over:
            held |= {"pause_requested": False, "pause_mode": "finish"}
        self._set(
            kept, seq=kept.records[-1].seq, digest=kept.records[-1].digest, updated_at=commit.updated_at,
            key_frame=commit.key_frame, step=commit.step, visit=commit.visit, leaving=commit.leaving,
            ended=commit.ended, failure=commit.failure, spent_usd=row.spent_usd + commit.spend_usd,
            spent_tokens=row.spent_tokens + commit.spend_tokens, progress=commit.progress, **held,
        )  # fmt: skip
        return _flags(row)

    async def flags(self, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
        rows = [self._by(key).row for key in keys]
        return {row.key: (row.fence, _flags(row)) for row in rows}

    async def pause(self, query: Filter, pause: Pause) -> list[SessionRow]:
        rows = await self.find(query)
        return [row if _over(row) else self._ask(self.kept[row.session_id], pause) for row in rows]

    def _ask(self, kept: _Kept, pause: Pause) -> SessionRow:
        asked = kept.row.pause_requested
        raised = pause.mode == "abort" and kept.row.pause_mode == "finish"
        if asked and not raised:
            return kept.row
        if not asked:
            kept.pauses.append(replace(pause, id=str(uuid4()), step=kept.row.step or ""))
        self._signal(kept, "pause", pause.by, pause.at, {"reason": pause.reason, "mode": pause.mode})
        return self._set(kept, pause_requested=True, pause_mode="abort" if raised else kept.row.pause_mode)

    async def unpause(self, session_id: str, by: str | None, at: int, budget_usd: int | None = None) -> SessionRow:
        kept = self._known(session_id)
        if not kept.row.pause_requested and budget_usd is None:
            return kept.row
        kept.pauses = [
            replace(each, closed_at=at, closed_by=by) if each.kind == "operator" and each.closed_at is None else each
            for each in kept.pauses
        ]
        self._signal(kept, "resume", by, at, {})
        budget = {} if budget_usd is None else {"budget_usd": budget_usd}
        return self._set(kept, pause_requested=False, pause_mode="finish", **budget)

    async def cancel(self, session_id: str, by: str | None, reason: str, at: int) -> list[SessionRow]:
        kept = self._known(session_id)
        if not _over(kept.row) and not kept.row.cancel_requested:
            self._signal(kept, "cancel", by, at, {"reason": reason})
            self._set(kept, cancel_requested=True)
        return [kept.row]

    async def pauses(self, key: int, open_only: bool = True) -> list[Pause]:
        return [pause for pause in self._by(key).pauses if pause.closed_at is None or not open_only]

    async def signals(self, key: int, after: int) -> list[SignalRecord]:
        return [signal for signal in self._by(key).signals if signal.n > after]

    def describe_holder(self, holder: int | None) -> str:
        return "this process" if holder else "nobody"

    def _signal(self, kept: _Kept, kind: str, by: str | None, at: int, data: dict[str, str]) -> None:
        n = len(kept.signals) + 1
        kept.signals.append(SignalRecord(n, kept.row.seq, kind, by, at, msgspec.json.encode(data), b""))

    def _set(self, kept: _Kept, **changes: Any) -> SessionRow:
        open_pauses = sum(pause.closed_at is None for pause in kept.pauses)
        kept.row = replace(kept.row, open_pauses=open_pauses, **changes)
        return kept.row

    def _known(self, session_id: str) -> _Kept:
        if session_id not in self.kept:
            raise UnknownSession(f"no session {session_id!r}", session_id=session_id)
        return self.kept[session_id]

    def _by(self, key: int) -> _Kept:
        return next(kept for kept in self.kept.values() if kept.row.key == key)


def _over(row: SessionRow) -> bool:
    return row.ended in ("completed", "cancelled")


def _flags(row: SessionRow) -> Flags:
    return Flags(row.pause_requested, row.pause_mode, row.cancel_requested)
