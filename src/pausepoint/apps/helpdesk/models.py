"""What the helpdesk keeps: the settings of a chat, its messages, what was asked of it and what came of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field

from pausepoint import Append
from pausepoint.apps.input import known_zone

Language = Literal["en", "zh"]
ToolName = Literal["order_status", "change_address", "refund", "appointment", "hand_over"]
Outcome = Literal["done", "refused", "declined", "cancelled", "expired", "handed_over", "passed_on"]

ROUNDS = 4
"""How often it asks for what a request lacks before a person takes over, unless a setting says otherwise."""

EXPIRES = timedelta(minutes=30)
"""How long it waits for an answer."""


class Message(BaseModel):
    """One thing that was said."""

    role: Literal["user", "assistant"]
    text: str


class Desk(BaseModel):
    """The settings of a chat. ``now``: count days from this moment instead of the one at which a message is read."""

    shop: Path
    time_zone: Annotated[str, AfterValidator(known_zone)] = "UTC"
    now: AwareDatetime | None = None
    rounds: Annotated[int, Field(ge=1, le=20)] = ROUNDS
    expires: Annotated[timedelta, Field(gt=timedelta(0))] = EXPIRES
    language: Language | None = None

    def local(self, moment: datetime) -> datetime:
        """A moment as clocks show it where the shop is."""
        return moment.astimezone(ZoneInfo(self.time_zone))


class Call(BaseModel):
    """A tool that somebody wants, and what is known of its parameters. ``why``: why one is asked for again."""

    tool: ToolName
    text: str = ""
    given: dict[str, Any] = {}
    round: int = 1
    why: str = ""


class Result(BaseModel):
    """What came of a call. ``facts`` are for the reply; ``said`` tells why it was not done.

    A person has to go on with what was ``handed_over``, after the last round, or ``passed_on``, at the customer's wish.
    """

    tool: ToolName
    outcome: Outcome
    parameters: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    said: str = ""


class Quote(BaseModel):
    """An act that waits for a yes: ``facts`` is what the person is told."""

    parameters: dict[str, Any]
    facts: dict[str, Any]


class Errand(BaseModel):
    """The state of the sub-chain: one request, with all that has to be done for it.

    ``messages`` begin with the end of the chat; ``follow_up`` is a request that somebody made instead of an answer.
    """

    desk: Desk
    language: Language
    now: AwareDatetime
    request: str
    calls: list[Call]
    customer: str | None = None
    entities: dict[str, Any] = {}
    messages: Annotated[list[Message], Append] = []
    results: Annotated[list[Result], Append] = []
    quote: Quote | None = None
    follow_up: str = ""


class Chat(BaseModel):
    """The state of a chat. All but ``messages`` and ``tickets`` is about the message at hand.

    ``customer`` is the address of who is served, once an order has told it; ``last`` the call that a correction would
    be about; ``unclear`` are the parts of a message that were not understood.
    """

    desk: Desk
    messages: Annotated[list[Message], Append] = []
    tickets: Annotated[list[int], Append] = []
    language: Language = "en"
    said: str = ""
    follow_up: str = ""
    now: AwareDatetime | None = None
    calls: list[Call] = []
    unclear: list[str] = []
    small_talk: Literal["", "hello", "thanks", "bye", "cancel"] = ""
    entities: dict[str, Any] = {}
    results: list[Result] = []
    last: Call | None = None
    customer: str | None = None
    ticket: int | None = None
