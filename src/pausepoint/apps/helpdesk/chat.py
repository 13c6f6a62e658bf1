"""The customer's side of a chat: send messages and show the replies. A terminal is one channel.

No engine is open while a person types. The chat waits in the store, and other channels can send to it meanwhile.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import textwrap
import unicodedata
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import click

from pausepoint import Engine, Question, Session, Status
from pausepoint.apps.endings import DONE, FAILED, INTERRUPTED, PERSON, Ending
from pausepoint.apps.helpdesk import words
from pausepoint.apps.helpdesk.conversation import REPLIED, come_back, read, send
from pausepoint.apps.helpdesk.models import Chat, Desk, Language, Message
from pausepoint.apps.helpdesk.operators import WORKFLOWS, attend
from pausepoint.apps.helpdesk.shop import open_shop
from pausepoint.apps.helpdesk.workflow import helpdesk, intent
from pausepoint.apps.input import BadInput
from pausepoint.cli import Start
from pausepoint.errors import AlreadyRunning, UnknownSession

SAID = ("message.received", "question.answered", "answer.refused")
"""The events that a customer's message causes, one for each message."""

PROMPT = "> "
PATIENCE = 0.3
"""The seconds after which a progress line appears."""

_WORD = re.compile(r"[^\s\u2e80-\uffef]+\s*|\s+|[\u2e80-\uffef]")

Sitting = tuple[Engine, Session[Chat]]


@dataclass
class Stand:
    """The situation of a chat after a turn."""

    status: Status
    replies: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    language: Language = "en"
    trouble: str = ""
    late: bool = False
    step: str | None = None
    operator: str | None = None
    ticket: int | None = None

    @property
    def waits(self) -> bool:
        """Whether the chat waits for the customer. An interrupted errand that needs a resume does not count."""
        return self.status is Status.WAITING and (bool(self.questions) or self.step == intent.name)

    @property
    def ended(self) -> bool:
        """Whether the chat accepts no more messages."""
        return self.status in (Status.COMPLETED, Status.CANCELLED)

    @property
    def is_with_person(self) -> bool:
        """Whether the bot is silent, and an operator has not answered yet."""
        return self.operator is not None and not self.replies

    @property
    def lines(self) -> list[str]:
        """The lines to show to the customer."""
        person = [words.say(self.language, "person")] if self.is_with_person else []
        late = [words.say(self.language, "late")] if self.late else []
        trouble = [words.say(self.language, "trouble")] if self.status is Status.FAILED else []
        return [*late, *self.replies, *trouble, *person, *(each.next_question for each in self.questions)]


