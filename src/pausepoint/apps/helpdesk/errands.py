"""The sub-chain: read the values of a request, ask for missing ones, and run the tool. One child session per request.

`gather` asks one question per visit, so every pause records the whole conversation. A request that needs a confirmation
goes through `settle`. Each call is finished, with its result in the state, before the next one starts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from typing import Any, Literal

from pydantic import AwareDatetime

from pausepoint import Context, Retry, Tool, Workflow, collect, route, step
from pausepoint.apps.helpdesk import words
from pausepoint.apps.helpdesk.extraction import normal, orders
from pausepoint.apps.helpdesk.intents import is_cancel, tool_of, wants_person, yes_or_no
from pausepoint.apps.helpdesk.model_reading import read_answer, read_values
from pausepoint.apps.helpdesk.models import Call, Desk, Errand, Language, Message, Quote, Result, ToolName
from pausepoint.apps.helpdesk.parameters import MODELS, answered, found_in
from pausepoint.apps.helpdesk.shop import Served, Shop
from pausepoint.errors import Declined, QuestionExpired, RoundsExhausted, Unanswered

ELSE = "something else is wanted"
PATIENCE = Retry(attempts=4, on=(ConnectionError, TimeoutError))


@step(writes=["calls", "entities"], retry=PATIENCE)
async def values(calls: list[Call], now: AwareDatetime, desk: Desk, ctx: Context) -> dict[str, object]:
    """Read the values that the request already names, with a model if there is one, otherwise with patterns."""
    today = desk.local(now).date()
    read = []
    for call in calls:
        named = await read_values(ctx, call, today)
        given = found_in(call.tool, call.text, today) if named is None else named
        read.append(call.model_copy(update={"given": call.given | given}))
    return {"calls": read, "entities": {name: value for call in read for name, value in call.given.items()}}


def _tool(name: ToolName, shop: Shop) -> Tool[Any, Served]:
    runs: dict[ToolName, Callable[..., Served]] = {
        "order_status": shop.order_status, "change_address": shop.change_address, "refund": shop.quote_refund,
        "appointment": shop.book,
    }  # fmt: skip
    return Tool(name, MODELS[name], runs[name], id=f"helpdesk.{name}")


@step(writes=["calls", "results", "messages", "quote", "follow_up"], retry=PATIENCE)
async def gather(
    calls: list[Call], language: Language, now: AwareDatetime, desk: Desk, ctx: Context
) -> dict[str, object]:
    """Ask one question about the current call's missing values, or run its tool if nothing is missing."""
    call, rest = calls[0], calls[1:]
    shop = Shop(desk.shop, desk.local(now))
    understand = partial(_understood, ctx, call, shop)
    try:
        done = await collect(
            ctx, _tool(call.tool, shop), call.given, understand=understand,
            phrase=lambda names, why: words.question(language, call, names, why), round=call.round, rounds=desk.rounds,
            expires=desk.expires, history="messages",
        )  # fmt: skip
    except QuestionExpired as expired:
        return _unanswered(call, rest, expired, "expired")
    spoken = _spoken(done.question, done.answer)
    if done.outcome == "partial":
        why = "" if done.parameters != call.given else words.say(language, "nothing")
        again = call.model_copy(update={"given": done.parameters, "round": call.round + 1, "why": why})
        return {"calls": [again, *rest], "messages": spoken}
    if done.outcome == "declined":
        return _not_answered(call, rest, done.parameters, str(done.answer), spoken)
    if done.outcome != "done" or done.result is None:
        result = Result(tool=call.tool, outcome="handed_over", parameters=done.parameters, said=done.said)
        return {"calls": rest, "messages": spoken, "results": [result]}
    found = _served(call, rest, desk, language, _plain(done.parameters), done.result, asked=bool(spoken))
    return {"messages": spoken, **found}


async def _understood(ctx: Context, call: Call, shop: Shop, text: str, names: list[str]) -> Mapping[str, Any]:
    """Return the parameters in an answer. Raises `Declined` if the message is not an answer."""
    if is_cancel(text):
        raise Declined("The customer cancels.", reason="cancel")
    if wants_person(text):
        raise Declined("The customer asks for a person.", reason="person")
    today = shop.now.date()
    if _asks_for_another(call, text, names, today):
        raise Declined(ELSE, reason=ELSE)
    named = await read_answer(ctx, call, text, names, today)
    return answered(call.tool, text, names, today) if named is None else named


def _asks_for_another(call: Call, text: str, names: list[str], today: date) -> bool:
    """Return whether a message asks for another tool instead of answering, such as "where is B-2001?"."""
    tool, said = tool_of(text), normal(text)
    if tool in (None, call.tool):
        return False
    given = set(answered(call.tool, text, [], today)) & set(names)
    if given:
        return given == {"order"} and "?" in said
    # "It arrived smashed" contains a word of another tool, but answers the question for the reason.
    return tool != "order_status" or len(names) > 1 or "?" in said or bool(orders(said))


