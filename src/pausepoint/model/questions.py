"""Questions to people as records, and the rules that decide whether an answer is accepted.

A record in the session's log holds what a question asks. Its status (`QuestionFacts`) is stored next to the log,
because answers come from outside. Nothing here does I/O; every store uses the functions below in `Store.answer`.
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
from pausepoint.model.json_schema import Decides, objection
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import Position, QuestionChange, QuestionFacts, QuestionStatus, SessionRow

ROUNDS = 5
"""The default number of rounds: how often a question is asked before the step gives up."""

EXPIRY = timedelta(minutes=30)
"""The default time to answer of `collect`, unless the call, the workflow or the engine sets another."""


def is_time_to_answer(given: object) -> bool:
    """Return whether a value is a valid time to answer: a positive timedelta, None (no limit), or ``...`` (not set)."""
    return given in (None, ...) or (isinstance(given, timedelta) and given > timedelta(0))


Kind = Literal["ask", "confirm", "collect"]
OnExpiry = Literal["pause", "default", "escalate"]
QuestionSort = Literal["asked", "expires", "updated"]

_REASONS: dict[Kind, str] = {
    "ask": "WAITING_USER_INPUT",
    "confirm": "WAITING_CONFIRMATION",
    "collect": "WAITING_TOOL_PARAMETERS",
}


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a question, as recorded in the log. Each round has its own record.

    ``schema`` is the JSON schema of an answer (None accepts any text). ``default`` is empty if there is no default.
    ``complaint`` says why the last answer was not accepted. ``lasts`` and ``reminds`` are time spans in microseconds.
    ``tool`` is the id and name of the tool that waits for the answer. ``history`` is the state field that holds the
    conversation. ``instead_of`` is the id of the expired question that this one replaces. ``payload`` is structured
    context for the person, or empty. ``decides`` says whether an answer can be judged without the step.
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
    payload: tuple[Any, ...] = ()
    decides: Decides = "step"


class _Wait(msgspec.Struct, frozen=True):
    """The part of a wait record that holds the question."""

    ask: Asked


class _Child(msgspec.Struct, frozen=True):
    """The part of a child's report that names the child."""

    child: str


_wait = msgspec.json.Decoder(_Wait)
_child = msgspec.json.Decoder(_Child).decode
_encode = msgspec.json.Encoder().encode


def digest(asked: Asked) -> bytes:
    """Return a digest of what a person is shown. An answer that names it is only accepted for this exact round."""
    return sha256(_encode(asked)).digest()[:16]


class QuestionRow(msgspec.Struct, frozen=True):
    """A question together with related facts from the store.

    ``session_id`` is the session that asked; ``root_id`` is the root of its tree, the session that people talk to.
    ``workflow`` and ``owner`` belong to the root, ``step`` to the session that asked. ``payload`` is the content of the
    record that asks, or empty if it was redacted. ``deferred`` is how much later the question expires because timers
    were frozen. ``failure`` is the error message if the session that asked has failed.
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
        """Return the question's content, or None if it was redacted."""
        if not self.payload:
            return None
        try:
            return _wait.decode(self.payload).ask
        except msgspec.MsgspecError as exc:
            raise DamagedRecord(
                f"Question {self.facts.id}: record {self.facts.seq} of session {self.session_id!r} does not contain a"
                f" question ({exc}). Restore the database from a backup.",
                session_id=self.session_id, seq=self.facts.seq,
            ) from exc  # fmt: skip

    @property
    def winner(self) -> SignalRecord | None:
        """Return the accepted answer, if there is one. A waiting question can only have an invalid answer."""
        return None if self.facts.status is QuestionStatus.WAITING else self.answer

    @property
    def objection(self) -> str:
        """Return why the last answer is invalid, as long as the step has not read it; otherwise an empty string."""
        if self.answer is None or self.winner is not None or self.answer.redacted:
            return ""
        return reply_of(self.answer.payload).reason

    def status_at(self, now: int) -> QuestionStatus:
        """Return the status at time ``now``. A waiting question has expired once its time is over."""
        facts = self.facts
        if facts.status is QuestionStatus.WAITING and facts.expires_at is not None:
            return QuestionStatus.EXPIRED if facts.expires_at + self.deferred <= now else facts.status
        return facts.status


