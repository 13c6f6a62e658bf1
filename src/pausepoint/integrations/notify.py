"""Send each question once to mail, chats and webhooks, over restarts and kills, and with several senders at a time.

The store keeps two things for each address, which is named by a hash:

- **A record of each round of a question.** It is taken before the message is sent, and completed afterwards. Of several
  processes, one takes it. A service that refuses the message gives the record up, so that any process can try again.
- **A cursor**: the mark in the feed of changes, and the questions before it that are not sent yet. A restart continues
  there. It only saves work. Without it, or if the mark is lost, all open questions are looked at, and their records say
  which of them were sent.

**Killed between sending and recording**: the record is taken, but incomplete, and its engine is gone. Whether the
service got the message is not known. The message is sent again, and says so. Reading a question twice costs less than
never hearing of it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from pausepoint.errors import StoreClosed, StoreError
from pausepoint.integrations.cursor import SAVE_EVERY, Cursor
from pausepoint.integrations.messages import Message, message
from pausepoint.integrations.services import Service, services
from pausepoint.model.changes import Change
from pausepoint.model.questions import Question
from pausepoint.model.views import Listing
from pausepoint.name import NAME
from pausepoint.threads import to_its_end

if TYPE_CHECKING:
    from pausepoint.engine.engine import Engine

FIRST_DELAY, LONGEST_DELAY = 1.0, 300.0
"""Seconds until a failed message is tried again. The delay doubles with every failure."""

LOOK_EVERY = 5.0
"""Seconds until a question that another process is sending is looked at again."""

KEPT_FOR, KEPT_WITHOUT_END = timedelta(days=365), timedelta(days=3650)
"""How much longer than its question a record is kept, and how long if the question has no time limit."""

SALT_KEPT_FOR = timedelta(days=36_500)
PAGE = 500
DIGEST, SENT = b"notify", b"sent"

log = logging.getLogger(f"{NAME}.notify")


class Notice(msgspec.Struct, frozen=True):
    """A message that was sent to a service, or that the service did not accept.

    - ``service``, ``number``: the name of the service, and the position of its address, beginning with 1.
    - ``round``: the round of the question. An answer that its step does not accept begins another one.
    - ``reason``: why the message was not sent. ``retry_in``: the seconds until the next attempt; None if there is none.
    """

    status: Literal["sent", "failed"]
    question_id: str
    round: int
    workflow: str
    service: str
    number: int
    reason: str = ""
    retry_in: float | None = None


async def send_questions(
    engine: Engine, *urls: str, owner: str | None = None, workflow: str | None = None, follow: bool = True,
    link: Callable[[Question], str] | None = None, command: Callable[[Question], str] | None = None,
    report: Callable[[Notice], None] | None = None,
) -> int:  # fmt: skip
    """Send each open question, and each that is asked from now on, once to each of these addresses of apprise.

    Return the number of messages that could not be sent. Each is tried again by the next call.

    - ``owner``, ``workflow``: only questions of these sessions.
    - ``follow``: continue until the engine closes or the task is cancelled, and repeat failed messages after a growing
      delay. Otherwise each message is tried once.
    - ``link``: returns an address that answers a question. ``command``: returns a command that does. The message names
      the link, or the command if there is no link or the service has no room for it.
    - ``report``: called with a `Notice` for each message that was sent, and for each failure.

    Raises `ImportError` if apprise is not installed, and `ValueError` for an address that it does not accept. Neither
    message contains an address.
    """
    found = services(urls)  # all of them are checked before the first message is sent
    salt = await _salt(engine)
    way = _Ways(link, command or (lambda question: f"{NAME} answer {question.id}"))
    wanted = _Wanted(owner, workflow)
    couriers = [
        _Courier(engine, service, await service.id(salt), wanted, way, report or (lambda notice: None))
        for service in found
    ]
    work = [asyncio.ensure_future(each.run(follow)) for each in couriers]
    try:
        await asyncio.gather(*work)
    finally:
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
    return sum(each.unsent for each in couriers)


async def _salt(engine: Engine) -> bytes:
    """Return the random bytes that this store's hashes of addresses begin with."""
    found = await engine.keys.remember("notify salt", DIGEST, secrets.token_bytes(16), keep_for=SALT_KEPT_FOR)
    assert found.answer is not None
    return found.answer


