"""What the tests of the helpdesk share: a chat in a folder of its own, and a look into the shop."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pausepoint import Engine, Question, Session
from pausepoint.apps.helpdesk import Chat, Desk, errand, helpdesk, open_shop
from pausepoint.apps.helpdesk.conversation import REPLIED

NOW = datetime(2030, 3, 4, 9, tzinfo=UTC)
EFFECTS = ("address_changes", "refunds", "appointments", "cancellations", "tickets")


class Chatting:
    """A chat through an open engine: what is said, what comes back."""

    def __init__(self, engine: Engine, session: Session[Chat], shop: Path) -> None:
        self.engine = engine
        self.session = session
        self.shop = shop
        self.cursor = ""

    async def says(self, text: str) -> str:
        """Send a message; what the person is shown then: replies, and what is asked."""
        await self.engine.session(self.session.id).send(text, channel="test")
        return await self.shown()

    async def shown(self) -> str:
        outcome = await self.session.outcome()
        assert outcome.failure is None, outcome.failure
        lines = []
        async for event in self.session.events(self.cursor):
            self.cursor = event.cursor
            if event.event_type == REPLIED:
                lines.append(event.summary)
        return "\n".join([*lines, *(question.next_question for question in outcome.questions)])

    async def all_of(self, lines: Sequence[str]) -> str:
        """Several messages; what is shown after the last."""
        shown = ""
        for line in lines:
            shown = await self.says(line)
        return shown

    async def question(self) -> Question:
        """What is asked, with all that was known then."""
        [found] = await self.session.questions()
        return await self.engine.question(found.id)

    async def transcript(self) -> list[tuple[str, str]]:
        return [(message.role, message.text) for message in (await self.session.state()).messages]


@asynccontextmanager
async def chatting(folder: Path, session_id: str = "c1", clock: Any = None, **settings: Any) -> AsyncIterator[Chatting]:
    """A chat in a folder; entered again, the same one."""
    shop = folder / "shop.db"
    open_shop(shop)
    options = {} if clock is None else {"clock": clock}
    async with Engine(folder / "chat.db", workflows=[helpdesk, errand], signals=False, **options) as engine:
        desk = Desk(shop=shop, now=NOW, **settings)
        session = await engine.start(helpdesk, session_id=session_id, desk=desk)
        found = Chatting(engine, session, shop)
        await found.shown()
        yield found


def rows(shop: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(shop)) as db:
        return db.execute(query).fetchall()


def effects(shop: Path) -> Counter[str]:
    """How often each kind of effect was had."""
    return Counter({table: rows(shop, f"SELECT count(*) FROM {table}")[0][0] for table in EFFECTS})


def contents(shop: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All that the shop has, apart from keys, which belong to sessions."""
    columns = {
        "orders": "*", "address_changes": "number, street, postcode, city", "refunds": "number, amount, reason",
        "appointments": "day, time, kind, contact", "cancellations": "number, amount", "tickets": "number, about",
    }  # fmt: skip
    return {table: rows(shop, f"SELECT {names} FROM {table} ORDER BY 1, 2") for table, names in columns.items()}