class Inquiry(msgspec.Struct, frozen=True, kw_only=True):
    """Selects questions, sorted by `place_of` and turned around by ``reverse``.

    ``session`` is the key of the session that asked; ``session_id`` is the id of that session or of its root.
    ``statuses`` selects questions whose current status is one of these. ``prefix`` is the start of the id. ``after``
    selects the questions after this position in the sorted list; it does not affect counts.
    """

    ids: tuple[str, ...] = ()
    session: int | None = None
    session_id: str | None = None
    workflow: str | None = None
    owner: str | None = None
    key: str | None = None
    prefix: str = ""
    statuses: tuple[QuestionStatus, ...] = ()
    sort: QuestionSort = "asked"
    reverse: bool = False
    after: Position | None = None
    limit: int | None = None


NEVER = 2**63 - 1
"""The time limit of a question without one, as far as the order is concerned."""


def place_of(n: int, facts: QuestionFacts, sort: QuestionSort) -> Position:
    """Return where a question is in a list that is sorted like this.

    ``asked``: the oldest comes first. ``expires``: the time limit that ends first comes first, and no limit last; time
    for which timers were frozen does not change the order. ``updated``: the last updated comes first.
    """
    match sort:
        case "asked":
            return (n,)
        case "expires":
            return NEVER if facts.expires_at is None else facts.expires_at, n
        case "updated":
            return facts.updated_at, n


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A person's answer. It names a question by id, by session and key, or means the one that waits in the session.

    ``value`` is the stored form of the answer; ``shown`` is the form that front ends see. If ``shown`` is unset, only
    the step that asked can judge the answer. ``seen`` is the digest of the question that was answered. ``message``
    means that the answer becomes a message if no question is waiting. A message with the key ``once`` is delivered
    once, however often it is sent.
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
    once: str = ""


Verdict = Literal[
    "taken", "same", "early", "queued", "unknown", "none", "several", "expired", "cancelled", "conflict", "changed",
    "elsewhere", "invalid",
]  # fmt: skip


class Answered(msgspec.Struct, frozen=True):
    """The result of an `Answer`.

    ``row`` is the session afterwards. ``early`` is the answer that is kept until its question is asked, or the message
    that was sent with the same key before.
    """

    verdict: Verdict
    row: SessionRow | None = None
    question: QuestionRow | None = None
    several: tuple[QuestionRow, ...] = ()
    early: SignalRecord | None = None

    @property
    def was_delivered(self) -> bool:
        """Whether the session gets the answer or message, now or from an earlier call."""
        return self.verdict in ("taken", "same", "early", "queued")


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of a signal that carries an answer. ``question`` is empty for an early answer.

    ``why`` is the verdict of a refused answer, ``reason`` what is wrong with an invalid one, ``count`` the number of
    refused answers so far.
    """

    value: msgspec.Raw
    question: str = ""
    version: int = 0
    channel: str = ""
    key: str = ""
    why: str = ""
    reason: str = ""
    count: int = 0
    once: str = ""


reply_of = msgspec.json.Decoder(Reply).decode


def reply(
    given: Answer, question: QuestionRow | None = None, why: str = "", reason: str = "", count: int = 0
) -> bytes:  # fmt: skip
    """Return an answer as the payload of a signal. A refused answer is recorded without its content."""
    value = msgspec.Raw(b"null" if why else given.value)
    if question is None:
        return _encode(Reply(value, channel=given.channel, key=given.key or ""))
    facts = question.facts
    return _encode(
        Reply(value, facts.id, facts.version, given.channel, why=why, reason=reason, count=count, once=given.once)
    )


class _Sent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of a message. That of an answer has the same fields and more."""

    value: msgspec.Raw
    once: str = ""
    why: str = ""


