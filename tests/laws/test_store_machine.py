"""The store matches the model after any history of verbs: messages, trees, removal, redaction, a death at any write."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from copy import deepcopy
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import apsw
import pytest
from _pytest.outcomes import Failed
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from pausepoint.errors import AlreadyRunning, HoldLost, PausepointError, SessionEnded, StoreError, VerbRefused
from pausepoint.model.commits import Commit, Report
from pausepoint.model.sessions import Filter, Pause, SessionRow, has_expired
from pausepoint.model.stores import Tombstone
from pausepoint.stores.sql import commits as shared
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sqlite import commits
from pausepoint.stores.sqlite.sql import QUERIES
from tests.laws.acts import answered, ask, asked, create, drive, go_on, lift, park, pause, send, unpause
from tests.laws.store_machine import HOUR, engines, people, rarely
from tests.laws.store_model import Belief, over
from tests.laws.store_questions import QuestionMachine
from tests.support.examples import run_histories
from tests.support.histories import Act, play
from tests.support.mortal import MortalStore

MICROS = 1_000_000
waits = st.sampled_from((None, "message", "child", "child,message", "answer", "answer,message"))
delays = st.sampled_from((None, -1, 1, HOUR))

ENDS: Counter[str] = Counter()
"""Counts how verbs ended during which a process died."""

Verb = tuple[Coroutine[Any, Any, Any], Callable[[], object]]
"""A call to the store, and its effect on the model."""


class WholeStoreMachine(QuestionMachine):
    """The store machine with waits, messages, session trees, redaction and removal."""

    # waiting

    @precondition(lambda self: self.believing())
    @rule(data=st.data(), waiting=waits, delay=delays)
    def wait(self, data: st.DataObject, waiting: str | None, delay: int | None) -> None:
        engine, session_id, belief = self.draw_belief(data)
        wakes_at = None if delay is None else self.clock.now() + delay * MICROS
        facts = {"release": True, "waiting": waiting, "wakes_at": wakes_at}
        self.commit(engine, session_id, self.next_commit(engine, belief, session_id, 1, **facts))

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), engine=engines, by=people)
    def send(self, data: st.DataObject, engine: int, by: str | None) -> None:
        session_id = self.draw_session(data)
        work, happens = self.sending(self.store(engine), session_id, by)
        if over(self.rows[session_id]):
            with pytest.raises(SessionEnded):
                self.run(work)
            return
        self.run(work)
        happens()

    def sending(self, store: Any, session_id: str, by: str | None) -> Verb:
        self.count += 1
        now, value = self.clock.now(), {"value": self.count}

        def happens() -> None:
            self.deliver(session_id, self.signal(session_id, "message", by, now, value), "message")

        return store.send(session_id, by, now, json.dumps(value).encode()), happens

    @precondition(lambda self: self.believing())
    @rule(data=st.data(), count=st.integers(1, 3), thaw=st.booleans())
    def take_in(self, data: st.DataObject, count: int, thaw: bool) -> None:
        """Consume messages with a record. Each message is consumed once."""
        engine, session_id, belief = self.draw_belief(data)
        inbox = self.known[session_id].inbox if session_id in self.known else []
        commit = self.next_commit(engine, belief, session_id, 1, consume=tuple(inbox[:count]), thaw=thaw)
        self.commit(engine, session_id, commit)

    @precondition(lambda self: self.believing())
    @rule(data=st.data(), ends=st.booleans())
    def tell_the_parent(self, data: st.DataObject, ends: bool) -> None:
        engine, session_id, belief = self.draw_belief(data)
        report = Report("completed" if ends else "paused", json.dumps({"child": session_id}).encode(), ends)
        facts: dict[str, Any] = {"report": report, "spend_usd": 1, "release": ends}
        commit = self.next_commit(engine, belief, session_id, 1, ended="completed" if ends else None, **facts)
        self.commit(engine, session_id, commit)

    # rewinding

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), engine=engines, off=st.sampled_from((0, 0, 0, 1)), version=st.sampled_from((None, 2)))
    def revise(self, data: st.DataObject, engine: int, off: int, version: int | None) -> None:
        session_id, engine = self.draw_session(data), self.number_of(engine)
        row = self.row(session_id)
        belief = Belief(row.key, row.fence + off, row.seq, row.digest)
        below = "it was rewound" if version else ""
        facts: dict[str, Any] = {"release": True, "framed": True, "version": version, "cancel_children": below}
        self.revised(engine, row, self.next_commit(engine, belief, session_id, 2, **facts))

    def revised(self, engine: int, row: SessionRow, commit: Commit) -> None:
        work = self.store(engine).revise(commit)
        if row.live:
            with pytest.raises(AlreadyRunning):
                self.run(work)
        elif commit.fence != row.fence:
            with pytest.raises(HoldLost):
                self.run(work)
        else:
            self.run(work)
            self.has_revised(engine, row, commit)

    def has_revised(self, engine: int, row: SessionRow, commit: Commit) -> None:
        asked = row.cancel_requested and row.ended != "cancelled"
        beliefs = dict(self.beliefs)
        self.settled(row.session_id)
        stored = self.rows[row.session_id]
        self.rows[row.session_id] = replace(stored, fence=row.fence + 1, cancel_requested=asked)
        reopened = over(row) and commit.ended is None
        if reopened:
            self.known[row.session_id].exempt = self.exempt_like(row.parent_id)
        self.apply(engine, row.session_id, commit, "revise")
        pause = self.pause_above(row.parent_id) if reopened else None
        if pause is not None:
            self.asked_to_pause(row.session_id, pause)
        if reopened:
            self.noted(row.session_id, commit.updated_at)
        if commit.cancel_children:
            self.cancelled(row.session_id, commit.closed_by, commit.updated_at, commit.cancel_children, below=True)
        self.beliefs = beliefs

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), engine=engines, drop=st.booleans())
    def redact(self, data: st.DataObject, engine: int, drop: bool) -> None:
        """Redact a session. Records and signals lose their content, and large values lose their name."""
        session_id, engine = self.draw_session(data), self.number_of(engine)
        row, known = self.row(session_id), self.known[session_id]
        belief = Belief(row.key, row.fence, row.seq, row.digest)
        facts: dict[str, Any] = {
            "redact": tuple(record.seq for record in known.records[1:] if record.seq % 2),
            "redact_signals": (len(known.signals),) if known.signals else (),
            "unname": tuple(sorted(known.names)[:1]) if drop else (),
            "consume": (len(known.signals),) if len(known.signals) in known.inbox else (),
        }
        self.revised(engine, row, self.next_commit(engine, belief, session_id, 2, release=True, framed=True, **facts))

    # removal

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), engine=engines, by=people, expired=st.booleans())
    def remove(self, data: st.DataObject, engine: int, by: str | None, expired: bool) -> None:
        session_id, now = self.draw_session(data), self.clock.now()
        tree = [self.row(each) for each in self.tree(session_id)]
        work = self.store(engine).remove(session_id, by, "old", now, expired)
        if expired and not has_expired(tree, now):
            assert self.run(work) == []
        elif tree[0].parent is not None:
            with pytest.raises(VerbRefused):
                self.run(work)
        elif any(row.live for row in tree):
            with pytest.raises(AlreadyRunning):
                self.run(work)
        else:
            assert {removal.key for removal in self.run(work)} == {row.key for row in tree}
            self.removed(tree, by, now)

    def removed(self, tree: list[SessionRow], by: str | None, now: int) -> None:
        for row in tree:
            self.removing[row.key] = Tombstone(
                row.session_id, row.workflow, row.owner, row.status.value, row.created_at, now, by, "old", row.seq,
                row.digest,
            )  # fmt: skip
            del self.rows[row.session_id], self.known[row.session_id]

    @precondition(lambda self: self.removing)
    @rule(data=st.data(), engine=engines, limit=st.integers(1, 4), batches=st.integers(1, 6))
    def strip(self, data: st.DataObject, engine: int, limit: int, batches: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.removing)), label="key")
        for _ in range(batches):
            stone = self.run(self.store(engine).strip(key, limit))
            if stone is not None:
                assert stone == self.removing.pop(key)
                self.stones.append(stone)
                break

    @rule(engine=engines, apply=st.booleans())
    def sweep(self, engine: int, apply: bool) -> None:
        """Sweep values without references, but keep those that a session under removal may still refer to."""
        store, last = self.store(engine), 0
        named = {name for known in self.known.values() for name in known.names}
        loose = {name for name in self.blobs if name not in named}
        count = 0
        while True:
            found = self.run(store.sweep(last, 2, apply))
            count += found.count
            if found.last is None:
                break
            last = found.last
        assert count == len(loose) or (self.removing and count < len(loose))
        for name in loose if apply else ():
            self.blobs.pop(name)

    @precondition(lambda self: self.rows)
    @rule(engine=engines, later=st.sampled_from((0, HOUR, 2 * HOUR)))
    def look_for_expired(self, engine: int, later: int) -> None:
        now = self.clock.now() + later * MICROS
        found = self.run(self.store(engine).expired(now, 0, 100))
        roots = [row for row in self.rows.values() if row.parent is None and row.keep_for is not None]
        old = [row for row in roots if max(row.updated_at, row.wakes_at or 0) + (row.keep_for or 0) <= now]
        assert found == sorted((row.key, row.session_id) for row in old)

    # death

    @precondition(lambda self: self.several() and self.rows)
    @rule(data=st.data(), engine=engines, writes=st.integers(0, 10), torn=st.booleans(), untold=rarely)
    def die_at_a_write(self, data: st.DataObject, engine: int, writes: int, torn: bool, untold: bool) -> None:
        """Kill the process in the middle of a verb. The verb then took effect completely or not at all.

        With ``untold``, it took effect, but the caller got no reply.
        """
        engine = self.number_of(engine)
        verbs = self.mortal_verbs(data, engine)
        work, happens = verbs[data.draw(st.sampled_from(sorted(verbs)), label="verb")]()
        fate = self.fates[engine]
        fate.left, fate.torn = None if untold else writes, torn
        if untold:
            self.store(engine).doom(0, after=True)
        try:
            self.run(work)
        except StoreError:
            assert fate.over or untold
            self.take_what_is_there(engine, happens, surely=untold)
        else:
            assert not untold
            fate.left = None
            happens()
            if fate.over:  # the verb finished its writes before the death
                self.died(engine)

    def mortal_verbs(self, data: st.DataObject, engine: int) -> dict[str, Callable[[], Verb]]:
        session_id, store, now = self.draw_session(data), self.store(engine), self.clock.now()
        row, tree = self.row(session_id), [self.row(each) for each in self.tree(session_id)]
        pause = Pause("", "operator", "lunch", "eve", now, freeze=True, standing=True)

        def pausing() -> Verb:
            return store.pause(Filter(unended=True), pause), lambda: self.stands(pause)

        def claiming() -> Verb:
            return store.claim(session_id, True, paused=True), lambda: self.taken(session_id, store.number)

        def removing() -> Verb:
            return store.remove(session_id, None, "old", now), lambda: self.removed(tree, None, now)

        def revising() -> Verb:
            belief = Belief(row.key, row.fence, row.seq, row.digest)
            blob = b"%d" % self.count * 3000
            facts: dict[str, Any] = {"release": True, "framed": True, "blobs": ((sha(blob), blob),)}
            commit = self.next_commit(engine, belief, session_id, 2, **facts)
            return store.revise(commit), lambda: self.has_revised(engine, row, commit)

        verbs: dict[str, Callable[[], Verb]] = {"pause": pausing}
        if self.still is not None:
            verbs["lift"] = lambda: (store.lift("eve", now), lambda: self.lifted("eve", now))
        if not over(row):
            verbs |= {"send": lambda: self.sending(store, session_id, "eve"), "claim": claiming}
        for facts in list(self.known[session_id].questions.values())[:1]:
            verbs["answer"] = partial(self.answering, store, session_id, facts)
        if row.parent is None and not any(each.live for each in tree):
            verbs["remove"] = removing
        if not row.live:
            verbs["revise"] = revising
        elif (engine, session_id) in self.beliefs:
            verbs |= self.mortal_commit(engine, session_id)
        return verbs

    def mortal_commit(self, engine: int, session_id: str) -> dict[str, Callable[[], Verb]]:
        belief = self.beliefs[engine, session_id]
        blob = b"%d" % self.count * 3000
        facts: dict[str, Any] = {"release": True, "spend_usd": 1, "blobs": ((sha(blob), blob),), "waiting": "message"}
        commit = self.next_commit(engine, belief, session_id, 3, **facts)
        if not self.fits(engine, session_id, commit):
            return {}

        def committing() -> Verb:
            return self.store(engine).commit(commit), lambda: self.apply(engine, session_id, commit)

        return {"commit": committing}

    def take_what_is_there(self, engine: int, happens: Callable[[], object], surely: bool) -> None:
        """Make the model follow the store, which is as before or (always, with ``surely``) as after the verb."""
        before = self.snapshot()
        happens()
        after = self.snapshot()
        vars(self).update(deepcopy(before))
        was_alone = len(self.stores) == 1  # then another process opens the store
        self.died(engine)
        try:
            self.the_store_is_what_the_model_says()
        except AssertionError:
            ENDS["as a whole"] += 1
            vars(self).update(after)
            if was_alone:
                self.opened()
        else:
            assert not surely or before == after
            ENDS["not at all"] += 1

    def snapshot(self) -> dict[str, Any]:
        parts = ("rows", "known", "blobs", "removing", "beliefs", "still", "rounds")
        return deepcopy({part: getattr(self, part) for part in parts})


def sha(blob: bytes) -> bytes:
    return sha256(blob).digest()


class InMemory(WholeStoreMachine):
    in_memory = True


MACHINES = {":memory:": InMemory, "file": WholeStoreMachine}


@pytest.mark.long
@pytest.mark.covers("S1.14", "S1.21", "S3.88")
@pytest.mark.parametrize("place", [":memory:", "file"])
def test_after_any_history_of_verbs_the_store_is_what_the_model_says(place: str) -> None:
    run_histories(MACHINES[place], 15, steps=30)


class Fault(NamedTuple):
    """A broken query: the correct text, the wrong text, and a history that makes the fault visible."""

    query: str
    right: str
    wrong: str
    history: Callable[[], list[Act]]
    place: str = ":memory:"


def nothing(history: Callable[[], list[Act]], query: str) -> Fault:
    """Return a fault that makes the query find no row."""
    return Fault(query, "WHERE", "WHERE 0 AND", history)


BROKEN: dict[str, Fault] = {
    "a commit erases a pause": Fault(
        "move", "held_by_guard = ?,", "held_by_guard = ?, pause_requested = 0,", lambda: [create(), pause(), go_on()]
    ),
    "time falls": Fault("move", "max(updated_at, ?)", "?", lambda: [create(), ("jump", {"seconds": -HOUR}), go_on()]),
    "a claim keeps what it waited for": Fault(
        "claim", "waiting = NULL, wakes_at = NULL,", "",
        lambda: [create(), drive("wait", waiting=None, delay=HOUR), ask("claim", steal=False, paused=True)],
    ),
    "a closed pause is closed again": Fault(
        "close_pause", "AND closed_at IS NULL", "",
        lambda: [create(), drive("stand_before_an_obstacle", kind="guard", release=False),
                 drive("lift_the_obstacles_twice")],
    ),
    "a crash is not counted": Fault(
        "free", "crashes + 1", "crashes + 0",
        lambda: [create(), ("crash", {"engine": 0}), ask("claim", steal=False, paused=True)], "file",
    ),
    "nobody finds what is ready": nothing(lambda: [create(), park()], "reckon"),
    "a guest is ready": Fault("reckon", "OR removing OR guest", "OR removing", lambda: [create(guest=True), park()]),
    "a guest wakes somebody": Fault(
        "next_wake", "AND guest = 0", "", lambda: [create(guest=True), drive("wait", waiting=None, delay=HOUR)]
    ),
    "who comes back finds nothing ready": Fault(
        "release_all", ", ready_at = ", ", updated_at = updated_at + 0 * ",
        lambda: [create(), ("close", {"engine": 0})], "file",
    ),
    "a message wakes nobody": Fault(
        "has_mail", "THEN 0", "THEN wakes_at", lambda: [create(), drive("wait", waiting="message", delay=None), send()]
    ),
    "what came while it parked wakes nobody": Fault(
        "release_waiting", "THEN 0", "THEN ?2", lambda: [create(), send(), drive("wait", waiting="message", delay=None)]
    ),
    "a message is taken in again and again": nothing(
        lambda: [create(), send(), drive("take_in", count=1, thaw=False)], "consume"
    ),
    "money stays with the child": nothing(
        lambda: [create(), create("bee", "ant"), go_on("bee", spend=1)], "charge_ancestors"
    ),
    "a parent is not woken by the end of its child": Fault(
        "has_mail", "THEN 0", "THEN wakes_at",
        lambda: [create(), create("bee", "ant"), drive("wait", waiting="child", delay=None),
                 drive("tell_the_parent", "bee", ends=True)],
    ),
    "frozen time passes": nothing(
        lambda: [create(), pause(), ("jump", {"seconds": 1}), unpause()], "freeze"
    ),
    "what is created is not paused": Fault(
        "standing_pause", "FROM standing_pause", "FROM standing_pause WHERE 0",
        lambda: [create(), pause(standing=True), create("bee")],
    ),
    "what parked under a pause of everything waits for nobody": Fault(
        "release", "0, NULL))", "NULL, NULL))",
        lambda: [create(), pause(standing=True), park(), lift()],
    ),
    "what was created under a pause of everything waits for nobody": nothing(
        lambda: [create(), pause(standing=True), create("bee"), lift()], "due_later"
    ),
    "a lifted pause stays open": nothing(
        lambda: [create("bee"), pause(standing=True), create(), lift(), ask("claim", steal=False, paused=True)],
        "settle",
    ),
    "a lifted pause counts twice": Fault(
        "settle", ", exempt = ", ", crashes = crashes + 0 * ",
        lambda: [create(), drive("wait", waiting=None, delay=HOUR), pause(standing=True), ("jump", {"seconds": 1}),
                 lift(), ask("claim", steal=False, paused=True)],
    ),
    "who was resumed is paused with all the others": nothing(
        lambda: [create(), park(), pause(standing=True), unpause()], "excuse"
    ),
    "who was resumed is never paused again": Fault(
        "anybody_exempt", "EXISTS", "NOT EXISTS",
        lambda: [create(), park(), pause(standing=True), unpause(), pause(standing=True)],
    ),
    "a commit does not hear that everything is paused": Fault(
        "exempt", "SELECT exempt", "SELECT 99", lambda: [create(), pause(standing=True), go_on()]
    ),
    "who is opened again runs while everything is paused": nothing(
        lambda: [create(), park(), pause(standing=True), unpause(), ask("claim", steal=False, paused=False),
                 drive("park", ended="completed"), ask("revise", off=0, version=None)], "follow",
    ),
    "who was cancelled stays so": nothing(
        lambda: [create(), ask("cancel", by=None), drive("park", ended="cancelled"),
                 ask("revise", off=0, version=None)],
        "withdraw_cancel",
    ),
    "a pause does not end what is due": Fault(
        "next_wake", "AND pause_requested = 0", "",
        lambda: [create(), drive("wait", waiting=None, delay=HOUR), pause()],
    ),
    "a removal leaves the names": nothing(
        lambda: [create(), go_on(big=True), park(), ask("remove", by=None, expired=False),
                 ask("strip", 1, limit=4, batches=6), ("sweep", {"engine": 0, "apply": True})],
        "strip_names",
    ),
    "redaction leaves the content": nothing(
        lambda: [create(), go_on(size=3), park(), ask("redact", drop=False)], "blank_records"
    ),
    "a value that others name is dropped": Fault(
        "drop_unnamed_blob", "NOT EXISTS", "1 OR EXISTS",
        lambda: [create(), go_on(big=True), park(), create("bee", shares=True), ask("redact", drop=True)],
    ),
    "the wrong key frame is found": Fault(
        "key_frame_before", "DESC", "ASC", lambda: [create(), go_on(framed=True), go_on()]
    ),
    "an answer wakes nobody": Fault(
        "has_mail", "THEN 0", "THEN wakes_at",
        lambda: [create(), asked(), drive("wait", waiting="answer", delay=None), answered()],
    ),
    "an answer that came while it parked wakes nobody": Fault(
        "release_waiting", "instr(?1, 'answer')", "0",
        lambda: [create(), asked(), answered(), drive("wait", waiting="answer", delay=None)],
    ),
    "a second answer is taken": Fault(
        "change_question", "answer = ?", "answer = NULL * ?", lambda: [create(), asked(), answered(), answered(2)]
    ),
    "what could not be right stays mail": nothing(
        lambda: [create(), asked(), answered([], message=True), answered()], "consume"
    ),
    "a question that waits is settled by nobody": nothing(
        lambda: [create(), asked(), drive("leave_the_visit")], "open_questions"
    ),
    "a late answer is taken": Fault(
        "ask", "expires_at = excluded.expires_at", "expires_at = NULL",
        lambda: [create(), asked(lasts=1), ("ask_the_first_again", {"lasts": HOUR}), ("jump", {"seconds": 2 * HOUR}),
                 answered()],
    ),
    "frozen time counts for who counts questions": Fault(
        "tally_questions", "own.frozen +", "0 +",
        lambda: [create(), asked(lasts=1), pause(), ("jump", {"seconds": HOUR}), unpause()],
    ),
    "when it was first asked changes with the round": Fault(
        "ask", "DO UPDATE SET", "DO UPDATE SET created_at = created_at + 1,",
        lambda: [create(), asked(), ("ask_the_first_again", {"lasts": None})],
    ),
    "what was refused is not counted": Fault(
        "change_question", "refused = ?", "refused = 0 * ?", lambda: [create(), asked(), answered(seen=False)]
    ),
    "what is open is forgotten": Fault(
        "settled_questions", "'CANCELLED'", "'CANCELLED', 'WAITING_USER_INPUT'",
        lambda: [create(), asked(), ("forget", {"engine": 0, "later": HOUR})],
    ),
    "a session that sleeps expires": Fault(
        "expired", "coalesce(wakes_at, 0)", "0",
        lambda: [create(kept=True), drive("wait", waiting=None, delay=HOUR),
                 ("look_for_expired", {"engine": 0, "later": HOUR})],
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_store_is_found_out(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = BROKEN[fault]
    play(MACHINES[broken.place](), broken.history())
    assert broken.right in QUERIES[broken.query]
    monkeypatch.setitem(QUERIES, broken.query, QUERIES[broken.query].replace(broken.right, broken.wrong))
    monkeypatch.setattr(commits, "_MOVE", QUERIES["move"])
    with pytest.raises((AssertionError, PausepointError, Failed)) as caught:
        play(MACHINES[broken.place](), broken.history())
    assert not isinstance(caught.value.__cause__, apsw.SQLError), "the broken query must still be valid SQL"


LOOKED_AT: dict[str, tuple[int, str, Callable[[], list[Act]]]] = {
    "the fence": (2, ":memory:", lambda: [create(), drive("commit_beside_the_mark", off=-1, what="fence")]),
    "who holds it": (3, "file", lambda: [create(), ("close", {"engine": 0}), go_on()]),
    "the position": (
        1, ":memory:", lambda: [create(), go_on(), drive("commit_beside_the_mark", off=-1, what="base_seq")]
    ),
}  # fmt: skip


@pytest.mark.parametrize("fact", LOOKED_AT)
def test_a_store_that_does_not_look_at_a_fact_before_a_commit_is_found_out(
    fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    column, place, history = LOOKED_AT[fact]
    play(MACHINES[place](), history())
    fits = shared.fits

    def fooled(engine: Engine, commit: Commit, stands: Sequence[Any]) -> bool:
        expected = (None, commit.base_seq, commit.fence, engine.number)[column]
        return fits(engine, commit, (*stands[:column], expected, *stands[column + 1 :]))

    monkeypatch.setattr(shared, "fits", fooled)
    with pytest.raises((AssertionError, PausepointError, Failed)):
        play(MACHINES[place](), history())


def death(verb: str, **given: Any) -> Act:
    return ask("die_at_a_write", "ant", verb, **{"writes": 0, "torn": False, "untold": False, **given})


def deaths(verb: str) -> list[list[Act]]:
    """Return histories with a death at each write of a verb: before it, in the middle of it, and before the reply."""
    held = verb in ("answer", "commit", "pause")

    def first() -> list[Act]:
        begun = [create(claim=held), create("bee", "ant", claim=False)]
        return [*begun, asked()] if verb == "answer" else begun

    return [
        *([*first(), death(verb, writes=writes, torn=torn)] for writes in range(10) for torn in (False, True)),
        [*first(), death(verb, untold=True)],
    ]


def play_all(histories: list[list[Act]]) -> None:
    """Play histories that differ in their last rule only: what comes before it is checked once."""
    for number, history in enumerate(histories):
        play(WholeStoreMachine(), history, unchecked=len(history) - 1 if number else 0)


@pytest.mark.long
@pytest.mark.covers("S1.21")
@pytest.mark.parametrize("verb", ["answer", "claim", "commit", "pause", "remove", "revise", "send"])
def test_a_death_at_any_write_leaves_a_verb_done_or_undone(verb: str) -> None:
    ENDS.clear()
    play_all(deaths(verb))
    assert ENDS["as a whole"] >= 1
    assert ENDS["not at all"] >= 6  # the deaths really happened


def test_what_was_cancelled_ends_when_the_next_process_opens_the_store_after_a_death() -> None:
    play_all([[create(), ask("cancel", by=None), ("close", {"engine": 1}), death("pause", untold=True)]])


@pytest.mark.long
def test_a_verb_in_two_transactions_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def claim_then_commit(store: MortalStore, commit: Commit) -> None:
        row = await store.claim("ant")
        await store.commit(replace(commit, fence=row.fence))

    monkeypatch.setattr(MortalStore, "revise", claim_then_commit)
    with pytest.raises(AssertionError):
        play_all(deaths("revise"))
