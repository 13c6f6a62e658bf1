"""One reader of the store for all clients of the live stream.

The hub follows the changes of all sessions, keeps the heads of those that have not completed, and queues what changed
for each client. So a thousand clients cost one read of the store.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from pausepoint.engine import documents as engine_documents
from pausepoint.errors import PausepointError, StoreClosed, UnknownSession
from pausepoint.model.sessions import Status
from pausepoint.server import documents
from pausepoint.server.people import Person
from pausepoint.server.problems import log

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.changes import Change
    from pausepoint.model.sessions import Event
    from pausepoint.model.views import SessionInfo

MOST = 256
"""The number of events that wait for a slow client. With one more it gets ``reset`` instead."""

REMEMBERED = 4096
"""The number of changes that are kept for clients that come back."""

PACE = 0.1
"""Seconds between two rounds. A session that changes several times in between has one ``head``."""

TICK = 1.0
"""Seconds between two checks of what changes without a write, such as the end of a process."""

IDLE = 60.0
"""Seconds until a hub without clients stops."""

CATCH_UP = 2000
"""The most changes that a client which comes back reads from the store. With more it gets ``reset``."""

TALK = 256 * 2**10
"""The bytes of a session's live output that are kept for clients that come later."""

HELD = (Status.RUNNING, Status.PAUSING)
KEPT = tuple(each for each in Status if each not in (Status.COMPLETED, Status.CANCELLED))
"""The statuses of the sessions whose heads are kept."""


def encoded(event: str, document: Any, mark: str = "") -> bytes:
    """Return an event of the stream. With ``mark``, a client that has it continues after it.

    >>> encoded("inbox", {"session_id": "a"}, "7")
    b'event: inbox\\nid: 7\\ndata: {"session_id":"a"}\\n\\n'
    """
    name = f"event: {event}\n" + (f"id: {mark}\n" if mark else "")
    return name.encode() + b"data: " + msgspec.json.encode(document) + b"\n\n"


class Entry:
    """One change of one session. ``mark`` is the position after it; it is shared by changes without a write."""

    def __init__(
        self, mark: str, session_id: str, owner: str | None, known: bool, events: tuple[Event, ...] = ()
    ) -> None:
        self.mark = mark
        self.session_id = session_id
        self.owner = owner
        self.known = known  # otherwise the session was removed, and nobody knows its owner
        self.events = events
        self.asks = any(each.event_type.startswith(("question.", "answer.")) for each in events)

    @cached_property
    def line(self) -> bytes:
        """The new events of the session's history, with the mark: whoever has received it has all before it."""
        return _line(self.session_id, self.events, self.mark)

    def without(self, seen: set[tuple[str, str]]) -> bytes:
        """Return the events that a client has not read from the store already."""
        if not seen:
            return self.line
        left = tuple(each for each in self.events if (self.session_id, each.cursor) not in seen)
        return self.line if len(left) == len(self.events) else _line(self.session_id, left, self.mark) if left else b""


def _line(session_id: str, events: Iterable[Event], mark: str) -> bytes:
    shown = [engine_documents.event(each) for each in events]
    return encoded("line", {"session_id": session_id, "events": shown}, mark)


class Client:
    """One open stream: what it wants, what its person may see, and what waits to be sent."""

    def __init__(self, person: Person, topics: Iterable[str], only: str | None = None, signed: str = "") -> None:
        self.person = person
        self.signed = signed  # the sign-in, whose streams are counted
        self.now = "now" in topics
        self.inbox = "inbox" in topics
        self.sessions = frozenset(each.removeprefix("session:") for each in topics if each.startswith("session:"))
        self.only = only  # the session of the only question that this person sees
        self.queue: deque[bytes] = deque()
        self.waiting: list[Entry] | None = None  # entries that come while the client reads the store
        self.seen: set[tuple[str, str]] = set()
        self.wake = asyncio.Event()
        self.closed = False

    def sees(self, entry: Entry) -> bool:
        if self.only is not None and entry.session_id != self.only:
            return False
        if self.person.owner is None:
            return True
        return entry.known and entry.owner == self.person.owner

    def put(self, parts: list[bytes], mark: str) -> None:
        """Queue events. A client that is too slow loses them, and reads everything again."""
        if len(self.queue) + len(parts) > MOST:
            self.reset(mark)
        else:
            self.queue.extend(parts)
        self.wake.set()

    def reset(self, mark: str) -> None:
        self.queue.clear()
        self.queue.append(encoded("reset", {}, mark))
        self.wake.set()

    def close(self) -> None:
        self.closed = True
        self.wake.set()


