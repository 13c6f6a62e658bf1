"""Asks a person on behalf of a step: opens the question, checks the answer, asks again, and expires.

A question is a wait like any other: the step exits, and runs to this point again when the session has an answer or the
question expires. Answers are checked here because the type is known here. If an answer does not fit, the question is
asked again with the reason, and the round is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from inspect import isawaitable
from types import EllipsisType
from typing import Any, NoReturn, TypedDict, Unpack
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from pausepoint.clock import LATEST, to_datetime
from pausepoint.codec.values import Typed, as_json, as_plain, decode, encode, fingerprint, typed
from pausepoint.codec.walk import is_model
from pausepoint.errors import Declined, QuestionExpired, RoundsExhausted, StateRefused, ValueRefused, did_you_mean
from pausepoint.log.replay import OperationBody, WaitBody
from pausepoint.model.commits import Facts
from pausepoint.model.json_schema import PLAIN_TYPES, Decides, JsonSchema
from pausepoint.model.questions import ROUNDS, Asked, Kind, OnExpiry, QuestionRow, digest, is_time_to_answer, reply_of
from pausepoint.model.records import SignalRecord
from pausepoint.model.sessions import QuestionChange, QuestionFacts, QuestionStatus
from pausepoint.runtime.pending import Done, Make, Pending, conclude, finish
from pausepoint.runtime.visit import Frame, Operation, Visit, Wait, key_text


class Options(TypedDict, total=False):
    """The options of every question; see `Context.ask`."""

    key: str | int | None
    expires: timedelta | EllipsisType | None
    on_expiry: OnExpiry
    rounds: int
    remind: timedelta | None
    history: str
    payload: Any


_WORDS = typed(dict[str, str])
_ERRORS = {"expired": QuestionExpired, "rounds": RoundsExhausted, "declined": Declined}


class AskAgain(Exception):
    """Raised if an answer, or part of it, does not fit. ``text`` is the next question, if it is worded differently."""

    def __init__(self, reason: str, text: str = "", collected: dict[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.text = text
        self.collected = collected


@dataclass(frozen=True)
class QuestionSpec:
    """A question that a step wants to ask, with all its options.

    ``read`` turns a stored answer into a value or raises `AskAgain`. It may be async. If it returns a `Declined`, the
    person has declined. ``expires`` and ``default`` are ``...`` if the step did not pass them; the question then waits
    as the workflow or the engine says, or else for ``usually``. ``like`` and ``text`` identify the question when the
    step runs to this point again. ``decides`` says whether an answer can be judged without the step.
    """

    text: str
    kind: Kind
    result: Typed
    read: Callable[[bytes, Asked], Any]
    schema: Callable[[], dict[str, Any] | None]
    like: str
    key: str | int | None = None
    default: Any = ...
    expires: timedelta | EllipsisType | None = ...
    on_expiry: OnExpiry = "pause"
    rounds: int = ROUNDS
    remind: timedelta | None = None
    tool: tuple[str, str] | None = None
    collected: dict[str, Any] | None = None
    history: str = ""
    payload: Any = None
    round: int = 1
    usually: timedelta | None = None
    decides: Decides = "step"

    def check(self, visit: Visit) -> None:
        """Raise `ValueError` if an option is invalid."""
        step = f"Step {visit.step.name!r}"
        given: dict[str, Any] = {"text": self.text, "rounds": self.rounds, "on_expiry": self.on_expiry}
        if type(given["text"]) is not str or not self.text.strip():
            raise ValueError(f"{step}: a question must be a non-empty string, not {self.text!r}.")
        if given["on_expiry"] not in ("pause", "default", "escalate"):
            raise ValueError(f"{step}: on_expiry must be 'pause', 'default' or 'escalate', not {self.on_expiry!r}.")
        if self.on_expiry == "default" and self.default is ...:
            raise ValueError(f"{step}: on_expiry='default' needs a default. Pass default=.")
        if type(given["rounds"]) is not int or self.rounds < 1:
            raise ValueError(f"{step}: rounds must be a whole number, at least 1, not {self.rounds!r}.")
        if not 1 <= self.round <= self.rounds:
            raise ValueError(f"{step}: round must be a number from 1 to {self.rounds}, not {self.round!r}.")
        for name, span in (("expires", self.expires), ("remind", self.remind)):
            if not is_time_to_answer(span):
                raise ValueError(f"{step}: {name} must be a timedelta above zero, or None, not {span!r}.")
        fields = visit.host.workflow.shape.fields
        if self.history and self.history not in fields:
            raise ValueError(
                f"{step}: history={self.history!r} is not a field of the state{did_you_mean(self.history, fields)}"
            )


# the wait


async def ask(visit: Visit, frame: Frame, spec: QuestionSpec) -> Any:
    """Ask a person and wait for the answer."""
    return await finish(visit, frame, lambda: asking(visit, frame, spec))


def asking(visit: Visit, frame: Frame, spec: QuestionSpec) -> Make[Any]:
    """Return a wait for the answer to a question, which the wait asks."""
    spec.check(visit)
    return partial(_Asking, visit, frame, spec)


def _identify(visit: Visit, frame: Frame, scope: str, spec: QuestionSpec) -> Operation:
    if spec.key is not None:
        return Operation(f"{scope}/{spec.kind}[{key_text(spec.key)}]", spec.kind, "", True)
    return Operation(visit.nth(frame, f"{scope}/{spec.kind}~{_print(spec)}"), spec.kind, "", False)


def _print(spec: QuestionSpec) -> str:
    return fingerprint(spec.text, spec.like).hex()[:24]


def _error(outcome: str, words: dict[str, str]) -> Exception:
    fields = {name: text for name, text in words.items() if name != "text"}
    return _ERRORS[outcome](words["text"], **fields)


class _Asking(Pending[Any]):
    """One question of one visit, until it is answered or given up."""

    def __init__(self, visit: Visit, frame: Frame, spec: QuestionSpec, scope: str) -> None:
        super().__init__(visit, frame, _identify(visit, frame, scope, spec))
        self.spec = spec

    async def recall(self, found: OperationBody) -> Any:
        if not found.outcome:
            return await self.visit.recall(found, self.spec.result)
        words: dict[str, str] = await self.visit.recall(found, _WORDS)
        raise self._failed(found.outcome, words)

    def _failed(self, outcome: str, words: dict[str, str]) -> Exception:
        """Return the error of a question without an answer. After a no, the act that it names cannot run."""
        error = _error(outcome, words)
        if isinstance(error, Declined) and self.spec.kind == "confirm" and self.spec.tool is not None:
            self.visit.barred[self.spec.tool[0]] = error
        return error

    async def look(self) -> Done | Wait | None:
        """Return the answer if there is one. Otherwise do what is due, or return what to wait for."""
        if (found := self.visit.remembered(self.operation)) is not None:
            return Done(await self.recall(found))  # another branch asked with the same key
        asked, expires_at = await self._current()
        row = await self.visit.uninterrupted(self.host.question(asked.id))
        now = self.host.clock.now()
        if row is None or row.facts.status in (QuestionStatus.CANCELLED, QuestionStatus.COMPLETED):
            await self._open()  # an edit, or an import into another store, has cancelled it
            return None
        expired = expires_at is not None and expires_at <= now
        signal = (row.winner if expired else row.answer) or await self._early()
        if signal is not None and signal.n in self.visit.taken:
            await self._let_twin_finish()
            return None
        if (signal is not None or expired) and self.host.must_stop:
            await self.visit.halt(self.frame)
            return None
        if signal is not None:
            return await self._take(asked, signal)
        if expired or row.facts.status is QuestionStatus.EXPIRED:
            return await self._expire(asked, row)
        return Wait("answer", self._remind(asked, expires_at, now), question=asked.id, key=asked.key)

    async def _let_twin_finish(self) -> None:
        """Wait for the branch that processes the same answer."""
        while (twin := self.visit.running.get(self.operation.id)) is not None:
            await twin.wait()
        await asyncio.sleep(0)

    # asking

    async def _current(self) -> tuple[Asked, int | None]:
        """Return the open question and its expiry. Open it first if it is new, in place of an earlier one."""
        waits = self.host.line.waits
        wait = waits.get(self.operation.id)
        if wait is None or wait.ask is None:
            await self._open()
        elif wait.input != _print(self.spec):
            await self._open(questions=(QuestionChange(wait.ask.id, QuestionStatus.CANCELLED),))
        # The wait is still there even if other tasks ran meanwhile: a question opened just now cannot be answered yet.
        wait = waits[self.operation.id]
        assert wait.ask is not None
        return wait.ask, wait.due

    async def _open(self, instead_of: str = "", **facts: Unpack[Facts]) -> None:
        spec = self.spec
        lasts = self._lasts()
        if spec.default is not ...:
            spec.result.encode(spec.default, "default", self.host.limits)  # fail now rather than at the expiry
        asked = Asked(
            str(uuid4()), spec.text, spec.kind, spec.round, spec.rounds, spec.schema(),
            default=() if spec.default is ... else (as_plain(spec.default),), on_expiry=spec.on_expiry,
            lasts=None if lasts is None else lasts // timedelta(microseconds=1),
            reminds=None if spec.remind is None else spec.remind // timedelta(microseconds=1), tool=spec.tool,
            collected=spec.collected, history=spec.history,
            key="" if spec.key is None else str(spec.key), instead_of=instead_of,
            payload=() if spec.payload is None else (self._payload(),), decides=spec.decides,
        )  # fmt: skip
        await self._ask(asked, **facts)

    def _lasts(self) -> timedelta | None:
        """Return how long the question waits: as the call says, or the workflow, or the engine."""
        spec, host = self.spec, self.host
        given = (spec.expires, host.workflow.questions_expire, host.questions_expire, spec.usually)
        return next(each for each in given if not isinstance(each, EllipsisType))

    def _payload(self) -> Any:
        """Return the context of the question as plain data."""
        payload = self.spec.payload
        plain = payload.model_dump() if is_model(type(payload)) else payload
        return as_plain(decode(encode(plain, "payload", self.host.limits)))

    async def _ask(self, asked: Asked, **facts: Unpack[Facts]) -> None:
        now = self.host.clock.now()
        due = None if asked.lasts is None else min(now + asked.lasts, LATEST)
        question = QuestionFacts(
            asked.id, asked.key, 0, QuestionStatus.WAITING, asked.round, digest(asked), now, now, due
        )
        body = WaitBody(
            self.operation.id, self.operation.name, due, agent=self.visit.agent, at=now, input=_print(self.spec),
            ask=asked,
        )  # fmt: skip
        facts["asks"] = (question,)
        await self.visit.open_wait(body, **facts)

    def _remind(self, asked: Asked, expires_at: int | None, now: int) -> int | None:
        """Return when to check the question again. If a reminder is due, add its event to the next record."""
        if expires_at is None or asked.reminds is None:
            return expires_at
        id = f"remind:{asked.id}:{asked.round}"
        if id in self.host.line.effects or id in self.host.ledger.pending:
            return expires_at
        remind_at = expires_at - asked.reminds
        if remind_at > now:
            return remind_at
        until = to_datetime(expires_at).isoformat(timespec="seconds")
        data = {"question_id": asked.id, "until": until}
        summary = f"question {asked.text!r} expires at {until}"
        self.host.ledger.effect(id, "question.reminded", summary, data, self.visit.step.agent)
        return expires_at

    # answers

    async def _early(self) -> SignalRecord | None:
        """Return an answer that was given to this key before the question was asked."""
        visit, known = self.visit, self.visit.early
        if self.spec.key is None or known is False:
            return None
        found = await visit.mail(1, "early", str(self.spec.key))
        if not found and known is None:  # one look is enough for all questions, until such an answer arrives
            has_early = bool(await visit.mail(1, "early"))
            visit.early = visit.early or has_early
        return next(iter(found), None)

    async def _take(self, asked: Asked, signal: SignalRecord) -> Done | None:
        self.visit.taken.add(signal.n)  # another branch may get here while this one commits
        try:
            if signal.redacted:
                raise AskAgain("the answer was redacted before it was read")
            reply = reply_of(signal.payload)
            if reply.reason:
                raise AskAgain(reply.reason)
            value = self.spec.read(bytes(reply.value), asked)
            value = await value if isawaitable(value) else value
        except AskAgain as again:
            await self._next_round(asked, again, signal)
            return None
        facts: Facts = {"consume": (signal.n,)}
        if signal.kind == "early":
            facts["questions"] = (QuestionChange(asked.id, QuestionStatus.RESUMED, answer=signal.n),)
        if isinstance(value, Declined):
            if asked.kind == "collect":  # the person did not answer the question but declined the tool
                facts["questions"] = (QuestionChange(asked.id, QuestionStatus.CANCELLED),)
            await self._give_up("declined", asked, str(value), value.reason, signal, **facts)
        return Done(await self._conclude(self.spec.result, value, **facts))

    async def _conclude(self, result: Typed, value: Any, outcome: str = "", **facts: Unpack[Facts]) -> Any:
        return await conclude(self.visit, self.operation, result, value, self.frame, self.rivals, outcome, **facts)

    async def _next_round(self, asked: Asked, again: AskAgain, signal: SignalRecord) -> None:
        """Ask again with the reason. The question waits as long as in the first round.

        If another answer has arrived meanwhile, it answers the next round. After the last one it is read instead.
        """
        if asked.round >= asked.rounds:
            row = await self.visit.uninterrupted(self.host.question(asked.id))
            if row is not None and row.answer is not None and row.answer.n != signal.n:
                return
            text = (
                f"no answer to {asked.text!r} was valid in {asked.rounds} round{'s' if asked.rounds > 1 else ''}."
                f" Resume the session to ask again. Last reason: {again}"
            )
            change = QuestionChange(asked.id, QuestionStatus.CANCELLED)
            last = asked if again.collected is None else replace(asked, collected=again.collected)
            await self._give_up("rounds", last, text, str(again), signal, consume=(signal.n,), questions=(change,))
        collected = asked.collected if again.collected is None else again.collected
        following = replace(
            asked, round=asked.round + 1, complaint=str(again), text=again.text or asked.text, collected=collected
        )
        await self._ask(following, consume=(signal.n,))

    async def _give_up(
        self, outcome: str, asked: Asked, text: str, reason: str, answer: SignalRecord | None = None,
        **facts: Unpack[Facts],
    ) -> NoReturn:  # fmt: skip
        """Remember that the question has no answer, and raise the error, now and when the step runs here again."""
        words = {"text": f"Step {self.visit.step.name!r}: {text}", "question_id": asked.id, "reason": reason}
        words["question"] = asked.text
        if answer is not None and not answer.redacted:
            words["answer"] = as_json(as_plain(decode(bytes(reply_of(answer.payload).value)))).decode()
        if asked.collected is not None:
            words["collected"] = as_json(asked.collected).decode()
        await self._conclude(_WORDS, words, outcome, **facts)
        raise self._failed(outcome, words)

    # time

    async def _expire(self, asked: Asked, row: QuestionRow) -> Done | None:
        if row.facts.status is QuestionStatus.WAITING and not await self._note_expiry(asked):
            return None  # an answer arrived at the last moment
        if self.spec.on_expiry == "default":
            return Done(await self._conclude(self.spec.result, self.spec.default))
        if self.spec.on_expiry == "escalate" and not asked.instead_of:
            await self._open(instead_of=asked.id)
            return None
        text = f"nobody answered {asked.text!r} in time. Resume the session to ask again."
        return await self._give_up("expired", asked, text, "")

    async def _note_expiry(self, asked: Asked) -> bool:
        """Record that the question expired. An answer of the wrong form is dropped with it."""
        self.visit.check_open()
        data = {"question_id": asked.id, "then": self.spec.on_expiry}
        change = QuestionChange(asked.id, QuestionStatus.EXPIRED)
        noting = self.host.note(
            "question.expired", f"nobody answered {asked.text!r} in time", data, only_if_waiting=asked.id,
            questions=(change,),
        )  # fmt: skip
        return await self.visit.uninterrupted(noting)


# kinds of questions


def question(
    text: str, kind: Any = str, choices: Sequence[Any] | None = None, schema: Mapping[str, Any] | None = None,
    default: Any = ..., **options: Unpack[Options],
) -> QuestionSpec:  # fmt: skip
    """Return a question whose answer is a value of a type, one of some choices, or a value that fits a JSON schema."""
    if (kind is not str) + (choices is not None) + (schema is not None) > 1:
        raise ValueError(f"The question {text!r:.100} has several types of answers. Pass a type, choices= or schema=.")
    if choices is not None:
        return _chosen(text, list(choices), default, options)
    if schema is not None:
        return _described(text, as_plain(dict(schema)), default, options)
    result = typed(kind)

    def read(raw: bytes, asked: Asked) -> Any:
        return parsed(result, raw)

    decides: Decides = "type" if kind in PLAIN_TYPES else "step"  # another type may have validators of its own
    return QuestionSpec(
        text, "ask", result, read, lambda: schema_of(result), repr(result), default=default, decides=decides, **options
    )


def _chosen(text: str, choices: list[Any], default: Any, options: Options) -> QuestionSpec:
    if not choices or not all(isinstance(each, str | int | float) for each in choices):
        raise ValueError(f"choices must be strings, numbers or booleans, at least one: {choices!r:.200}.")
    names = ", ".join(repr(each) for each in choices)

    def read(raw: bytes, asked: Asked) -> Any:
        value = decode(raw)
        exact = [each for each in choices if each == value and isinstance(each, bool) == isinstance(value, bool)]
        plain = str(value).strip().casefold()
        for each in exact or [each for each in choices if str(each).strip().casefold() == plain]:
            return each
        raise AskAgain(f"{value!r:.100} is not one of {names}")

    return QuestionSpec(text, "ask", typed(Any), read, lambda: {"enum": choices}, names, default=default, **options)


def _described(text: str, schema: dict[str, Any], default: Any, options: Options) -> QuestionSpec:
    complaints = JsonSchema(schema)
    if default is not ... and (wrong := complaints(as_plain(default))):
        raise ValueError(f"The default of the question {text!r:.100} does not fit its schema: {wrong}.")

    def read(raw: bytes, asked: Asked) -> Any:
        value, wrong = complaints.read(as_plain(decode(raw)))
        if wrong:
            raise AskAgain(wrong)
        return value

    like = as_json(schema).decode()
    return QuestionSpec(
        text, "ask", typed(Any), read, lambda: schema, like, default=default, decides="schema", **options
    )


_YES = typed(bool)


Verdict = bool | Mapping[str, Any] | None
Judge = Callable[[str], Verdict | Awaitable[Verdict]]
"""Turns a person's own words into True or False, or ``{"approved": …, "reason": …}``, or None if they are neither."""


