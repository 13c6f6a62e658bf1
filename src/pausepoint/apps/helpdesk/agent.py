"""One agent reads the chat with a language model: it sees the whole conversation and calls the shop's tools.

A call of a tool that changes the shop changes nothing. It is a request like one that the rules find: missing values are
asked for, the customer sees what will be written, and only a yes of the customer lets it run. The agent's yes counts
only if the customer's message has no word of refusal or condition. If the model fails or is too slow, the result is
None, and the rules read the message. The event `MODEL_FAILED` has the reason, for the people who run the shop. After an
outage, the rules read all messages of the next minute, so that not every customer waits for a model that does not
answer.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Literal, get_origin

from pydantic import BaseModel, Field

from pausepoint import Context, Retry
from pausepoint.apps.helpdesk.decisions import has_reservation
from pausepoint.apps.helpdesk.intents import Meaning
from pausepoint.apps.helpdesk.models import Call, Message, Reading, ToolName
from pausepoint.apps.helpdesk.parameters import MODELS, StatusOf
from pausepoint.apps.helpdesk.shop import Served, Shop
from pausepoint.apps.model import ModelUnavailable, SettingsRefused, ask, settings

MODEL_FAILED = "model_failed"
"""The event of a message that the model could not read."""

PATIENCE = 20.0
"""The seconds that a customer waits for the model. Then the rules read the message."""

REST = 60.0
"""The seconds after an outage in which the model is not asked."""

OUTAGES = (TimeoutError, ModelUnavailable, SettingsRefused)
"""The errors that the next message would have, too."""

_failed_at: dict[str, float] = {}
"""When each model had an outage, for this process."""

TURNS = 8
LONGEST = 40_000
"""The number of characters of the conversation that the model sees. The oldest messages are left out first."""

ONCE = Retry(attempts=1)

INSTRUCTIONS = """You read the newest message of a customer in the chat of a shop. The data have the whole chat, the
message, today's date, and the question that the shop has asked, if one is open.
Call the tool of every request in the message, once for each order. Pass only values that the customer has named, in
their own words or as the tool describes them: days as YYYY-MM-DD, times as HH:MM. Leave out values that are not known;
the shop asks for them. Do not call a tool for something that the customer does not want or has only asked about.
Tools that change something do not change it yet: the shop shows the values and asks for a confirmation.
If a question is open and the message answers or corrects it, call the tool of the open request again with the new
values. Call drop_request if the customer no longer wants the open request.
If a confirmation is open, call confirm only for a clear agreement, decline for a refusal.
Call hand_over if the customer asks for a person, complains, or needs something that no tool does.
Then answer with a short reply to the customer, in the language of the customer's message. Say only what the data or the
tools tell. Never say that something was changed, paid or booked: the shop says that itself."""

Tools = dict[str, Callable[..., Awaitable[str]]]


class Reply(BaseModel):
    """What the agent says to the customer."""

    reply: str = Field("", max_length=2_000)


class Agent:
    """One reading of one message."""

    def __init__(self, ctx: Context, shop: Shop) -> None:
        self.ctx = ctx
        self.shop = shop
        self.calls: list[Call] = []
        self.signs: set[str] = set()
        self.facts: list[str] = []

    async def read(self, data: dict[str, Any], confirming: bool) -> Reply | None:
        """Let the model read the message, and return its reply. The calls are in ``calls`` and ``signs`` then."""
        model = ""
        try:
            if (found := settings()) is None:
                return None
            model = found.where
            # The decision is recorded: a step that runs again reads the message in the same way.
            if await self.ctx.do(_rests, model, data["message"]):
                return None
            await asyncio.to_thread(import_module, "pausepoint.apps.model.run")  # takes seconds, once in a process
            async with asyncio.timeout(PATIENCE):
                tools = self._tools(confirming)
                return await ask(self.ctx, INSTRUCTIONS, data, Reply, tools=tools, turns=TURNS, retry=ONCE)
        except Exception as error:  # whatever it is, the customer gets an answer by the rules
            if isinstance(error, OUTAGES):
                _failed_at[model] = time.monotonic()
            self.ctx.emit(MODEL_FAILED, f"{type(error).__name__}: {error}"[:500])
            return None

    def _tools(self, confirming: bool) -> Tools:
        found: Tools = {name: self._request(name, model) for name, model in MODELS.items()}
        found["look_up_order"] = self._look_up
        for name, about in (
            ("hand_over", "Pass the chat on to a person."), ("goodbye", "The customer says goodbye."),
            ("drop_request", "The customer no longer wants the open request."),
            *((("confirm", "The customer agrees to the open confirmation."),
               ("decline", "The customer refuses the open confirmation.")) if confirming else ()),
        ):  # fmt: skip
            found[name] = self._sign(name, about)
        return found

    def _request(self, name: ToolName, model: type[BaseModel]) -> Callable[..., Awaitable[str]]:
        """Return a tool with the parameters of the shop. All are optional: the shop asks for missing ones."""

        async def request(**values: Any) -> str:
            given = {key: value for key, value in values.items() if value not in (None, "")}
            self.calls.append(Call(tool=name, given=given))
            return "Noted. The shop asks the customer for what is missing, and for a confirmation of every change."

        kinds: dict[str, Any] = {
            key: field.annotation if get_origin(field.annotation) is Literal else str
            for key, field in model.model_fields.items()
        }
        return _described(request, name, _PURPOSES[name], {key: kind | None for key, kind in kinds.items()})

    async def _look_up(self, order: str) -> str:
        """Return the facts of an order, to answer a question about it. An order number is a letter and four digits."""
        try:
            asked = StatusOf(order=order)
        except ValueError:
            return "That is not an order number."
        served: Served = await self.ctx.do(self.shop.order_status, asked)
        self.facts.append(str(served.facts))
        return "There is no such order." if served.refused else str(served.facts)

    def _sign(self, name: str, about: str) -> Callable[..., Awaitable[str]]:
        async def sign() -> str:
            self.signs.add(name)
            return "Noted."

        return _described(sign, name, about, {})


def _rests(model: str, message: str) -> bool:
    """Return whether the model has just had an outage. The message makes the operation one of its own."""
    return time.monotonic() - _failed_at.get(model, -REST) < REST


_PURPOSES: dict[ToolName, str] = {
    "order_status": "The customer wants to know where an order is, or what was refunded.",
    "change_address": "The customer wants an order to go to another address.",
    "refund": "The customer wants money back, or to return something. Without an amount, everything is refunded.",
    "cancel_order": "The customer wants to cancel an order.",
    "appointment": "The customer wants an appointment: repair, advice or pickup.",
}


def _described(
    tool: Callable[..., Awaitable[str]], name: str, about: str, kinds: dict[str, Any]
) -> Callable[..., Awaitable[str]]:
    """Give a tool the name, the description and the parameters that the model sees."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    listed = [inspect.Parameter(key, keyword, default=None, annotation=kind) for key, kind in kinds.items()]
    tool.__name__, tool.__doc__ = name, about
    tool.__annotations__ = {**kinds, "return": str}
    tool.__signature__ = inspect.Signature(listed, return_annotation=str)  # type: ignore[attr-defined]
    return tool