class Talk:
    """One chat, from one channel."""

    def __init__(self, start: Start, session_id: str, desk: Desk | None, by: str | None, channel: str) -> None:
        self.start = start
        self.session_id = session_id
        self.desk = desk
        self.by = by
        self.channel = channel
        self.cursor = ""
        self.former: list[Message] = []  # what was said since the customer's last message, if that was earlier

    @property
    def command(self) -> str:
        """The command that continues the chat."""
        return self.start.command("--session-id", self.session_id)

    @asynccontextmanager
    async def sitting(self) -> AsyncIterator[Sitting]:
        """Open the store and this chat. Create the chat if the id is new."""
        async with Engine(self.start.store, workflows=WORKFLOWS) as engine:
            yield engine, await self._session(engine)

    async def _session(self, engine: Engine) -> Session[Chat]:
        try:
            info = await engine.session(self.session_id).info()
        except UnknownSession:
            if self.desk is None:
                raise
            open_shop(self.desk.shop)
            return await engine.start(helpdesk, session_id=self.session_id, desk=self.desk, by=self.by)
        if info.workflow != helpdesk.name:
            raise BadInput(
                f"--session-id: {self.session_id!r} is not a chat but a session of workflow {info.workflow}. Name a"
                " chat, or a new id."
            )
        session: Session[Chat] = engine.session(self.session_id)
        if not self.cursor:
            self.former = await _unseen(engine, self.session_id)
            await self._replies(session)
        idle = info.status is Status.WAITING and info.step != intent.name and not await session.questions()
        if idle or info.status in (Status.CREATED, Status.READY, Status.FAILED):
            with suppress(AlreadyRunning):  # another channel is driving it
                await session.resume(by=self.by)  # also resumes interrupted or failed errands
        return session

    async def _replies(self, session: Session[Chat]) -> list[str]:
        """Return the replies since the last call."""
        found = []
        async for event in session.events(self.cursor):
            self.cursor = event.cursor
            if event.event_type == REPLIED:
                found.append(_named(event.data.get("by"), event.summary))
        return found

    async def turn(self, sitting: Sitting, text: str | None = None, seen: str | None = None) -> Stand:
        """Send a message, if there is one, and wait until the helpdesk has finished its turn.

        ``seen`` is the digest of the question that the customer saw; empty if there was none.
        """
        engine, session = sitting
        late = False
        if text is not None:
            late = not await send(engine, session.id, text, by=self.by, channel=self.channel, seen=seen)
        outcome = await session.outcome()
        if await attend(engine, session.id):
            outcome = await session.outcome()
        stand = Stand(
            outcome.status, late=late, questions=list(outcome.questions), language=outcome.state.language,
            step=outcome.step, operator=outcome.state.operator, ticket=outcome.state.ticket,
        )  # fmt: skip
        stand.replies = await self._replies(session)
        if outcome.failure is not None:
            stand.trouble = f"{outcome.failure.step} failed: {outcome.failure.message}"
        elif outcome.pauses:
            stand.trouble = "; ".join(pause.reason or f"paused by {pause.by or 'someone'}" for pause in outcome.pauses)
        return stand

    async def said(self, sitting: Sitting) -> int:
        """Return how many messages the chat has received from all channels. A script skips as many lines."""
        engine, session = sitting
        asked = [session.id, *(info.session_id for info in await session.children())]
        return sum([event.event_type in SAID for each in asked async for event in engine.session(each).events()])

    async def document(self, sitting: Sitting, stand: Stand) -> dict[str, Any]:
        """Return the chat as a document for ``--json``."""
        state = await sitting[1].state()
        return {
            "session_id": self.session_id, "status": stand.status.value, "trouble": stand.trouble or None,
            "transcript": [message.model_dump() for message in state.messages], "tickets": state.tickets,
            "questions": [question.record() for question in stand.questions], "command": self.command,
        }  # fmt: skip


async def _unseen(engine: Engine, chat: str) -> list[Message]:
    """Return the messages after the customer's last one, without the open question."""
    found = await read(engine, chat)
    said = found.messages[:-1] if found.question is not None else found.messages
    last = max((number for number, each in enumerate(said, 1) if each.role == "user"), default=0)
    return said[last:]


def _named(by: str | None, text: str) -> str:
    """Return a message with the operator's name in front of it, if a person has written it."""
    return f"{by}: {text}" if by else text


def ending(stand: Stand) -> int:
    """Return the exit code for the status of a chat."""
    return {Status.COMPLETED: DONE, Status.FAILED: FAILED, Status.CANCELLED: FAILED}.get(stand.status, PERSON)


def left(talk: Talk, stand: Stand | None) -> None:
    """Print the last lines: why the chat is paused, and the command that continues it.

    A customer is not told why a chat failed. The command ``show`` tells it, and so does ``--json``.
    """
    if stand is not None and stand.status is Status.COMPLETED:
        return
    if stand is not None and stand.trouble and stand.status is not Status.FAILED:
        click.echo(f"{stand.status.value}: {stand.trouble}", err=True)
    resume = stand is not None and stand.status is Status.PAUSED
    command = talk.start.command("resume", talk.session_id) if resume else talk.command
    click.echo(f"{'Resume' if resume else 'Continue'}: {command}", err=True)


def interrupted(talk: Talk) -> int:
    """Report Ctrl+C. The chat is kept."""
    click.echo("Interrupted. Nothing in the chat is lost.", err=True)
    left(talk, None)
    return INTERRUPTED


# without a terminal