class Talk:
    """The live output of one session that clients follow. It is read once for all of them."""

    def __init__(self, hub: Hub, session_id: str) -> None:
        self._hub = hub
        self._session_id = session_id
        self._last = 0
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self.kept: deque[bytes] = deque()  # for clients that come later

    def go_on(self) -> None:
        """Read on, unless that is under way. The output of a session ends with it, and goes on after a rewind."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read(), name=f"hub: output of {self._session_id}")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _read(self) -> None:
        with suppress(PausepointError, OSError):  # the hub itself reports a store that cannot be read
            async for item in self._hub.engine.stream(self._session_id, self._last, until="ended"):
                self._last = item.n
                self._keep(encoded("token", engine_documents.stream_item(self._session_id, item)))

    def _keep(self, part: bytes) -> None:
        self.kept.append(part)
        self._size += len(part)
        while self._size > TALK:
            self._size -= len(self.kept.popleft())
        for client in self._hub.clients:
            if self._session_id in client.sessions:
                client.put([part], self._hub.mark)


class Hub:
    """The heads of the sessions that have not completed, the other facts of ``GET /now``, and the clients."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.mark = ""
        self.heads: dict[str, SessionInfo] = {}
        self.standing: Any = None
        self.engines: list[dict[str, Any]] = []
        self.clients: set[Client] = set()
        self._encoded: dict[str, bytes] = {}
        self._talks: dict[str, Talk] = {}
        self._entries: deque[Entry] = deque(maxlen=REMEMBERED)
        self._changes: deque[Change] = deque()
        self._news = asyncio.Event()
        self._ready = asyncio.Event()
        self._wakes: list[tuple[float, str]] = []
        self._counted: dict[str | None, tuple[str, float, float, Any]] = {}
        self._task: asyncio.Task[None] | None = None
        self._used = 0.0
        self._looked = 0.0
        self._failed: BaseException | None = None

    async def use(self) -> None:
        """Start the hub unless it runs, and wait until it knows the store. Raises the error if it cannot read it."""
        self._used = time.monotonic()
        if self._task is None or self._task.done():
            self._ready.clear()
            self._failed = None
            self._task = asyncio.create_task(self._run(), name="hub")
        await self._ready.wait()
        if self._failed is not None:
            raise self._failed

    async def close(self) -> None:
        """Send ``reset`` to all clients, end their streams, and stop."""
        self._end_streams()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    # clients

    async def join(self, client: Client, after: str) -> None:
        """Add a client that has everything up to the mark ``after``; it is empty for a client that is new."""
        await self.use()
        self.clients.add(client)
        if not after:
            client.queue.append(b"id: %s\n\n" % self.mark.encode())
        elif (missed := self._since(after)) is not None:
            client.queue.extend(self._parts(client, missed))
        else:
            await self._catch_up(client, after)
        self._listen(client)
        client.wake.set()

    def _listen(self, client: Client) -> None:
        """Send the live output of the sessions that a client follows, from the beginning of what is kept."""
        for session_id in client.sessions if client in self.clients else ():
            talk = self._talks.setdefault(session_id, Talk(self, session_id))
            client.queue.extend(talk.kept)
            talk.go_on()

    def leave(self, client: Client) -> None:
        self.clients.discard(client)
        followed = {session_id for each in self.clients for session_id in each.sessions}
        for session_id in client.sessions - followed:
            if session_id in self._talks:
                self._talks.pop(session_id).stop()
        self._used = time.monotonic()

    def _since(self, mark: str) -> list[Entry] | None:
        """Return the kept entries after a mark; None if it is not among them."""
        entries = list(self._entries)
        for n, entry in enumerate(entries):
            if entry.mark == mark:
                return entries[n + 1 :]  # the first of that mark: those without a write come after it, and are sent
        return None

    async def _catch_up(self, client: Client, after: str) -> None:
        """Send what the store has after a mark, then what came here meanwhile and was not among it."""
        client.waiting = []
        entries = await self._stored(after)
        waiting, client.waiting = client.waiting, None
        if entries is None:
            client.reset(self.mark)
            return
        client.queue.extend(self._parts(client, entries))
        client.seen = {(each.session_id, event.cursor) for each in entries for event in each.events}
        client.queue.extend(self._parts(client, waiting))

    async def _stored(self, after: str) -> list[Entry] | None:
        """Return the changes that the store has after a mark; None if they are too many, or the mark is lost."""
        entries: list[Entry] = []
        try:
            async for change in self.engine.changes(after):
                if change.reset or len(entries) >= CATCH_UP:
                    return None
                entries.append(await self._entry(change))
        except ValueError:  # not a mark
            return None
        return entries

    def _parts(self, client: Client, entries: list[Entry]) -> list[bytes]:
        """Return what a client gets for some changes: first the facts, which may come twice, then the lines.

        Each line has its own mark, so that a stream that breaks between two of them continues with the second.
        """
        found = [each for each in entries if client.sees(each)]
        parts, lines = list[bytes](), list[bytes]()
        for session_id in dict.fromkeys(each.session_id for each in found):
            if client.now or session_id in client.sessions:
                parts.append(self._head(session_id))
        if client.inbox:
            asking = dict.fromkeys(each.session_id for each in found if each.asks)
            parts += [encoded("inbox", {"session_id": each}) for each in asking]
        if client.sessions:
            own = [each for each in found if each.events and each.session_id in client.sessions]
            lines = [line for each in own if (line := each.without(client.seen))]
        if parts and not lines:
            parts[-1] = b"id: %s\n" % entries[-1].mark.encode() + parts[-1]
        return parts + lines

    def _head(self, session_id: str) -> bytes:
        if session_id not in self._encoded:
            self._encode(session_id, self.heads.get(session_id))
        return self._encoded[session_id]

    def _encode(self, session_id: str, info: SessionInfo | None) -> None:
        document = {"session_id": session_id, "removed": True} if info is None else documents.head(info)
        self._encoded[session_id] = encoded("head", document)

    def _tell(self, entries: list[Entry]) -> None:
        for client in self.clients:
            if client.waiting is not None:
                client.waiting += entries
            elif parts := self._parts(client, entries):
                client.put(parts, self.mark)

    def _tell_all(self, part: bytes, whole: bool = False) -> None:
        """Send a fact that belongs to no session to all who look at everything; ``whole``: and may see all of it."""
        for client in self.clients:
            if client.now and (client.person.sees_all or not whole):
                client.put([part], self.mark)

    def _end_streams(self) -> None:
        for client in self.clients:
            client.reset(self.mark)
            client.close()

    # the store

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._work())
        except* _Idle:
            pass
        except* (PausepointError, OSError) as errors:
            self._failed = errors.exceptions[0]
            while isinstance(self._failed, BaseExceptionGroup):
                self._failed = self._failed.exceptions[0]
            if not isinstance(self._failed, StoreClosed):
                log.warning("The live stream ended: %s", self._failed)
        finally:
            self._end_streams()
            self._forget()
            for talk in self._talks.values():
                talk.stop()
            self._talks.clear()
            self._ready.set()

    def _forget(self) -> None:
        for each in (self.heads, self._encoded, self._entries, self._changes, self._wakes, self._counted):
            each.clear()

    async def _follow(self) -> None:
        async for change in self.engine.changes(None, follow=True):
            self._changes.append(change)
            self._news.set()
        raise StoreClosed("The engine has closed. Start the server again.")

    async def _work(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK):
                    await self._news.wait()
            self._news.clear()
            changes = list(self._changes)
            self._changes.clear()
            await self._round(changes)
            if self._ready.is_set() and time.monotonic() - self._looked >= TICK:
                await self._look()
            await asyncio.sleep(PACE)

    async def _round(self, changes: list[Change]) -> None:
        if any(each.reset for each in changes):
            await self._read_all(changes[-1].mark)
        elif changes:
            await self._take([await self._entry(each) for each in changes])

    async def _take(self, entries: list[Entry]) -> None:
        for session_id in dict.fromkeys(each.session_id for each in entries):
            if await self._refresh(session_id):
                for each in entries:
                    each.asks = each.asks or each.session_id == session_id
        self.mark = entries[-1].mark
        self._entries.extend(entries)
        self._tell(entries)
        self._shed(entries)
        for each in entries:
            if each.session_id in self._talks:
                self._talks[each.session_id].go_on()
        await self._look_at_standing()

    async def _entry(self, change: Change) -> Entry:
        info = self.heads.get(change.session_id)
        if info is None:
            with suppress(UnknownSession):
                info = await self.engine.info(change.session_id)
            self._encode(change.session_id, info)  # a client that comes back needs it, and it is not kept otherwise
        owner = None if info is None else info.owner
        return Entry(change.mark, change.session_id, owner, info is not None, change.events)

    async def _read_all(self, mark: str) -> None:
        """Read everything, at the beginning or after the mark was lost."""
        self._forget()
        after: str | None = None
        while True:
            found = await self.engine.sessions(status=KEPT, limit=1000, after=after)
            for info in found:
                self._keep(info)
            if (after := found.next) is None:
                break
        self.mark = mark
        self._entries.append(Entry(mark, "", None, False))  # where clients that come back may continue
        await self._look_at_standing(tell=False)
        self.engines = [engine_documents.holder(each) for each in await self.engine.engines()]
        for client in self.clients:
            client.reset(mark)
        self._looked = time.monotonic()
        self._ready.set()

    def _keep(self, info: SessionInfo) -> None:
        self.heads[info.session_id] = info
        self._encoded.pop(info.session_id, None)
        if info.wakes_at is not None:
            heapq.heappush(self._wakes, (info.wakes_at.timestamp(), info.session_id))

    async def _refresh(self, session_id: str) -> bool:
        """Read the head of a session again. Returns whether its open questions are others now."""
        former = self.heads.pop(session_id, None)
        self._encoded.pop(session_id, None)
        with suppress(UnknownSession):
            self._keep(await self.engine.info(session_id))
        now = self.heads.get(session_id)
        return (former.waiting if former else ()) != (now.waiting if now else ())

    def _shed(self, entries: list[Entry]) -> None:
        """Forget the heads of sessions that have completed, once all clients have them."""
        for each in entries:
            info = self.heads.get(each.session_id)
            if info is not None and info.status not in KEPT:
                self._head(each.session_id)  # clients that come back may need it
                del self.heads[each.session_id]
        if len(self._encoded) > 2 * REMEMBERED + len(self.heads):
            recent = {each.session_id for each in self._entries}
            self._encoded = {key: part for key, part in self._encoded.items() if key in recent}

    # what changes without a write

    async def _look(self) -> None:
        self._looked = time.monotonic()
        if not self.clients and self._looked - self._used > IDLE:
            raise _Idle
        held = {str(each.session_id): each.status for each in await self.engine.sessions(status=HELD)}
        stale = {key for key, info in self.heads.items() if info.status in HELD and held.get(key) != info.status}
        now = self.engine.clock.now()
        while self._wakes and self._wakes[0][0] <= now:
            stale.add(heapq.heappop(self._wakes)[1])
        await self._correct(stale)
        await self._look_at_standing()
        engines = [engine_documents.holder(each) for each in await self.engine.engines()]
        if [each["pid"] for each in engines] != [each["pid"] for each in self.engines]:
            self._tell_all(encoded("store", {"engines": engines}), whole=True)
        self.engines = engines

    async def _correct(self, stale: set[str]) -> None:
        """Tell the clients about sessions whose status is another one although nothing was written."""
        entries = []
        for session_id in stale:
            former = self.heads.get(session_id)
            asks = await self._refresh(session_id)
            info = self.heads.get(session_id)
            if former is not None and info is not None and info.status != former.status:
                entries.append(Entry(self.mark, session_id, info.owner, True))
                entries[-1].asks = asks
        self._entries.extend(entries)
        if entries:
            self._tell(entries)
            self._shed(entries)

    async def _look_at_standing(self, tell: bool = True) -> None:
        found = await self.engine.standing_pause()
        if found != self.standing and tell:
            shown = None if found is None else engine_documents.pause(found)
            self._tell_all(encoded("standing", {"standing_pause": shown}))
        self.standing = found

    # GET /now

    async def counts(self, owner: str | None) -> tuple[dict[str, dict[str, int]], int]:
        """Return the number of sessions by workflow and status, and of open questions.

        They are counted again only if something has changed, and at most for a tenth of the time.
        """
        mark, now = self.mark, time.monotonic()
        former = self._counted.get(owner)
        if former is not None and (former[0] == mark or now < former[1] + 10 * former[2]):
            return former[3]  # type: ignore[no-any-return]
        found: dict[str, dict[str, int]] = {}
        for (workflow, status), count in (await self.engine.tally(owner=owner)).items():
            found.setdefault(workflow, {})[status.value] = count
        questions = sum((await self.engine.tally_questions(owner=owner)).values())
        done = time.monotonic()
        self._counted[owner] = (mark, done, done - now, (found, questions))
        return found, questions


class _Idle(Exception):
    """Nobody has used the hub for a while."""


_HUBS: WeakKeyDictionary[Engine, Hub] = WeakKeyDictionary()


def hub_of(engine: Engine) -> Hub:
    """Return the hub of an engine. All applications over an engine share it."""
    if engine not in _HUBS:
        _HUBS[engine] = Hub(engine)
    return _HUBS[engine]
