"""Questions to people, as records: what is known of one, what was answered, and who was first.

A question is asked by a record of its session's log; its fate (the `QuestionFacts`) lies beside the log, since answers
come from outside. Nothing here does I/O: what a store decides in `Store.answer` it decides with the functions below.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from pausepoint.clock import to_datetime
from pausepoint.errors import DamagedRecord
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import QuestionChange, QuestionFacts, QuestionStatus, SessionRow

ROUNDS = 5
"""How often a question is asked before it is given up, unless the call says otherwise."""

EXPIRY = timedelta(minutes=30)
"""How long a question waits, unless the call, the workflow or the engine says otherwise."""


def is_time_to_answer(given: object) -> bool:
    """Whether something says how long a question waits: a time span, None (for ever), or ``...`` (nothing was said)."""
    return given in (None, ...) or (isinstance(given, timedelta) and given > timedelta(0))


Kind = Literal["ask", "confirm", "collect"]
OnExpiry = Literal["pause", "default", "escalate"]

_REASONS: dict[Kind, str] = {
    "ask": "WAITING_USER_INPUT",
    "confirm": "WAITING_CONFIRMATION",
    "collect": "WAITING_TOOL_PARAMETERS",
}


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a question asks, as the log has it: one record for every round.

    ``schema`` is the JSON schema of an answer (None: any text), ``default`` is empty if there is none, ``complaint``
    says why the last answer was not taken, ``lasts`` and ``reminds`` are time spans in microseconds, ``tool`` is the id
    and name of what waits for the answer, ``history`` the field of the state that a conversation is in, ``instead_of``
    an expired question.
    """

    id: str
    text: str
    kind: Kind = "ask"
    round: int = 1
    rounds: int = ROUNDS
    schema: dict[str, Any] | None = None
    complaint: str = ""
    default: tuple[Any, ...] = ()
    on_expiry: OnExpiry = "pause"
    lasts: int | None = None
    reminds: int | None = None
    tool: tuple[str, str] | None = None
    collected: dict[str, Any] | None = None
    history: str = ""
    key: str = ""
    instead_of: str = ""


class _Wait(msgspec.Struct, frozen=True):
    """The part of a wait's record that asks."""

    ask: Asked


class _Child(msgspec.Struct, frozen=True):
    """The part of a child's report that names it."""

    child: str


_wait = msgspec.json.Decoder(_Wait)
_child = msgspec.json.Decoder(_Child).decode
_encode = msgspec.json.Encoder().encode


def digest(asked: Asked) -> bytes:
    """Of what a person is shown: an answer that names it can only be taken for this very question and round."""
    return sha256(_encode(asked)).digest()[:16]


class QuestionRow(msgspec.Struct, frozen=True):
    """A question with what a store knows around it.

    ``session_id`` is who asked, ``root_id`` the session at the top of its tree, which people talk to; ``workflow`` and
    ``owner`` are that one's, ``step`` is the asking one's. ``payload`` is the record that asks; empty if that was
    redacted. ``deferred`` is how much later it expires because timers were frozen. ``failure``: why the session that
    asked has failed.
    """

    n: int
    facts: QuestionFacts
    session_id: str
    root_id: str
    workflow: str
    owner: str | None
    step: str
    payload: bytes
    answer: SignalRecord | None = None
    deferred: int = 0
    failure: str | None = None

    @property
    def asked(self) -> Asked | None:
        """What it asks; None if that was redacted."""
        if not self.payload:
            return None
        try:
            return _wait.decode(self.payload).ask
        except msgspec.MsgspecError as exc:
            raise DamagedRecord(
                f"question {self.facts.id}: record {self.facts.seq} of session {self.session_id} does not ask anything"
                f" ({exc}); restore the database from a backup",
                session_id=self.session_id, seq=self.facts.seq,
            ) from exc  # fmt: skip

    @property
    def winner(self) -> SignalRecord | None:
        """The answer that was taken, if there is one. What a question has that still waits could not be right."""
        return None if self.facts.status is QuestionStatus.WAITING else self.answer

    @property
    def objection(self) -> str:
        """Why the last answer could not be taken, while the step has yet to hear of it; empty otherwise."""
        if self.answer is None or self.winner is not None or self.answer.redacted:
            return ""
        return reply_of(self.answer.payload).reason

    def standing(self, now: int) -> QuestionStatus:
        """The status at a moment: a question that waits has expired when its time is over, whoever has noticed."""
        facts = self.facts
        if facts.status is QuestionStatus.WAITING and facts.expires_at is not None:
            return QuestionStatus.EXPIRED if facts.expires_at + self.deferred <= now else facts.status
        return facts.status


