"""Mirror sessions to documents of Firestore, and pause a session if a document asks for it.

A follower of the feed of changes: it is no store. The document ``workflow_states/{session_id}`` follows its session, at
most once per second. A client that sets ``pause_requested`` there to true pauses the session.

The pause of everything is no change of a session, so the mirror looks for it. When it begins or ends, the mirror writes
all sessions that have not ended.

**No lost request.** A document is written only if it is as it was read, so the mirror never overwrites a
``pause_requested`` that it has not seen. The map ``mirror`` of a document keeps what the mirror wrote last: a
``pause_requested`` that differs from it is a request. Each request takes effect once, over restarts and kills.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pausepoint.errors import KeyLost, PausepointError, StoreClosed, StoreError, UnknownSession
from pausepoint.integrations.cursor import SAVE_EVERY, Cursor
from pausepoint.integrations.documents import document, is_current
from pausepoint.model.changes import Change
from pausepoint.model.ids import is_session_id
from pausepoint.model.sessions import Status
from pausepoint.model.views import SessionInfo
from pausepoint.name import NAME
from pausepoint.threads import in_thread, to_its_end

if TYPE_CHECKING:
    from google.cloud.firestore import Client, DocumentSnapshot

    from pausepoint.engine.engine import Engine

MISSING = (
    "The mirror needs the package google-cloud-firestore, which is not installed. Install it with pip install"
    f" '{NAME}[firestore]'."
)

COLLECTION = "workflow_states"

WRITE_EVERY = 1.0
"""The fewest seconds between two writes of a document: Firestore advises against more than one per second."""

AT_ONCE = 8
"""How many documents are written at a time."""

TIMEOUT = 10.0
"""Seconds after which a call of Firestore has failed."""

FIRST_DELAY, LONGEST_DELAY = 1.0, 300.0
"""Seconds until a failed document is tried again. The delay doubles with every failure."""

LOOK_EVERY = 5.0
"""Seconds between two checks that Firestore still sends requests."""

ASK_AFTER = 60.0
"""Seconds without a request after which the mirror asks for requests itself: a dead connection can look alive."""

EMULATOR = "FIRESTORE_EMULATOR_HOST"
UNENDED = tuple(each for each in Status if each not in (Status.COMPLETED, Status.CANCELLED))

KEPT_FOR = timedelta(days=36_500)
REQUEST_KEPT_FOR = timedelta(days=30)
PAGE = 500
DIGEST, DONE = b"firestore", b"done"
BY = "firestore"
REASON = "pause_requested was set in Firestore"

log = logging.getLogger(f"{NAME}.firestore")


class Mirrored(msgspec.Struct, frozen=True):
    """What happened to a document.

    - ``status``: ``"written"``, ``"deleted"``, ``"paused"`` (a request has paused the session), ``"refused"`` (a
      request could not pause it, for example because it has ended, and is not repeated), or ``"failed"``.
    - ``session_id``: the session, which names the document. Empty if all documents could not be read.
    - ``reason``: why it failed or was refused. ``retry_in``: the seconds until the next attempt; None if there is none.
    """

    status: Literal["written", "deleted", "paused", "refused", "failed"]
    session_id: str
    reason: str = ""
    retry_in: float | None = None


async def mirror_sessions(
    engine: Engine, client: Client, *, collection: str = COLLECTION, follow: bool = True, everything: bool = False,
    report: Callable[[Mirrored], None] | None = None,
) -> int:  # fmt: skip
    """Write each session of the store, and each of its changes, to its document. Return the number of failures.

    - ``client``: a ``google.cloud.firestore.Client``, which knows the project and the credentials.
    - ``follow``: continue until the engine closes or the task is cancelled, and retry what fails. Otherwise all that
      has changed is tried once.
    - ``everything``: first write all documents again, for example after documents were lost in Firestore.
    - ``report``: called with a `Mirrored` for each write, each pause and each failure.

    Run one mirror for a collection. Two write the same documents, and do no other harm.
    """
    id = await _mirror_id(engine)
    return await _Mirror(engine, client, collection, id, report or (lambda mirrored: None)).run(follow, everything)


async def _mirror_id(engine: Engine) -> str:
    """Return the random id by which this store knows its documents."""
    found = await engine.keys.remember("firestore mirror", DIGEST, secrets.token_bytes(8), keep_for=KEPT_FOR)
    assert found.answer is not None
    return found.answer.hex()


class _Mirror:
    """One run of the mirror."""

    def __init__(
        self, engine: Engine, client: Client, collection: str, id: str, report: Callable[[Mirrored], None]
    ) -> None:
        self._engine = engine
        self._client = client
        self._documents = client.collection(collection)
        self._id = id
        self._report = report
        self._cursor = Cursor(engine, _cursor_key(client, collection), DIGEST)
        self.waiting: dict[str, int] = {}  # the sessions to write, and how often each has failed
        self._queue: list[tuple[float, str]] = []
        self._changed: set[str] = set()  # changed again while they were written
        self._written_at: dict[str, float] = {}
        self._news = asyncio.Event()
        self._begun: set[str] = set()  # the requests that this process has claimed and not completed
        self._is_compared = True  # after a reset, only documents that differ from their sessions are written
        self.failed = 0

    async def run(self, follow: bool, everything: bool) -> int:
        for session_id in await self._cursor.load():
            self._note(session_id)
        if everything:
            self._cursor.mark, self._is_compared = None, False
        try:
            if follow:
                with suppress(StoreClosed):
                    await self._follow()
            else:
                await self._once()
        finally:
            with suppress(StoreError):
                await to_its_end(self._cursor.save(self.waiting))
        return self.failed

    async def _once(self) -> None:
        try:
            await self._read(False)
            await self._note_standing_pause()
            for snapshot in await _found(self._requests()):
                await self._obeyed(snapshot)
        except Exception as error:
            if not _is_passing(error):
                raise
            self._failed_to_look(error, None)
            return
        for session_id in list(self.waiting):
            await self._write(session_id, False)

    async def _follow(self) -> None:
        work = (self._read(True), self._look_for_standing_pause(), self._write_all(), self._listen())
        jobs = [asyncio.ensure_future(each) for each in work]
        try:
            done, _ = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            for job in done:
                job.result()
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    # the feed

    async def _read(self, follow: bool) -> None:
        """Note all sessions that change from the cursor on."""
        while True:
            try:
                async for change in self._engine.changes(self._cursor.mark, follow=follow, types=()):
                    await self._noted(change)
                    self._cursor.mark = change.mark
                return
            except StoreClosed:
                raise
            except Exception as error:
                if not follow or not _is_passing(error):
                    raise
                self._failed_to_look(error, LOOK_EVERY)
            await asyncio.sleep(LOOK_EVERY)

    def _failed_to_look(self, error: Exception | str, retry_in: float | None) -> None:
        self.failed += 1
        self._report(Mirrored("failed", "", error if isinstance(error, str) else _text(error), retry_in))

    async def _look_for_standing_pause(self) -> None:
        while True:
            try:
                await self._note_standing_pause()
            except StoreClosed:
                raise
            except StoreError as error:
                log.warning("The mirror cannot look for the pause of everything, and tries again: %s", error)
            await asyncio.sleep(WRITE_EVERY)

    async def _note_standing_pause(self) -> None:
        """Note all sessions that have not ended if the pause of everything has begun or ended since."""
        found = await self._engine.standing_pause()
        current = "" if found is None else found.id
        if current != self._cursor.standing:
            async for info in self._sessions(UNENDED):
                self._note(info.session_id)
            self._cursor.standing = current

    async def _noted(self, change: Change) -> None:
        if not change.reset:
            self._note(change.session_id)
            return
        found = await _found(self._where("mirror.id", self._id).select(["mirror", "status"]))
        ours = {snapshot.id: snapshot.to_dict() or {} for snapshot in found}
        async for info in self._sessions():
            fields = ours.pop(info.session_id, {})
            if not (self._is_compared and is_current(fields, info)):
                self._note(info.session_id)
        for session_id in ours:
            self._note(session_id)  # the session was removed
        self._is_compared = True

    async def _sessions(self, status: Sequence[Status] = ()) -> AsyncIterator[SessionInfo]:
        after: str | None = None
        while True:
            page = await self._engine.sessions(status=status or None, limit=PAGE, after=after)
            for info in page:
                yield info
            if (after := page.next) is None:
                return

    def _note(self, session_id: str) -> None:
        if session_id in self.waiting:
            self._changed.add(session_id)
        else:
            self.waiting[session_id] = 0
            self._put(session_id, self._written_at.get(session_id, -WRITE_EVERY) + WRITE_EVERY)

    def _put(self, session_id: str, at: float) -> None:
        heapq.heappush(self._queue, (at, session_id))
        self._news.set()

    # the documents

    async def _write_all(self) -> None:
        loop, busy = asyncio.get_running_loop(), set[asyncio.Future[None]]()
        try:
            while True:
                self._news.clear()
                while self._queue and self._queue[0][0] <= loop.time() and len(busy) < AT_ONCE:
                    job = asyncio.ensure_future(self._write(heapq.heappop(self._queue)[1], True))
                    busy.add(job)
                    job.add_done_callback(lambda _: self._news.set())
                if self._cursor.is_due:
                    await self._cursor.save_if_possible(self.waiting, log)
                next_write = self._queue[0][0] if self._queue and len(busy) < AT_ONCE else float("inf")
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(min(next_write, loop.time() + SAVE_EVERY)):
                        await self._news.wait()
                for done in [each for each in busy if each.done()]:
                    busy.discard(done)
                    done.result()
        finally:
            await asyncio.gather(*busy, return_exceptions=True)

    async def _write(self, session_id: str, follow: bool) -> None:
        """Bring a document up to date, after a request in it has taken effect."""
        self._changed.discard(session_id)
        loop = asyncio.get_running_loop()
        try:
            await self._renew_until_unchanged(session_id)
        except StoreClosed:
            raise
        except Exception as error:
            if not _is_passing(error):
                raise
            self.waiting[session_id] += 1
            self.failed += 1
            delay = _delay(self.waiting[session_id])
            self._put(session_id, loop.time() + delay)
            self._report(Mirrored("failed", session_id, _text(error), delay if follow else None))
            return
        self._written_at[session_id] = loop.time()
        if len(self._written_at) > 10_000:
            ended = loop.time() - WRITE_EVERY
            self._written_at = {id: at for id, at in self._written_at.items() if at > ended}
        del self.waiting[session_id]
        if session_id in self._changed:
            self._note(session_id)

    async def _renew_until_unchanged(self, session_id: str) -> None:
        """Bring a document up to date. If a client writes it at the same time, look at what the client wrote."""
        from google.api_core.exceptions import Aborted, Conflict, FailedPrecondition

        for _ in range(3):
            with suppress(Aborted, Conflict, FailedPrecondition):
                return await self._renew(session_id)
        return await self._renew(session_id)

    async def _renew(self, session_id: str) -> None:
        from google.api_core.exceptions import InvalidArgument

        place = self._documents.document(session_id)
        found = await in_thread(place.get, retry=None, timeout=TIMEOUT)
        await self._obey(found)
        try:
            info = await self._engine.session(session_id).info()
            stored = await self._engine.session(session_id).stored()
        except UnknownSession:
            if found.exists and self._is_ours(found):
                option = self._client.write_option(last_update_time=found.update_time)
                await in_thread(place.delete, option=option, retry=None, timeout=TIMEOUT)
                self._report(Mirrored("deleted", session_id))
            return
        fields = document(info, stored.values, self._id)
        try:
            await self._put_fields(place, found, fields)
        except InvalidArgument:  # most often the state is too large, or has too many values for an index
            if fields["state"] is None:
                raise
            await self._put_fields(place, found, fields | {"state": None})
        self._report(Mirrored("written", session_id))

    async def _put_fields(self, place: Any, found: DocumentSnapshot[Any], fields: dict[str, Any]) -> None:
        if found.exists:
            option = self._client.write_option(last_update_time=found.update_time)
            await in_thread(place.update, fields, option=option, retry=None, timeout=TIMEOUT)
        else:
            await in_thread(place.create, fields, retry=None, timeout=TIMEOUT)

    def _is_ours(self, found: DocumentSnapshot[Any]) -> bool:
        return bool(_mirror(found.to_dict() or {}).get("id") == self._id)

    # the requests

    def _requests(self) -> Any:
        return self._where("pause_requested", True)

    def _where(self, field: str, value: object) -> Any:
        from google.cloud.firestore import FieldFilter

        return self._documents.where(filter=FieldFilter(field, "==", value))

    async def _listen(self) -> None:
        """Obey requests as Firestore sends them: first all that are there, then each new one."""
        loop, found = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def deliver(snapshots: Any, changes: Any, at: Any) -> None:
            with suppress(RuntimeError):  # the loop was closed in the meantime
                for change in changes:
                    if change.type.name != "REMOVED":
                        loop.call_soon_threadsafe(found.put_nowait, change.document)

        while True:
            try:
                watch = await in_thread(self._requests().on_snapshot, deliver)
            except Exception as error:
                if not _is_passing(error):
                    raise
                self._failed_to_look(error, LOOK_EVERY)
                await asyncio.sleep(LOOK_EVERY)
                continue
            try:
                await self._obey_sent(watch, found)
            finally:
                await to_its_end(in_thread(watch.close))
            self._failed_to_look("Firestore stopped sending requests.", FIRST_DELAY)
            await asyncio.sleep(FIRST_DELAY)

    async def _obey_sent(self, watch: Any, found: asyncio.Queue[Any]) -> None:
        """Obey requests until Firestore sends no more of them, or has not sent one that is there."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while watch.is_active:
            try:
                async with asyncio.timeout(LOOK_EVERY):
                    snapshot = await found.get()
            except TimeoutError:
                if loop.time() - last < ASK_AFTER:
                    continue
                if await self._obey_unsent() and found.empty():
                    return
            else:
                await self._obeyed(snapshot)
            last = loop.time()

    async def _obey_unsent(self) -> bool:
        """Ask for all requests, and obey them. Return whether one of them is new."""
        try:
            snapshots = await _found(self._requests())
        except Exception as error:
            if not _is_passing(error):
                raise
            self._failed_to_look(error, ASK_AFTER)
            return False
        known = {*self.waiting}  # the write of a document obeys it, too; so one that waits for its write is no news
        found = [each.id for each in snapshots if await self._obeyed(each)]
        return not known.issuperset(found)

    async def _obeyed(self, found: DocumentSnapshot[Any]) -> bool:
        """Obey a document. Return whether it has a request that its mirror does not show yet."""
        try:
            if await self._obey(found):
                self._note(found.id)  # its document shows whether the session is paused
                return True
        except StoreClosed:
            raise
        except StoreError as error:
            log.warning("The mirror could not pause session %s, and tries again: %s", found.id, error)
            self._note(found.id)
        return False

    async def _obey(self, found: DocumentSnapshot[Any]) -> bool:
        """Pause the session if its document asks for that, once for each request. Return whether it asks."""
        fields = (found.to_dict() or {}) if found.exists and is_session_id(found.id) else {}
        if fields.get("pause_requested") is not True or _mirror(fields).get("pause_requested") is True:
            return False
        key = f"firestore {self._id} {found.id} {found.update_time.timestamp()}"[:255]
        known = await self._engine.keys.remember(key, DIGEST, keep_for=REQUEST_KEPT_FOR)
        # A request that failed is still claimed by this engine.
        mine = known.claimed or (key in self._begun and known.answer is None)
        if known.at_work and not mine:  # it may still pause the session, or die before that
            raise KeyLost("Another mirror has taken this request and has not carried it out yet.", key=key)
        if mine:
            self._begun.add(key)
        if mine and not known.took_effect:
            try:
                with self._engine.keys.once(key):
                    paused = await self._engine.session(found.id).pause(reason=REASON, by=BY)
            except StoreError:
                raise
            except PausepointError as error:
                self._report(Mirrored("refused", found.id, str(error)))
            else:
                is_over = paused[0].status not in UNENDED
                reason = f"The session has ended: its status is {paused[0].status}." if is_over else ""
                self._report(Mirrored("refused" if is_over else "paused", found.id, reason))
        if mine:
            await self._engine.keys.remember(key, DIGEST, DONE, keep_for=REQUEST_KEPT_FOR)
            self._begun.discard(key)
        return True


def _cursor_key(client: Client, collection: str) -> str:
    """Return the key of the place in the feed: another one for each emulator, project, database and collection."""
    place = (os.environ.get(EMULATOR, ""), client._database_string, collection)
    return f"firestore {sha256(repr(place).encode()).hexdigest()}"


def _mirror(fields: dict[str, Any]) -> dict[str, Any]:
    """Return what the mirror wrote about itself. Other programs may write anything there."""
    found = fields.get("mirror")
    return found if isinstance(found, dict) else {}


async def _found(query: Any) -> list[DocumentSnapshot[Any]]:
    return await in_thread(lambda: list(query.stream(retry=None, timeout=TIMEOUT)))


def _is_passing(error: Exception) -> bool:
    """Return whether an error comes from Firestore or the store, so that another attempt may succeed."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    return isinstance(error, GoogleAPIError | GoogleAuthError | PausepointError | ValueError | TypeError)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _delay(failures: int) -> float:
    return float(min(FIRST_DELAY * 2 ** min(failures - 1, 20), LONGEST_DELAY))
