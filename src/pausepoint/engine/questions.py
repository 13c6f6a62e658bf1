"""What people say to sessions: answers to questions, and messages. And which questions there are."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from pausepoint.clock import to_datetime
from pausepoint.codec.values import as_json, as_plain, decode, encode
from pausepoint.codec.walk import is_model
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import texts
from pausepoint.engine.queries import Reading
from pausepoint.errors import (
    AnswerConflict,
    AnswerRefused,
    QuestionChanged,
    QuestionClosed,
    QuestionError,
    Redacted,
    SeveralQuestions,
    UnknownQuestion,
    WrongSession,
    did_you_mean,
)
from pausepoint.log.replay import Line
from pausepoint.log.state import Blob, Inline
from pausepoint.model.ids import check_session_id
from pausepoint.model.questions import (
    EXPIRY,
    Answer,
    Answered,
    Asked,
    Inquiry,
    Question,
    QuestionRow,
    Receipt,
    objection_to,
    question_of,
    receipt,
    reply_of,
)
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import QuestionStatus, SessionRow, Status
from pausepoint.model.views import Listing

Statuses = QuestionStatus | str | Iterable[QuestionStatus | str] | None


class Answering(Reading):
    """The verbs for who is asked, and for who shows what is asked."""

    questions_expire: timedelta | None = EXPIRY
    """How long a question waits if neither the call nor the workflow says so; None: for ever."""

    # looking

    async def questions(
        self, session_id: str | None = None, *, status: Statuses = QuestionStatus.WAITING, workflow: str | None = None,
        owner: str | None = None, key: str | int | None = None, prefix: str = "", after: int = 0,
        limit: int | None = None,
    ) -> Listing[Question]:  # fmt: skip
        """The questions that wait, over all sessions or in one and what it called; oldest first.

        Those that cannot be read are in ``damaged`` of the list. ``status``: others than those that wait, or None for
        all. ``prefix``: those whose id begins so. To page, pass the ``n`` of the last one as ``after``.
        """
        query = await self._inquiry(session_id, status, workflow=workflow, owner=owner, key=key, prefix=prefix)
        now = self.clock.now()
        found = await self.store.questions(replace(query, after=after, limit=limit))
        return Listing((question_of(row, now) for row in found), found.damaged)

    async def tally_questions(
        self, session_id: str | None = None, *, status: Statuses = QuestionStatus.WAITING, workflow: str | None = None,
        owner: str | None = None, key: str | int | None = None,
    ) -> dict[QuestionStatus, int]:  # fmt: skip
        """How many questions there are, by status; those that wait, unless something else is said. See `questions`."""
        query = await self._inquiry(session_id, status, workflow=workflow, owner=owner, key=key)
        return await self.store.tally_questions(query)

    async def _inquiry(
        self, session_id: str | None, status: Statuses, key: str | int | None, **filters: Any
    ) -> Inquiry:  # fmt: skip
        self._check_open()
        if session_id is not None:
            await self._row(session_id)
        key = None if key is None else str(key)
        return Inquiry(session_id=session_id, statuses=_statuses(status), key=key, **filters)

    async def question(self, question_id: str) -> Question:
        """One question, with all that was known when it was asked: the state, what the step had done, the history."""
        self._check_open()
        row = await self._question(question_id)
        found = question_of(row, self.clock.now())
        with suppress(Redacted):  # what was taken away stays away; the rest is still the question
            return replace(found, **await self._around(row))
        return found

    async def _question(self, question_id: str) -> QuestionRow:
        found = await self.store.questions(Inquiry(ids=(question_id,)))
        if not found:
            raise _unknown(question_id)
        return found[0]

    async def _around(self, row: QuestionRow) -> dict[str, str | None]:
        """The record's copies of what the log says, as of the moment of asking."""
        asking = await self._row(row.session_id)
        values = (await self.stored(row.session_id, row.facts.seq)).values
        line = await self._timeline(asking).line(row.facts.seq)
        history = None if row.asked is None or not row.asked.history else values.get(row.asked.history)
        return {
            "context_json": as_json(values).decode(),
            "tool_call_state_json": as_json(await self._progress(row, line)).decode(),
            "chat_history_json": None if history is None else as_json(history).decode(),
        }

    async def _progress(self, row: QuestionRow, line: Line) -> dict[str, Any]:
        """What the open visit had done when it asked, and what waits for the answer."""
        done = [each for each in line.operations.values() if not each.total]
        large = await self.store.blobs({bytes.fromhex(each.value.hash) for each in done if type(each.value) is Blob})
        tool = None if row.asked is None else row.asked.tool
        return {
            "visit": f"{line.step}#{line.visit}",
            "done": [
                {
                    "id": each.id,
                    "name": each.name,
                    "value": as_plain(decode(_bytes_of(each.value, large))),
                }
                for each in done
            ],
            "pending": None if tool is None else {"id": tool[0], "name": tool[1]},
        }

    # answering

    async def answer(
        self, question_id: str | None, value: Any, *, session_id: str | None = None, key: str | int | None = None,
        by: str | None = None, channel: str = "", seen: str | None = None,
    ) -> Receipt:  # fmt: skip
        """Answer a question, once and for all: the first answer is taken, the same again gets the same receipt.

        The question is named by its id; or by its session and its ``key``, also before it is asked; or by its session
        alone, if one question waits there. ``seen`` is the `Question.digest` of what was answered: if something else is
        asked by now, the answer is refused (`QuestionChanged`). What is not taken is noted in the session's history.
        """
        self._check_open()
        texts(by=by, channel=channel)
        if question_id is None and session_id is None:
            raise TypeError("name the question: by its id, or by session_id= (and key=)")
        encoded = self._encoded(value)
        given = Answer(
            value=encoded, shown=as_plain(decode(encoded)), at=self.clock.now(), by=by, channel=channel,
            question=question_id, session_id=None if session_id is None else check_session_id(session_id),
            key=None if key is None else str(key), seen=None if seen is None else _digest(seen),
        )  # fmt: skip
        answered = await self._answered(given)
        if answered.early is not None and answered.row is not None:
            return _kept(answered.row, answered.early)
        assert answered.question is not None
        taken = receipt(answered.question)
        assert taken is not None
        return taken

    async def send(
        self, /, session_id: str, value: Any, *, workflow: Workflow[Any] | None = None, by: str | None = None,
        channel: str = "", **fields: Any,
    ) -> Status:  # fmt: skip
        """Send a message to a session: it answers the question that waits there, else the next ``ctx.receive`` gets it.

        Early ones are kept. Where several questions wait, it is refused (`SeveralQuestions`), and the first one after a
        question has expired as well (`QuestionClosed`): it may have been meant as its answer. With ``workflow`` a
        session that does not exist is started first, with ``fields`` as its input.
        """
        self._check_open()
        texts(by=by, channel=channel)
        encoded = self._encoded(value)
        if workflow is None and fields:
            raise TypeError(f"fields ({', '.join(fields)}) are for a session that is started: give workflow= as well")
        if workflow is not None:
            await self._started_for(session_id, workflow, fields, by)
        row = await self._row(session_id)
        given = Answer(
            value=encoded, shown=as_plain(decode(encoded)), at=self.clock.now(), by=by, channel=channel,
            session_id=row.session_id, message=True,
        )  # fmt: skip
        with suppress(AnswerRefused):  # who sends messages is told as in a chat: it is asked again, with the reason
            await self._answered(given)
        return (await self._row(session_id)).status

    async def _answered(self, given: Answer) -> Answered:
        answered = await self.store.answer(given)
        self.driver.on_change()
        if answered.row is not None:
            await self._picked_up(answered.row)
        if answered.verdict not in ("taken", "same", "early", "queued"):
            raise _refusal(given, answered)
        return answered

    def _encoded(self, value: Any) -> bytes:
        plain = value.model_dump() if is_model(type(value)) else value
        return encode(plain, "message", self.limits)

    async def _picked_up(self, row: SessionRow) -> None:
        """Have a session that became due go on here."""
        raise NotImplementedError

    async def _started_for(
        self, session_id: str, workflow: Workflow[Any], fields: dict[str, Any], by: str | None
    ) -> None:  # fmt: skip
        """Start the session that a message is for, unless it is there."""
        raise NotImplementedError


