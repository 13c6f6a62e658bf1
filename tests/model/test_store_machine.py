"""Any history of store verbs, against a model that is a dictionary of sessions.

Two engines share a file: either may hold a session, overtake the other, die without a word
or leave cleanly, while the wall clock jumps. After every verb the whole store is read and
compared with the model, row by row and record by record.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import pytest
from _pytest.outcomes import Failed
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from msgspec.structs import replace

from holdfast.errors import AlreadyRunning, HoldfastError, HoldLost, SessionEnded
from holdfast.model import (
    Commit,
    Failure,
    Filter,
    Flags,
    NewSession,
    Pause,
    Record,
    SessionRow,
    Status,
    first_digest,
    seal,
)
from holdfast.stores.sqlite import writes
from holdfast.stores.sqlite.sql import QUERIES
from holdfast.testing import ManualClock
from tests.support.examples import examples
from tests.support.mortal import MortalStore

T = TypeVar("T")

IDS = ("ant", "bee", "cat")

ids = st.sampled_from(IDS)
engines = st.sampled_from((0, 1))
people = st.sampled_from((None, "ann", "ben"))
rarely = st.sampled_from((False, False, False, True))
modes = st.sampled_from(("finish", "abort"))
filters = st.sampled_from(
    ({"session_id": "ant"}, {"session_id": "bee"}, {"workflow": "w1"}, {"tag": "red"}, {"owner": "ann"}, {})
)
HOUR, YEAR = 3600, 31_536_000
jumps = st.sampled_from((-1, 1, -HOUR, HOUR, -YEAR, YEAR, -50 * YEAR, 50 * YEAR))

S = Status
STANDING = (S.CREATED, S.READY, S.FAILED)
OVER = (S.COMPLETED, S.CANCELLED)
SAME = {(status, status) for status in Status}

LEGAL: dict[str, set[tuple[Status, Status]]] = {
    "pause": {(status, S.PAUSED) for status in STANDING}
    | {(S.RUNNING, S.PAUSING), (S.PAUSING, S.PAUSING), (S.PAUSED, S.PAUSED)}
    | {(status, status) for status in OVER},
    "unpause": {(S.PAUSED, status) for status in STANDING} | {(S.PAUSING, S.RUNNING)} | SAME,
    "cancel": SAME,
    "claim": {(status, S.RUNNING) for status in (*STANDING, S.RUNNING)}
    | {(S.PAUSED, S.PAUSING), (S.PAUSING, S.PAUSING)},
    "commit": {(before, S.RUNNING) for before in (S.RUNNING, S.PAUSING)}
    | {(before, S.PAUSING) for before in (S.RUNNING, S.PAUSING)},
    "park": {(before, after) for before in (S.RUNNING, S.PAUSING) for after in (S.READY, S.PAUSED, S.FAILED, *OVER)},
    "end of a holder": {(S.RUNNING, S.READY), (S.RUNNING, S.CREATED), (S.PAUSING, S.PAUSED)} | SAME,
}
"""Which status may follow which, by verb. A refused verb changes nothing at all."""


class Belief(NamedTuple):
    """Where an engine thinks that a session stands; it may be wrong."""

    fence: int
    seq: int
    digest: bytes


class Known(NamedTuple):
    """What the model knows of one session beside its row."""

    records: list[Record]
    pauses: list[Pause]
    signals: list[tuple[int, str, str | None, int, dict[str, Any]]]


class StoreMachine(RuleBasedStateMachine):
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
        self.beliefs: dict[tuple[int, str], Belief] = {}
        self.stores: dict[int, MortalStore] = {}
        self.seen: dict[str, SessionRow] = {}
        self.closed: dict[str, Pause] = {}
        self.count = 0
        self.open(0)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def open(self, engine: int) -> None:
        store = MortalStore(self.path, clock=self.clock, synchronous="OFF")
        self.run(store.open(lambda: None))
        self.stores[engine] = store

    def teardown(self) -> None:
        try:
            self.end_everything()
        finally:
            for store in self.stores.values():
                self.run(store.close())
            self.runner.close()
            self.folder.cleanup()

    # what the model thinks

    def alive(self) -> set[int]:
        return {store._writes.number for store in self.stores.values()}

    def expect(self, session_id: str, verb: str, **changes: Any) -> None:
        """The model's row moves on; the store's has to follow, by a legal transition."""
        before = self.status(session_id)
        self.rows[session_id] = replace(self.rows[session_id], **changes)
        open_pauses = sum(pause.closed_at is None for pause in self.known[session_id].pauses)
        self.rows[session_id] = replace(self.rows[session_id], open_pauses=open_pauses)
        assert (before, self.status(session_id)) in LEGAL[verb], (verb, before, self.status(session_id))

    def row(self, session_id: str) -> SessionRow:
        row = self.rows[session_id]
        return replace(row, live=row.holder in self.alive())

    def status(self, session_id: str) -> Status:
        return self.row(session_id).status

    def store(self, engine: int) -> MortalStore:
        """The engine asked for, or the one there is."""
        return self.stores.get(engine) or next(iter(self.stores.values()))

    def number_of(self, engine: int) -> int:
        return next(number for number, store in self.stores.items() if store is self.store(engine))

    # sessions

    @rule(
        session_id=ids, engine=engines, claim=st.booleans(), pause_by=people, paused=st.booleans(), budget=st.booleans()
    )
    def create(
        self, session_id: str, engine: int, claim: bool, pause_by: str | None, paused: bool, budget: bool
    ) -> None:
        now = self.clock.now()
        first = seal(first_digest(session_id), 1, 0, "key", "first", 1, now, b'{"first":1}')
        pause = Pause("x", "operator", "later", pause_by, now) if paused else None
        owner = "ann" if session_id != "cat" else None
        tags = ("red",) if session_id != "bee" else ()
        new = NewSession(
            session_id, f"w{len(session_id) % 2}", 1, owner, tags, b"d" * 32, now, "first", 1,
            7 if budget else None, (first,), pause=pause, claim=claim and not paused,
        )  # fmt: skip
        row = self.run(self.store(engine).create(new))
        if session_id in self.rows:
            assert row is None
            return
        assert row is not None
        number = self.store(engine)._writes.number
        self.rows[session_id] = SessionRow(
            row.key, session_id, new.workflow, 1, owner, tags, b"d" * 32, now, now, 1, 1, first.digest, "first", 1,
            False, None, None, paused, "finish", False, number if new.claim else None, int(new.claim), False,
            None, None, 0, 0, 0, new.budget_usd, int(paused), None,
        )  # fmt: skip
        pauses = [replace(pause, id="", step="first")] if pause else []
        signals = [(1, "pause", pause_by, now, {"reason": "later", "mode": "finish"})] if pause else []
        self.known[session_id] = Known([first], pauses, signals)
        if new.claim:
            self.believe(self.number_of(engine), row)

    def believe(self, engine: int, row: SessionRow) -> None:
        self.beliefs[engine, row.session_id] = Belief(row.fence, row.seq, row.digest)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), engine=engines, steal=st.booleans())
    def claim(self, data: st.DataObject, engine: int, steal: bool) -> None:
        session_id, engine = self.draw_session(data), self.number_of(engine)
        row = self.row(session_id)
        claim = self.store(engine).claim(session_id, steal)
        if row.ended in ("completed", "cancelled"):
            with pytest.raises(SessionEnded):
                self.run(claim)
        elif row.live and not steal:
            with pytest.raises(AlreadyRunning):
                self.run(claim)
        else:
            self.claimed(engine, self.run(claim))

    def claimed(self, engine: int, row: SessionRow) -> None:
        before = self.row(row.session_id)
        crashed = before.holder is not None and not before.live
        number = self.store(engine)._writes.number
        self.expect(
            row.session_id, "claim", holder=number, fence=before.fence + 1, crashes=before.crashes + crashed, ended=None
        )
        self.believe(engine, row)

    @precondition(lambda self: self.rows and len(self.stores) == 2)
    @rule(data=st.data())
    def claim_from_both_sides(self, data: st.DataObject) -> None:
        session_id = self.draw_session(data)
        row = self.row(session_id)

        async def race() -> list[SessionRow | BaseException]:
            claims = (self.stores[engine].claim(session_id) for engine in (0, 1))
            return await asyncio.gather(*claims, return_exceptions=True)

        results = self.run(race())
        winners = [engine for engine, result in enumerate(results) if isinstance(result, SessionRow)]
        assert len(winners) == (0 if row.live or row.ended in ("completed", "cancelled") else 1)
        assert all(isinstance(result, SessionRow | AlreadyRunning | SessionEnded) for result in results)
        if winners:
            self.hand_over(winners[0], results[winners[0]])

    def hand_over(self, winner: int, row: Any) -> None:
        """Who wins a race is up to the system; what follows must not be, or no run could be repeated."""
        beliefs = dict(self.beliefs)
        self.claimed(winner, row)
        belief = self.beliefs[winner, row.session_id]
        self.commit(winner, row.session_id, self.next_commit(0, belief, row.session_id, 1, release=True))
        self.beliefs = beliefs
        self.claimed(0, self.run(self.stores[0].claim(row.session_id)))

    # driving

    def draw_session(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.rows)), label="session")

    def next_commit(self, engine: int, belief: Belief, session_id: str, size: int, **facts: Any) -> Commit:
        records: list[Record] = []
        digest = belief.digest
        for n in range(belief.seq + 1, belief.seq + 1 + size):
            self.count += 1
            payload = json.dumps({"count": self.count, "by": engine}).encode()
            records.append(seal(digest, n, n - 1, "checkpoint", "first", n, self.clock.now(), payload))
            digest = records[-1].digest
        row = self.rows[session_id]
        return Commit(
            row.key, belief.fence, belief.seq, tuple(records), self.clock.now(), row.key_frame,
            f"step {self.count}", belief.seq, **facts,
        )  # fmt: skip

    def fits(self, engine: int, session_id: str, commit: Commit) -> bool:
        row = self.rows[session_id]
        number = self.store(engine)._writes.number
        return (row.seq, row.fence, row.holder) == (commit.base_seq, commit.fence, number)

    def apply(self, engine: int, session_id: str, commit: Commit) -> Flags:
        row, known = self.rows[session_id], self.known[session_id]
        known.records.extend(commit.records)
        known.pauses.extend(commit.open_pauses)
        over = commit.ended in ("completed", "cancelled")
        for index, pause in enumerate(known.pauses):
            if pause.closed_at is None and (over or pause.id in commit.close_pauses):
                known.pauses[index] = replace(pause, closed_at=commit.updated_at, closed_by=commit.closed_by)
        asked = {"pause_requested": False, "pause_mode": "finish"} if over else {}
        self.blobs.update(commit.blobs)
        last = commit.records[-1]
        self.expect(
            session_id, "park" if commit.release else "commit", seq=last.seq, digest=last.digest,
            updated_at=max(row.updated_at, commit.updated_at), step=commit.step, visit=commit.visit,
            leaving=commit.leaving, ended=commit.ended, failure=commit.failure,
            crashes=row.crashes if commit.keep_crashes else 0,
            spent_usd=row.spent_usd + commit.spend_usd, spent_tokens=row.spent_tokens + commit.spend_tokens,
            progress=commit.progress, holder=None if commit.release else row.holder, **asked,
        )  # fmt: skip
        self.beliefs[engine, session_id] = Belief(commit.fence, last.seq, last.digest)
        return Flags(row.pause_requested, row.pause_mode, row.cancel_requested)

    def commit(self, engine: int, session_id: str, commit: Commit) -> None:
        """Commit, and see whether the store agrees on what becomes of it."""
        submitted = self.store(engine).commit(commit)
        if not self.fits(engine, session_id, commit):
            with pytest.raises(HoldLost):
                self.run(submitted)
        elif commit.only_if_paused and not self.rows[session_id].pause_requested:
            assert self.run(submitted) is None
        else:
            assert self.run(submitted) == self.apply(engine, session_id, commit)

    def draw_belief(self, data: st.DataObject) -> tuple[int, str, Belief]:
        """What an engine that is still there believes, be it true or long overtaken."""
        held = sorted(key for key in self.beliefs if key[0] in self.stores)
        engine, session_id = data.draw(st.sampled_from(held), label="belief")
        return engine, session_id, self.beliefs[engine, session_id]

    def believing(self) -> bool:
        return any(engine in self.stores for engine, _ in self.beliefs)

    @precondition(believing)
    @rule(data=st.data(), size=st.integers(1, 3), spend=st.integers(0, 2), only=st.booleans(), big=st.booleans())
    def go_on(self, data: st.DataObject, size: int, spend: int, only: bool, big: bool) -> None:
        engine, session_id, belief = self.draw_belief(data)
        blob = b"%d" % self.count * 100
        facts: dict[str, Any] = {"blobs": ((first_digest(blob.decode()), blob),)} if big else {}
        self.commit(
            engine, session_id,
            self.next_commit(
                engine, belief, session_id, size, only_if_paused=only, spend_usd=spend, spend_tokens=spend * 3,
                progress=(spend, 2) if spend else None, leaving=spend == 2, keep_crashes=spend == 1, **facts,
            ),
        )  # fmt: skip

    @precondition(believing)
    @rule(data=st.data(), ended=st.sampled_from((None, None, "failed", "failed", "completed", "cancelled")))
    def park(self, data: st.DataObject, ended: Any) -> None:
        engine, session_id, belief = self.draw_belief(data)
        failure = Failure("first", "ValueError", "no", 2) if ended == "failed" else None
        facts = {"ended": ended, "failure": failure, "release": True}
        self.commit(engine, session_id, self.next_commit(engine, belief, session_id, 1, **facts))

    @precondition(believing)
    @rule(data=st.data(), kind=st.sampled_from(("guard", "budget")), release=rarely)
    def stand_before_an_obstacle(self, data: st.DataObject, kind: Any, release: bool) -> None:
        engine, session_id, belief = self.draw_belief(data)
        pause = Pause(f"pause {self.count}", kind, "not yet", None, self.clock.now(), "first")
        commit = self.next_commit(engine, belief, session_id, 1, open_pauses=(pause,), release=release)
        self.commit(engine, session_id, commit)

    @precondition(believing)
    @rule(data=st.data())
    def lift_the_obstacles_twice(self, data: st.DataObject) -> None:
        """Pauses that are closed already are among those to close: they must not change."""
        engine, session_id, _ = self.draw_belief(data)
        others = tuple(pause.id for pause in self.known[session_id].pauses if pause.kind != "operator")
        for who in ("eve", "somebody else"):
            belief = self.beliefs[engine, session_id]
            commit = self.next_commit(engine, belief, session_id, 1, close_pauses=others, closed_by=who)
            self.commit(engine, session_id, commit)

    @precondition(believing)
    @rule(data=st.data(), off=st.sampled_from((-1, 1)), what=st.sampled_from(("fence", "base_seq", "key")))
    def commit_beside_the_mark(self, data: st.DataObject, off: int, what: str) -> None:
        engine, session_id, belief = self.draw_belief(data)
        commit = self.next_commit(engine, belief, session_id, 1)
        wrong = replace(commit, **{what: getattr(commit, what) + (off if what != "key" else 1000)})
        if what == "key" or not self.fits(engine, session_id, wrong):
            with pytest.raises(HoldLost):
                self.run(self.store(engine).commit(wrong))

    @precondition(believing)
    @rule(data=st.data(), count=st.integers(2, 5))
    def commit_many_at_once(self, data: st.DataObject, count: int) -> None:
        """What is submitted together may share a transaction; each commit still stands or falls alone."""
        work: list[tuple[int, str, Commit]] = []
        ahead = dict(self.beliefs)
        for _ in range(count):
            engine, session_id, _ = self.draw_belief(data)
            commit = self.next_commit(engine, ahead[engine, session_id], session_id, 1)
            ahead[engine, session_id] = Belief(commit.fence, commit.records[-1].seq, commit.records[-1].digest)
            work.append((engine, session_id, commit))

        async def together() -> list[Any]:
            commits = (self.store(engine).commit(commit) for engine, _, commit in work)
            return await asyncio.gather(*commits, return_exceptions=True)

        for (engine, session_id, commit), result in zip(work, self.run(together()), strict=True):
            if self.fits(engine, session_id, commit):
                assert result == self.apply(engine, session_id, commit)
            else:
                assert isinstance(result, HoldLost), result

    # from outside

    def matching(self, query: dict[str, Any]) -> list[str]:
        def matches(row: SessionRow) -> bool:
            return all(
                value in row.tags if key == "tag" else getattr(row, key) == value for key, value in query.items()
            )

        return [session_id for session_id, row in self.rows.items() if matches(row)]

    @rule(engine=engines, query=filters, mode=modes, by=people)
    def pause(self, engine: int, query: dict[str, Any], mode: Any, by: str | None) -> None:
        if query.get("session_id", next(iter(self.rows), "")) not in self.rows:
            return
        now = self.clock.now()
        rows = self.run(self.store(engine).pause(Filter(**query), Pause("", "operator", "lunch", by, now, mode=mode)))
        assert {row.session_id for row in rows} == set(self.matching(query))
        for session_id in self.matching(query):
            if self.rows[session_id].ended not in ("completed", "cancelled"):
                self.asked_to_pause(session_id, mode, by, now)

    def asked_to_pause(self, session_id: str, mode: Any, by: str | None, now: int) -> None:
        row, known = self.rows[session_id], self.known[session_id]
        if row.pause_requested and (mode == "finish" or row.pause_mode == "abort"):
            self.expect(session_id, "pause")
            return
        if row.pause_requested:
            for index, pause in enumerate(known.pauses):
                if pause.kind == "operator" and pause.closed_at is None:
                    known.pauses[index] = replace(pause, mode="abort")
        else:
            known.pauses.append(Pause("", "operator", "lunch", by, now, row.step or "", mode))
        known.signals.append((row.seq, "pause", by, now, {"reason": "lunch", "mode": mode}))
        self.expect(session_id, "pause", pause_requested=True, pause_mode=mode)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), engine=engines, by=people, budget=st.sampled_from((None, None, 9)))
    def unpause(self, data: st.DataObject, engine: int, by: str | None, budget: int | None) -> None:
        session_id, now = self.draw_session(data), self.clock.now()
        row, known = self.rows[session_id], self.known[session_id]
        self.run(self.store(engine).unpause(session_id, by, now, budget))
        if not row.pause_requested and budget is None:
            return
        for index, pause in enumerate(known.pauses):
            if pause.kind == "operator" and pause.closed_at is None:
                known.pauses[index] = replace(pause, closed_at=now, closed_by=by)
        known.signals.append((row.seq, "resume", by, now, {} if budget is None else {"budget_usd": budget}))
        budget = row.budget_usd if budget is None else budget
        self.expect(session_id, "unpause", pause_requested=False, pause_mode="finish", budget_usd=budget)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), engine=engines, by=people)
    def cancel(self, data: st.DataObject, engine: int, by: str | None) -> None:
        session_id, now = self.draw_session(data), self.clock.now()
        row = self.rows[session_id]
        self.run(self.store(engine).cancel(session_id, by, "enough", now))
        if row.ended not in ("completed", "cancelled") and not row.cancel_requested:
            self.known[session_id].signals.append((row.seq, "cancel", by, now, {"reason": "enough"}))
            self.expect(session_id, "cancel", cancel_requested=True)

    # engines and time

    def several(self) -> bool:
        return not self.in_memory

    @precondition(lambda self: self.several() and len(self.stores) < 2)
    @rule()
    def open_another(self) -> None:
        self.open(1 if 0 in self.stores else 0)

    @precondition(several)
    @rule(engine=engines)
    def crash(self, engine: int) -> None:
        engine = self.number_of(engine)
        before = {session_id: self.status(session_id) for session_id in self.rows}
        self.run(self.stores.pop(engine).bury())
        self.after_an_end(before)

    @precondition(several)
    @rule(engine=engines)
    def close(self, engine: int) -> None:
        engine = self.number_of(engine)
        before = {session_id: self.status(session_id) for session_id in self.rows}
        store = self.stores.pop(engine)
        self.run(store.close())
        for session_id, row in self.rows.items():
            if row.holder == store._writes.number:
                self.rows[session_id] = replace(row, holder=None)
        self.after_an_end(before)

    def after_an_end(self, before: dict[str, Status]) -> None:
        for session_id, status in before.items():
            assert (status, self.status(session_id)) in LEGAL["end of a holder"]
        if not self.stores:
            self.open(0)

    @rule(seconds=jumps)
    def jump(self, seconds: int) -> None:
        self.clock.jump(seconds)

    # what holds at every moment

    @invariant()
    def the_store_is_what_the_model_says(self) -> None:
        for store in self.stores.values():
            self.run(self.check(store))

    async def check(self, store: MortalStore) -> None:
        listed = await store.find(Filter())
        assert [row.session_id for row in listed] == self.newest_first(self.rows)
        for row in listed:
            assert row == await store.get(row.session_id)
            assert row == self.row(row.session_id)
            self.check_onward(row)
            known = self.known[row.session_id]
            assert await store.records(row.key, 1) == known.records
            assert [record.seq for record in known.records] == list(range(1, row.seq + 1))
            self.check_pauses(row.session_id, await store.pauses(row.key, open_only=False))
            opened = [pause for pause in known.pauses if pause.closed_at is None]
            assert await store.pauses(row.key) == opened
            signals = await store.signals(row.key, 0)
            assert [(s.after, s.kind, s.by, s.at, json.loads(s.payload)) for s in signals] == known.signals
            flags = Flags(row.pause_requested, row.pause_mode, row.cancel_requested)
            assert await store.flags([row.key]) == {row.key: (row.fence, flags)}
        assert await store.blobs(self.blobs) == self.blobs

    def newest_first(self, session_ids: Iterable[str]) -> list[str]:
        return sorted(session_ids, key=lambda one: (self.rows[one].created_at, self.rows[one].key), reverse=True)

    def check_onward(self, row: SessionRow) -> None:
        """What only rises."""
        before = self.seen.get(row.session_id, row)
        assert row.fence >= before.fence
        assert row.seq >= before.seq
        assert row.updated_at >= before.updated_at
        assert row.spent_usd >= before.spent_usd
        self.seen[row.session_id] = row

    def check_pauses(self, session_id: str, found: list[Pause]) -> None:
        expected = self.known[session_id].pauses
        assert len(found) == len(expected)
        for index, pause in enumerate(found):
            if not expected[index].id:  # the store names the operator's pauses
                expected[index] = replace(expected[index], id=pause.id)
            if pause.closed_at is not None:
                assert self.closed.setdefault(pause.id, pause) == pause
        assert found == expected
        assert len({pause.id for pause in found}) == len(found)

    # and at the end

    def end_everything(self) -> None:
        """Once the faults stop, every session can be taken up and brought to its end."""
        store = self.store(0)
        for session_id, row in self.rows.items():
            if row.ended in ("completed", "cancelled"):
                continue
            held = self.run(store.claim(session_id, steal=True))
            belief = Belief(held.fence, held.seq, held.digest)
            commit = self.next_commit(0, belief, session_id, 1, ended="completed", release=True)
            assert self.run(store.commit(commit)) is not None
            ended = self.run(store.get(session_id))
            assert ended is not None
            assert ended.status is Status.COMPLETED
            assert len(self.run(store.records(row.key, 1))) == row.seq + 1


class InMemory(StoreMachine):
    in_memory = True


MACHINES = {":memory:": InMemory, "file": StoreMachine}


@pytest.mark.covers("S1.14", "S1.21", "S3.88")
@pytest.mark.parametrize("place", [":memory:", "file"])
def test_after_any_history_of_verbs_the_store_is_what_the_model_says(place: str) -> None:
    many = settings(max_examples=examples(35 if place == ":memory:" else 50), stateful_step_count=30)
    run_state_machine_as_test(MACHINES[place], settings=many)


BROKEN = {
    "the fence is not looked at": ("move", "AND fence = ?", "AND ? IS NOT NULL"),
    "any engine may commit": ("move", "AND holder = ?", "AND ? IS NOT NULL"),
    "the position is not looked at": ("move", "AND seq = ?", "AND ? IS NOT NULL"),
    "a commit erases a pause": ("move", "leaving = ?,", "leaving = ?, pause_requested = 0,"),
    "time falls": ("move", "max(updated_at, ?)", "?"),
    "a claim keeps the fence": ("claim", "fence + 1", "fence"),
    "a closed pause is closed again": ("close_pause", "AND closed_at IS NULL", ""),
    "a crash is not counted": ("claim", "crashes + ?", "crashes + 0 * ?"),
}

NEED_TWO_ENGINES = ("any engine may commit", "a crash is not counted")


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_store_is_found_out(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, right, wrong = BROKEN[fault]
    assert right in QUERIES[name]
    monkeypatch.setitem(QUERIES, name, QUERIES[name].replace(right, wrong))
    monkeypatch.setattr(writes, "_MOVE", QUERIES["move"])
    place = "file" if fault in NEED_TWO_ENGINES else ":memory:"
    quickly = settings(max_examples=200, stateful_step_count=30, phases=[Phase.generate], database=None)
    with pytest.raises((AssertionError, HoldfastError, Failed, ExceptionGroup)):
        run_state_machine_as_test(MACHINES[place], settings=quickly)