_sent = msgspec.json.Decoder(_Sent).decode


def message(given: Answer) -> bytes:
    """Return a message as the payload of a signal."""
    return _encode(_Sent(msgspec.Raw(given.value), given.once))


def once_of(signal: SignalRecord) -> str:
    """Return the key that a message was sent with; an empty string if it has none."""
    may_have = signal.kind in ("message", "answer") and b'"once":' in signal.payload
    return _sent(signal.payload).once if may_have else ""


def about(kind: str, payload: bytes) -> str | None:
    """Return what a signal in the inbox is about, as an index key: a question's id or key, or a child's id."""
    if not payload or kind == "message":
        return None
    if kind == "child":
        return _child(payload).child
    carried = reply_of(payload)
    return carried.question or carried.key


NOTED = 16
"""How many refused answers to a question are recorded one by one."""


def is_noted(count: int) -> bool:
    """Return whether the history records a refused answer. A client that keeps repeating one must not fill the store.

    >>> [count for count in range(1, 200) if is_noted(count)][-5:]
    [15, 16, 32, 64, 128]
    """
    return count <= NOTED or count.bit_count() == 1


def judge(given: Answer, found: QuestionRow) -> Verdict:
    """Return the verdict on an answer to this question. A pure function, so that every store decides alike."""
    if given.question is not None and given.session_id not in (None, found.root_id, found.session_id):
        return "elsewhere"
    if (first := found.winner) is not None:
        return "same" if not first.redacted and bytes(reply_of(first.payload).value) == given.value else "conflict"
    status = found.status_at(given.at)
    if status is QuestionStatus.EXPIRED:
        return "expired"
    if status is not QuestionStatus.WAITING:
        return "cancelled"
    if given.seen not in (None, found.facts.seen):
        return "changed"
    return "invalid" if objection_to(given, found) else "taken"


def objection_to(given: Answer, found: QuestionRow) -> str:
    """Return why an answer to this question is invalid; an empty string if only the step can decide."""
    asked = found.asked
    if asked is None or asked.kind != "ask" or given.shown is msgspec.UNSET:
        return ""
    # What people write in a chat is judged by the step, which also keeps their words.
    return objection(asked.schema, given.shown, "step" if given.message else asked.decides)


def judge_early(given: Answer, first: SignalRecord) -> Verdict:
    """Return the verdict on an early answer if another early answer with its key is already waiting."""
    return "early" if bytes(reply_of(first.payload).value) == given.value else "conflict"


def judge_again(given: Answer, first: SignalRecord) -> Verdict:
    """Return the verdict on a message whose key was used before. Content that is not stored counts as the same."""
    if first.redacted or (before := _sent(first.payload)).why:
        return "same"
    return "same" if bytes(before.value) == given.value else "conflict"


def choose(given: Answer, found: Sequence[QuestionRow]) -> QuestionRow | Answered | None:
    """Return the question that an answer without an id is for. None means that the answer came before its question.

    ``found`` are the session's questions, oldest first. An answer with a key is for the last question with that key,
    unless it was cancelled. An answer without a key is for the one question that waits.
    """
    if given.key is not None:
        last = next((each for each in reversed(found) if each.facts.key == given.key), None)
        return None if last is None or last.facts.status is QuestionStatus.CANCELLED else last
    waiting = [each for each in found if each.status_at(given.at) is QuestionStatus.WAITING]
    if len(waiting) > 1:
        return Answered("several", several=tuple(waiting))
    if waiting:
        return waiting[0]
    last = found[-1] if found else None
    if (
        last is not None
        and last.status_at(given.at) is QuestionStatus.EXPIRED
        and not (given.message and last.facts.told)
    ):
        return last
    return Answered("none")


def changed(facts: QuestionFacts, change: QuestionChange, at: int) -> QuestionFacts:
    """Return an open question's facts after a change. An invalid answer is dropped when the question stops waiting."""
    status = change.status or facts.status
    answer = None if facts.status is QuestionStatus.WAITING and status is not facts.status else facts.answer
    return replace(
        facts, status=status, expires_at=change.expires_at or facts.expires_at, answer=change.answer or answer,
        updated_at=at,
    )  # fmt: skip


