"""What operators see: the chats that wait for a person, and the question about each of them in the inbox.

A chat waits for a person if the bot has opened a ticket, or if the customer has written to an operator. `attend` then
asks a person with a session of the workflow `person`, apart from the chat, so that no message of the customer is taken
for the answer. The answer is sent to the chat, and takes it over even if the bot has just asked something. If an
operator deals with the chat in another way, the question is withdrawn.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal, cast

from pydantic import BaseModel, Field

from pausepoint import Context, Engine, Status, Workflow, step
from pausepoint.apps.helpdesk.conversation import notify
from pausepoint.apps.helpdesk.errands import errand
from pausepoint.apps.helpdesk.models import Chat, Message, Notice
from pausepoint.apps.helpdesk.workflow import helpdesk
from pausepoint.errors import PausepointError, SessionEnded, UnknownSession
from pausepoint.model import SessionInfo

ENDED = (Status.COMPLETED, Status.CANCELLED)
SHOWN = 20
"""How many messages of the chat the question shows."""

LONGEST = 100
"""The length of a chat's id that fits into another id."""

PACE = 0.2
"""Seconds in which changes of a chat are collected."""

OURSELVES = "helpdesk"
"""The channel and the name by which a question is withdrawn."""

AUTHORS = {"user": "customer", "assistant": "bot", "operator": "operator"}


@dataclass(frozen=True)
class Case:
    """One chat, as operators see it. ``ticket`` is the open ticket. ``waits``: for a person."""

    chat: str
    status: Status
    customer: str | None
    operator: str | None
    ticket: int | None
    waits: bool
    last: str
    updated_at: datetime | None

    def document(self) -> dict[str, Any]:
        """Return the case for ``--json``."""
        return {
            "chat": self.chat, "status": self.status.value, "customer": self.customer, "operator": self.operator,
            "ticket": self.ticket, "waits_for_person": self.waits, "last_message": self.last,
            "updated_at": None if self.updated_at is None else self.updated_at.isoformat(),
        }  # fmt: skip


def open_ticket(chat: Chat) -> int | None:
    """Return the newest ticket that no operator has dealt with."""
    found = [each.ticket for each in chat.messages[chat.attended :] if each.ticket is not None]
    return found[-1] if found else None


def waits_for_person(chat: Chat) -> bool:
    """Return whether an operator must do something: there is a ticket, or the customer has written to an operator."""
    written = any(each.role == "user" for each in chat.messages[chat.attended :])
    return open_ticket(chat) is not None or (chat.operator is not None and written)


async def case_of(engine: Engine, info: SessionInfo) -> Case:
    """Return a chat as operators see it."""
    chat = await state_of(engine, info.session_id)
    said = [each.text for each in chat.messages if each.role == "user"]
    return Case(
        info.session_id, info.status, chat.customer or info.owner, chat.operator, open_ticket(chat),
        waits_for_person(chat), said[-1] if said else "", info.updated_at,
    )  # fmt: skip


async def state_of(engine: Engine, chat: str) -> Chat:
    """Return the state of a chat."""
    found: Any = await engine.session(chat).state()
    return cast(Chat, found)


async def cases(engine: Engine, everything: bool = False) -> list[Case]:
    """Return the chats that wait for a person or that an operator has, the longest waiting first.

    ``everything``: all chats, with those that have ended.
    """
    found = []
    for info in await engine.sessions(workflow=helpdesk.name, level="root"):
        case = await case_of(engine, info)
        if everything or (info.status not in ENDED and (case.waits or case.operator is not None)):
            found.append(case)
    return sorted(found, key=lambda case: (not case.waits, case.updated_at or datetime.min))


# the question in the inbox


class Answer(BaseModel):
    """An operator's answer to the question about a chat."""

    reply: str = Field("", max_length=4_000, description="Your message to the customer. Empty: no message.")
    then: Literal["hand back to the bot", "keep the chat"] = Field(
        "hand back to the bot", description="Who answers the customer's next message: the bot, or you."
    )


class Person(BaseModel):
    """The state of a question to a person about a chat. ``store`` is the store that has the chat.

    ``seen`` is how many messages the chat had when the question was asked.
    """

    store: str
    chat: str
    customer: str | None = None
    ticket: int | None = None
    conversation: list[Message] = []
    seen: int = 0
    answer: Answer | None = None
    delivered: bool = False


@step(writes="answer")
async def ask(chat: str, customer: str | None, ticket: int | None, conversation: list[Message], ctx: Context) -> Answer:
    """Ask a person what the customer shall be told."""
    said = next((each.text for each in reversed(conversation) if each.role == "user"), "")
    about = f"Ticket {ticket}" if ticket is not None else "A message for you"
    lines = [f"{each.by or AUTHORS[each.role]}: {each.text}" for each in reversed(conversation)]  # the newest first
    question = f"{about} from {customer or chat}: “{said[:300]}” What do you reply?"
    return await ctx.ask(question, Answer, payload="\n".join(lines), expires=None)


