"""Sessions: their rows, records and files, and the commits of the engine that holds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from pausepoint.errors import (
    DamagedRecord,
    FileRefused,
    HoldLost,
    SessionEnded,
    VerbRefused,
)
from pausepoint.model.budgets import Purse
from pausepoint.model.commits import Commit, Flags, NewSession, overlooks_a_wake
from pausepoint.model.files import FileFacts, file_facts
from pausepoint.model.limits import LOOK_AGAIN, in_effect
from pausepoint.model.records import Record, SignalRecord, first_digest, intact
from pausepoint.model.sessions import Filter, Pause, QuestionStatus, SessionRow, Status, position
from pausepoint.stores import text
from pausepoint.stores.found import Found
from tests.support.dictstore.base import described
from tests.support.dictstore.data import Kept, KeptDrawer, flags_of, is_open_request, over
from tests.support.dictstore.limits import Limits


class Sessions(Limits):
    """Sessions: their rows, records and files, and the commits of the engine that holds them."""

    async def create(self, new: NewSession) -> SessionRow | None:
        self._check()
        for other in (new.parent, new.drawers_of):
            if other is not None:
                self._by(other)
        if self._find_id(new.session_id) is not None:
            return None
        if missing := [name for name in new.names if name not in self.data.large]:
            raise DamagedRecord(f"the stored value {missing[0].hex()} is missing")
        pause = new.pause or self._pause_above(new.parent)
        if new.parent is None and self.data.standing is not None:
            new = replace(new, claim=False, due=False)
        if new.claim and not new.guest and not self._use_slot(new, self.clock.now()):
            new = replace(new, claim=False, due=True)
        last = new.records[-1]
        frames = [record.seq for record in new.records if record.kind == "key"]
        self.data.last_key += 1
        row = SessionRow(
            key=self.data.last_key, session_id=new.session_id, workflow=new.workflow, version=new.version,
            owner=new.owner, tags=new.tags, input_digest=new.input_digest, created_at=new.created_at,
            updated_at=new.created_at, seq=last.seq, key_frame=frames[-1] if frames else new.records[0].seq,
            digest=last.digest, step=new.step, visit=new.visit, held_by_guard=new.held_by_guard, ended=None,
            failure=None, pause_requested=False, pause_mode="finish", cancel_requested=False,
            holder=self._number if new.claim else None, fence=int(new.claim), live=False, waiting=None,
            wakes_at=0 if new.due and not new.claim else None, crashes=0, spent_usd=0, spent_tokens=0,
            budget_usd=new.budget_usd, open_pauses=0,
            progress=None, parent=new.parent, keep_for=new.keep_for, budget_tokens=new.budget_tokens,
            budget_operations=new.budget_operations, guest=new.guest, queue=new.queue, priority=new.priority,
            lane=new.lane,
        )  # fmt: skip
        kept = self.data.sessions[row.key] = Kept(row, list(new.records))
        for record in new.records:
            self._log("record", row.key, record.seq, record.digest)
        kept.exempt = self._exempt_like(new.parent)
        self._keep(kept, new.blobs)
        kept.names |= set(new.names)
        if new.drawers_of is not None:
            source = {name: each for (key, name), each in self.data.drawers.items() if key == new.drawers_of}
            self.data.drawers |= {(row.key, name): KeptDrawer.of(each.stored()) for name, each in source.items()}
        for file in new.files:
            self._signal(kept, file.kind, file.by, file.at, file.payload)
        if pause is not None:
            self._ask(kept, pause)
        elif new.parent is None:
            self._note(kept, new.created_at)
        if new.parent is not None and self._by(new.parent).row.cancel_requested:
            self._cancel([kept], None, "its parent was cancelled", new.created_at)
        self._tell()
        return self._seen(kept)

    async def get(self, session_id: str, *, sure: bool = False) -> SessionRow | None:
        self._check()
        kept = self._find_id(session_id)
        return None if kept is None else self._seen(kept)

    async def find(self, query: Filter) -> Found:
        self._check()
        rows = [self._seen(kept) for kept in self._matching(query)]
        page = rows[: query.limit]
        return Found(page, next=position(page[-1], query.sort) if page and len(page) < len(rows) else None)

    async def ids(self, query: Filter) -> list[str]:
        return [row.session_id for row in await self.find(query)]

    async def tally(self, query: Filter) -> dict[tuple[str, Status], int]:
        whole = replace(query, after=None, limit=None)
        return dict(Counter((row.workflow, row.status) for row in await self.find(whole)))

    async def spending(self, query: Filter) -> dict[str, int]:
        found: Counter[str] = Counter()
        for row in await self.find(replace(query, after=None, limit=None)):
            found[row.workflow] += row.spent_usd
        return dict(found)

    async def records(self, key: int, since: int, until: int | None = None) -> list[Record]:
        self._check()
        kept = self._by(key)
        first, last = max(since, 1), min(kept.row.seq, until or kept.row.seq)
        found = [each for each in kept.records if first <= each.seq <= last]
        previous = first_digest(kept.row.session_id) if first == 1 else kept.records[first - 2].digest if found else b""
        for record in found:
            if not intact(record, previous):
                raise DamagedRecord(f"record {record.seq} does not match its digest", seq=record.seq)
            previous = record.digest
        return found

    async def key_frame(self, key: int, seq: int) -> int:
        self._check()
        return max(each.seq for each in self._by(key).records if each.kind == "key" and each.seq <= seq)

    async def blobs(self, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
        self._check()
        found = {each: self.data.large.get(each, b"") for each in hashes}
        for each, value in found.items():
            if sha256(value).digest() != each:
                raise DamagedRecord(f"the stored value {each.hex()} is missing or changed", hash=each.hex())
        return found

    async def add_file(
        self, session_id: str, by: str | None, at: int, file: FileFacts, fence: int | None = None
    ) -> tuple[SignalRecord, bool]:
        self._check()
        kept = self._named(session_id)
        if fence not in (None, kept.row.fence):
            raise HoldLost(f"{session_id} moved on", session_id=session_id)
        for signal in await self.files(kept.row.key, sha256=file.sha256):
            if file_facts(signal.payload).size == file.size:
                return signal, False
        if await self.files(kept.row.key, id=file.id):
            raise FileRefused(f"{session_id} has another file {file.id}", session_id=session_id)
        n = self._signal(kept, "file", by, at, msgspec.json.encode(file))
        self._tell()
        return kept.signals[n - 1], True

    async def files(self, key: int, id: str | None = None, sha256: str | None = None) -> list[SignalRecord]:
        found = [each for each in await self.signals(key, 0) if each.kind == "file" and not each.redacted]
        facts = {each.n: file_facts(each.payload) for each in found}
        found = [each for each in found if id in (None, facts[each.n].id)]
        return [each for each in found if sha256 in (None, facts[each.n].sha256)]

    # commits

    async def claim(
        self, session_id: str, steal: bool = False, fence: int | None = None, paused: bool = False
    ) -> SessionRow:  # fmt: skip
        self._check()
        return self._claimed(session_id, steal, fence, paused, self.clock.now())

    def _claimed(self, session_id: str, steal: bool, fence: int | None, paused: bool, now: int) -> SessionRow:
        kept = self._named(session_id)
        row = self._seen(kept)
        if row.ended in ("completed", "cancelled"):
            raise SessionEnded(f"{session_id} has ended", session_id=session_id, status=str(row.ended))
        if row.live and not steal:
            self._refuse_held(row)
        if fence is not None and row.fence != fence:
            raise HoldLost(f"{session_id} has moved on; nothing was written", session_id=session_id)
        if (row.pause_requested or self._is_concerned(kept)) and not paused:
            raise VerbRefused(f"{session_id} is to be paused", session_id=session_id, status=row.status.value)
        self._free(kept)
        self._check_slot(kept, row, now)
        self._settle_lifted(kept)
        self._set(kept, holder=self._number, fence=row.fence + 1, ended=None, waiting=None, wakes_at=None, kept_by=None)
        self._tell(kept.row.key)
        return self._seen(kept)

    async def unkeep(self, key: int, fence: int) -> None:
        self._check()
        kept = self._by(key)
        if (kept.row.fence, kept.row.kept_by) == (fence, self._number):
            self._set(kept, kept_by=None)
            self._tell()

    async def commit(self, commit: Commit) -> Flags | None:
        self._check()
        commit = text.of_commit(commit)
        kept = self.data.sessions.get(commit.key)
        if kept is None or kept.tombstone is not None:
            raise HoldLost(f"no session has the key {commit.key}; nothing was written", session_id="")
        row = kept.row
        if (row.seq, row.fence, row.holder) != (commit.base_seq, commit.fence, self._number):
            who = described(row.holder)
            raise HoldLost(f"{row.session_id} is held by {who}; nothing was written", session_id=row.session_id)
        if commit.only_if_paused and not self._seen(kept).pause_requested:
            return None
        waiting = [each.id for each in kept.questions.values() if each.status is QuestionStatus.WAITING]
        if commit.only_if_waiting and commit.only_if_waiting not in waiting:
            return None
        flags = flags_of(self._seen(kept))
        self._move(kept, commit)
        if commit.only_if_paused and commit.release:
            kept.pauses = [
                replace(each, took_effect_at=commit.updated_at)
                if is_open_request(each) and not each.standing and each.took_effect_at is None
                else each
                for each in kept.pauses
            ]
            self._note(kept, after=commit.base_seq, took_effect_at=commit.updated_at)
        self._tell(*((commit.key,) if commit.parent is None else ()))
        return flags

    async def revise(self, commit: Commit) -> Found:
        self._check()
        kept = self._by(commit.key)
        row = self._seen(kept)
        if row.live:
            self._refuse_held(row)
        if (row.seq, row.fence) != (commit.base_seq, commit.fence) or overlooks_a_wake(row, commit):
            raise HoldLost(f"{row.session_id} has moved on; nothing was written", session_id=row.session_id)
        asked = row.cancel_requested and row.ended != "cancelled"
        self._settle_lifted(kept)
        self._set(kept, fence=row.fence + 1, cancel_requested=asked, waiting=None, wakes_at=None, kept_by=None)
        reopened = over(row) and commit.ended is None
        if reopened:
            kept.exempt = self._exempt_like(row.parent)
        self._move(kept, commit)
        if reopened and (pause := self._pause_above(row.parent)):
            self._ask(kept, pause)
        if reopened:
            self._note(kept, commit.updated_at)
        below = self._below(kept) if commit.cancel_children else []
        self._cancel(below, commit.closed_by, commit.cancel_children, commit.updated_at)
        self._tell()
        return Found(self._seen(each) for each in below)

    def _move(self, kept: Kept, commit: Commit) -> None:
        row, last = kept.row, commit.records[-1]
        kept.records += commit.records
        for record in commit.records:
            self._log("record", row.key, record.seq, record.digest)
        self._keep(kept, commit.blobs)
        self._settle_pauses(kept, commit)
        kept.inbox = [n for n in kept.inbox if n not in commit.consume]
        self._settle_questions(kept, commit)
        changes: dict[str, Any] = {"mail": bool(kept.inbox)}
        if commit.ended in ("completed", "cancelled"):
            changes |= {"pause_requested": False, "pause_mode": "finish"}
        if commit.release:
            came = any(kept.signals[n - 1].kind in (commit.waiting or "").split(",") for n in kept.inbox)
            changes |= {"holder": None, "waiting": commit.waiting, "wakes_at": 0 if came else commit.wakes_at}
            changes["kept_by"] = self._number if commit.kept else None
        if commit.thaw:
            changes["frozen"] = 0
            kept.exempt = max(kept.exempt, self._last_lifted())
        self._set(
            kept, seq=last.seq, digest=last.digest, updated_at=max(row.updated_at, commit.updated_at),
            key_frame=commit.key_frame, step=commit.step, visit=commit.visit, held_by_guard=commit.held_by_guard,
            ended=commit.ended, failure=commit.failure, crashes=row.crashes if commit.keep_crashes else 0,
            progress=commit.progress, version=commit.version or row.version, **changes,
        )  # fmt: skip
        if commit.release and commit.waiting is None and kept.row.wakes_at is None and self._stopped(kept):
            self._set(kept, wakes_at=0)
        self._charge(kept, commit)
        self._report(commit)
        self._redact(kept, commit)

    def _settle_pauses(self, kept: Kept, commit: Commit) -> None:
        over = commit.ended in ("completed", "cancelled")
        kept.pauses = [
            replace(each, closed_at=commit.updated_at, closed_by=commit.closed_by)
            if each.closed_at is None and ((over and self._is_open(kept, each)) or each.id in commit.close_pauses)
            else each
            for each in (*kept.pauses, *commit.open_pauses)
        ]

    def _is_open(self, kept: Kept, pause: Pause) -> bool:
        return not pause.standing or (
            self.data.standing is not None and kept.epochs[pause.id] == self.data.rounds[-1].epoch
        )

    def _charge(self, kept: Kept, commit: Commit) -> None:
        """Add the spending to the session, and to all sessions above it if the commit names a parent."""
        up: Kept | None = kept
        while up is not None:
            usd, tokens = up.row.spent_usd + commit.spend_usd, up.row.spent_tokens + commit.spend_tokens
            operations = up.row.spent_operations + commit.spend_operations
            self._set(up, spent_usd=usd, spent_tokens=tokens, spent_operations=operations)
            up = None if commit.parent is None or up.row.parent is None else self.data.sessions.get(up.row.parent)

    def _report(self, commit: Commit) -> None:
        parent = None if commit.parent is None else self.data.sessions.get(commit.parent)
        if parent is None or commit.report is None or over(parent.row):
            return
        n = self._signal(parent, "child", None, commit.updated_at, commit.report.payload)
        if commit.report.ends:
            self._deliver(parent, n, "child")

    def _redact(self, kept: Kept, commit: Commit) -> None:
        blank: dict[str, Any] = {"payload": b"", "salt": b""}
        kept.records = [replace(each, **blank) if each.seq in commit.redact else each for each in kept.records]
        kept.signals = [replace(each, **blank) if each.n in commit.redact_signals else each for each in kept.signals]
        kept.names -= set(commit.unname)
        for name in commit.empty_drawers:
            if (drawer := self.data.drawers.get((kept.row.key, name))) is not None:
                drawer.streams, drawer.values = {}, {}

    # the waker

    async def flags(self, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
        self._check()
        rows = [self._seen(kept) for kept in self._known() if kept.row.key in keys]
        return {row.key: (row.fence, flags_of(row)) for row in rows}

    async def purses(self, key: int) -> list[Purse]:
        self._check()
        found: list[Purse] = []
        up: int | None = key
        while up is not None:
            row = self._by(up).row
            limits = row.budget_usd, row.budget_tokens, row.budget_operations
            if limits != (None, None, None):
                found.append(Purse(row.session_id, row.spent_usd, row.spent_tokens, row.spent_operations, *limits))
            up = row.parent
        return found

    def _rows_of(self, workflows: Sequence[str], tree: str | None = None) -> list[SessionRow]:
        known = self._known() if tree is None else self._tree(tree)
        return [self._seen(kept) for kept in known if kept.row.workflow in workflows]

    async def due(
        self, now: int, workflows: Sequence[str], limit: int, tree: str | None = None,
        queues: Sequence[str] | None = None, skip: Mapping[int, int] | None = None,
    ) -> list[SessionRow]:  # fmt: skip
        self._check()
        rows = [row for row in self._rows_of(workflows, tree) if not over(row)]
        rows = [row for row in rows if (skip or {}).get(row.key) != row.seq]
        rows = [row for row in rows if not row.live and row.kept_by is None and not row.guest]
        rows = [row for row in rows if not row.open_pauses and not row.pause_requested]
        rows = [row for row in rows if queues is None or row.queue in queues]
        rows = [row for row in rows if row.wakes_at is not None and (row.wakes_at == 0 or row.wakes_at <= now)]
        return self._in_turn(rows, now, limit)

    async def take(
        self, now: int, workflows: Sequence[str], limit: int, skip: Mapping[int, int] | None = None,
        queues: Sequence[str] | None = None,
    ) -> list[SessionRow]:  # fmt: skip
        await self.reap()
        rows = [
            row
            for row in self._rows_of(workflows)
            if row.ready_at is not None and row.ready_at <= now and not row.under_everything
        ]
        rows = [row for row in rows if row.kept_by is None and (skip or {}).get(row.key) != row.seq]
        rows = [row for row in rows if queues is None or row.queue in queues]
        return [self._claimed(row.session_id, False, None, False, now) for row in self._in_turn(rows, now, limit)]

    async def reap(self) -> frozenset[int]:
        self._check()
        freed = [kept for kept in self._known() if self._free(kept)]
        for kept in freed:
            self._end(kept, self.clock.now())
        if freed:
            self._tell()
        return frozenset(kept.row.key for kept in freed)

    def _free(self, kept: Kept) -> bool:
        """Release a session whose engine died, and count a crash. Return whether it did."""
        died = kept.row.holder is not None and kept.row.holder not in self.data.engines
        if died:
            self._set(kept, holder=None, crashes=kept.row.crashes + 1)
        return died

    async def release(self, key: int, fence: int) -> None:
        self._check()
        kept = self._by(key)
        if (kept.row.fence, kept.row.holder) == (fence, self._number):
            self._set(kept, holder=None)
            self._tell()

    async def next_wake(self, now: int, workflows: Sequence[str], tree: str | None = None) -> int | None:
        self._check()
        rows = [row for row in self._rows_of(workflows, tree) if not row.pause_requested and not row.guest]
        times = [each.next_at(now) for each in self.data.limits.values()]
        times += [row.wakes_at for row in rows]
        if in_effect(self.data.limits.values()):
            came = [row for row in rows if row.wakes_at is not None and row.wakes_at <= now and not over(row)]
            times += [now + LOOK_AGAIN] if any(not row.live for row in came) else []
        return min((at for at in times if at and at > now), default=None)

    async def waking(self, now: int, limit: int, owner: str | None = None) -> Found:
        rows = await self.find(Filter(owner=owner, unended=True))
        found = [row for row in rows if row.wakes_at and row.wakes_at > now and row.ended is None]
        found = [row for row in found if not (row.pause_requested or row.open_pauses or row.guest or row.live)]
        return Found(sorted(found, key=lambda row: (row.wakes_at, row.key))[:limit])