def _digest(seen: str) -> bytes:
    try:
        return bytes.fromhex(seen)
    except ValueError:
        raise ValueError(f"seen is the digest of a Question, not {seen!r:.60}") from None


def _statuses(given: Statuses) -> tuple[QuestionStatus, ...]:
    names = () if given is None else (given,) if isinstance(given, str) else tuple(given)
    known = [each.value for each in QuestionStatus]
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is no status of a question{did_you_mean(str(name), known)}")
    return tuple(map(QuestionStatus, names))


def _unknown(question_id: str) -> UnknownQuestion:
    return UnknownQuestion(
        f"no question has the id {question_id!r} in this store; engine.questions() lists those that wait",
        session_id="", question_id=question_id,
    )  # fmt: skip


def _kept(row: SessionRow, signal: SignalRecord) -> Receipt:
    """That an answer waits for its question."""
    said = reply_of(signal.payload)
    return Receipt(row.session_id, signal.n, to_datetime(signal.at), None, said.key, 0, signal.by, said.channel)


def _refusal(given: Answer, answered: Answered) -> QuestionError:
    """Why an answer was not taken, and what to do instead."""
    question = answered.question
    if answered.early is not None and answered.row is not None:
        first = _kept(answered.row, answered.early)
        return AnswerConflict(
            f"{given.key!r} of session {first.session_id!r} was answered before, by {_whose(first)}, and otherwise;"
            " that answer waits for the question",
            session_id=first.session_id, question_id="", by=first.by, channel=first.channel, answered_at=_when(first),
        )  # fmt: skip
    if answered.several:
        return _several(given, answered.several)
    if question is None:
        if given.question is not None:
            return _unknown(given.question)
        return UnknownQuestion(
            f"session {given.session_id!r} waits for no answer; engine.questions() lists what waits, and"
            " engine.send() sends a message",
            session_id=given.session_id or "", question_id="",
        )  # fmt: skip
    return _refused(given, answered, question)


