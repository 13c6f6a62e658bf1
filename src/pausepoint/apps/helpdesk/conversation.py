"""A chat as its participants use it: the customer and operators send messages, and everybody reads one transcript.

Terminals, servers and operators' commands call these functions. Every message is stored before a function returns.

    await send(engine, "ann", "Where is A-1001?", by="ann", channel="web")
    print((await read(engine, "ann")).messages[-1].text)
    await take_over(engine, "ann", by="Ben")
    await say(engine, "ann", "Hello, I am Ben.", by="Ben")
    await hand_back(engine, "ann", by="Ben")

While an operator has taken over, the bot is silent: customers' messages only join the transcript. An open question of
the bot is withdrawn, so that no message is mistaken for its answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pausepoint import Engine, Question, Session, Status
from pausepoint.apps.helpdesk.models import MARK, Chat, Language, Message, Notice
from pausepoint.errors import QuestionChanged, QuestionClosed

REPLIED = "replied"
"""The event that carries a message to the customer. Its data name the author: the bot or an operator."""


@dataclass(frozen=True)
class Transcript:
    """What everybody sees of a chat. The text of ``question``, if there is one, is the last message.

    ``operator`` is the operator who has taken over. ``waits`` says whether the chat waits for a message.
    """

    status: Status
    messages: list[Message] = field(default_factory=list)
    question: Question | None = None
    operator: str | None = None
    language: Language = "en"
    tickets: list[int] = field(default_factory=list)
    waits: bool = False


async def send(
    engine: Engine, chat: str, text: str, *, by: str | None = None, channel: str = "", key: str | None = None,
    seen: str | None = None,
) -> bool:  # fmt: skip
    """Send a customer's message. Return False if it came too late for a question, which is asked again.

    A late message is not used. ``key`` makes the call idempotent, see `Session.send`. ``seen`` is the digest of the
    question that the customer saw when writing; empty if there was none. A message is late, too, if the helpdesk asks
    something else by now. So a repeated "yes" never answers a question that its author has not seen.
    """
    try:
        await engine.session(chat).send(text.replace(MARK, " "), by=by, channel=channel, key=key, seen=seen)
    except QuestionClosed:
        await come_back(engine, chat)
        return False
    except QuestionChanged as changed:
        # A customer who writes several messages in a row has seen nothing new. Values are confirmed later anyway.
        if seen != "" or (await engine.question(changed.question_id)).kind == "confirm":
            return False
        return await send(engine, chat, text, by=by, channel=channel, key=key, seen=changed.digest)
    return True


async def come_back(engine: Engine, chat: str) -> None:
    """Tell the chat that the customer is back. Questions that have expired meanwhile are asked again."""
    session: Session[Chat] = engine.session(chat)
    outcome = await session.outcome()  # what has expired is known then
    if outcome.status is Status.WAITING and (await session.state()).lapsed:
        await notify(engine, chat, Notice(kind="returned"))


async def read(engine: Engine, chat: str) -> Transcript:
    """Return the transcript of a chat, with the messages of a request that is still open."""
    session: Session[Chat] = engine.session(chat)
    info, state = await session.info(), await session.state()
    questions = list(await session.questions())
    said = [*state.messages, *await _unfinished(engine, questions)]
    if questions:
        said.append(Message(role="assistant", text=questions[0].next_question))
    return Transcript(
        info.status, said, questions[0] if questions else None, state.operator, state.language, state.tickets,
        waits=info.status is Status.WAITING and (bool(questions) or info.step == "intent"),
    )  # fmt: skip


async def _unfinished(engine: Engine, questions: list[Question]) -> list[Message]:
    """Return the messages that only the waiting errand knows. The chat gets them when the errand ends."""
    if not questions or questions[0].sub_chain_id is None:
        return []
    errand: Any = await engine.session(questions[0].sub_chain_id).state()
    return list(errand.messages[errand.known :])


# operators


async def take_over(engine: Engine, chat: str, *, by: str) -> None:
    """Make the bot silent. An open request of the customer ends and is passed on to the operator."""
    await notify(engine, chat, Notice(kind="take_over", by=by))
    # A question that the bot asked just before the notice arrived is still open. The second notice withdraws it.
    session: Session[Chat] = engine.session(chat)
    while (await session.outcome()).questions:
        await notify(engine, chat, Notice(kind="take_over", by=by))


async def say(engine: Engine, chat: str, text: str, *, by: str) -> None:
    """Send an operator's message. It takes the chat over if the bot was not silent."""
    session: Session[Chat] = engine.session(chat)
    if (await session.state()).operator is None:
        await take_over(engine, chat, by=by)
    await notify(engine, chat, Notice(kind="say", by=by, text=text))


async def hand_back(engine: Engine, chat: str, *, by: str) -> None:
    """Let the bot answer again, from the next message on."""
    await notify(engine, chat, Notice(kind="hand_back", by=by))


async def notify(engine: Engine, chat: str, notice: Notice, key: str | None = None) -> None:
    """Send a notice. With ``key`` it is sent once, however often this runs."""
    text = notice.sealed()
    try:
        await engine.session(chat).send(text, by=notice.by or None, channel="operator", key=key)
    except QuestionClosed:  # a question has just expired; a notice is no late answer
        await engine.session(chat).send(text, by=notice.by or None, channel="operator", key=key)
