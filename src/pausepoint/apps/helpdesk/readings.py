"""Read what a customer says: a new message, an answer to a question, or a decision.

A model reads first, if there is one. A clear yes, no, cancel or goodbye needs no model. The rules also read everything
that a model fails to read.
"""

from __future__ import annotations

import re
from datetime import date

from pausepoint import Context
from pausepoint.apps.helpdesk import agent
from pausepoint.apps.helpdesk.decisions import clauses, has_condition, is_cancel, without_goodbye, yes_or_no
from pausepoint.apps.helpdesk.extraction import normal, orders
from pausepoint.apps.helpdesk.intents import Meaning, is_negated, meaning, tool_of, wants_person
from pausepoint.apps.helpdesk.models import Call, Message, Notice, Reading
from pausepoint.apps.helpdesk.parameters import answered, found_in, is_correction
from pausepoint.apps.helpdesk.shop import CHANGES, Shop


async def read_message(ctx: Context, text: str, history: list[Message], shop: Shop) -> Meaning:
    """Return what a new message asks for."""
    return await agent.read_message(ctx, text, history, shop) or meaning(text)


async def read_answer(
    ctx: Context, call: Call, names: list[str], text: str, history: list[Message], shop: Shop
) -> Reading:
    """Return what a message means while the values ``names`` of a call are asked for."""
    if Notice.read(text) is not None:
        return Reading(verdict="operator", said=text)
    said, leaves = without_goodbye(text)
    if is_cancel(text) or (leaves and (not said or yes_or_no(said) is False)):
        return Reading(verdict="cancel", said=text, leaves=leaves)
    found = await agent.read_answer(ctx, call, names, text, history, shop)
    return found or answer_by_rules(call, names, text, shop.now.date())


async def read_decision(
    ctx: Context, call: Call, question: str, text: str, history: list[Message], shop: Shop
) -> Reading:
    """Return what a message means while a confirmation is open."""
    if Notice.read(text) is not None:
        return Reading(verdict="operator", said=text)
    by_rules = decision_by_rules(call, text, shop.now.date())
    if by_rules.verdict in ("yes", "no", "cancel") and not by_rules.calls:
        return by_rules
    return await agent.read_decision(ctx, call, question, text, history, shop) or by_rules


def answer_by_rules(call: Call, names: list[str], text: str, today: date) -> Reading:
    """Return what a message means while the values ``names`` are asked for, by rules."""
    if wants_person(text):
        return Reading(verdict="person", said=text)
    if _asks_for_another(call, text, names, today):
        return Reading(verdict="other", said=text, calls=_requests(text, today))
    return Reading(verdict="answer", values=answered(call.tool, text, names, today), said=text)


def decision_by_rules(call: Call, text: str, today: date) -> Reading:
    """Return what a message means while a confirmation is open, by rules."""
    said, leaves = without_goodbye(text)
    if leaves and not said:
        return Reading(verdict="cancel", said=text, leaves=True)
    decided = yes_or_no(_without_values(call, said), call.tool)
    values = _corrected(call, text, today)
    if decided is False or has_condition(said):
        values.pop("reason", None)  # "no, I changed my mind" refuses; the question has not even named the reason
    if decided is not None and values:
        return Reading(verdict="answer", values=values, said=text)
    if decided and _asks_for_more(call, text):
        decided = None
    if decided is not None:
        return Reading(verdict="yes" if decided else "no", said=text, leaves=leaves)
    if (both := _decision_and_request(call, normal(text), today)) is not None:
        return both.model_copy(update={"said": text})
    if wants_person(text):
        return Reading(verdict="person", said=text)
    if is_negated(text):
        return Reading(verdict="no", said=text)
    if call.tool == "cancel_order" and _means_this(call, text, today):
        return Reading(verdict="yes", said=text)  # "cancel it" answers "Shall I cancel …?"
    if tool_of(text) not in (None, call.tool) and not _is_half_decided(text):
        return Reading(verdict="other", said=text, calls=_requests(text, today))
    return Reading(verdict="answer" if values else "unclear", values=values, said=text)


def _is_half_decided(text: str) -> bool:
    """Return whether a message begins with a yes or a no and goes on about the parcel: "yes, once it has arrived"."""
    said = clauses(text)
    begins = bool(said) and yes_or_no(said[0]) is not None
    return begins and tool_of(text) == "order_status" and "?" not in normal(text) and not orders(normal(text))


def _without_values(call: Call, said: str) -> str:
    """Return a message without the values that are confirmed, so that naming them again adds nothing."""
    for value in sorted(map(str, call.given.values()), key=len, reverse=True):
        said = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "it", said, flags=re.IGNORECASE)
    return said


def _asks_for_more(call: Call, text: str) -> bool:
    """Return whether a yes also asks for another change, or for all the money while a part is confirmed."""
    tool = tool_of(text)
    if tool in (*CHANGES, "hand_over") and tool != call.tool and (call.tool, tool) != ("cancel_order", "refund"):
        return True
    return "amount" in call.given and _ALL_MONEY.search(text) is not None


_ALL_MONEY = re.compile(r"\b(?:full|whole|entire|everything|all (?:of|the|my))\b|全", re.IGNORECASE)


def _decision_and_request(call: Call, said: str, today: date) -> Reading | None:
    """Return the reading of a message such as "yes, and where is B-2001?"."""
    first, _, others = said.partition("," if "," in said else " and ")
    if re.search(r"\bgo ahead$", first, re.IGNORECASE):
        return None  # "go ahead and …" is one request
    decided, calls = yes_or_no(first), _requests(others, today)
    if (
        decided is None
        or not calls
        or (decided and has_condition(others))
        or any(each.tool == call.tool for each in calls)
    ):
        return None
    return Reading(verdict="yes" if decided else "no", calls=calls)


def _corrected(call: Call, text: str, today: date) -> dict[str, str]:
    """Return the values in a message that differ from those to be written, as in "no, the street is …"."""
    found = answered(call.tool, text, [], today) if is_correction(text) else found_in(call.tool, text, today)
    return {name: value for name, value in found.items() if str(call.given.get(name)) != str(value)}


def _means_this(call: Call, text: str, today: date) -> bool:
    """Return whether a message asks for the same cancellation once more."""
    asks = tool_of(text) == "cancel_order" or re.search(r"\bcancel (?:it|that|this)\b|取消它", text, re.IGNORECASE)
    return bool(asks) and found_in(call.tool, text, today).get("order") in (None, call.given.get("order"))


def _requests(text: str, today: date) -> list[Call]:
    calls = meaning(text).calls
    return [call.model_copy(update={"given": found_in(call.tool, call.text, today) | call.given}) for call in calls]


def _asks_for_another(call: Call, text: str, names: list[str], today: date) -> bool:
    """Return whether a message asks for another tool instead of answering, such as "where is B-2001?"."""
    tool, said = tool_of(text), normal(text)
    if tool in (None, call.tool):
        return False
    if tool in CHANGES:
        return True
    given = set(answered(call.tool, text, [], today)) & set(names)
    if given:
        return given == {"order"} and "?" in said
    # "It arrived smashed" contains a word of another tool, but answers the question for the reason.
    return tool != "order_status" or len(names) > 1 or "?" in said or bool(orders(said))