class Inquiry(msgspec.Struct, frozen=True, kw_only=True):
    """Which questions are looked for, in the order in which they were first asked.

    ``session`` is the key of who asked, ``session_id`` names who asked or the session that people talk to. ``statuses``
    are as of this moment. ``prefix`` is how the id begins. ``after``: behind the question with that number.
    """

    ids: tuple[str, ...] = ()
    session: int | None = None
    session_id: str | None = None
    workflow: str | None = None
    owner: str | None = None
    key: str | None = None
    prefix: str = ""
    statuses: tuple[QuestionStatus, ...] = ()
    after: int = 0
    limit: int | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody says: to a question by its id, to one of a session by its key, or to the one that waits there.

    ``value`` is as stored, ``shown`` as front ends see it (unset: only the step that asked can judge it). ``seen`` is
    the digest of what was answered. ``message``: if nothing waits, it is a message.
    """

    value: bytes
    at: int
    shown: Any = msgspec.UNSET
    by: str | None = None
    channel: str = ""
    question: str | None = None
    session_id: str | None = None
    key: str | None = None
    seen: bytes | None = None
    message: bool = False


Verdict = Literal[
    "taken", "same", "early", "queued", "unknown", "none", "several", "expired", "cancelled", "conflict", "changed",
    "elsewhere", "invalid",
]  # fmt: skip


class Answered(msgspec.Struct, frozen=True):
    """What became of an `Answer`. ``row`` is its session as it is afterwards, ``early`` what waits for its question."""

    verdict: Verdict
    row: SessionRow | None = None
    question: QuestionRow | None = None
    several: tuple[QuestionRow, ...] = ()
    early: SignalRecord | None = None


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of the signals that answers are: ``question`` is empty for an early one, ``why`` tells a refusal.

    ``reason`` is what is wrong with one that is invalid, ``count`` how many were refused so far.
    """

    value: msgspec.Raw
    question: str = ""
    version: int = 0
    channel: str = ""
    key: str = ""
    why: str = ""
    reason: str = ""
    count: int = 0


reply_of = msgspec.json.Decoder(Reply).decode


def reply(
    given: Answer, question: QuestionRow | None = None, why: str = "", reason: str = "", count: int = 0
) -> bytes:  # fmt: skip
    """An answer as a signal carries it. One that is refused is noted without its content."""
    value = msgspec.Raw(b"null" if why else given.value)
    if question is None:
        return _encode(Reply(value, channel=given.channel, key=given.key or ""))
    facts = question.facts
    return _encode(Reply(value, facts.id, facts.version, given.channel, why=why, reason=reason, count=count))


def about(kind: str, payload: bytes) -> str | None:
    """What a signal in a session's inbox is about, so that it is found among others: a question, its key, a child."""
    if not payload or kind == "message":
        return None
    if kind == "child":
        return _child(payload).child
    said = reply_of(payload)
    return said.question or said.key


NOTED = 16
"""How many refused answers to a question are noted one by one."""


def is_noted(count: int) -> bool:
    """Whether a refused answer is noted in the history. Whoever repeats one for ever must not fill the store.

    >>> [count for count in range(1, 200) if is_noted(count)][-5:]
    [15, 16, 32, 64, 128]
    """
    return count <= NOTED or count.bit_count() == 1


def judge(given: Answer, found: QuestionRow) -> Verdict:
    """What an answer to this question comes to: pure, so that every store decides alike."""
    if given.question is not None and given.session_id not in (None, found.root_id, found.session_id):
        return "elsewhere"
    if (first := found.winner) is not None:
        return "same" if not first.redacted and bytes(reply_of(first.payload).value) == given.value else "conflict"
    status = found.standing(given.at)
    if status is QuestionStatus.EXPIRED:
        return "expired"
    if status is not QuestionStatus.WAITING:
        return "cancelled"
    if given.seen not in (None, found.facts.seen):
        return "changed"
    return "invalid" if objection_to(given, found) else "taken"


