"""Collects the parameters of a tool from a person, over as many rounds as it takes, and runs the tool once.

    refund = Tool("refund", Refund, pay_back)
    done = await collect(ctx, refund, {"order": "A-17"})

Valid parameters are kept. Missing and invalid ones are asked for, with the reason. The tool runs as an operation of the
step. With ``round=`` only one question is asked, and the step decides what to do about parameters that are still
missing. This way a chat can keep each exchange in its state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Concatenate, Generic, Literal, TypeVar, Unpack, cast, overload

import msgspec
from pydantic import BaseModel, ValidationError

from pausepoint.codec.values import as_plain, decode, typed
from pausepoint.errors import Declined, RoundsExhausted, did_you_mean
from pausepoint.model.questions import EXPIRY, Asked
from pausepoint.runtime.blocking import BlockingContext
from pausepoint.runtime.context import Context
from pausepoint.runtime.questions import AskAgain, Options, QuestionSpec, ask

P = TypeVar("P", bound=BaseModel)
R = TypeVar("R")

AtLast = Literal["hand_over", "skip"]
Understand = Callable[[str, list[str]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Turns a person's own words into parameters. Gets the text and the names of the parameters asked for.

It may be async and run operations of the step. Raise `Declined` if the person no longer wants the tool to run.
"""

Phrase = Callable[[list[str], str], str]
"""Words a question. Gets the names of the parameters asked for and the reason for asking again, if there is one."""

_ANSWERED = typed(dict[str, Any])


@dataclass(frozen=True)
class Tool(Generic[P, R]):
    """A function that runs once all its parameters are known. ``run`` gets them as a ``parameters`` model.

    If ``run`` has a parameter annotated `Context` (`BlockingContext` in a ``def``), it also gets a context, for example
    to use its ``idempotency_key``.
    """

    name: str
    parameters: type[P]
    run: Callable[Concatenate[P, ...], Coroutine[Any, Any, R]] | Callable[Concatenate[P, ...], R]
    id: str = ""


@dataclass(frozen=True)
class Collected(Generic[R]):
    """The outcome of `collect`: the tool's ``result`` if it ran; otherwise ``said`` gives the reason why it did not.

    The outcome is ``partial`` only with ``round=``, if a parameter is still missing. ``question`` and ``answer`` are
    the last exchange with the person. They are empty and None if nothing had to be asked.
    """

    outcome: Literal["done", "partial", "declined", "handed_over", "skipped"]
    parameters: dict[str, Any]
    result: R | None = None
    said: str = ""
    question: str = ""
    answer: Any = None

    @property
    def done(self) -> bool:
        """Whether the tool has run."""
        return self.outcome == "done"


@overload
def collect(
    ctx: Context, tool: Tool[P, R], given: Mapping[str, Any] | None = None, *, understand: Understand | None = None,
    phrase: Phrase | None = None, at_last: AtLast = "hand_over", round: int | None = None, **options: Unpack[Options],
) -> Coroutine[Any, Any, Collected[R]]: ...  # fmt: skip
@overload
def collect(
    ctx: BlockingContext, tool: Tool[P, R], given: Mapping[str, Any] | None = None, *,
    understand: Understand | None = None, phrase: Phrase | None = None, at_last: AtLast = "hand_over",
    round: int | None = None, **options: Unpack[Options],
) -> Collected[R]: ...  # fmt: skip
def collect(
    ctx: Context | BlockingContext, tool: Tool[Any, Any], given: Mapping[str, Any] | None = None, *,
    understand: Understand | None = None, phrase: Phrase | None = None, at_last: AtLast = "hand_over",
    round: int | None = None, **options: Unpack[Options],
) -> Any:  # fmt: skip
    """Ask a person for a tool's missing parameters, then run the tool once with all of them.

    ``given`` are the parameters known so far. An empty string, None and the string "null" count as missing.

    An answer is a mapping, a string of JSON, or free text that ``understand`` turns into parameters. If only one
    parameter is asked for, the answer may be its value. ``phrase`` words the question.

    If parameters are still missing after the last of ``rounds``, the tool does not run. The outcome is ``handed_over``
    or ``skipped``, as ``at_last`` says. If ``understand`` raises `Declined`, the outcome is ``declined``.

    Pass ``round=``, the number of this question, to ask only once. The outcome is then ``done`` or ``partial``. The
    other options are those of `Context.ask`, except that a question expires after 30 minutes unless ``expires=``, the
    workflow or the engine says otherwise.
    """
    collection = _Collection(tool, dict(given or {}), understand, phrase, at_last, round, options)
    if isinstance(ctx, BlockingContext):
        return ctx._wait(collection.run(ctx._wrapped))
    return collection.run(ctx)


