"""The sub-chain: ask for the missing values of a request, confirm what will be written, and run the tool.

`gather` and `settle` ask one question per visit, so every pause records the whole conversation. A tool that changes the
shop goes through `settle`: the customer sees the values and agrees before anything is written. Each call is finished,
with its result in the state, before the next one starts. A question also tells the results that came before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import AwareDatetime

from pausepoint import Context, Retry, Tool, Workflow, collect, route, step
from pausepoint.apps.helpdesk import words
from pausepoint.apps.helpdesk.agent import MODEL_FAILED
from pausepoint.apps.helpdesk.intents import language_of
from pausepoint.apps.helpdesk.models import Call, Desk, Errand, Language, Message, Quote, Reading, Result
from pausepoint.apps.helpdesk.parameters import MODELS, found_in
from pausepoint.apps.helpdesk.readings import read_answer, read_decision
from pausepoint.apps.helpdesk.shop import CHANGES, Served, Shop
from pausepoint.errors import Declined, QuestionExpired

PATIENCE = Retry(attempts=4, on=(ConnectionError, TimeoutError))
WRITTEN = ["calls", "results", "messages", "quote", "told", "lapsed", "language", "follow_up", "leaves"]

Update = dict[str, object]


@step(writes=["calls", "entities"])
async def values(calls: list[Call], now: AwareDatetime, desk: Desk) -> Update:
    """Read the values that the request already names."""
    today = desk.local(now).date()
    read = [call.model_copy(update={"given": found_in(call.tool, call.text, today) | call.given}) for call in calls]
    return {"calls": read, "entities": {name: value for call in read for name, value in call.given.items()}}


@step(writes=WRITTEN, retry=PATIENCE)
async def gather(
    calls: list[Call], language: Language, now: AwareDatetime, desk: Desk, results: list[Result], told: int,
    messages: list[Message], ctx: Context,
) -> Update:  # fmt: skip
    """Ask one question about the current call's missing values. If nothing is missing, check the call."""
    call, rest = calls[0], calls[1:]
    if call.tool == "hand_over":
        return {"calls": rest, "results": [Result(tool=call.tool, outcome="passed_on", said=call.text)]}
    shop = Shop(desk.shop, desk.local(now), desk.customer)
    news = _news(language, results[told:], desk)

    async def understand(text: str, names: list[str]) -> Mapping[str, Any]:
        found = await _keep(ctx, await read_answer(ctx, call, names, text, messages, shop))
        if found.verdict != "answer":
            raise Declined(f"The message is no answer: {found.verdict}.")
        return found.values

    try:
        done = await collect(
            ctx, Tool(call.tool, MODELS[call.tool], shop.check(call.tool), id=f"helpdesk.{call.tool}"), call.given,
            understand=understand, round=call.round, rounds=desk.rounds, expires=desk.expires, history="messages",
            phrase=lambda names, why: news + words.question(language, call, names, why),
        )  # fmt: skip
    except QuestionExpired as expired:
        return _expired(calls, expired, results)
    if not done.question:
        return _checked(call, rest, desk, language, _plain(done.parameters), done.result, asked=False)
    heard = await _kept(ctx, "answer", done.answer)
    asked: Update = {"messages": _spoken(done.question, heard, desk), "told": len(results)}
    if done.outcome == "partial":
        why = "" if done.parameters != call.given else words.say(language, "nothing")
        again = call.model_copy(update={"given": done.parameters, "round": call.round + 1, "why": why})
        return asked | {"calls": [again, *rest, *heard.calls]}
    if done.outcome == "declined":
        return asked | _turned(call, rest, _plain(done.parameters), heard, desk, language)
    rest = [*rest, *heard.calls]
    if done.result is None:
        result = Result(tool=call.tool, outcome="handed_over", parameters=done.parameters, said=done.said)
        return asked | {"calls": rest, "results": [result]}
    return asked | _checked(call, rest, desk, language, _plain(done.parameters), done.result, asked=True)


def _checked(
    call: Call, rest: list[Call], desk: Desk, language: Language, parameters: dict[str, Any], served: Served | None,
    asked: bool,
) -> Update:  # fmt: skip
    """Handle the shop's check: a result, an action that needs a confirmation, or a value that the shop refuses."""
    assert served is not None
    if served.ask:
        return _asked_again(call, rest, desk, language, parameters, served, asked)
    if served.refused or call.tool not in CHANGES:
        return {"calls": rest, "results": [_result(call, parameters, served)]}
    amount = {"amount": served.facts["amount"]} if call.tool == "refund" else {}  # exactly what is confirmed
    quote = Quote(parameters=parameters | amount, facts=served.facts)
    return {"calls": [call.model_copy(update={"given": parameters, "why": ""}), *rest], "quote": quote}


