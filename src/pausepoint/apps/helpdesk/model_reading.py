"""Read messages with a language model: the requested tools and their values. Without a model the result is None.

The output of a model is checked like a person's words: unknown names are refused and the model is asked again, and
values go through the same checks.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from pydantic import BaseModel, Field, create_model

from pausepoint import Context
from pausepoint.apps.helpdesk.intents import Meaning
from pausepoint.apps.helpdesk.models import Call, ToolName
from pausepoint.apps.helpdesk.parameters import MODELS
from pausepoint.apps.model import ask

INTENTS = """You sort the messages of a shop's customers. For every request in the message, name the tool and quote the
part of the message that is about it: order_status (where an order is), change_address, refund, appointment, hand_over
(the customer asks for a person). Quote the parts that fit no tool in unclear. Set talk to hello, thanks, bye or cancel
if the message says so; otherwise leave it empty."""

VALUES = """You read values from a customer's words for the tool {tool}. Today is {today}. Return each value that the
words name, as text: days as YYYY-MM-DD, times as HH:MM, order numbers such as A-1001. Use null for values that are not
mentioned, and do not invent any."""


class Request(BaseModel):
    """One request in a message."""

    tool: ToolName
    words: str = Field(min_length=1)


class Requests(BaseModel):
    """All requests in a message."""

    requests: list[Request] = []
    unclear: list[str] = []
    talk: str = Field("", pattern="^(hello|thanks|bye|cancel)?$")


async def read_message(ctx: Context, text: str) -> Meaning | None:
    """Return the meaning of a message as a model reads it."""
    found = await ask(ctx, INTENTS, {"message": text}, Requests)
    if found is None:
        return None
    calls = [Call(tool=each.tool, text=each.words) for each in found.requests]
    return Meaning(calls, found.talk, found.unclear)  # type: ignore[arg-type]


async def read_values(ctx: Context, call: Call, today: date) -> dict[str, Any] | None:
    """Return the values that a request names."""
    return await _values(ctx, call.tool, {"words": call.text}, today)


async def read_answer(ctx: Context, call: Call, text: str, names: list[str], today: date) -> dict[str, Any] | None:
    """Return the values that an answer names: requested ones and corrections of earlier ones."""
    return await _values(ctx, call.tool, {"words": text, "asked_for": names, "known": call.given}, today)


async def _values(ctx: Context, tool: ToolName, data: dict[str, Any], today: date) -> dict[str, Any] | None:
    fields: dict[str, Any] = dict.fromkeys(MODELS[tool].model_fields, (str | None, None))
    named = create_model("Values", **fields)
    found = await ask(ctx, VALUES.format(tool=tool, today=today.isoformat()), data, named)
    return None if found is None else found.model_dump(exclude_none=True)