class _Collection:
    """One call of `collect`."""

    def __init__(
        self, tool: Tool[Any, Any], given: dict[str, Any], understand: Understand | None, phrase: Phrase | None,
        at_last: AtLast, round: int | None, options: Options,
    ) -> None:  # fmt: skip
        self.tool = tool
        self.understand = understand
        self.phrase = phrase or self._phrase
        self.at_last = at_last
        self.round = round
        self.options = options
        self.fields = as_plain(tool.parameters.model_json_schema()).get("properties", {})
        self.given, self.lacking = self._checked(given)

    async def run(self, ctx: Context) -> Collected[Any]:
        """Ask for missing parameters, then run the tool."""
        found: dict[str, Any] = {"parameters": self.given}
        if self.lacking:
            try:
                found = cast("dict[str, Any]", await ask(ctx._visit, ctx._frame, self._spec()))
            except (RoundsExhausted, Declined) as error:
                return self._not_run(error)
        parameters, exchanged = found["parameters"], (found.get("question", ""), found.get("answer"))
        _, missing = self._checked(parameters)
        if missing:
            why = _reasons(missing) or f"still missing: {', '.join(missing)}"
            return Collected("partial", parameters, None, why, *exchanged)
        model = self.tool.parameters.model_validate(parameters)
        result = await ctx.do(self.tool.run, model, key=self.options.get("key"))
        return Collected("done", parameters, result, "", *exchanged)

    def _not_run(self, error: RoundsExhausted | Declined) -> Collected[Any]:
        collected = msgspec.json.decode(error.collected) if error.collected else self.given
        answer = msgspec.json.decode(error.answer) if error.answer else None
        outcome: Literal["declined", "handed_over", "skipped"]
        if isinstance(error, Declined):
            outcome, then = "declined", "the person declined"
        elif self.at_last == "hand_over":
            outcome, then = "handed_over", "a person has to take over"
        else:
            outcome, then = "skipped", "it was skipped"
        said = ": ".join(filter(None, (f"{self.tool.name} did not run ({then})", error.reason)))
        return Collected(outcome, collected, None, said, error.question, answer)

    def _spec(self) -> QuestionSpec:
        names, tool = list(self.lacking), self.tool
        text = self.phrase(names, _reasons(self.lacking))
        return QuestionSpec(
            text, "collect", _ANSWERED, self._read, lambda: self._schema(), tool.name,
            tool=(tool.id or tool.name, tool.name), collected=as_plain(self.given),
            round=1 if self.round is None else self.round, usually=EXPIRY, **self.options,
        )  # fmt: skip

    def _schema(self) -> dict[str, Any]:
        """Return the JSON schema of a partial answer: the parameters' schema with nothing required."""
        found: dict[str, Any] = as_plain(self.tool.parameters.model_json_schema())
        return {name: value for name, value in found.items() if name != "required"}

    # answers

    async def _read(self, raw: bytes, asked: Asked) -> dict[str, Any] | Declined:
        before = dict(asked.collected or {})
        _, lacking = self._checked(before)
        answer = decode(raw)
        try:
            understood = before | await self._understood(answer, list(lacking))
        except Declined as declined:
            return declined
        merged, missing = self._checked(understood)
        if missing and (self.round is None or asked.round >= asked.rounds):
            reason = _reasons(missing) or "some parameters are still missing"
            raise AskAgain(reason, self.phrase(list(missing), _reasons(missing)), as_plain(merged))
        # With round= invalid values are kept too: they are reported with the reason, and the next round asks for them.
        parameters = as_plain(understood if missing else merged)
        return {"parameters": parameters, "question": asked.text, "answer": as_plain(answer)}

    async def _understood(self, answer: Any, names: list[str]) -> dict[str, Any]:
        """Turn an answer into parameters. Empty values are dropped."""
        if isinstance(answer, str):
            answer = self._from_text(answer, names)
            answer = await answer if isawaitable(answer) else answer
        if not isinstance(answer, Mapping):
            answer = {names[0]: answer} if len(names) == 1 else {}
        return {name: value for name, value in answer.items() if not _is_missing(value)}

    def _from_text(self, text: str, names: list[str]) -> Any:
        if text.lstrip().startswith("{"):
            try:
                return msgspec.json.decode(text)
            except msgspec.MsgspecError:
                pass  # not JSON, but text that begins with a brace
        if self.understand is not None:
            return self.understand(text, names)
        return text.strip() if len(names) == 1 else {}

    def _checked(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the usable parameters, and the missing or invalid ones with a reason (empty if only missing)."""
        unknown = given.keys() - self.fields
        wrong = {name: f"unknown parameter {name!r}{did_you_mean(name, self.fields)}" for name in unknown}
        usable = {name: value for name, value in given.items() if name in self.fields and not _is_missing(value)}
        lacking: dict[str, str] = {}
        try:
            self.tool.parameters.model_validate(usable)
        except ValidationError as error:
            for each in error.errors(include_url=False, include_context=False):
                name = str(each["loc"][0]) if each["loc"] else next(iter(self.fields), "")
                lacking.setdefault(name, "" if each["type"] == "missing" and len(each["loc"]) == 1 else each["msg"])
        good = {name: value for name, value in usable.items() if name not in lacking}
        if lacking and wrong:
            first = next(iter(lacking))
            lacking[first] = "; ".join(filter(None, (lacking[first], *wrong.values())))
        return good, lacking

    def _phrase(self, names: list[str], why: str) -> str:
        wanted = ", ".join(self._described(name) for name in names)
        return f"{self.tool.name} needs: {wanted}." + (f" {why}" if why.endswith((".", "?")) else why and f" {why}.")

    def _described(self, name: str) -> str:
        field = self.fields.get(name, {})
        choices = field.get("enum")
        hint = field.get("description") or (", ".join(map(str, choices)) if choices else "")
        return f"{name} ({hint})" if hint else name


def _reasons(lacking: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in lacking.items() if why)


def _is_missing(value: object) -> bool:
    """Return whether a value counts as missing.

    >>> [_is_missing(value) for value in (None, "", "  ", "null", "NULL", "0", 0, False)]
    [True, True, True, True, True, False, False, False]
    """
    return value is None or (isinstance(value, str) and value.strip().casefold() in ("", "null"))