def confirmation(what: str, act: str = "", understand: Judge | None = None, **options: Unpack[Options]) -> QuestionSpec:
    """Return a question that is answered with yes or no. A no gives a `Declined` instead of a value."""
    from pausepoint.model.schemas import Decision  # imported here so that reading sessions does not load Pydantic

    wanted = typed(Decision)

    async def read(raw: bytes, asked: Asked) -> bool | Declined:
        answer = decode(raw)
        if understand is not None and isinstance(answer, str):
            found = understand(answer)
            answer = await found if isawaitable(found) else found
            if answer is None:
                raise AskAgain("the answer is neither a yes nor a no")
            raw = as_json(answer)
        decision: Decision = parsed(wanted, raw)
        if decision.approved:
            return True
        why = f": {decision.reason.rstrip('.')}" if decision.reason else ""
        ways = f"ask again and keep what is finished: session.ask_again({asked.id!r}), then resume"
        text = f"{what!r} was declined{why}. A resume keeps this answer. What to do: {ways}."
        return Declined(text, question_id=asked.id, reason=decision.reason)

    tool = (act, act) if act else None
    return QuestionSpec(what, "confirm", _YES, read, lambda: schema_of(wanted), act, tool=tool, **options)


def parsed(result: Typed, raw: bytes) -> Any:
    """Return an answer as a value of the type. A string may contain JSON, as people type other values."""
    try:
        return _read(result, raw)
    except StateRefused as error:
        text = decode(raw)
        if isinstance(text, str) and text.lstrip()[:1] in tuple('{["-0123456789tfn'):
            try:
                return _read(result, as_json(msgspec.json.decode(text)))
            except (StateRefused, msgspec.MsgspecError):
                pass
        raise AskAgain(_reason(error)) from error


def _read(result: Typed, raw: bytes) -> Any:
    try:
        value = result.decode(raw, "answer")
        result.encode(value, "answer")
    except ValueRefused as error:
        raise StateRefused(str(error), field="answer") from error
    return value


def _reason(error: StateRefused) -> str:
    """Return the reason why an answer does not fit, in the words of the type's own validation errors."""
    from pydantic_core import ValidationError

    cause = error.__cause__
    if isinstance(cause, ValidationError):
        complaints = cause.errors(include_url=False, include_context=False)
        return "; ".join(": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"]))) for e in complaints[:5])
    return str(error)


def schema_of(result: Typed) -> dict[str, Any] | None:
    """Return the JSON schema of an answer; None if any string is valid."""
    if result.annotation is str:
        return None
    from pydantic.errors import PydanticInvalidForJsonSchema

    try:
        schema: dict[str, Any] = as_plain(result.adapter.json_schema())
        return schema
    except PydanticInvalidForJsonSchema:
        return {}  # JSON schema cannot express the type; the step itself checks the answer
