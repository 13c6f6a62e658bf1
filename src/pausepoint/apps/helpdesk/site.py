"""The web chat: a page of the server on which customers chat. A signed link tells which customer it is.

A customer has one chat, which lasts. No address names a chat, so no customer can name that of another one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from hashlib import sha256
from importlib.resources import files
from typing import Annotated, Any

from msgspec import Meta, Struct

from pausepoint import AlreadyRunning, Engine, Status
from pausepoint.apps.helpdesk import conversation, words
from pausepoint.apps.helpdesk.models import Desk, Message
from pausepoint.apps.helpdesk.operators import AUTHORS, ENDED, attend_all
from pausepoint.apps.helpdesk.shop import customer_name
from pausepoint.apps.helpdesk.workflow import helpdesk
from pausepoint.errors import UnknownSession
from pausepoint.server import Action, Site, Visit

NAME = "chat"
"""The name of the site, and the beginning of its addresses."""

SHOWN = 200
"""How many messages the page shows."""

PATIENCE = 30.0
"""The seconds that a customer who is back waits for the helpdesk's turn to end."""

WORKING = (Status.CREATED, Status.READY, Status.RUNNING)


class Sent(Struct, forbid_unknown_fields=True):
    """A customer's message. ``key`` names it, so that a page which sends it twice is heard once.

    ``seen`` is the ``question`` that the page showed when the message was written.
    """

    text: Annotated[str, Meta(min_length=1, max_length=4_000)]
    key: Annotated[str, Meta(pattern="^[0-9A-Za-z-]{8,64}$")]
    seen: Annotated[str, Meta(pattern="^([0-9a-f]{32})?$")] | None = None


class WebChat:
    """The chats of all customers. ``desk`` has the settings of new ones."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._names: dict[str, str] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def site(self) -> Site:
        """Return the addresses of the web chat."""
        return Site(
            NAME, files("pausepoint.apps.helpdesk").joinpath("page"),
            (
                Action(method="GET", path="/messages", handler=self.read),
                Action(method="POST", path="/messages", handler=self.send, body=Sent),
                Action(method="POST", path="/return", handler=self.come_back),
                Action(method="GET", path="/stream", handler=self.read, streams=True),
            ),
            attend_all,
        )  # fmt: skip

    async def read(self, visit: Visit) -> dict[str, Any]:
        """Return what the customer sees."""
        if visit.name not in self._names:
            known = await asyncio.to_thread(customer_name, self._desk.shop, visit.name)
            self._names[visit.name] = known or visit.name
        found: dict[str, Any] = {"customer": visit.name, "name": self._names[visit.name], "messages": [], "before": 0}
        chat = await self._chat(visit.engine, visit.name)
        if not await _exists(visit.engine, chat):
            return found | {"language": "en", "typing": False, "operator": None, "trouble": "", "question": ""}
        read = await conversation.read(visit.engine, chat)
        before = max(len(read.messages) - SHOWN, 0)
        return found | {
            "before": before, "messages": [_shown(each) for each in read.messages[before:]], "language": read.language,
            "question": "" if read.question is None else read.question.digest,
            "typing": read.status in WORKING and read.operator is None, "operator": read.operator,
            "trouble": words.say(read.language, "trouble") if read.status is Status.FAILED else "",
        }  # fmt: skip

    async def send(self, visit: Visit) -> dict[str, Any]:
        """Send a message. ``late`` means that it came too late for a question, and was not used."""
        chat = await self._opened(visit)
        async with self._turns[visit.name]:
            used = await conversation.send(
                visit.engine,
                chat,
                visit.body.text,
                by=visit.name,
                channel="web",
                key=visit.body.key,
                seen=visit.body.seen,
            )
        return {"late": not used}

    async def come_back(self, visit: Visit) -> dict[str, Any]:
        """Ask again what has expired while the customer was away."""
        chat = await self._chat(visit.engine, visit.name)
        if await _exists(visit.engine, chat):
            await self._opened(visit)
            async with self._turns[visit.name]:
                with suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE):
                        await conversation.come_back(visit.engine, chat)
        return {}

    async def _opened(self, visit: Visit) -> str:
        """Return the customer's chat. It is started if there is none, and resumed after a failure."""
        engine: Engine = visit.engine
        async with self._turns[visit.name]:
            chat = await self._chat(engine, visit.name)
            try:
                failed = (await engine.session(chat).info()).status is Status.FAILED
            except UnknownSession:
                desk = self._desk.model_copy(update={"customer": visit.name})
                await engine.start(
                    helpdesk, session_id=chat, owner=visit.name, by=visit.name, desk=desk, customer=visit.name
                )
                return chat
            if failed:
                with suppress(AlreadyRunning):
                    await engine.session(chat).resume(by=visit.name)
        return chat

    async def _chat(self, engine: Engine, customer: str) -> str:
        """Return the id of the customer's chat. A chat that an operator has cancelled is followed by another one."""
        ended = await engine.sessions(workflow=helpdesk.name, owner=customer, level="root", status=ENDED)
        return f"web-{sha256(customer.encode()).hexdigest()[:12]}-{len(ended) + 1}"


async def _exists(engine: Engine, chat: str) -> bool:
    try:
        await engine.session(chat).info()
    except UnknownSession:
        return False
    return True


def _shown(message: Message) -> dict[str, str]:
    return {"author": AUTHORS[message.role], "by": message.by, "text": message.text}
