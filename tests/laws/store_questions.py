"""Rules about questions for the store machine: asking, answering and expiry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from pausepoint.errors import SessionEnded
from pausepoint.log.replay import WaitBody, to_payload
from pausepoint.model.questions import Answer, Answered, Asked, digest
from pausepoint.model.sessions import QuestionChange, QuestionFacts
from tests.laws.store_machine import HOUR, StoreMachine, engines, people
from tests.laws.store_model import OPEN, Q, over

MICROS = 1_000_000
values = st.sampled_from((1, 2, []))
"""Answers to a question that asks for a number. The last one is invalid."""


class Says(NamedTuple):
    """An answer and its target: a question by its id, a session by a key, or a session."""

    value: Any
    by: str | None
    to: str
    seen: bool | None = None
    key: str | None = None
    message: bool = False


class QuestionMachine(StoreMachine):
    """Rules that ask questions, answer them once or several times, late or never, and cancel them."""

    # asking

    @precondition(lambda self: self.believing())
    @rule(data=st.data(), key=st.sampled_from(("", "k")), lasts=st.sampled_from((None, 1, HOUR)))
    def ask(self, data: st.DataObject, key: str, lasts: int | None) -> None:
        engine, session_id, belief = self.draw_belief(data)
        self.count += 1
        asked = Asked(str(UUID(int=self.count)), "How many?", schema={"type": "integer"}, key=key)
        now = self.clock.now()
        expires_at = None if lasts is None else now + lasts * MICROS
        facts = QuestionFacts(asked.id, key, 0, Q.WAITING, 1, digest(asked), now, now, expires_at)
        self.asked_as[asked.id] = len(self.asked_as)
        self.puts(engine, session_id, belief, asked, facts)

    def puts(self, engine: int, session_id: str, belief: Any, asked: Asked, facts: QuestionFacts, **more: Any) -> None:
        payload = to_payload(WaitBody("/ask", "ask", ask=asked))
        commit = self.next_commit(engine, belief, session_id, 1, payload=payload, asks=(facts,), **more)
        self.commit(engine, session_id, commit)

    def draw_question(self, data: st.DataObject, session_id: str | None = None) -> QuestionFacts | None:
        known = [facts for owner, facts in self.every_question() if session_id in (None, owner)]
        return data.draw(st.sampled_from(known), label="question") if known else None

    @precondition(lambda self: self.believing())
    @rule(data=st.data(), lasts=st.sampled_from((None, HOUR)))
    def ask_again(self, data: st.DataObject, lasts: int | None) -> None:
        """Ask the next round of an open question, after the answer to the last one."""
        engine, session_id, belief = self.draw_belief(data)
        facts = self.draw_question(data, session_id)
        if facts is not None and facts.status in OPEN:
            self.next_round(engine, session_id, belief, facts, lasts)

    def ask_the_first_again(self, lasts: int | None) -> None:
        """Not a rule; recorded histories call it."""
        session_id, facts = self.every_question()[0]
        self.next_round(0, session_id, self.beliefs[0, session_id], facts, lasts)

    def next_round(
        self, engine: int, session_id: str, belief: Any, facts: QuestionFacts, lasts: int | None
    ) -> None:  # fmt: skip
        now, version = self.clock.now(), facts.version + 1
        asked = Asked(facts.id, "How many, then?", round=version, schema={"type": "integer"}, key=facts.key)
        again = QuestionFacts(
            facts.id, facts.key, 0, Q.WAITING, version, digest(asked), now, now,
            None if lasts is None else now + lasts * MICROS,
        )  # fmt: skip
        consume = () if facts.answer is None else (facts.answer,)
        self.puts(engine, session_id, belief, asked, again, consume=consume)

    @precondition(lambda self: self.believing())
    @rule(data=st.data(), status=st.sampled_from((Q.EXPIRED, Q.CANCELLED)))
    def conclude(self, data: st.DataObject, status: Any) -> None:
        """Let an unanswered question expire, or cancel it."""
        engine, session_id, belief = self.draw_belief(data)
        facts = self.draw_question(data, session_id)
        if facts is None:
            return
        more: dict[str, Any] = {"only_if_waiting": facts.id} if status is Q.EXPIRED else {}
        change = QuestionChange(facts.id, status)
        self.commit(engine, session_id, self.next_commit(engine, belief, session_id, 1, questions=(change,), **more))

    @precondition(lambda self: self.believing())
    @rule(data=st.data())
    def leave_the_visit(self, data: st.DataObject) -> None:
        engine, session_id, belief = self.draw_belief(data)
        self.commit(engine, session_id, self.next_commit(engine, belief, session_id, 1, settles=True))

    @rule(engine=engines, later=st.sampled_from((0, HOUR)))
    def forget(self, engine: int, later: int) -> None:
        before = self.clock.now() + later * MICROS
        old = [each for each in self.every_question() if each[1].status not in OPEN and each[1].updated_at < before]
        assert self.run(self.store(engine).forget_questions(before, 100)) == len(old)
        for session_id, facts in old:
            del self.known[session_id].questions[facts.id]

    # answering

    @precondition(lambda self: self.every_question())
    @rule(data=st.data(), engine=engines, value=values, by=people, seen=st.sampled_from((None, True, False)))
    def answer(self, data: st.DataObject, engine: int, value: Any, by: str | None, seen: bool | None) -> None:
        facts = self.draw_question(data)
        assert facts is not None
        self.say(engine, Says(value, by, facts.id, seen))

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), engine=engines, value=values, key=st.sampled_from((None, "k")), message=st.booleans())
    def answer_a_session(
        self, data: st.DataObject, engine: int, value: Any, key: str | None, message: bool
    ) -> None:  # fmt: skip
        self.say(engine, Says(value, "eve", self.draw_session(data), None, key, message and key is None))

    def answer_the_first(self, value: Any, seen: bool | None, message: bool = False) -> None:
        """Not a rule; recorded histories call it."""
        self.say(0, Says(value, "ann", self.every_question()[0][1].id, seen, None, message))

    def answering(self, store: Any, session_id: str, facts: QuestionFacts) -> tuple[Any, Callable[[], None]]:
        """Answer a question, and apply the answer to the model."""
        says = Says(1, "eve", facts.id)
        verdict = self.verdict(session_id, facts, says)
        return store.answer(self.given(says, facts)), lambda: self.happened(session_id, facts, says, verdict)

    def say(self, engine: int, says: Says) -> None:
        by_id = says.to in self.asked_as
        facts = self.meant(says) if not by_id else next(each for _, each in self.every_question() if each.id == says.to)
        work = self.store(engine).answer(self.given(says, facts))
        kept = facts == "early" or (facts == "none" and says.message)
        if kept and over(self.rows[says.to]):
            with pytest.raises(SessionEnded):
                self.run(work)
        else:
            self.heard(self.run(work), says, facts)

    def given(self, says: Says, facts: Any) -> Answer:
        seen = None if says.seen is None or not isinstance(facts, QuestionFacts) else facts.seen
        where = {"question": says.to} if says.to in self.asked_as else {"session_id": says.to}
        return Answer(
            value=msgspec.json.encode(says.value), shown=says.value, at=self.clock.now(), by=says.by, channel="web",
            seen=b"x" if says.seen is False else seen, key=says.key, message=says.message, **where,
        )  # fmt: skip

    def meant(self, says: Says) -> Any:
        """Return the question that an answer is for, or the verdict if there is none."""
        below = self.tree(says.to)
        top = self.rows[says.to].parent is None
        mine = [each for each in self.every_question() if each[0] == says.to or (top and each[0] in below)]
        if says.key is not None:
            last = next((facts for _, facts in reversed(mine) if facts.key == says.key), None)
            return "early" if last is None or last.status is Q.CANCELLED else last
        waiting = [facts for owner, facts in mine if self.status_at(owner, facts) is Q.WAITING]
        if waiting:
            return waiting[0] if len(waiting) == 1 else "several"
        if mine and self.status_at(*mine[-1]) is Q.EXPIRED and not (says.message and mine[-1][1].told):
            return mine[-1][1]
        return "none"

    def heard(self, answered: Answered, says: Says, facts: Any) -> None:
        if isinstance(facts, QuestionFacts):
            owner = next(owner for owner, each in self.every_question() if each.id == facts.id)
            verdict = self.verdict(owner, facts, says)
            assert answered.verdict == verdict
            self.happened(owner, facts, says, verdict)
        elif facts == "early" and (first := self.early(says)) is not None:
            assert answered.verdict == ("early" if first == says.value else "conflict")
        elif facts == "early":
            assert answered.verdict == "early"
            data = {"value": says.value, "channel": "web", "key": says.key}
            self.deliver(says.to, self.signal(says.to, "early", says.by, self.clock.now(), data), "early")
        elif facts == "none" and says.message:
            assert answered.verdict == "queued"
            n = self.signal(says.to, "message", says.by, self.clock.now(), {"value": says.value})
            self.deliver(says.to, n, "message")
        else:
            assert answered.verdict == facts

    def early(self, says: Says) -> Any:
        """Return the early answers to a key that wait for their question."""
        known = self.known[says.to]
        unread = [known.signals[n - 1] for n in sorted(known.inbox)]
        return next((data["value"] for _, kind, _, _, data in unread if kind == "early"), None)

    def verdict(self, owner: str, facts: QuestionFacts, says: Says) -> str:
        known = self.known[owner]
        if facts.answer is not None and facts.status is not Q.WAITING:
            first = known.signals[facts.answer - 1][4]
            return "same" if first is not None and first["value"] == says.value else "conflict"
        standing = self.status_at(owner, facts)
        if standing is not Q.WAITING:
            return "expired" if standing is Q.EXPIRED else "cancelled"
        if says.seen is False:
            return "changed"
        readable = known.records[facts.seq - 1].payload
        return "invalid" if says.value == [] and readable else "taken"

    def happened(self, owner: str, facts: QuestionFacts, says: Says, verdict: str) -> None:
        known, now = self.known[owner], self.clock.now()
        data: dict[str, Any] = {"value": None, "question": facts.id, "version": facts.version, "channel": "web"}
        if verdict == "taken":
            data["value"] = says.value
        elif verdict == "invalid":
            data |= {"why": "invalid", "reason": "it must be of type integer, not list"}
        if verdict == "taken" or (verdict == "invalid" and says.message and facts.answer is None):
            known.inbox = [n for n in known.inbox if n != facts.answer]
            n = self.signal(owner, "answer", says.by, now, data)
            status = Q.RESUMED if verdict == "taken" else Q.WAITING
            known.questions[facts.id] = replace(facts, status=status, answer=n, updated_at=now)
            self.deliver(owner, n, "answer")
        elif verdict != "same":
            count = facts.refused + 1
            known.questions[facts.id] = replace(facts, refused=count, told=facts.told or verdict == "expired")
            data = {name: data[name] for name in ("value", "question", "version", "channel")}
            if count <= 16 or count in (32, 64, 128):
                self.signal(owner, "refused", says.by, now, data | {"why": verdict, "count": count})
