"""Answers. The first answer to a question is accepted and delivered in one transaction."""

from __future__ import annotations

from msgspec.structs import replace

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
from pausepoint.stores.sql import questions as asking
from pausepoint.stores.sql import sessions, signals
from pausepoint.stores.sql.connection import Connection
from pausepoint.stores.sql.engines import Engine
from pausepoint.stores.sql.rows import every, one
from pausepoint.stores.text import storable


def answer(connection: Connection, engine: Engine, given: Answer) -> Answered:
    given = replace(given, by=storable(given.by))
    if not given.once:
        return _decide(connection, engine, given)
    row = sessions.known(connection, given.session_id or "", engine.present)
    (root,) = one(connection, connection.queries["root_of"], row.key)
    for key, n in every(connection, connection.queries["sent_with_key"], root, given.once):
        (first,) = signals.read(connection, key, n - 1, n)
        return Answered(judge_again(given, first), row, early=first)
    answered = _decide(connection, engine, given)
    if (place := _delivered(connection, row, answered)) is not None:
        connection.execute(connection.queries["note_sent"], (root, given.once, *place))
    return answered


def _delivered(connection: Connection, row: SessionRow, answered: Answered) -> tuple[int, int] | None:
    """Return the session and the number of the signal that has just been delivered; None if none was."""
    if answered.verdict == "queued":
        return row.key, one(connection, connection.queries["signals_head"], row.key)[2]
    if answered.question is None or answered.verdict not in ("taken", "invalid"):
        return None
    kept = asking.by_number(connection, answered.question.n)
    return None if kept.facts.answer is None else (kept.session, kept.facts.answer)


def _decide(connection: Connection, engine: Engine, given: Answer) -> Answered:
    now = engine.present.now()
    if given.question is not None:
        sessions.check_owner_of(connection, given.session_id)
        rows = asking.found(connection, Inquiry(ids=(given.question,)), now)
        return _to(connection, engine, given, rows[0]) if rows else Answered("unknown")
    row = sessions.known(connection, given.session_id or "", engine.present)
    chosen = choose(given, asking.last(connection, row.key, given.key, now))
    if isinstance(chosen, QuestionRow):
        return _to(connection, engine, given, chosen)
    if chosen is None:
        return _early(connection, engine, given, row)
    if chosen.verdict == "none" and given.message:
        sent = signals.send_to(connection, engine, row, given.by, given.at, message(given))
        return Answered("queued", sent)
    return chosen


def _to(connection: Connection, engine: Engine, given: Answer, found: QuestionRow) -> Answered:
    """Decide about an answer to this question. A refused answer is recorded in the history with its author.

    An invalid message reaches the step, which asks again with the reason: people in a chat get no other reply.
    """
    verdict, kept = judge(given, found), asking.by_number(connection, found.n)
    if verdict == "taken":
        _take_answer(connection, kept, given, reply(given, found))
    elif verdict == "invalid" and given.message and kept.facts.answer is None:
        why = objection_to(given, found)
        _take_answer(connection, kept, given, reply(given, found, verdict, why), kept.facts.status)
    elif verdict != "same":
        _refuse(connection, kept, given, found, verdict)
    (question,) = asking.found(connection, Inquiry(ids=(found.facts.id,)), given.at)
    return Answered(verdict, sessions.get_by_key(connection, kept.session, engine.present), question)


def _take_answer(
    connection: Connection, kept: asking.StoredQuestion, given: Answer, payload: bytes,
    status: QuestionStatus = QuestionStatus.RESUMED,
) -> None:  # fmt: skip
    """Deliver an answer. It replaces an invalid answer that the step has not read yet."""
    if kept.facts.answer is not None:
        connection.execute(connection.queries["consume"], (kept.session, kept.facts.answer))
    n = signals.append(connection, kept.session, "answer", given.by, given.at, payload)
    asking.change(connection, kept, status=status, answer=n, updated_at=given.at)
    signals.deliver(connection, kept.session, n, "answer", payload)


def _refuse(
    connection: Connection,
    kept: asking.StoredQuestion,
    given: Answer,
    found: QuestionRow,
    verdict: Verdict,
) -> None:
    count = kept.facts.refused + 1
    asking.change(connection, kept, refused=count, told=kept.facts.told or verdict == "expired")
    if is_noted(count):
        payload = reply(given, found, verdict, count=count)
        signals.append(connection, kept.session, "refused", given.by, given.at, payload)


def _early(connection: Connection, engine: Engine, given: Answer, row: SessionRow) -> Answered:
    if row.ended in ("completed", "cancelled"):
        raise SessionEnded(
            f"Session {row.session_id!r} is {row.ended} and asks no more questions. Start another session.",
            session_id=row.session_id, status=str(row.ended),
        )  # fmt: skip
    for first in signals.mail(connection, row.key, 1, "early", given.key):
        return Answered(judge_early(given, first), row, early=first)
    payload = reply(given)
    n = signals.append(connection, row.key, "early", given.by, given.at, payload)
    signals.deliver(connection, row.key, n, "early", payload)
    (kept,) = signals.read(connection, row.key, n - 1, n)
    return Answered("early", sessions.again(connection, row, engine.present), early=kept)
