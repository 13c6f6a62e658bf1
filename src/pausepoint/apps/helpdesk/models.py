"""The helpdesk's data: the settings of a chat, its messages, its requests and their results."""

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
"""How often the helpdesk asks for missing details before a person takes over. A setting can change it."""

EXPIRES = timedelta(minutes=30)
"""How long a question waits for an answer."""


class Message(BaseModel):
    """One message of the chat."""

    role: Literal["user", "assistant"]
    text: str


class Desk(BaseModel):
    """The settings of a chat. If ``now`` is set, days count from it instead of from the time of each message."""

    shop: Path
    time_zone: Annotated[str, AfterValidator(known_zone)] = "UTC"
    now: AwareDatetime | None = None
    rounds: Annotated[int, Field(ge=1, le=20)] = ROUNDS
    expires: Annotated[timedelta, Field(gt=timedelta(0))] = EXPIRES
    language: Language | None = None

    def local(self, moment: datetime) -> datetime:
        """Return a time in the shop's time zone."""
        return moment.astimezone(ZoneInfo(self.time_zone))


class Call(BaseModel):
    """A requested tool and its known parameters. ``why`` is the reason for asking again."""

    tool: ToolName
    text: str = ""
    given: dict[str, Any] = {}
    round: int = 1
    why: str = ""


class Result(BaseModel):
    """The result of a call. ``facts`` are for the reply; ``said`` is the reason if the call was not done.

    A person continues a request that was ``handed_over`` (after the last round) or ``passed_on`` (at the customer's
    request).
    """

    tool: ToolName
    outcome: Outcome
    parameters: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    said: str = ""


class Quote(BaseModel):
    """An action that waits for a confirmation. ``facts`` are shown to the customer."""

    parameters: dict[str, Any]
    facts: dict[str, Any]


class Errand(BaseModel):
    """The state of the sub-chain: one request with all of its calls.

    ``messages`` starts with the latest messages of the chat. ``follow_up`` is a request that came instead of an answer.
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
    """The state of a chat. Most fields are about the current message; ``messages`` and ``tickets`` are about all.

    ``customer`` is the customer's e-mail address, known from an order. ``last`` is the call that a correction refers
    to. ``unclear`` contains the parts of a message that the helpdesk did not understand.
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
