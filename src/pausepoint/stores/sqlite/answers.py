"""The methods for answers. The first answer to a question is accepted and delivered in one transaction."""

from __future__ import annotations

import apsw

from pausepoint.errors import SessionEnded
from pausepoint.model.questions import (
    Answer,
    Answered,
    Inquiry,
    QuestionRow,
    Verdict,
    choose,
    is_noted,
    judge,
    judge_again,
    judge_early,
    message,
    objection_to,
    reply,
)
from pausepoint.model.sessions import QuestionStatus, SessionRow
from pausepoint.stores.sqlite import questions as asking
from pausepoint.stores.sqlite import reads
from pausepoint.stores.sqlite.sql import QUERIES
from pausepoint.stores.sqlite.writes import Writes


class Answering(Writes):
    """The methods that store people's answers."""

    def answer(self, connection: apsw.Connection, given: Answer) -> Answered:
        if not given.once:
            return self._decide(connection, given)
        row = self._known(connection, given.session_id or "")
        (root,) = reads.one(connection, QUERIES["root_of"], row.key)
        for key, n in reads.every(connection, QUERIES["sent_with_key"], root, given.once):
            (first,) = reads.signals(connection, key, n - 1, n)
            return Answered(judge_again(given, first), row, early=first)
        answered = self._decide(connection, given)
        if (place := self._delivered(connection, row, answered)) is not None:
            connection.execute(QUERIES["note_sent"], (root, given.once, *place))
        return answered

    def _delivered(self, connection: apsw.Connection, row: SessionRow, answered: Answered) -> tuple[int, int] | None:
        """Return the session and the number of the signal that has just been delivered; None if none was."""
        if answered.verdict == "queued":
            return row.key, reads.one(connection, QUERIES["signals_head"], row.key)[2]
        if answered.question is None or answered.verdict not in ("taken", "invalid"):
            return None
        kept = asking.by_number(connection, answered.question.n)
        return None if kept.facts.answer is None else (kept.session, kept.facts.answer)

    def _decide(self, connection: apsw.Connection, given: Answer) -> Answered:
        now = self.present.now()
        if given.question is not None:
            rows = asking.found(connection, Inquiry(ids=(given.question,)), now)
            return self._to(connection, given, rows[0]) if rows else Answered("unknown")
        row = self._known(connection, given.session_id or "")
        chosen = choose(given, asking.last(connection, row.key, given.key, now))
        if isinstance(chosen, QuestionRow):
            return self._to(connection, given, chosen)
        if chosen is None:
            return self._early(connection, given, row)
        if chosen.verdict == "none" and given.message:
            return Answered("queued", self.send(connection, row.session_id, given.by, given.at, message(given)))
        return chosen

    def _to(self, connection: apsw.Connection, given: Answer, found: QuestionRow) -> Answered:
        """Decide about an answer to this question. A refused answer is recorded in the history with its author."""
        verdict, kept = judge(given, found), asking.by_number(connection, found.n)
        if verdict == "taken":
            self._take_answer(connection, kept, given, reply(given, found))
        elif verdict == "invalid" and kept.facts.answer is None:
            why = objection_to(given, found)
            self._take_answer(connection, kept, given, reply(given, found, verdict, why), kept.facts.status)
        elif verdict != "same":
            self._refuse(connection, kept, given, found, verdict)
        (question,) = asking.found(connection, Inquiry(ids=(found.facts.id,)), given.at)
        return Answered(verdict, reads.get_by_key(connection, kept.session, self.present), question)

    def _take_answer(
        self, connection: apsw.Connection, kept: asking.StoredQuestion, given: Answer, payload: bytes,
        status: QuestionStatus = QuestionStatus.RESUMED,
    ) -> None:  # fmt: skip
        """Deliver an answer. It replaces an invalid answer that the step has not read yet."""
        if kept.facts.answer is not None:
            connection.execute(QUERIES["consume"], (kept.session, kept.facts.answer))
        n = self._signal(connection, kept.session, "answer", given.by, given.at, payload)
        asking.change(connection, kept, status=status, answer=n, updated_at=given.at)
        self._deliver(connection, kept.session, n, "answer", payload)

    def _refuse(
        self,
        connection: apsw.Connection,
        kept: asking.StoredQuestion,
        given: Answer,
        found: QuestionRow,
        verdict: Verdict,
    ) -> None:
        count = kept.facts.refused + 1
        asking.change(connection, kept, refused=count, told=kept.facts.told or verdict == "expired")
        if is_noted(count):
            payload = reply(given, found, verdict, count=count)
            self._signal(connection, kept.session, "refused", given.by, given.at, payload)

    def _early(self, connection: apsw.Connection, given: Answer, row: SessionRow) -> Answered:
        if row.ended in ("completed", "cancelled"):
            raise SessionEnded(
                f"Session {row.session_id!r} is {row.ended} and asks no more questions. Start another session.",
                session_id=row.session_id, status=str(row.ended),
            )  # fmt: skip
        for first in reads.mail(connection, row.key, 1, "early", given.key):
            return Answered(judge_early(given, first), row, early=first)
        payload = reply(given)
        n = self._signal(connection, row.key, "early", given.by, given.at, payload)
        self._deliver(connection, row.key, n, "early", payload)
        (kept,) = reads.signals(connection, row.key, n - 1, n)
        return Answered("early", self._again(connection, row), early=kept)

    def forget_questions(self, connection: apsw.Connection, before: int, limit: int) -> int:
        found = reads.every(connection, QUERIES["settled_questions"], before, limit)
        connection.executemany(QUERIES["forget_question"], found)
        return len(found)
