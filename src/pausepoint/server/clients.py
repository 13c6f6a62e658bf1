"""The open streams: what each of them follows, what its person may see, and what waits to be sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

import msgspec

from pausepoint.server.entries import Entry
from pausepoint.server.people import Person

MOST = 256
"""The number of events that wait for a slow client. With one more it gets ``reset`` instead."""

ASKING = 5.0
"""Seconds after which a sign-in that does not say whether it is still valid counts as ended."""


def encoded(event: str, document: Any, mark: str = "") -> bytes:
    """Return an event of the stream. With ``mark``, a client that has it continues after it.

    >>> encoded("inbox", {"session_id": "a"}, "7")
    b'event: inbox\\nid: 7\\ndata: {"session_id":"a"}\\n\\n'
    """
    name = f"event: {event}\n" + (f"id: {mark}\n" if mark else "")
    return name.encode() + b"data: " + msgspec.json.encode(document) + b"\n\n"


async def always() -> bool:
    """Return that a sign-in is still valid."""
    return True


class Client:
    """One open stream.

    - ``only``: the session of the only question that this person sees.
    - ``signed``: the sign-in, whose streams are counted. ``credentials``: what it was proved with; ``still`` tells
      whether it is valid still.
    """

    def __init__(
        self, person: Person, topics: Iterable[str], only: str | None = None, signed: str = "",
        credentials: str = "", still: Callable[[], Awaitable[bool]] = always,
    ) -> None:  # fmt: skip
        self.person = person
        self.signed = signed
        self.credentials = credentials
        self.still = still
        self.now = "now" in topics
        self.inbox = "inbox" in topics
        self.sessions = frozenset(each.removeprefix("session:") for each in topics if each.startswith("session:"))
        self.only = only
        self.queue: deque[bytes] = deque()
        self.waiting: list[Entry] | None = None  # entries that come while the client reads the store
        self.seen: set[tuple[str, str]] = set()
        self.output: Callable[[], bytes] = bytes  # returns the kept live output of the sessions
        self.told = ""  # the mark up to which everything is in the queue or was sent
        self.wake = asyncio.Event()
        self.closed = False

    def sees(self, entry: Entry) -> bool:
        if self.only is not None and entry.session_id != self.only:
            return False
        if self.person.owner is None:
            return True
        return entry.known and entry.owner == self.person.owner

    @property
    def view(self) -> tuple[object, ...]:
        """What decides which events the client gets. Clients with the same view get the same ones."""
        return self.now, self.inbox, self.sessions, self.only, self.person.owner

    def wants(self, session_id: str) -> bool:
        """Return whether the client follows the head of a session."""
        return self.now or session_id in self.sessions

    def put(self, parts: list[bytes], mark: str) -> None:
        """Queue events. A client that is too slow loses them, and reads everything again."""
        if len(self.queue) + len(parts) > MOST:
            self.reset(mark)
        else:
            self.queue.extend(parts)
        self.wake.set()

    def reset(self, mark: str) -> None:
        """Tell the client to read everything again. Only the stream has live output, so that is sent again."""
        self.queue.clear()
        self.queue.append(encoded("reset", {}, mark))
        if not self.closed and (output := self.output()):
            self.queue.append(output)
        self.wake.set()

    def close(self) -> None:
        self.closed = True
        self.wake.set()


async def check(clients: Collection[Client]) -> None:
    """End the streams of sign-ins that are not valid any longer. Each sign-in is asked once for all its streams."""
    groups: dict[tuple[str, str, Person], list[Client]] = {}
    for client in clients:
        groups.setdefault((client.signed, client.credentials, client.person), []).append(client)
    valid = await asyncio.gather(*[_is_valid(each[0]) for each in groups.values()])
    for group, is_valid in zip(groups.values(), valid, strict=True):
        for client in group if not is_valid else ():
            client.queue.clear()  # what waits is no longer this person's to see
            client.close()


async def _is_valid(client: Client) -> bool:
    try:
        async with asyncio.timeout(ASKING):
            return await client.still()
    except Exception:  # a sign-in that cannot be checked must not stay open
        return False