def _asked_again(
    call: Call, rest: list[Call], desk: Desk, language: Language, parameters: dict[str, Any], served: Served,
    asked: bool,
) -> Update:  # fmt: skip
    """Ask for another value in place of one that the shop refuses. After the last round, a person takes over."""
    why = words.say(language, served.refused, **words.facts(language, served.facts))
    if call.round + asked > desk.rounds:
        result = Result(tool=call.tool, outcome="handed_over", parameters=parameters, said=why)
        return {"calls": rest, "results": [result]}
    given = {name: value for name, value in parameters.items() if name != served.ask}
    again = call.model_copy(update={"given": given, "round": call.round + asked, "why": why})
    return {"calls": [again, *rest]}


def has_quote(quote: Quote | None) -> bool:
    """Return whether an action waits for a confirmation."""
    return quote is not None


@step(writes=WRITTEN, when=has_quote)
async def settle(
    calls: list[Call], quote: Quote, language: Language, now: AwareDatetime, desk: Desk, results: list[Result],
    told: int, messages: list[Message], ctx: Context,
) -> Update:  # fmt: skip
    """Show what will be written, and write it if the customer agrees."""
    call, rest = calls[0], calls[1:]
    shop = Shop(desk.shop, desk.local(now), desk.customer)
    text = _news(language, results[told:], desk) + words.confirmation(language, call.tool, quote.facts, call.why)

    async def understand(said: str) -> Mapping[str, Any]:
        found = await _keep(ctx, await read_decision(ctx, call, text, said, messages, shop))
        return {"approved": found.verdict == "yes", "reason": found.verdict}

    try:
        await ctx.confirm(
            text, act=shop.write(call.tool), understand=understand, rounds=desk.rounds, expires=desk.expires,
            history="messages", payload={"tool": call.tool, "values": quote.parameters},
        )  # fmt: skip
    except Declined as declined:
        heard = await _kept(ctx, "no", json.loads(declined.answer) if declined.answer else None)
        asked: Update = {"messages": _spoken(text, heard, desk), "told": len(results), "quote": None}
        if heard.verdict == "unclear":
            return asked | _unclear(call, rest, quote, desk, language)
        return asked | _turned(call, rest, quote.parameters, heard, desk, language)
    except QuestionExpired as expired:
        return _expired(calls, expired, results)
    served = await ctx.do(shop.write(call.tool), MODELS[call.tool].model_validate(quote.parameters))
    heard = await _kept(ctx, "yes", words.say(language, "yes"))
    rest = [*rest, *heard.calls]
    asked = {"messages": _spoken(text, heard, desk), "told": len(results), "quote": None}
    if served.ask:  # for example, the time has been taken since the question
        return asked | _asked_again(call, rest, desk, language, quote.parameters, served, asked=True)
    done: Update = {"calls": rest, "results": [_result(call, quote.parameters, served)]}
    return asked | done | {"leaves": heard.leaves and not rest}


def _unclear(call: Call, rest: list[Call], quote: Quote, desk: Desk, language: Language) -> Update:
    """Ask for the confirmation once more. After the last round, a person takes over."""
    if quote.round >= desk.rounds:
        result = Result(tool=call.tool, outcome="handed_over", parameters=quote.parameters)
        return {"calls": rest, "results": [result]}
    again = call.model_copy(update={"why": words.say(language, "not_yes_or_no")})
    return {"calls": [again, *rest], "quote": quote.model_copy(update={"round": quote.round + 1})}