def _refused(given: Answer, answered: Answered, question: QuestionRow) -> QuestionError:
    facts, asked = question.facts, question.asked
    named: dict[str, Any] = {"session_id": question.session_id, "question_id": facts.id}
    what = f"question {facts.id}" + ("" if asked is None else f" ({asked.text!r})")
    match answered.verdict:
        case "conflict":
            first = receipt(question)
            assert first is not None
            return AnswerConflict(
                f"{what} was answered before, by {_whose(first)}, and otherwise; that answer stands",
                **named, by=first.by, channel=first.channel, answered_at=_when(first),
            )  # fmt: skip
        case "changed":
            return QuestionChanged(
                f"{what} is in round {facts.version} by now and asks something else than was answered; look again",
                **named, version=facts.version, digest=facts.seen.hex(),
            )  # fmt: skip
        case "invalid":
            return AnswerRefused(
                f"{what} cannot take this answer: {objection_to(given, question)}; {_next(asked)}",
                **named, reason=objection_to(given, question),
            )  # fmt: skip
        case "elsewhere":
            return WrongSession(
                f"{what} belongs to session {question.root_id!r}, not to {given.session_id!r}; nothing was answered",
                **named,
            )  # fmt: skip
    status = question.standing(given.at)
    hint = "resume its session to have it asked anew" if status is QuestionStatus.EXPIRED else "look what is asked now"
    return QuestionClosed(
        f"{what} is {status.value} and takes no answer any more; {hint}", **named, status=status.value
    )  # fmt: skip


def _whose(first: Receipt) -> str:
    channel = f" through {first.channel}" if first.channel else ""
    return f"{first.by or 'somebody'}{channel} at {_when(first)}"


def _when(first: Receipt) -> str:
    return first.answered_at.isoformat(timespec="seconds")


def _next(asked: Asked | None) -> str:
    """What follows an answer that could not be right."""
    if asked is None or asked.round < asked.rounds:
        return "it is asked again, answer it then"
    return f"this was the last of {asked.rounds} rounds, and its step goes on without an answer"


def _several(given: Answer, several: tuple[QuestionRow, ...]) -> SeveralQuestions:
    listed = "; ".join(f"{row.facts.id} ({row.asked.text if row.asked else 'redacted'!r})" for row in several)
    return SeveralQuestions(
        f"{len(several)} questions of session {given.session_id!r} wait: {listed}; answer one of them by its id",
        session_id=given.session_id or "", question_id="", candidates=[row.facts.id for row in several],
    )  # fmt: skip


def _bytes_of(value: Inline | Blob, large: dict[bytes, bytes]) -> bytes:
    return large[bytes.fromhex(value.hash)] if isinstance(value, Blob) else bytes(value.data)
