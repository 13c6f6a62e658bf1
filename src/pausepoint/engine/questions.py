"""The verbs over questions: list them, answer them, and send messages."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, get_args

from msgspec.structs import replace

from pausepoint.clock import to_datetime
from pausepoint.codec.values import as_json, as_plain, decode, encode
from pausepoint.codec.walk import is_model
from pausepoint.definition.workflow import Workflow
from pausepoint.engine.base import Service
from pausepoint.engine.creation import Opening
from pausepoint.engine.filters import QuestionStatuses, check_limit, statuses_of
from pausepoint.engine.guests import cannot_start
from pausepoint.engine.pickup import Pickup
from pausepoint.engine.queries import Queries
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
from pausepoint.model.cursors import from_cursor, to_cursor
from pausepoint.model.ids import KEPT, SessionId, check_session_id, check_strings, check_texts, shortened
from pausepoint.model.questions import (
    Answer,
    Answered,
    Inquiry,
    Question,
    QuestionRow,
    QuestionSort,
    Receipt,
    objection_to,
    question_of,
    receipt,
    reply_of,
)
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import QuestionStatus, SessionRow, Status
from pausepoint.model.views import Listing


class Questions:
    """The verbs that list and answer questions, and send messages."""

    def __init__(self, service: Service, queries: Queries, pickup: Pickup) -> None:
        self.service = service
        self.queries = queries
        self.pickup = pickup

    # reading

    async def questions(
        self, *, status: QuestionStatuses = QuestionStatus.WAITING, workflow: str | None = None,
        owner: str | None = None, tree: str | None = None, key: str | int | None = None, prefix: str = "",
        sort: QuestionSort = "asked", reverse: bool = False, limit: int | None = None, after: str | None = None,
    ) -> Listing[Question]:  # fmt: skip
        """Return the open questions of all sessions that match, oldest first."""
        if sort not in get_args(QuestionSort):
            raise ValueError(
                f"{shortened(sort)} is not a sort of questions{did_you_mean(str(sort), get_args(QuestionSort))}"
            )
        check_limit(limit, "questions")
        query = await self._inquiry(tree, status, workflow=workflow, owner=owner, key=key, prefix=prefix)
        now, start = self.service.clock.now(), from_cursor("questions", sort, reverse, after)
        found = await self.service.store.questions(replace(query, sort=sort, reverse=reverse, after=start, limit=limit))
        next = to_cursor("questions", sort, reverse, found.next)
        return Listing((question_of(row, now) for row in found), found.damaged, next=next)

    async def tally_questions(
        self, *, status: QuestionStatuses = QuestionStatus.WAITING, workflow: str | None = None,
        owner: str | None = None, tree: str | None = None, key: str | int | None = None,
    ) -> dict[QuestionStatus, int]:  # fmt: skip
        """Return the number of questions by status; by default only of open ones. See `questions` for the filters."""
        query = await self._inquiry(tree, status, workflow=workflow, owner=owner, key=key)
        return await self.service.store.tally_questions(query)

    async def _inquiry(
        self, tree: str | None, status: QuestionStatuses, key: str | int | None, **filters: Any
    ) -> Inquiry:  # fmt: skip
        self.service.check_open()
        if tree is not None:
            await self.service.row(tree)
        key = None if key is None else str(key)
        check_texts(**filters)
        return Inquiry(
            session_id=tree, statuses=statuses_of(QuestionStatus, status, "a status of a question"), key=key, **filters
        )

    async def question(self, question_id: str) -> Question:
        """Return one question, with the state, the step's finished operations and the chat history at that time."""
        self.service.check_open()
        row = await self._question(question_id)
        found = question_of(row, self.service.clock.now())
        with suppress(Redacted):  # the question is returned without the redacted content
            return replace(found, **await self._around(row))
        return found

    async def _question(self, question_id: str) -> QuestionRow:
        check_strings(question_id=question_id)
        found = await self.service.store.questions(Inquiry(ids=(question_id,)))
        if not found:
            raise _unknown(question_id)
        return found[0]

    async def _around(self, row: QuestionRow) -> dict[str, str | None]:
        """Return copies of the state, the progress and the chat history as of the time of the question."""
        asking = await self.service.row(row.session_id)
        values = (await self.queries.stored(row.session_id, row.facts.seq)).values
        line = await self.service.timeline(asking).line(row.facts.seq)
        history = None if row.asked is None or not row.asked.history else values.get(row.asked.history)
        return {
            "context_json": as_json(values).decode(),
            "tool_call_state_json": as_json(await self._progress(row, line)).decode(),
            "chat_history_json": None if history is None else as_json(history).decode(),
        }

    async def _progress(self, row: QuestionRow, line: Line) -> dict[str, Any]:
        """Return the operations that the visit had finished when it asked, and the tool that waits for the answer."""
        done = [each for each in line.operations.values() if not each.total]
        large = await self.service.store.blobs(
            {bytes.fromhex(each.value.hash) for each in done if type(each.value) is Blob}
        )
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
        self, question_id: str, value: Any, *, by: str | None = None, channel: str = "", seen: str | None = None
    ) -> Receipt:  # fmt: skip
        """Answer a question and return a receipt."""
        return await self._answer(value, by, channel, seen, question_id)

    async def answer_of(
        self, session_id: str, value: Any, *, question: str | None = None, key: str | int | None = None,
        by: str | None = None, channel: str = "", seen: str | None = None,
    ) -> Receipt:  # fmt: skip
        """Answer a question of a session and return a receipt."""
        return await self._answer(value, by, channel, seen, question, check_session_id(session_id), key)

    async def _answer(
        self, value: Any, by: str | None, channel: str, seen: str | None, question: str | None,
        session_id: str | None = None, key: str | int | None = None,
    ) -> Receipt:  # fmt: skip
        self.service.check_open()
        check_texts(by=by, channel=channel)
        if question is not None or session_id is None:
            check_strings(question_id=question)
        encoded = self._encoded(value)
        given = Answer(
            value=encoded, shown=as_plain(decode(encoded)), at=self.service.clock.now(), by=by, channel=channel,
            question=question, session_id=session_id, key=None if key is None else str(key),
            seen=None if seen is None else _digest(seen),
        )  # fmt: skip
        answered = await self._answered(given)
        if answered.early is not None and answered.row is not None:
            return _early_receipt(answered.row, answered.early)
        assert answered.question is not None
        taken = receipt(answered.question)
        assert taken is not None
        return taken

    async def send(
        self, session_id: str, value: Any, *, key: str | int | None = None, by: str | None = None, channel: str = "",
        seen: str | None = None, new: Opening | None = None,
    ) -> Status:  # fmt: skip
        """Send a message to a session and return its status. ``new`` is the session to start if there is none."""
        self.service.check_open()
        once = "" if key is None else str(key)
        check_texts(by=by, channel=channel, key=once)
        if key is not None and not once:
            raise ValueError("key must not be empty. Pass a different one for each message, or None.")
        encoded = self._encoded(value)
        if new is not None:
            await self._start_if_missing(check_session_id(session_id), new, by)
        await self.service.row(session_id)
        given = Answer(
            value=encoded, shown=as_plain(decode(encoded)), at=self.service.clock.now(), by=by, channel=channel,
            session_id=check_session_id(session_id), message=True, once=once,
            seen=None if seen is None else _digest(seen),
        )  # fmt: skip
        with suppress(AnswerRefused):  # as in a chat: the question is asked again with the reason
            await self._answered(given)
        return (await self.service.row(session_id)).status

    async def _answered(self, given: Answer) -> Answered:
        answered, driver = await self.service.store.answer(given), self.service.driver
        if answered.row is None:
            driver.on_change()
        else:
            with driver.told(answered.row):
                await self.pickup.drive_if_due(answered.row)
        if answered.verdict not in ("taken", "same", "early", "queued"):
            raise _refusal(given, answered)
        return answered

    def _encoded(self, value: Any) -> bytes:
        plain = value.model_dump() if is_model(type(value)) else value
        return encode(plain, "message", self.service.sizes)

    async def _start_if_missing(self, session_id: SessionId, new: Opening, by: str | None) -> None:
        """Start the session that a message is for, unless it exists or another caller starts it first."""
        workflow, given, owner = new
        if isinstance(given, Mapping):
            _check_fields(workflow, given)  # also if the session exists
        if await self.service.store.get(session_id) is None:
            if workflow.is_guest:
                raise cannot_start(workflow)
            fields = dict(given) if isinstance(given, Mapping) else given
            session = self.pickup.new_session(workflow, fields, SessionId(str(session_id)), by=by)
            await self.pickup.create(workflow, replace(session, owner=owner, keep_for=self.service.kept_for(None)))