def next_round(facts: QuestionFacts, before: QuestionFacts, read: Sequence[int]) -> QuestionFacts:
    """Return the facts of a question that is asked again. ``read`` are the answers that the step has read.

    An answer that arrived while the step refused another one stays: it answers this round.
    """
    facts = replace(facts, created_at=before.created_at, refused=before.refused)
    if before.answer is None or before.answer in read:
        return facts
    return replace(facts, status=before.status, answer=before.answer)


def settled(facts: QuestionFacts, unread: Sequence[int], ended: str | None) -> QuestionStatus:
    """Return the final status of an open question whose visit is over. ``unread`` are signals that no step read."""
    used = facts.status is QuestionStatus.RESUMED and facts.answer not in unread
    return QuestionStatus.COMPLETED if used and ended != "cancelled" else QuestionStatus.CANCELLED


# for people


class Receipt(msgspec.Struct, frozen=True):
    """Confirms that an answer was accepted, or kept until its question is asked (then ``question_id`` is None)."""

    session_id: str
    n: int
    answered_at: datetime
    question_id: str | None = None
    key: str | None = None
    version: int = 0
    by: str | None = None
    channel: str = ""


def receipt(row: QuestionRow) -> Receipt | None:
    """Return the receipt of a question's accepted answer, if there is one."""
    if (signal := row.winner) is None:
        return None
    channel = "" if signal.redacted else reply_of(signal.payload).channel
    facts = row.facts
    return Receipt(
        row.session_id, signal.n, to_datetime(signal.at), facts.id, facts.key or None, facts.version, signal.by, channel
    )


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A durable, typed request to a person, and its status.

    ``session_id`` is the session that people talk to; ``sub_chain_id`` is its child that asked, if one did.
    ``context_json`` (the state), ``tool_call_state_json`` (the operations of the open visit) and ``chat_history_json``
    show the moment of asking. Only `Engine.question` fills them in.
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
    # the fields below are not part of `to_json`
    kind: Kind = "ask"
    key: str | None = None
    version: int = 1
    digest: str = ""
    answer_schema: dict[str, Any] | None = None
    complaint: str = ""
    default: Any = None
    payload: Any = None
    on_expiry: OnExpiry = "pause"
    instead_of: str | None = None
    owner: str | None = None
    receipt: Receipt | None = None
    failure: str | None = None
    n: int = 0

    @property
    def asked_in(self) -> str:
        """Return the id of the session whose step waits for the answer."""
        return self.sub_chain_id or self.session_id

    @property
    def choices(self) -> list[Any] | None:
        """Return the allowed answers if the question has a fixed set of choices."""
        found = (self.answer_schema or {}).get("enum")
        return found if isinstance(found, list) else None

    def to_json(self) -> dict[str, Any]:
        """Return the question as plain data, with camelCase names."""
        return {_camel(name): value for name, value in self.record().items()}

    def record(self) -> dict[str, Any]:
        """Return the same as `to_json`, with snake_case names."""
        found = {name: getattr(self, name) for name in _RECORD} | {"status": self.status.value}
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in found.items()}


_RECORD = Question.__struct_fields__[: Question.__struct_fields__.index("kind")]


def _camel(name: str) -> str:
    """Return a snake_case name in camelCase.

    >>> _camel("tool_call_state_json")
    'toolCallStateJson'
    """
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def question_of(row: QuestionRow, now: int) -> Question:
    """Return a question in the form that people are shown."""
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
        status=row.status_at(now),
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
        payload=asked.payload[0] if asked.payload else None,
        on_expiry=asked.on_expiry,
        instead_of=asked.instead_of or None,
        owner=row.owner,
        receipt=receipt(row),
        failure=row.failure if facts.status is QuestionStatus.RESUMED else None,
        n=row.n,
    )
