"""One reader of the store for all clients of the live stream.

The hub follows the changes of all sessions, encodes what changed once, and queues it for each client. So a thousand
clients cost one read of the store. It keeps no list of all sessions: what ``GET /now`` shows is read at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from msgspec.structs import replace

from pausepoint.engine.documents import PauseDocument
from pausepoint.engine.store_documents import HolderDocument, holder
from pausepoint.errors import PausepointError, StoreClosed, UnknownSession
from pausepoint.server.board import HELD, Board, Boards, head
from pausepoint.server.clients import Client, check, encoded
from pausepoint.server.entries import REMEMBERED, Entries, Entry
from pausepoint.server.problems import log
from pausepoint.server.talk import Talk

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine
    from pausepoint.model.changes import Change
    from pausepoint.model.ids import SessionId
    from pausepoint.model.views import SessionInfo, StandingPause

PACE = 0.1
"""Seconds between two rounds. A session that changes several times in between has one ``head``."""

TICK = 1.0
"""Seconds between two checks of what changes without a write, such as the end of a process."""

PROGRESS = 0.25
"""Seconds between two looks at the progress of the sessions that are driven here."""

CHECK = 2.0
"""Seconds between two checks of the sign-ins of the open streams."""

IDLE = 60.0
"""Seconds until a hub without clients stops, and until the facts of an owner that no request asks for are forgotten."""

TURN = 32
"""After how many sessions other tasks get a turn."""

CATCH_UP = 2000
"""The most changes that a client which comes back reads from the store. With more it gets ``reset``."""

BACKLOG = 4096
"""The most changes that wait for a round. With more, the store is not read on until a round has taken them."""

REMOVED = "session.removed"
"""The event that ends a session's history when it is removed."""

WAKING = 200
"""How many of the next wake-ups are known."""