class _Ways:
    """How a question can be answered."""

    def __init__(self, link: Callable[[Question], str] | None, command: Callable[[Question], str]) -> None:
        self._link = link
        self._command = command

    def message(self, question: Question, room: int, again: bool) -> Message:
        """Return the message about a question, in at most ``room`` characters if that is possible."""
        if self._link is not None:
            fits = message(question, f"Answer: {self._link(question)}", room, again)
            if fits is not None:
                return fits
        way = f"Answer: {self._command(question)}"
        short = message(question, way, room, again) or message(question, way, 32_768)
        assert short is not None
        return short


class _Wanted(NamedTuple):
    """Which questions to send."""

    owner: str | None
    workflow: str | None


class _Courier:
    """Delivers questions to one service. Couriers share nothing, so that a slow service delays no other."""

    def __init__(
        self, engine: Engine, service: Service, id: str, wanted: _Wanted, ways: _Ways,
        report: Callable[[Notice], None],
    ) -> None:  # fmt: skip
        self._engine = engine
        self._service = service
        self._id = id
        self._wanted = wanted
        self._ways = ways
        self._report = report
        key = f"notify {id} {sha256(msgspec.json.encode(wanted)).hexdigest()[:16]}"
        self._cursor = Cursor(engine, key, DIGEST)
        self.unsent = 0
        self.waiting: dict[str, int] = {}  # the questions to send, and how often each has failed
        self._queue: list[tuple[float, int, str]] = []  # when to try which; the numbers keep the order
        self._numbers = itertools.count()
        self._renewed: set[str] = set()  # asked again while a message about an earlier round may be on its way
        self._failures = 0  # in a row, whatever the question
        self._rests_until = 0.0
        self._held: set[str] = set()  # records that could be neither completed nor given up
        self._news = asyncio.Event()

    async def run(self, follow: bool) -> None:
        """Send what waits. ``follow``: until the engine closes, or the task is cancelled."""
        for id in await self._cursor.load():
            self._note(id)
        try:
            if follow:
                with suppress(StoreClosed):
                    await self._follow()
            else:
                await self._read(False)
                for id in list(self.waiting):
                    await to_its_end(self._deliver(id, False))
        finally:
            with suppress(StoreError):
                await to_its_end(self._cursor.save(self.waiting))

    async def _follow(self) -> None:
        delivering = asyncio.ensure_future(self._deliver_all())
        reading = asyncio.ensure_future(self._read(True))
        try:
            done, _ = await asyncio.wait([delivering, reading], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (delivering, reading):
                task.cancel()
            await asyncio.gather(delivering, reading, return_exceptions=True)

    # the feed

    async def _read(self, follow: bool) -> None:
        """Note all questions that are asked from the cursor on."""
        while True:
            try:
                async for change in self._engine.changes(self._cursor.mark, follow=follow, types=["question.asked"]):
                    async for id in self._asked(change):
                        self._note(id)
                    self._cursor.mark = change.mark
                    self._news.set()
                return
            except StoreClosed:
                raise
            except StoreError as error:
                if not follow:
                    raise
                log.warning("The store cannot be read, and is tried again: %s", error)
            await asyncio.sleep(LOOK_EVERY)

    async def _asked(self, change: Change) -> AsyncIterator[str]:
        if change.reset:
            after: str | None = None
            while True:
                page = await self._questions(limit=PAGE, after=after)
                for question in page:
                    yield question.id
                if (after := page.next) is None:
                    return
        elif change.damaged is not None:
            with suppress(StoreError):
                for question in await self._engine.session(change.session_id).questions():
                    yield question.id
        for event in change.events:
            yield str(event.data["question_id"])

    def _note(self, id: str) -> None:
        if id in self.waiting:
            self._renewed.add(id)
        else:
            self.waiting[id] = 0
            self._put(id, 0.0)

    def _put(self, id: str, at: float) -> None:
        heapq.heappush(self._queue, (at, next(self._numbers), id))

    def _next(self, now: float) -> str | None:
        """Return the next question whose time has come."""
        if not self._queue or max(self._queue[0][0], self._rests_until) > now:
            return None
        return heapq.heappop(self._queue)[2]

    # the messages

    async def _deliver_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            id = self._next(loop.time())
            if id is not None:
                await to_its_end(self._deliver(id, True))
                continue
            if self._cursor.is_due:
                await self._cursor.save_if_possible(self.waiting, log)
            next_try = max(self._queue[0][0], self._rests_until) if self._queue else float("inf")
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(next_try, loop.time() + SAVE_EVERY)):
                    await self._news.wait()

    async def _deliver(self, id: str, follow: bool) -> None:
        """Send the message about a question, unless it was sent or is not needed any more."""
        self._renewed.discard(id)
        try:
            question = await self._open(id)
            if question is None or await self._attempt(question, follow):
                self._done(id)
        except StoreClosed:
            raise
        except StoreError as error:
            if not follow:
                raise
            log.warning("Question %s cannot be sent, and is tried again: %s", id, error)
            self._put(id, asyncio.get_running_loop().time() + LOOK_EVERY)

    def _done(self, id: str) -> None:
        if id in self._renewed:
            self._put(id, 0.0)
        else:
            del self.waiting[id]

    async def _open(self, id: str) -> Question | None:
        found = await self._questions(limit=1, prefix=id)
        return found[0] if found and found[0].id == id else None

    async def _questions(self, limit: int, prefix: str = "", after: str | None = None) -> Listing[Question]:
        owner, workflow = self._wanted
        return await self._engine.questions(owner=owner, workflow=workflow, prefix=prefix, limit=limit, after=after)

    async def _attempt(self, question: Question, follow: bool) -> bool:
        """Send a message under its record. Return whether the question needs no further attempt."""
        key = f"notify {self._id} {question.id} {question.version}"
        before = await self._engine.keys.recall(key)
        if before is not None and before.answer is not None:
            return True
        again = before is not None and key not in self._held
        text = self._ways.message(question, self._service.room, again)
        if not await self._take(key, question):
            self._put(question.id, asyncio.get_running_loop().time() + LOOK_EVERY)
            return False
        reason = await self._service.send(text)
        if reason:
            await self._engine.keys.forget(key)
            self._failed(question, reason, follow)
        else:
            self._failures, self._rests_until = 0, 0.0
            await self._complete(key, question)
            self._report(self._notice("sent", question))
        self._held.discard(key)
        return not reason

    async def _take(self, key: str, question: Question) -> bool:
        """Take the record of a message, and return whether this process may send it."""
        found = await self._engine.keys.remember(key, DIGEST, keep_for=_kept_for(question))
        if found.claimed:
            self._held.add(key)
        return found.answer is None and key in self._held

    async def _complete(self, key: str, question: Question) -> None:
        """Record that a message was sent. Nothing else is sent before that has succeeded."""
        while True:
            try:
                await self._engine.keys.remember(key, DIGEST, SENT, keep_for=_kept_for(question))
                return
            except StoreClosed:
                raise
            except StoreError as error:
                log.warning("Question %s was sent, but that cannot be recorded, and is tried again: %s",
                            question.id, error)  # fmt: skip
            await asyncio.sleep(FIRST_DELAY)

    def _failed(self, question: Question, reason: str, follow: bool) -> None:
        """Try the question again later, and rest. The others come first, as the service may never accept this one."""
        self.waiting[question.id] += 1
        self._failures += 1
        if not follow:
            self.unsent += 1
            self._report(self._notice("failed", question, reason))
            return
        now, rest = asyncio.get_running_loop().time(), _delay(self._failures)
        self._rests_until = now + rest
        again = max(rest, _delay(self.waiting[question.id]))
        self._put(question.id, now + again)
        self._report(self._notice("failed", question, reason, again))

    def _notice(
        self, status: Literal["sent", "failed"], question: Question, reason: str = "", retry_in: float | None = None
    ) -> Notice:
        service = self._service
        return Notice(
            status, question.id, question.version, question.workflow_id, service.name, service.number, reason, retry_in
        )


def _kept_for(question: Question) -> timedelta:
    if question.expired_at is None:
        return KEPT_WITHOUT_END
    return KEPT_FOR + max(question.expired_at - question.updated_at, timedelta(0))


def _delay(failures: int) -> float:
    """Return how many seconds to wait after so many failures.

    >>> [_delay(failures) for failures in (1, 2, 3, 9, 10, 5_000)]
    [1.0, 2.0, 4.0, 256.0, 300.0, 300.0]
    """
    return float(min(FIRST_DELAY * 2 ** min(failures - 1, 20), LONGEST_DELAY))