def _served(
    call: Call,
    rest: list[Call],
    desk: Desk,
    language: Language,
    parameters: dict[str, Any],
    served: Served,
    asked: bool,
) -> dict[str, object]:
    """Handle the tool's reply: a result, an action that needs a confirmation, or a value that the shop refuses."""
    if served.ask:
        why = words.say(language, served.refused, **words.facts(language, served.facts))
        given = {name: value for name, value in parameters.items() if name != served.ask}
        if call.round + asked <= desk.rounds:
            again = call.model_copy(update={"given": given, "round": call.round + asked, "why": why})
            return {"calls": [again, *rest], "quote": None}
        result = Result(tool=call.tool, outcome="handed_over", parameters=parameters, said=why)
        return {"calls": rest, "results": [result]}
    if served.refused:
        result = Result(
            tool=call.tool, outcome="refused", parameters=parameters, facts=served.facts, said=served.refused
        )
        return {"calls": rest, "results": [result]}
    if call.tool == "refund":
        kept = call.model_copy(update={"given": parameters, "why": ""})  # it stays the current call until it is settled
        return {"calls": [kept, *rest], "quote": Quote(parameters=parameters, facts=served.facts)}
    result = Result(tool=call.tool, outcome="done", parameters=parameters, facts=served.facts)
    return {"calls": rest, "results": [result]}


def _not_answered(
    call: Call, rest: list[Call], parameters: dict[str, Any], answer: str, spoken: list[Message]
) -> dict[str, object]:
    """Handle a message that is not an answer: a cancellation, the wish for a person, or another request."""
    if wants_person(answer):
        left = [call.model_copy(update={"given": _plain(parameters)}), *rest]
        passed = [Result(tool=each.tool, outcome="passed_on", parameters=each.given, said=answer) for each in left]
        return {"calls": [], "results": passed, "messages": spoken, "quote": None}
    result = Result(tool=call.tool, outcome="cancelled", parameters=_plain(parameters), said=answer)
    found: dict[str, object] = {"calls": rest, "results": [result], "messages": spoken, "quote": None}
    # Another request goes back to the chat as a new message.
    return found if is_cancel(answer) else {**found, "messages": spoken[:1], "follow_up": answer}


def _unanswered(
    call: Call, rest: list[Call], error: Unanswered | Declined, outcome: Literal["expired", "declined", "handed_over"]
) -> dict[str, object]:
    collected = json.loads(error.collected) if error.collected else call.given
    result = Result(tool=call.tool, outcome=outcome, parameters=collected, said=error.reason)
    return {"calls": rest, "results": [result], "messages": _exchange(error), "quote": None}


def _exchange(error: Unanswered | Declined) -> list[Message]:
    return _spoken(error.question, json.loads(error.answer) if error.answer else None)


def _spoken(question: str, answer: Any) -> list[Message]:
    """Return a question and its answer as chat messages."""
    if not question:
        return []
    said = [Message(role="assistant", text=question)]
    if answer is not None:
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        said.append(Message(role="user", text=text))
    return said


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, str | int) else str(value) for name, value in parameters.items()}


def has_quote(quote: Quote | None) -> bool:
    """Return whether an action waits for a confirmation."""
    return quote is not None


def _decided(text: str) -> bool | Mapping[str, Any] | None:
    """Return a yes or a no, or None if unclear. Asking for a person or for something else counts as a no."""
    found = yes_or_no(text)
    if found is None and (wants_person(text) or tool_of(text) not in (None, "refund")):
        return {"approved": False, "reason": ELSE}
    return found


@step(writes=["calls", "results", "messages", "quote", "follow_up"], when=has_quote)
async def settle(
    calls: list[Call], quote: Quote, language: Language, now: AwareDatetime, desk: Desk, ctx: Context
) -> dict[str, object]:
    """Pay the refund if the customer confirms it."""
    call, rest = calls[0], calls[1:]
    shop = Shop(desk.shop, desk.local(now))
    text = words.say(language, "confirm", **words.facts(language, quote.facts))
    try:
        await ctx.confirm(
            text, act=shop.pay_refund, understand=_decided, rounds=desk.rounds, expires=desk.expires,
            history="messages",
        )  # fmt: skip
    except Declined as declined:
        if declined.reason != ELSE:
            return _unanswered(call, rest, declined, "declined")
        return _not_answered(call, rest, call.given, json.loads(declined.answer), _exchange(declined))
    except QuestionExpired as expired:
        return _unanswered(call, rest, expired, "expired")
    except RoundsExhausted as exhausted:
        return _unanswered(call, rest, exhausted, "handed_over")
    order, amount, reason = (quote.facts[name] for name in ("number", "amount", "reason"))
    served = await ctx.do(shop.pay_refund, order, amount, reason)
    result = Result(
        tool="refund", outcome="refused" if served.refused else "done", parameters=quote.parameters,
        facts=served.facts, said=served.refused,
    )  # fmt: skip
    said = [Message(role="assistant", text=text), Message(role="user", text=words.say(language, "yes"))]
    return {"calls": rest, "results": [result], "messages": said, "quote": None}


@route(after=gather)
def after_gather(calls: list[Call], quote: Quote | None) -> Literal["gather", "settle", None]:
    """Go to the confirmation, to the next question or call, or back to the chat."""
    if quote is not None:
        return "settle"
    return "gather" if calls else None


@route(after=settle)
def after_settle(calls: list[Call]) -> Literal["gather", None]:
    """Go to the next call, or back to the chat."""
    return "gather" if calls else None


errand: Workflow[Errand] = Workflow(
    "errand", state=Errand, steps=[values, gather, settle], routes=[after_gather, after_settle]
)
