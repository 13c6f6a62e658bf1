"""The handlers of what is going on now: the facts, and the stream of what changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pausepoint.engine import documents as engine_documents
from pausepoint.model.sessions import Status
from pausepoint.server import bodies, documents
from pausepoint.server.calls import Call, Receive, Reply, Send, start
from pausepoint.server.hub import Client, Hub, hub_of
from pausepoint.server.problems import Problem

if TYPE_CHECKING:
    from pausepoint.model.views import SessionInfo

RETRY = 2000
"""Milliseconds after which a client connects again."""

QUIET = 15.0
"""Seconds after which a comment is sent, so that no proxy ends the connection."""

CHECKED = 5.0
"""Seconds after which the sign-in of a stream is checked again, when something is sent."""

SHOWN = 200
"""The most sessions in one list of ``GET /now``."""

TOPICS = 50
"""The most topics of one stream."""


class Stream:
    """The reply that does not end: events as they come."""

    status = 200

    def __init__(self, hub: Hub, client: Client, receive: Receive, after: str, call: Call | None = None) -> None:
        self._hub = hub
        self._client = client
        self._receive = receive
        self._after = after
        self._call = call
        self._checked = time.monotonic()

    async def send(self, send: Send, head: bool = False) -> None:
        """Send events until the client leaves or the server ends."""
        headers = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
        try:
            await start(send, 200, headers)
            if not head:
                await self._send_events(send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            if self._call is not None:
                self._call.desk.streams.leave(self._call.signed)

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
            except TimeoutError:
                if not self._is_signed():
                    return
                # with the present mark, so that a client that comes back has less to read
                await send(_chunk(b": nothing new\nid: %s\n\n" % self._hub.mark.encode()))
                continue
            client.wake.clear()
            if not self._is_signed():
                return
            while client.queue:
                waiting = b"".join(client.queue)
                client.queue.clear()
                await send(_chunk(waiting))
            if client.closed:
                return

    def _is_signed(self) -> bool:
        """Return whether the sign-in is still valid, if it was not checked just now."""
        now = time.monotonic()
        if self._call is None or now - self._checked < CHECKED:
            return True
        self._checked = now
        return self._call.desk.signin.holds(self._call.scope)

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
    hub = hub_of(call.engine)
    await hub.use()
    call.desk.streams.take(call.signed, call.desk.limits)  # no pause from here on: several may ask at the same time
    client = Client(person, topics, only, call.signed)
    return Stream(hub, client, call.receive, call.header("last-event-id"), call)


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
    """Return what is going on: counts, the sessions that need attention, the pause of everything, the engines."""
    hub, owner = hub_of(call.engine), call.access.owner
    await hub.use()
    counts, questions = await hub.counts(owner)
    mine = [info for info in hub.heads.values() if owner in (None, info.owner)]
    standing = hub.standing
    sees_all = call.person.sees_all
    return Reply({
        "mark": hub.mark,
        "counts": counts,
        "questions": questions,
        "running": _shown(mine, Status.RUNNING, Status.PAUSING),
        "paused": _shown(mine, Status.PAUSED),
        "failed": [documents.head(info) for info in mine if info.failure is not None][:SHOWN],
        "waking": [documents.head(info) for info in _waking(mine)],
        "spent_usd": sum(info.spent_usd for info in mine if info.parent_id is None),
        "standing_pause": (engine_documents.standing_pause(standing) if sees_all or standing is None
                           else engine_documents.pause(standing)),
        "engines": hub.engines if sees_all else [],
    })  # fmt: skip


def _shown(infos: list[SessionInfo], *statuses: Status) -> list[dict[str, Any]]:
    return [documents.head(info) for info in infos if info.status in statuses][:SHOWN]


def _waking(infos: list[SessionInfo]) -> list[SessionInfo]:
    """Return the sessions that wake up by themselves, the next one first."""
    asleep = [info for info in infos if info.wakes_at is not None and info.status is not Status.PAUSED]
    return sorted(asleep, key=lambda info: (info.wakes_at, info.session_id))[:SHOWN]