def _check_fields(workflow: Workflow[Any], fields: Mapping[str, Any]) -> None:
    """Raise `TypeError` if a name is not a field of the input."""
    for name in fields:
        if name not in workflow.model.model_fields:
            known = did_you_mean(name, workflow.model.model_fields)
            raise TypeError(f"The input of workflow {workflow.name!r} has no field {name!r}{known}")


def _digest(seen: str) -> bytes:
    try:
        return bytes.fromhex(seen)
    except ValueError:
        raise ValueError(f"seen is not the digest of a question: {seen!r:.60}. Pass it as you read it.") from None


def _unknown(question_id: str) -> UnknownQuestion:
    return UnknownQuestion(
        f"This store has no question with the id {shortened(question_id)}. List the open questions with"
        " engine.questions().",
        session_id="", question_id=question_id[:KEPT],
    )  # fmt: skip


def _early_receipt(row: SessionRow, signal: SignalRecord) -> Receipt:
    """Return the receipt of an answer that was given before its question."""
    reply = reply_of(signal.payload)
    return Receipt(row.session_id, signal.n, to_datetime(signal.at), None, reply.key, 0, signal.by, reply.channel)


def _refusal(given: Answer, answered: Answered) -> QuestionError:
    """Return the error for an answer that was not accepted."""
    question = answered.question
    if answered.early is not None and answered.row is not None:
        first = _early_receipt(answered.row, answered.early)
        text = (
            f"Question {given.key!r} of session {first.session_id!r} already has a different answer, given by"
            f" {_whose(first)}. That answer counts; it is kept until the question is asked."
        )
        if given.once:
            text = (
                f"Session {first.session_id!r} has already got a different message with the key {given.once!r}, sent by"
                f" {_whose(first)}. Nothing was sent. Use another key for another message."
            )
        return AnswerConflict(
            text,
            session_id=first.session_id, question_id="", by=first.by, channel=first.channel, answered_at=_when(first),
        )  # fmt: skip
    if answered.several:
        return _several(given, answered.several)
    if question is None:
        if given.question is not None:
            return _unknown(given.question)
        return UnknownQuestion(
            f"Session {given.session_id!r} has no open question. List open questions with engine.questions(), or send a"
            " message with session.send().",
            session_id=given.session_id or "", question_id="",
        )  # fmt: skip
    return _refused(given, answered, question)