async def played(talk: Talk, lines: Sequence[str], whole: bool) -> tuple[Stand, dict[str, Any]]:
    """Send lines one after the other. A ``whole`` script continues where it stopped.

    A line that is no part of a script is always sent. A chat that is paused or busy answers it later.
    """
    async with talk.sitting() as sitting:
        done = await talk.said(sitting) if whole else 0
        stand = await talk.turn(sitting)
        _tell([_named(each.by, each.text) for each in talk.former if each.role == "operator"] + stand.replies)
        for line in lines[done:]:
            if whole and not (stand.waits or stand.ended):
                break  # paused, failed or interrupted: the rest is sent when the chat continues
            click.echo(f"{PROMPT}{line}")
            stand = await talk.turn(sitting, line)
            _tell(stand.lines)
        return stand, await talk.document(sitting, stand)


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        click.echo(textwrap.indent(line, "  "))


# at a terminal


def chatted(talk: Talk) -> Ending:
    """Prompt for messages until the chat ends or the customer leaves."""
    stand: Stand | None = None
    try:
        stand = asyncio.run(_alone(talk, None))
        _show(_welcome(talk, stand))
        if stand.ended:
            new = talk.start.command()
            click.echo(f"Chat {talk.session_id} is {stand.status.value}. Start a new one: {new}", err=True)
        while stand.waits:
            seen = stand.questions[0].digest if stand.questions else ""
            stand = asyncio.run(_alone(talk, _typed() or None, seen))  # an empty line looks for new messages
            _show(_lines(stand))
    except KeyboardInterrupt:
        click.echo()
        return interrupted(talk), None
    except EOFError:
        click.echo()
    assert stand is not None
    left(talk, stand)
    return ending(stand), asyncio.run(_closed(talk, stand))


def _welcome(talk: Talk, stand: Stand) -> list[str]:
    """Return the first lines: what operators said meanwhile, the bot's last message, and what it asks now."""
    bot = [each for each in talk.former if each.role == "assistant"][-1:]
    former = [_named(each.by, each.text) for each in talk.former if each.role == "operator" or each in bot]
    return [*former, *_lines(stand)] or [words.say(stand.language, "offer")]


def _lines(stand: Stand) -> list[str]:
    look = [words.say(stand.language, "look")] if stand.is_with_person or stand.ticket is not None else []
    return [*stand.lines, *look]


async def _closed(talk: Talk, stand: Stand) -> dict[str, Any]:
    async with talk.sitting() as sitting:
        return await talk.document(sitting, stand)


async def _alone(talk: Talk, text: str | None, seen: str | None = None) -> Stand:
    """Run one turn with its own engine."""
    async with talk.sitting() as sitting:
        progress = asyncio.ensure_future(_thinking())
        try:
            if text is None:
                await come_back(sitting[0], talk.session_id)
            stand = await talk.turn(sitting, text, seen)
        finally:
            progress.cancel()
            click.echo("\r\x1b[K", nl=False)
        return stand


async def _thinking() -> None:
    await asyncio.sleep(PATIENCE)
    seconds = 0
    while True:
        click.echo(click.style(f"\r\x1b[K  thinking … {f'{seconds} s' if seconds else ''}", dim=True), nl=False)
        await asyncio.sleep(1)
        seconds += 1


def _typed() -> str:
    while True:
        try:
            return input(PROMPT).strip()
        except UnicodeDecodeError:
            click.echo("That is not UTF-8 text. Please try again.")


def _show(lines: Sequence[str]) -> None:
    width = max(min(shutil.get_terminal_size((80, 24)).columns, 120), 20)
    for line in (part for each in lines for part in each.splitlines()):
        for each in folded(line, width - 2):
            click.echo(f"  {each}")


def folded(line: str, width: int) -> list[str]:
    """Wrap a line to a width in columns, between words or between wide letters, which take two columns.

    >>> folded("one two three", 8), folded("订单已发货。", 8)
    (['one two', 'three'], ['订单已发', '货。'])
    """
    lines, room = [""], width
    for word in _WORD.findall(line):
        wide = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in word)
        if wide > room and lines[-1] and word not in "，。、；：？！”）":
            lines, room = [*lines, ""], width
        lines[-1] += word
        room -= wide
    return [each.rstrip() for each in lines]
