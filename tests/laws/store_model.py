"""A model of a store: its expected content after each verb, as a dictionary of sessions.

After every verb, the whole store is read and compared with the model, row by row and record by record. The rules are
in `tests.laws.store_machine` and next to the tests.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

from hypothesis.stateful import invariant
from msgspec.structs import replace

from pausepoint.model.budgets import Allowance, Purse
from pausepoint.model.commits import Commit, Flags, NewSession
from pausepoint.model.endings import can_end, cancelled
from pausepoint.model.everything import Round, frozen_by
from pausepoint.model.questions import Inquiry
from pausepoint.model.sessions import (
    Filter,
    Pause,
    QuestionFacts,
    QuestionStatus,
    SessionRow,
    Status,
    can_be_handed_over,
    can_be_tried_again,
    ready_at,
)
from pausepoint.model.stores import Tombstone
from pausepoint.testing import ManualClock
from tests.faults.vfs import FaultVFS, Perform, Touch, broken, torn_length
from tests.laws.store_everything import EverythingModel, Known, is_request, request_of
from tests.support.mortal import MortalStore

T = TypeVar("T")

IDS = ("ant", "bee", "cat", "dog")
WORKFLOWS = ["w0", "w1"]

S = Status
Q = QuestionStatus
OPEN = (Q.WAITING, Q.RESUMED)
STANDING = (S.CREATED, S.READY, S.FAILED, S.WAITING, S.SLEEPING)
OVER = (S.COMPLETED, S.CANCELLED)
SAME = {(status, status) for status in Status}
HELD = (S.RUNNING, S.PAUSING)

LEGAL: dict[str, set[tuple[Status, Status]]] = {
    "pause": {(status, S.PAUSED) for status in STANDING}
    | {(S.RUNNING, S.PAUSING), (S.PAUSING, S.PAUSING), (S.PAUSED, S.PAUSED)}
    | {(status, status) for status in OVER},
    "lift": {(S.PAUSED, status) for status in (*STANDING, S.PAUSED)} | {(S.PAUSING, status) for status in HELD},
    "unpause": {(S.PAUSED, status) for status in STANDING} | {(S.PAUSING, S.RUNNING)} | SAME,
    "hand over": {(S.FAILED, S.READY)} | SAME,
    "try again": {(S.PAUSED, status) for status in STANDING} | SAME,
    "cancel": SAME | {(status, S.CANCELLED) for status in (*STANDING, S.PAUSED)},
    "send": {(S.WAITING, S.READY)} | SAME,
    "claim": {(status, S.RUNNING) for status in (*STANDING, S.RUNNING)}
    | {(S.PAUSED, S.PAUSING), (S.PAUSING, S.PAUSING)},
    "commit": {(before, after) for before in HELD for after in HELD},
    "park": {
        (before, after)
        for before in HELD
        for after in (S.READY, S.PAUSED, S.FAILED, S.WAITING, S.SLEEPING, *OVER)
    },
    "revise": {(status, after) for status in (*STANDING, *OVER, S.PAUSED) for after in (S.READY, S.PAUSED)},
    "end of a holder": {(S.RUNNING, S.READY), (S.RUNNING, S.CREATED), (S.PAUSING, S.PAUSED)} | SAME,
}  # fmt: skip
"""The statuses that may follow a status, by verb. A refused verb changes nothing."""


def differing(found: SessionRow, expected: SessionRow) -> dict[str, tuple[Any, Any]]:
    """Return the fields that differ: as they are, and as the model expects them."""
    names = [name for name in found.__struct_fields__ if getattr(found, name) != getattr(expected, name)]
    return {name: (getattr(found, name), getattr(expected, name)) for name in names}


class Belief(NamedTuple):
    """The position of a session as an engine believes it. It may be stale."""

    key: int
    fence: int
    seq: int
    digest: bytes


class Mortality:
    """Let writes pass until a drawn one. That write may be torn, and no write follows it."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.torn = False
        self.over = False

    def __call__(self, touch: Touch, perform: Perform) -> None:
        if self.left is not None and not self.over:
            self.left -= 1
            self.over = self.left < 0
            if self.over and self.torn and len(touch.data) > 1:
                perform(torn_length(len(touch.data), 0.5))
        if self.over:
            raise broken(touch.kind)
        perform()


