"""Run any history of store verbs and compare with a model: driving, pausing, engines and time.

The model is a dictionary of sessions. Two engines share a file. Each may hold a session, claim one from the other, die,
or close cleanly, while the wall clock jumps.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from pausepoint.errors import AlreadyRunning, HoldLost, SessionEnded, VerbRefused
from pausepoint.model.budgets import Allowance
from pausepoint.model.commits import Commit, NewSession
from pausepoint.model.records import Record, first_digest, seal
from pausepoint.model.sessions import Failure, Filter, Pause, QuestionStatus, SessionRow, Status
from tests.laws.store_model import IDS, LEGAL, WORKFLOWS, Belief, StoreModel, over

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


class StoreMachine(StoreModel):
    """Rules that create, drive, pause and cancel sessions, and that open, close and kill engines."""

    def teardown(self) -> None:
        try:
            self.end_everything()
        finally:
            for store in self.stores.values():
                self.run(store.close())
            self.runner.close()
            self.folder.cleanup()

    # sessions

    @rule(
        session_id=ids, engine=engines, claim=st.booleans(), by=people, paused=st.booleans(), budget=st.booleans(),
        above=st.sampled_from((None, *IDS)), kept=st.booleans(), shares=st.booleans(), guest=rarely,
    )  # fmt: skip
    def create(
        self, session_id: str, engine: int, claim: bool, by: str | None, paused: bool, budget: bool,
        above: str | None, kept: bool, shares: bool, guest: bool = False,
    ) -> None:  # fmt: skip
        now = self.clock.now()
        first = seal(first_digest(session_id), 1, 0, "key", "first", 1, now, b'{"first":1}')
        pause = Pause("x", "operator", "later", by, now) if paused else None
        owner = "ann" if session_id != "cat" else None
        tags = ("red",) if session_id != "bee" else ()
        parent = self.rows[above].key if above in self.rows else None
        new = NewSession(
            session_id, f"w{len(session_id) % 2}", 1, owner, tags, b"d" * 32, now, "first", 1,
            7 if budget else None, (first,), pause=pause, claim=claim and not paused, parent=parent,
            budget_operations=8 if budget and claim else None,
            keep_for=HOUR * 1_000_000 if kept else None, names=tuple(self.blobs) if shares else (),
            guest=guest,
        )  # fmt: skip
        row = self.run(self.store(engine).create(new))
        if session_id in self.rows or session_id in {stone.session_id for stone in self.removing.values()}:
            assert row is None
            return
        assert row is not None
        self.created(new, row.key, self.store(engine).number, above if parent is not None else None)
        if row.holder is not None:
            self.believe(self.number_of(engine), row)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), engine=engines, steal=st.booleans(), paused=st.booleans())
    def claim(self, data: st.DataObject, engine: int, steal: bool, paused: bool) -> None:
        session_id, engine = self.draw_session(data), self.number_of(engine)
        row = self.row(session_id)
        claim = self.store(engine).claim(session_id, steal, paused=paused)
        if over(row):
            with pytest.raises(SessionEnded):
                self.run(claim)
        elif row.live and not steal:
            with pytest.raises(AlreadyRunning):
                self.run(claim)
        elif not paused and (row.pause_requested or self.is_concerned(session_id)):
            with pytest.raises(VerbRefused):
                self.run(claim)
        else:
            self.claimed(engine, self.run(claim))

    def claimed(self, engine: int, row: SessionRow) -> None:
        self.taken(row.session_id, self.store(engine).number)
        self.believe(engine, row)

    @rule(engine=engines, limit=st.integers(1, 3), skips=rarely)
    def take(self, engine: int, limit: int, skips: bool) -> None:
        engine, now = self.number_of(engine), self.clock.now()
        for session_id, row in self.rows.items():
            if row.holder is not None and row.holder not in self.alive():
                self.rows[session_id] = replace(row, holder=None, crashes=row.crashes + 1)
        ready = [row for row in map(self.row, self.rows) if row.ready_at is not None and row.ready_at <= now]
        ready = [row for row in ready if not row.under_everything]
        ready.sort(key=lambda row: (row.ready_at, row.key))
        skip = {row.key: row.seq for row in ready[:1]} if skips else {}
        wanted = [row for row in ready if row.key not in skip][:limit]
        found = self.run(self.store(engine).take(now, WORKFLOWS, limit, skip))
        assert [row.session_id for row in found] == [row.session_id for row in wanted]
        for row in found:
            self.claimed(engine, row)

    @precondition(lambda self: self.believing())
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        """Give up the hold of a session without a record."""
        engine, session_id, belief = self.draw_belief(data)
        self.run(self.store(engine).release(belief.key, belief.fence))
        row = self.rows.get(session_id)
        number = self.store(engine).number
        if row is not None and (row.key, row.fence, row.holder) == (belief.key, belief.fence, number):
            self.rows[session_id] = replace(row, holder=None)

    @precondition(lambda self: self.rows and len(self.stores) == 2)
    @rule(data=st.data())
    def claim_from_both_sides(self, data: st.DataObject) -> None:
        session_id = self.draw_session(data)
        row = self.row(session_id)

        async def race() -> list[SessionRow | BaseException]:
            claims = (self.stores[engine].claim(session_id, paused=True) for engine in (0, 1))
            return await asyncio.gather(*claims, return_exceptions=True)

        results = self.run(race())
        winners = [engine for engine, result in enumerate(results) if isinstance(result, SessionRow)]
        assert len(winners) == (0 if row.live or over(row) else 1)
        assert all(isinstance(result, SessionRow | AlreadyRunning | SessionEnded) for result in results)
        if winners:
            self.hand_over(winners[0], results[winners[0]])

    def hand_over(self, winner: int, row: Any) -> None:
        """Let several engines race for a session. Any of them may win; the model follows the winner."""
        beliefs = dict(self.beliefs)
        self.claimed(winner, row)
        belief = self.beliefs[winner, row.session_id]
        self.commit(winner, row.session_id, self.next_commit(0, belief, row.session_id, 1, release=True))
        self.beliefs = beliefs
        self.claimed(0, self.run(self.stores[0].claim(row.session_id, paused=True)))

    # driving

    def draw_session(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.rows)), label="session")

    def next_commit(self, engine: int, belief: Belief, session_id: str, size: int, **facts: Any) -> Commit:
        """Make a commit of ``size`` records; with ``framed`` the last one is a key frame."""
        framed, first = facts.pop("framed", False), facts.pop("payload", None)
        records: list[Record] = []
        digest = belief.digest
        for n in range(belief.seq + 1, belief.seq + 1 + size):
            self.count += 1
            payload = json.dumps({"count": self.count, "by": engine}).encode()
            payload, first = first or payload, None
            kind: Any = "key" if framed and n == belief.seq + size else "checkpoint"
            records.append(seal(digest, n, n - 1, kind, "first", n, self.clock.now(), payload))
            digest = records[-1].digest
        row = self.rows.get(session_id)
        frame = records[-1].seq if framed else row.key_frame if row is not None else 1
        if row is not None and row.parent is not None:
            facts["parent"] = row.parent
        return Commit(
            belief.key, belief.fence, belief.seq, tuple(records), self.clock.now(), frame,
            f"step {self.count}", belief.seq, **facts,
        )  # fmt: skip

    def commit(self, engine: int, session_id: str, commit: Commit) -> None:
        """Commit, and check that store and model agree on the result."""
        submitted = self.store(engine).commit(commit)
        if not self.fits(engine, session_id, commit):
            with pytest.raises(HoldLost):
                self.run(submitted)
        elif not self.condition_holds(session_id, commit):
            assert self.run(submitted) is None
        else:
            assert self.run(submitted) == self.apply(engine, session_id, commit)

    def condition_holds(self, session_id: str, commit: Commit) -> bool:
        """Return whether the condition of a commit holds: a requested pause, or a waiting question."""
        question = self.known[session_id].questions.get(commit.only_if_waiting)
        waits = question is not None and question.status is QuestionStatus.WAITING
        paused = self.row(session_id).pause_requested
        return (paused or not commit.only_if_paused) and (waits or not commit.only_if_waiting)

    def draw_belief(self, data: st.DataObject) -> tuple[int, str, Belief]:
        """Return what a live engine believes, even if it is stale."""
        held = sorted(key for key in self.beliefs if key[0] in self.stores)
        engine, session_id = data.draw(st.sampled_from(held), label="belief")
        return engine, session_id, self.beliefs[engine, session_id]

    def believing(self) -> bool:
        return any(engine in self.stores for engine, _ in self.beliefs)

    @precondition(believing)
    @rule(data=st.data(), size=st.integers(1, 3), spend=st.integers(0, 2), only=rarely, big=st.booleans(),
          framed=rarely)  # fmt: skip
    def go_on(self, data: st.DataObject, size: int, spend: int, only: bool, big: bool, framed: bool) -> None:
        engine, session_id, belief = self.draw_belief(data)
        blob = b"%d" % self.count * 100
        facts: dict[str, Any] = {"blobs": ((first_digest(blob.decode()), blob),)} if big else {}
        self.commit(
            engine, session_id,
            self.next_commit(
                engine, belief, session_id, size, only_if_paused=only, spend_usd=spend, spend_tokens=spend * 3,
                spend_operations=spend * 2,
                progress=(spend, 2) if spend else None, held_by_guard=spend == 2, keep_crashes=spend == 1,
                framed=framed, **facts,
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
        """Close pauses. Pauses that are already closed must not change."""
        engine, session_id, _ = self.draw_belief(data)
        pauses = self.known[session_id].pauses if session_id in self.known else []
        others = tuple(pause.id for pause in pauses if pause.kind != "operator")
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
        """Submit commits together. They may share a transaction, but each succeeds or fails on its own."""
        work: list[tuple[int, str, Commit]] = []
        ahead = dict(self.beliefs)
        for _ in range(count):
            engine, session_id, _ = self.draw_belief(data)
            commit = self.next_commit(engine, ahead[engine, session_id], session_id, 1)
            last = commit.records[-1]
            ahead[engine, session_id] = Belief(commit.key, commit.fence, last.seq, last.digest)
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

    @rule(
        engine=engines, query=filters, mode=modes, by=people, freeze=st.booleans(), tree=st.booleans(),
        standing=st.booleans(),
    )  # fmt: skip
    def pause(
        self, engine: int, query: dict[str, Any], mode: Any, by: str | None, freeze: bool, tree: bool, standing: bool
    ) -> None:
        if query.get("session_id", next(iter(self.rows), "")) not in self.rows:
            return
        stands = standing and not query
        pause = Pause("", "operator", "lunch", by, self.clock.now(), mode=mode, freeze=freeze, standing=stands)
        rows = self.run(self.store(engine).pause(Filter(**query, tree=tree and "session_id" in query), pause))
        if stands:
            assert rows == []
            self.stands(pause)
            return
        found = self.matching(query, tree)
        assert {row.session_id for row in rows} == set(found)
        for session_id in found:
            if not over(self.rows[session_id]):
                self.asked_to_pause(session_id, pause)

    @rule(engine=engines, by=people)
    def lift(self, engine: int, by: str | None) -> None:
        now = self.clock.now()
        assert self.run(self.store(engine).lift(by, now)) is self.lifted(by, now)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), engine=engines, by=people, budget=st.sampled_from((None, None, 9)), wake=st.booleans(),
          exempt=st.booleans())  # fmt: skip
    def unpause(
        self, data: st.DataObject, engine: int, by: str | None, budget: int | None, wake: bool, exempt: bool
    ) -> None:  # fmt: skip
        limits = Allowance(usd=budget, tokens=budget)
        session_id, now = self.draw_session(data), self.clock.now()
        self.run(self.store(engine).unpause(session_id, by, now, limits, wake, exempt))
        for each in self.tree(session_id) if exempt or self.still is None else ():
            named = each == session_id
            self.unpaused(each, by, now, limits if named else Allowance(), wake, named)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), engine=engines, by=people)
    def cancel(self, data: st.DataObject, engine: int, by: str | None) -> None:
        session_id, now = self.draw_session(data), self.clock.now()
        rows = self.run(self.store(engine).cancel(session_id, by, "enough", now))
        assert rows[0].session_id == session_id
        self.cancelled(session_id, by, now)

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
        self.died(self.number_of(engine))

    def died(self, engine: int) -> None:
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
            if row.holder == store.number:
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

    # the end

    def end_everything(self) -> None:
        """Stop the faults, and run every session until it ends."""
        store = self.store(0)
        for session_id, row in self.rows.items():
            if over(row):
                continue
            held = self.run(store.claim(session_id, steal=True, paused=True))
            belief = Belief(held.key, held.fence, held.seq, held.digest)
            commit = self.next_commit(0, belief, session_id, 1, ended="completed", release=True)
            assert self.run(store.commit(commit)) is not None
            ended = self.run(store.get(session_id))
            assert ended is not None
            assert ended.status is Status.COMPLETED
            assert len(self.run(store.records(row.key, 1))) == row.seq + 1
        self.run(self.prove(store))
