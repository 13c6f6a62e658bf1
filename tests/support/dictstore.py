"""A second store, made of dictionaries: it shares no code with the SQLite one, so the suite cannot be about SQLite."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from pausepoint.clock import Clock, SystemClock
from pausepoint.errors import (
    AlreadyRunning,
    DamagedRecord,
    FileRefused,
    HoldLost,
    SessionEnded,
    StoreClosed,
    UnknownSession,
    VerbRefused,
)
from pausepoint.model import questions
from pausepoint.model.files import FileFacts, file_facts
from pausepoint.model.questions import Answer, Answered, Inquiry, QuestionRow, choose, judge, reply, settled
from pausepoint.model.records import Record, SignalRecord, first_digest, intact, seal_signal, signal_intact
from pausepoint.model.sessions import (
    About,
    Commit,
    Filter,
    Flags,
    Holder,
    NewSession,
    Pause,
    Proved,
    QuestionChange,
    QuestionFacts,
    QuestionStatus,
    Removal,
    SessionRow,
    Sort,
    Space,
    Status,
    Sweep,
    Tombstone,
    Whole,
    has_expired,
    would_go_on,
)
from pausepoint.stores.base import Found, FoundQuestions

OPEN = (QuestionStatus.WAITING, QuestionStatus.RESUMED)


@dataclass
class Kept:
    """One session."""

    row: SessionRow
    records: list[Record]
    pauses: list[Pause] = field(default_factory=list)
    signals: list[SignalRecord] = field(default_factory=list)
    inbox: list[int] = field(default_factory=list)
    names: set[bytes] = field(default_factory=set)
    questions: dict[int, QuestionFacts] = field(default_factory=dict)
    tombstone: Tombstone | None = None  # while it is being removed


@dataclass
class Data:
    """What all engines on it share, and what outlives them."""

    sessions: dict[int, Kept] = field(default_factory=dict)
    large: dict[bytes, bytes] = field(default_factory=dict)
    stones: list[Tombstone] = field(default_factory=list)
    engines: dict[int, Callable[[], None]] = field(default_factory=dict)
    standing: Pause | None = None
    last_key: int = 0
    last_question: int = 0
    last_engine: int = 0


class DictStore:
    """A `pausepoint.stores.base.Store` in plain dictionaries, for one process."""

    def __init__(self, data: Data | None = None, clock: Clock | None = None) -> None:
        self.data = data or Data()
        self.clock = clock or SystemClock()
        self._number = 0
        self._closed = False

    # life

    @property
    def number(self) -> int:
        return self._number

    @property
    def trouble(self) -> str | None:
        return None

    async def open(self, on_change: Callable[[], None]) -> None:
        if self._closed or self._number:
            raise StoreClosed("this store was opened before; make another one")
        self.data.last_engine += 1
        self._number = self.data.last_engine
        self.data.engines[self._number] = on_change

    async def close(self) -> None:
        await asyncio.sleep(0)  # what was submitted a moment ago comes first
        for kept in self.data.sessions.values():
            if self._number and kept.row.holder == self._number:
                kept.row = replace(kept.row, holder=None)
        self.data.engines.pop(self._number, None)
        self._closed = True

    def describe_holder(self, holder: int | None) -> str:
        self._check()
        return f"engine {holder}" if holder else "nobody"

    def _check(self) -> None:
        if self._closed or not self._number:
            raise StoreClosed("the store is not open")

    def _tell(self) -> None:
        loop = asyncio.get_running_loop()
        for number, on_change in self.data.engines.items():
            if number != self._number:
                loop.call_soon(on_change)

    # sessions

    async def create(self, new: NewSession) -> SessionRow | None:
        self._check()
        if self._find_id(new.session_id) is not None:
            return None
        if missing := [name for name in new.names if name not in self.data.large]:
            raise DamagedRecord(f"the stored value {missing[0].hex()} is missing")
        pause = new.pause or self._pause_above(new.parent, new.created_at)
        if new.parent is None and pause is not None and pause.standing:
            new = replace(new, claim=False)
        last = new.records[-1]
        frames = [record.seq for record in new.records if record.kind == "key"]
        self.data.last_key += 1
        row = SessionRow(
            key=self.data.last_key, session_id=new.session_id, workflow=new.workflow, version=new.version,
            owner=new.owner, tags=new.tags, input_digest=new.input_digest, created_at=new.created_at,
            updated_at=new.created_at, seq=last.seq, key_frame=frames[-1] if frames else new.records[0].seq,
            digest=last.digest, step=new.step, visit=new.visit, leaving=new.leaving, ended=None, failure=None,
            pause_requested=False, pause_mode="finish", cancel_requested=False,
            holder=self._number if new.claim else None, fence=int(new.claim), live=False, waiting=None,
            wakes_at=None, crashes=0, spent_usd=0, spent_tokens=0, budget_usd=new.budget_usd, open_pauses=0,
            progress=None, parent=new.parent, keep_for=new.keep_for,
        )  # fmt: skip
        kept = self.data.sessions[row.key] = Kept(row, list(new.records))
        self._keep(kept, new.blobs)
        kept.names |= set(new.names)
        for file in new.files:
            self._signal(kept, file.kind, file.by, file.at, file.payload)
        if pause is not None:
            self._ask(kept, pause)
        if new.parent is not None and self._by(new.parent).row.cancel_requested:
            self._cancel([kept], None, "its parent was cancelled", new.created_at)
        self._tell()
        return self._seen(kept)

    def _pause_above(self, parent: int | None, at: int) -> Pause | None:
        if parent is None:
            return None if self.data.standing is None else replace(self.data.standing, at=at)
        found = [each for each in self._by(parent).pauses if _is_open_request(each)]
        return next((each for each in found if not each.standing), found[0] if found else None)

    async def get(self, session_id: str) -> SessionRow | None:
        self._check()
        kept = self._find_id(session_id)
        return None if kept is None else self._seen(kept)

    async def find(self, query: Filter) -> Found:
        self._check()
        return Found(self._seen(kept) for kept in self._matching(query))

    def _matching(self, query: Filter) -> list[Kept]:
        wanted = {"workflow": query.workflow, "owner": query.owner, "parent": query.parent}
        if not query.tree:
            wanted["session_id"] = query.session_id
        found = self._known() if not query.tree else self._tree(query.session_id)
        found = [each for each in found if all(v in (None, getattr(each.row, k)) for k, v in wanted.items())]
        found = [each for each in found if each.row.session_id.startswith(query.prefix or "")]
        found = [each for each in found if query.tag is None or query.tag in each.row.tags]
        found = [each for each in found if not query.unended or not _over(each.row)]
        found = [each for each in found if query.input_digest in (None, each.row.input_digest)]
        found = [each for each in found if not query.statuses or self._seen(each).status in query.statuses]
        above = {each.row.key for each in found} if query.level == "top" else set(self.data.sessions)
        found = [each for each in found if query.level == "any" or each.row.parent not in above]
        falling = query.sort in ("created", "updated", "spent")
        return sorted(found, key=lambda each: _sorted_by(each.row, query.sort), reverse=falling != query.reverse)[
            : query.limit
        ]

    async def tally(self, query: Filter) -> dict[tuple[str, Status], int]:
        return dict(Counter((row.workflow, row.status) for row in await self.find(query)))

    def _tree(self, session_id: str | None) -> list[Kept]:
        found = [each for each in self._known() if each.row.session_id == session_id]
        for above in found:
            found += [each for each in self._known() if each.row.parent == above.row.key]
        return found

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

    # driving

    async def claim(self, session_id: str, steal: bool = False, fence: int | None = None) -> SessionRow:
        self._check()
        kept = self._named(session_id)
        row = self._seen(kept)
        if row.ended in ("completed", "cancelled"):
            raise SessionEnded(f"{session_id} has ended", session_id=session_id, status=str(row.ended))
        if row.live and not steal:
            self._refuse_held(row)
        if fence is not None and row.fence != fence:
            raise HoldLost(f"{session_id} has moved on; nothing was written", session_id=session_id)
        crashed = row.holder is not None and not row.live
        self._set(
            kept, holder=self._number, fence=row.fence + 1, ended=None, crashes=row.crashes + crashed, waiting=None,
            wakes_at=None,
        )  # fmt: skip
        return self._seen(kept)

    async def commit(self, commit: Commit) -> Flags | None:
        self._check()
        kept = self.data.sessions.get(commit.key)
        if kept is None or kept.tombstone is not None:
            raise HoldLost(f"no session has the key {commit.key}; nothing was written", session_id="")
        row = kept.row
        if (row.seq, row.fence, row.holder) != (commit.base_seq, commit.fence, self._number):
            who = self.describe_holder(row.holder)
            raise HoldLost(f"{row.session_id} is held by {who}; nothing was written", session_id=row.session_id)
        if commit.only_if_paused and not row.pause_requested:
            return None
        waiting = [each.id for each in kept.questions.values() if each.status is QuestionStatus.WAITING]
        if commit.only_if_waiting and commit.only_if_waiting not in waiting:
            return None
        flags = _flags(row)
        self._move(kept, commit)
        self._tell()
        return flags

    async def revise(self, commit: Commit) -> None:
        self._check()
        kept = self._by(commit.key)
        row = self._seen(kept)
        if row.live:
            self._refuse_held(row)
        if (row.seq, row.fence) != (commit.base_seq, commit.fence):
            raise HoldLost(f"{row.session_id} has moved on; nothing was written", session_id=row.session_id)
        asked = row.cancel_requested and row.ended != "cancelled"
        if commit.cancel_children:
            self._cancel(self._below(kept), commit.closed_by, commit.cancel_children, commit.updated_at)
        self._set(kept, fence=row.fence + 1, cancel_requested=asked, waiting=None, wakes_at=None)
        self._move(kept, commit)
        if _over(row) and commit.ended is None and (pause := self._pause_above(row.parent, commit.updated_at)):
            self._ask(kept, pause)
        self._tell()

    def _move(self, kept: Kept, commit: Commit) -> None:
        row, last = kept.row, commit.records[-1]
        kept.records += commit.records
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
        if commit.thaw:
            changes["frozen"] = 0
        self._set(
            kept, seq=last.seq, digest=last.digest, updated_at=max(row.updated_at, commit.updated_at),
            key_frame=commit.key_frame, step=commit.step, visit=commit.visit, leaving=commit.leaving,
            ended=commit.ended, failure=commit.failure, crashes=row.crashes if commit.keep_crashes else 0,
            progress=commit.progress, version=commit.version or row.version, **changes,
        )  # fmt: skip
        self._charge(kept, commit)
        self._report(commit)
        self._redact(kept, commit)

    def _settle_pauses(self, kept: Kept, commit: Commit) -> None:
        over = commit.ended in ("completed", "cancelled")
        kept.pauses = [
            replace(each, closed_at=commit.updated_at, closed_by=commit.closed_by)
            if each.closed_at is None and (over or each.id in commit.close_pauses)
            else each
            for each in (*kept.pauses, *commit.open_pauses)
        ]

    def _settle_questions(self, kept: Kept, commit: Commit) -> None:
        for facts in commit.asks:
            known = next((n for n, each in kept.questions.items() if each.id == facts.id), None)
            if known is None:
                self.data.last_question = known = self.data.last_question + 1
            before = kept.questions.get(known, facts)
            kept.questions[known] = replace(
                facts, seq=commit.records[0].seq, created_at=before.created_at, refused=before.refused
            )
        changes = {each.id: each for each in commit.questions}
        over = commit.settles or commit.ended in ("completed", "cancelled")
        opened = [(n, each) for n, each in kept.questions.items() if each.status in OPEN]
        for n, facts in opened:
            if (change := changes.get(facts.id)) is not None:
                facts = kept.questions[n] = questions.changed(facts, change, commit.updated_at)
            if over and facts.status in OPEN:
                status = settled(facts, kept.inbox, commit.ended)
                last = QuestionChange(facts.id, status)
                kept.questions[n] = questions.changed(facts, last, commit.updated_at)
                kept.inbox = [unread for unread in kept.inbox if unread != facts.answer]

    def _charge(self, kept: Kept, commit: Commit) -> None:
        """What a session spends is counted in all above it, if the commit names a parent."""
        up: Kept | None = kept
        while up is not None:
            usd, tokens = up.row.spent_usd + commit.spend_usd, up.row.spent_tokens + commit.spend_tokens
            self._set(up, spent_usd=usd, spent_tokens=tokens)
            up = None if commit.parent is None or up.row.parent is None else self.data.sessions.get(up.row.parent)

    def _report(self, commit: Commit) -> None:
        parent = None if commit.parent is None else self.data.sessions.get(commit.parent)
        if parent is None or commit.report is None or _over(parent.row):
            return
        n = self._signal(parent, "child", None, commit.updated_at, commit.report.payload)
        if commit.report.ends:
            self._deliver(parent, n, "child")

    def _redact(self, kept: Kept, commit: Commit) -> None:
        blank: dict[str, Any] = {"payload": b"", "salt": b""}
        kept.records = [replace(each, **blank) if each.seq in commit.redact else each for each in kept.records]
        kept.signals = [replace(each, **blank) if each.n in commit.redact_signals else each for each in kept.signals]
        kept.names -= set(commit.unname)

    async def flags(self, keys: Sequence[int]) -> dict[int, tuple[int, Flags]]:
        self._check()
        rows = [kept.row for kept in self._known() if kept.row.key in keys]
        return {row.key: (row.fence, _flags(row)) for row in rows}

    async def mail(
        self, key: int, limit: int | None = None, kind: str | None = None, about: str | None = None
    ) -> list[SignalRecord]:
        self._check()
        kept = self._by(key)
        found = [kept.signals[n - 1] for n in sorted(kept.inbox)]
        found = [each for each in found if kind in (None, each.kind)]
        return [each for each in found if about in (None, questions.about(each.kind, each.payload))][:limit]

    async def purses(self, key: int) -> list[tuple[str, int, int]]:
        self._check()
        found: list[tuple[str, int, int]] = []
        up: int | None = key
        while up is not None:
            row = self._by(up).row
            if row.budget_usd is not None:
                found.append((row.session_id, row.spent_usd, row.budget_usd))
            up = row.parent
        return found

    async def due(self, now: int, workflows: Sequence[str], limit: int, tree: str | None = None) -> list[SessionRow]:
        self._check()
        known = self._known() if tree is None else self._tree(tree)
        rows = [row for row in map(self._seen, known) if not _over(row) and row.workflow in workflows]
        rows = [row for row in rows if not row.live and not row.open_pauses and not row.pause_requested]
        return [row for row in rows if row.wakes_at is not None and (row.wakes_at == 0 or row.wakes_at <= now)][:limit]

    async def next_wake(self, now: int, workflows: Sequence[str], tree: str | None = None) -> int | None:
        self._check()
        known = self._known() if tree is None else self._tree(tree)
        rows = [kept.row for kept in known if kept.row.workflow in workflows and not kept.row.pause_requested]
        return min((row.wakes_at for row in rows if row.wakes_at and row.wakes_at > now), default=None)

    # from outside

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
            if not _over(kept.row):
                self._ask(kept, pause)
        self._tell()
        return Found(self._seen(kept) for kept in found)

    def _ask(self, kept: Kept, pause: Pause) -> None:
        asked = any(_is_open_request(each) and each.standing <= pause.standing for each in kept.pauses)
        raised = pause.mode == "abort" and kept.row.pause_mode == "finish"
        freezes = pause.freeze and not any(_is_open_request(each) and each.freeze for each in kept.pauses)
        if asked and not raised and not freezes:
            return
        if raised:
            kept.pauses = [replace(each, mode="abort") if _is_open_request(each) else each for each in kept.pauses]
        if freezes or not asked:
            step = kept.row.step or ""
            kept.pauses.append(replace(pause, id=str(uuid4()), kind="operator", step=step, closed_at=None))
        data: dict[str, Any] = {"reason": pause.reason, "mode": pause.mode}
        data |= {"freeze": True} if pause.freeze else {}
        self._signal(kept, "pause", pause.by, pause.at, msgspec.json.encode(data))
        self._set(kept, pause_requested=True, pause_mode="abort" if raised else kept.row.pause_mode)

    async def standing_pause(self) -> Pause | None:
        self._check()
        return self.data.standing

    async def lift(self, by: str | None, at: int) -> Found:
        self._check()
        self.data.standing = None
        found = [kept for kept in self._known() if any(map(_is_part_of_all, kept.pauses))]
        for kept in found:
            self._lift(kept, by, at)
        self._tell()
        return Found(self._seen(kept) for kept in found)

    def _lift(self, kept: Kept, by: str | None, at: int) -> None:
        before = [each.at for each in kept.pauses if _is_open_request(each) and each.freeze]
        kept.pauses = [
            replace(each, closed_at=at, closed_by=by) if _is_part_of_all(each) else each for each in kept.pauses
        ]
        after = [each.at for each in kept.pauses if _is_open_request(each) and each.freeze]
        frozen = max(min(after, default=at) - min(before), 0) if before else 0
        self._set(kept, frozen=kept.row.frozen + frozen)
        if not any(map(_is_open_request, kept.pauses)):
            self._signal(kept, "resume", by, at, b"{}")
            self._set(kept, pause_requested=False, pause_mode="finish")
        if would_go_on(self._seen(kept)):
            self._set(kept, wakes_at=0)

    async def unpause(self, session_id: str, by: str | None, at: int, budget_usd: int | None = None) -> SessionRow:
        self._check()
        top = self._named(session_id)
        for kept in self._tree(session_id):
            budget = {} if budget_usd is None or kept is not top else {"budget_usd": budget_usd}
            if not kept.row.pause_requested and not budget:
                continue
            since = [each.at for each in kept.pauses if _is_open_request(each) and each.freeze]
            frozen = max(at - min(since), 0) if since else 0
            kept.pauses = [
                replace(each, closed_at=at, closed_by=by) if _is_open_request(each) else each for each in kept.pauses
            ]
            self._signal(kept, "resume", by, at, msgspec.json.encode(budget))
            frozen += kept.row.frozen
            self._set(kept, pause_requested=False, pause_mode="finish", frozen=frozen, **budget)
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
        return [kept for kept in self._tree(top.row.session_id) if kept is not top and not _over(kept.row)]

    def _cancel(self, found: list[Kept], by: str | None, reason: str, at: int) -> None:
        for kept in found:
            if not _over(kept.row) and not kept.row.cancel_requested:
                self._signal(kept, "cancel", by, at, msgspec.json.encode({"reason": reason}))
                self._set(kept, cancel_requested=True)

    async def send(self, session_id: str, by: str | None, at: int, payload: bytes) -> SessionRow:
        self._check()
        kept = self._named(session_id)
        if _over(kept.row):
            raise SessionEnded(f"{session_id} has ended", session_id=session_id, status=str(kept.row.ended))
        self._deliver(kept, self._signal(kept, "message", by, at, payload), "message")
        self._tell()
        return self._seen(kept)

    async def answer(self, given: Answer) -> Answered:
        self._check()
        if given.question is not None:
            found = await self.questions(Inquiry(ids=(given.question,)))
            return self._answer(given, found[0]) if found else Answered("unknown")
        kept = self._named(given.session_id or "")
        chosen = choose(given, await self.questions(Inquiry(session_id=given.session_id)))
        if isinstance(chosen, QuestionRow):
            return self._answer(given, chosen)
        if chosen is not None:
            if chosen.verdict != "none" or not given.message:
                return chosen
            payload = b'{"value":' + given.value + b"}"
            return Answered("queued", await self.send(kept.row.session_id, given.by, given.at, payload))
        if _over(kept.row):
            raise SessionEnded(f"{given.session_id} has ended", session_id=given.session_id, status=str(kept.row.ended))
        for first in await self.mail(kept.row.key, 1, "early", given.key):
            return Answered(questions.judge_early(given, first), self._seen(kept), early=first)
        n = self._signal(kept, "early", given.by, given.at, reply(given))
        self._deliver(kept, n, "early")
        self._tell()
        return Answered("early", self._seen(kept), early=kept.signals[n - 1])

    def _answer(self, given: Answer, found: QuestionRow) -> Answered:
        kept, verdict = self._named(found.session_id), judge(given, found)
        facts = kept.questions[found.n]
        if verdict == "taken" or (verdict == "invalid" and facts.answer is None):
            why = () if verdict == "taken" else (verdict, questions.objection_to(given, found))
            kept.inbox = [n for n in kept.inbox if n != facts.answer]
            n = self._signal(kept, "answer", given.by, given.at, reply(given, found, *why))
            status = QuestionStatus.RESUMED if verdict == "taken" else facts.status
            facts = replace(facts, status=status, answer=n, updated_at=given.at)
            self._deliver(kept, n, "answer")
        elif verdict != "same":
            facts = replace(facts, told=facts.told or verdict == "expired", refused=facts.refused + 1)
            if questions.is_noted(facts.refused):
                said = reply(given, found, verdict, count=facts.refused)
                self._signal(kept, "refused", given.by, given.at, said)
        kept.questions[found.n] = facts
        self._tell()
        return Answered(verdict, self._seen(kept), self._asked(kept, found.n))

    async def questions(self, query: Inquiry) -> FoundQuestions:
        self._check()
        rows = sorted((self._asked(kept, n) for kept in self._known() for n in kept.questions), key=lambda row: row.n)
        rows = [row for row in rows if not query.ids or row.facts.id in query.ids]
        rows = [row for row in rows if query.session in (None, self._named(row.session_id).row.key)]
        rows = [row for row in rows if query.session_id in (None, row.session_id, row.root_id)]
        rows = [row for row in rows if query.workflow in (None, row.workflow) and query.owner in (None, row.owner)]
        rows = [row for row in rows if query.key in (None, row.facts.key) and row.n > query.after]
        rows = [row for row in rows if row.facts.id.startswith(query.prefix)]
        now = self.clock.now()
        found = [row for row in rows if not query.statuses or row.standing(now) in query.statuses]
        return FoundQuestions(found[: query.limit])

    def _asked(self, kept: Kept, n: int) -> QuestionRow:
        facts, root, now = kept.questions[n], kept.row, self.clock.now()
        while root.parent is not None:
            root = self._by(root.parent).row
        record = kept.records[facts.seq - 1]
        since = [each.at for each in kept.pauses if _is_open_request(each) and each.freeze]
        frozen = max(now - max(min(since), facts.updated_at), 0) if since else 0
        failure = kept.row.failure if kept.row.ended == "failed" else None
        return QuestionRow(
            n, facts, kept.row.session_id, root.session_id, root.workflow, root.owner, record.step, record.payload,
            None if facts.answer is None else kept.signals[facts.answer - 1], kept.row.frozen + frozen,
            None if failure is None else failure.message,
        )  # fmt: skip

    async def tally_questions(self, query: Inquiry) -> dict[QuestionStatus, int]:
        now = self.clock.now()
        return Counter(row.standing(now) for row in await self.questions(query))

    async def forget_questions(self, before: int, limit: int) -> int:
        self._check()
        known = [(kept, n, facts) for kept in self._known() for n, facts in kept.questions.items()]
        done = [(kept, n) for kept, n, facts in known if facts.status not in OPEN and facts.updated_at < before][:limit]
        for kept, n in done:
            del kept.questions[n]
        return len(done)

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

    def _signal(self, kept: Kept, kind: str, by: str | None, at: int, payload: bytes) -> int:
        previous = kept.signals[-1].digest if kept.signals else first_digest(kept.row.session_id)
        kept.signals.append(seal_signal(previous, len(kept.signals) + 1, kept.row.seq, kind, by, at, payload))
        return len(kept.signals)

    def _deliver(self, kept: Kept, n: int, kind: str) -> None:
        kept.inbox.append(n)
        waits = kind in (kept.row.waiting or "").split(",")
        self._set(kept, mail=True, **({"wakes_at": 0} if waits else {}))

    # the end of data

    async def remove(
        self, session_id: str, by: str | None, reason: str, at: int, expired: bool = False, ended_for: int | None = None
    ) -> list[Removal]:
        self._check()
        if self._named(session_id).row.parent is not None:
            raise VerbRefused(f"{session_id} goes with its parent", session_id=session_id, status="")
        tree = self._tree(session_id)
        rows = [self._seen(kept) for kept in tree]
        if expired and not has_expired(rows, at, ended_for):
            return []
        for row in rows:
            if row.live:
                self._refuse_held(row)
        for kept, row in zip(tree, rows, strict=True):
            kept.tombstone = Tombstone(
                row.session_id, row.workflow, row.owner, row.status.value, row.created_at, at, by, reason, row.seq,
                row.digest,
            )  # fmt: skip
            self._set(kept, fence=row.fence + 1, holder=None)
        self._tell()
        return await self.removing()

    async def removing(self) -> list[Removal]:
        self._check()
        marked = [(key, kept.tombstone) for key, kept in self.data.sessions.items()]
        return [Removal(key, stone) for key, stone in sorted(marked, reverse=True) if stone is not None]

    async def strip(self, key: int, limit: int) -> Tombstone | None:
        self._check()
        kept = self.data.sessions.get(key)
        if kept is None or kept.tombstone is None:
            raise DamagedRecord(f"no session with the key {key} is being removed")
        for part in (kept.records, kept.signals, kept.pauses):
            if part:
                del part[-limit:]
                return None
        self.data.stones.append(kept.tombstone)
        del self.data.sessions[key]
        return kept.tombstone

    async def expired(self, now: int, after: int, limit: int, ended_for: int | None = None) -> list[tuple[int, str]]:
        self._check()
        rows = [kept.row for kept in self._known() if kept.row.parent is None and kept.row.key > after]
        rows = [replace(row, keep_for=ended_for) if row.keep_for is None and _over(row) else row for row in rows]
        return [
            (row.key, row.session_id)
            for row in sorted(rows, key=lambda row: row.key)
            if row.keep_for is not None and max(row.updated_at, row.wakes_at or 0) + row.keep_for <= now
        ][:limit]

    async def tombstones(self, session_id: str | None = None) -> list[Tombstone]:
        self._check()
        return [stone for stone in self.data.stones if session_id in (None, stone.session_id)]

    def folder(self, session_id: str) -> Path | None:
        return None

    async def sweep(self, after: int, limit: int, apply: bool) -> Sweep:
        self._check()
        named = {name for kept in self.data.sessions.values() for name in kept.names}
        looked = list(self.data.large)[after : after + limit]
        loose = {key: len(self.data.large[key]) for key in looked if key not in named}
        kept = len(looked) - len(loose) if apply else len(looked)
        for key in loose if apply else ():
            del self.data.large[key]
        return Sweep(after + kept if len(looked) == limit else None, len(loose), sum(loose.values()))

    async def weight(self, session_id: str) -> int:
        self._check()
        tree = self._tree(session_id)
        others = {name for kept in self._known() if kept not in tree for name in kept.names}
        values = {name for kept in tree for name in kept.names} - others
        records = sum(len(record.payload) for kept in tree for record in kept.records)
        files = [file for kept in tree for file in await self.files(kept.row.key)]
        return (
            records
            + sum(len(self.data.large[name]) for name in values)
            + sum(file_facts(file.payload).size for file in files)
        )

    async def space(self) -> Space:
        self._check()
        return Space(sum(map(len, self.data.large.values())), 0)

    async def compact(self, at_most: int) -> int:
        self._check()
        return 0

    async def fold(self) -> bool:
        self._check()
        return True

    # proof

    async def survey(self, after: int, limit: int) -> list[tuple[int, str, SessionRow | DamagedRecord]]:
        self._check()
        rows = sorted((self._seen(kept) for kept in self._known() if kept.row.key > after), key=lambda row: row.key)
        return [(row.key, row.session_id, row) for row in rows[:limit]]

    async def names(self, key: int) -> dict[bytes, bool]:
        self._check()
        return {name: name in self.data.large for name in self._by(key).names}

    async def values(self, after: int, limit: int) -> Proved:
        self._check()
        looked = list(self.data.large.items())[after : after + limit]
        damaged = tuple(key.hex() for key, value in looked if sha256(value).digest() != key)
        return Proved(after + len(looked) if looked else None, len(looked), damaged)

    async def check(self) -> list[str]:
        self._check()
        return []

    async def about(self) -> About:
        self._check()
        held: dict[int, list[str]] = {number: [] for number in self.data.engines}
        for kept in self._known():
            if kept.row.holder is not None:
                held.setdefault(kept.row.holder, []).append(kept.row.session_id)
        holders = [Holder(n, 0, "", 0, n in self.data.engines, tuple(ids)) for n, ids in sorted(held.items())]
        return About("dictionaries", "memory", 1, (await self.space()).total, 0, {}, tuple(holders))

    # moving

    async def whole(self, session_id: str) -> list[Whole]:
        self._named(session_id)
        found = []
        for kept in self._tree(session_id):
            row = self._seen(kept)
            blobs = await self.blobs(kept.names)
            signals = await self.signals(row.key, 0)
            found.append(
                Whole(
                    row,
                    await self.records(row.key, 1),
                    signals,
                    list(kept.inbox),
                    list(kept.pauses),
                    blobs,
                    list(kept.questions.values()),
                )
            )
        return found

    async def restore(self, sessions: Sequence[Whole]) -> bool:
        self._check()
        if any(self._find_id(each.row.session_id) is not None for each in sessions):
            return False
        keys: dict[str | None, int] = {}
        for each in sessions:
            self.data.last_key += 1
            key = keys[each.row.session_id] = self.data.last_key
            parent = keys.get(each.row.parent_id)
            row = replace(each.row, key=key, parent=parent, holder=None, fence=1, mail=bool(each.mail))
            pauses = [replace(pause, standing=False) for pause in each.pauses]
            kept = Kept(row, list(each.records), pauses, list(each.signals), list(each.mail))
            self.data.sessions[key] = kept
            for facts in each.questions:
                self.data.last_question += 1
                kept.questions[self.data.last_question] = facts
            self._keep(kept, tuple(each.blobs.items()))
            if (pause := self._pause_above(None, self.clock.now())) and not _over(row):
                self._ask(kept, pause)
        self._tell()
        return True

    # how they all work

    def _known(self) -> list[Kept]:
        return [kept for kept in self.data.sessions.values() if kept.tombstone is None]

    def _find_id(self, session_id: str) -> Kept | None:
        return next((kept for kept in self._known() if kept.row.session_id == session_id), None)

    def _named(self, session_id: str) -> Kept:
        kept = self._find_id(session_id)
        if kept is None:
            raise UnknownSession(f"no session has the id {session_id!r}", session_id=session_id)
        return kept

    def _by(self, key: int) -> Kept:
        kept = self.data.sessions.get(key)
        if kept is None or kept.tombstone is not None:
            raise UnknownSession(f"no session has the key {key}", session_id="")
        return kept

    def _keep(self, kept: Kept, blobs: Sequence[tuple[bytes, bytes]]) -> None:
        self.data.large.update(blobs)
        kept.names |= {key for key, _ in blobs}

    def _set(self, kept: Kept, **changes: Any) -> None:
        kept.row = replace(kept.row, **changes)

    def _seen(self, kept: Kept) -> SessionRow:
        """The facts, with those that depend on the moment."""
        row = kept.row
        above = None if row.parent is None else self.data.sessions.get(row.parent)
        due = row.wakes_at is not None and (row.wakes_at == 0 or row.wakes_at <= self.clock.now())
        return replace(
            row, live=row.holder in self.data.engines, due=due,
            open_pauses=sum(pause.closed_at is None for pause in kept.pauses),
            parent_id=None if above is None else above.row.session_id,
        )  # fmt: skip

    def _refuse_held(self, row: SessionRow) -> None:
        holder = self.describe_holder(row.holder)
        raise AlreadyRunning(f"{row.session_id} is driven by {holder}", session_id=row.session_id, holder=holder)


def _sorted_by(row: SessionRow, sort: Sort) -> tuple[Any, ...]:
    return {
        "created": (row.created_at, row.key),
        "updated": (row.updated_at, row.key),
        "workflow": (row.workflow, -row.updated_at),
        "spent": (row.spent_usd, row.key),
        "id": (row.session_id,),
    }[sort]


def _over(row: SessionRow) -> bool:
    return row.ended in ("completed", "cancelled")


def _is_part_of_all(pause: Pause) -> bool:
    return _is_open_request(pause) and pause.standing


def _is_open_request(pause: Pause) -> bool:
    return pause.kind == "operator" and pause.closed_at is None


def _flags(row: SessionRow) -> Flags:
    return Flags(row.pause_requested, row.pause_mode, row.cancel_requested, row.mail)