class Hub:
    """The clients, what changes, and the facts of ``GET /now``."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.mark = ""
        self.lag = 0.0
        """Seconds from the last change until the hub told its clients."""
        self.standing: StandingPause | None = None
        self.engines: list[HolderDocument] = []
        self.clients: set[Client] = set()
        self.progress: dict[SessionId, tuple[int, int]] = {}
        self._held: dict[str, SessionInfo] = {}
        self._heads: dict[str, bytes] = {}
        self._wakes: list[SessionInfo] | None = None
        self._boards = Boards(engine, lambda: (self._turn, self.mark), self._tell_read)
        self._turn = 0
        self._talks: dict[str, Talk] = {}
        self._owners: dict[str, str | None] = {}  # of followed sessions that have changed: an id may pass to another
        self._entries = Entries()
        self._changes: deque[Change] = deque()
        self._news = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._used = 0.0
        self._looked = 0.0
        self._failed: BaseException | None = None
        self._at_standing = asyncio.Lock()

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
        client.waiting = []
        self.clients.add(client)
        if after:
            await self._catch_up(client, after)
        else:
            client.queue.append(b"id: %s\n\n" % self.mark.encode())
            client.told = self.mark
        while client.waiting:  # what came here meanwhile
            waiting, client.waiting = client.waiting, []
            client.queue.extend(await self._parts_of_past(client, waiting))
        client.waiting = None
        client.queue.extend(self._in_progress(client))
        self._listen(client)
        client.wake.set()

    def leave(self, client: Client) -> None:
        self.clients.discard(client)
        followed = self._followed()
        for session_id in client.sessions - followed:
            if session_id in self._talks:
                self._talks.pop(session_id).stop()
            self._owners.pop(session_id, None)
        self._used = time.monotonic()

    def _followed(self) -> set[str]:
        return {session_id for each in self.clients for session_id in each.sessions}

    def _listen(self, client: Client) -> None:
        """Send the live output of the sessions that a client follows, from the beginning of what is kept."""
        for session_id in client.sessions if client in self.clients else ():
            if session_id not in self._talks:
                self._talks[session_id] = Talk(self.engine, session_id, self._tell_output)
            self._talks[session_id].resume()
        client.output = partial(self._output, client)
        if output := client.output():
            client.queue.append(output)

    def _output(self, client: Client) -> bytes:
        """Return the kept live output of the sessions that a client follows. It is numbered, so it may come twice."""
        talks = [self._talks[each] for each in client.sessions if each in self._talks and self._hears(client, each)]
        return b"".join(part for talk in talks for part in talk.kept)

    def _hears(self, client: Client, session_id: str) -> bool:
        """Return whether a client gets the live output of a session. Its right was checked when it came."""
        owner = client.person.owner
        return session_id in client.sessions and (owner is None or self._owners.get(session_id, owner) == owner)

    def _stop_talks(self) -> None:
        for talk in self._talks.values():
            talk.stop()
        self._talks.clear()

    def _tell_output(self, session_id: str, part: bytes) -> None:
        for client in self.clients:
            if self._hears(client, session_id):
                client.put([part], self.mark)

    async def _catch_up(self, client: Client, after: str) -> None:
        """Send what has changed after a mark. If that is not kept, the store has it."""
        entries = self._entries.since(after, client.sessions)
        if entries is None and (entries := await self._stored(after)) is not None:
            client.seen = {(each.session_id, event.cursor) for each in entries for event in each.events}
        if entries is None:
            client.waiting = []
            client.reset(self.mark)
        else:
            client.queue.extend(await self._parts_of_past(client, entries, past=True))

    async def _stored(self, after: str) -> list[Entry] | None:
        """Return the changes that the store has after a mark; None if they are too many, or the mark is lost."""
        entries: list[Entry] = []
        infos: dict[str, SessionInfo | None] = {}
        try:
            async for change in self.engine.changes(after):
                if change.reset or len(entries) >= CATCH_UP:
                    return None
                if change.session_id not in infos:
                    infos[change.session_id] = await self._info(change.session_id)
                entries.append(_entry(change, infos[change.session_id]))
                if not len(entries) % TURN:
                    await asyncio.sleep(0)
        except ValueError:  # not a mark
            return None
        return entries

    async def _parts_of_past(self, client: Client, entries: list[Entry], past: bool = False) -> list[bytes]:
        """Return what a client gets for changes of the past. Heads that are no longer kept are read again."""
        for n, session_id in enumerate(dict.fromkeys(each.session_id for each in entries if client.sees(each))):
            if client.wants(session_id) and session_id not in self._heads:
                self._heads[session_id] = self._head(session_id, await self._info(session_id))
            if not n % TURN:
                await asyncio.sleep(0)
        return self._parts(client, entries, () if past else client.seen)

    def _parts(self, client: Client, entries: list[Entry], seen: Collection[tuple[str, str]]) -> list[bytes]:
        """Return what a client gets for some changes: first the facts, which may come twice, then the lines.

        Each line has its own mark, so that a stream that breaks between two of them continues with the second.
        """
        found = [each for each in entries if client.sees(each)]
        lines = list[bytes]()
        named = dict.fromkeys(each.session_id for each in found)
        parts = [self._heads[each] for each in named if client.wants(each) and each in self._heads]
        if client.inbox:
            asking = dict.fromkeys(each.session_id for each in found if each.asks)
            parts += [encoded("inbox", {"session_id": each}) for each in asking]
        if client.sessions:
            own = [each for each in found if each.events and each.session_id in client.sessions]
            lines = [line for each in own if (line := each.without(seen))]
        if parts and not lines and entries[-1].is_new(seen):  # a mark never goes back
            parts[-1] = b"id: %s\n" % entries[-1].mark.encode() + parts[-1]
        return parts + lines

    async def _tell(self, entries: list[Entry]) -> None:
        """Queue changes for all clients. A client that comes meanwhile finds them among those that are kept."""
        made: dict[object, list[bytes]] = {}
        for client in list(self.clients):
            if client.waiting is not None:
                client.waiting += entries
            else:
                view = client if client.seen else client.view
                if view not in made:
                    made[view] = self._parts(client, entries, client.seen)
                if made[view]:
                    client.put(made[view], self.mark)
                client.told = self.mark
            await asyncio.sleep(0)  # sending to all of them at once would delay steps that have ended

    def _tell_all(self, part: bytes, whole: bool = False) -> None:
        """Send a fact that belongs to no session to all who look at everything; ``whole``: and may see all of it."""
        for client in self.clients:
            if client.now and (client.person.sees_all or not whole):
                client.put([part], self.mark)

    def _end_streams(self) -> None:
        for client in self.clients:
            client.close()
            client.reset(self.mark)

    # the store

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for work in (self._follow, self._work, self._watch_progress, self._check):
                    group.create_task(work())
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
            self._stop_talks()
            self._ready.set()

    def _forget(self) -> None:
        for each in (self._held, self._heads, self._changes, self._boards, self.progress):
            each.clear()
        self._entries.restart("")
        self._wakes = None

    async def _follow(self) -> None:
        async for change in self.engine.changes(None, follow=True):
            self._changes.append(change)
            self._news.set()
            while len(self._changes) >= BACKLOG:
                await asyncio.sleep(PACE)
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
            await self._begin(changes[-1].mark)
        elif changes:
            await self._take(changes)

    async def _begin(self, mark: str) -> None:
        """Begin at a mark, at first or after the former one was lost."""
        self._forget()
        self.mark = mark
        self._turn += 1
        self._entries.restart(mark)
        for info in await self.engine.sessions(status=HELD):
            self._held[info.session_id] = info
        await self.look_at_standing(tell=False)
        self.engines = [holder(engine) for engine in await self.engine.engines()]
        for session_id in self._followed():
            self._own(session_id, await self._info(session_id))
        self._stop_talks()  # what has ended or begun meanwhile is not known, so the output is read again
        for client in self.clients:
            client.reset(mark)
            if client.waiting is None:
                self._listen(client)
        self._looked = time.monotonic()
        self._ready.set()

    async def _take(self, changes: list[Change]) -> None:
        self._turn += 1
        self._wakes = None
        if self.clients:
            entries = await self._changed(changes)
            self.mark = changes[-1].mark
            self._entries.add(entries, self._followed())
            await self._tell(entries)
            self._trim()
        else:  # a client that comes back reads the store, and heads from before would be out of date
            self.mark = changes[-1].mark
            self._heads.clear()
            self._entries.restart(self.mark)
        self._measure_lag(changes)
        await self.look_at_standing()

    async def _changed(self, changes: list[Change]) -> list[Entry]:
        """Read the heads of the sessions that have changed, and return the entries of the changes."""
        infos: dict[str, SessionInfo | None] = {}
        removed = {each.session_id for each in changes if any(event.event_type == REMOVED for event in each.events)}
        for session_id in dict.fromkeys(each.session_id for each in changes):
            infos[session_id] = await self._info(session_id)
            self._keep(session_id, infos[session_id])
            if session_id in self._talks:
                self._own(session_id, infos[session_id])
                if session_id in removed:  # another session may have its id now, with output of its own
                    self._talks[session_id].stop()
                    self._talks[session_id] = Talk(self.engine, session_id, self._tell_output)
                self._talks[session_id].resume()
            if not len(infos) % TURN:
                await asyncio.sleep(0)
        return [_entry(each, infos[each.session_id]) for each in changes]

    def _own(self, session_id: str, info: SessionInfo | None) -> None:
        self._owners[session_id] = None if info is None else info.owner

    def _measure_lag(self, changes: list[Change]) -> None:
        times = [event.created_at for each in changes for event in each.events]
        if times:
            self.lag = max((self.engine.clock.now() - max(times)) / 1e6, 0.0)

    async def _info(self, session_id: str) -> SessionInfo | None:
        with suppress(UnknownSession):
            return await self.engine.session(session_id).info()
        return None

    def _keep(self, session_id: str, info: SessionInfo | None) -> None:
        """Keep the head of a session that has changed, for this round and for clients that come back."""
        self._held.pop(session_id, None)
        if info is not None and info.status in HELD:
            self._held[session_id] = info
        self._heads.pop(session_id, None)  # the last ones are forgotten last
        self._heads[session_id] = self._head(session_id, info)

    def _trim(self) -> None:
        while len(self._heads) > REMEMBERED:
            del self._heads[next(iter(self._heads))]

    def _head(self, session_id: str, info: SessionInfo | None) -> bytes:
        if info is None:
            return encoded("head", {"session_id": session_id, "removed": True})
        if (shown := self.progress.get(info.session_id)) is not None:
            info = replace(info, progress=shown)
        return b"event: head\ndata: " + bytes(head(info)) + b"\n\n"

    # what changes without a write

    async def _look(self) -> None:
        self._looked = time.monotonic()
        if not self.clients and self._looked - self._used > IDLE:
            raise _Idle
        self._boards.forget(self._looked - IDLE)
        await self._correct(await self._ended_holds() | await self._woken())
        await self.look_at_standing()
        engines = [holder(engine) for engine in await self.engine.engines()]
        if [engine.pid for engine in engines] != [engine.pid for engine in self.engines]:
            self._tell_all(encoded("store", {"engines": engines}), whole=True)
        self.engines = engines

    async def _ended_holds(self) -> dict[str, SessionInfo]:
        """Return the sessions that were driven, and are no longer although nothing was written: the process died."""
        held = {str(each.session_id): each for each in await self.engine.sessions(status=HELD)}
        former, self._held = self._held, held
        return {key: info for key, info in former.items() if key not in held or held[key].status != info.status}

    async def _woken(self) -> dict[str, SessionInfo]:
        """Return the sessions whose timer has ended. No engine may be there to continue them."""
        now = self.engine.clock.now()
        due = [
            each for each in self._wakes or () if each.wakes_at is not None and each.wakes_at.timestamp() * 1e6 <= now
        ]
        if self._wakes is None or due:
            self._wakes = list(await self.engine.waking(limit=WAKING))
        return {str(each.session_id): each for each in due}

    async def _correct(self, stale: dict[str, SessionInfo]) -> None:
        """Tell the clients about sessions whose status is another one although nothing was written."""
        entries = []
        for session_id, former in stale.items():
            info = await self._info(session_id)
            if info is not None and info.status != former.status:
                self._keep(session_id, info)
                entries.append(Entry(self.mark, session_id, info.owner, True))
                entries[-1].asks = bool(former.waiting)
        if entries:
            self._turn += 1
            self._entries.add(entries, ())
            await self._tell(entries)

    async def look_at_standing(self, tell: bool = True) -> None:
        """Read the pause of everything, and tell the clients if it is another one."""
        async with self._at_standing:  # an older reading must not replace a newer one
            pause = await self.engine.standing_pause()
            if pause != self.standing:
                self._turn += 1  # it changes the status of all sessions
                if tell:
                    shown = None if pause is None else PauseDocument.of(pause)
                    self._tell_all(encoded("standing", {"standing_pause": shown}))
            self.standing = pause

    async def _check(self) -> None:
        """End the streams of people who are no longer signed in."""
        while True:
            await asyncio.sleep(CHECK)
            await check(self.clients.copy())

    # progress

    async def _watch_progress(self) -> None:
        """Tell the progress of the sessions that are driven here. It is stored with their next record only."""
        await self._ready.wait()
        while True:
            await asyncio.sleep(PROGRESS)
            if self.clients:
                former, self.progress = self.progress, await self.engine.progress()
                await self._tell_progress([each for each, found in self.progress.items() if former.get(each) != found])

    async def _tell_progress(self, session_ids: list[SessionId]) -> None:
        entries = []
        for session_id in session_ids:
            if (info := self._held.get(session_id)) is not None:
                self._keep(session_id, info)
                entries.append(Entry(self.mark, session_id, info.owner, True))
        if entries:  # they are not kept: a client that comes back gets the last one
            await self._tell(entries)

    def _in_progress(self, client: Client) -> list[bytes]:
        known = {str(each): self._held[each] for each in self.progress if each in self._held and each in self._heads}
        return self._parts(client, [Entry(self.mark, each, info.owner, True) for each, info in known.items()], ())

    # GET /now

    async def board(self, owner: str | None, since: float = 0.0) -> Board:
        """Return the present facts of all sessions, or of one owner's, none of them from before ``since``."""
        return await self._boards.get(owner, since)

    def _tell_read(self, board: Board) -> None:
        """Tell the clients that newer facts are there than those they may have got."""
        part = encoded("now", {"mark": board.mark})
        for client in self.clients:
            if client.now and client.person.owner == board.owner:
                client.put([part], self.mark)


def _entry(change: Change, info: SessionInfo | None) -> Entry:
    owner = None if info is None else info.owner
    return Entry(change.mark, change.session_id, owner, info is not None, change.events)


class _Idle(Exception):
    """The hub was not used for a while."""


_HUBS: WeakValueDictionary[Engine, Hub] = WeakValueDictionary()


def hub_of(engine: Engine) -> Hub:
    """Return the hub of an engine. All applications over an engine share it, and it is forgotten with the last one."""
    hub = _HUBS.get(engine)
    if hub is None:
        hub = _HUBS[engine] = Hub(engine)
    return hub
