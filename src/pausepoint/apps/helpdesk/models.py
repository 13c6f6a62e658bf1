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
ToolName = Literal["order_status", "change_address", "refund", "cancel_order", "appointment", "hand_over"]
SmallTalk = Literal["", "hello", "thanks", "bye", "cancel", "unwanted"]
Outcome = Literal["done", "refused", "declined", "cancelled", "expired", "handed_over", "passed_on"]

ROUNDS = 4
"""How often the helpdesk asks for missing details before a person takes over. A setting can change it."""

EXPIRES = timedelta(minutes=30)
"""How long a question waits for an answer."""


MARK = "\x1f"
"""The first character of a `Notice`. It is removed from customers' messages, so that no customer can write a notice."""


class Message(BaseModel):
    """One message of the chat. The user is the customer, the assistant is the bot; ``by`` names the operator.

    ``ticket`` is the number of the ticket that the bot has opened with this message.
    """

    role: Literal["user", "assistant", "operator"]
    text: str
    by: str = ""
    ticket: int | None = None


class Notice(BaseModel):
    """A message to a chat that the customer did not write. `sealed` makes it a text that the chat receives.

    An operator takes over, says something or hands back. ``returned`` means that the customer is back, and the helpdesk
    asks again what expired meanwhile. ``seen`` is how many messages the operator has read; None means all of them.
    """

    kind: Literal["take_over", "say", "hand_back", "returned"]
    by: str = ""
    text: str = ""
    seen: int | None = None

    def sealed(self) -> str:
        """Return the notice as a text."""
        return MARK + self.model_dump_json()

    @classmethod
    def read(cls, text: str) -> Notice | None:
        """Return the notice in a text, or None if the text is a customer's message."""
        return cls.model_validate_json(text[1:]) if text.startswith(MARK) else None


class Desk(BaseModel):
    """The settings of a chat. If ``now`` is set, days count from it instead of from the time of each message.

    ``customer`` is the e-mail address of a customer who is signed in. Orders of other customers do not exist for this
    chat, and it does not end with a goodbye.
    """

    shop: Path
    customer: str | None = None
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
    """An action that waits for a confirmation. ``parameters`` will be written; ``facts`` are shown to the customer."""

    parameters: dict[str, Any]
    facts: dict[str, Any]
    round: int = 1


class Reading(BaseModel):
    """What a message means while a question about a request is open.

    An ``answer`` has values: those asked for, or corrections. ``calls`` are further requests in the same message.
    ``other`` means that the message is only a further request, ``operator`` that it is a `Notice`. ``form`` means that
    it was no message: a form or a button answered the question. ``leaves`` means that the customer says goodbye.
    """

    verdict: Literal["answer", "yes", "no", "cancel", "person", "other", "unclear", "operator"]
    values: dict[str, Any] = {}
    calls: list[Call] = []
    said: str = ""
    form: bool = False
    leaves: bool = False


class Errand(BaseModel):
    """The state of the sub-chain: one request with all of its calls.

    ``messages`` starts with the latest messages of the chat; ``known`` is their number. ``told`` is the number of
    results that the customer knows already. ``lapsed`` are the calls that wait for the customer's return, because a
    question expired. ``follow_up`` is a notice that came instead of an answer. ``leaves`` means that the customer has
    said goodbye.
    """

    desk: Desk
    language: Language
    now: AwareDatetime
    request: str
    calls: list[Call]
    customer: str | None = None
    entities: dict[str, Any] = {}
    messages: Annotated[list[Message], Append] = []
    known: int = 0
    results: Annotated[list[Result], Append] = []
    told: int = 0
    quote: Quote | None = None
    lapsed: list[Call] = []
    follow_up: str = ""
    leaves: bool = False


class Chat(BaseModel):
    """The state of a chat. Most fields are about the current message; ``messages`` and ``tickets`` are about all.

    ``customer`` is the customer's e-mail address, known from an order. ``last`` is the call that a correction refers
    to. ``unclear`` contains the parts of a message that the helpdesk did not understand. ``operator`` is the operator
    who has taken over; the bot is silent meanwhile. ``quiet`` means that the current message needs no reply of the bot.
    ``attended`` is how many of the messages an operator has dealt with.
    ``told`` and ``lapsed`` are those of the last errand. ``puzzled`` is the number of messages in a row that the
    helpdesk did not understand. ``answer`` is what a model says about the current message.
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
    small_talk: SmallTalk = ""
    entities: dict[str, Any] = {}
    results: list[Result] = []
    last: Call | None = None
    customer: str | None = None
    ticket: int | None = None
    operator: str | None = None
    attended: int = 0
    quiet: bool = False
    told: int = 0
    lapsed: list[Call] = []
    puzzled: int = 0
    answer: str = ""
