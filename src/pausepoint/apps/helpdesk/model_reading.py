"""A language model's reading of a message: which tools it asks for, and with which values. Without one, None.

What a model says is taken as what a person would say: names that do not exist are refused and asked for again, and
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

INTENTS = """You sort the messages of a shop's customers. For every thing that the message asks for, name the tool and
the part of the message that is about it, in its own words: order_status (where an order is), change_address, refund,
appointment, hand_over (a person is wanted). What fits none of them goes into unclear, in its own words. talk is hello,
thanks, bye or cancel if that is said, else empty."""

VALUES = """You read values out of a customer's words for the tool {tool}. Today is {today}. Give each value that the
words name, as text: days as YYYY-MM-DD, times as HH:MM, order numbers such as A-1001. What is not said is null; invent
nothing."""


class Request(BaseModel):
    """One thing that a message asks for."""

    tool: ToolName
    words: str = Field(min_length=1)


class Requests(BaseModel):
    """All that a message asks for."""

    requests: list[Request] = []
    unclear: list[str] = []
    talk: str = Field("", pattern="^(hello|thanks|bye|cancel)?$")


async def read_message(ctx: Context, text: str) -> Meaning | None:
    """What a message asks for, as a model sees it."""
    found = await ask(ctx, INTENTS, {"message": text}, Requests)
    if found is None:
        return None
    calls = [Call(tool=each.tool, text=each.words) for each in found.requests]
    return Meaning(calls, found.talk, found.unclear)  # type: ignore[arg-type]


async def read_values(ctx: Context, call: Call, today: date) -> dict[str, Any] | None:
    """The values that a request names."""
    return await _values(ctx, call.tool, {"words": call.text}, today)


async def read_answer(ctx: Context, call: Call, text: str, names: list[str], today: date) -> dict[str, Any] | None:
    """The values that an answer names: what was asked for, and corrections of what was given before."""
    return await _values(ctx, call.tool, {"words": text, "asked_for": names, "known": call.given}, today)


async def _values(ctx: Context, tool: ToolName, data: dict[str, Any], today: date) -> dict[str, Any] | None:
    fields: dict[str, Any] = dict.fromkeys(MODELS[tool].model_fields, (str | None, None))
    named = create_model("Values", **fields)
    found = await ask(ctx, VALUES.format(tool=tool, today=today.isoformat()), data, named)
    return None if found is None else found.model_dump(exclude_none=True)