def _refused(given: Answer, answered: Answered, question: QuestionRow) -> QuestionError:
    facts, asked = question.facts, question.asked
    named: dict[str, Any] = {"session_id": question.session_id, "question_id": facts.id}
    what = f"Question {facts.id}" + ("" if asked is None else f" ({asked.text!r})")
    match answered.verdict:
        case "conflict":
            first = receipt(question)
            assert first is not None
            return AnswerConflict(
                f"{what} already has a different answer, given by {_whose(first)}. That answer counts.",
                **named, by=first.by, channel=first.channel, answered_at=_when(first),
            )  # fmt: skip
        case "changed":
            return QuestionChanged(
                f"{what} has changed since you read it, and is now in round {facts.version}. Read it again, then answer"
                " it.",
                **named, version=facts.version, digest=facts.seen.hex(),
            )  # fmt: skip
        case "invalid":
            return AnswerRefused(
                f"{what} does not accept this answer: {objection_to(given, question).rstrip('.')}. Correct the answer,"
                " then send it again.",
                **named, reason=objection_to(given, question),
            )  # fmt: skip
        case "elsewhere":
            return WrongSession(
                f"{what} belongs to session {question.root_id!r}, not to {given.session_id!r}. Nothing was answered."
                " Pass the right session_id, or none.",
                **named,
            )  # fmt: skip
    status = question.status_at(given.at)
    expired = status is QuestionStatus.EXPIRED
    hint = "Resume its session to ask again." if expired else "List the open questions with engine.questions()."
    return QuestionClosed(
        f"{what} is {status.value} and accepts no more answers. {hint}", **named, status=status.value
    )  # fmt: skip


def _whose(first: Receipt) -> str:
    channel = f" through {first.channel}" if first.channel else ""
    return f"{first.by or 'someone'}{channel} at {_when(first)}"


def _when(first: Receipt) -> str:
    return first.answered_at.isoformat(timespec="seconds")


def _several(given: Answer, several: tuple[QuestionRow, ...]) -> SeveralQuestions:
    listed = "; ".join(f"{row.facts.id} ({row.asked.text if row.asked else 'redacted'!r})" for row in several)
    return SeveralQuestions(
        f"Session {given.session_id!r} has {len(several)} open questions: {listed}. Answer one of them by its id.",
        session_id=given.session_id or "", question_id="", candidates=[row.facts.id for row in several],
    )  # fmt: skip


def _bytes_of(value: Inline | Blob, large: dict[bytes, bytes]) -> bytes:
    return large[bytes.fromhex(value.hash)] if isinstance(value, Blob) else bytes(value.data)