def objection_to(given: Answer, found: QuestionRow) -> str:
    """Why an answer to this question cannot be right, whatever the step makes of it; empty if it may be."""
    asked = found.asked
    if asked is None or asked.kind != "ask" or given.shown is msgspec.UNSET:
        return ""
    return objection(asked.schema, given.shown)


def judge_early(given: Answer, first: SignalRecord) -> Verdict:
    """What an early answer comes to if there is one for its key already, which waits for the question."""
    return "early" if bytes(reply_of(first.payload).value) == given.value else "conflict"


def choose(given: Answer, found: Sequence[QuestionRow]) -> QuestionRow | Answered | None:
    """Which of a session's questions, oldest first, an answer without an id is for. None: it came before its question.

    By its key: the last one of that key, unless it was cancelled. Otherwise the one that waits.
    """
    if given.key is not None:
        last = next((each for each in reversed(found) if each.facts.key == given.key), None)
        return None if last is None or last.facts.status is QuestionStatus.CANCELLED else last
    waiting = [each for each in found if each.standing(given.at) is QuestionStatus.WAITING]
    if len(waiting) > 1:
        return Answered("several", several=tuple(waiting))
    if waiting:
        return waiting[0]
    last = found[-1] if found else None
    if (
        last is not None
        and last.standing(given.at) is QuestionStatus.EXPIRED
        and not (given.message and last.facts.told)
    ):
        return last
    return Answered("none")


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "integer": (int, float), "number": (int, float), "boolean": (bool, int, float),
    "null": (type(None),),
}  # fmt: skip


def objection(schema: dict[str, Any] | None, value: Any) -> str:
    """Why an answer cannot be right, by its JSON schema alone; empty if only the step that asked can tell.

    A text may always stand for something else, so the step reads it; unless there are choices.

    >>> objection({"enum": ["formal", "playful"]}, "rude")
    "it is none of 'formal', 'playful'"
    >>> objection({"type": "object", "required": ["street"]}, {"town": "Kiel"})
    "'street' is missing"
    >>> objection({"type": "integer"}, "3")
    ''
    """
    schema = {"type": "string"} if schema is None else schema
    if (choices := schema.get("enum")) is not None:
        alike = [each for each in choices if each == value or (isinstance(value, str) and _same_text(each, value))]
        return "" if alike else f"it is none of {', '.join(repr(each) for each in choices)}"
    if isinstance(value, str):
        return ""
    kind = schema.get("type")
    if isinstance(kind, str) and not isinstance(value, _TYPES.get(kind, (str,))):
        return f"it is no {'text' if kind == 'string' else kind}, but {type(value).__name__}"
    missing = [name for name in schema.get("required", ()) if isinstance(value, dict) and name not in value]
    return f"{', '.join(map(repr, missing))} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""


def _same_text(choice: Any, text: str) -> bool:
    return str(choice).strip().casefold() == text.strip().casefold()


def changed(facts: QuestionFacts, change: QuestionChange, at: int) -> QuestionFacts:
    """An open question after a change. With the wait ends what could not be right: it was no answer."""
    status = change.status or facts.status
    answer = None if facts.status is QuestionStatus.WAITING and status is not facts.status else facts.answer
    return replace(
        facts, status=status, expires_at=change.expires_at or facts.expires_at, answer=change.answer or answer,
        updated_at=at,
    )  # fmt: skip


def settled(facts: QuestionFacts, unread: Sequence[int], ended: str | None) -> QuestionStatus:
    """The last status of an open question whose visit is over. ``unread`` are the signals that nobody took in."""
    used = facts.status is QuestionStatus.RESUMED and facts.answer not in unread
    return QuestionStatus.COMPLETED if used and ended != "cancelled" else QuestionStatus.CANCELLED


# for people


