"""The handlers of what is going on now: the facts, and the stream of what changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from pausepoint.server import bodies, documents
from pausepoint.server.calls import Call, Receive, Reply, Send, start
from pausepoint.server.clients import Client
from pausepoint.server.hub import Hub
from pausepoint.server.problems import Problem

RETRY = 2000
"""Milliseconds after which a client connects again."""

QUIET = 15.0
"""Seconds after which a comment is sent, so that no proxy ends the connection."""

TOPICS = 50
"""The most topics of one stream."""


class Stream:
    """The reply that does not end: events as they come. ``instead`` returns what to send instead of the events."""

    status = 200

    def __init__(
        self, hub: Hub, client: Client, receive: Receive, after: str, leave: Callable[[], None],
        instead: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:  # fmt: skip
        self._hub = hub
        self._client = client
        self._receive = receive
        self._after = after
        self._leave = leave
        self._instead = instead

    async def send(self, send: Send, head: bool = False) -> None:
        """Send events until the client leaves or the server ends."""
        headers = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
        try:
            await start(send, 200, headers)
            if not head:
                await self._send_events(send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._leave()

    async def _send_events(self, send: Send) -> None:
        leaving = asyncio.create_task(self._left())
        try:
            await send(_chunk(b"retry: %d\n\n" % RETRY))
            await self._hub.join(self._client, self._after)
            await self._pass_on(send)
        finally:
            self._hub.leave(self._client)
            leaving.cancel()

    async def _pass_on(self, send: Send) -> None:
        client = self._client
        while True:
            try:
                async with asyncio.timeout(QUIET):
                    await client.wake.wait()
            except TimeoutError:  # with the present mark, so that a client that comes back has less to read
                mark = b"id: %s\n" % client.told.encode() if client.told else b""
                await send(_chunk(b": nothing new\n%s\n" % mark))
                continue
            client.wake.clear()
            while client.queue:
                waiting = b"".join(client.queue)
                client.queue.clear()
                await send(_chunk(waiting if self._instead is None else await self._instead()))
            if client.closed:
                return

    async def _left(self) -> None:
        """Wait until the client has left. Without this, a stream in which nothing happens would never end."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._client.close()


def _chunk(data: bytes) -> Mapping[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def stream(call: Call) -> Stream:
    """Send what changes, as server-sent events. An answerer gets only the topic inbox."""
    person = call.person
    topics = call.query(bodies.Topics).topics or _default(call)
    only = None
    if len(topics) > TOPICS:
        raise Problem(400, f"The query names more than {TOPICS} topics. Open the stream with fewer.")
    for topic in topics:
        await _check(call, topic)
    if person.question is not None:
        only = (await call.access.question(person.question)).session_id
    hub = call.desk.hub
    await hub.use()
    call.desk.streams.take(call.signed, call.desk.limits)  # no await from here on: several may ask at the same time
    client = Client(person, topics, only, call.signed, _credentials(call), lambda: _is_still(call))
    leave = partial(call.desk.streams.leave, call.signed)
    return Stream(hub, client, call.receive, call.header("last-event-id"), leave)


def _credentials(call: Call) -> str:
    """Return what the sign-in was proved with, to check it once for all streams that have it."""
    return f"{call.header('authorization')}\n{call.header('cookie')}"


async def _is_still(call: Call) -> bool:
    return await call.desk.signin.is_still(call.scope, call.person)


def _default(call: Call) -> tuple[str, ...]:
    known = {"now": "viewer", "inbox": "answerer"}
    return tuple(topic for topic, role in known.items() if call.person.may(role))  # type: ignore[arg-type]


async def _check(call: Call, topic: str) -> None:
    """Raise a problem unless the person may follow a topic."""
    kind, colon, session_id = topic.partition(":")
    if topic not in ("now", "inbox") and not (kind == "session" and session_id):
        raise Problem(400, f"{topic[:100]!r} is not a topic. Use 'now', 'inbox', or 'session:' and a session's id.")
    role = "answerer" if topic == "inbox" else "viewer"
    if not call.person.may(role):  # type: ignore[arg-type]
        raise Problem(
            403, f"The topic {topic[:100]!r} needs the role {role}, and {call.by!r} has the role {call.person.role}."
            " Leave it out, or ask an admin.", "role", role=role,
        )  # fmt: skip
    if colon:
        await call.access.info(session_id)


async def now(call: Call) -> Reply:
    """Return what is going on: counts, the sessions that need attention, spending, the pause of everything, engines."""
    hub = call.desk.hub
    await hub.use()
    board = await hub.board(call.access.owner, call.desk.acts.last(call.signed))
    facts = board.facts
    assert facts is not None
    return Reply(documents.NowDocument.of(
        facts, mark=board.mark, running=board.running(await call.engine.progress()), spending=facts.spent,
        spent_usd=sum(facts.spent.values()), standing_pause=documents.standing_pause(hub.standing, call.person),
        engines=hub.engines if call.person.sees_all else [],
    ))  # fmt: skip