def over(row: SessionRow) -> bool:
    return row.ended in ("completed", "cancelled")


class StoreModel(EverythingModel):
    """The model and the stores that it is compared with. It has no rules."""

    in_memory = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = ":memory:" if self.in_memory else str(Path(self.folder.name) / "store.db")
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.rows: dict[str, SessionRow] = {}
        self.known: dict[str, Known] = {}
        self.blobs: dict[bytes, bytes] = {}
        self.removing: dict[int, Tombstone] = {}
        self.stones: list[Tombstone] = []
        self.still: Pause | None = None
        self.still_id = ""
        self.rounds: list[Round] = []
        self.beliefs: dict[tuple[int, str], Belief] = {}
        self.stores: dict[int, MortalStore] = {}
        self.fates: dict[int, Mortality] = {}
        self.vfs: list[FaultVFS] = []
        self.seen: dict[int, SessionRow] = {}
        self.closed: dict[str, Pause] = {}
        self.asked_as: dict[str, int] = {}  # the questions, numbered as they were asked
        self.count = 0
        self.open(0)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def open(self, engine: int) -> None:
        options: dict[str, Any] = {}
        if not self.in_memory:
            self.fates[engine] = Mortality()
            self.vfs.append(FaultVFS(f"mortal {id(self)} {len(self.vfs)}", self.fates[engine]))
            options = {"vfs": f"mortal {id(self)} {len(self.vfs) - 1}", "ballast": 0}
        store = MortalStore(self.path, clock=self.clock, synchronous="OFF", **options)
        self.run(store.open(lambda keys: None))
        self.stores[engine] = store
        self.opened()

    def opened(self) -> None:
        """End the cancelled sessions that no engine drives, as a store does when it is opened."""
        for session_id in sorted(self.rows, key=lambda each: self.rows[each].key):
            self.ended_if_parked(session_id, self.clock.now())

    def alive(self) -> set[int]:
        return {store.number for store in self.stores.values()}

    def expect(self, session_id: str, verb: str, **changes: Any) -> None:
        """Change the model's row, and check that the store's row follows by a legal transition."""
        before = self.status(session_id)
        self.rows[session_id] = replace(self.rows[session_id], **changes)
        known = self.known[session_id]
        open_pauses = sum(pause.closed_at is None and not pause.standing for pause in known.pauses)
        self.rows[session_id] = replace(self.rows[session_id], open_pauses=open_pauses, mail=bool(known.inbox))
        assert (before, self.status(session_id)) in LEGAL[verb], (verb, before, self.status(session_id))

    def row(self, session_id: str) -> SessionRow:
        """Return the row as the store shows it, with the pause of everything."""
        row, stopped = self.rows[session_id], self.stopped(session_id)
        due = row.wakes_at is not None and (row.wakes_at == 0 or row.wakes_at <= self.clock.now())
        abort = stopped and self.still is not None and self.still.mode == "abort"
        thawed = frozen_by(self.rounds, *self.freezing(session_id)) if row.ended is None else 0
        row = replace(
            row, live=row.holder in self.alive(), due=due, own_pause=row.pause_requested, under_everything=stopped,
            pause_requested=row.pause_requested or stopped, pause_mode="abort" if abort else row.pause_mode,
            frozen=row.frozen + thawed, signals=len(self.known[session_id].signals),
        )  # fmt: skip
        return replace(row, ready_at=ready_at(row))

    def status(self, session_id: str) -> Status:
        return self.row(session_id).status

    def by_key(self, key: int | None) -> str | None:
        return next((session_id for session_id, row in self.rows.items() if row.key == key), None)

    def tree(self, session_id: str) -> list[str]:
        """Return a session and its descendants."""
        found = [session_id]
        for above in found:
            found += [each for each, row in self.rows.items() if row.parent == self.rows[above].key]
        return found

    def above(self, session_id: str) -> list[str]:
        found, up = [], self.by_key(self.rows[session_id].parent)
        while up is not None:
            found.append(up)
            up = self.by_key(self.rows[up].parent)
        return found

    def store(self, engine: int) -> MortalStore:
        """Return the engine with this number, or any other one."""
        return self.stores.get(engine) or next(iter(self.stores.values()))

    def number_of(self, engine: int) -> int:
        return next(number for number, store in self.stores.items() if store is self.store(engine))

    def signal(self, session_id: str, kind: str, by: str | None, at: int, data: Any) -> int:
        known = self.known[session_id]
        known.signals.append((self.rows[session_id].seq, kind, by, at, data))
        return len(known.signals)

    def deliver(self, session_id: str, n: int, kind: str) -> None:
        row = self.rows[session_id]
        self.known[session_id].inbox.append(n)
        waits = kind in (row.waiting or "").split(",")
        self.expect(session_id, "send", **({"wakes_at": 0} if waits else {}))

    def created(self, new: NewSession, key: int, number: int, above: str | None) -> None:
        (first,), session_id = new.records, new.session_id
        pause = new.pause or self.pause_above(above)
        if above is None and self.still is not None:
            new = replace(new, claim=False)
        self.rows[session_id] = SessionRow(
            key, session_id, new.workflow, 1, new.owner, new.tags, b"d" * 32, new.created_at, new.created_at, 1, 1,
            first.digest, "first", 1, False, None, None, False, "finish", False, number if new.claim else None,
            int(new.claim), False, None, None, 0, 0, 0, new.budget_usd, 0, None,
            parent=new.parent, keep_for=new.keep_for, parent_id=above, budget_operations=new.budget_operations,
            guest=new.guest,
        )  # fmt: skip
        self.known[session_id] = Known([first], names=set(new.names), exempt=self.exempt_like(above))
        if pause is not None:
            self.asked_to_pause(session_id, pause)
        elif above is None:
            self.noted(session_id, new.created_at)
        if above is not None and self.rows[above].cancel_requested:
            self.signal(session_id, "cancel", None, new.created_at, {"reason": "its parent was cancelled"})
            self.expect(session_id, "cancel", cancel_requested=True)
            self.ended_if_parked(session_id, new.created_at)

    def pause_above(self, above: str | None) -> Pause | None:
        """Return the pause that a new session inherits: its parent's own."""
        inherited = [] if above is None else self.known[above].pauses
        return next((each for each in inherited if is_request(each) and not each.standing), None)

    def believe(self, engine: int, row: SessionRow) -> None:
        self.beliefs[engine, row.session_id] = Belief(row.key, row.fence, row.seq, row.digest)

    def taken(self, session_id: str, number: int) -> None:
        self.settled(session_id)
        before = self.row(session_id)
        crashed = before.holder is not None and not before.live
        self.expect(
            session_id, "claim", holder=number, fence=before.fence + 1, crashes=before.crashes + crashed, ended=None,
            waiting=None, wakes_at=None,
        )  # fmt: skip

    def fits(self, engine: int, session_id: str, commit: Commit) -> bool:
        row = self.rows.get(session_id)
        if row is None or row.key != commit.key:
            return False
        number = self.store(engine).number
        return (row.seq, row.fence, row.holder) == (commit.base_seq, commit.fence, number)

    def apply(self, engine: int, session_id: str, commit: Commit, verb: str = "") -> Flags:
        """Apply a commit to the model."""
        row, known = self.rows[session_id], self.known[session_id]
        known.records.extend(commit.records)
        flags = self.flags(session_id)
        for opened in commit.open_pauses:
            self.add_pause(session_id, opened)
        known.inbox = [n for n in known.inbox if n not in commit.consume]
        ends = commit.ended in ("completed", "cancelled")
        for index, pause in enumerate(known.pauses):
            lifted = pause.standing and self.lift_of(known.epochs[index]) is not None
            if pause.closed_at is None and ((ends and not lifted) or pause.id in commit.close_pauses):
                known.pauses[index] = replace(pause, closed_at=commit.updated_at, closed_by=commit.closed_by)
        self.asked(session_id, commit)
        changes: dict[str, Any] = {}
        if ends:
            changes = {"pause_requested": False, "pause_mode": "finish"}
        if commit.release:
            came = any(known.signals[n - 1][1] in (commit.waiting or "").split(",") for n in known.inbox)
            changes |= {"holder": None, "waiting": commit.waiting, "wakes_at": 0 if came else commit.wakes_at}
        if commit.thaw:
            changes["frozen"] = 0
            known.exempt = max(known.exempt, self.last_lifted())
        self.blobs.update(commit.blobs)
        known.names |= {name for name, _ in commit.blobs}
        last = commit.records[-1]
        self.expect(
            session_id, verb or ("park" if commit.release else "commit"), seq=last.seq, digest=last.digest,
            updated_at=max(row.updated_at, commit.updated_at), step=commit.step, visit=commit.visit,
            held_by_guard=commit.held_by_guard, ended=commit.ended, failure=commit.failure, key_frame=commit.key_frame,
            crashes=row.crashes if commit.keep_crashes else 0, version=commit.version or row.version,
            progress=commit.progress, **changes,
        )  # fmt: skip
        if commit.release and commit.waiting is None and self.stopped(session_id):
            wakes_at = self.rows[session_id].wakes_at
            self.rows[session_id] = replace(self.rows[session_id], wakes_at=wakes_at or 0)
        if commit.release and commit.only_if_paused:
            self.took_effect(session_id, commit.updated_at)
            self.noted(session_id, after=commit.base_seq, took_effect_at=commit.updated_at)
        for each in (session_id, *(self.above(session_id) if commit.parent is not None else ())):
            usd, tokens = self.rows[each].spent_usd + commit.spend_usd, self.rows[each].spent_tokens
            operations = self.rows[each].spent_operations + commit.spend_operations
            self.rows[each] = replace(
                self.rows[each], spent_usd=usd, spent_tokens=tokens + commit.spend_tokens, spent_operations=operations
            )
        self.tell_parent(commit)
        self.redacted(session_id, commit)
        self.beliefs[engine, session_id] = Belief(commit.key, commit.fence, last.seq, last.digest)
        return flags

    def flags(self, session_id: str) -> Flags:
        row = self.row(session_id)
        return Flags(row.pause_requested, row.pause_mode, row.cancel_requested, row.mail)

    def asked(self, session_id: str, commit: Commit) -> None:
        """Apply a commit to the questions. The end of their visit settles the open ones."""
        known, at = self.known[session_id], commit.updated_at
        for facts in commit.asks:
            before = known.questions.get(facts.id, facts)
            known.questions[facts.id] = replace(
                facts, seq=commit.records[0].seq, created_at=before.created_at, refused=before.refused
            )
        for change in commit.questions:
            if (facts := known.questions[change.id]).status in OPEN:
                self.concluded(session_id, facts, change.status or facts.status, at)
        if commit.settles or commit.ended in ("completed", "cancelled"):
            for facts in [each for each in known.questions.values() if each.status in OPEN]:
                used = facts.status is Q.RESUMED and facts.answer not in known.inbox and commit.ended != "cancelled"
                self.concluded(session_id, facts, Q.COMPLETED if used else Q.CANCELLED, at)
                known.inbox = [n for n in known.inbox if n != facts.answer]

    def concluded(self, session_id: str, facts: QuestionFacts, status: QuestionStatus, at: int) -> None:
        """Set the status of a question. An invalid answer is dropped once no step waits for it."""
        ends = facts.status is Q.WAITING and status is not Q.WAITING
        answer = None if ends else facts.answer
        facts = replace(facts, status=status, updated_at=at, answer=answer)
        self.known[session_id].questions[facts.id] = facts

    def every_question(self) -> list[tuple[str, QuestionFacts]]:
        """Return all questions with their sessions, in the order of asking."""
        found = [(session_id, facts) for session_id, known in self.known.items() for facts in known.questions.values()]
        return sorted(found, key=lambda each: self.asked_as[each[1].id])

    def status_at(self, session_id: str, facts: QuestionFacts) -> QuestionStatus:
        """Return the status of a question now. Frozen time does not count."""
        if facts.status is not Q.WAITING or facts.expires_at is None:
            return facts.status
        now = self.clock.now()
        since = self.frozen_since(session_id)
        still = 0 if since is None else max(now - max(since, facts.updated_at), 0)
        return Q.EXPIRED if facts.expires_at + self.row(session_id).frozen + still <= now else Q.WAITING

    async def check_questions(self, store: MortalStore) -> None:
        every = self.every_question()
        standing = {facts.id: self.status_at(session_id, facts) for session_id, facts in every}
        assert await store.tally_questions(Inquiry()) == Counter(standing.values())
        found = await store.questions(Inquiry())
        assert [(row.session_id, row.facts) for row in found] == every
        for status in Q:
            ids = [row.facts.id for row in await store.questions(Inquiry(statuses=(status,)))]
            assert ids == [facts.id for _, facts in every if standing[facts.id] is status]

    def tell_parent(self, commit: Commit) -> None:
        parent = self.by_key(commit.parent)
        if parent is None or commit.report is None or over(self.rows[parent]):
            return
        n = self.signal(parent, "child", None, commit.updated_at, json.loads(commit.report.payload))
        if commit.report.ends:
            self.deliver(parent, n, "child")

    def redacted(self, session_id: str, commit: Commit) -> None:
        known = self.known[session_id]
        for seq in commit.redact:
            known.records[seq - 1] = replace(known.records[seq - 1], payload=b"", salt=b"")
        for n in commit.redact_signals:
            known.signals[n - 1] = (*known.signals[n - 1][:4], None)
        known.names -= set(commit.unname)
        for name in commit.unname:
            if not any(name in other.names for other in self.known.values()):
                self.blobs.pop(name, None)

    def matching(self, query: dict[str, Any], tree: bool = False) -> list[str]:
        def matches(row: SessionRow) -> bool:
            return all(
                value in row.tags if key == "tag" else getattr(row, key) == value for key, value in query.items()
            )

        if tree and "session_id" in query:
            return self.tree(query["session_id"])
        return [session_id for session_id, row in self.rows.items() if matches(row)]

    def asked_to_pause(self, session_id: str, pause: Pause) -> None:
        row, known = self.rows[session_id], self.known[session_id]
        own = [each for each in known.pauses if is_request(each) and not each.standing]
        raised = pause.mode == "abort" and row.pause_mode == "finish"
        freezes = pause.freeze and not any(each.freeze for each in own)
        asked = bool(own)
        if asked and not raised and not freezes:
            self.expect(session_id, "pause")
            return
        if raised:
            known.pauses[:] = [
                replace(each, mode="abort") if is_request(each) and not each.standing else each for each in known.pauses
            ]
        if freezes or not asked:
            self.add_pause(session_id, replace(pause, id="", kind="operator", step=row.step or ""))
        self.signal(session_id, "pause", pause.by, pause.created_at, request_of(pause))
        self.expect(session_id, "pause", pause_requested=True, pause_mode="abort" if raised else row.pause_mode)

    def unpaused(
        self, session_id: str, by: str | None, now: int, budget: Allowance, wake: bool = False, named: bool = True
    ) -> None:  # fmt: skip
        row, known, limits = self.rows[session_id], self.known[session_id], budget.given()
        asked = self.row(session_id).pause_requested
        since = None
        if asked:
            self.settled(session_id)
            since = self.frozen_since(session_id)
        if self.still is not None and not over(row):
            known.exempt = self.rounds[-1].round
        if asked:
            row = self.rows[session_id]
            frozen = row.frozen + (0 if since is None else max(now - since, 0))
            known.pauses = [replace(p, closed_at=now, closed_by=by) if is_request(p) else p for p in known.pauses]
            self.expect(session_id, "unpause", pause_requested=False, pause_mode="finish", frozen=frozen)
            row = self.rows[session_id]
            if row.wakes_at == 0 and row.waiting is None:
                self.rows[session_id] = replace(row, wakes_at=None)
        tries_again = wake and can_be_tried_again(self.row(session_id)) and self.close_reasons(session_id, by, now)
        hands_over = wake and named and can_be_handed_over(self.row(session_id))
        if not (asked or limits or hands_over or tries_again):
            return
        self.signal(session_id, "resume", by, now, limits)
        self.expect(session_id, "hand over", **limits, **({"ended": None} if hands_over else {}))
        if wake:
            self.woken(session_id)

    def close_reasons(self, session_id: str, by: str | None, now: int) -> bool:
        """Close the pauses that are not an operator's, and forgive crashes. Return whether there were any."""
        pauses = self.known[session_id].pauses
        found = [pause for pause in pauses if pause.kind != "operator" and pause.closed_at is None]
        pauses[:] = [replace(each, closed_at=now, closed_by=by) if each in found else each for each in pauses]
        self.expect(session_id, "try again", **({"crashes": 0} if found else {}))
        return bool(found)

    def woken(self, session_id: str) -> None:
        """Make a session due if it waits for nothing, or if its timers were frozen."""
        row, status = self.rows[session_id], self.status(session_id)
        if status in (S.CREATED, S.READY) or (row.frozen and status in (S.WAITING, S.SLEEPING)):
            self.rows[session_id] = replace(row, wakes_at=0)

    def cancelled(self, session_id: str, by: str | None, now: int, reason: str = "enough", below: bool = False) -> None:
        """Cancel a session and its descendants; with ``below`` only the descendants."""
        for each in self.tree(session_id)[below:]:
            row = self.rows[each]
            if not over(row) and not row.cancel_requested:
                self.signal(each, "cancel", by, now, {"reason": reason})
                self.expect(each, "cancel", cancel_requested=True)
            self.ended_if_parked(each, now)

    def ended_if_parked(self, session_id: str, now: int) -> None:
        """End a cancelled session that no engine drives. Only its record is copied from the store."""
        row, beliefs = self.row(session_id), dict(self.beliefs)
        if not can_end(row):
            return
        [record] = self.run(self.store(0).records(row.key, row.seq + 1))
        commit = cancelled(row, now)
        told = [(each.seq, each.kind, each.step, each.at, each.payload) for each in (record, *commit.records)]
        assert told[0] == told[1]
        self.rows[session_id] = replace(self.rows[session_id], fence=row.fence + 1)
        self.apply(0, session_id, replace(commit, records=(record,)), "cancel")
        self.beliefs = beliefs

    @invariant()
    def the_store_is_what_the_model_says(self) -> None:
        for store in self.stores.values():
            self.run(self.check(store))

    async def check(self, store: MortalStore) -> None:
        standing = await store.standing_pause()
        self.still_id = "" if standing is None else standing.id
        assert (standing and replace(standing, id="")) == self.still
        listed = await store.find(Filter())
        assert [row.session_id for row in listed] == self.newest_first(self.rows)
        for row in listed:
            assert row == await store.get(row.session_id)
            expected = self.row(row.session_id)
            assert row == expected, differing(row, expected)
            self.check_onward(row)
            await self.check_entries(store, row, self.known[row.session_id])
        await self.check_statuses(store, listed)
        await self.check_due(store)
        await self.check_questions(store)
        assert await store.blobs(self.blobs) == self.blobs
        stones = [(removal.key, removal.tombstone) for removal in await store.removing()]
        assert stones == sorted(self.removing.items(), reverse=True)
        assert await store.tombstones() == self.stones

    async def check_statuses(self, store: MortalStore, listed: list[SessionRow]) -> None:
        assert await store.tally(Filter()) == Counter((row.workflow, row.status) for row in listed)
        for status in {row.status for row in listed}:
            assert await store.find(Filter(statuses=(status,))) == [row for row in listed if row.status is status]
        crashed = [row for row in listed if row.crashes and row.ended is None]
        assert await store.find(Filter(crashed=True)) == crashed
        assert await store.find(Filter(unended=True)) == [
            row for row in listed if row.ended not in ("completed", "cancelled")
        ]

    async def check_entries(self, store: MortalStore, row: SessionRow, known: Known) -> None:
        assert await store.records(row.key, 1) == known.records
        assert [record.seq for record in known.records] == list(range(1, row.seq + 1))
        frames = [record.seq for record in known.records if record.kind == "key"]
        for seq in {1, (row.seq + 1) // 2, row.seq}:
            assert await store.key_frame(row.key, seq) == max(frame for frame in frames if frame <= seq)
        found = await store.pauses(row.key, open_only=False)
        self.check_pauses(row.session_id, found)
        still_open = [pause for pause in found if pause.closed_at is None]
        assert await store.pauses(row.key) == still_open
        assert await store.first_pauses([row.key]) == ({row.key: still_open[0]} if still_open else {})
        signals = await store.signals(row.key, 0)
        read = [(s.after, s.kind, s.by, s.at, None if s.redacted else json.loads(s.payload)) for s in signals]
        assert read == known.signals
        assert [signal.n for signal in await store.mail(row.key)] == sorted(known.inbox)
        flags = Flags(row.pause_requested, row.pause_mode, row.cancel_requested, row.mail)
        assert await store.flags([row.key]) == {row.key: (row.fence, flags)}
        purses = [self.rows[each] for each in (row.session_id, *self.above(row.session_id))]
        expected = [
            Purse(
                each.session_id,
                each.spent_usd,
                each.spent_tokens,
                each.spent_operations,
                each.budget_usd,
                each.budget_tokens,
                each.budget_operations,
            )
            for each in purses
            if (each.budget_usd, each.budget_tokens, each.budget_operations) != (None, None, None)
        ]
        assert await store.purses(row.key) == expected
        assert await store.names(row.key) == dict.fromkeys(known.names, True)

    async def check_due(self, store: MortalStore) -> None:
        now, rows = self.clock.now(), [self.row(session_id) for session_id in self.rows]
        due = {row.session_id for row in rows if row.status is S.READY and row.due and not row.guest}
        # A failed session waits for nothing. A pause keeps what has arrived.
        assert {row.session_id for row in await store.due(now, WORKFLOWS, 100)} == due
        assert await store.due(now, ["another"], 100) == []
        awake = [row.wakes_at for row in rows if row.wakes_at and not row.pause_requested and not row.guest]
        assert await store.next_wake(now, WORKFLOWS) == min((at for at in awake if at > now), default=None)

    def newest_first(self, session_ids: Iterable[str]) -> list[str]:
        return sorted(session_ids, key=lambda one: (self.rows[one].created_at, self.rows[one].key), reverse=True)

    def check_onward(self, row: SessionRow) -> None:
        """Check the facts that only increase."""
        before = self.seen.get(row.key, row)
        assert row.fence >= before.fence
        assert row.seq >= before.seq
        assert row.updated_at >= before.updated_at
        assert row.spent_usd >= before.spent_usd
        self.seen[row.key] = row

    def check_pauses(self, session_id: str, found: list[Pause]) -> None:
        known = self.known[session_id]
        records = [pause for pause in found if self.still is None or pause.id != self.still_id]
        assert len(records) == len(known.pauses)
        for index, pause in enumerate(records):
            if not known.pauses[index].id:  # the store names the operator's pauses
                known.pauses[index] = replace(known.pauses[index], id=pause.id)
            if pause.closed_at is not None:
                assert self.closed.setdefault(pause.id, pause) == pause
        assert records == [self.shown(*each) for each in zip(known.pauses, known.epochs, strict=True)]
        exempt, _, noted = self.freezing(session_id)
        unwritten = self.stopped(session_id) and self.rounds[-1].epoch not in noted
        assert len(found) - len(records) == unwritten
        if unwritten and self.still is not None:  # the pause of everything stops it without a record
            since = min(each.at for each in self.rounds if each.lifted_at is None and each.round > exempt)
            assert replace(self.still, id=self.still_id, created_at=since) in found
        assert len({pause.id for pause in found}) == len(found)

    async def prove(self, store: MortalStore) -> None:
        """Check that nothing is damaged and no file is left over."""
        assert await store.check() == []
        assert not (await store.values(0, 1000)).damaged
        assert {session_id for _, session_id, _ in await store.survey(0, 1000)} == self.rows.keys()