@step(writes="delivered")
async def deliver(store: str, chat: str, seen: int, answer: Answer, ctx: Context) -> bool:
    """Send the answer to the chat. False means that the chat has ended meanwhile."""
    return await ctx.do(_deliver, store, ctx.session_id, chat, seen, answer)


async def _deliver(store: str, session_id: str, chat: str, seen: int, answer: Answer) -> bool:
    async with Engine(store, create=False, drives="none", signals=False) as engine:
        by = await _operator(engine, session_id)
        if by is None:
            return True
        notices = [Notice(kind="say" if answer.reply else "take_over", by=by, text=answer.reply, seen=seen)]
        notices += [Notice(kind="hand_back", by=by, seen=seen)] if answer.then == "hand back to the bot" else []
        try:
            for notice in notices:
                await notify(engine, chat, notice, f"{session_id}-{notice.kind}")
        except SessionEnded:
            return False
    return True


async def _operator(engine: Engine, session_id: str) -> str | None:
    """Return the name of the person who has answered a question; None if it was withdrawn."""
    found = [
        each.receipt for each in await engine.session(session_id).questions(status=None) if each.receipt is not None
    ]
    return None if found[-1].channel == OURSELVES else found[-1].by or "operator"


person: Workflow[Person] = Workflow("person", state=Person, steps=[ask, deliver])


async def attend(engine: Engine, chat: str) -> bool:
    """Ask a person about a chat that waits for one, and withdraw questions that are no longer needed.

    Return True if a question of the bot was withdrawn: the chat takes another turn then.
    """
    info, state = await engine.session(chat).info(), await state_of(engine, chat)
    if info.status in ENDED:
        return False  # a person may still read the question, and write to the customer
    prefix = f"person-{chat if len(chat) < LONGEST else sha256(chat.encode()).hexdigest()}-"
    wanted = f"{prefix}{state.attended}" if waits_for_person(state) else ""
    for question in await engine.questions(workflow=person.name):
        if question.session_id.rpartition("-")[0] == prefix[:-1] and question.session_id != wanted:
            with suppress(PausepointError):  # an operator has answered it just now, and the first answer counts
                await engine.answer(question.id, {}, by=OURSELVES, channel=OURSELVES)
    if not wanted:
        return False
    try:
        is_answered = (await engine.session(wanted).info()).status is Status.COMPLETED
        return is_answered and await _let_through(engine, chat, wanted)
    except UnknownSession:
        place = (await engine.health()).store.place
        session = await engine.start(
            person, session_id=wanted, store=str(place), chat=chat, customer=state.customer or info.owner,
            ticket=open_ticket(state), conversation=state.messages[-SHOWN:],
            seen=len(state.messages),
        )  # fmt: skip
        await session.outcome()
        return False


async def _let_through(engine: Engine, chat: str, session_id: str) -> bool:
    """Withdraw the question that the bot asked while a person's answer was on its way. The answer waits behind it."""
    questions, by = await engine.session(chat).questions(), await _operator(engine, session_id)
    if not questions or by is None:
        return False
    await notify(engine, chat, Notice(kind="take_over", by=by), f"{session_id}-{questions[0].id}")
    return True


async def attend_all(engine: Engine) -> None:
    """Attend all chats that change, until this is cancelled."""
    changed: set[str] = set()
    news = asyncio.Event()

    async def follow() -> None:
        async for change in engine.changes(None, follow=True, types=()):
            changed.update(
                [change.session_id] if not change.reset
                else [info.session_id for info in await engine.sessions(workflow=helpdesk.name, level="root")]
            )  # fmt: skip
            news.set()

    async def work() -> None:
        while True:
            await news.wait()
            await asyncio.sleep(PACE)
            news.clear()
            for session_id in [changed.pop() for _ in range(len(changed))]:
                with suppress(PausepointError):  # it was removed, or changes again
                    if (chat := await _chat_of(engine, session_id)) is not None:
                        await attend(engine, chat)

    await asyncio.gather(follow(), work())


async def _chat_of(engine: Engine, session_id: str) -> str | None:
    """Return the chat that a session is, or that it belongs to: an errand, or a question to a person."""
    info = await engine.session(session_id).info()
    if info.workflow == person.name:
        asked: Any = await engine.session(session_id).state()
        return str(asked.chat)
    return {helpdesk.name: session_id, errand.name: info.parent_id}.get(info.workflow)


WORKFLOWS = (helpdesk, errand, person)
"""All workflows of the helpdesk."""