def _turned(
    call: Call, rest: list[Call], parameters: dict[str, Any], heard: Reading, desk: Desk, language: Language
) -> Update:
    """Handle a message that is neither the requested value nor a yes."""
    left = call.model_copy(update={"given": parameters, "why": ""})
    if heard.verdict in ("person", "operator"):
        said = heard.said if heard.verdict == "person" else ""
        passed = [
            Result(tool=each.tool, outcome="passed_on", parameters=each.given, said=said) for each in (left, *rest)
        ]
        return {"calls": [], "results": passed, "follow_up": heard.said if heard.verdict == "operator" else ""}
    if heard.verdict == "answer":  # a correction: check the new values, and confirm them
        return {"calls": [left.model_copy(update={"given": parameters | heard.values}), *rest]}
    outcome: Literal["declined", "cancelled"] = "declined" if heard.verdict == "no" else "cancelled"
    if heard.leaves:  # nothing of what was asked for is written
        dropped = [(left, outcome), *((each, "cancelled") for each in rest)]
        told = [Result(tool=each.tool, outcome=how, parameters=each.given, said=heard.said)
                for each, how in dropped if each.tool in CHANGES]  # fmt: skip
        return {"calls": [], "results": told, "leaves": True}
    spoken = desk.language or (language_of(heard.said, language) if heard.calls else language)
    found: Update = {"calls": [*heard.calls, *rest], "language": spoken}
    if heard.verdict == "other" and not any(each.tool in (*CHANGES, "hand_over") for each in heard.calls):
        return found | {"calls": [*heard.calls, left, *rest]}  # a question in between: answer it, then ask again
    return found | {"results": [Result(tool=call.tool, outcome=outcome, parameters=parameters, said=heard.said)]}


def _result(call: Call, parameters: dict[str, Any], served: Served) -> Result:
    outcome: Literal["refused", "done"] = "refused" if served.refused else "done"
    return Result(tool=call.tool, outcome=outcome, parameters=parameters, facts=served.facts, said=served.refused)


def _expired(calls: list[Call], error: QuestionExpired, results: list[Result]) -> Update:
    """Write nothing, and keep the calls. The chat asks again when the customer is back."""
    call = calls[0]
    collected = json.loads(error.collected) if error.collected else call.given
    result = Result(tool=call.tool, outcome="expired", parameters=collected)
    lapsed = [call.model_copy(update={"given": collected, "round": 1, "why": ""}), *calls[1:]]
    said = [Message(role="assistant", text=error.question)]
    return {
        "calls": [], "results": [result], "messages": said, "quote": None, "lapsed": lapsed, "told": len(results)
    }  # fmt: skip


# what the customer said, remembered for the transcript


async def _keep(ctx: Context, found: Reading) -> Reading:
    """Remember how an answer was read, and return what is remembered if it was read before."""
    return Reading.model_validate_json(await ctx.do(_saying(found.model_dump_json()), key="heard"))


async def _kept(ctx: Context, otherwise: Literal["answer", "yes", "no"], answer: Any) -> Reading:
    """Return how the answer was read. Forms and buttons give values, which need no reading."""
    text = await ctx.do(_saying(""), key="heard")
    if text:
        return Reading.model_validate_json(text)
    said = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return Reading(verdict=otherwise, said=said, form=True)


def _saying(text: str) -> Callable[[], str]:
    """Return an operation without arguments, so that a second call with its key finds the first one's result."""

    def heard() -> str:
        return text

    return heard


def _spoken(question: str, heard: Reading, desk: Desk) -> list[Message]:
    """Return a question and its answer as chat messages.

    A customer who is signed in sends messages only, so a form that answers the question is an operator's.
    """
    said = [Message(role="assistant", text=question)]
    role: Literal["operator", "user"] = "operator" if heard.form and desk.customer is not None else "user"
    return said if heard.verdict == "operator" else [*said, Message(role=role, text=heard.said)]


def _news(language: Language, results: list[Result], desk: Desk) -> str:
    """Return what the customer does not know yet, in front of a question."""
    return "".join(f"{told}\n" for each in results if (told := words.outcome(language, each, desk.rounds)))


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, str | int) else str(value) for name, value in parameters.items()}


@route(after=gather)
def after_gather(calls: list[Call], quote: Quote | None) -> Literal["gather", "settle", None]:
    """Go to the confirmation, to the next question or call, or back to the chat."""
    if quote is not None:
        return "settle"
    return "gather" if calls else None


@route(after=settle)
def after_settle(calls: list[Call], quote: Quote | None) -> Literal["gather", "settle", None]:
    """Ask for the confirmation again, go to the next call, or back to the chat."""
    if quote is not None:
        return "settle"
    return "gather" if calls else None


errand: Workflow[Errand] = Workflow(
    "errand", state=Errand, steps=[values, gather, settle], routes=[after_gather, after_settle], events=[MODEL_FAILED]
)
