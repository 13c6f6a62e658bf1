"""Clients of MCP servers for tests, the person in front of them, and sessions that ask."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from mcp import Client, types

from pausepoint import Context, Engine, Workflow, step
from pausepoint.integrations import mcp_server
from pausepoint.integrations.excerpts import ROOM
from pausepoint.integrations.mcp_desk import Settings
from tests.integrations.mcp_jobs import Order


def accept(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


class Person:
    """The person in front of a client: sees forms, and gives the next reply."""

    def __init__(self, *replies: types.ElicitResult) -> None:
        self.replies = list(replies)
        self.forms: list[tuple[str, dict[str, Any]]] = []

    async def __call__(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.forms.append((params.message, params.requested_schema))
        if not self.replies:
            await asyncio.Event().wait()  # the form stays open
        return self.replies.pop(0)


async def said(client: Client, name: str, **arguments: Any) -> tuple[bool, str]:
    """Call a tool. Return whether it went well, and the text."""
    result = await client.call_tool(name, arguments)
    assert isinstance(result, types.CallToolResult)
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    assert "Traceback" not in content.text
    assert len(content.text.encode()) <= 1.1 * ROOM
    return not result.is_error, content.text


async def done(client: Client, name: str, **arguments: Any) -> Any:
    """Call a tool, and return its document."""
    well, text = await said(client, name, **arguments)
    assert well, text
    return json.loads(text)


async def refused(client: Client, name: str, **arguments: Any) -> str:
    well, text = await said(client, name, **arguments)
    assert not well, text
    return text


async def asked(store: Path, name: str = "one", **state: Any) -> str:
    """Leave a session that asks a question, and that no process drives. Return the question's id."""
    asking = Workflow("order", state=Order, steps=[step(writes="tone")(tone)])
    async with Engine(store, workflows=[asking]) as engine:
        session = await engine.start(asking, session_id=name, place="", **state)
        await session.outcome()
        (found,) = await engine.session(name).questions()
        return found.id


async def tone(ctx: Context) -> str:
    return await ctx.ask("Which tone?", choices=["formal", "playful"])


async def receipts(store: Path) -> list[tuple[str | None, str]]:
    """Return who answered the questions of a store, and through which channel."""
    async with Engine(store, drives="none") as engine:
        found = await engine.questions(status=None)
        return [(each.receipt.by, each.receipt.channel) for each in found if each.receipt is not None]


def here(store: Path, **settings: Any) -> Client:
    def engine() -> Engine:
        return Engine(store, create=False, drives="none", signals=False)

    return Client(mcp_server.server(Settings(engine, by="ann", **settings)))