# the three places where a customer speaks


async def read_message(ctx: Context, text: str, history: list[Message], shop: Shop) -> Meaning | None:
    """Return what a new message asks for, or None if the rules have to read it."""
    agent = Agent(ctx, shop)
    data = _data(text, history, shop)
    said = await agent.read(data, confirming=False)
    if said is None:
        return None
    calls = list(agent.calls)
    if "hand_over" in agent.signs:
        calls.append(Call(tool="hand_over", text=text))
    reply = said.reply if not calls and _is_covered(said.reply, f"{data} {agent.facts}") else ""
    talk: Literal["", "bye"] = "bye" if "goodbye" in agent.signs else ""
    return Meaning(calls=calls, talk=talk, reply=reply, unclear=[] if calls or talk or reply else [text])


async def read_answer(
    ctx: Context, call: Call, names: list[str], text: str, history: list[Message], shop: Shop
) -> Reading | None:
    """Return what a message means while values of a call are asked for."""
    agent = Agent(ctx, shop)
    if await agent.read(_data(text, history, shop, call, asked_for=names), confirming=False) is None:
        return None
    return _turned(agent, call, text) or Reading(verdict="answer", values={}, said=text)


async def read_decision(
    ctx: Context, call: Call, question: str, text: str, history: list[Message], shop: Shop
) -> Reading | None:
    """Return what a message means while a confirmation is open."""
    agent = Agent(ctx, shop)
    if await agent.read(_data(text, history, shop, call, confirmation=question), confirming=True) is None:
        return None
    if "decline" in agent.signs:
        return Reading(verdict="no", calls=_others(agent, call), said=text, leaves="goodbye" in agent.signs)
    if (found := _turned(agent, call, text)) is not None and (found.verdict != "other" or "confirm" not in agent.signs):
        return found
    agreed = "confirm" in agent.signs and not has_reservation(text)
    if not agreed:
        return Reading(verdict="unclear", said=text)
    return Reading(verdict="yes", calls=_others(agent, call), said=text, leaves="goodbye" in agent.signs)


def _turned(agent: Agent, call: Call, text: str) -> Reading | None:
    """Return a reading that is no decision: new values, another request, the end of this one, a person."""
    if "hand_over" in agent.signs:
        return Reading(verdict="person", said=text)
    if "drop_request" in agent.signs or (agent.signs == {"goodbye"} and not agent.calls):
        return Reading(verdict="cancel", said=text, leaves="goodbye" in agent.signs)
    values = {
        name: value for each in agent.calls if _is_same(each, call) for name, value in each.given.items()
        if str(call.given.get(name)) != str(value)
    }  # fmt: skip
    others = _others(agent, call)
    if values:
        return Reading(verdict="answer", values=values, calls=others, said=text)
    return Reading(verdict="other", calls=others, said=text) if others else None


def _is_same(each: Call, call: Call) -> bool:
    """Return whether a call is about the open request. Another order is another request, unless it was not known."""
    order, known = each.given.get("order"), call.given.get("order")
    return each.tool == call.tool and (order is None or known is None or str(order) == str(known))


def _others(agent: Agent, call: Call) -> list[Call]:
    return [each for each in agent.calls if not _is_same(each, call)]


def _data(text: str, history: list[Message], shop: Shop, call: Call | None = None, **question: Any) -> dict[str, Any]:
    chat = [{"author": each.role, "text": each.text} for each in history]
    while len(chat) > 1 and sum(len(each["text"]) for each in chat) > LONGEST:
        del chat[0]
    found: dict[str, Any] = {"chat": chat, "message": text[:LONGEST], "today": shop.now.date().isoformat()}
    if call is not None:
        found["open_question"] = {"tool": call.tool, "known": call.given, **question}
    return found


def _is_covered(reply: str, known: str) -> bool:
    """Return whether every number of a reply was in the data, so that no figure is invented."""
    return all(number in known for number in re.findall(r"\d+", reply))