class Receipt(msgspec.Struct, frozen=True):
    """That an answer was taken, or kept until its question is asked (then there is no ``question_id`` yet)."""

    session_id: str
    n: int
    answered_at: datetime
    question_id: str | None = None
    key: str | None = None
    version: int = 0
    by: str | None = None
    channel: str = ""


def receipt(row: QuestionRow) -> Receipt | None:
    """Of the answer that a question has."""
    if (signal := row.winner) is None:
        return None
    channel = "" if signal.redacted else reply_of(signal.payload).channel
    facts = row.facts
    return Receipt(
        row.session_id, signal.n, to_datetime(signal.at), facts.id, facts.key or None, facts.version, signal.by, channel
    )


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question and what has become of it: the record of a pause that waits for a person.

    ``session_id`` is the session that people talk to, ``sub_chain_id`` the child of it that asked, if one did.
    ``context_json`` (the state), ``tool_call_state_json`` (the operations of the open visit) and ``chat_history_json``
    are as of the moment of asking; they are read only by `Engine.question`.
    """

    id: str
    session_id: str
    workflow_id: str
    sub_chain_id: str | None
    llm_node_id: str
    pause_reason: str
    context_json: str | None = None
    tool_call_state_json: str | None = None
    collected_params_json: str | None = None
    current_round: int
    max_rounds: int
    pending_tool_id: str | None = None
    pending_tool_name: str | None = None
    next_question: str
    chat_history_json: str | None = None
    status: QuestionStatus
    created_at: datetime
    updated_at: datetime
    expired_at: datetime | None
    # what the record above does not say
    kind: Kind = "ask"
    key: str | None = None
    version: int = 1
    digest: str = ""
    answer_schema: dict[str, Any] | None = None
    complaint: str = ""
    default: Any = None
    on_expiry: OnExpiry = "pause"
    instead_of: str | None = None
    owner: str | None = None
    receipt: Receipt | None = None
    failure: str | None = None
    n: int = 0

    @property
    def asked_in(self) -> str:
        """The session whose step waits for the answer."""
        return self.sub_chain_id or self.session_id

    @property
    def choices(self) -> list[Any] | None:
        """What can be chosen from, if that is all that can be answered."""
        found = (self.answer_schema or {}).get("enum")
        return found if isinstance(found, list) else None

    def to_json(self) -> dict[str, Any]:
        """The record as plain data, under the names that it has in JSON."""
        found = {_camel(name): getattr(self, name) for name in _RECORD}
        found["status"] = self.status.value
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in found.items()}


_RECORD = Question.__struct_fields__[: Question.__struct_fields__.index("kind")]


def _camel(name: str) -> str:
    """
    >>> _camel("tool_call_state_json")
    'toolCallStateJson'
    """
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def question_of(row: QuestionRow, now: int) -> Question:
    """A question as people are shown it."""
    facts, asked = row.facts, row.asked
    asked = asked or Asked(facts.id, "(redacted)", round=facts.version)
    tool = asked.tool or (None, None)
    expires_at = None if facts.expires_at is None else to_datetime(facts.expires_at + row.deferred)
    return Question(
        id=facts.id,
        session_id=row.root_id,
        workflow_id=row.workflow,
        sub_chain_id=None if row.session_id == row.root_id else row.session_id,
        llm_node_id=row.step,
        pause_reason=_REASONS[asked.kind],
        collected_params_json=None if asked.collected is None else _encode(asked.collected).decode(),
        current_round=asked.round,
        max_rounds=asked.rounds,
        pending_tool_id=tool[0],
        pending_tool_name=tool[1],
        next_question=asked.text,
        status=row.standing(now),
        created_at=to_datetime(facts.created_at),
        updated_at=to_datetime(facts.updated_at),
        expired_at=expires_at,
        kind=asked.kind,
        key=facts.key or None,
        version=facts.version,
        digest=facts.seen.hex(),
        answer_schema=asked.schema,
        complaint=row.objection or asked.complaint,
        default=asked.default[0] if asked.default else None,
        on_expiry=asked.on_expiry,
        instead_of=asked.instead_of or None,
        owner=row.owner,
        receipt=receipt(row),
        failure=row.failure if facts.status is QuestionStatus.RESUMED else None,
        n=row.n,
    )
